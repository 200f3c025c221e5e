"""What does a frozen encoder see in a data set? Features part by part, each computed once and kept in a cache."""

import hashlib
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data import Photos, Split
from ..data.images import fingerprint
from ..data.loader import CHUNK
from .encoders import FrozenEncoder
from .extraction import PREPROCESSING, compute
from .how import Extraction
from .labelled import labels_of
from .pixels import decodes_on_gpu
from .store import Store, cache_folder

PART = 64 * CHUNK  # images whose features make one file, 134 MB at 2048 features; an interruption loses no more


def features_of(
    encoder: FrozenEncoder, split: Split, how: Extraction | None = None, what: str = "images"
) -> Float[Tensor, "N F"]:
    """Features of all images of a split, on the CPU; the rows of images that cannot be read are NaN."""
    how = how or Extraction()
    if isinstance(split.images, Photos):
        split = replace(split, images=replace(split.images))  # files may have been written since they were last asked
    store = Store(cache_folder()) if how.cache else None
    key = "" if store is None else features_key(encoder, split, how)
    features: Tensor | None = None
    missing: list[Tensor] = []
    for rows in torch.arange(len(split)).split(PART):
        known = None if store is None else store.load(f"{key}-{rows[0]}", len(rows))
        if known is None:
            missing.append(rows)
        else:
            features = _placed(features, known, rows, len(split))
    for rows, new in zip(missing, compute(encoder, split, missing, how, what), strict=True):
        features = _placed(features, new, rows, len(split))
        if store is not None and not new.isnan().any():  # what could not be read may be mended
            store = _saved(store, f"{key}-{rows[0]}", new, how)
    assert features is not None
    return features


def labelled_features(
    encoder: FrozenEncoder, split: Split, how: Extraction | None = None, what: str = "images"
) -> tuple[Float[Tensor, "N F"], Int[Tensor, " N"]]:
    """Features and labels of the images that can be read; which cannot is said."""
    how = how or Extraction()
    features, labels = features_of(encoder, split, how, what), labels_of(split)
    bad = features[:, 0].isnan()
    if not bad.any():
        return features, labels
    assert isinstance(split.images, Photos)
    how.leave_out([split.images.name(row) for row in bad.nonzero()[:, 0].tolist()], len(split), what)
    return features[~bad], labels[~bad]


def features_key(encoder: FrozenEncoder, split: Split, how: Extraction) -> str:
    """What features depend on: all that goes in, not where or how fast they are computed."""
    photos = split.images if isinstance(split.images, Photos) else None
    rounded = ("nvjpeg",) if photos is not None and decodes_on_gpu(how, photos, encoder.size) else ()
    written = "" if photos is None else hashlib.sha256(photos.stats).hexdigest()  # a file of equal size may be another
    about = (encoder.fingerprint, fingerprint(split.images), written, encoder.size, encoder.mean, encoder.std)
    parts = (*about, PREPROCESSING, *rounded)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _placed(whole: Tensor | None, part: Tensor, rows: Tensor, n: int) -> Tensor:
    """The part in its rows of the whole: joining all parts at the end would take twice the memory."""
    whole = part.new_empty(n, part.shape[1]) if whole is None else whole
    whole[int(rows[0]) : int(rows[-1]) + 1] = part
    return whole


def _saved(store: Store, name: str, features: Tensor, how: Extraction) -> Store | None:
    """Keep features; a disk that refuses costs time later, not the evaluation now."""
    try:
        store.save(name, features)
    except OSError as error:
        how.say(f"Features are not kept: {store.folder} cannot be written ({error.strerror}).")
        return None
    return store
