"""Every kind of image file becomes what a person sees, every broken one a `BadImage`; squares are torchvision's."""

import io
import struct
import sys
import zlib
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from photographs import encode, folder, smooth
from PIL import Image, features
from torchvision.transforms import v2

from logo_ssl.data import ImageSet, Split, dataset_info, load_data, statistics
from logo_ssl.data.decode import (
    BadImage,
    decode,
    decode_square,
    formats,
    look_at,
    read_jpeg_header,
    resized,
    sample,
    seen_size,
    square,
    suffixes,
)
from logo_ssl.data.nvjpeg import cut_square, upright
from logo_ssl.errors import UserError
from logo_ssl.knn import prepared

GREY = np.arange(0, 240, dtype=np.uint8).reshape(12, 20)
COLOUR = np.stack([GREY, GREY[::-1], 255 - GREY], 2)
UNTURN = {  # the stored picture for each orientation
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: x.transpose(1, 0, 2)[::-1],
    7: lambda x: x.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda x: x.transpose(1, 0, 2)[:, ::-1],
}


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_rgb_is_kept_as_it_is(kind):
    assert np.array_equal(decode(encode(Image.fromarray(COLOUR), kind)), COLOUR)


def test_grey_becomes_three_equal_channels():
    assert np.array_equal(decode(encode(Image.fromarray(GREY))), np.stack([GREY] * 3, 2))


@pytest.mark.parametrize("kind", ["RGBA", "LA"])
def test_transparent_pixels_are_shown_on_white(kind):
    layer = Image.new("RGBA", (3, 1), (10, 10, 10, 255))
    layer.putpixel((1, 0), (10, 10, 10, 0))
    layer.putpixel((2, 0), (0, 0, 0, 128))
    seen = decode(encode(layer.convert(kind)))
    assert seen[0, :2].tolist() == [[10] * 3, [255] * 3]
    assert seen[0, 2].tolist() == pytest.approx([127] * 3, abs=1)


@pytest.mark.parametrize(("kind", "transparency"), [("PNG", 1), ("PNG", b"\xff\x00"), ("GIF", 1)])
def test_a_palettes_transparent_colour_is_white(kind, transparency):
    image = Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 100, 50])
    image.putpixel((1, 0), 1)
    assert decode(encode(image, kind, transparency=transparency)).tolist() == [[[200, 0, 0], [255] * 3]]


def test_a_transparent_grey_of_png_is_white():
    seen = decode(encode(Image.fromarray(GREY), transparency=7))
    assert (seen[GREY == 7] == 255).all()
    assert (seen[GREY == 8] == 8).all()


@pytest.mark.parametrize(("kind", "order"), [("PNG", "<u2"), ("TIFF", "<u2"), ("TIFF", ">u2")])
def test_16_bit_grey_is_seen_by_its_upper_byte(kind, order):
    deep = (GREY.astype(np.uint16) << 8) + 77
    assert np.array_equal(decode(encode(Image.fromarray(deep.astype(order)), kind)), np.stack([GREY] * 3, 2))


def test_a_range_that_no_byte_holds_is_stretched():
    values = np.linspace(-3, 5, 240, dtype=np.float32).reshape(12, 20)
    seen = decode(encode(Image.fromarray(values), "TIFF"))
    assert (seen.min(), seen.max()) == (0, 255)
    assert (np.diff(seen[..., 0].astype(int)) >= 0).all()


def test_pixels_that_are_not_finite_are_bad():
    values = np.zeros((4, 4), np.float32)
    values[1, 1] = np.nan
    with pytest.raises(BadImage, match="not finite"):
        decode(encode(Image.fromarray(values), "TIFF"))


def test_a_cmyk_jpeg_keeps_its_colours():
    colour = (200, 40, 90)
    seen = decode(encode(Image.new("RGB", (16, 16), colour).convert("CMYK"), "JPEG", quality=95))
    assert seen[8, 8].tolist() == pytest.approx(colour, abs=6)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_gives_the_same_upright_picture(tmp_path, kind, orientation):
    upright = np.kron(COLOUR[::6, ::10], np.ones((16, 16, 1), np.uint8))  # blocks, which JPEG keeps
    stored = Image.fromarray(np.ascontiguousarray(UNTURN[orientation](upright)))
    options = {"lossless": True} if kind == "WEBP" else {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    data = encode(stored, kind, orientation, **options)
    seen = decode(data).astype(int)
    assert seen.shape == upright.shape
    assert np.abs(seen - upright).max() <= (6 if kind == "JPEG" else 0)
    (tmp_path / "x").write_bytes(data)
    assert seen_size(tmp_path / "x") == upright.shape[:2]


@pytest.mark.parametrize(
    ("exif", "shape"),
    [
        (b"Exif\0\0garbage", (12, 20, 3)),
        (b"Exif\0\0II*\0\x08\0\0\0\x05\0", (12, 20, 3)),  # ends early
        (b"Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\2\0\4\0\0\0abc\0\0\0\0\0", (12, 20, 3)),  # an orientation in letters
        # A width in letters, which Pillow cannot write again, then orientation 6.
        (b"Exif\0\0II*\0\x08\0\0\0\2\0\0\1\2\0\4\0\0\0abc\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0", (20, 12, 3)),
    ],
)
def test_odd_metadata_make_no_bad_image(exif, shape):
    assert decode(encode(Image.fromarray(COLOUR), "JPEG", exif=exif)).shape == shape


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_of_an_animation_is_seen(kind):
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ((250, 0, 0), (0, 0, 250)))
    options = {"lossless": True} if kind == "WEBP" else {}
    assert decode(encode(first, kind, save_all=True, append_images=[second], **options))[4, 4].tolist() == [250, 0, 0]


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"", "empty"), (b"hello, I am no image\n", "not an image"), (b"\x89PNG\r\n\x1a\n", ".")],
)
def test_what_is_no_image_is_bad(data, why):
    with pytest.raises(BadImage, match=why):
        decode(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"])
def test_an_image_that_ends_early_is_bad(kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encode(Image.fromarray(noise), kind)
    with pytest.raises(BadImage):
        decode(data[: len(data) // 2])


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 400), st.sampled_from(["JPEG", "PNG", "GIF", "TIFF"]))
def test_damaged_bytes_decode_or_are_bad_and_nothing_else(junk, at, kind):
    data = encode(Image.fromarray(COLOUR), kind)
    for damaged in (junk, data[:at] + junk + data[at + len(junk) :]):
        with suppress(BadImage):
            assert decode(damaged).shape[2] == 3


def png_that_claims(width: int, height: int) -> bytes:
    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def test_a_bomb_is_refused_where_pillows_limit_is_switched_off(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    for sides in ((50_000, 50_000), (1, 65_535)):
        with pytest.raises(BadImage, match=f"{sides[0]} x {sides[1]} pixels"):
            decode(png_that_claims(*sides))


@pytest.mark.parametrize(
    ("size", "most", "shape"),
    [
        ((100, 40), 50, (20, 50, 3)),
        ((40, 100), 50, (50, 20, 3)),
        ((100, 40), 100, (40, 100, 3)),
        ((100, 40), 500, (40, 100, 3)),
        ((100, 40), 0, (40, 100, 3)),
        ((100, 1), 50, (1, 50, 3)),
    ],
)
def test_the_longer_side_is_shrunk_and_never_enlarged(size, most, shape):
    assert decode(encode(Image.new("RGB", size)), most).shape == shape


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size", [(797, 580), (532, 740), (1304, 1024), (547, 513)])
def test_a_jpeg_that_is_decoded_in_part_is_cut_where_the_whole_one_is(size, orientation):
    width, height = size
    y, x = np.mgrid[:height, :width]
    waves = 128 + 60 * np.sin(x / width * 40) + 60 * np.sin(y / height * 40)
    image = Image.fromarray(np.repeat(waves[..., None], 3, 2).astype(np.uint8))
    data = encode(image, "JPEG", orientation, quality=98)
    difference = decode_square(data, 16).astype(int) - square(decode(data), 16)
    assert np.abs(difference).max() <= 3


def test_a_shrunk_jpeg_is_upright_and_looks_like_the_whole_one():
    pixels = np.kron(COLOUR, np.ones((20, 20, 1), np.uint8))  # 240 x 400
    data = encode(Image.fromarray(pixels), "JPEG", 6, quality=95)
    small = decode(data, 50)
    whole = Image.fromarray(decode(data)).resize((30, 50), Image.Resampling.BOX)
    assert small.shape == (50, 30, 3)
    assert np.abs(small.astype(int) - np.asarray(whole)).mean() < 5


SIDES = st.integers(1, 90)
PILLOWS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@pytest.mark.parametrize("mode", PILLOWS)
@settings(deadline=None, max_examples=60)
@given(SIDES, SIDES, SIDES, SIDES, st.integers(0, 2**31))
def test_pixels_are_pillows_but_for_rounding(mode, height, width, new_height, new_width, seed):
    # Both cut off at 0 and 255 between rows and columns, but not in the same order: far from these, all is rounding.
    image = np.random.default_rng(seed).integers(90, 166, (height, width, 3), dtype=np.uint8)
    ours = resized(image, (new_height, new_width), mode)
    theirs = np.asarray(Image.fromarray(image).resize((new_width, new_height), PILLOWS[mode]))
    assert ours.shape == theirs.shape
    assert ours.flags.c_contiguous  # or the next copy would take longer than the resizing
    assert np.abs(ours.astype(int) - theirs).max() <= 2


def test_a_mirrored_view_of_an_image_that_must_not_be_written_to_is_resized():
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    image.setflags(write=False)
    assert np.array_equal(resized(image[:, ::-1], (20, 20), "bilinear")[:, ::-1], resized(image, (20, 20), "bilinear"))


def torchvisions(image: torch.Tensor, size: int) -> torch.Tensor:
    """What torchvision makes of an image [C H W], by the transforms that `export` prints."""
    resize = v2.Resize(size, v2.InterpolationMode.BICUBIC, antialias=True)
    return v2.Compose([resize, v2.CenterCrop(size)])(image)


ODD_SHAPES = st.tuples(st.integers(1, 300), st.integers(1, 300)).filter(lambda sides: max(sides) <= 8 * min(sides))


@settings(deadline=None, max_examples=300)
@given(ODD_SHAPES, st.integers(1, 100), st.integers(0, 2**31))
def test_squares_are_those_of_torchvision_to_the_pixel(shape, size, seed):
    image = np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)
    pixels = torch.from_numpy(image).permute(2, 0, 1)
    theirs = torchvisions(pixels, size)
    assert torch.equal(torch.from_numpy(square(image, size)).permute(2, 0, 1), theirs)


@settings(deadline=None, max_examples=100)
@given(ODD_SHAPES, st.integers(1, 100), st.integers(0, 2**31))
def test_squares_of_arrays_and_on_a_device_are_those_of_torchvision(shape, size, seed):
    pixels = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (3, *shape), dtype=np.uint8))
    theirs = torchvisions(pixels.float(), size).clamp(0, 255)  # as floats, so without the CPU's own way for bytes
    assert torch.equal(cut_square(pixels[None], size)[0], theirs.round().byte())
    ours = prepared(pixels[None], (0.0,) * 3, (1.0,) * 3, size)[0]
    torch.testing.assert_close(ours, theirs / 255, rtol=0, atol=1e-5)


@pytest.fixture
def fresh_formats():
    """Formats are looked up anew, before and after."""
    formats.cache_clear(), suffixes.cache_clear()
    yield
    formats.cache_clear(), suffixes.cache_clear()


def test_without_its_package_heic_files_are_counted_with_their_cure_and_others_are_read(
    tmp_path, monkeypatch, fresh_formats
):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    assert decode(encode(Image.fromarray(COLOUR), "JPEG")).shape == (12, 20, 3)
    (tmp_path / "a.HEIC").touch()
    with pytest.raises(UserError, match=r"1 \.heic \(readable with pip install 'logo-ssl\[heic\]'\)"):
        load_data(str(tmp_path), 32)


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_images_of_phones_are_read(tmp_path, kind):
    if kind == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    elif not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    Image.fromarray(np.full((40, 64, 3), 200, np.uint8)).save(tmp_path / f"phone.{kind}", kind)
    data = load_data(str(tmp_path), 32)
    assert data.says == ()
    assert abs(int(decode(data.train.images.read(0)).mean()) - 200) <= 2


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("progressive", [False, True])
def test_the_header_of_a_jpeg_names_the_turn_and_undoing_it_equals_pillow(orientation, progressive):
    data = encode(smooth(), "JPEG", orientation, progressive=progressive)
    assert read_jpeg_header(data) == (orientation, 24 * 40)
    raw = torch.from_numpy(np.array(Image.open(io.BytesIO(data)))).permute(2, 0, 1)
    assert torch.equal(upright(raw, orientation).permute(1, 2, 0), torch.from_numpy(decode(data)))


def test_only_whole_jpegs_in_grey_or_ycbcr_have_a_header():
    image = Image.fromarray(COLOUR)
    data = encode(image, "JPEG")
    assert read_jpeg_header(data + bytes(20)) is not None  # cameras append a little
    assert read_jpeg_header(encode(image.convert("L"), "JPEG")) is not None
    others = (encode(image.convert("CMYK"), "JPEG"), encode(image, "JPEG", keep_rgb=True), encode(image))
    hostile = b"\xff\xd8" + b"\xff" * 10**6 + b"\xff\xd9", b"\xff\xd8 nonsense \xff\xd9", data[:2] + b"\xff\xd9"
    for broken in (b"", data[:-40], data[:100], *others, *hostile):
        assert read_jpeg_header(broken) is None


@pytest.mark.parametrize(("n", "most"), [(11, 6), (127, 64), (64, 64), (5, 6), (0, 6)])
def test_a_sample_is_no_larger_than_asked_for_and_reaches_all_parts(tmp_path, n, most):
    rows = [int(content) for content in sample(folder(tmp_path, [b"%d" % row for row in range(n)]), most)]
    assert len(rows) == min(n, most)
    assert rows == Split(torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1)).thinned(most).array.flatten().tolist()


def test_statistics_and_sizes_of_photographs_are_those_of_their_pixels(tmp_path):
    half = np.full((20, 30, 3), 51, np.uint8)
    half[:, 15:] = 153
    some = folder(tmp_path, [encode(Image.fromarray(half), "JPEG", quality=95), b"", encode(Image.fromarray(half))])
    mean, std = statistics(some)
    assert mean == pytest.approx([0.4] * 3, abs=0.01)
    assert std == pytest.approx([0.2] * 3, abs=0.01)
    assert dataset_info(ImageSet("x", Split(some))) == (3, 20, 3, False)
    assert [image.shape for image in look_at(Split(some), 3, max_side=0)] == [(20, 30, 3)] * 2


def test_photographs_of_which_none_can_be_read_are_refused_with_the_first(tmp_path):
    none = folder(tmp_path, [b"", b"x"])
    for ask in (
        statistics,
        lambda images: dataset_info(ImageSet("x", Split(images))),
        lambda x: look_at(Split(x), 2, 0),
    ):
        with pytest.raises(UserError, match=r"000\.jpg, empty file"):
            ask(none)


def test_statistics_of_arrays_are_per_channel_and_never_zero():
    images = torch.stack([torch.full((4, 4), 0), torch.full((4, 4), 255)]).expand(5, 2, 4, 4).to(torch.uint8)
    assert statistics(images) == (pytest.approx((0.0, 1.0)), pytest.approx((1 / 255, 1 / 255)))
    assert dataset_info(ImageSet("x", Split(images, torch.arange(5)))) == (5, 4, 2, True)
