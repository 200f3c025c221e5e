"""Which images are there? A name or a path in, images in memory out."""

from .batches import Batches
from .images import ImageSet, Split
from .sources import NAMES, load_data, locate

__all__ = ["NAMES", "Batches", "ImageSet", "Split", "load_data", "locate"]
