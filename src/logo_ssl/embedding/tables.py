"""Files of features: Parquet, .npz or .csv, written and (but for .npz) read part by part, so that memory is bounded."""

import csv
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from ..errors import UserError
from ..files import check_output, whole
from ..system.terminal import printable

ABOUT = "logo-ssl"
"""Under which name a file says which encoder made it."""
COLUMNS = ["path", "label", "split"]
"""What stands before the vector of each image."""
ROWS = 4096  # read at a time


class Part(NamedTuple):
    """Some rows of a table: where each image lies, its class (if any), its split, and what the encoder saw in it."""

    paths: Sequence[str]
    labels: Sequence[str | None]
    splits: Sequence[str | None]
    """train, val or test."""
    vectors: Float32[np.ndarray, "n F"]


def write_table(path: Path, parts: Iterator[Part], rows: int, width: int, about: dict[str, Any]) -> Path:
    """Write so many rows whole or not at all, in the format that the name ends with; a link is followed."""
    with whole(path) as (draft,):
        _format(path).write(draft, parts, rows, width, about)
    return path


def read_table(path: Path) -> Iterator[Part]:
    """The rows of a table, part by part."""
    with _a_table(path):
        yield from _format(path).read(path)


def about_table(path: Path) -> dict[str, Any]:
    """What a table says of the encoder that made it; nothing in a .csv."""
    with _a_table(path):
        return _format(path).about(path)


def check_table(path: Path, overwrite: bool) -> Path:
    """UserError if no table can be written there, or its format is not installed."""
    if _format(path).write is _write_parquet:
        _pyarrow()
    check_output(path, overwrite)
    return path


@contextmanager
def _a_table(path: Path) -> Iterator[None]:
    """UserError where reading fails."""
    if not path.is_file():
        raise UserError(f"There is no file {path}; make it with `logo-ssl embed RUN --data DATA --out {path}`.")
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of a format's reader, at bytes that are none of its own
        raise UserError(f"{path} is not a table of features ({error}); make one with `logo-ssl embed`.") from error


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("Parquet needs pyarrow: pip install 'logo-ssl[parquet]', or use .npz or .csv.") from error
    return pyarrow


def _write_parquet(path: Path, parts: Iterator[Part], rows: int, width: int, about: dict[str, Any]) -> None:
    arrow = _pyarrow()
    columns = [*((name, arrow.string()) for name in COLUMNS), ("vector", arrow.list_(arrow.float32(), width))]
    schema = arrow.schema(columns, metadata={ABOUT: json.dumps(about)})
    with arrow.parquet.ParquetWriter(path, schema) as writer:
        for part in parts:
            flat = arrow.array(part.vectors.ravel())
            vectors = arrow.FixedSizeListArray.from_arrays(flat, width)
            labels = [None if label is None else printable(label) for label in part.labels]
            texts = ([printable(name) for name in part.paths], labels, part.splits)
            arrays = [*(arrow.array(text, arrow.string()) for text in texts), vectors]
            writer.write_batch(arrow.record_batch(arrays, schema=schema))


def _read_parquet(path: Path) -> Iterator[Part]:
    with _pyarrow().parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(ROWS, columns=[*COLUMNS, "vector"]):
            vectors = batch["vector"].flatten().to_numpy(zero_copy_only=False)
            paths, labels, splits = (batch[name].to_pylist() for name in COLUMNS)
            yield Part(paths, labels, splits, vectors.reshape(batch.num_rows, -1).astype(np.float32))


def _about_parquet(path: Path) -> dict[str, Any]:
    return json.loads((_pyarrow().parquet.read_schema(path).metadata or {}).get(ABOUT.encode(), b"{}"))


def _write_npz(path: Path, parts: Iterator[Part], rows: int, width: int, about: dict[str, Any]) -> None:
    """An ordinary .npz; arrays go into it part by part."""
    paths, labels, splits = list[str](), list[str](), list[str]()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        with archive.open("vectors.npy", "w", force_zip64=True) as member:
            head = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(member, head)
            for part in parts:
                member.write(np.ascontiguousarray(part.vectors, "<f4").data)
                paths += part.paths  # as they are: numpy keeps bytes that are no text, too
                labels += [label or "" for label in part.labels]
                splits += [split or "" for split in part.splits]
        texts = {"paths": paths, "labels": labels, "splits": splits, ABOUT: json.dumps(about)}
        for name, text in texts.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.array(text, np.str_), allow_pickle=False)


def _read_npz(path: Path) -> Iterator[Part]:
    with np.load(path, allow_pickle=False) as file:
        labels, splits = ([text or None for text in file[name].tolist()] for name in ("labels", "splits"))
        yield Part(file["paths"].tolist(), labels, splits, file["vectors"])


def _about_npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return json.loads(str(file[ABOUT])) if ABOUT in file else {}


def _write_csv(path: Path, parts: Iterator[Part], rows: int, width: int, about: dict[str, Any]) -> None:
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *(f"f{i}" for i in range(width))])
        for part in parts:
            for name, label, split, vector in zip(*part, strict=True):
                numbers = map(str, vector)  # as few digits as give the same float32 again
                writer.writerow([name, label or "", split or "", *numbers])


def _read_csv(path: Path) -> Iterator[Part]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if header[:3] != COLUMNS:
            raise ValueError(f"its columns are not {', '.join(COLUMNS)}, f0, ...")
        while some := list(islice(rows, ROWS)):
            vectors = np.array([row[len(COLUMNS) :] for row in some], dtype=np.float32)
            labels, splits = ([row[column] or None for row in some] for column in (1, 2))
            yield Part([row[0] for row in some], labels, splits, vectors)


class Format(NamedTuple):
    """How a table is written and read."""

    write: Callable[[Path, Iterator[Part], int, int, dict[str, Any]], None]
    read: Callable[[Path], Iterator[Part]]
    about: Callable[[Path], dict[str, Any]]


FORMATS = {
    ".parquet": Format(_write_parquet, _read_parquet, _about_parquet),
    ".npz": Format(_write_npz, _read_npz, _about_npz),
    ".csv": Format(_write_csv, _read_csv, lambda path: {}),
}


def _format(path: Path) -> Format:
    if found := FORMATS.get(path.suffix.lower()):
        return found
    raise UserError(f"out={path}: features are written to {', '.join(FORMATS)}.")
