"""How good is a linear classifier on frozen features? MoCo's SGD or L-BFGS, chosen on validation images."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch

from ..data import ImageSet, Split
from ..errors import UserError
from ..hardware import best_device
from ..probes import RATES, WEIGHTS, Labelled, Linear, SGDConfig, select, top1, top_k
from .cache import labelled_features
from .encoders import FrozenEncoder
from .extraction import Extraction
from .held_out import part
from .labelled import labelled, labels_of
from .mocos_sgd import on_crops, on_features, shown
from .record import claim_result, save

Protocol = Literal["sgd", "sgd-augmented", "lbfgs"]
SGD = "MoCo's SGD (batch 256, momentum 0.9, lr / 10 after 60 and 80 % of the epochs) on"
CHOSEN = "chosen on a fifth of train, then trained on all of train"
ABOUT: dict[Protocol, str] = {
    "sgd": f"{SGD} cached features, lr {CHOSEN}",
    "sgd-augmented": f"{SGD} features of random crops and flips, lr {CHOSEN}",
    "lbfgs": f"multinomial logistic regression by L-BFGS, one of 45 L2 weights {CHOSEN}",
}


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
    overwrite: bool = False,
) -> Iterator[tuple[str, float]]:
    """Yield ("linear top-1, sgd", percent) and top-5 on the test images; save them in the run, or at `out`."""
    began = time.time()
    how = how or Extraction()
    claim_result(out, overwrite)
    if epochs < 1:
        raise UserError(f"epochs is {epochs}; use 1 or more.")
    train, test = labelled(data)
    numbered = Split(train.images, torch.arange(len(train)))
    features, readable = labelled_features(encoder, numbered, how, "training images")
    train = train if len(readable) == len(train) else train[readable]  # whatever is split later is split of these
    known = Labelled(features, labels_of(train))
    held_out = None if test is None else Labelled(*labelled_features(encoder, test, how, "test images"))
    parts = part(known, held_out, seed, data.name).to(best_device(how.device))
    if not parts.official_test:
        how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out for it.")
    n_classes = int(known.labels.max()) + 1
    if protocol == "lbfgs":
        chosen = select(parts.train, parts.val, n_classes, progress=shown(how, "L2 weights", len(WEIGHTS)))
        probe, choice = chosen.probe, {"l2_weight": chosen.w, "validation": chosen.validation}
    else:
        config = SGDConfig.of(epochs)
        if protocol == "sgd":
            rated, probe = on_features(parts, n_classes, rates, config, seed, how)
        else:
            rated, probe = on_crops(encoder, train, parts, n_classes, rates, config, seed, how)
        if not probe.finite:
            raise UserError(f"lr {rated.rate:g}, the best on validation, diverged on all of train; use lbfgs.")
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


def _figures(probe: Linear, test: Labelled) -> dict[str, float]:
    scores = probe.scores(test.features)
    return {"top-1": top1(scores, test.labels), "top-5": top_k(scores, test.labels)}
