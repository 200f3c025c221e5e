"""Do photographs become batches, whatever is wrong with some of them?"""

import csv
import io
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from logo_ssl.data.bad import Bad
from logo_ssl.data.feed import Uniform, Various
from logo_ssl.data.files import Paths
from logo_ssl.data.resizing import square
from logo_ssl.data.samples import look_at, sample
from PIL import Image

from logo_ssl.data import BadImages, Batches, LoadingConfig, Photos, Split, place, squared, statistics
from logo_ssl.data.workers import Decoding, Workers, fitting_workers
from logo_ssl.errors import UserError

CPU = torch.device("cpu")


def jpeg(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=95)
    return file.getvalue()


def flat(value: int, height: int = 20, width: int = 30) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


def folder(tmp_path: Path, contents: list[bytes]) -> Photos:
    paths = []
    for i, content in enumerate(contents):
        paths.append(tmp_path / f"{i:03}.jpg")
        paths[-1].write_bytes(content)
    return Photos.all(Paths(paths))


def everything(feed, n: int, batch: int = 4) -> list[torch.Tensor]:
    """Every image of a feed, cut from its canvas."""
    images = []
    for pixels, sizes, _ in feed.batches(torch.arange(n).split(batch)):
        sizes = [pixels.shape[2:]] * len(pixels) if sizes is None else sizes.tolist()
        images += [image[:, :h, :w] for image, (h, w) in zip(pixels, sizes, strict=True)]
    return images


@pytest.mark.parametrize("placement", ["device", "ram", "encoded", "disk", "auto"])
@pytest.mark.parametrize("workers", [0, 2])
def test_every_placement_feeds_the_same_images(tmp_path: Path, placement: str, workers: int) -> None:
    sizes = [(20, 30), (30, 20), (25, 25), (8, 40), (20, 30)]
    photos = folder(tmp_path, [jpeg(flat(40 * i, *size)) for i, size in enumerate(sizes)])
    config = LoadingConfig(placement=placement, workers=workers)
    feed, where = place(photos, CPU, config, BadImages(5, 0.3))
    images = everything(feed, 5)
    feed.close()
    assert [tuple(image.shape[1:]) for image in images] == sizes
    assert [round(image.float().mean().item() / 40) for image in images] == [0, 1, 2, 3, 4]
    assert {"encoded": "encoded images in RAM", "disk": "on disk"}.get(placement, "in RAM") in where


def test_images_of_one_size_become_one_tensor_and_others_a_list(tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    same = folder(tmp_path / "same", [jpeg(flat(i)) for i in range(3)])
    various = folder(tmp_path, [jpeg(flat(i, 8 + i)) for i in range(3)])
    config = LoadingConfig(placement="ram", workers=0)
    assert isinstance(place(same, CPU, config, BadImages(3, 0.3))[0], Uniform)
    assert isinstance(place(various, CPU, config, BadImages(3, 0.3))[0], Various)


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_are_replaced_counted_and_listed_once(tmp_path: Path, workers: int) -> None:
    whole = jpeg(flat(200))
    contents = [whole] * 20 + [b"", whole[: len(whole) // 2], b"not an image", b"\x89PNG\r\n\x1a\n broken"]
    photos = folder(tmp_path, contents)
    (tmp_path / "005.jpg").unlink()  # vanished
    bad = BadImages(24, 0.5, tmp_path / "run" / "bad-images.csv")
    feed = Workers(Decoding(photos, 640), bad, workers)
    for _ in range(2):
        images = everything(feed, 24)
        assert all((image.float() - 200).abs().max() < 3 for image in images)
    feed.close()
    assert len(bad) == 5
    rows = (tmp_path / "run" / "bad-images.csv").read_text().splitlines()
    assert rows[0] == "image,reason"
    assert sorted(Path(row.split(",")[0]).name for row in rows[1:]) == [
        "005.jpg", "020.jpg", "021.jpg", "022.jpg", "023.jpg",
    ]  # fmt: skip
    assert any("No such file" in row for row in rows)


def test_the_same_image_takes_the_place_of_a_bad_one_every_time(tmp_path: Path) -> None:
    photos = folder(tmp_path, [jpeg(flat(5 * i)) for i in range(40)] + [b""])
    first, again = (Decoding(photos, 640)[40][0] for _ in range(2))
    assert np.array_equal(first, again)


@pytest.mark.parametrize("placement", ["ram", "encoded", "disk"])
@pytest.mark.parametrize("side", [8, 0])
def test_a_batch_says_which_images_it_really_shows(tmp_path: Path, placement: str, side: int) -> None:
    """Else a bad image's label would teach what another image shows."""
    contents = [jpeg(flat(20 * i, side or 8 + i)) for i in range(10)]
    photos = folder(tmp_path, [*contents[:4], b"", *contents[5:]])
    feed, _ = place(photos, CPU, LoadingConfig(placement=placement, workers=0), BadImages(10, 0.3))
    (batch,) = Batches(feed, 10, 10, seed=0)
    feed.close()
    shown = [round(image[0, 0, 0].item() / 20) for image in batch.pixels]
    assert batch.rows.tolist() == shown
    assert sorted({*range(10)} - {*shown}) == [4]


def test_what_shows_no_image_at_all_says_so(tmp_path: Path) -> None:
    feed = Workers(Decoding(folder(tmp_path, [b"", b""]), 640), BadImages(2, 1.0), 0)
    (batch,) = feed.batches([torch.arange(2)])
    assert batch.rows.tolist() == [-1, -1]


def test_too_large_a_share_of_bad_images_stops_with_a_sentence(tmp_path: Path) -> None:
    photos = folder(tmp_path, [jpeg(flat(1))] * 4 + [b""] * 6)
    feed = Workers(Decoding(photos, 640), BadImages(10, 0.3), 0)
    with pytest.raises(UserError, match=r"^[4-6] of 10 images cannot be read .*max-bad 0.3"):
        everything(feed, 10)


def test_a_share_is_of_all_images_wherever_the_bad_ones_lie(tmp_path: Path) -> None:
    photos = folder(tmp_path, [b""] * 40 + [jpeg(flat(1))] * 160)  # the first class is broken: 20 % of all
    bad = BadImages(200, 0.25)
    place(photos, CPU, LoadingConfig(placement="ram", workers=0), bad)
    assert len(bad) == 40
    with pytest.raises(UserError, match=r"^40 of 200 images cannot be read"):
        place(photos, CPU, LoadingConfig(placement="ram", workers=0), BadImages(200, 0.19))


def test_a_list_from_before_an_interruption_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "bad-images.csv"
    BadImages(100, 0.5, file).note([Bad("a,b.jpg", "empty file"), Bad("new\nline.jpg", "empty file")])
    again = BadImages(100, 0.5, file)
    assert len(again) == 2
    again.note([Bad("a,b.jpg", "empty file"), Bad("new\nline.jpg", "empty file"), Bad("c.jpg", "gone")])
    with file.open(newline="") as lines:
        names = [row[0] for row in csv.reader(lines)]
    assert names == ["image", "a,b.jpg", "new\nline.jpg", "c.jpg"]


def test_images_below_the_root_are_called_as_seen_from_there_and_others_by_their_whole_path(tmp_path: Path) -> None:
    file = tmp_path / "bad-images.csv"
    bad = BadImages(100, 0.5, file, "/data")
    paths = ["/data/cat/1.jpg", "/data/x.tar:cat/1.jpg", "/data/image", "/database/cat/1.jpg", "MNIST[3]"]
    bad.note([Bad(path, "truncated") for path in paths])
    assert all(path in bad for path in paths)
    assert "/data/cat/2.jpg" not in bad
    BadImages(100, 0.5, file, "/data").note([Bad(path, "truncated") for path in paths])
    with file.open(newline="") as lines:
        names = [row[0] for row in csv.reader(lines)]
    assert names == ["image", "cat/1.jpg", "x.tar:cat/1.jpg", "image", "/database/cat/1.jpg", "MNIST[3]"]


def test_a_list_of_whole_paths_is_continued_and_nothing_listed_twice(tmp_path: Path) -> None:
    file = tmp_path / "bad-images.csv"
    file.write_bytes(b"image,reason\r\n/data/cat/1.jpg,truncated\r\n")
    bad = BadImages(100, 0.5, file, "/data")
    bad.note([Bad("/data/cat/1.jpg", "truncated"), Bad("/data/cat/2.jpg", "truncated")])
    assert len(bad) == 2
    assert file.read_text().splitlines() == ["image,reason", "/data/cat/1.jpg,truncated", "cat/2.jpg,truncated"]


def test_names_may_be_any_bytes_and_reasons_are_the_same_each_time(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xffname.jpg")
    (tmp_path / name).write_bytes(b"nothing")
    Image.fromarray(flat(9)).save(tmp_path / "good.jpg")
    bad = BadImages(2, 0.5, tmp_path / "bad-images.csv")
    everything(Workers(Decoding(Photos.all(Paths([tmp_path / name, tmp_path / "good.jpg"])), 640), bad, 0), 2)
    assert (tmp_path / "bad-images.csv").read_bytes().endswith(b"bad\xffname.jpg,not an image\r\n")


def test_a_pipe_is_no_image_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    Image.fromarray(flat(9)).save(tmp_path / "good.jpg")
    bad = BadImages(3, 1.0)
    photos = Photos.all(Paths([tmp_path / "pipe.jpg", tmp_path / "good.jpg", "nul\0.jpg"]))
    assert len(everything(Workers(Decoding(photos, 640), bad, 0), 3)) == 3
    assert len(bad) == 2


def test_a_worker_that_is_killed_is_done_without(tmp_path: Path) -> None:
    photos = folder(tmp_path, [jpeg(flat(i)) for i in range(200)])
    feed = Workers(Decoding(photos, 640), BadImages(200, 0.3), 2)
    batches = feed.batches(torch.arange(200).split(40))
    seen = [next(batches)]
    for worker in feed.reader.loader._iterator._workers:
        os.kill(worker.pid, signal.SIGKILL)
    time.sleep(0.3)  # this process hears of it while it is busy with the first batch
    with pytest.warns(RuntimeWarning, match="this process reads on alone"):
        seen += list(batches)
    means = torch.cat([batch.pixels.float().mean(dim=(1, 2, 3)) for batch in seen])
    assert (means - torch.arange(200)).abs().max() < 2


def test_workers_outlast_a_signal_to_all_processes(tmp_path: Path) -> None:
    photos = folder(tmp_path, [jpeg(flat(i)) for i in range(200)])
    feed = Workers(Decoding(photos, 640), BadImages(200, 0.3), 2)
    batches = feed.batches(torch.arange(200).split(40))
    seen = [next(batches)]
    told = [str(worker.pid) for worker in feed.reader.loader._iterator._workers]
    subprocess.run(["kill", "-TERM", *told], check=True)  # by somebody else: torch asks who it was
    time.sleep(0.2)
    assert len([*seen, *batches]) == 5  # and no warning, which would be an error
    feed.close()


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no /dev/shm")
def test_workers_are_as_many_as_shared_memory_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=64 * 2**20))
    assert fitting_workers(16, 1_000_000) == 0
    assert fitting_workers(16, 100_000) == 3
    assert fitting_workers(16, 1_000) == 16


def test_large_photographs_are_shrunk_and_small_ones_left_alone(tmp_path: Path) -> None:
    photos = folder(tmp_path, [jpeg(flat(9, 300, 900)), jpeg(flat(9, 50, 60))])
    large, small = (Decoding(photos, 100)[i][0] for i in range(2))
    assert large.shape == (33, 100, 3)
    assert small.shape == (50, 60, 3)


def test_arrays_wait_where_they_are_told_and_nowhere_else() -> None:
    images = torch.randint(0, 256, (6, 2, 4, 4), dtype=torch.uint8)
    feed, where = place(images, CPU, LoadingConfig(), BadImages(6, 0.3))
    assert torch.equal(torch.cat([batch.pixels for batch in feed.batches([torch.tensor([5, 0])])]), images[[5, 0]])
    assert "in RAM" in where
    with pytest.raises(UserError, match=r"loading.placement is 'disk', but these images are an array"):
        place(images, CPU, LoadingConfig(placement="disk"), BadImages(6, 0.3))


def test_nvjpeg_without_a_gpu_is_refused(tmp_path: Path) -> None:
    photos = folder(tmp_path, [jpeg(flat(1))])
    with pytest.raises(UserError, match="needs a CUDA device"):
        place(photos, CPU, LoadingConfig(decoder="nvjpeg"), BadImages(1, 0.3))


def test_squares_show_the_middle_with_the_short_side_whole(tmp_path: Path) -> None:
    image = flat(0, 20, 60)
    image[:, 20:40] = 250
    cut = square(image, 10)
    assert cut.shape == (10, 10, 3)
    assert cut.mean() > 230
    photos = folder(tmp_path, [jpeg(image), b"", jpeg(image)])
    split = squared(Split(photos, torch.tensor([1, 2, 3])), 10, BadImages(3, 1.0), workers=0)
    assert split.array.shape == (2, 3, 10, 10)
    assert split.labels.tolist() == [1, 3]  # the bad one is left out with its label
    with pytest.raises(TypeError, match="squared"):
        _ = Split(photos).array


def test_the_first_bad_image_is_told_once_unless_too_many_stop_the_run(tmp_path: Path) -> None:
    said: list[str] = []
    bad = BadImages(4, 0.5, tmp_path / "bad.csv", "/photos", say=said.append)
    for name in ("a", "a", "b"):
        bad.note([Bad(f"/photos/{name}.jpg", "truncated")])
    listed = f"replaced by others, and listed in {tmp_path / 'bad.csv'}."
    assert said == [f"a.jpg cannot be read (truncated): such images are {listed}"]
    said.clear()
    with pytest.raises(UserError, match="2 of 4 images cannot be read"):
        BadImages(4, 0.3, say=said.append).note([Bad("a.jpg", "truncated"), Bad("b.jpg", "truncated")])
    assert said == []


@pytest.mark.parametrize(("n", "most"), [(11, 6), (127, 64), (64, 64), (5, 6), (0, 6)])
def test_a_sample_is_no_larger_than_asked_for_and_reaches_all_parts(tmp_path: Path, n: int, most: int) -> None:
    photos = folder(tmp_path, [b"%d" % row for row in range(n)])
    rows = [int(content) for content in sample(photos, most)]
    assert len(rows) == min(n, most)
    assert rows == Split(torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1)).thinned(most).array.flatten().tolist()


def test_a_look_at_few_photographs_sees_every_class(tmp_path: Path) -> None:
    photos = folder(tmp_path, [jpeg(flat(200 * (row >= 6))) for row in range(11)])
    assert [int(image.mean()) for image in look_at(Split(photos), 6, max_side=0)] == [0, 0, 0, 0, 200, 200]


def test_statistics_of_photographs_are_those_of_their_pixels(tmp_path: Path) -> None:
    half = flat(51)
    half[:, 15:] = 153
    mean, std = statistics(folder(tmp_path, [jpeg(half), b"", jpeg(half)]))
    assert mean == pytest.approx([0.4] * 3, abs=0.01)
    assert std == pytest.approx([0.2] * 3, abs=0.01)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"None of the images can be read \(the first: .*, empty file\)"):
        statistics(folder(tmp_path / "none", [b"", b"x"]))


def test_statistics_of_arrays_are_per_channel_and_never_zero() -> None:
    images = torch.stack([torch.full((4, 4), 0), torch.full((4, 4), 255)]).expand(5, 2, 4, 4).to(torch.uint8)
    assert statistics(images) == (pytest.approx((0.0, 1.0)), pytest.approx((1 / 255, 1 / 255)))


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1)

    def order(seed: int, epoch: int) -> list[int]:
        batches = Batches(Uniform(images), 10, 4, seed)
        batches.set_epoch(epoch)
        return [value for batch in batches for value in batch.pixels.flatten().tolist()]

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)
    assert len(set(order(0, 0))) == 8


def test_a_last_smaller_batch_is_left_out_unless_it_is_the_only_one() -> None:
    feed = Uniform(torch.zeros(10, 1, 2, 2, dtype=torch.uint8))
    assert [len(batch.pixels) for batch in Batches(feed, 10, 4, 0)] == [4, 4]
    assert [len(batch.pixels) for batch in Batches(feed, 10, 64, 0)] == [10]


def test_processes_share_every_batch_without_duplicates():
    feed = Uniform(torch.zeros(20, 3, 4, 4, dtype=torch.uint8))
    whole = [batch.rows for batch in Batches(feed, 20, 6, seed=3)]
    parts = [[batch.rows for batch in Batches(feed, 20, 6, seed=3, part=(number, 3))] for number in range(3)]
    assert [torch.cat(slices).tolist() for slices in zip(*parts, strict=True)] == [rows.tolist() for rows in whole]


def test_processes_share_one_list_of_bad_images(tmp_path):
    file = tmp_path / "bad-images.csv"
    ours, theirs = BadImages(100, 0.03, file), BadImages(100, 0.03, file)
    ours.note([Bad("a.jpg", "truncated")])
    theirs.note([Bad("b.jpg", "truncated"), Bad("a.jpg", "truncated")])
    assert file.read_text().splitlines() == ["image,reason", "a.jpg,truncated", "b.jpg,truncated"]
    with pytest.raises(UserError, match="4 of 100"):
        ours.note([Bad("c.jpg", "not an image"), Bad("d.jpg", "not an image")])
    theirs.look_again()
    assert len(theirs) == 4


def test_a_list_of_bad_images_is_not_torn_by_many_hands(tmp_path):
    file = tmp_path / "bad-images.csv"

    def write(hand):
        bad = BadImages(1000, 1.0, file)
        for i in range(20):
            bad.note([Bad(f"{hand}-{i}.jpg" + "x" * 500, "truncated"), Bad(f"common-{i}.jpg", "truncated")])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    lines = file.read_text().splitlines()
    assert lines[0] == "image,reason"
    assert len(lines) == len(set(lines)) == 1 + 4 * 20 + 20


def test_a_last_smaller_batch_may_be_kept() -> None:
    feed = Uniform(torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1))
    for size, lengths in ((4, [4, 4, 2]), (5, [5, 5]), (64, [10])):
        batches = Batches(feed, 10, size, 0, keeps_last=True)
        seen = [batch.pixels.flatten().tolist() for batch in batches]
        assert [len(rows) for rows in seen] == lengths
        assert len(batches) == len(lengths)
        assert sorted(row for rows in seen for row in rows) == list(range(10))
