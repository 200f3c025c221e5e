"""Do trained features find better neighbours than pixels and random initialisation? The end of the demonstration."""

import time
from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from ..data import BadImages, ImageSet, Split, load_data, squared
from ..errors import UserError
from ..features import extract
from ..hardware import best_device, hardware, provenance
from ..knn import PROTOCOLS, knn_accuracy
from ..recipes import Recipe, read_recipe
from ..run import Run
from ..train import build, load_backbone
from .record import about_run

LabelledFeatures = tuple[Tensor, Tensor]


def compare_knn(run: Run) -> Iterator[tuple[str, float]]:
    """Yield (metric, top-1 in percent) for raw pixels, random initialisation and the trained encoder; save them."""
    began = time.time()
    recipe = read_recipe(run)
    data = replace(load_data(recipe.data, recipe.crops.global_size), val=None)  # figures are of test images
    found = data.for_knn()
    if found is None:
        raise UserError(f"{recipe.data} has no labels, and kNN accuracy needs them; give class folders or an .npz.")
    bad = BadImages(sum(map(len, found)), recipe.loading.max_bad, run.bad_images_file, data.root)
    splits = tuple(squared(rows.taken(), recipe.crops.global_size, bad, recipe.loading.workers) for rows in found)
    results = []
    for features, (bank, queries) in _features(run, recipe, data, splits):
        for k, tau in PROTOCOLS:
            accuracy = knn_accuracy(*queries, *bank, k=k, tau=tau)
            results.append({"features": features, "k": k, "tau": tau, "top1": round(accuracy, 2)})
            yield f"{features}, k={k}, tau={tau}", accuracy
    record = {
        "evaluation": "knn",
        "protocol": "weighted kNN, cosine, backbone features of whole images in eval mode, last epoch",
        "data": data.name,
        "train_images": len(splits[0]),
        "test_images": len(splits[1]),
        "results": results,
        "seconds": round(time.time() - began, 1),
    }
    run.write_evaluation("knn", record | about_run(run) | provenance(hardware(best_device(recipe.device))))


def _features(
    run: Run, recipe: Recipe, data: ImageSet, splits: tuple[Split, ...]
) -> Iterator[tuple[str, list[LabelledFeatures]]]:
    """Yield (name, ((bank, labels), (queries, labels))) for each kind of features."""
    trained, metadata = load_backbone(run)
    mean, std, size = metadata["mean"], metadata["std"], metadata["size"]
    device = best_device(recipe.device)
    labels = [split.labels.to(device) for split in splits if split.labels is not None]
    pixels = [split.array.flatten(1).to(device).float() / 255 for split in splits]
    # Cosine needs centred pixels: without it, brightness alone decides.
    yield "raw pixels", list(zip([part - pixels[0].mean(dim=0) for part in pixels], labels, strict=True))
    networks = {
        "random initialisation": build(replace(recipe, init=None), data).framework.encoder.backbone,
        "trained encoder": trained,
    }
    for name, backbone in networks.items():
        backbone = backbone.to(device)
        features = [extract(backbone, split.array, mean, std, size) for split in splits]
        yield name, list(zip(features, labels, strict=True))
