"""Which images are compared? Some of each class, held out where anything is, and whatever the user points at."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

import torch
from jaxtyping import Int, UInt8
from torch import Generator, Tensor

from ...data import ImageSet, Photos, Split
from ...data.decode import BadImage, decode, plain_reason
from ...data.sources import absolute
from ...errors import UserError
from ...text import counted
from ..encoders import FrozenEncoder
from ..pixels import in_channels

BOX = re.compile(r"\s*-?\d+\s*(,\s*-?\d+\s*){3}")
LEAST = 2  # images: one to ask and one to be unlike


class Pool(NamedTuple):
    """Images of various sizes, with labels where there are any."""

    images: list[UInt8[Tensor, "C _ _"]]
    labels: list[int] | None
    rows: list[int]
    """Their places in the split they are from."""
    part: str
    """Which split: test, or train where nothing is held out."""
    names: list[str]
    """What to call them."""
    unread: int = 0
    """How many could not be read; others were taken in their place, as far as there are any."""


class Reference(NamedTuple):
    """An image to compare others with, the box of a crop of it if one was given, and its class if it is known."""

    image: UInt8[Tensor, "C H W"]
    name: str
    label: int | None = None
    box: Int[Tensor, "1 4"] | None = None


def gather(data: ImageSet, encoder: FrozenEncoder, n: int, max_side: int, generator: Generator) -> Pool:
    """About n images, as many of each class as can be and two at least; others stand in for unreadable ones."""
    part, split = held_out(data, encoder)
    rows, images, unread = list[int](), list[Tensor](), 0
    for row in in_turn(split, n, generator):
        if len(images) == n:
            break
        image = _read(split, row, max_side)
        if image is None:
            unread += 1
        else:
            rows.append(row)
            images.append(image)
    if len(images) < LEAST:
        raise UserError(f"{data.name} has {counted(len(images), 'image')} to compare; give {LEAST} or more.")
    labels = split.labels[torch.tensor(rows)].tolist() if split.labels is not None and split.has_labels else None
    return Pool(images, labels, rows, part, [name_of(split, row, part, data) for row in rows], unread)


def reference_by_hand(text: str, data: ImageSet, encoder: FrozenEncoder, max_side: int) -> Reference:
    """The image and box that IMAGE[:x,y,w,h] names: a file, or the number of an image in the compared split."""
    if not text:
        raise UserError("A reference is empty; give IMAGE or IMAGE:x,y,w,h.")
    part, split = held_out(data, encoder)
    named, box = _parted(text)
    path, row = Path(named).expanduser(), None
    if path.is_file():
        content, row, name = path.read_bytes(), _row_of(path, split), named
    elif named.isdecimal() and int(named) < len(split):
        row = int(named)
        content, name = None, f"{part} image {row}"
        if isinstance(split.images, Photos):
            content = split.images.read(row)
    else:
        raise UserError(
            f"The reference {named!r} is neither a file nor the number of one of the {len(split):,} {part} images of "
            f"{data.name} (0 to {len(split) - 1})."
        )
    label = None if row is None or split.labels is None else int(split.labels[row])
    if content is None:
        assert row is not None
        image = whole = split.array[row]
    else:
        image, whole = (_decoded(content, side, name) for side in (max_side, 0))
        if encoder.channels != 3:
            raise UserError(f"{encoder.name} sees {encoder.channels} channels, and {name} is a photograph of 3.")
    known = name if path.is_file() or row is None else name_of(split, row, part, data)
    return Reference(image, known, _known(label), None if box is None else _box(box, name, whole, image))


def _parted(text: str) -> tuple[str, str | None]:
    """The image and the box in IMAGE[:x,y,w,h]; names of files may have colons, too."""
    image, colon, box = text.rpartition(":")
    if not colon or Path(text).expanduser().is_file():
        return text, None
    if BOX.fullmatch(box):
        return image, box
    if image.isdecimal() or Path(image).expanduser().is_file():
        raise UserError(f"The box {box!r} of the reference {text!r} is not four whole numbers x,y,w,h, in pixels.")
    return text, None


def name_of(split: Split, row: int, part: str, data: ImageSet) -> str:
    """What to call an image: its file as seen from the folder of the data, or its number."""
    if not isinstance(split.images, Photos):
        return f"{part} image {row}"
    name = PurePath(split.images.name(row))
    if data.root is not None and name.is_relative_to(data.root):
        return name.relative_to(data.root).as_posix()
    return name.name if name.is_absolute() else str(name)


def held_out(data: ImageSet, encoder: FrozenEncoder) -> tuple[str, Split]:
    """What is held out, else the training images."""
    part, split = ("test", data.test) if data.test is not None and len(data.test) else ("train", data.train)
    return part, in_channels(encoder, split)


def spread(split: Split, n: int, generator: Generator) -> list[int]:
    """The first n rows of those in turn, so that a small share has two images of each class it has."""
    return in_turn(split, n, generator)[:n]


def in_turn(split: Split, n: int, generator: Generator) -> list[int]:
    """Rows in random order, the classes in turn; of no more classes than have two of the first n rows each."""
    order = torch.randperm(len(split), generator=generator).tolist()
    if split.labels is None or not split.has_labels:
        return order
    labels, of_class = split.labels.tolist(), dict[int, list[int]]()
    for row in order:
        of_class.setdefault(labels[row], []).append(row)
    of_class.pop(-1, None)  # no label
    several = [rows for rows in of_class.values() if len(rows) > 1] or list(of_class.values())
    chosen = several[: max(1, n // 2)]
    longest = max(map(len, chosen))
    return [rows[turn] for turn in range(longest) for rows in chosen if turn < len(rows)]


def _read(split: Split, row: int, max_side: int) -> UInt8[Tensor, "C H W"] | None:
    if not isinstance(split.images, Photos):
        return split.array[row]
    try:
        return torch.from_numpy(decode(split.images.read(row), max_side)).permute(2, 0, 1)
    except (BadImage, OSError):
        return None


def _decoded(content: bytes, max_side: int, name: str) -> UInt8[Tensor, "3 H W"]:
    try:
        return torch.from_numpy(decode(content, max_side)).permute(2, 0, 1)
    except BadImage as error:
        raise UserError(f"The reference {name} cannot be read ({plain_reason(error)}); give another image.") from error


def _row_of(path: Path, split: Split) -> int | None:
    """Where a file stands in a split of files, if it does."""
    if not isinstance(split.images, Photos):
        return None
    wanted = str(absolute(path))
    for row in range(len(split)):
        name = split.images.name(row)
        if name.rsplit("/", 1)[-1] == path.name and wanted.endswith(name):
            return row
    return None


def _box(text: str, name: str, whole: UInt8[Tensor, "C H W"], shown: UInt8[Tensor, "C h w"]) -> Int[Tensor, "1 4"]:
    """x, y, w, h in pixels of the whole image, as top, left, height and width in those of the shown one."""
    x, y, w, h = map(int, text.split(","))
    (H, W), (tall, wide) = whole.shape[1:], shown.shape[1:]
    if w < 1 or h < 1:
        raise UserError(f"The box {text} is {w} px wide and {h} px high; give w and h of 1 or more.")
    if x < 0 or y < 0 or x + w > W or y + h > H:
        raise UserError(f"The box {text} does not lie inside {name}, which is {W} px wide and {H} px high.")
    top, left = min(round(y * tall / H), tall - 1), min(round(x * wide / W), wide - 1)
    height, width = max(1, round(h * tall / H)), max(1, round(w * wide / W))
    return torch.tensor([[top, left, min(height, tall - top), min(width, wide - left)]])


def _known(label: int | None) -> int | None:
    return None if label is None or label < 0 else label


def class_name(classes: Sequence[str], label: int) -> str:
    """What to call a class; a number alone would not be taken for one."""
    name = classes[label] if label < len(classes) else str(label)
    return f"class {name}" if name.isdecimal() else name
