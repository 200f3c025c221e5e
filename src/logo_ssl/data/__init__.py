"""Data sets and their way to the device: a name or a path in, batches out."""

from .bad_images import BadImages
from .decode import dataset_info, statistics
from .images import ImageSet, Photos, Split, data_identity, fingerprint, fingerprints
from .loader import Batches, LoadingConfig, place, squared
from .sources import NAMES, data_root, is_placed, load_data, locate
from .workers import lay_out

__all__ = [
    "NAMES",
    "BadImages",
    "Batches",
    "ImageSet",
    "LoadingConfig",
    "Photos",
    "Split",
    "data_identity",
    "data_root",
    "dataset_info",
    "fingerprint",
    "fingerprints",
    "is_placed",
    "lay_out",
    "load_data",
    "locate",
    "place",
    "squared",
    "statistics",
]
