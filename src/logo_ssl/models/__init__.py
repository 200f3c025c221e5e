"""What is trained? Backbones, heads, the encoder, its momentum copy, the queue."""

from .backbones import FAMILIES, build_backbone, draw_as_torch_does
from .encoder import Encoder, per_crop, pick
from .heads import mlp
from .momentum import follow, momentum_copy
from .norm import BatchNorm
from .queue import Queue

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
