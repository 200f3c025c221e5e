"""Linear probes and their metrics, and MoCo's SGD, which trains one probe for each learning rate at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import UserError

RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
"""MoCo's 30 is meant for its own features; others need other rates, by orders of magnitude."""
INITIAL_SPREAD = 0.01
"""MoCo's initial weights are normal with this standard deviation; its biases are 0."""


class LabelledFeatures(NamedTuple):
    """Features of images with their classes."""

    features: Float[Tensor, "N F"]
    labels: Int[Tensor, " N"]

    def joined(self, other: "LabelledFeatures") -> "LabelledFeatures":
        """Both sets as one."""
        return LabelledFeatures(torch.cat([self.features, other.features]), torch.cat([self.labels, other.labels]))

    def rows(self, rows: Int[Tensor, " n"]) -> "LabelledFeatures":
        """Some of them."""
        return LabelledFeatures(self.features[rows], self.labels[rows])


class LinearProbe(NamedTuple):
    """A linear classifier of features."""

    weight: Float[Tensor, "F C"]
    bias: Float[Tensor, " C"]

    def scores(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N C"]:
        """The score of each class, the larger the likelier."""
        return torch.addmm(self.bias, features, self.weight)

    @property
    def finite(self) -> bool:
        """Whether training has not diverged."""
        return bool(self.weight.isfinite().all() and self.bias.isfinite().all())


Metric: TypeAlias = Callable[[Float[Tensor, "N C"], Int[Tensor, " N"]], float]
"""Percent, higher is better, from scores and labels: top1 or mean_per_class."""


def top1(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Percent of images whose highest score is that of their class."""
    return 100 * (scores.argmax(dim=1) == labels).sum().item() / len(labels)


def top_k(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"], k: int = 5) -> float:
    """Percent of images whose class is among the k highest scores."""
    if k == 1:
        return top1(scores, labels)  # of equal scores, the first
    highest = scores.topk(min(k, scores.shape[1]), dim=1).indices
    return 100 * (highest == labels[:, None]).any(dim=1).sum().item() / len(labels)


def mean_per_class(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Top-1 of each class alone, averaged; classes that no label names are left out."""
    right = (scores.argmax(dim=1) == labels).double()
    images = torch.bincount(labels, minlength=scores.shape[1])
    hits = torch.zeros_like(images, dtype=torch.float64).index_add_(0, labels, right)
    present = images > 0
    return 100 * (hits[present] / images[present]).mean().item()


@dataclass(frozen=True)
class SGDConfig:
    """MoCo's linear classification: main_lincls.py, with momentum and without weight decay."""

    epochs: int = 100
    """Times that each image is seen."""
    batch_size: int = 256
    """Images per step; the last batch of an epoch may be smaller."""
    momentum: float = 0.9
    """Of SGD."""
    milestones: tuple[int, ...] = (60, 80)
    """Epochs from which the learning rate is a tenth of what it was."""

    @classmethod
    def scaled(cls, epochs: int) -> "SGDConfig":
        """MoCo's schedule, shorter or longer: an epoch decays if it begins after 60 or 80 % of all."""
        return cls(epochs, milestones=tuple(-(-epochs * milestone // cls.epochs) for milestone in cls.milestones))

    def decay(self, epoch: int) -> float:
        """What the learning rate is multiplied by in an epoch, counted from 0."""
        return 0.1 ** sum(epoch >= milestone for milestone in self.milestones)


class BestRate(NamedTuple):
    """The chosen learning rate, its classifier, and what each rate reached on validation, in percent; -1: diverged."""

    rate: float
    probe: LinearProbe
    validation: dict[float, float]


class SGDProbes:
    """R linear classifiers with one start and one order of images, that differ in their learning rate only."""

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        rates: Sequence[float],
        generator: torch.Generator,
        momentum: float = SGDConfig.momentum,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.rates, self.n_classes, self.momentum = tuple(rates), n_classes, momentum
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
        self._weight_speed.addmm_(features.T, error, beta=self.momentum, alpha=1 / n_images)
        self._bias_speed.mul_(self.momentum).add_(error.mean(dim=0))
        rate = self._rate * decay
        self._weight.addcmul_(self._weight_speed, rate, value=-1)
        self._bias.addcmul_(self._bias_speed, rate, value=-1)

    def probes(self) -> list[LinearProbe]:
        """The classifier of each rate."""
        parts = zip(self._weight.split(self.n_classes, dim=1), self._bias.split(self.n_classes), strict=True)
        return [LinearProbe(weight.clone(), bias.clone()) for weight, bias in parts]

    def select(self, val: LabelledFeatures, metric: Metric = top1) -> BestRate:
        """The rate that is best on validation images, of equals the smallest; a diverged classifier is never chosen."""
        probes = dict(zip(self.rates, self.probes(), strict=True))
        validation = {}
        for rate, probe in probes.items():
            scores = probe.scores(val.features)
            validation[rate] = metric(scores, val.labels) if scores.isfinite().all() else -1.0
        best = max(probes, key=lambda rate: (validation[rate], -rate))
        if validation[best] < 0:
            raise UserError(f"rates={list(self.rates)}: every one diverged; try smaller ones.")
        return BestRate(best, probes[best], validation)


def train_probes(
    train: LabelledFeatures,
    n_classes: int,
    generator: torch.Generator,
    rates: Sequence[float] = RATES,
    config: SGDConfig | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> SGDProbes:
    """Train on cached features, where they are; the generator draws the start, then each epoch's order."""
    config, (features, labels) = config or SGDConfig(), train
    probes = SGDProbes(features.shape[1], n_classes, rates, generator, config.momentum, features.device, features.dtype)
    for epoch in range(config.epochs):
        order = torch.randperm(len(labels), generator=generator, device=generator.device).to(labels.device)
        for rows in order.split(config.batch_size):
            probes.step(features[rows], labels[rows], config.decay(epoch))
        progress(epoch + 1)
    return probes
