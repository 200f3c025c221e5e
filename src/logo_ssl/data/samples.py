"""What do images look like on the whole? Their statistics, and central squares of them for evaluation."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from ..errors import UserError
from .bad import BadImages, plain_reason
from .decode import BadImage, decode
from .images import Photos, Split
from .workers import Decoding, Reader, Reading, fitting_workers

STATISTICS_FROM, STATISTICS_FROM_PHOTOS, STATISTICS_SIDE = 10_000, 256, 128  # enough for two to three digits
CHUNK = 256  # images decoded at a time when all are


def sample(photos: Photos, most: int) -> Iterator[bytes]:
    """At most so many files, evenly spread; those that cannot be read are left out."""
    n = min(most, len(photos))
    for i in range(n):
        try:
            yield photos.read(i * len(photos) // n)
        except OSError:
            continue


def decoded_sample(photos: Photos, most: int, max_side: int) -> Iterator[tuple[bytes, UInt8[np.ndarray, "h w 3"]]]:
    """Such files, and what they show; those that cannot be decoded are left out, too."""
    for content in sample(photos, most):
        try:
            image = decode(content, max_side)
        except BadImage:
            continue
        yield content, image


def none_readable(photos: Photos, what: str = "images") -> UserError:
    """The sentence for photographs of which none can be read: which is the first, and why it cannot."""
    why = ""
    try:
        decode(photos.read(0))
    except (OSError, BadImage) as error:
        why = f", {plain_reason(error)}"
    return UserError(f"None of the {what} can be read (the first: {photos.name(0)}{why}); look at the files.")


def statistics(images: Tensor | Photos) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, on a scale from 0 to 1."""
    if isinstance(images, Photos):
        values = _photographed(images)
    else:
        rows = torch.arange(min(STATISTICS_FROM, len(images))) * len(images) // min(STATISTICS_FROM, len(images))
        values = images[rows].transpose(0, 1).flatten(1).float() / 255
    spread = values.std(dim=1).clamp_min(1 / 255)  # a constant channel must not divide by zero
    return tuple(values.mean(dim=1).tolist()), tuple(spread.tolist())


def _photographed(photos: Photos) -> Tensor:
    seen = decoded_sample(photos, STATISTICS_FROM_PHOTOS, STATISTICS_SIDE)
    pixels = [torch.from_numpy(image).view(-1, 3).T for _, image in seen]
    if not pixels:
        raise none_readable(photos)
    return torch.cat(pixels, dim=1).float() / 255


def look_at(split: Split, most: int, max_side: int) -> list[UInt8[np.ndarray, "_ _ C"]]:
    """Some images of a split, evenly spread, as arrays; those that cannot be read are left out."""
    if not isinstance(split.images, Photos):
        return list(split.thinned(most).array.permute(0, 2, 3, 1).numpy())
    seen = [image for _, image in decoded_sample(split.images, most, max_side)]
    if not seen:
        raise none_readable(split.images)
    return seen


def squared(split: Split, size: int, bad: BadImages, workers: int = -1) -> Split:
    """The split with photographs as central squares of one size, in RAM: what evaluation looks at.

    Images that cannot be read are left out with their labels: another in their place would have a wrong one.
    """
    if not isinstance(split.images, Photos):
        return split
    most = fitting_workers(workers, 3 * size * size)
    reader = Reader(Reading(Decoding(split.images, max_side=0, square=size)), min(most, len(split) // CHUNK))
    parts, kept = [], []
    with closing(reader):
        for messages in reader.read(torch.arange(len(split)).split(CHUNK)):
            for message in messages:
                bad.note(message.bad)
                kept += [not failed for failed in message.failed]
                good = [image for image, failed in zip(message.images(), message.failed, strict=True) if not failed]
                parts += [torch.stack(good)] if good else []
    images = torch.cat(parts) if parts else torch.empty(0, 3, size, size, dtype=torch.uint8)
    return Split(images, None if split.labels is None else split.labels[torch.tensor(kept, dtype=torch.bool)])
