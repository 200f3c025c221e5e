"""Which settings does nobody have to give? Those that the images and this machine decide."""

from collections.abc import Mapping
from typing import Any

import torch

from ..data import load_data, locate
from ..data.decode import dataset_info
from ..errors import UserError
from ..hardware import available_memory, best_device, hardware
from ..recipes import RECIPES, Machine, Recipe, choose
from .building import refuse_too_few

SCENES_SIDE = RECIPES["tiny"].crops.global_size  # px, at which made-up scenes are looked at


def machine_for(device: str) -> Machine:
    """The device that training would take, and its memory: all of a GPU's, so that every process chooses the same."""
    found = best_device(device)
    if found.type != "cuda":
        return Machine(found.type, hardware(found), available_memory(found))
    whole = torch.cuda.get_device_properties(found).total_memory
    return Machine(found.type, hardware(found), whole, torch.cuda.is_bf16_supported(including_emulation=False))


def recipe_for(data: str | None, device: str = "auto", wishes: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe that suits the images at `data`, this machine and some wishes; its `chosen` says why."""
    if data is None:
        raise UserError(
            "Say where your images are, for example: logo-ssl pretrain --data photos/ --out runs/photos; or name a "
            "recipe: logo-ssl pretrain tiny"
        )
    facts = dataset_info(load_data(locate(data), SCENES_SIDE))
    refuse_too_few(data, facts.n_images)
    return choose(facts, machine_for(device), wishes).changed(data=data)
