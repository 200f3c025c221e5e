"""How do images in memory become batches? Picked by rows, on the device where they live."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import partial

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from ..hardware import to_device
from ..types import ImageBatch

CANVAS_STEP = 32  # pixels; it also keeps the number of shapes small


class Feed(ABC):
    """Something that turns rows into batches."""

    pinned: bool = False
    """Whether new canvases lie in pinned memory; `Prefetch` wants them so."""

    @abstractmethod
    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows."""

    def close(self) -> None:  # noqa: B027 (most feeds have none)
        """End the processes that help, if there are any."""


class Uniform(Feed):
    """Images of one size in one tensor; `used` says which image each really is, where not all are themselves."""

    def __init__(self, images: UInt8[Tensor, "N C H W"], used: Int[Tensor, " N"] | None = None) -> None:
        self.images, self.used = images, used

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """Gathered rows."""
        for rows in order:
            pixels = self.images[to_device(rows, self.images.device)]
            yield ImageBatch(pixels, rows=rows if self.used is None else self.used[rows])


class Various(Feed):
    """Decoded images of various sizes, one tensor each; `used` as in `Uniform`."""

    def __init__(self, images: list[UInt8[Tensor, "C _ _"]], used: Int[Tensor, " N"]) -> None:
        self.images, self.used = images, used

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """Rows, laid on canvases."""
        for rows in order:
            yield lay_out([self.images[row] for row in rows.tolist()], self.pinned)._replace(rows=self.used[rows])


def canvas_size(sizes: Int[Tensor, "B 2"]) -> tuple[int, int]:
    """Height and width of canvases that hold all images, rounded up: tensor cores want products of eights."""
    if (sizes == sizes[0]).all():
        return tuple(sizes[0].tolist())
    return tuple(-(-side // CANVAS_STEP) * CANVAS_STEP for side in sizes.amax(dim=0).tolist())


def lay_out(images: list[UInt8[Tensor, "C _ _"]], pinned: bool = False) -> ImageBatch:
    """Images of various sizes in the top left corners of equal canvases; of one size, side by side.

    Pinned canvases go to a CUDA device without another copy, in memory that the next batches take over.
    """
    sizes = torch.tensor([image.shape[1:] for image in images])
    (height, width), channels = canvas_size(sizes), len(images[0])
    equal = bool((sizes == sizes[0]).all())
    kind = {"dtype": torch.uint8, "device": images[0].device, "pin_memory": pinned and images[0].device.type == "cpu"}
    new = partial(torch.empty if equal else torch.zeros, **kind)  # images of one size leave nothing blank
    if images[0].stride(0) == 1:  # channels last, as Pillow gives them: the canvas too, or copying is slow
        canvas = new(len(images), height, width, channels).permute(0, 3, 1, 2)
    else:  # line by line, as the crops are cut
        canvas = new(len(images), height, channels, width).transpose(1, 2)
    corners = (
        canvas.unbind() if equal else [place[:, :h, :w] for place, (h, w) in zip(canvas, sizes.tolist(), strict=True)]
    )
    torch._foreach_copy_(corners, images)
    return ImageBatch(canvas, None if equal else sizes)
