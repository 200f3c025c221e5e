"""Networks: backbones, the encoder with its heads, momentum copy and queue, a frozen teacher, batch norm."""

from .backbones import FAMILIES, build_backbone, draw_as_torch_does
from .batch_norm import BatchNorm
from .encoder import Encoder, Prototypes, mlp, per_crop, pick
from .momentum import Queue, follow, momentum_copy, scheduled_momentum
from .teacher import Teacher

__all__ = [
    "FAMILIES",
    "BatchNorm",
    "Encoder",
    "Prototypes",
    "Queue",
    "Teacher",
    "build_backbone",
    "draw_as_torch_does",
    "follow",
    "mlp",
    "momentum_copy",
    "per_crop",
    "pick",
    "scheduled_momentum",
]
