"""Data sets and their way to the device: a name or a path in, batches out; the registry of data sources.

A new source is a file with its loader, and a line in `NAMES` (for a set with a name of its own) or in `PATHS` (for a
kind of file).
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..errors import DataMissing, UserError, nearest
from .bad_images import BadImages
from .decode import dataset_info, statistics
from .folder import load_folder, load_imagenet, load_list, load_mit67, load_tiny_imagenet
from .images import ImageSet, Photos, Split, data_identity, fingerprint, fingerprints
from .loader import Batches, LoadingConfig, place, squared
from .npz import load_npz
from .scenes import CLASSES, make_scenes
from .shards import load_shard
from .torchvision_sets import SETS, load_torchvision_set
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
    "lay_out",
    "load_data",
    "locate",
    "place",
    "squared",
    "statistics",
]

SCENES_TRAIN, SCENES_TEST = 5_000, 1_000
SCENES_SIZES = (32, 96)


def load_scenes(root: Path, size: int) -> ImageSet:
    """Scenes painted at about the size of a crop; nothing is read."""
    size = min(max(size, SCENES_SIZES[0]), SCENES_SIZES[1])
    train, test = (Split(*make_scenes(n, size, seed)) for seed, n in enumerate((SCENES_TRAIN, SCENES_TEST)))
    return ImageSet("scenes", train, test, CLASSES)


NAMES: dict[str, Callable[[Path, int], ImageSet]] = {
    "scenes": load_scenes,
    **{name: partial(load_imagenet, name) for name in ("imagenet100", "imagenet")},
    "tiny-imagenet": load_tiny_imagenet,
    "mit67": load_mit67,
    **{name: partial(load_torchvision_set, name) for name in SETS},
}
"""What loads each set with a name, from the folder where such sets are kept and the size of a crop."""
PATHS: dict[str, Callable[[Path], ImageSet]] = {
    ".npz": load_npz,
    ".txt": load_list,
    ".lst": load_list,
    ".tar": load_shard,
}
"""What loads a file that is a data set, by the ending of its name."""


def load_data(source: str, size: int) -> ImageSet:
    """The data set of that name, or at that path; scenes are painted at `size`, all else is as it is."""
    if not source.strip():
        raise UserError("data is empty: give a name or a path.")
    path, root = Path(source).expanduser(), data_root()
    if source in NAMES:
        data = NAMES[source](root, size)
    elif path.is_dir():
        data, root = load_folder(path), path
    elif path.is_file() and (load := PATHS.get(path.suffix.lower())):
        data, root = load(path), path.parent
    else:
        accepted = f"a folder of images or of .tar shards, a file ({', '.join(PATHS)})"
        if path.exists():
            raise UserError(f"data={source!r}: must be {accepted}, or a name.")
        hint = nearest(path.name.lower(), NAMES, cutoff=0.7)  # a path may be like a name by chance
        raise DataMissing(f"No data at {source!r}; give {accepted}, or a name (scenes, cifar10, mit67, ...).{hint}")
    return replace(data, source=source, root=str(root.absolute()))


def locate(source: str) -> str:
    """A name as it is, a path made absolute: a run must find its data from any folder."""
    return source if source in NAMES or not source.strip() else str(Path(source).expanduser().absolute())


def data_root() -> Path:
    """Where named data sets are kept: $LOGO_DATA, or a folder in the user's cache."""
    return Path(os.environ.get("LOGO_DATA") or "~/.cache/logo-ssl").expanduser()
