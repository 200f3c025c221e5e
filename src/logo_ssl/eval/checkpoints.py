"""What does somebody else's checkpoint hold? Tensors by name, read without running any code in it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..encoder_names import SUFFIXES
from ..errors import UserError
from . import inert

HOLDERS = ("state_dict", "model_state_dict", "model", "net", "backbone", "encoder")
"""Where training scripts put the weights, the likeliest first."""


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """The weights in a checkpoint, whatever lies around them."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint {path}; give the path of a {', '.join(SUFFIXES)} file.")
    content = _safetensors(path) if path.suffix == ".safetensors" else _unpickled(path)
    held = [_tensors(content.get(name)) for name in HOLDERS]
    weights = max([*held, _tensors(content)], key=len)  # scripts save a tensor or two beside them, such as an accuracy
    if not weights:
        raise UserError(
            f"{path} holds no weights (it has {', '.join(map(str, list(content)[:5])) or 'nothing'}); save a "
            "state_dict, plain or under the key 'state_dict'."
        )
    return weights


def _tensors(content: Any) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        return {}
    return {str(key): value for key, value in content.items() if isinstance(value, Tensor)}


def _safetensors(path: Path) -> Mapping[str, Any]:
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise UserError(f"{path} is not a whole safetensors file ({error}); write or download it again.") from error


def _unpickled(path: Path) -> Mapping[str, Any]:
    """What lies in a pickle; objects beside the weights, such as settings, are inert."""
    try:
        with warnings.catch_warnings(action="ignore"):
            try:
                content = torch.load(path, map_location="cpu", weights_only=True)
            except UnpicklingError:  # names that torch does not trust; TorchScript was refused by a RuntimeError
                content = torch.load(path, map_location="cpu", weights_only=False, pickle_module=inert)
    except Exception as error:  # torch raises whatever torn bytes lead it to
        raise UserError(f"{path} is no checkpoint, or not a whole one; write or download it again.") from error
    return content if isinstance(content, Mapping) else {}
