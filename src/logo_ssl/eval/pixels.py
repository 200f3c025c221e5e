"""What is an encoder shown? Central squares of photographs, decoded by workers or nvJPEG, and arrays as they are."""

from collections.abc import Generator
from statistics import median

from jaxtyping import Int, UInt8
from torch import Tensor

from ..data import BadImages, Photos, Split, nvjpeg
from ..data.decode import image_sizes
from ..data.loader import PrefetchFeed
from ..data.workers import Decoding, Feed, WorkerFeed, fitting_workers
from ..errors import UserError
from ..hardware import best_device
from .encoders import FrozenEncoder
from .how import Extraction

PIXELS_PER_WORKER = 24_000
"""Of a photograph; a guess between 16 workers at 500 x 375, who beat nvJPEG (docs/results/speed.md), and none."""


def in_channels(encoder: FrozenEncoder, split: Split) -> Split:
    """The images in the channels that an encoder sees: grey fills all of them, and others are refused."""
    if split.channels not in (1, encoder.channels):
        raise UserError(
            f"{encoder.name} sees images of {encoder.channels} channels, and these have {split.channels}; give others, "
            "or another encoder."
        )
    if split.channels == encoder.channels:
        return split
    return Split(split.array.expand(-1, encoder.channels, -1, -1), split.labels)  # a view, which takes no memory


def decodes_on_gpu(how: Extraction, photos: Photos, size: int) -> bool:
    """Whether nvJPEG decodes these photographs; UserError where it was asked for and is not there."""
    if how.decoder == "workers":
        return False
    device = best_device(how.device)
    there = device.type == "cuda" and nvjpeg.works(device)
    if how.decoder == "nvjpeg" and not there:
        raise UserError("decoder='nvjpeg': this machine does not have it; use auto or workers.")
    return there and (how.decoder == "nvjpeg" or not _workers_suffice(how, photos, size))


def _workers_suffice(how: Extraction, photos: Photos, size: int) -> bool:
    workers = fitting_workers(how.workers, 3 * size**2, some_day=True)
    pixels = [width * height for width, height in image_sizes(photos)]
    return not pixels or workers * PIXELS_PER_WORKER >= median(pixels)


def chunks(
    encoder: FrozenEncoder, split: Split, order: list[Int[Tensor, " _"]], how: Extraction, bad: BadImages
) -> Generator[UInt8[Tensor, "n C H W"], None, None]:
    """The pixels of each group of rows: photographs as central squares, arrays as they are."""
    shown = in_channels(encoder, split)
    if shown is not split:
        how.say(f"Grey images are shown to {encoder.name} in each of its {encoder.channels} channels.")
    if not isinstance(shown.images, Photos):
        yield from (shown.array[rows] for rows in order)
        return
    decoding = Decoding(shown.images, max_side=0, square=encoder.size)
    workers = min(fitting_workers(how.workers, 3 * encoder.size**2), len(order))
    device = best_device(how.device)
    if decodes_on_gpu(how, shown.images, encoder.size):
        # In turns with the network: beside it, each image would wait for the end of a kernel.
        feed: Feed = nvjpeg.NvjpegFeed(decoding, bad, workers, device)
    elif device.type == "cuda":
        feed = PrefetchFeed(WorkerFeed(decoding, bad, workers), device)
    else:
        feed = WorkerFeed(decoding, bad, workers)
    try:
        yield from (batch.pixels for batch in feed.batches(order))
    finally:
        feed.close()
