"""Did a run collapse? The alarms that training raises, heard again from what it logged."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..recipes import Recipe
from ..train.collapse import collapse_alarm, diagnose, diagnose_loss, directions, knn_fall, knn_loss

BEHIND = "kNN behind the untrained encoder's"


class Reading(NamedTuple):
    """What is watched, after which epoch, and a sentence if it rings."""

    kind: str
    epoch: int
    sentence: str | None


@dataclass
class Stretch:
    """Epochs in a row that rang, and what the last of them said."""

    first: int
    last: int
    sentence: str

    def __str__(self) -> str:
        when = f"Epoch {self.last}" if self.first == self.last else f"Epochs {self.first} to {self.last}"
        return f"{when}: {self.sentence}"


def alarms(lines: Iterable[dict[str, Any]], recipe: Recipe) -> list[str]:
    """A sentence with cause and cure for each stretch of alarms; falling behind at first, and catching up, is none."""
    return [str(stretch) for stretch in _stretches(lines, recipe)[0]]


def alarms_at_last(lines: Iterable[dict[str, Any]], recipe: Recipe) -> list[str]:
    """Those that rang to the end: what is over may have been a passing weakness."""
    return [str(stretch) for stretch in _stretches(lines, recipe)[1]]


def most_directions(recipe: Recipe) -> int:
    """Of how many directions a run's rank is told."""
    return directions(recipe.batch_size, recipe.framework.dim)


def _stretches(lines: Iterable[dict[str, Any]], recipe: Recipe) -> tuple[Collection[Stretch], Collection[Stretch]]:
    """All of them, and those that go on."""
    found, ringing = list[Stretch](), dict[str, Stretch]()
    for kind, epoch, sentence in _readings(lines, recipe):
        if sentence is None:
            ended = ringing.pop(kind, None)
            if kind == BEHIND and ended is not None:
                found.remove(ended)
        elif kind in ringing:
            ringing[kind].last, ringing[kind].sentence = epoch, sentence
        else:
            ringing[kind] = Stretch(epoch, epoch, sentence)
            found.append(ringing[kind])
    return found, ringing.values()


def _readings(lines: Iterable[dict[str, Any]], recipe: Recipe) -> Iterator[Reading]:
    widest, best, untrained, ratio, of = 0.0, 0.0, 0.0, None, None
    for line in lines:
        ratio = line.get("ratio", ratio)
        if "knn" in line and line.get("knn_of") != of:  # on other images from here
            best, untrained, of = 0.0, 0.0, line.get("knn_of")
        match line:
            case {"z_std": float(std), "z_rank": float(rank), "epoch": int(epoch)}:
                logged = line.get("z_std_widest")  # which may be that of the first step
                widest = max(widest, std, logged if isinstance(logged, float) else 0.0)
                sentence = collapse_alarm(std, rank, widest, recipe.batch_size, recipe.framework.dim)
                yield Reading("latents", epoch + 1, sentence and f"{sentence} {diagnose(recipe, ratio)}")
            case {"extended_from_epochs": int()}:  # the learning rate rose again, and kNN may fall
                best = 0.0
            case {"knn": float(accuracy)} if not 0 <= accuracy <= 100:
                pass
            case {"knn": float(accuracy), "epochs_done": 0}:
                untrained = accuracy
            case {"knn": float(accuracy), "epochs_done": int(epoch)}:
                n = line.get("knn_images")
                images = n if isinstance(n, int) and n > 0 else None
                steps = line["step"] if isinstance(line.get("step"), int) else 0
                fall, loss = knn_fall(best, accuracy, images), knn_loss(untrained, accuracy, images)
                yield Reading("kNN", epoch, fall and f"{fall} {diagnose(recipe)}")
                yield Reading(BEHIND, epoch, loss and f"{loss} {diagnose_loss(recipe, steps, epoch)}")
                best = max(best, accuracy)
