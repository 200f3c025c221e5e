"""The registry of frameworks: add one by one file and one line here."""

from .barlow_twins import BarlowTwins, BarlowTwinsConfig
from .base import Framework, FrameworkTraits
from .byol import BYOL, BYOLConfig
from .dino import DINO, DINOConfig
from .distil import Distil, DistilConfig
from .moco import MoCo, MoCoConfig
from .nnclr import NNCLR, NNCLRConfig
from .simclr import SimCLR, SimCLRConfig
from .simsiam import SimSiam, SimSiamConfig
from .supervised import Supervised, SupervisedConfig
from .swav import SwAV, SwAVConfig
from .vicreg import VICReg, VICRegConfig

FrameworkConfig = (
    MoCoConfig
    | SimSiamConfig
    | BYOLConfig
    | SimCLRConfig
    | NNCLRConfig
    | SwAVConfig
    | DINOConfig
    | VICRegConfig
    | BarlowTwinsConfig
    | DistilConfig
    | SupervisedConfig
)

FRAMEWORKS = {
    "moco": MoCoConfig,
    "simsiam": SimSiamConfig,
    "byol": BYOLConfig,
    "simclr": SimCLRConfig,
    "nnclr": NNCLRConfig,
    "swav": SwAVConfig,
    "dino": DINOConfig,
    "vicreg": VICRegConfig,
    "barlow-twins": BarlowTwinsConfig,
    "distil": DistilConfig,
    "supervised": SupervisedConfig,
}

__all__ = [
    "BYOL",
    "DINO",
    "FRAMEWORKS",
    "NNCLR",
    "BYOLConfig",
    "BarlowTwins",
    "BarlowTwinsConfig",
    "DINOConfig",
    "Distil",
    "DistilConfig",
    "Framework",
    "FrameworkConfig",
    "FrameworkTraits",
    "MoCo",
    "MoCoConfig",
    "NNCLRConfig",
    "SimCLR",
    "SimCLRConfig",
    "SimSiam",
    "SimSiamConfig",
    "Supervised",
    "SupervisedConfig",
    "SwAV",
    "SwAVConfig",
    "VICReg",
    "VICRegConfig",
]
