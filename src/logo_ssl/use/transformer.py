"""How does an encoder fit into a scikit-learn pipeline? As a transformer from images to features."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ..errors import UserError
from ..evaluate import Extraction
from ..run import write
from ..terminal import plain_console
from .embedding import embed
from .loading import load


class LoGoFeatures(TransformerMixin, BaseEstimator):
    """Features of images, given as paths or as uint8 arrays [N C H W].

    With an `encoder` (a run folder, torchvision/NAME, timm/NAME, a checkpoint), `fit` loads it. Without one, `fit`
    pretrains one on the images, by `recipe`, in the folder `out` (a temporary one where none is named).
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
        with tempfile.TemporaryDirectory() as folder:
            source = (
                self.encoder
                if self.encoder is not None
                else self._pretrained(images, Path(self.out or f"{folder}/run"))
            )
            self.encoder_ = load(source, size=self.size)
        self.n_features_out_ = int(embed(self.encoder_, images[:1], **self._how(), max_bad=1.0).vectors.shape[1])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Features [N F]; an image that cannot be read is an error, since every row must have one."""
        check_is_fitted(self)
        found = embed(self.encoder_, _checked(X), **self._how(), max_bad=1.0)
        if found.bad:
            raise UserError(f"{len(found.bad)} images cannot be read (the first: {found.bad[0]}); leave them out.")
        return found.vectors

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """logofeatures0, logofeatures1, ..."""
        check_is_fitted(self)
        return np.array([f"logofeatures{i}" for i in range(self.n_features_out_)], dtype=object)

    def _how(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "device": self.device, "workers": self.workers}

    def _pretrained(self, images: Sequence[str] | np.ndarray, out: Path) -> Path:
        from ..train import pretrain

        changes = {"seed": self.random_state, "device": self.device, "loading__workers": self.workers}
        changes |= {} if self.epochs is None else {"epochs": self.epochs}
        data = _as_data(images, out.with_name(f"{out.name}-images"))
        return pretrain(self.recipe, out, console=plain_console(stderr=True), data=data, **changes).path

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
    if isinstance(X, str | os.PathLike):
        raise UserError(f"X is one path ({X}); give a list of paths, one for each image.")
    values = list(np.asarray(X, dtype=object).ravel()) if not hasattr(X, "tolist") else list(np.ravel(X))
    if not values or not all(isinstance(value, str | os.PathLike) for value in values):
        raise UserError("X holds no images; give a list of paths, or uint8 [N C H W].")
    return [os.fspath(value) for value in values]


def _as_data(images: Sequence[str] | np.ndarray, beside: Path) -> str:
    """The images in a form that `pretrain` reads: a list of paths, or an .npz."""
    file = beside.with_suffix(".npz" if isinstance(images, np.ndarray) else ".txt")
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(images, np.ndarray):
        np.savez(file, train_images=images.transpose(0, 2, 3, 1))
    else:
        write(file, "".join(f"{Path(path).absolute()}\t-\n" for path in images))  # "-": no label
    return str(file)
