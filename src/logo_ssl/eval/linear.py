"""How good is a linear classifier on frozen features? MoCo's SGD or L-BFGS, chosen on validation images."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Literal, TypeAlias

from ..data import ImageSet, Split
from ..errors import UserError
from ..hardware import best_device
from ..probes import RATES, WEIGHTS, Linear, SGDConfig, select, top_k
from ..randomness import refuse_unusable_seed
from ..sampling import standard_error
from .chance import say_chance
from .encoders import FrozenEncoder
from .held_out import Parts
from .how import Extraction
from .mocos_sgd import on_crops, on_features
from .parting import parted
from .record import check_result, save

Protocol = Literal["sgd", "sgd-augmented", "lbfgs"]
Learned: TypeAlias = tuple[Linear, dict[str, Any]]
"""A classifier, and how its rate or weight was chosen."""
MOCOS = "MoCo's SGD (batch 256, momentum 0.9, no weight decay, lr / 10 after 60 and 80 % of the epochs) on"
CHOSEN = "chosen on a fifth of train, then trained on all of train"
CHOSEN_ON_VAL = "chosen on the validation split, then trained on train and validation"
ABOUT: dict[Protocol, str] = {
    "sgd": f"{MOCOS} cached features, lr",
    "sgd-augmented": f"{MOCOS} features of random crops and flips, lr",
    "lbfgs": "multinomial logistic regression by L-BFGS, one of 45 L2 weights",
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
    how = (how or Extraction()).afresh()
    check_result(out, overwrite, encoder.run)
    _refuse_unusable(epochs, rates, seed)
    known, parts, copied = parted(encoder, data, how, seed)
    if len(known) > 1:
        how.say(f"Validation images of {data.name} choose, and train with the training images; test images only test.")
    if not parts.official_test:
        how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out for it.")
    parts = parts.to(best_device(how.device))
    chance = parts.chance()
    say_chance(chance, how)
    if protocol == "lbfgs":
        settings, (probe, choice) = {}, _by_lbfgs(parts, how)
    else:
        settings = {"epochs": epochs, "rates": list(rates)}
        probe, choice = _by_sgd(protocol, encoder, known, parts, rates, epochs, seed, how)
    scores = probe.scores(parts.test.features)
    labels = parts.test.labels
    figures = {f"top-{top}": top_k(scores, labels, top) for top in chance.tops}
    how.classified.append(len(labels))
    errors = {}
    for name, value in figures.items():
        errors[f"linear {name}, {protocol}"] = round(standard_error(value, len(labels)), 2)
        yield f"linear {name}, {protocol}", value
    record = {
        "protocol": f"{ABOUT[protocol]} {CHOSEN_ON_VAL if parts.official_val else CHOSEN}",
        "results": {name: round(value, 2) for name, value in figures.items()},
        "standard_errors": errors,
        **choice,
        "epochs_of_probe": settings.get("epochs"),
        "rates": settings.get("rates"),
        **parts.counts,
        **chance.recorded,
        **copied,
        "seed_of_probe": seed,
        "seconds": round(time.time() - began, 1),
    }
    save(f"linear-{protocol}", record, encoder, data, how, out, {"seed": seed, **settings})


def _refuse_unusable(epochs: int, rates: Sequence[float], seed: int) -> None:
    refuse_unusable_seed(seed)
    if epochs < 1:
        raise UserError(f"epochs={epochs}: must be 1 or more.")
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise UserError(f"rates={list(rates)}: give one or more learning rates above 0, such as 30.")


def _by_lbfgs(parts: Parts, how: Extraction) -> Learned:
    watched = how.counting("L2 weights", len(WEIGHTS))
    chosen = select(parts.train, parts.val, parts.n_classes, progress=watched)
    how.say(told_choice("L2 weight", chosen.w, chosen.validation))
    return chosen.probe, {"l2_weight": chosen.w, "validation": chosen.validation}


def _by_sgd(
    protocol: Protocol,
    encoder: FrozenEncoder,
    known: Sequence[Split],
    parts: Parts,
    rates: Sequence[float],
    epochs: int,
    seed: int,
    how: Extraction,
) -> Learned:
    settings = (parts.n_classes, rates, SGDConfig.of(epochs), seed, how)
    if protocol == "sgd":
        rated, probe = on_features(parts, *settings)
    else:
        rated, probe = on_crops(encoder, reduce(Split.joined, known), parts, *settings)
    if not probe.finite:
        raise UserError(f"lr {rated.rate:g}, the best on validation, diverged on all of train; use lbfgs.")
    how.say(told_choice("lr", rated.rate, rated.validation))
    return probe, {"lr": rated.rate, "validation": rated.validation}


def told_choice(what: str, chosen: float, validation: Mapping[float, float]) -> str:
    """What was chosen, and whether the best may lie beyond all that was tried."""
    reached = f"{validation[chosen]:.2f} % of validation images"
    if len(validation) == 1:
        return f"{what} {chosen:g} is right on {reached}."
    told, edge = f"{what} {chosen:g} is the best of {len(validation)}, right on {reached}.", at_edge(chosen, validation)
    return f"{told} It {edge}." if edge else told


def at_edge(chosen: float, validation: Mapping[float, float]) -> str:
    """What is to be said of the best of several that lies at an end of them; nothing, where another is as good."""
    tried, others = sorted(validation), [value for other, value in validation.items() if other != chosen]
    if not others or chosen not in (tried[0], tried[-1]) or validation[chosen] <= max(others):
        return ""
    lies = "smallest" if chosen == tried[0] else "largest"
    return f"is the {lies} that was tried: one beyond may be better still"
