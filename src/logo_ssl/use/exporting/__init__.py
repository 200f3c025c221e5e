"""Where else can an encoder be loaded? In torchvision, timm, ONNX, safetensors and Hugging Face's layout."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from ...errors import UserError, nearest
from ...evaluate import FrozenEncoder
from ...evaluate.record import refuse_unwritable
from ..embedding import Encoder
from ..loading import frozen
from .files import to_safetensors, to_timm, to_torchvision
from .hub import to_hf
from .onnx import to_onnx

Target = Literal["torchvision", "timm", "onnx", "safetensors", "hf"]


class Way(NamedTuple):
    """How a target is written, and where unless somebody says."""

    write: Callable[[FrozenEncoder, Path], str]
    """Writes it, and gives back the lines that load it; UserError where the target has no such network."""
    out: str
    suffixes: tuple[str, ...]


WAYS: dict[Target, Way] = {
    "torchvision": Way(to_torchvision, "encoder-torchvision.safetensors", (".safetensors",)),
    "timm": Way(to_timm, "encoder-timm.safetensors", (".safetensors",)),
    "onnx": Way(to_onnx, "encoder.onnx", (".onnx",)),
    "safetensors": Way(to_safetensors, "encoder.safetensors", (".safetensors",)),
    "hf": Way(to_hf, "encoder-hf", ()),
}


class Exported(NamedTuple):
    """What was written, and how to load it."""

    path: Path
    snippet: str
    """Python lines that load it and make `features` of `images`."""


def export(encoder: Encoder, to: Target, out: str | os.PathLike[str] | None = None) -> Exported:
    """Write an encoder so that others load it: `to` torchvision, timm, onnx, safetensors or hf (a folder)."""
    if to not in WAYS:
        known = get_args(Target)
        raise UserError(f"to is {to!r}; export to {', '.join(known)}.{nearest(to, known)}")
    way, known = WAYS[to], frozen(encoder)
    path = Path(way.out if out is None else out)
    if way.suffixes and path.suffix.lower() not in way.suffixes:
        raise UserError(f"--out is {path}; {to} is written to a file that ends in {' or '.join(way.suffixes)}.")
    if way.suffixes:
        refuse_unwritable(path)
    return Exported(path, way.write(known, path))
