"""How good is an encoder after fine-tuning? All weights train, on all labels or on a class-balanced share of them."""

import math
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
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
from ..probes import balanced_share, check_fraction, top_k
from ..randomness import refuse_unusable_seed, stream
from ..recipes import OptimiserConfig, Recipe
from ..run import Run
from ..signals import Stopped
from ..strategies import TwoViewConfig
from ..text import counted
from ..train import Pretraining
from ..train.callbacks import ProgressDisplay
from ..train.checkpoint import Checkpoints
from ..train.divergence import Diverged
from ..train.loggers import JsonlLogger
from ..train.pretrain import fit
from ..train.trainer import build_trainer
from .cache import labelled_features
from .chance import chance_of, say_chance
from .copies import copies
from .encoders import FrozenEncoder
from .extraction import exactly, seeing
from .held_out import rows_to_test
from .how import Extraction
from .labelled import labelled, labels_of, refuse_lost_classes
from .mocos_sgd import STANDARD
from .pixels import in_channels
from .readable import readable
from .record import check_result, save

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
    check_result(out, overwrite, encoder.run)
    tuning = Tuning(epochs, lr, batch_size, seed)
    _refuse_unusable(fractions, tuning)
    best_device(how.device)  # refused, if it is, before anything is read
    train, test, tested = _parted(encoder, data, seed, how)
    n_classes = int(labels_of(train).max()) + 1
    results = []
    for asked, rows in _shares(labels_of(train), fractions, seed, how):
        began, fraction = time.time(), float(f"{len(rows) / len(train):.3g}")
        part = ImageSet(data.name, train[rows], None, data.classes)
        how.say(f"Fine-tuning on {len(rows):,} of {len(train):,} labelled images, testing on {len(test):,}.")
        chance = chance_of(labels_of(test), labels_of(part.train))
        say_chance(chance, how)
        module = _classifier(encoder, part, n_classes, tuning, how)
        _tune(module, part, how, console)
        tuned = replace(encoder, backbone=module.framework.encoder.net)
        scores, labels = labelled_features(tuned, test, replace(how, cache=False), "test images")
        figures = {top: top_k(scores, labels, top) for top in chance.tops}
        for top, value in figures.items():
            yield f"finetune top-{top}, {100 * fraction:g} % of labels ({counted(len(rows), 'image')})", value
        about = {"fraction": fraction, "fractions_asked": asked, "images": len(rows), **chance.recorded}
        about |= {"batch_size": module.recipe.batch_size, "seconds": round(time.time() - began, 1)}
        results.append(about | {f"top{top}": value for top, value in figures.items()})
    record = {"protocol": PROTOCOL, "results": results, "epochs_of_tuning": epochs, "lr": lr, "seed_of_tuning": seed}
    record |= {"batch_of_tuning": batch_size, "test_images": len(test), "classes": n_classes, **tested}
    settings = {"fractions": list(fractions), **tuning._asdict()}
    save(protocol, record, encoder, data, how, out, settings)


def _refuse_unusable(fractions: Sequence[float], tuning: Tuning) -> None:
    refuse_unusable_seed(tuning.seed)
    if tuning.epochs < 1:
        raise UserError(f"epochs={tuning.epochs}: must be 1 or more.")
    if not 0 < tuning.lr < math.inf:
        raise UserError(f"lr={tuning.lr}: must be a positive learning rate.")
    if tuning.batch_size < 2:
        raise UserError(f"batch_size={tuning.batch_size}: must be 2 or more, since batch norm compares images.")
    if not fractions:
        raise UserError("fractions=(): give one or more shares of the labels, such as 0.01 0.1.")
    for fraction in fractions:
        check_fraction(fraction)


def _shares(
    labels: Int[Tensor, " N"], fractions: Sequence[float], seed: int, how: Extraction
) -> Iterator[tuple[list[float], Int[Tensor, " n"]]]:
    """The rows of each share that is another one, with all fractions that give it."""
    drawn = [balanced_share(labels, fraction, stream(seed, "share")) for fraction in fractions]
    for rows in {len(rows): rows for rows in drawn}.values():  # a larger share holds the smaller
        asked = [fraction for fraction, same in zip(fractions, drawn, strict=True) if len(same) == len(rows)]
        if len(set(asked)) > 1:
            how.say(
                f"Fractions {' and '.join(f'{fraction:g}' for fraction in asked)} are the same "
                f"{counted(len(rows), 'image')}, since each class has one at least; they are measured once."
            )
        yield asked, rows


def _parted(encoder: FrozenEncoder, data: ImageSet, seed: int, how: Extraction) -> tuple[Split, Split, dict[str, int]]:
    """What trains and what tests, of images that can be read, in the channels that the encoder sees; about the test."""
    parts = labelled(data)
    tested = {**copies(*parts, how), "official_test": parts.test is not None}
    train = readable(in_channels(encoder, parts.train), how, "training images")
    refuse_lost_classes(data, labels_of(parts.train), labels_of(train))
    if parts.test is not None:
        return train, readable(in_channels(encoder, parts.test), how, "test images"), tested
    known, held_out = rows_to_test(labels_of(train), seed, data.name)
    how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out for it.")
    return train[known], train[held_out], tested


def _tune(module: Pretraining, data: ImageSet, how: Extraction, console: Console) -> None:
    """Train, and leave nothing on the disk."""
    with TemporaryDirectory() as folder, exactly():
        run = Run(folder)
        journal = JsonlLogger(run)
        display = ProgressDisplay(journal, console, {"l_gg": "loss"})
        trainer = build_trainer(run, module.recipe, data, journal, display, benchmark=False)
        try:
            bad = BadImages(len(data.train), how.max_bad)
            fit(trainer, module, data, bad, console)
        except Diverged as error:
            raise UserError(
                f"Fine-tuning diverged at step {error.step} ({', '.join(error.broken)} not finite); use an lr below "
                f"{module.recipe.optimiser.lr:g}."
            ) from error
        except Interrupted as stop:  # it tells of a checkpoint, which lies in a folder that goes with us
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
        crops=replace(STANDARD, global_size=encoder.size),
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
    with seeing(encoder):
        return encoder.backbone(torch.zeros(1, encoder.channels, encoder.size, encoder.size, device=device)).shape[1]
