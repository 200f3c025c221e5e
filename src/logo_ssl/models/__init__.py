"""Networks: backbones, the encoder with its heads, momentum copy and queue, batch norm."""

from .backbones import FAMILIES, build_backbone, draw_as_torch_does
from .batch_norm import BatchNorm
from .encoder import Encoder, Queue, follow, mlp, momentum_copy, per_crop, pick

__all__ = [
    "FAMILIES",
    "BatchNorm",
    "Encoder",
    "Queue",
    "build_backbone",
    "draw_as_torch_does",
    "follow",
    "mlp",
    "momentum_copy",
    "per_crop",
    "pick",
]
