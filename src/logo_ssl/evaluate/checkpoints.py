"""What does somebody else's checkpoint hold? Tensors by name, read without running any code in it."""

import argparse
import re
import warnings
from collections.abc import Mapping
from pathlib import Path, PosixPath
from pickle import UnpicklingError
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..errors import UserError

SUFFIXES = (".pth", ".pth.tar", ".pt", ".ckpt", ".bin", ".safetensors")
HARMLESS: list[Any] = [argparse.Namespace, PosixPath]  # settings that training scripts save beside the weights
HOLDERS = ("state_dict", "model_state_dict", "model", "net", "backbone", "encoder")
"""Where training scripts put the weights, the likeliest first."""
RESAVE = (
    "if you trust the file, save its weights alone: "
    "torch.save(torch.load(FILE, weights_only=False)['state_dict'], 'weights.pth')"
)


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The weights in a checkpoint, whatever lies around them."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint {path}; give the path of a {', '.join(SUFFIXES)} file.")
    content = _safetensors(path) if path.suffix == ".safetensors" else _unpickled(path)
    for name in (None, *HOLDERS):
        weights = content if name is None else content.get(name, {})
        if isinstance(weights, Mapping):
            found = {str(key): value for key, value in weights.items() if isinstance(value, Tensor)}
            if found:
                return found
    raise UserError(
        f"{path} holds no weights (it has {', '.join(map(str, list(content)[:5])) or 'nothing'}); save a state_dict, "
        "plain or under the key 'state_dict'."
    )


def _safetensors(path: Path) -> Mapping[str, Any]:
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is not a whole safetensors file ({error}); write or download it again.") from error


def _unpickled(path: Path) -> Mapping[str, Any]:
    try:
        with torch.serialization.safe_globals(HARMLESS), warnings.catch_warnings(action="ignore"):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        refused = re.search(r"GLOBAL (\S+)", str(error))
        if refused is not None:
            raise UserError(
                f"{path} holds {refused[1]} beside its weights, which is not read because it could run code; {RESAVE}"
            ) from None
        raise UserError(f"{path} is no checkpoint that torch can read safely; write or download it again.") from error
    except Exception as error:  # torch raises whatever torn bytes lead it to
        raise UserError(f"{path} is no checkpoint, or not a whole one; write or download it again.") from error
    return content if isinstance(content, Mapping) else {}
