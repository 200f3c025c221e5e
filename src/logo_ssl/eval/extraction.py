"""How do images become features? Chunk by chunk, so that memory is bounded, and exactly, so that numbers repeat."""

from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from typing import TypeVar

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from ..data import BadImages, Photos, Split
from ..data.loader import CHUNK
from ..errors import UserError
from ..features import extract
from ..hardware import best_device, hardware
from .encoders import FrozenEncoder
from .how import Extraction
from .pixels import chunks

T = TypeVar("T")
PREPROCESSING = 5  # to be raised when decoding, squares or `extract` change what an encoder sees


def exactly() -> AbstractContextManager[None]:
    """Convolutions that repeat on CUDA: without TF32, which keeps 10 bits, and kernels that are chosen by the clock."""
    return torch.backends.cudnn.flags(True, benchmark=False, deterministic=True, allow_tf32=False)


def compute(
    encoder: FrozenEncoder,
    split: Split,
    parts: list[Int[Tensor, " _"]],
    how: Extraction,
    what: str,
    bad: BadImages | None = None,
) -> Generator[Float[Tensor, "n F"], None, None]:
    """Features of each part of a split, on the CPU; the rows of images that cannot be read are NaN."""
    if not parts:
        return
    device = best_device(how.device)
    backbone = encoder.backbone.to(device)
    bad = BadImages(len(split), how.max_bad) if bad is None else bad
    order = [rows for part in parts for rows in part.split(CHUNK)]
    done = len(split) - sum(map(len, parts))
    waiting, found = iter(parts), list[Tensor]()
    part = next(waiting)
    with closing(chunks(encoder, split, order, how, bad)) as shown:
        made = (_fetched(_seen(backbone, pixels, encoder, how)) for pixels in shown)
        for arrival in _one_behind(made) if device.type == "cuda" else made:
            found.append(features := arrival())
            done += len(features)
            how.progress(f"features of {what}", done, len(split))
            if sum(map(len, found)) == len(part):
                yield _checked(torch.cat(found), encoder, split, part, bad)
                part, found = next(waiting, part), []


def _seen(
    backbone: nn.Module, pixels: UInt8[Tensor, "n C H W"], encoder: FrozenEncoder, how: Extraction
) -> Float[Tensor, "n F"]:
    try:
        with exactly(), seeing(encoder):
            return extract(backbone, pixels, encoder.mean, encoder.std, encoder.size, how.batch_size)
    except torch.OutOfMemoryError as error:
        device = hardware(best_device(how.device))
        raise UserError(f"{device} has too little memory for {how.batch_size} images; lower batch_size.") from error


@contextmanager
def seeing(encoder: FrozenEncoder) -> Iterator[None]:
    """A network that cannot take images of that size says so in its own way; this is ours."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (RuntimeError, AssertionError) as error:
        if _sees_a_blank(encoder):
            raise  # the size is not to blame
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"{encoder.name} cannot see images of {encoder.size} px ({reason}); give another --size."
        ) from error


@torch.no_grad()
def _sees_a_blank(encoder: FrozenEncoder) -> bool:
    device = next(encoder.backbone.parameters()).device
    try:
        encoder.backbone.forward(torch.zeros(1, encoder.channels, encoder.size, encoder.size, device=device))
    except (RuntimeError, AssertionError):
        return False
    return True


def _fetched(features: Float[Tensor, "n F"]) -> Callable[[], Float[Tensor, "n F"]]:
    """Sends features to the CPU at once, before the next are computed; the call waits for them alone."""
    if not features.is_cuda:
        return features.cpu
    here = torch.empty(features.shape, dtype=features.dtype, pin_memory=True).copy_(features, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(features.device))

    def arrival() -> Float[Tensor, "n F"]:
        arrived.synchronize()
        return here

    return arrival


def _one_behind(arrivals: Iterator[T]) -> Iterator[T]:
    """The same, each when the next is under way: whoever waits for it keeps no GPU waiting."""
    under_way: list[T] = []
    for newest in arrivals:
        yield from under_way
        under_way = [newest]
    yield from under_way


def _checked(
    features: Float[Tensor, "n F"], encoder: FrozenEncoder, split: Split, rows: Int[Tensor, " n"], bad: BadImages
) -> Float[Tensor, "n F"]:
    """The features, NaN where the image was bad and another had taken its place."""
    if not features.isfinite().all():
        raise UserError(f"{encoder.name} gives features that are not finite; train it again, or check mean and std.")
    if isinstance(split.images, Photos) and len(bad):
        gone = [split.images.name(row) in bad for row in rows.tolist()]
        features[torch.tensor(gone)] = torch.nan
    return features
