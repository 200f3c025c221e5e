"""Which strategies are there? The registry."""

from .logo import LoGo, LoGoConfig
from .multi_crop import MultiCrop, MultiCropConfig
from .strategy import PairWeights, Strategy, assign_roles, least_local
from .two_view import TwoView, TwoViewConfig

StrategyConfig = TwoViewConfig | MultiCropConfig | LoGoConfig

STRATEGIES = {"two-view": TwoViewConfig, "multi-crop": MultiCropConfig, "logo": LoGoConfig}

__all__ = [
    "STRATEGIES",
    "LoGo",
    "LoGoConfig",
    "MultiCrop",
    "MultiCropConfig",
    "PairWeights",
    "Strategy",
    "StrategyConfig",
    "TwoView",
    "TwoViewConfig",
    "assign_roles",
    "least_local",
]
