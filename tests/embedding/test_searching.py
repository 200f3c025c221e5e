"""Are the likest images found, and shown?"""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import logo_ssl
from logo_ssl.embedding.searching import SHEETS, Found, drawable, nearest_in
from logo_ssl.errors import UserError
from logo_ssl.system.terminal import distinct_names


@pytest.mark.parametrize("suffix", ["parquet", "npz", "csv"])
def test_the_order_is_that_of_cosines_without_the_query_itself(encoder, photos, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("logo_ssl.embedding.tables.ROWS", 5)
    found = logo_ssl.embed(encoder, photos, workers=0)
    index = logo_ssl.embed(encoder, photos, out=tmp_path / f"f.{suffix}", workers=0)
    queries = [found.paths[3], found.paths[11]]
    unit = found.vectors / np.linalg.norm(found.vectors, axis=1, keepdims=True)
    for query, row, neighbours in zip(queries, (3, 11), logo_ssl.search(encoder, index, queries, k=6), strict=True):
        cosines = unit @ unit[row]
        cosines[row] = -1  # itself
        best = np.argsort(-cosines, kind="stable")[:6]
        assert [neighbour.path for neighbour in neighbours] == [found.paths[i] for i in best]
        np.testing.assert_allclose([neighbour.cosine for neighbour in neighbours], cosines[best], atol=1e-5)
        assert query not in [neighbour.path for neighbour in neighbours]
        assert neighbours[0].label == Path(neighbours[0].path).parent.name


def test_more_neighbours_than_images_are_all_others(encoder, photos, tmp_path):
    index = logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0)
    (all_of_them,) = logo_ssl.search(encoder, index, photos / "a" / "00.png", k=1000)
    assert len(all_of_them) == 22


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


def test_the_sheet_shows_the_query_and_its_neighbours(encoder, photos, tmp_path):
    index = logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0)
    queries = [str(photos / "a" / "00.png"), str(photos / "b" / "04.png")]
    found = logo_ssl.search(encoder, index, queries, k=8)
    found[0][3] = found[0][3]._replace(path="train[7]")  # an image without a file
    content = SHEETS[".png"](Found(list(zip(queries, found, strict=True))))
    with Image.open(io.BytesIO(content)) as sheet:
        assert len(np.unique(np.array(sheet)[100, ::50], axis=0)) > 10


def drawn(name):
    return SHEETS[".png"](Found([(name, [])]))


@pytest.mark.parametrize("names", ["猫 犬", "кот пёс", "قطة كلب", "बिल्ली कुत्ता", "🐱 🐶"])
def test_names_in_any_script_are_told_apart(names):
    """By the font that matplotlib brings along, another on this machine, or escapes."""
    one, other = map(drawn, names.split())
    assert one != other
    text, font = drawable(names)
    assert text != names or bytes(font.getmask(names[0])) != bytes(font.getmask("\U0010ffff"))  # no empty box


def test_letters_that_no_font_has_are_escapes():
    assert drawable("кот \ue123")[0] == r"кот \ue123"


def test_odd_names_are_drawn_on_one_line():
    assert drawn("a\nb.png") == drawn(r"a\nb.png")
    assert drawn("M\udce9.png").startswith(b"\x89PNG")


def test_names_that_repeat_have_their_folders():
    names = distinct_names(["x/a/1.png", "y/a/1.png", "y/b/1.png", "y/b/2.png"])
    assert [*names.values()] == ["x/a/1.png", "y/a/1.png", "b/1.png", "2.png"]
    assert [*distinct_names(["/", "/a", "b/a"]).values()] == ["/", "/a", "b/a"]


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
    assert one == other
