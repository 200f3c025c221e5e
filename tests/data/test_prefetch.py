"""Do batches come in order from a feed that is ahead? (There is no CUDA device here: stand-ins take its part.)"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from logo_ssl.data.feed import Feed, Various, lay_out
from logo_ssl.data.prefetch import Prefetch
from torch import Tensor

from logo_ssl.types import ImageBatch


class Numbers(Feed):
    """A feed whose images are the rows that were asked for, and that may break."""

    def __init__(self, breaks_at: int = -1) -> None:
        self.breaks_at, self.closed = breaks_at, False

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        for rows in order:
            if rows[0] == self.breaks_at:
                raise OSError("the disk is gone")
            yield ImageBatch(rows.to(torch.uint8).view(1, 1, 1, 1))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    stream = SimpleNamespace(wait_stream=lambda other: None, wait_event=lambda event: None)
    event = SimpleNamespace(record=lambda stream: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: None)
    return torch.device("cpu")


def seen(prefetch: Prefetch, n: int) -> Iterator[int]:
    return (int(batch.pixels) for batch in prefetch.batches(torch.arange(n).split(1)))


def test_batches_come_in_order_epoch_after_epoch_even_if_one_is_left(here: torch.device) -> None:
    prefetch = Prefetch(feed := Numbers(), here)
    assert list(seen(prefetch, 20)) == list(range(20))
    left = seen(prefetch, 100)
    assert next(left) == 0
    assert list(seen(prefetch, 5)) == list(range(5))
    prefetch.close()
    assert feed.closed
    assert prefetch.sent is not None
    assert not prefetch.sent.thread.is_alive()


def test_what_the_feed_raises_is_raised_in_its_place(here: torch.device) -> None:
    prefetch = Prefetch(Numbers(breaks_at=7), here)
    numbers = seen(prefetch, 20)
    assert [next(numbers) for _ in range(7)] == list(range(7))
    with pytest.raises(OSError, match="the disk is gone"):
        next(numbers)
    prefetch.close()


def test_a_feed_whose_batches_are_sent_ahead_is_asked_for_pinned_ones(here: torch.device) -> None:
    feed = Numbers()
    assert not feed.pinned
    Prefetch(feed, here)
    assert feed.pinned


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("sizes", [[(5, 7)] * 3, [(5, 7), (40, 3), (8, 8)]])
def test_pinned_canvases_arrive_as_they_were(sizes: list[tuple[int, int]]) -> None:
    images = [torch.randint(0, 256, (height, width, 3), dtype=torch.uint8).permute(2, 0, 1) for height, width in sizes]
    assert lay_out(images, pinned=True).pixels.is_pinned()
    prefetch = Prefetch(Various(images, torch.arange(len(images))), torch.device("cuda"))
    order = [torch.randperm(len(images)) for _ in range(50)]  # memory is taken over many times
    for rows, batch in zip(order, prefetch.batches(order), strict=True):
        for row, pixels in zip(rows.tolist(), batch.pixels.cpu(), strict=True):
            height, width = sizes[row]
            assert torch.equal(pixels[:, :height, :width], images[row])
    prefetch.close()
