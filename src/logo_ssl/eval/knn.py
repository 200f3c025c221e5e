"""Weighted kNN on frozen features: `eval knn`, and the demo's comparison with pixels and an untrained network."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from jaxtyping import Float
from torch import Tensor

from ..data import BadImages, ImageSet, Split, load_data, squared
from ..errors import UserError
from ..features import extract
from ..hardware import best_device, hardware, provenance
from ..knn import PROTOCOLS, knn_accuracy, nearest_neighbours, top_accuracies
from ..recipes import Recipe, read_recipe
from ..run import Run
from ..train import build, load_backbone
from .encoder import FrozenEncoder
from .features import labelled_features
from .leakage import count_copies
from .options import DataOption, Extraction, FeatureOptions, check_result
from .results import about_run, data_for, save, show, standard_errors
from .sgd_probe import LabelledFeatures
from .splits import guessing, labelled_splits, tops_for

PROTOCOL = "weighted kNN, cosine, frozen backbone features of whole images in eval mode"


def knn(
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction | None = None,
    *,
    protocols: Sequence[tuple[int, float]] | None = PROTOCOLS,
    out: Path | None = None,
    overwrite: bool = False,
) -> Iterator[tuple[str, float]]:
    """Yield ("knn top-1, k=20, tau=0.07", percent) and so on for a frozen encoder; save them in its run, or at `out`.

    Without a labelled test split each image is classified by all the others. If there are no more than k images, all
    would vote: such a k is refused or, if `protocols` is None, left out of the customary ones.
    """
    began, how = time.time(), (how or Extraction()).afresh()
    device = best_device(how.device)
    check_result(out, overwrite, encoder.run)
    for k, tau in protocols or ():
        if k < 1 or not tau > 0:  # nor not a number
            raise UserError(f"protocols={k} {tau}: k must be 1 or more, and tau above 0.")
    train, test = labelled_splits(data)
    copies = count_copies(train, test, say=how.say)
    bank = LabelledFeatures(*labelled_features(encoder, train, how, "training images"))
    if test is None:
        how.say(f"{data.name} has no labelled test images; each training image is classified by all the others.")
        asked, n_bank = bank, len(bank.labels) - 1
    else:
        asked = LabelledFeatures(*labelled_features(encoder, test, how, "test images"))
        n_bank = len(bank.labels)
    protocols = _fitting(protocols, n_bank, data.name, how)
    about = guessing(asked.labels, bank.labels)
    n_classes = int(max(asked.labels.max(), bank.labels.max())) + 1
    how.say(
        f"{len(asked.labels):,} images classified by {n_bank:,}, {n_classes} classes, chance {about['chance']:.2f} %."
    )
    near = nearest_neighbours(
        asked.features,
        bank.features,
        max(k for k, _ in protocols),
        leave_one_out=test is None,
        device=device,
        progress=how.counting("nearest neighbours", len(asked.labels)),
    )
    how.classified.append(len(asked.labels))
    results, figures = [], {}
    for k, tau in protocols:
        tops = [top for top in tops_for(n_classes) if top <= k]
        found = dict(zip(tops, top_accuracies(near, asked.labels, bank.labels, k, tau, tops), strict=True))
        results.append({"k": k, "tau": tau, **{f"top{top}": round(value, 2) for top, value in found.items()}})
        figures |= {f"knn top-{top}, k={k}, tau={tau}": value for top, value in found.items()}
    yield from figures.items()
    record = {
        "protocol": PROTOCOL + (", leave-one-out on the training images" if test is None else ""),
        "results": results,
        "standard_errors": standard_errors(figures, len(asked.labels)),
        "train_images": len(bank.labels),
        "test_images": len(asked.labels),
        "classes": n_classes,
        **about,
        **copies,
        "features": bank.features.shape[1],
        "seconds": round(time.time() - began, 1),
    }
    save("knn", record, encoder, data, how, out, {"protocols": list(protocols)})


def _fitting(
    protocols: Sequence[tuple[int, float]] | None, n_images: int, name: str, how: Extraction
) -> Sequence[tuple[int, float]]:
    """What was asked for, or the customary protocols that make sense among so many images."""
    large = [k for k, _ in protocols or PROTOCOLS if k >= n_images]
    if large and (protocols or len(large) == len(PROTOCOLS)):
        raise UserError(
            f"protocols: k={min(large)} must be below the {n_images:,} images of {name} to compare with; give "
            "more images, or a smaller k such as --protocols 5 0.07."
        )
    if large:
        how.say(f"k={large[0]} is left out: {name} has only {n_images:,} images to compare with.")
    return protocols or [(k, tau) for k, tau in PROTOCOLS if k < n_images]


@dataclass(frozen=True)
class KNN(DataOption, FeatureOptions):
    """Weighted nearest neighbours on frozen features: k=20, tau=0.07 and k=200, tau=0.1, top-1 and top-5.

    example: logo-ssl eval knn runs/first --data photos/ --protocols 5 0.07
    """

    protocols: Annotated[
        tuple[tuple[int, float], ...] | None,
        tyro.conf.arg(help_behavior_hint=f"(default: {' '.join(f'{k} {tau}' for k, tau in PROTOCOLS)})"),
    ] = None
    """Pairs of k and tau, one after the other; default pairs whose k is too large for the images are left out."""

    def run(self) -> None:
        """Evaluate, and show the figures."""
        encoder, console = self.open()
        with self.extraction(console) as how:
            data = data_for(encoder, self.data, console.print)
            settings = {"protocols": self.protocols, "out": self.out, "overwrite": self.overwrite}
            figures = dict(knn(encoder, data, how, **settings))
        show(self, encoder, console, "Weighted kNN", figures, how.classified)


def compare_knn(run: Run) -> Iterator[tuple[str, float]]:
    """Yield (metric, top-1 in percent) for raw pixels, random initialisation and the trained encoder; save them."""
    began, recipe = time.time(), read_recipe(run)
    data = replace(load_data(recipe.data, recipe.crops.global_size), val=None)  # figures are of test images
    found = data.for_knn()
    if found is None:
        raise UserError(f"{recipe.data} has no labels, and kNN needs them; give class folders or an .npz.")
    bad = BadImages(sum(map(len, found)), recipe.loading.max_bad, run.bad_images_file, data.root)
    splits = tuple(squared(rows.taken(), recipe.crops.global_size, bad, recipe.loading.workers) for rows in found)
    device, results = best_device(recipe.device), []
    bank_labels, labels = (split.labels.to(device) for split in splits if split.labels is not None)
    for name, (bank, queries) in _compared_features(run, recipe, data, splits):
        for k, tau in PROTOCOLS:
            accuracy = knn_accuracy(queries, labels, bank, bank_labels, k=k, tau=tau)
            results.append({"features": name, "k": k, "tau": tau, "top1": round(accuracy, 2)})
            yield f"{name}, k={k}, tau={tau}", accuracy
    record = {
        "evaluation": "knn",
        "protocol": f"{PROTOCOL}, last epoch",
        "data": data.name,
        "train_images": len(splits[0]),
        "test_images": len(splits[1]),
        "results": results,
        "seconds": round(time.time() - began, 1),
    }
    run.write_evaluation("knn", record | about_run(run) | provenance(hardware(device)))


def _compared_features(
    run: Run, recipe: Recipe, data: ImageSet, splits: tuple[Split, ...]
) -> Iterator[tuple[str, list[Float[Tensor, "_ _"]]]]:
    """Yield (name, (bank, queries)) for each kind of features."""
    trained, needs = load_backbone(run)
    device = best_device(recipe.device)
    pixels = [split.array.flatten(1).to(device).float() / 255 for split in splits]
    # Cosine needs centred pixels: without it, brightness alone decides.
    yield "raw pixels", [part - pixels[0].mean(dim=0) for part in pixels]
    untrained = build(replace(recipe, init=None), data).framework.encoder.backbone
    for name, backbone in (("random initialisation", untrained), ("trained encoder", trained)):
        backbone.to(device)
        yield name, [extract(backbone, split.array, needs["mean"], needs["std"], needs["size"]) for split in splits]
