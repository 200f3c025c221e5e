"""How is an evaluation asked for in a shell? One function for each protocol, with what the user may choose."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..terminal import plain_console
from .encoders import FrozenEncoder, load_encoder
from .extraction import Extraction
from .finetune import EPOCHS, RATE
from .finetune import finetune as tune
from .knn import knn as evaluate_knn
from .linear import Protocol
from .linear import linear as evaluate_linear
from .record import data_for
from .transfer import PAPER, SETS
from .transfer import transfer as evaluate_transfer

Encoder = Annotated[str, tyro.conf.Positional]


def knn(
    encoder: Encoder,
    data: str | None = None,
    backbone: str | None = None,
    size: int | None = None,
    device: str = "auto",
    workers: int = -1,
    cache: bool = True,
    out: Path | None = None,
) -> None:
    """Weighted nearest neighbours on frozen features: k=20, tau=0.07 and k=200, tau=0.1, top-1 and top-5.

    Args:
        encoder: A run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint file.
        data: A name or a path, as for `pretrain` (default: what the run was trained on).
        backbone: What a checkpoint holds, where its shapes do not tell.
        size: Side of the images in pixels (default: as in training).
        device: auto, cpu, cuda or mps.
        workers: Processes that decode photographs; -1: one per core.
        cache: Keep features for the next evaluation.
        out: JSON file (default: into the run folder).
    """
    frozen, console = _load(encoder, backbone, size)
    with _told(console, device, workers, cache) as how:
        figures = list(evaluate_knn(frozen, data_for(frozen, data), how, out=out))
    _show(console, "Weighted kNN", figures)


def linear(
    encoder: Encoder,
    data: str | None = None,
    protocol: Protocol = "sgd",
    epochs: int = 100,
    seed: int = 0,
    backbone: str | None = None,
    size: int | None = None,
    device: str = "auto",
    workers: int = -1,
    cache: bool = True,
    out: Path | None = None,
) -> None:
    """A linear classifier on frozen features: MoCo's SGD with a sweep of learning rates, or L-BFGS.

    Args:
        encoder: A run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint file.
        data: A name or a path, as for `pretrain` (default: what the run was trained on).
        protocol: SGD on cached features, SGD on features of random crops (slow), or logistic regression by L-BFGS.
        epochs: Of SGD.
        seed: Decides the validation split, the start and the order.
        backbone: What a checkpoint holds, where its shapes do not tell.
        size: Side of the images in pixels (default: as in training).
        device: auto, cpu, cuda or mps.
        workers: Processes that decode photographs; -1: one per core.
        cache: Keep features for the next evaluation.
        out: JSON file (default: into the run folder).
    """
    frozen, console = _load(encoder, backbone, size)
    with _told(console, device, workers, cache) as how:
        images = data_for(frozen, data)
        figures = list(evaluate_linear(frozen, images, how, protocol=protocol, epochs=epochs, seed=seed, out=out))
    _show(console, "Linear classifier", figures)


def transfer(
    encoder: Encoder,
    sets: tuple[str, ...] = tuple(SETS),
    seed: int = 0,
    backbone: str | None = None,
    size: int | None = None,
    device: str = "auto",
    workers: int = -1,
    cache: bool = True,
    out: Path | None = None,
) -> None:
    """Logistic regression on frozen features of other data sets: the ten of the paper's Table 5, or any class folder.

    Args:
        encoder: A run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint file.
        sets: Names of the ten, or names and paths as for `pretrain`.
        seed: Decides the validation split.
        backbone: What a checkpoint holds, where its shapes do not tell.
        size: Side of the images in pixels (default: as in training; the paper: 224).
        device: auto, cpu, cuda or mps.
        workers: Processes that decode photographs; -1: one per core.
        cache: Keep features for the next evaluation.
        out: JSON files, one for each set, are named after this one (default: into the run folder).
    """
    frozen, console = _load(encoder, backbone, size)
    with _told(console, device, workers, cache) as how:
        figures = dict(evaluate_transfer(frozen, sets, how, seed=seed, out=out))
    _show_transfer(console, figures)


def finetune(
    encoder: Encoder,
    data: str | None = None,
    epochs: int = EPOCHS,
    lr: float = RATE,
    seed: int = 0,
    backbone: str | None = None,
    size: int | None = None,
    device: str = "auto",
    workers: int = -1,
    out: Path | None = None,
) -> None:
    """All weights trained end to end with all labels.

    Args:
        encoder: A run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint file.
        data: A name or a path, as for `pretrain` (default: what the run was trained on).
        epochs: Passes over the labelled images.
        lr: Peak learning rate, for batches of 256.
        seed: Decides the classifier's start, order and augmentation.
        backbone: What a checkpoint holds, where its shapes do not tell.
        size: Side of the images in pixels (default: as in training).
        device: auto, cpu, cuda or mps.
        workers: Processes that decode photographs; -1: one per core.
        out: JSON file (default: into the run folder).
    """
    semi(encoder, data, (1.0,), epochs, lr, seed, backbone, size, device, workers, out)


def semi(
    encoder: Encoder,
    data: str | None = None,
    fractions: tuple[float, ...] = (0.01, 0.1),
    epochs: int = EPOCHS,
    lr: float = RATE,
    seed: int = 0,
    backbone: str | None = None,
    size: int | None = None,
    device: str = "auto",
    workers: int = -1,
    out: Path | None = None,
) -> None:
    """All weights trained end to end with class-balanced shares of the labels.

    Args:
        encoder: A run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint file.
        data: A name or a path, as for `pretrain` (default: what the run was trained on).
        fractions: Shares of each class's labels, at least one image of each.
        epochs: Passes over the labelled images.
        lr: Peak learning rate, for batches of 256.
        seed: Decides the shares, the classifier's start, order and augmentation.
        backbone: What a checkpoint holds, where its shapes do not tell.
        size: Side of the images in pixels (default: as in training).
        device: auto, cpu, cuda or mps.
        workers: Processes that decode photographs; -1: one per core.
        out: JSON file (default: into the run folder).
    """
    frozen, console = _load(encoder, backbone, size)
    how = Extraction(device=device, workers=workers, say=console.print)
    images = data_for(frozen, data)
    figures = list(
        tune(frozen, images, how, fractions=fractions, epochs=epochs, lr=lr, seed=seed, out=out, console=console)
    )
    _show(console, "Fine-tuned", figures)


PROTOCOLS = {"knn": knn, "linear": linear, "transfer": transfer, "finetune": finetune, "semi": semi}


def _load(source: str, backbone: str | None, size: int | None) -> tuple[FrozenEncoder, Console]:
    console = plain_console()
    encoder = load_encoder(source, backbone=backbone, size=size)
    for sentence in encoder.says:
        console.print(sentence)
    return encoder, console


@contextmanager
def _told(console: Console, device: str, workers: int, cache: bool) -> Iterator[Extraction]:
    """How features are computed, with a bar while they are."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield Extraction(device=device, workers=workers, cache=cache, say=console.print, progress=progress)


def _show(console: Console, title: str, figures: Iterable[tuple[str, float]]) -> None:
    table = Table("metric", "%", title=title)
    for metric, value in figures:
        table.add_row(metric, f"{value:.2f}")
    console.print(table)


def _show_transfer(console: Console, figures: dict[str, float]) -> None:
    """Our row above the paper's, for the sets that could be measured."""
    measured = {metric.rsplit(" top-1")[0].rsplit(" mean")[0]: (metric, value) for metric, value in figures.items()}
    table = Table("Table 5", *(metric for metric, _ in measured.values()), title="Transfer (%)")
    table.add_row("this encoder", *(f"{value:.2f}" for _, value in measured.values()), style="bold")
    for row, numbers in PAPER.items() if measured.keys() & SETS.keys() else ():
        known = dict(zip(SETS, numbers, strict=True))
        table.add_row(f"paper: {row}", *(f"{known[name]:.2f}" if name in known else "" for name in measured))
    if measured:
        console.print(table)
