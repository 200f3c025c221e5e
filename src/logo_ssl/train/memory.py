"""Does a step fit into a CPU's memory? Asked beforehand: the system kills whoever takes too much, without a word."""

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ..errors import UserError
from ..hardware import available_memory, whole_memory
from .module import Pretraining
from .processes import processes_for

LOOKED_AT = 128  # px: of larger crops it takes so much more as they have more pixels, or even more
HOPELESS = 1.25  # times what is free: others may end meanwhile


def about_memory(module: Pretraining, device: torch.device) -> list[str]:
    """What to say of a step that takes more memory than a CPU has free; raise a UserError where it is far more."""
    if device.type != "cpu":
        return []  # a GPU says so by itself, and nothing is lost
    needed, free, whole = least_memory(module), available_memory(device), whole_memory()
    recipe, cure = module.recipe, "free some, or lower batch_size or crops.global_size"
    told = (
        f"A batch of {recipe.batch_size} with crops of {recipe.crops.global_size} px takes {needed / 1e9:.1f} GB of "
        f"memory or more, and {free / 1e9:.1f} GB are free"
    )
    if whole is not None and needed > min(whole, HOPELESS * free):
        raise UserError(f"{told}; {cure}.")
    return [f"{told}: the system may kill this process without a word; {cure}."] if needed > free else []


def least_memory(module: Pretraining) -> int:
    """Bytes that a step takes on this machine for crops and the backward pass through the backbone: never less."""
    recipe, crops, channels = module.recipe, module.recipe.crops, len(module.mean)
    batch, side = recipe.batch_size // processes_for(recipe).nodes, min(crops.global_size, LOOKED_AT)
    kept = _kept_for_backward(module.framework.encoder.backbone, torch.zeros(1, channels, side, side)) // side**2
    each_global, local = crops.global_size**2, crops.n_local * crops.local_size**2
    asking = len(module.strategy.roles.queries) * each_global + local  # those that only answer leave nothing
    every = crops.n_global * each_global + local
    return batch * (asking * kept + every * channels * 4) // (2 if module.bf16 else 1)


def _kept_for_backward(backbone: nn.Module, images: Tensor) -> int:
    """Bytes that a forward pass leaves for the backward one, not counting its own; 0 where it takes no such images."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*backbone.parameters(), *backbone.buffers())}
    kept = dict[int, int]()

    def note(saved: Tensor) -> Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved.untyped_storage().nbytes()
        return saved

    training = backbone.training
    backbone.eval()  # statistics of batch norm must not move
    try:
        with torch.enable_grad(), saved_tensors_hooks(note, lambda saved: saved):
            features = backbone(images)  # as long as it lives, no two tensors lie at one address
    except (RuntimeError, AssertionError, ValueError):  # `refuse_misfit` tells
        return 0
    finally:
        backbone.train(training)
    del features
    return sum(size for place, size in kept.items() if place not in own)
