"""Can every picture be used? Looked at before a training, so that none stops it halfway."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from torch.utils.data import Dataset

from ..data.workers import fitting_workers
from ..errors import UserError
from ..text import counted
from .pictures import LEFT_OUT, BadPicture, Picture, PictureSet, first_of
from .samples import BYTES, read
from .sources import Detection
from .training import Progress, Say

CHUNK = 16
"""Pictures that a worker process looks at in one go."""
ALONE = 64
"""Pictures for which a worker process is not worth its start."""


class Looking(Dataset[str]):
    """Which pictures are wrong, and why; an empty sentence for those that are not."""

    def __init__(self, pictures: Sequence[Picture], whole: bool, masks: bool) -> None:
        self.pictures, self.whole, self.masks = pictures, whole, masks

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> str:
        picture = self.pictures[row]
        try:
            picture.look(self.whole)
            if self.masks:
                picture.look_at_masks()
        except BadPicture as error:
            return str(error)
        return ""


def usable(
    data: Detection,
    *,
    masks: bool = False,
    whole: bool = True,
    max_bad: float = 0.0,
    workers: int = 0,
    sharers: int = 1,
    progress: Progress = lambda what, done, total: None,
    say: Say = lambda sentence: None,
) -> Detection:
    """The data without the training pictures that cannot be used, up to a share of `max_bad`; else a UserError.

    A test picture that cannot be used is always refused: the figures would be those of another test. Unless `whole`,
    training pictures are judged by their headers.
    """
    if not 0 <= max_bad <= 1:
        raise UserError(f"max_bad={max_bad}: a share lies in 0 to 1.")
    wrong = {}
    for what, part, decoded in (("training", data.train, whole), ("test", data.test, True)):
        looking = Looking(part.pictures, decoded, masks)
        wrong[what] = _looked_at(looking, f"checking {what} pictures", workers, sharers, progress)
    refusals = [_told(what, found, part) for (what, found), part in zip(wrong.items(), data[1:3], strict=True) if found]
    if wrong["test"]:
        raise UserError(" ".join((*refusals, f"{_mend(sum(map(len, wrong.values())))}.")))
    if not (bad := wrong["training"]):
        return data
    if len(bad) > max_bad * len(data.train):
        share = f"leave out up to a share of the training pictures with --max-bad (now {max_bad:g})"
        raise UserError(f"{refusals[0]} {_mend(len(bad))}, or {share}.")
    say(f"{refusals[0]} {'It is' if len(bad) == 1 else 'They are'} left out.")
    kept = tuple(picture for row, picture in enumerate(data.train.pictures) if row not in bad)
    if not kept:
        raise UserError(f"None of the training pictures of {data.name} can be used; look at the files.")
    train = replace(data.train, pictures=kept, counts=data.train.counts + Counter({LEFT_OUT: len(bad)}))
    return data._replace(train=train, official=False)


def _looked_at(looking: Looking, what: str, workers: int, sharers: int, progress: Progress) -> dict[int, str]:
    """What is wrong, by the row of its picture."""
    rows = range(len(looking))
    fitting = min(fitting_workers(workers, BYTES, sharers), len(rows) // ALONE)
    said: list[str] = []
    for sentences in read(looking, [rows[start : start + CHUNK] for start in rows[::CHUNK]], fitting):
        said += sentences
        progress(what, len(said), len(rows))
    return {row: sentence for row, sentence in enumerate(said) if sentence}


def _mend(n: int) -> str:
    return "Mend them, or remove them from the annotations"


def _told(what: str, wrong: dict[int, str], part: PictureSet) -> str:
    of = counted(len(part), f"{what} picture")
    return f"{len(wrong):,} of {of} cannot be used: {first_of([*wrong.values()], '; ')}."
