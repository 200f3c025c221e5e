"""Where else can an encoder be loaded? In torchvision, timm, ONNX, safetensors and Hugging Face's layout."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from ...errors import UserError
from ...evaluate import FrozenEncoder
from ...output_names import refuse_no_target
from ...outputs import claim, is_ours
from ..embedding import Encoder
from ..loading import frozen
from .files import to_safetensors, to_timm, to_torchvision
from .hub import WEIGHTS, to_hf
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
    replaced: bool = False
    """Whether it took the place of another."""


def export(
    encoder: Encoder, to: Target, out: str | os.PathLike[str] | None = None, *, overwrite: bool = False
) -> Exported:
    """Write an encoder so that others load it: `to` torchvision, timm, onnx, safetensors or hf (a folder).

    An export is replaced by one of the same encoder, as of a run that was trained further; one of another encoder, or
    a file of somebody else's, only with `overwrite`; a folder of somebody else's never.
    """
    refuse_no_target(to, "RUN")
    way, known = WAYS[to], frozen(encoder)
    path = Path(way.out if out is None else out)
    if way.suffixes and path.suffix.lower() not in way.suffixes:
        raise UserError(f"out={path}: {to} is written to a file that ends in {' or '.join(way.suffixes)}.")
    weights = path if way.suffixes else path / WEIGHTS
    if way.suffixes or is_ours(weights):
        replaced = claim(weights, overwrite, {"encoder": known.name})
    else:
        replaced = path.is_dir() and any(path.iterdir())
    return Exported(path, way.write(known, path), replaced)
