"""May this file be written? A new one may, and one that we wrote before; any other only where somebody says so."""

import json
import os
import re
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any
from xml.etree.ElementTree import XMLPullParser

from .errors import UserError
from .run import Run

MAKER = "logo-ssl"
"""What files that can say so name as their maker."""
NEAR, MOST = 1 << 16, 1 << 26  # bytes: of a text's head, of what is read as a whole
RESULT = {"protocol", "encoder", "fingerprint", "data_fingerprint", "commit", "versions", "hardware"}
"""What an evaluation tells, among other things."""
TABLE, COLUMNS = {"table", "title", "rows", "options", "written_by"}, b"| row | protocol | paper | ours |"
"""What a table of results tells, and how its text begins below its title."""
WEIGHTS = {"format", "backbone", "stem", "size", "mean", "std", "logo_ssl"}
"""What an export tells of itself."""
MAKERS = ("evaluation", "encoder")
"""What is told of who made a file; all else that it tells are settings."""
LISTED_BY_US = {"software": MAKER}
"""What the first entry of a list says, where a format is a list and no more."""
LIST = json.dumps([LISTED_BY_US], separators=(",", ":")).removesuffix("}]").encode()
SIGNATURE, SOFTWARE = b"\x89PNG\r\n\x1a\n", b"Software\0" + MAKER.encode()


def claim(out: Path, overwrite: bool = False, telling: Mapping[str, Any] | None = None) -> bool:
    """Whether a file will be replaced; UserError where none can be written, or where one lies that is not ours.

    Asked before the work: a refusal after it would cost all of it. An empty file is nobody's; links are followed.
    `telling` is what the new file will say of itself (its encoder, its evaluation, its settings): one of ours that says
    otherwise is something else, and stays, too.
    """
    real = Path(os.path.realpath(out))
    if os.path.isdir(real):
        raise UserError(f"{out} is to be a file, but is a folder; name one in it, such as {out / 'result.json'}.")
    if os.path.lexists(real) and not os.path.isfile(real):
        raise UserError(f"{out} is no ordinary file; choose another name.")
    refuse_unwritable(out)
    run = Run(real.parent)
    if real in run.own_files() and run.recipe_file.is_file():
        raise UserError(f"{out} is a file of the run in {real.parent}; choose another name.")
    if not os.path.lexists(out):
        return False
    if not (overwrite or is_ours(out) or (real.is_file() and not real.stat().st_size)):
        raise UserError(
            f"{out} is there, and does not say that logo-ssl wrote it; choose another --out, or replace it: --overwrite"
        )
    if not overwrite and (others := _told_otherwise(real, telling or {})):
        theirs, ours = (_made({name: both[i] for name, both in others.items()}) for i in (0, 1))
        raise UserError(
            f"{out} is there, and was made {theirs}, not {ours}; choose another --out, or replace it: --overwrite"
        )
    return True


def refuse_unwritable(out: Path, what: str = "", cure: str = "choose another place") -> None:
    """UserError where no file can be made at `out`; it is called by its path, or as `what` says."""
    nearest = next(folder for folder in Path(os.path.realpath(out)).parents if os.path.exists(folder))
    if not _takes_files(nearest):
        raise UserError(f"There is no place for {what or out}: nothing can be written in {nearest}; {cure}.")


def claim_folder(folder: Path, ours: re.Pattern[str]) -> None:
    """UserError where a folder that is to hold our files alone holds another, or is none."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise UserError(f"{folder} is to be a folder, and is none; move it, or choose another --out.")
    if other := next((entry.name for entry, known in _looked_through(folder, ours) if not known), None):
        raise UserError(f"{folder} holds {other}, which logo-ssl did not write; move it, or choose another --out.")


def clear_folder(folder: Path, ours: re.Pattern[str]) -> None:
    """Remove our files from a folder, and the folder if nothing is left; another process may do so at the same time."""
    for entry, known in _looked_through(folder, ours):
        if known:
            Path(entry).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def said(file: Path, replaced: bool) -> str:
    """A file as it is told of when it is written."""
    return f"{file} (replaced)" if replaced else str(file)


def is_ours(file: Path) -> bool:
    """Whether a file says that we wrote it, as its format says such things."""
    tells = next((tells for ending, tells in TELLS.items() if file.name.lower().endswith(ending)), None)
    if tells is None or not os.path.isfile(file):
        return False
    try:
        with file.open("rb") as stream:
            return tells(stream)
    except Exception:  # of a format's reader, at bytes that are none of its own
        return False


def _takes_files(folder: Path) -> bool:
    """Whether a file can be made in a folder, tried with one that is gone at once: permissions do not tell of /proc."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _told_otherwise(file: Path, telling: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """What a file of ours says of itself, and what is to be said instead, where these differ by more than spelling."""
    if not file.stat().st_size or not telling:
        return {}
    said = _metadata(file)
    both = {name: (_worded(said[name]), _worded(value)) for name, value in telling.items() if name in said}
    return {name: (a, b) for name, (a, b) in both.items() if os.path.realpath(a) != os.path.realpath(b)}


def _worded(value: Any) -> str:
    """A value as one types it; nothing are images that were given in Python, and have no name."""
    values = value if isinstance(value, list | tuple) else [value]
    return "given in Python" if value is None else " ".join(map(str, values))


def _made(told: Mapping[str, str]) -> str:
    """By which evaluation of which encoder; where these are the same, with which settings."""
    makers = [value for name, value in told.items() if name in MAKERS]
    return f"by {' of '.join(makers)}" if makers else f"with {' '.join(f'--{name} {told[name]}' for name in told)}"


def _metadata(file: Path) -> Mapping[str, Any]:
    """What results, features and weights tell of themselves, by name; nothing where that cannot be read."""
    reads = next((reads for ending, reads in READS.items() if file.name.lower().endswith(ending)), None)
    try:
        with file.open("rb") as stream:
            return reads(stream) if reads else {}
    except Exception:  # as in `is_ours`: somebody said --overwrite, or we would not be here
        return {}


def _looked_through(folder: Path, ours: re.Pattern[str]) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """What lies in a folder, and whether it is a file with a name of ours."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            yield entry, bool(ours.fullmatch(entry.name)) and not entry.is_dir(follow_symlinks=False)


def _npz(file: IO[bytes]) -> bool:
    arrays = [name.removesuffix(".npy") for name in zipfile.ZipFile(file).namelist()]
    ours = ["vectors", "paths", "labels", "splits", MAKER], ["vectors", "paths", "labels", MAKER]  # of earlier versions
    return arrays in ours  # in this order: an array that somebody added comes last


def _read_npz(file: IO[bytes]) -> dict[str, Any]:
    import numpy

    with numpy.load(file, allow_pickle=False) as arrays:
        return json.loads(str(arrays[MAKER]))


def _parquet(file: IO[bytes]) -> bool:
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(file)
    ours = ["path", "label", "split", "vector"], ["path", "label", "vector"]  # and of earlier versions
    return schema.names in ours and MAKER.encode() in (schema.metadata or {})


def _read_parquet(file: IO[bytes]) -> dict[str, Any]:
    import pyarrow.parquet

    return json.loads(pyarrow.parquet.read_schema(file).metadata[MAKER.encode()])


def _csv(file: IO[bytes]) -> bool:
    named, ending = file.readline(MOST).decode().split(","), "\r\n"
    before = ["path", "label", "split"] if named[2:3] == ["split"] else ["path", "label"]  # as earlier versions have it
    numbers = [f"f{i}" for i in range(len(named) - len(before))]
    return bool(numbers) and ",".join(named) == ",".join([*before, *numbers]) + ending


def _bad_images(file: IO[bytes]) -> bool:
    return file.readline(NEAR) == b"image,reason\r\n"


def _json(file: IO[bytes]) -> bool:
    told = _read_json(file)
    maker = told["written_by"] if told.keys() >= TABLE else told if told.keys() >= RESULT else {}
    return maker.get("versions", {}).get(MAKER) is not None


def _finds(file: IO[bytes]) -> bool:
    """A list whose first entry says so; an empty one has nothing to lose."""
    return file.read(len(LIST)) in (LIST, b"[]")


def _read_json(file: IO[bytes]) -> dict[str, Any]:
    return json.loads(file.read(MOST))


def _markdown(file: IO[bytes]) -> bool:
    title, _, columns = (file.readline(NEAR) for _ in range(3))
    return title.startswith(b"# ") and columns.startswith(COLUMNS)


def _html(file: IO[bytes]) -> bool:
    head = _Head()
    head.feed(file.read(NEAR).decode(errors="replace"))
    return head.generator == MAKER


class _Head(HTMLParser):
    """Which program a page names as its maker."""

    generator: str | None = None
    over = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self.over = self.over or tag == "body"
        if not self.over and tag == "meta" and told.get("name") == "generator":
            self.generator = told.get("content")


def _png(file: IO[bytes]) -> bool:
    """Whether a chunk before the pixels names us."""
    kind = file.read(len(SIGNATURE))
    if kind != SIGNATURE:
        return False
    while kind != b"IDAT":
        size, kind = struct.unpack(">I4s", file.read(8))
        end = file.tell() + size + 4  # of a checksum
        if kind == b"tEXt" and size == len(SOFTWARE) and file.read(size) == SOFTWARE:
            return True
        file.seek(end)
    return False


def _svg(file: IO[bytes]) -> bool:
    """Whether the creator is called as we are; a drawing's own title may well be."""
    dc, cc = "{http://purl.org/dc/elements/1.1/}", "{http://creativecommons.org/ns#}"
    begun = XMLPullParser(["end"])
    begun.feed(file.read(NEAR))
    ended: Iterator[Any] = begun.read_events()
    titles = (element.findtext(f"{cc}Agent/{dc}title") for _, element in ended if element.tag == f"{dc}creator")
    return MAKER in titles


def _safetensors(file: IO[bytes]) -> bool:
    return _read_safetensors(file).keys() >= WEIGHTS


def _read_safetensors(file: IO[bytes]) -> dict[str, str]:
    size = int.from_bytes(file.read(8), "little")
    return json.loads(file.read(min(size, MOST)))["__metadata__"]


def _onnx(file: IO[bytes]) -> bool:
    return _read_onnx(file).keys() >= WEIGHTS


def _read_onnx(file: IO[bytes]) -> dict[str, str]:
    import onnx

    return {entry.key: entry.value for entry in onnx.load_model(file, load_external_data=False).metadata_props}


TELLS: dict[str, Callable[[IO[bytes]], bool]] = {
    ".npz": _npz,
    ".parquet": _parquet,
    "-bad-images.csv": _bad_images,
    ".csv": _csv,
    "boxes.json": _finds,
    "masks.json": _finds,
    ".json": _json,
    ".md": _markdown,
    ".html": _html,
    ".htm": _html,
    ".png": _png,
    ".svg": _svg,
    ".safetensors": _safetensors,
    ".onnx": _onnx,
}
"""How a file tells who wrote it, by the ending of its name."""
READS: dict[str, Callable[[IO[bytes]], Mapping[str, Any]]] = {
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".json": _read_json,
    ".safetensors": _read_safetensors,
    ".onnx": _read_onnx,
}
"""Where results, features and weights keep what they tell of themselves; a .csv keeps nothing."""
