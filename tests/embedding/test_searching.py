"""Are the likest images found, and shown?"""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import logo_ssl
from logo_ssl.embedding.index import Neighbour, _font, contact_sheet, nearest_in
from logo_ssl.errors import UserError


@pytest.mark.parametrize("suffix", ["parquet", "npz", "csv"])
def test_an_image_is_most_like_itself_and_the_order_is_that_of_cosines(encoder, photos, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("logo_ssl.embedding.tables.ROWS", 5)
    found = logo_ssl.embed(encoder, photos, workers=0)
    index = logo_ssl.embed(encoder, photos, out=tmp_path / f"f.{suffix}", workers=0)
    queries = [found.paths[3], found.paths[11]]
    unit = found.vectors / np.linalg.norm(found.vectors, axis=1, keepdims=True)
    for query, row, neighbours in zip(queries, (3, 11), logo_ssl.search(encoder, index, queries, k=6), strict=True):
        cosines = unit @ unit[row]
        best = np.argsort(-cosines, kind="stable")[:6]
        assert [neighbour.path for neighbour in neighbours] == [found.paths[i] for i in best]
        np.testing.assert_allclose([neighbour.cosine for neighbour in neighbours], cosines[best], atol=1e-5)
        assert neighbours[0].path == query
        assert neighbours[0].label == Path(query).parent.name


def test_more_neighbours_than_images_are_all_images(encoder, photos, tmp_path):
    index = logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0)
    (all_of_them,) = logo_ssl.search(encoder, index, photos / "a" / "00.png", k=1000)
    assert len(all_of_them) == 23


def test_an_index_of_another_encoder_is_refused(encoder, photos, tmp_path):
    index = logo_ssl.embed("random/tiny", photos, out=tmp_path / "f.npz", workers=0)
    with pytest.raises(UserError, match=r"f\.npz"):
        logo_ssl.search(encoder, index, photos / "a" / "00.png")
    table = logo_ssl.embed("random/tiny", photos, out=tmp_path / "f.csv", workers=0)
    with pytest.raises(UserError, match="width 256"):
        nearest_in(table, np.ones((1, 7), np.float32), 3)


@pytest.mark.parametrize(
    ("options", "cure"), [({"size": 24}, "size=16"), ({"std": (0.3, 0.2, 0.1)}, r"std=.0\.229, 0\.224, 0\.225")]
)
def test_an_index_of_other_inputs_is_refused_with_the_options_that_fit(photos, tmp_path, options, cure):
    index = logo_ssl.embed(logo_ssl.load("random/tiny", size=16), photos, out=tmp_path / "f.npz", workers=0)
    with pytest.raises(UserError, match=cure):
        logo_ssl.search(logo_ssl.load("random/tiny", **{"size": 16} | options), index, photos / "a" / "00.png")


@pytest.mark.parametrize(
    ("index", "query", "k", "sentence"),
    [
        ("f.npz", "bad.jpg", 3, "bad.jpg cannot be read as an image"),
        ("f.npz", "00.png", 0, "k=0"),
        ("g.npz", "00.png", 3, "g.npz"),
    ],
)
def test_bad_searches_are_told(encoder, photos, tmp_path, index, query, k, sentence):
    logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0)
    with pytest.raises(UserError, match=sentence):
        logo_ssl.search(encoder, tmp_path / index, photos / "a" / query, k=k)


def test_the_sheet_shows_the_query_and_its_neighbours(encoder, photos, tmp_path):
    index = logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0)
    queries = [str(photos / "a" / "00.png"), str(photos / "b" / "04.png")]
    found = logo_ssl.search(encoder, index, queries, k=8)
    found[0][3] = found[0][3]._replace(path="train[7]")  # an image without a file
    with Image.open(io.BytesIO(contact_sheet(queries, found))) as sheet:
        pixels = np.array(sheet)
    tile = 172
    assert pixels.shape == (12 + 4 * (160 + 34 + 12), 12 + 7 * tile, 3)  # two rows for each query: six, and two more
    middles = pixels[12 + 80, [12 + 80 + tile * i for i in range(7)]]
    assert (middles[4] == 0xDD).all()  # the grey field
    assert np.unique(middles, axis=0).shape[0] > 3


def test_the_sheet_has_letters_beyond_ascii(tmp_path):
    """A letter that the font lacks is drawn as an empty box, the same for all of them."""
    font = _font()
    missing = font.getmask("\U0010ffff").getbbox(), bytes(font.getmask("\U0010ffff"))
    for letter in "äößéñçøŁžЖλ":
        drawn = font.getmask(letter).getbbox(), bytes(font.getmask(letter))
        assert drawn != missing, letter
    file = tmp_path / "Kätzchen\udce9.png"
    Image.new("RGB", (20, 20)).save(file)
    assert contact_sheet([str(file)], [[Neighbour(str(file), "Müll\udce9", 1.0)]]).startswith(b"\x89PNG")


def test_captions_of_the_sheet_are_one_line_each(tmp_path):
    names = [tmp_path / "a\nb.png", tmp_path / r"a\nb.png"]
    for name in names:
        Image.new("RGB", (20, 20)).save(name)
    first, second = (contact_sheet([str(name)], [[Neighbour(str(name), "x\ny", 1.0)]]) for name in names)
    assert first == second


def test_a_query_that_cannot_be_read_is_told_with_the_reason(encoder, photos, tmp_path):
    index = logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0)
    (tmp_path / "phone.jpg").write_bytes(b"\0\0\0\x18ftypavis")
    with pytest.raises(UserError, match=r"phone\.jpg"):
        logo_ssl.search(encoder, index, tmp_path / "phone.jpg")


def test_features_in_memory_are_an_index_too(tmp_path, photos):
    encoder, query = logo_ssl.load("random/tiny", size=16), photos / "a" / "00.png"
    index = logo_ssl.embed(encoder, photos, out=tmp_path / "index.npz", workers=0)
    features = logo_ssl.embed(encoder, photos, workers=0)
    ((one, *_),), ((other, *_),) = (logo_ssl.search(encoder, each, query, k=3) for each in (index, features))
    assert one.path == other.path == str(query)
