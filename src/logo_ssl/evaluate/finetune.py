"""How good is an encoder after fine-tuning? All weights train, on all labels or on a class-balanced share of them."""

import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from ..data import BadImages, ImageSet, LoadingConfig, Split, squared
from ..errors import UserError
from ..features import extract
from ..frameworks import SupervisedConfig
from ..probes import balanced_share, stratified_split, top1, top_k
from ..randomness import stream
from ..recipes import OptimiserConfig, Recipe
from ..run import Run
from ..strategies import TwoViewConfig
from ..train import Pretraining
from ..train.journal import Journal
from ..train.pretrain import learn, trainer_for
from ..train.progress import ProgressDisplay
from .encoders import FrozenEncoder
from .extraction import Extraction
from .held_out import TEST_SHARE
from .labelled import LabelledSplits, labelled, labels_of
from .linear import STANDARD
from .record import save

EPOCHS, RATE, BATCH = 50, 0.03, 256
PROTOCOL = (
    "all weights fine-tuned end to end with a linear classifier: SGD, momentum 0.9, cosine, random crops and flips; "
    "last epoch, no choice on any held-out image"
)


def finetune(
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction | None = None,
    *,
    fractions: Sequence[float] = (1.0,),
    epochs: int = EPOCHS,
    lr: float = RATE,
    seed: int = 0,
    out: Path | None = None,
    console: Console | None = None,
) -> Iterator[tuple[str, float]]:
    """Yield ("finetune top-1, 10 % of labels", percent) and top-5 for each share; save them in the run, or at `out`."""
    how, console = how or Extraction(), console or Console(quiet=True)
    if epochs < 1 or lr <= 0:
        raise UserError(f"epochs is {epochs} and lr {lr}; use 1 or more epochs and a positive rate.")
    train, test = _parted(labelled(data), data, seed, how)
    bad = BadImages(len(train) + len(test), how.max_bad)
    shown = squared(test, encoder.size, bad, how.workers)
    n_classes = int(labels_of(train).max()) + 1
    results = []
    for fraction in fractions:
        began = time.time()
        rows = balanced_share(labels_of(train), fraction, stream(seed, "share"))
        part = ImageSet(data.name, train[rows], None, data.classes)
        how.say(f"Fine-tuning on {len(rows):,} of {len(train):,} labelled images, testing on {len(shown):,}.")
        module = _classifier(encoder, part, n_classes, epochs, lr, seed, how)
        with TemporaryDirectory() as folder:
            run = Run(folder)
            journal = Journal(run)
            trainer = trainer_for(run, module.recipe, part, journal, ProgressDisplay(journal, console))
            learn(trainer, module, part, bad, console)
        scores = extract(module.framework.encoder.net, shown.array, encoder.mean, encoder.std, encoder.size)
        labels = labels_of(shown).to(scores.device)
        figures = {"top1": top1(scores, labels), "top5": top_k(scores, labels)}
        share = f"{100 * fraction:g} % of labels"
        yield f"finetune top-1, {share}", figures["top1"]
        yield f"finetune top-5, {share}", figures["top5"]
        results.append({"fraction": fraction, "images": len(rows), "seconds": round(time.time() - began, 1), **figures})
    record = {"protocol": PROTOCOL, "results": results, "epochs_of_tuning": epochs, "lr": lr, "seed_of_tuning": seed}
    record |= {"batch_size": BATCH, "test_images": len(shown), "classes": n_classes}
    settings = {"fractions": list(fractions), "epochs": epochs, "lr": lr, "seed": seed}
    save("finetune" if tuple(fractions) == (1.0,) else "semi", record, encoder, data, how, out, settings)


def _parted(parts: LabelledSplits, data: ImageSet, seed: int, how: Extraction) -> tuple[Split, Split]:
    if parts.test is not None:
        return parts.train, parts.test
    how.say(f"{data.name} has no labelled test images; a fifth of the training images is held out for it.")
    rows = stratified_split(labels_of(parts.train), TEST_SHARE, stream(seed, "test split"))
    return parts.train[rows.train], parts.train[rows.val]


def _classifier(
    encoder: FrozenEncoder, data: ImageSet, n_classes: int, epochs: int, lr: float, seed: int, how: Extraction
) -> Pretraining:
    """A copy of the backbone with a fresh classifier, ready to be trained."""
    recipe = Recipe(
        "finetune",
        data=data.name,
        epochs=epochs,
        batch_size=min(BATCH, len(data.train)),
        seed=seed,
        framework=SupervisedConfig(n_classes),
        strategy=TwoViewConfig(),
        crops=replace(STANDARD, global_size=encoder.size),
        optimiser=OptimiserConfig(lr=lr),
        device=how.device,  # type: ignore[arg-type] (one of the names)
        knn_every=0,
        checkpoint_every=10**9,
        loading=LoadingConfig(workers=how.workers, max_bad=how.max_bad),
        loggers=(),
    )
    backbone = deepcopy(encoder.backbone).cpu().requires_grad_(True).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        framework = SupervisedConfig(n_classes).build(backbone, getattr(backbone, "num_features"))  # noqa: B009
    strategy = recipe.strategy.build(1, 0, n_classes)
    labels = labels_of(data.train)
    return Pretraining(recipe, framework, strategy, encoder.mean, encoder.std, len(data.train), labels, how.say)
