"""Wherever images wait, the same batches come: in an order by (seed, epoch), whole or in parts, ahead or not."""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from photographs import flat, folder, images_of, jpeg
from torch import Tensor

from logo_ssl.data import BadImages, Batches, LoadingConfig, Split, lay_out, place, squared
from logo_ssl.data.loader import PrefetchFeed, RaggedFeed, TensorFeed
from logo_ssl.data.workers import Feed
from logo_ssl.errors import UserError
from logo_ssl.types import ImageBatch

CPU = torch.device("cpu")


@pytest.mark.parametrize("placement", ["device", "ram", "disk", "auto"])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_placement_feeds_the_same_images(tmp_path, placement, workers):
    sizes = [(20, 30), (30, 20), (25, 25), (8, 40), (20, 30)]
    photos = folder(tmp_path, [jpeg(flat(40 * i, *size)) for i, size in enumerate(sizes)])
    feed, where = place(photos, CPU, LoadingConfig(placement=placement, workers=workers), BadImages(5, 0.3))
    batch, last = feed.batches(torch.arange(5).split(4))
    feed.close()
    assert [tuple(size) for size in batch.sizes.tolist()] + [tuple(last.pixels.shape[2:])] == sizes
    assert [round(image.float().mean().item() / 40) for image in images_of(batch)] == [0, 1, 2, 3]
    assert ("on disk" if placement == "disk" else "in RAM") in where


@pytest.mark.parametrize("placement", ["ram", "disk"])
@pytest.mark.parametrize("side", [8, 0])
def test_a_batch_says_which_images_it_really_shows(tmp_path, placement, side):
    """Else a bad image's label would teach what another image shows."""
    contents = [jpeg(flat(20 * i, side or 8 + i)) for i in range(10)]
    photos = folder(tmp_path, [*contents[:4], b"", *contents[5:]])
    feed, _ = place(photos, CPU, LoadingConfig(placement=placement, workers=0), BadImages(10, 0.3))
    (batch,) = Batches(feed, 10, 10, seed=0)
    feed.close()
    shown = [round(image[0, 0, 0].item() / 20) for image in batch.pixels]
    assert batch.rows.tolist() == shown
    assert sorted({*range(10)} - {*shown}) == [4]


def test_a_share_of_bad_images_is_of_all_wherever_they_are(tmp_path):
    photos = folder(tmp_path, [b""] * 40 + [jpeg(flat(1))] * 160)  # the first class is broken: 20 % of all
    config = LoadingConfig(placement="ram", workers=0)
    place(photos, CPU, config, bad := BadImages(200, 0.25))
    assert len(bad) == 40
    with pytest.raises(UserError, match=r"^40 of 200 images cannot be read"):
        place(photos, CPU, config, BadImages(200, 0.19))


IMAGES = torch.randint(0, 256, (6, 2, 4, 4), dtype=torch.uint8)


def test_arrays_wait_in_ram():
    feed, where = place(IMAGES, CPU, LoadingConfig(), BadImages(6, 0.3))
    assert torch.equal(torch.cat([batch.pixels for batch in feed.batches([torch.tensor([5, 0])])]), IMAGES[[5, 0]])
    assert "in RAM" in where


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (LoadingConfig(placement="disk"), "loading.placement='disk'"),
        (LoadingConfig(decoder="nvjpeg"), "loading.decoder='nvjpeg'"),
    ],
)
def test_loading_that_cannot_work_is_refused(config, named):
    with pytest.raises(UserError, match=named):
        place(IMAGES, CPU, config, BadImages(6, 0.3))


def test_squares_show_the_middle_and_bad_images_are_left_out_with_their_labels(tmp_path):
    image = flat(0, 20, 60)
    image.paste((250, 250, 250), (20, 0, 40, 20))
    photos = folder(tmp_path, [jpeg(image), b"", jpeg(image)])
    split = squared(Split(photos, torch.tensor([1, 2, 3])), 10, BadImages(3, 1.0), workers=0)
    assert split.array.shape == (2, 3, 10, 10)
    assert split.array.float().mean() > 230
    assert split.labels.tolist() == [1, 3]


NUMBERED = TensorFeed(torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1))


def test_the_order_follows_from_seed_and_epoch_alone():
    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(NUMBERED, 10, 4, seed)
        batches.set_epoch(epoch)
        return [value for batch in batches for value in batch.pixels.flatten().tolist()]

    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(*place)) for place in ((0, 1), (0, 2), (1, 1))}) == 3
    assert len(set(order(0, 0))) == 8


def test_an_epoch_may_begin_after_some_batches_and_the_next_is_whole():
    whole, rest = (Batches(NUMBERED, 10, 2, 0, done=done) for done in (0, 3))
    assert [batch.rows.tolist() for batch in rest] == [batch.rows.tolist() for batch in whole][3:]
    assert len(list(rest)) == 5


@pytest.mark.parametrize(("size", "kept", "lengths"), [
    (4, False, [4, 4]), (64, False, [10]), (4, True, [4, 4, 2]), (5, True, [5, 5]), (64, True, [10]),
])  # fmt: skip
def test_a_last_smaller_batch_is_left_out_unless_it_is_the_only_one_or_to_be_kept(size, kept, lengths):
    batches = Batches(NUMBERED, 10, size, 0, keeps_last=kept)
    seen = [batch.pixels.flatten().tolist() for batch in batches]
    assert [len(rows) for rows in seen] == lengths
    assert len(batches) == len(lengths)
    assert len({row for rows in seen for row in rows}) == sum(lengths)


def test_processes_share_every_batch_without_duplicates():
    feed = TensorFeed(torch.zeros(20, 3, 4, 4, dtype=torch.uint8))
    whole = [batch.rows for batch in Batches(feed, 20, 6, seed=3)]
    parts = [[batch.rows for batch in Batches(feed, 20, 6, seed=3, part=(number, 3))] for number in range(3)]
    assert [torch.cat(slices).tolist() for slices in zip(*parts, strict=True)] == [rows.tolist() for rows in whole]


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
def here(monkeypatch) -> torch.device:
    """The CPU, with stand-ins for CUDA's streams."""
    stream = SimpleNamespace(wait_stream=lambda other: None, wait_event=lambda event: None)
    event = SimpleNamespace(record=lambda stream: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: None)
    return CPU


def seen(prefetch: PrefetchFeed, n: int) -> Iterator[int]:
    return (int(batch.pixels) for batch in prefetch.batches(torch.arange(n).split(1)))


def test_batches_sent_ahead_come_in_order_epoch_after_epoch_even_if_one_is_left(here):
    prefetch = PrefetchFeed(feed := Numbers(), here)
    assert feed.pinned
    assert list(seen(prefetch, 20)) == list(range(20))
    left = seen(prefetch, 100)
    assert next(left) == 0
    assert list(seen(prefetch, 5)) == list(range(5))
    prefetch.close()
    assert feed.closed


def test_what_a_feed_raises_ahead_is_raised_in_its_place(here):
    prefetch = PrefetchFeed(Numbers(breaks_at=7), here)
    numbers = seen(prefetch, 20)
    assert [next(numbers) for _ in range(7)] == list(range(7))
    with pytest.raises(OSError, match="the disk is gone"):
        next(numbers)
    prefetch.close()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("sizes", [[(5, 7)] * 3, [(5, 7), (40, 3), (8, 8)]])
def test_pinned_canvases_arrive_as_they_were(sizes):
    images = [torch.randint(0, 256, (height, width, 3), dtype=torch.uint8).permute(2, 0, 1) for height, width in sizes]
    assert lay_out(images, pinned=True).pixels.is_pinned()
    prefetch = PrefetchFeed(RaggedFeed(images, torch.arange(len(images))), torch.device("cuda"))
    order = [torch.randperm(len(images)) for _ in range(50)]  # memory is taken over many times
    for rows, batch in zip(order, prefetch.batches(order), strict=True):
        for row, pixels in zip(rows.tolist(), batch.pixels.cpu(), strict=True):
            height, width = sizes[row]
            assert torch.equal(pixels[:, :height, :width], images[row])
    prefetch.close()
