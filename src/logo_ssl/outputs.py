"""May this file be written? A new one may, and one that we wrote before; any other only where somebody says so."""

import os
from pathlib import Path

from .errors import UserError

MAKER = "logo-ssl"
"""What files that can say so name as their maker."""
MARKS = {
    ".npz": b"logo-ssl.npy",
    ".parquet": b"logo-ssl",
    ".csv": b"path,label,f0",
    ".json": b'"logo-ssl": "',
    ".html": b'<meta name="generator" content="logo-ssl">',
    ".png": b"tEXtSoftware\0logo-ssl",
    ".svg": b"<dc:title>logo-ssl</dc:title>",
    ".safetensors": b'"logo_ssl":"',
    ".onnx": b"logo_ssl",
}
"""What tells near the beginning or the end of a file that we wrote it."""
ALIASES = {".htm": ".html"}
NEAR = 1 << 16  # bytes


def claim(out: Path, overwrite: bool = False) -> bool:
    """Whether a file will be replaced; UserError where none can be written, or where one lies that is not ours.

    Asked before the work: a refusal after it would cost all of it.
    """
    if out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file in it, such as {out / 'result.json'}.")
    nearest = next(folder for folder in out.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise UserError(f"--out is {out}, and nothing can be written in {nearest}; choose another place.")
    if not os.path.lexists(out):
        return False
    if not overwrite and not is_ours(out):
        raise UserError(f"{out} is there, and not written by logo-ssl; choose another name, or replace it: --overwrite")
    return True


def is_ours(file: Path) -> bool:
    """Whether we wrote a file, as far as it tells; an empty one is nobody's."""
    suffix = file.suffix.lower()
    mark = MARKS.get(ALIASES.get(suffix, suffix))
    try:
        with file.open("rb") as stream:
            begin = stream.read(NEAR)
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - NEAR))
            end = stream.read(NEAR)
    except OSError:
        return False
    return not begin or (mark is not None and (mark in begin or mark in end))


def said(file: Path, replaced: bool) -> str:
    """A file as it is told of when it is written."""
    return f"{file} (replaced)" if replaced else str(file)
