"""What does an encoder see in each image? Paths, labels, splits, vectors, in order; an interruption costs a part."""

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, overload

import numpy as np
import torch
from jaxtyping import Float32
from torch import nn

from .. import __version__
from ..data import BadImages, nvjpeg
from ..errors import Interrupted, UserError, nearest
from ..eval import Extraction, FrozenEncoder
from ..eval.extraction import PREPROCESSING, compute
from ..eval.how import refuse_senseless
from ..eval.store import SUFFIX, Store
from ..files import check_output, clear_folder
from ..hardware import best_device
from ..signals import Stopped
from ..text import counted, listed, printable
from .images import Data, Images, Which, images_of, refuse_no_data
from .keeping import KEPT, Keeping, belongs, key_of, parts_of, read_ahead
from .loading import frozen
from .tables import Part, Shape, keeps_names, refuse_long_names, refuse_unknown, write_table

UNBOUNDED = 2**63

Decoder = Literal["auto", "nvjpeg", "workers"]
Encoder = nn.Module | FrozenEncoder | str | os.PathLike[str]


class Embeddings(NamedTuple):
    """What an encoder saw, in the order of the data; images that could not be read are left out."""

    paths: list[str]
    labels: list[str | None]
    vectors: Float32[np.ndarray, "N F"]
    bad: list[str]
    """Paths of the images that could not be read."""
    splits: list[str]
    """train, val or test; train where the data are not parted."""

    def __repr__(self) -> str:
        n, width = self.vectors.shape
        return f"Embeddings({counted(n, 'image')}, {width} features each, {len(self.bad):,} bad)"


@overload
def embed(encoder: Encoder, data: Data | None = None, *, out: None = None, **options: Any) -> Embeddings: ...
@overload
def embed(encoder: Encoder, data: Data | None = None, *, out: str | os.PathLike[str], **options: Any) -> Path: ...
def embed(  # pyright: ignore[reportInconsistentOverload] (the options are the same in both)
    encoder: Encoder,
    data: Data | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    split: Which = "all",
    batch_size: int = Extraction.batch_size,
    device: str = "auto",
    workers: int = -1,
    decoder: Decoder = "auto",
    max_bad: float = Extraction.max_bad,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Embeddings | Path:
    """Features of all images: in memory, or in the file `out` (.parquet, .npz, .csv), written part by part.

    They are as the encoder gives them, not of unit length: divide by their norms before dot products.
    `encoder` comes from `load`, or is what that takes; `data` is a name or a path as for `pretrain` (default: what the
    run was trained on), a list of paths, or an array of images [N C H W]. An interrupted call with `out` goes on where
    it stopped when it is made again, and looks again at images that could not be read. A file is replaced only with
    `overwrite`; images that cannot be read are listed in OUT-bad-images.csv. What a folder holds beside its images is
    told to `say`, else warned of.
    """
    refuse_senseless(batch_size, workers, max_bad)
    _refuse_unlisted("split", split, get_args(Which))
    _refuse_unlisted("decoder", decoder, get_args(Decoder))
    refuse_no_data(data)
    target = None if out is None else Path(out)
    if target is not None:
        refuse_unknown(target)
        check_output(target, overwrite)
    known = frozen(encoder)
    images = images_of(known, data, split, say or partial(warnings.warn, stacklevel=4))
    about = _about(known, images, split)
    if target is not None:
        refuse_long_names(target, sum(len(each.split) for each in images), max(each.longest_name() for each in images))
    how = Extraction(device, batch_size, workers, max_bad, False, say or Extraction.say, progress, decoder)
    if len(images) > 1:
        counts = listed(f"{len(each.split):,} {each.part}" for each in images)
        how.say(f"Images in this order: {counts}, each with its split; --split {images[0].part} takes one alone.")
    home = next((parameter.device for parameter in known.backbone.parameters()), torch.device("cpu"))
    try:
        return _in_memory(known, images, how) if target is None else _to_file(known, images, how, target, about)
    finally:
        known.backbone.to(home)


def _refuse_unlisted(name: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UserError(f"{name}={value!r}: must be {', '.join(known)}.{nearest(str(value), known)}")


def _bad_among(chosen: list[Images], how: Extraction, bad_file: Path | None = None) -> BadImages:
    """What is bad among the images of all splits, which share one list: their share is of all images, too."""
    return BadImages(sum(len(images.split) for images in chosen), how.max_bad, bad_file)


def _in_memory(encoder: FrozenEncoder, chosen: list[Images], how: Extraction) -> Embeddings:
    parts, splits, found = list[Part](), list[str](), _bad_among(chosen, how)
    for images in chosen:
        rows = parts_of(images.split)
        made = compute(encoder, images.split, rows, how, f"{images.part} images", found)
        told = [images.told(*pair) for pair in zip(rows, made, strict=True)]
        parts += told
        splits += [images.part] * sum(len(part.paths) for part in told)
    paths = [path for part in parts for path in part.paths]
    labels = [label for part in parts for label in part.labels]
    return Embeddings(paths, labels, np.concatenate([part.vectors for part in parts]), sorted(found.names), splits)


def _kept_beside(out: Path) -> Path:
    """Where features wait until the table is written."""
    return out.with_name(f".{out.name}.parts")


def _bad_beside(out: Path) -> Path:
    """Where the images are listed that could not be read."""
    return out.with_name(f"{out.name}-bad-images.csv")


def _about(encoder: FrozenEncoder, chosen: list[Images], split: Which) -> dict[str, Any]:
    """What a table says of itself, and one that takes its place must say, too; a run may have been trained further."""
    looks = {"encoder": encoder.name, "size": encoder.size, "mean": encoder.mean, "std": encoder.std}
    return looks | {"data": chosen[0].source, "split": split}


def _as_begun(encoder: FrozenEncoder, chosen: list[Images], how: Extraction, kept: Path) -> Extraction:
    """With the decoder of the parts that are there, if any will do: there may be other cores than then."""
    device = best_device(how.device)
    chooses = how.decoder == "auto" and device.type == "cuda" and nvjpeg.works(device)
    for decoder in ("workers", "nvjpeg") if chooses and any(kept.glob(f"*{SUFFIX}")) else ():
        same = replace(how, decoder=decoder)
        if belongs(kept, [key_of(encoder, images, same) for images in chosen]):
            return same
    return how


def _to_file(encoder: FrozenEncoder, chosen: list[Images], how: Extraction, out: Path, about: dict[str, Any]) -> Path:
    """Keep each part beside `out` until all are there, then write these into it one by one."""
    kept, bad_file = _kept_beside(out), _bad_beside(out)
    how = _as_begun(encoder, chosen, how, kept)
    keys = [key_of(encoder, images, how) for images in chosen]
    if not belongs(kept, keys):
        clear_folder(kept, KEPT)
    bad_file.unlink(missing_ok=True)  # what could not be read is tried again, and listed anew
    store, bad = Store(kept, UNBOUNDED), _bad_among(chosen, how, bad_file)
    splits = [Keeping(encoder, images, how, store, key, bad) for images, key in zip(chosen, keys, strict=True)]
    try:
        parts = [part for keeping in splits for part in keeping.parts()]
    except (KeyboardInterrupt, Stopped) as stop:
        any_kept = any(kept.glob(f"*{SUFFIX}"))
        again = f"the same command goes on with what {kept} holds" if any_kept else "the same command starts anew"
        if isinstance(stop, Stopped):
            raise stop.interrupted(again) from None
        raise Interrupted(f"Interrupted{'' if any_kept else ' before any features were kept'}; {again}.") from None
    good = sum(part.good for part in parts)
    made_by = {"fingerprint": encoder.fingerprint, "preprocessing": PREPROCESSING, "version": __version__}
    write_table(out, read_ahead(parts), Shape(good, parts[0].width), about | made_by)
    clear_folder(kept, KEPT)
    _tell_of_names(chosen, out, how.say)
    left_out = sum(len(images.split) for images in chosen) - good
    if left_out:
        how.say(f"{counted(left_out, 'image')} cannot be read and had to be left out; see {bad_file}.")
    return out


def _tell_of_names(chosen: list[Images], table: Path, say: Callable[[str], None]) -> None:
    """Say how many names are no text, where the table holds text alone."""
    if keeps_names(table):
        return
    names = (images.name(row) for images in chosen for row in range(len(images.split)))
    if strange := sum(printable(name) != name for name in names):
        say(
            f"{counted(strange, 'name')} in {table} cannot be written as UTF-8 and got "
            "escapes; .npz and .csv keep such names as they are."
        )
