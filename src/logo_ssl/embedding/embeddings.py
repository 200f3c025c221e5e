"""Features of images: in memory, or in a file that is written part by part, so that an interruption costs a part."""

import os
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from .. import __version__
from ..data import BadImages, ImageSet, Photos, Split
from ..encoders import EncoderOptions, FrozenEncoder
from ..errors import Interrupted, UserError
from ..eval.features import PREPROCESSING, Extraction, FeatureStore, brought_back, compute, features_key
from ..eval.protocol import data_for
from ..system.signals import Stopped
from ..system.terminal import counted, progress_bars
from .module import frozen
from .tables import Part, check_table, write_table

Which = Literal["all", "train", "val", "test"]
Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Tensor | np.ndarray | Split | ImageSet
PART = 2048  # images whose features are kept together
UNBOUNDED = 2**63

RGB = 3  # channels of every image file; timm takes all pretrained weights to have them

Decoder = Literal["auto", "nvjpeg", "workers"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Encoder = nn.Module | FrozenEncoder | str | os.PathLike[str]


class Images(NamedTuple):
    """A split that is to be embedded, and what its images and classes are called."""

    part: str
    split: Split
    classes: tuple[str, ...]
    source: str | None = None
    """The name or path that `data` was, if it was one."""

    def rows(self) -> list[Tensor]:
        """The rows of each part."""
        return list(torch.arange(len(self.split)).split(PART))

    def part_of(self, rows: Tensor, features: Tensor) -> Part:
        """The rows of a table, without those of images that could not be read; an image without a path has a number."""
        good, classes = ~features[:, 0].isnan(), dict(enumerate(self.classes))
        kept = rows[good].tolist()
        numbers = [-1] * len(kept) if self.split.labels is None else self.split.labels[kept].tolist()
        labels = [classes.get(number, str(number)) if number >= 0 else None for number in numbers]
        return Part(self.names(kept), labels, [self.part] * len(kept), features[good].numpy())

    def names(self, rows: list[int]) -> list[str]:
        """What these images are called: their paths, or numbers."""
        images = self.split.images
        return [images.name(row) if isinstance(images, Photos) else f"{self.part}[{row}]" for row in rows]


def images_of(
    encoder: FrozenEncoder, data: Data | None, which: Which, say: Callable[[str], Any] = Extraction.say
) -> list[Images]:
    """The images that a name, a path, paths or arrays stand for: train, then val, then test."""
    if isinstance(data, Tensor) or (isinstance(data, np.ndarray) and data.dtype.kind not in "OU"):  # else paths
        pixels = torch.as_tensor(data)
        if pixels.dtype != torch.uint8 or pixels.dim() != 4:
            raise UserError(f"data is {pixels.dtype} {tuple(pixels.shape)}; give images as uint8 [N C H W], or paths.")
        data = Split(pixels)
    if data is None or isinstance(data, str | os.PathLike):
        data = data_for(encoder, None if data is None else os.fspath(data), say)
    if not isinstance(data, Split | ImageSet):
        data = Split.from_paths([os.fspath(path) for path in data])
    if isinstance(data, Split):
        data = ImageSet("images", data)
    there = {name: part for name in ("train", "val", "test") if (part := getattr(data, name))}
    wanted = {name: part for name, part in there.items() if which in ("all", name)}
    if not wanted:
        raise UserError(f"split={which}: {data.name} has no such images, only {', '.join(there) or 'none'}.")
    return [Images(name, part, data.classes, data.source) for name, part in wanted.items()]


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
    how = Extraction(device, batch_size, workers, max_bad, False, say or Extraction.say, progress, decoder)
    target = None if out is None else check_table(Path(out), overwrite)
    known = frozen(encoder)
    chosen = images_of(known, data, split, say or partial(warnings.warn, stacklevel=4))
    about = {"encoder": known.name, "size": known.size, "mean": known.mean, "std": known.std}
    about |= {"data": chosen[0].source, "split": split, "fingerprint": known.fingerprint}  # it may be trained further
    about |= {"preprocessing": PREPROCESSING, "version": __version__}
    if target is not None:
        return _to_file(known, chosen, how, target, about)
    return in_memory(known, chosen, how, BadImages(sum(len(images.split) for images in chosen), how.max_bad))


def in_memory(encoder: FrozenEncoder, chosen: list[Images], how: Extraction, bad: BadImages) -> Embeddings:
    """What an encoder gives of these images."""
    parts = list[Part]()
    with brought_back(encoder.backbone):
        for images in chosen:
            rows = images.rows()
            made = compute(encoder, images.split, rows, how, f"{images.part} images", bad)
            parts += [images.part_of(*pair) for pair in zip(rows, made, strict=True)]
    *texts, vectors = zip(*parts, strict=True)
    paths, labels, splits = (list(chain.from_iterable(text)) for text in texts)
    return Embeddings(paths, labels, np.concatenate(vectors), sorted(bad.names), splits)


def _to_file(encoder: FrozenEncoder, chosen: list[Images], how: Extraction, out: Path, about: dict[str, Any]) -> Path:
    """Keep each part in a folder next to `out` until all are there, then write these into it one by one."""
    store = FeatureStore(out.with_name(f".{out.name}.parts"), UNBOUNDED)
    bad_file, n = out.with_name(f"{out.name}-bad-images.csv"), sum(len(images.split) for images in chosen)
    keys = [features_key(encoder, images.split, how)[:24] for images in chosen]
    if not any(any(store.folder.glob(f"{key}-*")) for key in keys):  # parts of another encoder, or of other images
        shutil.rmtree(store.folder, ignore_errors=True)
        bad_file.unlink(missing_ok=True)
    bad = BadImages(n, how.max_bad, bad_file)
    try:
        for key, images in zip(keys, chosen, strict=True):
            missing = [rows for rows in images.rows() if store.load(f"{key}-{rows[0]}", len(rows)) is None]
            if done := len(images.split) - sum(map(len, missing)):
                how.say(f"Going on after {done:,} of {len(images.split):,} {images.part} images.")
            computed = compute(encoder, images.split, missing, how, f"{images.part} images", bad)
            with brought_back(encoder.backbone), closing(computed):
                for rows, features in zip(missing, computed, strict=True):
                    store.save(f"{key}-{rows[0]}", features)
    except (KeyboardInterrupt, Stopped) as stop:
        again = f"the same command goes on with what {store.folder} holds"
        raise stop.interrupted(again) if isinstance(stop, Stopped) else Interrupted(f"Interrupted; {again}.") from None

    def kept() -> Iterator[Part]:
        for key, images in zip(keys, chosen, strict=True):
            for rows in images.rows():
                features = store.load(f"{key}-{rows[0]}", len(rows))
                if features is None:
                    raise UserError(f"{store.folder} was changed by another process; run the same command again.")
                yield images.part_of(rows, features)

    shapes = [part.vectors.shape for part in kept()]
    good, width = sum(rows for rows, _ in shapes), shapes[0][1]
    write_table(out, kept(), good, width, about)
    shutil.rmtree(store.folder, ignore_errors=True)
    how.say(f"Features: {out} ({counted(good, 'image')}, {width} features each)")
    if good < n:
        how.say(f"{counted(n - good, 'image')} cannot be read and had to be left out; see {bad_file}.")
    return out


@dataclass(frozen=True)
class Embed(EncoderOptions):
    """Write the features of images to a file: path, label, split and vector of each, in order.

    Vectors are as the encoder gives them, not of unit length: divide by their norms before dot products.
    Run again after an interruption, it continues. Images that cannot be read are left out and listed.

    example: logo-ssl embed runs/photos --data photos/ --out features.npz
    """

    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""
    out: Path = field(kw_only=True)
    """The file: .npz, .csv or .parquet (needs `pip install 'logo-ssl[parquet]'`)."""
    split: Which = "all"
    """Train, validation or test images, or all, in this order. If there is no test/, val/ is the test."""
    batch_size: int = Extraction.batch_size
    """Images that the encoder sees at a time."""
    device: Device = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    decoder: Decoder = "auto"
    """Worker processes, or nvJPEG on a CUDA device; auto takes nvJPEG if workers are few or photographs large."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops the command; fewer are left out."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def run(self) -> None:
        """Embed, and say where the features are."""
        encoder, console = self.open()
        names = ("out", "split", "batch_size", "device", "workers", "decoder", "max_bad", "overwrite")
        options = {name: getattr(self, name) for name in names}
        with progress_bars(console) as progress:
            embed(encoder, self.data, say=console.print, progress=progress, **options)
        if encoder.channels == RGB:  # as every image file is shown, and so every query
            index = shlex.quote(str(self.out))
            console.print(f"Next: logo-ssl search {self.typed()} --index {index} --query IMAGE --out sheet.png")
