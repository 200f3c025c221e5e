"""Which images are there, and how do they reach the device? A name or a path in, batches out."""

from .bad import BadImages
from .batches import Batches
from .images import ImageSet, Photos, Split
from .placement import LoadingConfig, place
from .samples import squared, statistics
from .sources import NAMES, load_data, locate

__all__ = [
    "NAMES",
    "BadImages",
    "Batches",
    "ImageSet",
    "LoadingConfig",
    "Photos",
    "Split",
    "load_data",
    "locate",
    "place",
    "squared",
    "statistics",
]
