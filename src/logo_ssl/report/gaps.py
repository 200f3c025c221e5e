"""What cannot be shown, and of which runs? Each reason once, however many runs it holds for."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..text import listed


class Gap(NamedTuple):
    """What cannot be shown of a run, and why."""

    name: str
    path: Path
    sentence: str


def by_reason(gaps: Iterable[Gap]) -> list[tuple[list[str], str]]:
    """Names of runs with the sentence that holds for all of them, which names none of several."""
    found = dict[str, list[Gap]]()
    for gap in gaps:
        found.setdefault(_of_any(gap), []).append(gap)
    return [
        ([gap.name for gap in alike], of_any if len(alike) > 1 else alike[0].sentence)
        for of_any, alike in found.items()
    ]


def which(names: Sequence[str], n_all: int) -> str:
    """Some runs of all that are shown: their names, unless they are all."""
    return f"all {n_all} runs" if 1 < n_all == len(names) else listed(names)


def _of_any(gap: Gap) -> str:
    """The sentence about a run as it reads of several."""
    return gap.sentence.replace(f": {gap.path} ", ": each ", 1).replace(f"resume {gap.path}`", "resume RUN`")
