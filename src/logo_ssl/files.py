"""Files written whole or not at all, and what refuses an output before the work."""

import contextlib
import glob
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import UserError

UMASK = os.umask(0)
"""What this user keeps from others; it can only be learned by setting it."""
os.umask(UMASK)


def check_output(path: Path, overwrite: bool = False) -> None:
    """UserError, before the work, if no file can be written to `path`, or one is there that may not be replaced."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file.")
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not an ordinary file; choose another name.")
    refuse_existing(path, overwrite)
    check_folder(Path(os.path.realpath(path)).parent)


def refuse_existing(path: Path, overwrite: bool) -> None:
    """UserError if a file is there that may not be replaced."""
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists; add --overwrite to replace it.")


def check_output_folder(folder: Path, overwrite: bool = False) -> None:
    """UserError, before the work, if files cannot be written to a folder, or it is not empty and may not be used."""
    if not folder.is_dir() or any(folder.iterdir()):
        refuse_existing(folder, overwrite)
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder.")
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """UserError if no file can be made in a folder, or in the nearest one above it that exists.

    It is tried, since permissions do not tell of /proc.
    """
    try:
        with tempfile.TemporaryFile(dir=next(each for each in (folder, *folder.parents) if each.exists())):
            pass
    except OSError as error:
        raise UserError(f"{folder} cannot be written ({error.strerror}); choose another folder.") from error


def clear_folder(folder: Path, ours: re.Pattern[str]) -> None:
    """Remove files with names of ours from a folder, and the folder if nothing is left; another process may, too."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if ours.fullmatch(entry.name) and not entry.is_dir(follow_symlinks=False):
                Path(entry).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def read_json(file: Path) -> dict[str, Any]:
    """What a file says; nothing where it is not there, or not whole."""
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def write(path: Path, content: str | bytes) -> Path:
    """Write a file whole or not at all: to a temporary name first, then renamed."""
    write_together({path: content.encode() if isinstance(content, str) else content})
    return path


def write_together(contents: dict[Path, bytes]) -> None:
    """Write files of which none is renamed into its place before all are safe on the disk under temporary names."""
    with whole(*contents) as drafts:
        for draft, content in zip(drafts, contents.values(), strict=True):
            draft.write_bytes(content)


@contextlib.contextmanager
def whole(*paths: Path) -> Iterator[list[Path]]:
    """Temporary files to write beside others, whose places they take once all are on the disk; on failure, none does.

    Where a link lies, what it leads to is written.
    """
    places = [Path(os.path.realpath(path)) if path.is_symlink() else path for path in paths]
    drafts: list[Path] = []
    try:
        for place in places:
            place.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale_drafts(place)
            handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.", suffix=f".{os.getpid()}")
            drafts.append(Path(name))
            os.close(handle)
        yield drafts
        for draft in drafts:
            with draft.open("rb+") as file:
                os.fsync(file.fileno())
            draft.chmod(0o666 & ~UMASK)
        for draft, place in zip(drafts, places, strict=True):
            os.replace(draft, place)
    except BaseException as error:
        for draft in drafts:
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and (error.filename is None or f".{places[0].name}." in str(error.filename)):
            error.filename = str(paths[0])  # not that of the draft; a full disk names none
        raise
    for folder in {place.parent for place in places}:
        sync_folder(folder)


def _remove_stale_drafts(place: Path) -> None:
    """Remove temporary files of this output whose processes, by the number at their end, were killed."""
    for draft in place.parent.glob(f".{glob.escape(place.name)}.*.*"):
        with contextlib.suppress(ValueError, PermissionError):  # not a number; a process of somebody else's
            try:
                os.kill(int(draft.suffix[1:]), 0)
            except ProcessLookupError:
                draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    with contextlib.suppress(OSError):  # some systems and network disks cannot
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
