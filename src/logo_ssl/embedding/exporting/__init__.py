"""Where else can an encoder be loaded? In torchvision, timm, ONNX, safetensors and Hugging Face's layout."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ...errors import UserError
from ...eval import FrozenEncoder
from ...files import check_output, refuse_existing
from ...output_names import refuse_no_target
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
    """Python lines that load it as `encoder` and make `features` of some `images`; they run as they are."""


def export(
    encoder: Encoder, to: Target, out: str | os.PathLike[str] | None = None, *, overwrite: bool = False
) -> Exported:
    """Write an encoder so that others load it: `to` torchvision, timm, onnx, safetensors or hf (a folder).

    A file, or a folder that is not empty, is replaced only with `overwrite`.
    """
    refuse_no_target(to, "RUN")
    way, known = WAYS[to], frozen(encoder)
    path = Path(way.out if out is None else out)
    if way.suffixes and path.suffix.lower() not in way.suffixes:
        raise UserError(f"out={path}: {to} is written to a file that ends in {' or '.join(way.suffixes)}.")
    if way.suffixes:
        check_output(path, overwrite)
    elif not path.is_dir() or any(path.iterdir()):
        refuse_existing(path, overwrite)
    return Exported(path, way.write(known, path))
