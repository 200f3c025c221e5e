"""An encoder in a scikit-learn pipeline: a transformer from images to features."""

import io
import os
import tempfile
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import count
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ..encoders import load_encoder
from ..errors import UserError
from ..eval.features import Extraction
from ..files import check_output, write
from ..run import Run
from ..system.terminal import counted, plain_console
from .embeddings import embed
from .module import frozen, load, plain


class LoGoFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Features of images, given as paths or as uint8 arrays [N C H W].

    With an `encoder` (what `load` gives, or takes: a run folder, torchvision/NAME, timm/NAME, a checkpoint), `fit` uses
    it. Without one, `fit` pretrains one on the images, by `recipe`, in the folder `out` (a temporary one where none is
    named); fitting again needs another `out`.
    """

    # scikit-learn's custom: whatever is given is stored, and looked at in `fit`.
    def __init__(
        self,
        encoder=None,
        recipe="auto",
        out=None,
        epochs=None,
        size=None,
        batch_size=Extraction.batch_size,
        device="auto",
        workers=-1,
        random_state=0,
    ):
        self.encoder, self.recipe, self.out, self.epochs = encoder, recipe, out, epochs
        self.size, self.batch_size, self.device, self.workers = size, batch_size, device, workers
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> "LoGoFeatures":
        """Load the encoder, or pretrain one on these images; labels are not read."""
        images = _checked(X)
        if self.encoder is not None:
            self.encoder_ = _given(self.encoder, self.size)
        elif self.out is not None:
            folders = (Path(f"{self.out}-{fit}" if fit > 1 else self.out) for fit in count(1))  # of each fold its own
            out = next(folder for folder in folders if not folder.exists())
            self.encoder_ = load(self._pretrained(images, out), size=self.size)
        else:
            with tempfile.TemporaryDirectory() as folder:
                gone = load_encoder(str(self._pretrained(images, Path(folder) / "run")), size=self.size)
            self.encoder_ = plain(replace(gone, run=None))
        self._n_features_out = embed(self.encoder_, images[:1], **self._how()).vectors.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features [N F]; an image that cannot be read is an error, since every row must have one."""
        check_is_fitted(self)
        found = embed(self.encoder_, _checked(X), **self._how())
        if found.bad:
            raise UserError(f"{counted(len(found.bad), 'image')} cannot be read, the first is {found.bad[0]}.")
        return found.vectors

    def _how(self) -> dict[str, Any]:
        """Workers decode: an image's features must not depend on which others it comes with."""
        options = {"batch_size": self.batch_size, "device": self.device, "workers": self.workers}
        return options | {"decoder": "workers", "max_bad": 1.0}

    def _pretrained(self, images: Sequence[str] | np.ndarray, out: Path) -> Path:
        from ..train import pretrain

        changes = {"seed": _seed(self.random_state), "device": self.device, "loading__workers": self.workers}
        changes |= {} if self.epochs is None else {"epochs": self.epochs}
        Run.new(out)
        data = out.with_name(f"{out.name}-images.{'npz' if isinstance(images, np.ndarray) else 'txt'}")
        check_output(data)
        if isinstance(images, np.ndarray):
            np.savez(file := io.BytesIO(), train_images=images.transpose(0, 2, 3, 1))
            write(data, file.getvalue())
        else:
            lines = [f"{Path(path).absolute()}\t-\n" for path in images]  # "-": no label
            write(data, "".join(lines).encode(errors="surrogateescape"))
        return pretrain(self.recipe, out, console=plain_console(stderr=True), data=str(data), **changes).path

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = True
        return tags


def _checked(X: Any) -> Sequence[str] | np.ndarray:
    """Paths, or an array of images."""
    if isinstance(X, np.ndarray) and X.ndim == 4:
        return X
    paths = np.asarray(X, dtype=object).ravel().tolist()
    if isinstance(X, str | os.PathLike) or not paths or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise UserError("X must be a list of paths, one for each image, or uint8 [N C H W].")
    return [os.fspath(path) for path in paths]


def _given(encoder: Any, size: int | None) -> nn.Module:
    """The encoder of a source, or a copy of one that is there: the caller's own stays as it is."""
    if isinstance(encoder, str | os.PathLike):
        return load(encoder, size=size)
    known = frozen(encoder)
    return plain(replace(known, backbone=deepcopy(known.backbone), size=known.size if size is None else size))


def _seed(random_state: Any) -> int:
    """A seed as scikit-learn understands it: a number, None for any, or what draws one."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
