"""Can this name an encoder at all? Asked before torch is imported, so that a slip of the finger is told at once."""

import re
from pathlib import Path

from .errors import UserError

SUFFIXES = (".pth", ".pth.tar", ".pt", ".ckpt", ".bin", ".safetensors")
"""What checkpoint files are called."""
LIBRARIES = ("torchvision", "timm", "random")
"""Where encoders have names: LIBRARY/NAME."""


def is_checkpoint_name(path: Path) -> bool:
    """Whether a file is called as checkpoints are."""
    return path.name.lower().endswith(SUFFIXES)


def refuse_no_encoder(source: str) -> None:
    """Raise a UserError for what is no folder, no checkpoint by its name, and in no library."""
    if not source:
        raise UserError("ENCODER is empty: give a run folder, a name or a checkpoint.")
    library, slash, _ = source.partition("/")
    path = Path(source).expanduser()
    if not ((slash and library in LIBRARIES) or path.is_dir() or is_checkpoint_name(path)):
        raise UserError(
            f"{source!r} is no encoder; give a run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint "
            f"({', '.join(SUFFIXES)}).{_with_library(source)}"
        )


def _with_library(name: str) -> str:
    """A hint for what looks like the bare name of a network."""
    if not re.fullmatch(r"[a-z]+_?[a-z]*_?\d\w*", name):
        return ""
    return f" Did you mean {', '.join(f'{library}/{name}' for library in LIBRARIES)}?"
