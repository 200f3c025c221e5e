"""What may be asked of `embed` and `export`? Told before torch is imported, as a slip of the finger should be."""

import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from .errors import UserError, nearest

TABLES = (".parquet", ".npz", ".csv")
"""How files of features end."""
TARGETS = ("torchvision", "timm", "onnx", "safetensors", "hf")
"""Where an encoder can be exported to."""


def refuse_no_table(out: Path | None) -> None:
    """UserError where no file is named for features, or one that no table can have."""
    if out is None:
        raise UserError(f"Say where the features go: --out features.npz (one of {', '.join(TABLES)}).")
    if out.suffix.lower() not in TABLES:
        raise UserError(f"{out} is none of {', '.join(TABLES)}; features lie in one of these.")


def refuse_no_target(to: str | None, encoder: str) -> None:
    """UserError that names all targets, and the way to others; the encoder is named as a shell takes it."""
    if to is None:
        first, *others = ("onnx", *(target for target in TARGETS if target != "onnx"))
        raise UserError(f"Say where to: logo-ssl export {encoder} --to {first} (or {', '.join(others)}).")
    if to not in TARGETS:
        raise UserError(
            f"No export is called {to!r}; choose {', '.join(TARGETS)}. Other formats (TensorRT, Core ML, TFLite, "
            f"...) are made from what `--to onnx` writes.{nearest(to, TARGETS)}"
        )


def refuse_early(command: str, arguments: Sequence[str]) -> None:
    """What of this can be seen in a line of arguments: an option that is missing only where there is no other.

    With others it may be mistyped, of which the one who reads them all says more.
    """
    alone = len(arguments) == 1
    if command == "embed" and (alone or _said("--out", arguments)):
        refuse_no_table(None if alone else Path(_said("--out", arguments)))
    if command == "export" and (alone or _said("--to", arguments)):
        refuse_no_target(_said("--to", arguments) or None, shlex.quote(arguments[0]))


def _said(option: str, arguments: Sequence[str]) -> str:
    """The last value of an option; nothing where it has none."""
    values = [after for word, after in pairwise(arguments) if word == option]
    values += [word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")]
    return values[-1] if values and not values[-1].startswith("-") else ""
