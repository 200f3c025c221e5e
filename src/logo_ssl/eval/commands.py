"""How is an evaluation asked for in a shell? One class for each protocol, with what the user may choose."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import UserError
from ..probes import RATES, SGDConfig
from .detect_commands import Detect, Segment
from .finetune import BATCH, EPOCHS, RATE
from .finetune import finetune as evaluate_finetune
from .knn import PROTOCOLS as PROTOCOLS_OF_KNN
from .knn import knn as evaluate_knn
from .linear import Protocol
from .linear import linear as evaluate_linear
from .record import data_for
from .subject import OnData, OnFeatures, Subject, extraction, opened, say_unless_saved, show
from .table5 import PAPER, SETS
from .transfer import SetFigure, files_for, refuse_unknown
from .transfer import transfer as evaluate_transfer


@dataclass(frozen=True)
class KNN(OnData, OnFeatures):
    """Weighted nearest neighbours on frozen features: k=20, tau=0.07 and k=200, tau=0.1, top-1 and top-5.

    example: logo-ssl eval knn runs/first --data photos/ --protocols 5 0.07
    """

    protocols: Annotated[
        tuple[tuple[int, float], ...] | None,
        tyro.conf.arg(help_behavior_hint=f"(default: {' '.join(f'{k} {tau}' for k, tau in PROTOCOLS_OF_KNN)})"),
    ] = None
    """Pairs of k and tau, one after the other; default pairs whose k is too large for the images are left out."""

    def run(self) -> None:
        """Evaluate, and show the figures."""
        frozen, console = opened(self)
        with extraction(self, console) as how:
            data = data_for(frozen, self.data, console.print)
            settings = {"protocols": self.protocols, "out": self.out, "overwrite": self.overwrite}
            figures = list(evaluate_knn(frozen, data, how, **settings))
        show(self, frozen, console, "Weighted kNN", figures, how.classified)


@dataclass(frozen=True)
class Linear(OnData, OnFeatures):
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

    def evaluation(self) -> str:
        """Each protocol has a name of its own."""
        return f"linear-{self.protocol}"

    def run(self) -> None:
        """Evaluate, and show the figures."""
        if self.protocol == "lbfgs" and (self.epochs, self.rates) != (SGDConfig.epochs, RATES):
            raise UserError("--epochs and --rates belong to SGD, and lbfgs has neither; leave them out, or --protocol.")
        frozen, console = opened(self)
        with extraction(self, console) as how:
            data = data_for(frozen, self.data, console.print)
            settings = {"epochs": self.epochs, "rates": self.rates, "seed": self.seed, "out": self.out}
            settings |= {"protocol": self.protocol, "overwrite": self.overwrite}
            figures = list(evaluate_linear(frozen, data, how, **settings))
        show(self, frozen, console, "Linear classifier", figures, how.classified)


@dataclass(frozen=True)
class Transfer(OnFeatures):
    """Logistic regression on frozen features of other data sets: the ten of Table 5, or any class folder.

    Exit code 2 if a set that --sets names could not be measured; without --sets, if none could.

    example: logo-ssl eval transfer runs/first --sets pets flowers photos/
    """

    sets: tuple[str, ...] = tuple(SETS)
    """Names of these ten, or names and paths as for `pretrain`."""
    seed: int = 0
    """Decides the validation split, if the set has no official one."""
    penalise_bias: bool = True
    """Penalise the bias as well as the weights, as in the code behind the paper's table."""

    def files(self) -> list[Path]:
        """One for each set."""
        return [file for file in files_for(self.sets, self.out).values() if file is not None]

    def run(self) -> None:
        """Evaluate, and show the figures beside the paper's."""
        refuse_unknown(self.sets)
        frozen, console = opened(self)
        with extraction(self, console) as how:
            settings = {"seed": self.seed, "penalise_bias": self.penalise_bias, "out": self.out}
            settings["overwrite"] = self.overwrite
            figures = list(evaluate_transfer(frozen, self.sets, how, **settings))
        if not figures:
            raise UserError(f"None of {', '.join(self.sets)} could be measured; the sentences above say why.")
        _show_transfer(console, figures)
        say_unless_saved(self, frozen, console)
        measured = {metric.set for metric, _ in figures}
        lacking = [name for name in files_for(self.sets, None) if name not in measured]
        if lacking and self.sets != tuple(SETS):
            raise UserError(f"{', '.join(lacking)} could not be measured; the sentences above say why.")


@dataclass(frozen=True)
class FineTune(OnData, Subject):
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

    fractions: tyro.conf.Suppress[tuple[float, ...]] = (1.0,)

    def evaluation(self) -> str:
        """The share of labels decides, whichever command asked for it."""
        return "finetune" if self.fractions == (1.0,) else "semi"

    def run(self) -> None:
        """Train, evaluate, and show the figures."""
        frozen, console = opened(self)
        settings = {
            "fractions": self.fractions,
            "epochs": self.epochs,
            "lr": self.lr,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "out": self.out,
            "overwrite": self.overwrite,
        }
        with extraction(self, console) as how:
            data = data_for(frozen, self.data, console.print)
            figures = list(evaluate_finetune(frozen, data, how, console=console, **settings))
        show(self, frozen, console, "Fine-tuned", figures)


@dataclass(frozen=True)
class Semi(FineTune):
    """All weights trained end to end with class-balanced shares of the labels.

    example: logo-ssl eval semi runs/first --data photos/ --fractions 0.01 0.1
    """

    fractions: tuple[float, ...] = (0.01, 0.1)
    """Shares of each class's labels, at least one image of each."""


PROTOCOLS = {
    "knn": KNN,
    "linear": Linear,
    "transfer": Transfer,
    "finetune": FineTune,
    "semi": Semi,
    "detect": Detect,
    "segment": Segment,
}


def _show_transfer(console: Console, figures: Sequence[tuple[SetFigure, float]]) -> None:
    """A line for each set that could be measured: our figure, and the paper's beside it."""
    known = {name: dict(zip(PAPER, column, strict=True)) for name, *column in zip(SETS, *PAPER.values(), strict=True)}
    rows = PAPER if known.keys() & {metric.set for metric, _ in figures} else ()
    table = Table(title="Transfer (%)" + (", beside the paper's Table 5" if rows else ""))
    table.add_column("set", overflow="fold")
    for head in ("this encoder", *rows):
        table.add_column(head, justify="right", min_width=len("100.00"), overflow="fold")
    for metric, value in figures:
        paper = known.get(metric.set, {})
        theirs = (f"{paper[row]:.2f}" if row in paper else "" for row in rows)
        table.add_row(str(metric), Text(f"{value:.2f}", "bold"), *theirs)
    console.print(table)
