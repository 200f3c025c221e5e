"""What should come out of a stack of crops? Each crop in a pass of its own, by batch norms that know no groups."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from logo_ssl.models.batch_norm import set_groups


def crop_by_crop(network: nn.Module, stack: Tensor) -> Tensor:
    """The network in training mode, once for each crop; its own statistics stay as they are."""
    network = deepcopy(network).train()
    set_groups(network, 1)
    return torch.stack([network(crop) for crop in stack])
