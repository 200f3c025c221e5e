"""Errors that end in a sentence for the user, and hints at the nearest name."""

from collections.abc import Iterable
from difflib import get_close_matches


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


def nearest(word: str, choices: Iterable[str], cutoff: float = 0.5) -> str:
    """A hint such as ' Did you mean tiny?', or nothing when no choice is close; what begins with the word is."""
    known = list(choices)
    begun = [choice for choice in known if word.strip("-") and choice.startswith(word)]
    matches = get_close_matches(word, begun or known, n=1, cutoff=0.0 if begun else cutoff)
    return f" Did you mean {matches[0]}?" if matches else ""
