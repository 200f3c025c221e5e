"""Which images are most like this one? By the cosine of features that were computed before."""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UserError
from ..eval import FrozenEncoder
from ..eval.extraction import PREPROCESSING
from .embedding import Embeddings, Encoder, embed
from .loading import frozen, read_square
from .tables import about_table, read_table


class Neighbour(NamedTuple):
    """An image of the index, and how like the query it is."""

    path: str
    label: str | None
    cosine: float


def search(
    encoder: Encoder,
    index: str | os.PathLike[str] | Embeddings,
    query: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    k: int = 12,
    device: str = "auto",
) -> list[list[Neighbour]]:
    """The `k` images of an index (a file from `embed`, or what it returned) that are most like each query.

    The likest come first. A file says which encoder made it, and of which input; others are refused. A .csv and
    features in memory say nothing: that is up to you.
    """
    if k < 1:
        raise UserError(f"k={k}: ask for 1 neighbour or more.")
    known, table = frozen(encoder), index if isinstance(index, Embeddings) else Path(index)
    if isinstance(table, Path):
        _refuse_others(table, known)
    queries = [query] if isinstance(query, str | os.PathLike) else list(query)
    found = embed(known, queries, device=device, workers=0, decoder="workers", max_bad=1.0)
    if found.bad:
        read_square(Path(found.bad[0]), known.size)  # says why it cannot
        raise UserError(f"{found.bad[0]} cannot be read as an image; give another query.")
    return nearest_in(table, found.vectors, k)


def _refuse_others(table: Path, encoder: FrozenEncoder) -> None:
    """Raise a UserError where an index says that another encoder made it, or of other inputs."""
    made_by = about_table(table)
    if made_by.get("fingerprint", encoder.fingerprint) != encoder.fingerprint:
        raise _of_other_weights(table, made_by, encoder)
    _refuse_other_inputs(table, made_by, encoder)


def _of_other_weights(table: Path, made_by: Mapping[str, Any], encoder: FrozenEncoder) -> UserError:
    """The sentence for an index of another encoder, or of the same run at another time."""
    name = str(made_by["encoder"])
    if not Path(encoder.name).exists() or Path(name) != Path(encoder.name):
        return UserError(
            f"{table} holds features of another encoder ({name}) than {encoder.name}; search with that one, or "
            f"{_another(table, made_by, encoder)}."
        )
    since = "was trained further" if encoder.run else "has got other weights"
    now = f" (it is at {encoder.unfinished})" if encoder.unfinished else ""
    return UserError(f"{encoder.name} {since} after {table} was made{now}; {_again(table, made_by, encoder)}.")


def _another(table: Path, made_by: Mapping[str, Any], encoder: FrozenEncoder) -> str:
    """What makes an index beside one that stays."""
    return _again(table.with_stem(f"{table.stem}-new"), made_by, encoder, "an index")


def _again(table: Path, made_by: Mapping[str, Any], encoder: FrozenEncoder, what: str = "the index again") -> str:
    """What makes an index of the same images: a command that can be pasted, where `made_by` says which they are."""
    if not (data := made_by.get("data")):
        return f"make {what} with `logo-ssl embed`, of the same images"
    split = [] if made_by["split"] == "all" else ["--split", str(made_by["split"])]
    words = ["embed", encoder.name, *encoder.options, "--data", str(data), *split, "--out", str(table)]
    return f"make {what} with `logo-ssl {shlex.join(words)}`"


def _refuse_other_inputs(table: Path, made_by: Mapping[str, Any], encoder: FrozenEncoder) -> None:
    """Raise a UserError where the encoder saw the images of the index otherwise than it would see the query."""
    if made_by and made_by.get("preprocessing") != PREPROCESSING:
        raise UserError(
            f"{table} was made by another version of logo-ssl, which showed photographs to the encoder a little "
            f"otherwise than this one; {_again(table, made_by, encoder)}."
        )
    looks = {"size": encoder.size, "mean": [*encoder.mean], "std": [*encoder.std]}
    others = {name: made_by[name] for name, value in looks.items() if made_by.get(name, value) != value}
    if others:
        wanted = " ".join(f"--{name} {' '.join(map(str, np.ravel(value)))}" for name, value in others.items())
        shown = ", ".join(f"{name} {' '.join(map(str, np.ravel(looks[name])))}" for name in others)
        raise UserError(
            f"{table} holds features of images that were shown to the encoder otherwise than by {shown}; search with "
            f"{wanted}, or {_another(table, made_by, encoder)}."
        )


def nearest_in(table: Path | Embeddings, queries: np.ndarray, k: int) -> list[list[Neighbour]]:
    """The best of each part of the table, then the best of these: memory holds a part at a time."""
    wanted = _normalised(queries)
    best: list[list[Neighbour]] = [[] for _ in wanted]
    for part in read_table(table) if isinstance(table, Path) else [table]:
        if part.vectors.shape[1] != wanted.shape[1]:
            raise UserError(
                f"{table} holds features of width {part.vectors.shape[1]}, and this encoder's have {wanted.shape[1]}; "
                "search with the encoder that made it."
            )
        cosines = wanted @ _normalised(part.vectors).T
        for i, row in enumerate(cosines):
            top = np.argsort(-row, kind="stable")[:k].tolist()
            new = [Neighbour(str(part.paths[j]), part.labels[j], float(row[j])) for j in top]
            best[i] = _likest([*best[i], *new], k)
    return best


def _likest(neighbours: Iterable[Neighbour], k: int) -> list[Neighbour]:
    return sorted(neighbours, key=lambda neighbour: -neighbour.cosine)[:k]


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
