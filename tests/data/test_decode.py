"""Does every kind of image file become what a person sees in it, and every broken one a `BadImage`?"""

import io
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from logo_ssl.data import decode as module
from logo_ssl.data.decode import BadImage, decode, decode_square
from logo_ssl.data.resizing import square

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


def encode(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_rgb_is_kept_as_it_is(kind):
    assert np.array_equal(decode(encode(Image.fromarray(COLOUR), kind)), COLOUR)


def test_grey_becomes_three_equal_channels():
    assert np.array_equal(decode(encode(Image.fromarray(GREY))), np.stack([GREY] * 3, 2))


def test_one_bit_becomes_black_and_white():
    seen = decode(encode(Image.fromarray(GREY > 100)))
    assert np.array_equal(seen, np.where(GREY > 100, 255, 0)[..., None].repeat(3, 2))


@pytest.mark.parametrize("kind", ["RGBA", "LA"])
def test_transparent_pixels_are_shown_on_white(kind):
    layer = Image.new("RGBA", (3, 1), (10, 10, 10, 255))
    layer.putpixel((1, 0), (10, 10, 10, 0))
    layer.putpixel((2, 0), (0, 0, 0, 128))
    seen = decode(encode(layer.convert(kind)))
    assert seen[0, :2].tolist() == [[10] * 3, [255] * 3]
    assert seen[0, 2].tolist() == pytest.approx([127] * 3, abs=1)


def test_a_palette_gives_its_colours():
    image = Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 100, 50])
    image.putpixel((1, 0), 1)
    assert decode(encode(image)).tolist() == [[[200, 0, 0], [0, 100, 50]]]


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


def test_a_constant_float_image_is_no_division_by_zero():
    assert (decode(encode(Image.fromarray(np.full((4, 4), 9e9, np.float32)), "TIFF")) == 0).all()


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
def test_every_orientation_gives_the_same_upright_picture(kind, orientation):
    upright = np.kron(COLOUR[::6, ::10], np.ones((16, 16, 1), np.uint8))  # blocks, which JPEG keeps
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(UNTURN[orientation](upright)))
    options = {"lossless": True} if kind == "WEBP" else {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    seen = decode(encode(stored, kind, exif=exif, **options)).astype(int)
    assert seen.shape == upright.shape
    assert np.abs(seen - upright).max() <= (6 if kind == "JPEG" else 0)


def test_a_16_bit_picture_is_turned_too():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(encode(Image.fromarray(GREY.astype(np.uint16)), exif=exif)).shape == (20, 12, 3)


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
    [(b"", "empty"), (b"hello, I am no image\n", "cannot identify"), (b"\x89PNG\r\n\x1a\n", ".")],
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


def test_a_decompression_bomb_is_refused_from_its_header():
    with pytest.raises(BadImage, match="pixels"):
        decode(png_that_claims(50_000, 50_000))


def test_a_bomb_is_refused_where_pillows_limit_is_switched_off(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(BadImage, match=f"50000 x 50000 pixels are more than {module.MOST_PIXELS:,}"):
        decode(png_that_claims(50_000, 50_000))


@pytest.mark.parametrize(
    ("size", "most", "shape"),
    [
        ((100, 40), 50, (20, 50, 3)),
        ((40, 100), 50, (50, 20, 3)),
        ((100, 40), 100, (40, 100, 3)),
        ((100, 40), 500, (40, 100, 3)),
        ((100, 40), 0, (40, 100, 3)),
        ((400, 1), 50, (1, 50, 3)),
    ],
)
def test_the_longer_side_is_shrunk_and_never_enlarged(size, most, shape):
    assert decode(encode(Image.new("RGB", size)), most).shape == shape


@pytest.mark.parametrize(
    ("size", "side", "shape"),
    [
        ((400, 400), 12, (50, 50, 3)),
        ((402, 300), 25, (150, 201, 3)),
        ((401, 300), 25, (300, 401, 3)),
        ((404, 800), 6, (200, 101, 3)),
        ((800, 80), 10, (40, 400, 3)),
        ((800, 78), 10, (78, 800, 3)),
    ],
)
def test_for_a_square_a_jpeg_is_decoded_in_part_if_that_divides_its_sides_and_leaves_four_times_the_square(
    monkeypatch, size, side, shape
):
    seen = []

    def square(pixels, side):
        seen.append(pixels.shape)
        return np.zeros((side, side, 3), np.uint8)

    monkeypatch.setattr("logo_ssl.data.decode.square", square)
    decode_square(encode(Image.new("RGB", size), "JPEG"), side)
    assert seen == [shape]


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size", [(797, 580), (532, 740), (1304, 1024), (547, 513)])
def test_a_jpeg_that_is_decoded_in_part_is_cut_where_the_whole_one_is(size, orientation):
    exif, (width, height) = Image.Exif(), size
    exif[0x0112] = orientation
    y, x = np.mgrid[:height, :width]
    waves = 128 + 60 * np.sin(x / width * 40) + 60 * np.sin(y / height * 40)
    data = encode(Image.fromarray(np.repeat(waves[..., None], 3, 2).astype(np.uint8)), "JPEG", exif=exif, quality=98)
    difference = decode_square(data, 16).astype(int) - square(decode(data), 16)
    assert np.abs(difference).max() <= 3


def test_a_shrunk_jpeg_is_upright_and_looks_like_the_whole_one():
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.kron(COLOUR, np.ones((20, 20, 1), np.uint8))  # 240 x 400
    data = encode(Image.fromarray(pixels), "JPEG", exif=exif, quality=95)
    small = decode(data, 50)
    whole = Image.fromarray(decode(data)).resize((30, 50), Image.Resampling.BOX)
    assert small.shape == (50, 30, 3)
    assert np.abs(small.astype(int) - np.asarray(whole)).mean() < 5
