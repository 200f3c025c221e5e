"""Which files are whole? A checkpoint's name ends with a digest of its bytes.

So one rename publishes both, and a torn file tells on itself.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch

from ...errors import NO_SPACE, UserError
from ...files import sync_folder
from ...run import CHECKPOINT, found_checkpoints

UNFINISHED = ".writing"
CHUNK = 1 << 22  # bytes
FULL = 1 << 20  # bytes left on a full disk
T = TypeVar("T")


def write(checkpoint: dict[str, Any], folder: Path, keep: int) -> Path:
    """Write a checkpoint under a temporary name, rename it, and remove all but the newest few."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{UNFINISHED}-{os.getpid()}"
    try:
        with temporary.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        final = folder / f"step-{checkpoint['global_step']:09d}-{digest(temporary)}.ckpt"
        os.replace(temporary, final)
        sync_folder(folder)
    except BaseException as error:
        full = folder.is_dir() and shutil.disk_usage(folder).free < FULL
        temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # how torch tells of a full disk, among others
            told = (errno.ENOSPC, os.strerror(errno.ENOSPC)) if full else (str(error).splitlines()[0],)
            raise OSError(*told) from error
        raise
    for old in [file for file in found_checkpoints(folder) if file != final][keep - 1 :]:
        old.unlink(missing_ok=True)
    return final


def with_room(folder: Path, written: Callable[[], T]) -> T:
    """What is written; where the disk is full, once more without the older checkpoints."""
    try:
        return written()
    except OSError as error:
        if error.errno not in NO_SPACE or not _make_room(folder):
            raise
    return written()


def _make_room(folder: Path) -> bool:
    """Remove all checkpoints but the newest whole one; whether there were any."""
    files = found_checkpoints(folder)
    newest = next((file for file in files if is_whole(file)), None)
    others = [file for file in files if file != newest] if newest else []
    for file in others:
        file.unlink(missing_ok=True)
    return bool(others)


def newest_whole(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose bytes are those that were written; None if there is none at all."""
    files = found_checkpoints(folder)
    for file in files:
        if is_whole(file):
            return file
        say(f"{file} is damaged and left out; the one before it is tried.")
    if files:
        raise UserError(
            f"None of the {len(files)} checkpoints in {folder} is whole; remove them to start this run from the "
            "beginning."
        )
    return None


def clear(folder: Path, newest: Path | None) -> None:
    """Remove what a killed process was writing, and whatever is newer than the checkpoint to go on from: damaged."""
    for file in folder.glob(f"{UNFINISHED}-*"):
        file.unlink(missing_ok=True)
    for file in found_checkpoints(folder):
        if file == newest:
            break
        file.unlink(missing_ok=True)


def digest(file: Path) -> str:
    """Sixteen hexadecimal digits that change with any byte of a file."""
    sum_ = hashlib.blake2b(digest_size=8)
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            sum_.update(chunk)
    return sum_.hexdigest()


def load(file: Path) -> dict[str, Any]:
    """What a checkpoint holds, without running any code in it."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever the torn bytes lead it to
        raise UserError(
            f"{file} cannot be read ({type(error).__name__}); remove it to go on from the one before it."
        ) from error


def is_whole(file: Path) -> bool:
    """Whether a checkpoint's bytes are those that were written."""
    match = CHECKPOINT.fullmatch(file.name)
    try:
        if match is None:
            return {"global_step", "state_dict", "pytorch-lightning_version"} <= load(file).keys()
        return digest(file) == match[2]
    except (OSError, UserError):
        return False
