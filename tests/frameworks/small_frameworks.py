"""What the tests of frameworks share: small ones in float64, crops for them, and how to push a network aside."""

import torch

from logo_ssl.frameworks import FrameworkConfig
from logo_ssl.models import build_backbone
from logo_ssl.types import Crops, Roles

N_FEATURES = 256
BOTH_WAYS = Roles(queries=(0, 1), targets=(0, 1), pairs=((0, 1), (1, 0)))


def small(config: FrameworkConfig):
    """A framework on the tiny backbone, the same every time."""
    torch.manual_seed(0)
    return config.build(build_backbone("tiny"), N_FEATURES).double()


def crops(random, n_images: int = 8) -> Crops:
    """Two global and two local crops of noise."""
    return Crops(random(2, n_images, 3, 16, 16), random(2, n_images, 3, 8, 8))


@torch.no_grad()
def shift(network: torch.nn.Module, by: float) -> None:
    """Add a number to every parameter."""
    for parameter in network.parameters():
        parameter.add_(by)
