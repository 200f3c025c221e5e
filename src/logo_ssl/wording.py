"""How do numbers, lists and times read in a sentence?"""

from collections.abc import Iterable

RUN_AWAY = 1e6  # a loss beyond it is told by its order


def counted(n: int, noun: str) -> str:
    """1 step, 2 steps, 1,000 steps."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """a; a and b; a, b and c: each once."""
    *others, last = dict.fromkeys(names) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def lasting(seconds: float) -> str:
    """In the unit that tells most: 280 s, 45 min, 3.2 h."""
    if seconds < 10 * 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def rounded(value: float) -> str:
    """0.512, -12.000, 1.82e+17: what has run away takes no more room than what has not."""
    return f"{value:.3f}" if abs(value) < RUN_AWAY else f"{value:.2e}"


def are(n: int) -> str:
    """1 is, 2 are."""
    return "is" if n == 1 else "are"


def them(n: int) -> str:
    """What 1 is called after it was named, and what 2 are."""
    return "it" if n == 1 else "them"
