"""The registry of frameworks: add one by one file and one line here."""

from .base import Framework, FrameworkTraits, Passes, global_passes
from .byol import BYOL, BYOLConfig
from .moco import MoCo, MoCoConfig
from .simclr import SimCLR, SimCLRConfig
from .simsiam import SimSiam, SimSiamConfig
from .supervised import Supervised, SupervisedConfig

FrameworkConfig = MoCoConfig | SimSiamConfig | BYOLConfig | SimCLRConfig | SupervisedConfig

FRAMEWORKS = {
    "moco": MoCoConfig,
    "simsiam": SimSiamConfig,
    "byol": BYOLConfig,
    "simclr": SimCLRConfig,
    "supervised": SupervisedConfig,
}

__all__ = [
    "BYOL",
    "FRAMEWORKS",
    "BYOLConfig",
    "Framework",
    "FrameworkConfig",
    "FrameworkTraits",
    "MoCo",
    "MoCoConfig",
    "Passes",
    "SimCLR",
    "SimCLRConfig",
    "SimSiam",
    "SimSiamConfig",
    "Supervised",
    "SupervisedConfig",
    "global_passes",
]
