"""The GPU decodes what a person would see, and leaves to the CPU what it cannot."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from logo_ssl.data import BadImages, LoadingConfig, Photos, nvjpeg, place
from logo_ssl.data.decode import decode, decode_square
from logo_ssl.data.images import Paths
from logo_ssl.data.nvjpeg import NvjpegFeed, by_shape, cut_square
from logo_ssl.data.workers import Decoding, Feed


def picture(height: int = 24, width: int = 40) -> Image.Image:
    """Smooth, so that decoders agree, and without any symmetry."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([4 * x, 8 * y, 2 * (x + y)], axis=2).clip(0, 255).astype(np.uint8))


def encode(image: Image.Image, orientation: int | None = None, **options: object) -> bytes:
    file, exif = io.BytesIO(), Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    image.save(file, "JPEG", quality=95, exif=exif, **options)
    return file.getvalue()


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
    png = io.BytesIO()
    picture(30, 20).save(png, "PNG")
    whole = encode(picture())
    contents = [
        whole, encode(picture(), 6), encode(picture(), progressive=True), encode(picture().convert("L")),
        encode(picture().convert("CMYK")), png.getvalue(), whole[: len(whole) // 2], b"", b"\xff\xd8junk\xff\xd9",
        encode(picture(50, 70)), encode(picture(16, 16)), whole,
    ]  # fmt: skip
    for i, content in enumerate(contents):
        (tmp_path / f"{i:02}.jpg").write_bytes(content)
    return Photos.all(Paths(sorted(tmp_path.glob("*.jpg")))), [6, 7, 8]


def check(images: list[tuple[torch.Tensor, int]], photos: Photos, bad_rows: list[int], bad: BadImages) -> None:
    assert {Path(name).name for name in bad.names} == {f"{row:02}.jpg" for row in bad_rows}
    assert [row for row, (_, used) in enumerate(images) if row != used] == bad_rows
    for image, used in images:
        seen = torch.from_numpy(decode(photos.read(used), 60)).permute(2, 0, 1)
        assert image.shape == seen.shape
        assert (image.cpu().float() - seen.float()).abs().mean() < 2


def cut(feed: Feed, n: int) -> list[tuple[torch.Tensor, int]]:
    """Each image with the row that it really comes from."""
    images = [
        (image[:, :h, :w], used)
        for pixels, sizes, rows in feed.batches(torch.arange(n).split(5))
        for image, (h, w), used in zip(pixels, sizes.tolist(), rows.tolist(), strict=True)
    ]
    feed.close()
    return images


@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_mixed_batch_is_decoded_as_pillow_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    def on_cpu(files: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        return [decode_jpeg(file, mode=ImageReadMode.RGB) for file in files]

    monkeypatch.setattr(nvjpeg, "decode_jpegs", on_cpu)
    photos, bad_rows = mixed(tmp_path)
    bad = BadImages(len(photos), 1.0)
    check(cut(NvjpegFeed(Decoding(photos, 60), bad, workers, torch.device("cpu")), len(photos)), photos, bad_rows, bad)
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
@pytest.mark.parametrize("placement", ["device", "ram", "encoded", "disk"])
@pytest.mark.parametrize("decoder", ["nvjpeg", "workers"])
def test_a_gpu_decodes_a_mixed_batch_as_pillow_does(tmp_path: Path, placement: str, decoder: str) -> None:
    photos, bad_rows = mixed(tmp_path)
    bad = BadImages(len(photos), 1.0)
    config = LoadingConfig(placement, decoder, workers=2, max_side=60)
    feed, _ = place(photos, torch.device("cuda", 0), config, bad)
    check(cut(feed, len(photos)), photos, bad_rows, bad)
