"""Linear classifiers on frozen features: `eval linear`, by MoCo's SGD or by L-BFGS, chosen on validation images."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from ..augment import CropPlan, make_crops
from ..data import BadImages, Batches, ImageSet, LoadingConfig, Split, place
from ..errors import UserError
from ..hardware import best_device, exact_device, to_device
from ..randomness import refuse_unusable_seed, stream
from .encoder import FrozenEncoder
from .features import exact_convolutions, in_channels
from .lbfgs import MAX_ITERATIONS, TOLERANCE, WEIGHTS, fit, fit_path
from .options import DataOption, Extraction, FeatureOptions, check_result
from .results import data_for, save, show, standard_errors
from .sgd_probe import RATES, LabelledFeatures, LinearProbe, Metric, SGDConfig, SGDProbes, top1, top_k, train_probes
from .splits import FeatureSplits, labels_of, split_features, tops_for

Protocol = Literal["sgd", "sgd-augmented", "lbfgs"]
Learned: TypeAlias = tuple[LinearProbe, dict[str, Any]]
"""A classifier, and how its rate or weight was chosen."""
MOCOS = "MoCo's SGD (batch 256, momentum 0.9, no weight decay, lr / 10 after 60 and 80 % of the epochs) on"
ABOUT: dict[Protocol, str] = {
    "sgd": f"{MOCOS} cached features, lr",
    "sgd-augmented": f"{MOCOS} features of random crops and flips, lr",
    "lbfgs": "multinomial logistic regression by L-BFGS, one of 45 L2 weights",
}
CHOSEN = "chosen on a fifth of train, then trained on all of train"
CHOSEN_ON_VAL = "chosen on the validation split, then trained on train and validation"
STANDARD_CROPS = CropPlan(n_global=1, n_local=0, global_scale=(0.08, 1.0), jitter_p=0.0, grey_p=0.0)
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
    overwrite: bool = False,
) -> Iterator[tuple[str, float]]:
    """Yield ("linear top-1, sgd", percent) and top-5 on the test images; save them in the run, or at `out`."""
    began, how = time.time(), (how or Extraction()).afresh()
    device = best_device(how.device)
    check_result(out, overwrite, encoder.run)
    refuse_unusable_seed(seed)
    if epochs < 1:
        raise UserError(f"epochs={epochs}: must be 1 or more.")
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise UserError(f"rates={list(rates)}: must be one or more learning rates above 0.")
    splits = split_features(encoder, data, how, seed).to(device)
    if not splits.official_test:
        how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out.")
    about, labels = splits.about(), splits.test.labels
    how.say(f"{len(labels):,} test images, {splits.n_classes} classes, chance {about['chance']:.2f} %.")
    settings: dict[str, Any] = {} if protocol == "lbfgs" else {"epochs": epochs, "rates": list(rates)}
    if protocol == "lbfgs":
        probe, choice = _by_lbfgs(splits, how)
    else:
        config = SGDConfig.scaled(epochs)
        train = _on_features(config, seed, how) if protocol == "sgd" else _on_crops(encoder, config, seed, how)
        probe, choice = _by_sgd(splits, train, rates, how)
    scores = probe.scores(splits.test.features)
    figures = {f"top-{top}": top_k(scores, labels, top) for top in tops_for(splits.n_classes)}
    how.classified.append(len(labels))
    named = {f"linear {name}, {protocol}": value for name, value in figures.items()}
    yield from named.items()
    record = {
        "protocol": f"{ABOUT[protocol]} {CHOSEN_ON_VAL if splits.official_val else CHOSEN}",
        "results": {name: round(value, 2) for name, value in figures.items()},
        "standard_errors": standard_errors(named, len(labels)),
        **choice,
        "epochs_of_probe": settings.get("epochs"),
        "rates": settings.get("rates"),
        **about,
        "seed_of_probe": seed,
        "seconds": round(time.time() - began, 1),
    }
    save(f"linear-{protocol}", record, encoder, data, how, out, {"seed": seed, **settings})


class Chosen(NamedTuple):
    """The chosen L2 weight, the classifier refitted with it, and what each weight reached on validation, in percent."""

    w: float
    probe: LinearProbe
    validation: dict[float, float]


def select_weight(
    train: LabelledFeatures,
    val: LabelledFeatures,
    n_classes: int,
    weights: Sequence[float] = WEIGHTS,
    metric: Metric = top1,
    penalise_bias: bool = False,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    progress: Callable[[int], None] = lambda done: None,
) -> Chosen:
    """Fit every weight on train, choose on val (of equals the strongest), refit on both from the chosen classifier."""
    path = fit_path(*train, n_classes, weights, None, penalise_bias, tolerance, max_iterations, progress)
    validation = {solution.w: metric(solution.probe.scores(val.features), val.labels) for solution in path}
    best = max(path, key=lambda solution: (validation[solution.w], solution.w))
    refit = fit(*train.joined(val), n_classes, best.w, best.probe, penalise_bias, tolerance, max_iterations)
    return Chosen(best.w, refit.probe, validation)


def _by_lbfgs(splits: FeatureSplits, how: Extraction) -> Learned:
    watched = how.counting("L2 weights", len(WEIGHTS))
    chosen = select_weight(splits.train, splits.val, splits.n_classes, progress=watched)
    how.say(describe_choice("L2 weight", chosen.w, chosen.validation))
    return chosen.probe, {"l2_weight": chosen.w, "validation": chosen.validation}


Train: TypeAlias = Callable[[FeatureSplits, bool, Sequence[float]], SGDProbes]
"""Trains a probe for each rate: on the images to learn from or, if the flag is set, on those to choose by as well."""


def _by_sgd(splits: FeatureSplits, train: Train, rates: Sequence[float], how: Extraction) -> Learned:
    """The best rate on validation, and the classifier that it gives on all of train."""
    best = train(splits, False, rates).select(splits.val)
    (probe,) = train(splits, True, [best.rate]).probes()
    if not probe.finite:
        raise UserError(f"lr {best.rate:g}, the best on validation, diverged on all of train; use lbfgs.")
    how.say(describe_choice("lr", best.rate, best.validation))
    return probe, {"lr": best.rate, "validation": best.validation}


def _stage(last: bool) -> str:
    return "epochs of the last classifier" if last else "epochs of all learning rates"


def _on_features(config: SGDConfig, seed: int, how: Extraction) -> Train:
    def train(splits: FeatureSplits, last: bool, rates: Sequence[float]) -> SGDProbes:
        known = splits.train.joined(splits.val) if last else splits.train
        watched = how.counting(_stage(last), config.epochs)
        return train_probes(known, splits.n_classes, stream(seed, "linear"), rates, config, watched)

    return train


def _on_crops(encoder: FrozenEncoder, config: SGDConfig, seed: int, how: Extraction) -> Train:
    @torch.no_grad()
    def train(splits: FeatureSplits, last: bool, rates: Sequence[float]) -> SGDProbes:
        """All rates at once on the features of one random crop of each image and epoch."""
        known = reduce(Split.joined, splits.images)[splits.rows.known if last else splits.rows.train]
        device, labels = best_device(how.device), labels_of(known)
        loading, home = LoadingConfig(workers=how.workers, max_bad=how.max_bad), exact_device(device)
        bad, images = BadImages(len(known), how.max_bad), in_channels(encoder, known).images
        plan, backbone, probes = (
            replace(STANDARD_CROPS, global_size=encoder.size),
            encoder.backbone.to(device).eval(),
            None,
        )
        with exact_convolutions(), closing(place(images, device, loading, bad)[0]) as feed:
            batches = Batches(feed, len(known), config.batch_size, seed, keeps_last=True)
            for epoch in range(config.epochs):
                batches.set_epoch(epoch)
                for step, batch in enumerate(batches):
                    draws = stream(seed, "linear crops", epoch, step)
                    crops = make_crops(batch.pixels, plan, draws, encoder.mean, encoder.std, sizes=batch.sizes)
                    features = backbone(crops.x_g[0]).float().to(home)
                    probes = probes or SGDProbes(
                        features.shape[1], splits.n_classes, rates, stream(seed, "linear"), config.momentum, home
                    )
                    assert batch.rows is not None
                    shown = (batch.rows >= 0).nonzero().squeeze(1)  # grey ones have no label
                    if len(shown):
                        own = to_device(labels[batch.rows[shown]], home)
                        probes.step(features[to_device(shown, home)], own, config.decay(epoch))
                how.progress(_stage(last), epoch + 1, config.epochs)
        assert probes is not None
        return probes

    return train


def describe_choice(what: str, chosen: float, validation: Mapping[float, float]) -> str:
    """What was chosen, and whether a better one may be beyond all that were tried."""
    edge = at_edge(chosen, validation)
    return f"{what} {chosen:g}: best of {len(validation)}, {validation[chosen]:.2f} % on validation images" + (
        f"; the {edge} tried, so one beyond may be better." if edge else "."
    )


def at_edge(chosen: float, validation: Mapping[float, float]) -> Literal["", "smallest", "largest"]:
    """Whether the best of several is at an end of what was tried, and no other is as good."""
    tried, others = sorted(validation), [value for other, value in validation.items() if other != chosen]
    if not others or chosen not in (tried[0], tried[-1]) or validation[chosen] <= max(others):
        return ""
    return "smallest" if chosen == tried[0] else "largest"


@dataclass(frozen=True)
class Linear(DataOption, FeatureOptions):
    """A linear classifier on frozen features: MoCo's SGD with a sweep of learning rates, or L-BFGS.

    The rate, or the L2 weight, is chosen on validation images; if there are none, on a fifth of train, never on test
    images. Then train and validation images together train the classifier.

    example: logo-ssl eval linear runs/first --data photos/ --protocol lbfgs
    """

    protocol: Protocol = "sgd"
    """SGD on cached features, SGD on features of random crops (slow), or logistic regression by L-BFGS."""
    epochs: int = SGDConfig.epochs
    """Passes of SGD; its rate falls to a tenth after 60 % and again after 80 % of them."""
    rates: tuple[float, ...] = RATES
    """Learning rates of SGD, all trained at once; the best one on validation images counts. MoCo's protocol has 30."""
    seed: int = 0
    """Decides the validation split, the start and the order."""

    def run(self) -> None:
        """Evaluate, and show the figures."""
        encoder, console = self.open()
        with self.extraction(console) as how:
            data = data_for(encoder, self.data, console.print)
            settings = {"epochs": self.epochs, "rates": self.rates, "seed": self.seed, "out": self.out}
            settings |= {"protocol": self.protocol, "overwrite": self.overwrite}
            figures = dict(linear(encoder, data, how, **settings))
        show(self, encoder, console, "Linear classifier", figures, how.classified)
