"""What is known of a data set before anything is trained? How many images there are, how large, and of which kind."""

import io
from statistics import median
from typing import NamedTuple

from PIL import Image

from ..text import counted
from .formats import opened
from .images import ImageSet, Photos
from .samples import none_readable, sample

LOOKED_AT = 64  # files whose headers stand for all


class Facts(NamedTuple):
    """What settings can be chosen by."""

    n_images: int
    side: int
    """Of the shorter sides, the median, in pixels."""
    channels: int
    labelled: bool

    def __str__(self) -> str:
        kind = "" if self.channels == 3 else f" with {self.channels} channels"
        return (
            f"{counted(self.n_images, 'image')} of about {self.side} px{kind}, "
            f"{'with' if self.labelled else 'without'} labels"
        )


def facts_of(data: ImageSet) -> Facts:
    """Look at a data set; of photographs, at the headers of some."""
    images = data.train.images
    sizes = sizes_of(images) if isinstance(images, Photos) else [images.shape[2:]]
    if isinstance(images, Photos) and not sizes:
        raise none_readable(images)
    return Facts(len(data.train), int(median(map(min, sizes))), data.channels, data.train.has_labels)


def sizes_of(photos: Photos) -> list[tuple[int, int]]:
    """Width and height of some photographs, as their headers say; of what cannot be read there are none."""
    sizes = list[tuple[int, int]]()
    for content in sample(photos, LOOKED_AT):
        try:
            with Image.open(io.BytesIO(content), formats=opened()) as image:
                sizes.append(image.size)
        except Exception:  # broken bytes lead decoders anywhere
            continue
    return sizes
