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
from rich.console import Console

from ..data import BadImages, ImageSet, LoadingConfig, Split
from ..errors import UserError
from ..frameworks import SupervisedConfig
from ..hardware import best_device
from ..probes import balanced_share, check_fraction, top1, top_k
from ..randomness import refuse_unusable_seed, stream
from ..recipes import OptimiserConfig, Recipe
from ..run import Run
from ..strategies import TwoViewConfig
from ..train import Pretraining
from ..train.faults import Diverged
from ..train.journal import Journal
from ..train.learning import learn
from ..train.progress import ProgressDisplay
from ..train.trainer import trainer_for
from .cache import labelled_features
from .encoders import FrozenEncoder
from .extraction import Extraction, exactly, in_channels, seeing
from .held_out import rows_to_test
from .labelled import labelled, labels_of
from .mocos_sgd import STANDARD
from .readable import readable
from .record import claim_result, save

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
    """Yield ("finetune top-1, 10 % of labels", percent) and top-5 for each share; save them in the run, or at `out`."""
    how, console = how or Extraction(), console or Console(quiet=True)
    claim_result(out, overwrite)
    tuning = Tuning(epochs, lr, batch_size, seed)
    _refuse_unusable(fractions, tuning)
    best_device(how.device)  # refused, if it is, before anything is read
    train, test = _parted(encoder, data, seed, how)
    shares = [balanced_share(labels_of(train), fraction, stream(seed, "share")) for fraction in fractions]
    n_classes = int(labels_of(train).max()) + 1
    results = []
    for fraction, rows in zip(fractions, shares, strict=True):
        began = time.time()
        part = ImageSet(data.name, train[rows], None, data.classes)
        how.say(f"Fine-tuning on {len(rows):,} of {len(train):,} labelled images, testing on {len(test):,}.")
        module = _classifier(encoder, part, n_classes, tuning, how)
        _tune(module, part, how, console)
        tuned = replace(encoder, backbone=module.framework.encoder.net)
        scores, labels = labelled_features(tuned, test, replace(how, cache=False), "test images")
        figures = {"top1": top1(scores, labels), "top5": top_k(scores, labels)}
        share = f"{100 * fraction:g} % of labels"
        yield f"finetune top-1, {share}", figures["top1"]
        yield f"finetune top-5, {share}", figures["top5"]
        about = {"fraction": fraction, "images": len(rows), "batch_size": module.recipe.batch_size}
        results.append({**about, "seconds": round(time.time() - began, 1), **figures})
    record = {"protocol": PROTOCOL, "results": results, "epochs_of_tuning": epochs, "lr": lr, "seed_of_tuning": seed}
    official = data.test is not None and data.test.labels is not None
    record |= {"batch_of_tuning": batch_size, "official_test": official, "test_images": len(test), "classes": n_classes}
    settings = {"fractions": list(fractions), **tuning._asdict()}
    save("finetune" if tuple(fractions) == (1.0,) else "semi", record, encoder, data, how, out, settings)


def _refuse_unusable(fractions: Sequence[float], tuning: Tuning) -> None:
    refuse_unusable_seed(tuning.seed)
    if tuning.epochs < 1 or not 0 < tuning.lr < math.inf:
        raise UserError(f"epochs is {tuning.epochs} and lr {tuning.lr}; use 1 or more epochs and a positive rate.")
    if tuning.batch_size < 2:
        raise UserError(f"batch-size is {tuning.batch_size}; use 2 or more, since batch norm compares images.")
    if not fractions:
        raise UserError("fractions is empty; give one or more shares of the labels, such as 0.01 0.1.")
    for fraction in fractions:
        check_fraction(fraction)


def _parted(encoder: FrozenEncoder, data: ImageSet, seed: int, how: Extraction) -> tuple[Split, Split]:
    """What trains and what tests, of images that can be read, in the channels that the encoder sees."""
    parts = labelled(data)
    train = readable(in_channels(encoder, parts.train), how, "training images")
    if parts.test is not None:
        return train, readable(in_channels(encoder, parts.test), how, "test images")
    known, held_out = rows_to_test(labels_of(train), seed, data.name)
    how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out for it.")
    return train[known], train[held_out]


def _tune(module: Pretraining, data: ImageSet, how: Extraction, console: Console) -> None:
    """Train, and leave nothing on the disk."""
    with TemporaryDirectory() as folder, exactly():
        run = Run(folder)
        journal = Journal(run)
        display = ProgressDisplay(journal, console)
        trainer = trainer_for(run, module.recipe, data, journal, display, benchmark=False)
        try:
            learn(trainer, module, data, BadImages(len(data.train), how.max_bad), console)
        except Diverged as error:
            raise UserError(
                f"Fine-tuning diverged at step {error.step} ({', '.join(error.broken)} not finite); use an lr below "
                f"{module.recipe.optimiser.lr:g}."
            ) from error


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
