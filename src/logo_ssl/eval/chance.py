"""What would a figure be without any features? How many images and classes there are, and what guessing gives."""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from ..text import counted
from .how import Extraction

TOP = 5
"""Guesses of top-5."""


class Guesswork(NamedTuple):
    """What is asked and what is known, and the percent that need no features."""

    asked: int
    """Images whose class is asked for."""
    known: int
    """Images that tell it."""
    n_classes: int
    n_asked: int
    """Classes that are asked for."""
    chance: float
    """By the class of any known image, and"""
    commonest: float
    """by the commonest class among them."""

    def __str__(self) -> str:
        some = "" if self.n_asked == self.n_classes else f", of which {self.n_asked} asked for"
        return (
            f"Classified: {counted(self.asked, 'image')} by {counted(self.known, 'training image')}, "
            f"in {self.n_classes} classes{some}. Chance: {self.chance:.2f} %; always the commonest training class: "
            f"{self.commonest:.2f} %."
        )

    @property
    def recorded(self) -> dict[str, float]:
        """What is saved beside a figure."""
        some = {} if self.n_asked == self.n_classes else {"classes_asked_for": self.n_asked}
        return {"chance": round(self.chance, 2), "commonest": round(self.commonest, 2), **some}

    @property
    def tops(self) -> tuple[int, ...]:
        """1 and 5; of five classes or fewer, five guesses name them all."""
        return (1, TOP) if self.n_classes > TOP else (1,)


def chance_of(asked: Int[Tensor, " Q"], known: Int[Tensor, " N"], *, per_class: bool = False) -> Guesswork:
    """How easy a question is; `per_class`: where the figure is a mean over the classes that are asked for."""
    n = int(max(asked.max(), known.max())) + 1
    wanted, told = (labels.bincount(minlength=n).double() for labels in (asked, known))
    n_asked = int((wanted > 0).sum())
    wanted = (wanted > 0).double() if per_class else wanted
    wanted, told = wanted / wanted.sum(), told / told.sum()
    guessed, commonest = 100 * float(wanted @ told), 100 * float(wanted[told.argmax()])
    return Guesswork(len(asked), len(known), n, n_asked, guessed, commonest)


def say_chance(chance: Guesswork, how: Extraction) -> None:
    """Say how easy a question is, and why top-5 is no answer to it where it is none."""
    how.say(str(chance))
    if TOP not in chance.tops:
        how.say(f"Top-{TOP} is left out: with {chance.n_classes} classes, {TOP} guesses name every one of them.")
