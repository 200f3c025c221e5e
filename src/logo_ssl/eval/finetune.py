"""Fine-tuning of all weights: `eval finetune` on all labels, `eval semi` on class-balanced shares of them."""

import math
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

from ..data import BadImages, ImageSet, LoadingConfig, Split
from ..errors import Interrupted, UserError
from ..frameworks import SupervisedConfig
from ..hardware import best_device
from ..randomness import refuse_unusable_seed, stream
from ..recipes import OptimiserConfig, Recipe
from ..run import Run
from ..signals import Stopped
from ..strategies import TwoViewConfig
from ..text import counted
from ..train import Pretraining
from ..train.checkpoint import Checkpoints
from ..train.loggers import JsonlLogger, ProgressDisplay
from ..train.monitors import Diverged
from ..train.pretrain import fit
from ..train.trainer import build_trainer
from .encoder import FrozenEncoder
from .features import exact_convolutions, in_channels, labelled_features, readable
from .leakage import count_copies
from .linear import STANDARD_CROPS
from .options import DataOption, EvalOptions, Extraction, check_result
from .results import data_for, save, show
from .sgd_probe import top_k
from .splits import balanced_share, guessing, labelled_splits, labels_of, split_test, tops_for

EPOCHS, RATE, BATCH = 50, 0.03, 256
PROTOCOL = (
    "all weights fine-tuned end to end with a linear classifier: SGD, "
    f"momentum {OptimiserConfig.momentum}, weight decay {OptimiserConfig.weight_decay:g}, cosine, "
    "random crops and flips; last epoch, no choice on any held-out image"
)


class Tuning(NamedTuple):
    """How all weights are trained."""

    epochs: int
    lr: float
    batch_size: int
    seed: int


def finetune(
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction | None = None,
    *,
    fractions: Sequence[float] = (1.0,),
    epochs: int = EPOCHS,
    lr: float = RATE,
    batch_size: int = BATCH,
    seed: int = 0,
    out: Path | None = None,
    overwrite: bool = False,
    console: Console | None = None,
) -> Iterator[tuple[str, float]]:
    """Yield ("finetune top-1, 10 % of labels (500 images)", percent) and top-5 for each share; save them."""
    how, console = (how or Extraction()).afresh(), console or Console(quiet=True)
    protocol = "finetune" if tuple(fractions) == (1.0,) else "semi"
    best_device(how.device)
    check_result(out, overwrite, encoder.run)
    tuning = Tuning(epochs, lr, batch_size, seed)
    _validate(fractions, tuning)
    train, test, about_test = _split(encoder, data, seed, how)
    n_classes = int(labels_of(train).max()) + 1
    results = []
    for asked, rows in _shares(labels_of(train), fractions, seed):
        began, fraction = time.time(), float(f"{len(rows) / len(train):.3g}")
        part = ImageSet(data.name, train[rows], None, data.classes)
        guess = guessing(labels_of(test), labels_of(part.train))
        how.say(
            f"Fine-tuning on {len(rows):,} of {len(train):,} labelled images, testing on {len(test):,}; chance "
            f"{guess['chance']:.2f} %."
        )
        module = _classifier(encoder, part, n_classes, tuning, how)
        _tune(module, part, how, console)
        tuned = replace(encoder, backbone=module.framework.encoder.net)
        scores, labels = labelled_features(tuned, test, replace(how, cache=False), "test images")
        figures = {top: top_k(scores, labels, top) for top in tops_for(n_classes)}
        for top, value in figures.items():
            yield f"finetune top-{top}, {100 * fraction:g} % of labels ({counted(len(rows), 'image')})", value
        about = {"fraction": fraction, "fractions_asked": asked, "images": len(rows), **guess}
        about |= {"batch_size": module.recipe.batch_size, "seconds": round(time.time() - began, 1)}
        results.append(about | {f"top{top}": value for top, value in figures.items()})
    record = {"protocol": PROTOCOL, "results": results, "epochs_of_tuning": epochs, "lr": lr, "seed_of_tuning": seed}
    record |= {"batch_of_tuning": batch_size, "test_images": len(test), "classes": n_classes, **about_test}
    settings = {"fractions": list(fractions), **tuning._asdict()}
    save(protocol, record, encoder, data, how, out, settings)


def _validate(fractions: Sequence[float], tuning: Tuning) -> None:
    refuse_unusable_seed(tuning.seed)
    if tuning.epochs < 1:
        raise UserError(f"epochs={tuning.epochs}: must be 1 or more.")
    if not 0 < tuning.lr < math.inf:
        raise UserError(f"lr={tuning.lr}: must be a positive learning rate.")
    if tuning.batch_size < 2:
        raise UserError(f"batch_size={tuning.batch_size}: must be 2 or more, since batch norm compares images.")
    if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
        raise UserError(f"fractions={list(fractions)}: must be one or more, above 0 and at most 1.")


def _shares(
    labels: Int[Tensor, " N"], fractions: Sequence[float], seed: int
) -> Iterator[tuple[list[float], Int[Tensor, " n"]]]:
    """The rows of each share, with all fractions that give it: each class has one image at least."""
    drawn = [balanced_share(labels, fraction, stream(seed, "share")) for fraction in fractions]
    for rows in {len(rows): rows for rows in drawn}.values():  # a larger share holds the smaller
        yield [fraction for fraction, same in zip(fractions, drawn, strict=True) if len(same) == len(rows)], rows


def _split(encoder: FrozenEncoder, data: ImageSet, seed: int, how: Extraction) -> tuple[Split, Split, dict[str, int]]:
    """What trains and what tests, of images that can be read, in the channels that the encoder sees; about the test."""
    splits = labelled_splits(data)
    about = {**count_copies(*splits, say=how.say), "official_test": splits.test is not None}
    train = readable(in_channels(encoder, splits.train), how, "training images")
    if splits.test is not None:
        return train, readable(in_channels(encoder, splits.test), how, "test images"), about
    known, held_out = split_test(labels_of(train), seed, data.name)
    how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out.")
    return train[known], train[held_out], about


def _tune(module: Pretraining, data: ImageSet, how: Extraction, console: Console) -> None:
    """Train, and leave nothing on the disk."""
    with TemporaryDirectory() as folder, exact_convolutions():
        run = Run(folder)
        journal = JsonlLogger(run)
        display = ProgressDisplay(journal, console, {"l_gg": "loss"})
        trainer = build_trainer(run, module.recipe, data, journal, display, benchmark=False)
        try:
            bad = BadImages(len(data.train), how.max_bad)
            fit(trainer, module, data, bad, console)
        except Diverged as error:
            lr = module.recipe.optimiser.lr
            raise UserError(f"lr={lr:g}: fine-tuning diverged at step {error.step}; use a lower one.") from error
        except Interrupted as stop:  # it names a checkpoint in a folder that goes with us
            raise _nothing_kept(stop.code - 128) from None
        keeper = trainer.checkpoint_callback
        if isinstance(keeper, Checkpoints) and keeper.stop.received is not None:  # during the last epoch, which ends
            raise _nothing_kept(keeper.stop.received)


def _nothing_kept(number: int) -> Interrupted:
    return Stopped(number).interrupted("nothing of the fine-tuning is kept, and the same command starts it again")


def _classifier(encoder: FrozenEncoder, data: ImageSet, n_classes: int, tuning: Tuning, how: Extraction) -> Pretraining:
    """A copy of the backbone with a fresh classifier, ready to be trained."""
    recipe = Recipe(
        "finetune",
        data=data.name,
        epochs=tuning.epochs,
        batch_size=min(tuning.batch_size, len(data.train)),
        seed=tuning.seed,
        framework=SupervisedConfig(n_classes),
        strategy=TwoViewConfig(),
        crops=replace(STANDARD_CROPS, global_size=encoder.size),
        optimiser=OptimiserConfig(lr=tuning.lr),
        device=how.device,  # type: ignore[arg-type] (one of the names)
        compile="off",  # compilers choose kernels by the clock, and then numbers do not repeat
        knn_every=0,
        checkpoint_every=10**9,
        loading=LoadingConfig(workers=how.workers, max_bad=how.max_bad),
        loggers=(),
    )
    backbone = deepcopy(encoder.backbone).cpu().requires_grad_(True).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(tuning.seed)
        framework = SupervisedConfig(n_classes).build(backbone, _n_features(encoder))
    strategy = recipe.strategy.build(1, 0, n_classes)
    labels = labels_of(data.train)
    return Pretraining(recipe, framework, strategy, encoder.mean, encoder.std, len(data.train), labels, how.say)


@torch.no_grad()
def _n_features(encoder: FrozenEncoder) -> int:
    """The width of the features, by a look at them: libraries name it differently, or not at all."""
    device = next(encoder.backbone.parameters()).device
    return encoder.backbone(torch.zeros(1, encoder.channels, encoder.size, encoder.size, device=device)).shape[1]


@dataclass(frozen=True)
class FineTune(DataOption, EvalOptions):
    """All weights trained end to end with all labels.

    example: logo-ssl eval finetune runs/first --data photos/ --epochs 20 --batch-size 64
    """

    epochs: int = EPOCHS
    """Passes over the labelled images."""
    lr: float = RATE
    """Peak learning rate; it does not follow the batch size."""
    batch_size: int = BATCH
    """Images per step; fewer need less memory."""
    seed: int = 0
    """Decides the shares, the classifier's start, order and augmentation."""

    def run(self, fractions: Sequence[float] = (1.0,)) -> None:
        """Train, evaluate, and show the figures."""
        encoder, console = self.open()
        tuning = Tuning(self.epochs, self.lr, self.batch_size, self.seed)._asdict()
        where = {"out": self.out, "overwrite": self.overwrite, "console": console}
        with self.extraction(console) as how:
            data = data_for(encoder, self.data, console.print)
            figures = dict(finetune(encoder, data, how, fractions=fractions, **tuning, **where))
        show(self, encoder, console, "Fine-tuned", figures)


@dataclass(frozen=True)
class Semi(FineTune):
    """All weights trained end to end with class-balanced shares of the labels.

    example: logo-ssl eval semi runs/first --data photos/ --fractions 0.01 0.1
    """

    fractions: tuple[float, ...] = (0.01, 0.1)
    """Shares of each class's labels, at least one image of each."""

    def run(self, fractions: Sequence[float] = ()) -> None:
        """Train, evaluate, and show the figures."""
        super().run(self.fractions)
