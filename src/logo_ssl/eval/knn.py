"""Weighted kNN on frozen features: `eval knn`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import tyro

from ..data import ImageSet
from ..encoders import FrozenEncoder
from ..errors import UserError
from ..knn import PROTOCOLS, nearest_neighbours, top_accuracies
from ..ranges import Allowed
from ..system.hardware import best_device
from .features import Extraction, labelled_features
from .protocol import DataProtocol, FeatureOptions, Measurement, standard_errors, tops_for
from .splits import count_copies, guessing, labelled_splits

PROTOCOL = "weighted kNN, cosine, frozen backbone features of whole images in eval mode"


@dataclass(frozen=True)
class KNN(DataProtocol, FeatureOptions):
    """Weighted nearest neighbours on frozen features: k=20, tau=0.07 and k=200, tau=0.1, top-1 and top-5.

    example: logo-ssl eval knn runs/first --data photos/ --protocols 5 0.07
    """

    protocols: Annotated[
        tuple[tuple[int, float], ...] | None,
        Allowed(lambda pairs: all(k >= 1 and tau > 0 for k, tau in pairs or ()), "k of 1 or more and tau above 0"),
        tyro.conf.arg(help_behavior_hint=f"(default: {' '.join(f'{k} {tau}' for k, tau in PROTOCOLS)})"),
    ] = None
    """Pairs of k and tau, one after the other; default pairs whose k is too large for the images are left out."""

    title = "Weighted kNN"

    def measure(self, encoder: FrozenEncoder, data: ImageSet, how: Extraction) -> Measurement:
        """Classify the test images by train or, if none has a label, each image of train by all the others."""
        train, test = labelled_splits(data)
        copies = count_copies(train, test, how=how)
        bank = labelled_features(encoder, train, how, "training images")
        if test is None:
            how.say(f"{data.name} has no labelled test images; each image is classified by all the others.")
            asked, n_bank = bank, len(bank.labels) - 1
        else:
            asked = labelled_features(encoder, test, how, "test images")
            n_bank = len(bank.labels)
        protocols = self._fitting(n_bank, data.name, how)
        about = guessing(asked.labels, bank.labels)
        n_asked, n_classes = len(asked.labels), int(max(asked.labels.max(), bank.labels.max())) + 1
        how.say(f"{n_asked:,} images classified by {n_bank:,}, {n_classes} classes, chance {about['chance']:.2f} %.")
        near = nearest_neighbours(
            asked.features,
            bank.features,
            max(k for k, _ in protocols),
            leave_one_out=test is None,
            device=best_device(how.device),
            progress=partial(how.progress, "nearest neighbours"),
        )
        results, figures = [], {}
        for k, tau in protocols:
            tops = [top for top in tops_for(n_classes) if top <= k]
            found = dict(zip(tops, top_accuracies(near, asked.labels, bank.labels, k, tau, tops), strict=True))
            results.append({"k": k, "tau": tau, **{f"top{top}": round(value, 2) for top, value in found.items()}})
            figures |= {f"knn top-{top}, k={k}, tau={tau}": value for top, value in found.items()}
        record = {
            "protocol": PROTOCOL + (", leave-one-out on the training images" if test is None else ""),
            "results": results,
            "standard_errors": standard_errors(figures, n_asked),
            "train_images": len(bank.labels),
            "test_images": n_asked,
            "classes": n_classes,
            **about,
            **copies,
            "features": bank.features.shape[1],
        }
        return Measurement("knn", figures, record, {"protocols": list(protocols)})

    def _fitting(self, n_images: int, name: str, how: Extraction) -> Sequence[tuple[int, float]]:
        """What was asked for, or the customary protocols that make sense among so many images: not all may vote."""
        fitting = [(k, tau) for k, tau in self.protocols or PROTOCOLS if k < n_images]
        large = [f"k={k}" for k, _ in self.protocols or PROTOCOLS if k >= n_images]
        if not fitting:
            raise UserError(f"protocols: {large[0]} must be below the {n_images:,} images of {name} to compare with.")
        if large:
            how.say(f"{', '.join(large)} is left out: {name} has only {n_images:,} images to compare with.")
        return fitting
