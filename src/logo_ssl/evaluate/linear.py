"""How good is a linear classifier on frozen features? MoCo's SGD or L-BFGS, chosen on validation images."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from ..augment import CropPlan, make_crops
from ..data import BadImages, Batches, ImageSet, LoadingConfig, Split, place
from ..errors import UserError
from ..hardware import best_device, to_device
from ..probes import (
    RATES,
    Labelled,
    Linear,
    SGDConfig,
    SGDProbes,
    select,
    stratified_split,
    top1,
    top_k,
    train_probes,
)
from ..randomness import stream
from .cache import labelled_features
from .encoders import FrozenEncoder
from .extraction import Extraction
from .held_out import VAL_SHARE, Parts, part
from .labelled import labelled, labels_of
from .record import save

Protocol = Literal["sgd", "sgd-augmented", "lbfgs"]
SGD = "MoCo's SGD (batch 256, momentum 0.9, lr / 10 after 60 and 80 % of the epochs) on"
CHOSEN = "chosen on a fifth of train, then trained on all of train"
ABOUT: dict[Protocol, str] = {
    "sgd": f"{SGD} cached features, lr {CHOSEN}",
    "sgd-augmented": f"{SGD} features of random crops and flips, lr {CHOSEN}",
    "lbfgs": f"multinomial logistic regression by L-BFGS, one of 45 L2 weights {CHOSEN}",
}
STANDARD = CropPlan(n_global=1, n_local=0, global_scale=(0.08, 1.0), jitter_p=0.0, grey_p=0.0)
"""The augmentation of MoCo's linear classifier: random crops and flips."""


def linear(
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction | None = None,
    *,
    protocol: Protocol = "sgd",
    rates: Sequence[float] = RATES,
    epochs: int = SGDConfig.epochs,
    seed: int = 0,
    out: Path | None = None,
) -> Iterator[tuple[str, float]]:
    """Yield ("linear top-1, sgd", percent) and top-5 on the test images; save them in the run, or at `out`."""
    began = time.time()
    how = how or Extraction()
    if epochs < 1:
        raise UserError(f"epochs is {epochs}; use 1 or more.")
    train, test = labelled(data)
    known = Labelled(*labelled_features(encoder, train, how, "training images"))
    held_out = None if test is None else Labelled(*labelled_features(encoder, test, how, "test images"))
    parts = part(known, held_out, seed).to(best_device(how.device))
    if not parts.official_test:
        how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out for it.")
    n_classes = int(known.labels.max()) + 1
    config = SGDConfig(epochs=epochs, milestones=tuple(epochs * m // 100 for m in SGDConfig.milestones))
    if protocol == "lbfgs":
        chosen = select(parts.train, parts.val, n_classes)
        probe, choice = chosen.probe, {"l2_weight": chosen.w, "validation": chosen.validation}
    elif protocol == "sgd":
        rate, validation = _choose_rate(parts, n_classes, rates, config, seed)
        everything = parts.train.joined(parts.val)
        probe = train_probes(everything, n_classes, stream(seed, "linear"), [rate], config).probes()[0]
        choice = {"lr": rate, "validation": validation}
    else:
        if not parts.official_test:
            raise UserError(f"{data.name} has no test split, which sgd-augmented needs; use sgd or lbfgs.")
        rows = stratified_split(labels_of(train), VAL_SHARE, stream(seed, "validation split"))
        rated = _on_crops(encoder, train[rows.train], n_classes, rates, config, seed, how).select(parts.val)
        probe = _on_crops(encoder, train, n_classes, [rated.rate], config, seed, how).probes()[0]
        choice = {"lr": rated.rate, "validation": rated.validation}
    figures = _figures(probe, parts.test)
    for name, value in figures.items():
        yield f"linear {name}, {protocol}", value
    record = {
        "protocol": ABOUT[protocol],
        "results": {name: round(value, 2) for name, value in figures.items()},
        **choice,
        "epochs_of_probe": None if protocol == "lbfgs" else epochs,
        "rates": None if protocol == "lbfgs" else list(rates),
        "official_test": parts.official_test,
        "train_images": len(parts.train.labels) + len(parts.val.labels),
        "test_images": len(parts.test.labels),
        "classes": n_classes,
        "seed_of_probe": seed,
        "seconds": round(time.time() - began, 1),
    }
    settings = {"seed": seed} if protocol == "lbfgs" else {"seed": seed, "epochs": epochs, "rates": list(rates)}
    save(f"linear-{protocol}", record, encoder, data, how, out, settings)


def _choose_rate(
    parts: Parts, n_classes: int, rates: Sequence[float], config: SGDConfig, seed: int
) -> tuple[float, dict[float, float]]:
    rated = train_probes(parts.train, n_classes, stream(seed, "linear"), rates, config).select(parts.val)
    return rated.rate, rated.validation


def _figures(probe: Linear, test: Labelled) -> dict[str, float]:
    scores = probe.scores(test.features)
    return {"top-1": top1(scores, test.labels), "top-5": top_k(scores, test.labels)}


@torch.no_grad()
def _on_crops(
    encoder: FrozenEncoder,
    train: Split,
    n_classes: int,
    rates: Sequence[float],
    config: SGDConfig,
    seed: int,
    how: Extraction,
) -> SGDProbes:
    """All rates at once on the features of one random crop of each image and epoch."""
    device = best_device(how.device)
    loading = LoadingConfig(workers=how.workers, max_bad=how.max_bad)
    feed, _ = place(train.images, device, loading, BadImages(len(train), how.max_bad))
    batches = Batches(feed, len(train), config.batch_size, seed)
    plan, labels = replace(STANDARD, global_size=encoder.size), labels_of(train)
    backbone, probes = encoder.backbone.to(device).eval(), None
    for epoch in range(config.epochs):
        batches.set_epoch(epoch)
        for step, batch in enumerate(batches):
            draws = stream(seed, "linear crops", epoch, step)
            crops = make_crops(batch.pixels, plan, draws, encoder.mean, encoder.std, sizes=batch.sizes)
            features = backbone(crops.x_g[0]).float()
            probes = probes or SGDProbes(features.shape[1], n_classes, rates, stream(seed, "linear"), device=device)
            assert batch.rows is not None
            probes.step(features, to_device(labels[batch.rows], device), config.decay(epoch))
        how.progress("epochs of the linear classifier", epoch + 1, config.epochs)
    feed.close()
    assert probes is not None
    return probes
