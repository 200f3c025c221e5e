"""Exports of an encoder; a new format is one file and one line."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ...errors import UserError
from ...eval.encoder import EncoderOptions, FrozenEncoder
from ...files import check_output, refuse_existing
from ..embeddings import Encoder
from ..module import frozen
from .onnx import to_onnx
from .weights import to_hf, to_safetensors, to_timm, to_torchvision

Target = Literal["torchvision", "timm", "onnx", "safetensors", "hf"]


FORMATS: dict[Target, tuple[Callable[[FrozenEncoder, Path], str], str]] = {
    "torchvision": (to_torchvision, "encoder-torchvision.safetensors"),
    "timm": (to_timm, "encoder-timm.safetensors"),
    "onnx": (to_onnx, "encoder.onnx"),
    "safetensors": (to_safetensors, "encoder.safetensors"),
    "hf": (to_hf, "encoder-hf"),
}
"""What writes a target and returns the lines that load it (UserError if the target has no such network), and a file,
or a folder if it has no suffix."""


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
    path = _checked(to, out, overwrite)
    return Exported(path, FORMATS[to][0](frozen(encoder), path))


def _checked(to: Target, out: str | os.PathLike[str] | None, overwrite: bool) -> Path:
    """Where an encoder can be written."""
    if to not in FORMATS:
        raise UserError(f"to={to!r}: choose {', '.join(FORMATS)}.")
    _, default = FORMATS[to]
    path, suffix = Path(default if out is None else out), Path(default).suffix
    if suffix and path.suffix.lower() != suffix:
        raise UserError(f"out={path}: {to} is written to a file that ends in {suffix}.")
    if suffix:
        check_output(path, overwrite)
    elif not path.is_dir() or any(path.iterdir()):
        refuse_existing(path, overwrite)
    return path


@dataclass(frozen=True)
class Export(EncoderOptions):
    """Write an encoder that torchvision, timm, ONNX Runtime or the Hugging Face Hub can load, and show how.

    example: logo-ssl export runs/photos --to timm --out encoder.safetensors
    """

    to: Target = field(kw_only=True)
    """torchvision, timm, onnx, safetensors, or hf: a folder with a model card."""
    out: Path | None = None
    """File, or folder for hf (default: encoder and the target's name, in this folder)."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def run(self) -> None:
        """Export, and show how to load it."""
        _checked(self.to, self.out, self.overwrite)  # before the encoder is loaded
        encoder, console = self.open()
        done = export(encoder, self.to, self.out, overwrite=self.overwrite)
        console.print(f"Exported: {done.path}\n\n{done.snippet}")
