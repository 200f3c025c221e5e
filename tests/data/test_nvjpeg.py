"""The GPU decodes what a person would see, and leaves to the CPU what it cannot."""

from pathlib import Path

import numpy as np
import pytest
import torch
from photographs import encode, folder, images_of, jpeg, smooth
from torchvision.io import ImageReadMode, decode_jpeg

from logo_ssl.data import BadImages, LoadingConfig, Photos, nvjpeg, place
from logo_ssl.data.decode import decode, decode_square
from logo_ssl.data.nvjpeg import NvjpegFeed, by_shape, cut_square
from logo_ssl.data.workers import Decoding, Feed


def test_images_of_one_shape_are_fitted_together_and_keep_their_places() -> None:
    shapes = [(24, 40), (16, 16), (24, 40), (40, 24), (16, 16)]
    images = [torch.randint(0, 256, (3, *shape), dtype=torch.uint8) for shape in shapes]
    calls = []

    def fit(stack: torch.Tensor) -> torch.Tensor:
        calls.append(len(stack))
        return cut_square(stack, 12)

    fitted = by_shape(images, fit)
    assert calls == [2, 2, 1]
    assert all(torch.equal(one, cut_square(image[None], 12)[0]) for one, image in zip(fitted, images, strict=True))
    assert by_shape([], fit) == []


@pytest.mark.parametrize(
    ("pixels", "groups"),
    [([], []), ([3], [1]), ([4, 4, 4], [2, 1]), ([9, 1, 1, 9, 30, 2], [2, 2, 1, 1]), ([5, 5], [2]), ([30, 30], [1, 1])],
)
def test_groups_hold_no_more_pixels_than_allowed(
    monkeypatch: pytest.MonkeyPatch, pixels: list[int], groups: list[int]
) -> None:
    monkeypatch.setattr(nvjpeg, "PIXELS_AT_ONCE", 10)
    found = list(nvjpeg.bounded(pixels))
    assert [len(pixels[group]) for group in found] == groups
    assert [number for group in found for number in pixels[group]] == pixels


def mixed(tmp_path: Path) -> tuple[Photos, list[int]]:
    """Good JPEGs of several kinds beside files that nvJPEG may not see, and which of them are bad."""
    whole, png = jpeg(smooth()), encode(smooth(30, 20))
    kinds = [jpeg(smooth(), 6), jpeg(smooth(), progressive=True)]
    kinds += [jpeg(smooth().convert(mode)) for mode in ("L", "CMYK")]
    bad = [whole[: len(whole) // 2], b"", b"\xff\xd8junk\xff\xd9"]
    return folder(tmp_path, [whole, *kinds, png, *bad, jpeg(smooth(50, 70)), jpeg(smooth(16, 16)), whole]), [6, 7, 8]


def check(feed: Feed, photos: Photos, bad_rows: list[int], bad: BadImages) -> None:
    batches = list(feed.batches(torch.arange(len(photos)).split(5)))
    feed.close()
    used = torch.cat([batch.rows for batch in batches]).tolist()
    assert {Path(name).name for name in bad.names} == {f"{row:03}.jpg" for row in bad_rows}
    assert [row for row in range(len(photos)) if row != used[row]] == bad_rows
    for image, row in zip([image for batch in batches for image in images_of(batch)], used, strict=True):
        seen = torch.from_numpy(decode(photos.read(row), 60)).permute(2, 0, 1)
        assert image.shape == seen.shape
        assert (image.cpu().float() - seen.float()).abs().mean() < 2


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_mixed_batch_is_decoded_as_pillow_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    def on_cpu(files: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        return [decode_jpeg(file, mode=ImageReadMode.RGB) for file in files]

    monkeypatch.setattr(nvjpeg, "decode_jpegs", on_cpu)
    photos, bad_rows = mixed(tmp_path)
    bad = BadImages(len(photos), 1.0)
    check(NvjpegFeed(Decoding(photos, 60), bad, workers, torch.device("cpu")), photos, bad_rows, bad)
    feed = NvjpegFeed(Decoding(photos, 0, square=12), bad, workers, torch.device("cpu"))
    for pixels, sizes, rows in feed.batches(torch.arange(len(photos)).split(5)):
        assert sizes is None
        for image, row in zip(pixels, rows.tolist(), strict=True):
            seen = decode_square(photos.read(row), 12)
            assert np.abs(image.permute(1, 2, 0).numpy().astype(int) - seen).mean() < 2
    feed.close()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("placement", ["device", "ram", "disk"])
@pytest.mark.parametrize("decoder", ["nvjpeg", "workers"])
def test_a_gpu_decodes_a_mixed_batch_as_pillow_does(tmp_path: Path, placement: str, decoder: str) -> None:
    photos, bad_rows = mixed(tmp_path)
    bad = BadImages(len(photos), 1.0)
    config = LoadingConfig(placement, decoder, workers=2, max_side=60)
    feed, _ = place(photos, torch.device("cuda", 0), config, bad)
    check(feed, photos, bad_rows, bad)
