"""Linear classifiers on frozen features: `eval linear`, by MoCo's SGD or by L-BFGS, chosen on validation images."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import inf
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..augment import CropPlan, make_crops
from ..data import BadImages, Batches, ImageSet, LoadingConfig, Split, place
from ..encoders import FrozenEncoder
from ..errors import UserError
from ..ranges import Allowed, Count, Seed
from ..system.hardware import best_device, exact_device, to_device
from ..system.randomness import stream
from .features import Extraction, LabelledFeatures, exact_convolutions, in_channels
from .lbfgs import Chosen, LinearProbe, how_chosen, logistic
from .protocol import DataProtocol, FeatureOptions, Measurement, Metric, standard_errors, top1, top_k, tops_for
from .splits import FeatureSplits, class_names, labels_of, split_features

Rates = Annotated[tuple[float, ...], Allowed(lambda rates: rates and all(0 < x < inf for x in rates), "above 0")]
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""MoCo's 30 is meant for its own features; others need other rates, by orders of magnitude."""
EPOCHS, BATCH, MOMENTUM = 100, 256, 0.9
"""Of MoCo's main_lincls.py, which has no weight decay; an epoch's last batch may be smaller."""
INITIAL_SPREAD = 0.01
"""MoCo's initial weights are normal with this standard deviation; its biases are 0."""
MOCOS = "MoCo's SGD (batch 256, momentum 0.9, no weight decay, lr / 10 after 60 and 80 % of the epochs) on"
ABOUT = {
    "sgd": f"{MOCOS} cached features, lr",
    "sgd-augmented": f"{MOCOS} features of random crops and flips, lr",
    "lbfgs": "multinomial logistic regression by L-BFGS, one of 45 L2 weights",
}
STANDARD_CROPS = CropPlan(n_global=1, n_local=0, global_scale=(0.08, 1.0), jitter_p=0.0, grey_p=0.0)
"""The augmentation of MoCo's linear classifier: random crops and flips."""


# -- MoCo's SGD


def decay(epoch: int, epochs: int) -> float:
    """What the rate is multiplied by: a tenth after 60 % of the epochs and again after 80 %, as in MoCo's 100."""
    return 0.1 ** sum(epoch >= -(-epochs * milestone // 100) for milestone in (60, 80))


class SGDProbes:
    """R linear classifiers with one start and one order of images, that differ in their learning rate only."""

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        rates: Sequence[float],
        generator: torch.Generator,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.rates, self.n_classes = tuple(rates), n_classes
        first = INITIAL_SPREAD * torch.randn(n_features, n_classes, generator=generator, device=generator.device)
        # Side by side as columns, so that one product serves all; a column that overflows stays alone with it.
        self._weight = first.to(device, dtype).repeat(1, len(self.rates))  # [F R*C]
        self._bias = self._weight.new_zeros(self._weight.shape[1])
        self._weight_speed, self._bias_speed = torch.zeros_like(self._weight), torch.zeros_like(self._bias)
        self._classes = torch.arange(n_classes, device=device)
        self._rate = self._bias.new_tensor(self.rates).repeat_interleave(n_classes)  # [R*C]

    @torch.no_grad()
    def step(self, features: Float[Tensor, "B F"], labels: Int[Tensor, " B"], decay: float = 1.0) -> None:
        """One step of SGD on the mean cross-entropy of a batch, at decay times the learning rates."""
        n_images = len(labels)
        scores = torch.addmm(self._bias, features, self._weight)
        error = scores.view(n_images, -1, self.n_classes).softmax(dim=2)  # [B R C]
        own = (labels[:, None] == self._classes).to(error.dtype)
        error = error.sub_(own[:, None]).view(n_images, -1)
        self._weight_speed.addmm_(features.T, error, beta=MOMENTUM, alpha=1 / n_images)
        self._bias_speed.mul_(MOMENTUM).add_(error.mean(dim=0))
        rate = self._rate * decay
        self._weight.addcmul_(self._weight_speed, rate, value=-1)
        self._bias.addcmul_(self._bias_speed, rate, value=-1)

    def probes(self) -> list[LinearProbe]:
        """The classifier of each rate."""
        parts = zip(self._weight.split(self.n_classes, dim=1), self._bias.split(self.n_classes), strict=True)
        return [LinearProbe(weight.clone(), bias.clone()) for weight, bias in parts]

    def select(self, val: LabelledFeatures, metric: Metric = top1) -> Chosen:
        """The rate that is best on validation images, of equals the smallest; -1: diverged, and never chosen."""
        probes = dict(zip(self.rates, self.probes(), strict=True))
        validation = {}
        for rate, probe in probes.items():
            scores = probe.scores(val.features)
            validation[rate] = metric(scores, val.labels) if scores.isfinite().all() else -1.0
        best = max(probes, key=lambda rate: (validation[rate], -rate))
        if validation[best] < 0:
            raise UserError(f"rates={list(self.rates)}: every one diverged; try smaller ones.")
        return Chosen(best, probes[best], validation)


def train_probes(
    train: LabelledFeatures,
    n_classes: int,
    generator: torch.Generator,
    rates: Sequence[float] = RATES,
    epochs: int = EPOCHS,
    progress: Callable[[int, int], None] = lambda done, total: None,
    batch_size: int = BATCH,
) -> SGDProbes:
    """Train on cached features, where they are; the generator draws the start, then each epoch's order."""
    features, labels = train
    probes = SGDProbes(features.shape[1], n_classes, rates, generator, features.device, features.dtype)
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=generator, device=generator.device).to(labels.device)
        for rows in order.split(batch_size):
            probes.step(features[rows], labels[rows], decay(epoch, epochs))
        progress(epoch + 1, epochs)
    return probes


@torch.no_grad()
def train_on_crops(
    encoder: FrozenEncoder,
    known: Split,
    probes: SGDProbes,
    seed: int,
    epochs: int,
    how: Extraction,
    progress: Callable[[int, int], None],
) -> SGDProbes:
    """Train on the features of one random crop of each image and epoch, all rates at once."""
    device, labels = best_device(how.device), labels_of(known)
    home = exact_device(device)
    loading, bad = LoadingConfig(workers=how.workers, max_bad=how.max_bad), BadImages(len(known), how.max_bad)
    plan, backbone = replace(STANDARD_CROPS, global_size=encoder.size), encoder.backbone.to(device).eval()
    images = in_channels(encoder, known).images
    with exact_convolutions(), closing(place(images, device, loading, bad)[0]) as feed:
        batches = Batches(feed, len(known), BATCH, seed, keeps_last=True)
        for epoch in range(epochs):
            batches.set_epoch(epoch)
            for step, batch in enumerate(batches):
                draws = stream(seed, "linear crops", epoch, step)
                crops = make_crops(batch.pixels, plan, draws, encoder.mean, encoder.std, sizes=batch.sizes)
                features = backbone(crops.x_g[0]).float().to(home)
                assert batch.rows is not None
                shown = (batch.rows >= 0).nonzero().squeeze(1)  # grey ones have no label
                if len(shown):
                    own = to_device(labels[batch.rows[shown]], home)
                    probes.step(features[to_device(shown, home)], own, decay(epoch, epochs))
            progress(epoch + 1, epochs)
    return probes


@dataclass(frozen=True)
class Linear(DataProtocol, FeatureOptions):
    """A linear classifier on frozen features: MoCo's SGD with a sweep of learning rates, or L-BFGS.

    The rate, or the L2 weight, is chosen on validation images; if there are none, on a fifth of train, never on test
    images. Then train and validation images together train the classifier.

    example: logo-ssl eval linear runs/first --data photos/ --protocol lbfgs
    """

    protocol: Literal["sgd", "sgd-augmented", "lbfgs"] = "sgd"
    """SGD on cached features, SGD on features of random crops (slow), or logistic regression by L-BFGS."""
    epochs: Count = EPOCHS
    """Passes of SGD; its rate falls to a tenth after 60 % and again after 80 % of them."""
    rates: Rates = RATES
    """Learning rates of SGD, all trained at once; the best one on validation images counts. MoCo's protocol has 30."""
    seed: Seed = 0
    """Decides the validation split, the start and the order."""

    title = "Linear classifier"

    def measure(self, encoder: FrozenEncoder, data: ImageSet, how: Extraction) -> Measurement:
        """Choose and train a classifier, and test it."""
        splits = split_features(encoder, data, how, self.seed).to(best_device(how.device))
        if not splits.official_test:
            how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out.")
        about, labels = splits.about(), splits.test.labels
        how.say(f"{len(labels):,} test images, {splits.n_classes} classes, chance {about['chance']:.2f} %.")
        if self.protocol == "lbfgs":
            what, settings = "l2_weight", {}
            chosen = logistic(splits, top1, partial(how.progress, "L2 weights"))
        else:
            what, settings = "lr", {"epochs": self.epochs, "rates": list(self.rates)}
            best = self._trained(encoder, splits, self.rates, how).select(splits.val)
            (probe,) = self._trained(encoder, splits, [best.value], how, last=True).probes()
            if not probe.finite:
                raise UserError(f"lr {best.value:g}, the best on validation, diverged on all of train; use lbfgs.")
            chosen = best._replace(probe=probe)
        reached, n = chosen.validation[chosen.value], len(chosen.validation)
        how.say(f"{what.replace('l2_', 'L2 ')} {chosen.value:g}: best of {n}, {reached:.2f} % on validation images.")
        scores = chosen.probe.scores(splits.test.features)
        tops = {f"top-{top}": top_k(scores, labels, top) for top in tops_for(splits.n_classes)}
        figures = {f"linear {name}, {self.protocol}": value for name, value in tops.items()}
        record = {
            "protocol": f"{ABOUT[self.protocol]} {how_chosen(splits, folds=self.protocol == 'lbfgs')}",
            "results": {name: round(value, 2) for name, value in tops.items()},
            "standard_errors": standard_errors(figures, len(labels)),
            what: chosen.value,
            "validation": chosen.validation,
            "epochs_of_probe": settings.get("epochs"),
            "rates": settings.get("rates"),
            **about,
            "seed_of_probe": self.seed,
        }
        settings = {"seed": self.seed, **settings}
        classifier = replace(encoder, head=chosen.probe.layer(), classes=class_names(data))
        return Measurement(f"linear-{self.protocol}", figures, record, settings, classifier)

    def _trained(
        self, encoder: FrozenEncoder, splits: FeatureSplits, rates: Sequence[float], how: Extraction, last: bool = False
    ) -> SGDProbes:
        """A probe for each rate, of the images to learn from; the last one learns from those to choose by as well."""
        stage = "epochs of the last classifier" if last else "epochs of all learning rates"
        start, watched = stream(self.seed, "linear"), partial(how.progress, stage)
        if self.protocol == "sgd":
            known = splits.train.joined(splits.val) if last else splits.train
            return train_probes(known, splits.n_classes, start, rates, self.epochs, watched)
        rows = torch.cat(splits.rows).sort().values if last else splits.rows[0]
        shown = reduce(Split.joined, splits.images)[rows]
        features = splits.train.features
        probes = SGDProbes(features.shape[1], splits.n_classes, rates, start, features.device)
        return train_on_crops(encoder, shown, probes, self.seed, self.epochs, how, watched)
