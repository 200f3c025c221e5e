"""What do we say when the user's input, or disk, cannot work?"""

import errno
from collections.abc import Iterable
from difflib import get_close_matches

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""On the disk; of what a user may have of it."""
AGAIN = "give the same command again"
"""How to go on with all but a pretraining, which has a command of its own for that."""

ELSEWHERE = "choose another --out, or allow it"
"""What to do where nothing may be written."""


class UserError(Exception):
    """One sentence that names the value and what is allowed; the command line prints it and exits with code 2."""


class DataMissing(UserError):  # noqa: N818 (a state, not an error)
    """Images that were asked for are not on this machine; what to place where."""


class Interrupted(UserError):  # noqa: N818 (nobody erred)
    """Somebody said stop; how to go on. The command line exits with 128 + the signal's number, as shells expect."""

    def __init__(self, sentence: str, code: int = 130, *, agreed: bool = False) -> None:
        super().__init__(sentence)
        self.code = code
        self.agreed = agreed  # by all processes of a run, so that one of them may tell it for all


def refused_by_disk(error: OSError, cure: str = AGAIN, elsewhere: str = ELSEWHERE) -> str | None:
    """What to say of a disk that is full or may not be written on; nothing where something else is wrong."""
    if error.errno in NO_SPACE:
        told = "The disk is full" if error.filename is None else f"{error.filename} cannot be written: the disk is full"
        return f"{told}; free some space, then {cure}."
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return f"{error.filename} cannot be written ({error.strerror}); {elsewhere}."
    return None


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.5) -> str:
    """A hint such as ' Did you mean tiny?', or nothing when no choice is close; what begins with the word is."""
    known = list(choices)
    begun = [choice for choice in known if word.strip("-") and choice.startswith(word)]
    matches = get_close_matches(word, begun or known, n=1, cutoff=0.0 if begun else cutoff)
    return f" Did you mean {matches[0]}?" if matches else ""
