"""On which other data are rows measured, how long does it take, and what is missing for it? Of Tables 5 and 6."""

from collections.abc import Iterable, Iterator

from ..data import data_root
from ..errors import DataMissing
from ..text import counted, listed
from .sources import look


def transfers(measurements: Iterable[str]) -> Iterator[str]:
    """The sets that features are to be transferred to: which are there, which are missing, and how to bring these."""
    names = dict.fromkeys(m.removeprefix("transfer-") for m in measurements if m.startswith("transfer-"))
    if not names:
        return
    from ..eval.table5 import SETS  # slow to import: only where it is needed

    sets = [SETS[name].data for name in names]
    seen = {name: look(name, size=0) for name in sets}
    by_hand = [name for name in sets if seen[name].missing]
    fetched = [name for name in sets if seen[name].remark and name not in by_hand]
    there = [name for name in sets if not seen[name].remark]
    states = {
        f"there in {data_root()}": there,
        "missing, and would be downloaded where the network allows": fetched,
        "missing, and must be placed by hand": by_hand,
    }
    told = [f"{listed(some)}: {state}" for state, some in states.items() if some]
    yield f"eval transfer of each row to {counted(len(sets), 'set')}: {'; '.join(told)}."
    yield from (seen[name].remark for name in by_hand)


def detections(measurements: Iterable[str]) -> Iterator[str]:
    """The schedule of each detector that is to be trained, how long it takes, and what is missing for it."""
    kinds = dict.fromkeys(tuple(m.split("-", 1)) for m in measurements if m.startswith(("detect-", "segment-")))
    if not kinds:
        return
    from ..detection.sources import OFFICIAL, folder_of  # slow to import: only where it is needed
    from ..eval.detect_schedule import recipe_for, schedule

    for kind, name in kinds:
        n_pictures = OFFICIAL[name].train
        told = schedule(name, recipe_for(name, n_pictures, True), n_pictures, kind == "segment")
        (_, pictures), *rest = told
        yield "; ".join((f"eval {kind} of each row on {pictures}", *(f"{what} {how}" for what, how in rest)))
        try:
            folder_of(name)
        except DataMissing as error:
            yield str(error)
