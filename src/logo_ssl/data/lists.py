"""Which images does a text file name? One a line, with its label behind it if it has one."""

import os
import re
from itertools import islice
from pathlib import Path

from ..errors import UserError
from .folders import split_of
from .formats import names_image
from .images import ImageSet
from .labels import classes_of

TRIED = 100  # paths that are looked for at once: enough to tell a wrong folder from a lost file


def load_list(file: Path) -> ImageSet:
    """One path a line, absolute or from the file's folder; behind it may stand a tab and a label, or a number."""
    folder = str(file.absolute().parent)
    try:
        lines = [line.strip() for line in file.read_text("utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read as UTF-8 text ({error}); write one path a line and save so.") from error
    rows = [_row(line, folder) for line in lines if line and not line.startswith("#")]
    if not any(os.path.exists(path) for path, _ in islice(rows, TRIED)):
        first = f"the first is {rows[0][0].removeprefix(os.path.join(folder, ''))!r}" if rows else "there is none"
        raise UserError(
            f"None of the first paths in {file} exists ({first}, looked for in {folder}); write one path a line, "
            "absolute or from that folder."
        )
    names = [name for _, name in rows]
    classes = classes_of(names)
    return ImageSet(file.stem, split_of([path for path, _ in rows], names, classes), None, classes)


def _row(line: str, folder: str) -> tuple[str, str | None]:
    path, tab, name = line.rpartition("\t")
    if not tab and (numbered_line := re.fullmatch(r"(.*\S)\s+(-?\d+)", line)):
        path, name = numbered_line.groups()
        if not names_image(path) and os.path.exists(os.path.join(folder, line)):  # a name that ends like a label
            path = ""
    if not path:
        return os.path.join(folder, line), None
    return os.path.join(folder, path.rstrip()), None if name.lstrip().startswith("-") else name.strip()
