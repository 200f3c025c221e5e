"""Numbers, lists, times and names of any bytes as text."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tab and newline: letters that a terminal obeys."""
ESCAPED = {ord(letter): repr(letter)[1:-1] for letter in "\t\n\v\f\r\x85\u2028\u2029"}
"""What moves the text behind it, as Python writes it."""


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


def printable(name: str) -> str:
    """The name as it is, but for bytes that are no text, which are written as escapes."""
    try:
        return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # half a character, as JSON may hold
        return name.encode(errors="backslashreplace").decode()


def on_one_line(name: str) -> str:
    """The name as a list shows it: tabs and ends of lines are written as escapes, too."""
    return printable(name).translate(ESCAPED)


def distinct_names(paths: Iterable[str]) -> dict[str, str]:
    """The last part of each path, with as many folders before it as tell it from the others, on one line."""
    parts = {path: PurePath(path).parts for path in paths}
    ends = Counter(part[-n:] for part in parts.values() for n in range(1, len(part) + 1))
    names = dict[str, str]()
    for path, part in parts.items():
        n = next((n for n in range(1, len(part)) if ends[part[-n:]] == 1), len(part))
        names[path] = on_one_line(str(PurePath(*part[-n:])))
    return names


def harmless(text: str, encoding: str = "utf-8") -> str:
    """The text as a terminal of that encoding shows it; what is no text, or a command to it, is written as escapes."""
    plain = CONTROLS.sub(lambda control: f"\\x{ord(control[0]):02x}", printable(text))
    return plain.encode(encoding, "backslashreplace").decode(encoding)
