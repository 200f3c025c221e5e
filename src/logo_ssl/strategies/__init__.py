"""The registry of strategies: add one by one file and one line here."""

from .base import PairWeights, Strategy, StrategyTraits, assign_roles, own_roles
from .koleo import KoLeo, KoLeoConfig
from .logo import LoGo, LoGoConfig
from .multi_crop import MultiCrop, MultiCropConfig
from .two_view import TwoView, TwoViewConfig

StrategyConfig = TwoViewConfig | MultiCropConfig | LoGoConfig | KoLeoConfig

STRATEGIES = {"two-view": TwoViewConfig, "multi-crop": MultiCropConfig, "logo": LoGoConfig, "koleo": KoLeoConfig}

__all__ = [
    "STRATEGIES",
    "KoLeo",
    "KoLeoConfig",
    "LoGo",
    "LoGoConfig",
    "MultiCrop",
    "MultiCropConfig",
    "PairWeights",
    "Strategy",
    "StrategyConfig",
    "StrategyTraits",
    "TwoView",
    "TwoViewConfig",
    "assign_roles",
    "own_roles",
]
