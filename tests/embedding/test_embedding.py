"""Are features whole and in order, however they are written, and does an interruption cost a part at most?"""

import csv
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import logo_ssl
from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.embedding import embeddings
from logo_ssl.embedding.comparing import open_encoders
from logo_ssl.embedding.tables import about_table, read_table
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.system.signals import Stopped
from logo_ssl.system.terminal import printable

NAMES = [f"{i:02}" for i in range(24) if i != 1]  # those that can be read


def whole(table: Path):
    parts = list(read_table(table))
    paths, labels = ([value for part in parts for value in part[column]] for column in (0, 1))
    return paths, labels, np.concatenate([part.vectors for part in parts])


@pytest.mark.parametrize("suffix", ["parquet", "npz", "csv"])
def test_every_format_gives_the_same_back(encoder, photos, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(embeddings, "PART", 10)
    monkeypatch.setattr("logo_ssl.embedding.tables.ROWS", 4)
    expected, said = logo_ssl.embed(encoder, photos, workers=0), []
    file = logo_ssl.embed(encoder, photos, out=tmp_path / "new" / f"f.{suffix}", workers=0, say=said.append)
    paths, labels, vectors = whole(file)
    assert (paths, labels) == (expected.paths, expected.labels)
    assert np.array_equal(vectors, expected.vectors)
    assert sorted(child.name for child in file.parent.iterdir()) == [file.name, f"{file.name}-bad-images.csv"]
    with (file.parent / f"{file.name}-bad-images.csv").open() as listed:
        assert sorted(Path(row[0]).name for row in csv.reader(listed)) == ["01.jpg", "bad.jpg", "image"]
    assert "2 images" in said[-1]
    if suffix != "csv":
        about = about_table(file)
        assert (about["encoder"], about["size"], about["fingerprint"][:3]) == (
            "random/tiny",
            16,
            embeddings.frozen(encoder).fingerprint[:3],
        )


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Stopped(signal.SIGTERM), RuntimeError()], ids=repr)
def test_an_interrupted_embedding_goes_on_where_it_stopped(encoder, photos, tmp_path, monkeypatch, stop):
    monkeypatch.setattr(embeddings, "PART", 4)
    monkeypatch.setattr("logo_ssl.eval.features.CHUNK", 4)
    expected, seen = logo_ssl.embed(encoder, photos, workers=0), []
    encoder.register_forward_pre_hook(lambda module, x: seen.append(len(x[0])))

    def interrupt(*_):
        if sum(seen) >= 12:
            raise stop

    broken = encoder.register_forward_hook(interrupt)
    failed = isinstance(stop, RuntimeError)
    with pytest.raises(RuntimeError if failed else Interrupted) as told:
        logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0)
    assert ("the same command goes on with what" in str(told.value)) != failed
    assert not (tmp_path / "f.npz").exists()
    broken.remove()
    before, said = sum(seen), []
    file = logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0, say=said.append)
    assert before == 12
    assert sum(seen) == 12 + 25 - 8  # two parts were kept, the third was being made
    assert said[0] == "Going on after 8 of 25 train images."
    paths, labels, vectors = whole(file)
    assert (paths, labels) == (expected.paths, expected.labels)
    np.testing.assert_allclose(vectors, expected.vectors, rtol=1e-4, atol=1e-6)
    assert {child.name for child in tmp_path.iterdir()} == {"photos", "f.npz", "f.npz-bad-images.csv"}


def test_parts_of_another_encoder_are_not_taken(encoder, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "PART", 4)

    def fail(*_):
        raise OSError("a full disk")

    with monkeypatch.context() as patch, suppress(OSError):
        patch.setattr(embeddings, "write_table", fail)
        logo_ssl.embed("random/tiny", photos, out=tmp_path / "f.npz", workers=0)
    assert list((tmp_path / ".f.npz.parts").iterdir())
    said: list[str] = []
    file = logo_ssl.embed(encoder, photos, out=tmp_path / "f.npz", workers=0, say=said.append)
    assert not any(sentence.startswith("Going on") for sentence in said)
    assert np.array_equal(whole(file)[2], logo_ssl.embed(encoder, photos, workers=0).vectors)


def test_memory_holds_a_part_at_a_time(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "PART", 8)
    images = torch.randint(0, 256, (40, 3, 16, 16), dtype=torch.uint8)
    largest: list[int] = []
    told = embeddings.Images.part_of
    monkeypatch.setattr(embeddings.Images, "part_of", lambda *a: largest.append(len(a[1])) or told(*a))
    logo_ssl.embed(encoder, images, out=tmp_path / "f.npz", workers=0)
    assert max(largest) == 8
    assert np.array_equal(whole(tmp_path / "f.npz")[2], logo_ssl.embed(encoder, images).vectors)


def test_splits_follow_each_other_and_arrays_have_numbers(encoder, tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (10, 16, 16, 3), np.uint8)
    parts = {"train_images": images[:6], "test_images": images[6:], "train_labels": np.arange(6) % 2}
    np.savez(tmp_path / "set.npz", **parts, test_labels=np.arange(4) % 2)
    every = logo_ssl.embed(encoder, tmp_path / "set.npz")
    assert every.splits == ["train"] * 6 + ["test"] * 4
    assert every.paths == [f"train[{i}]" for i in range(6)] + [f"test[{i}]" for i in range(4)]
    assert every.labels == ["0", "1"] * 5
    test = logo_ssl.embed(encoder, load_data(str(tmp_path / "set.npz"), 16), split="test")
    assert np.array_equal(test.vectors, every.vectors[6:])
    pixels = images.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(logo_ssl.embed(encoder, pixels).vectors, every.vectors, rtol=1e-4, atol=1e-5)


def test_bad_images_count_against_the_images_of_all_splits(encoder, photos, tmp_path):
    train, test = sorted((photos / "a").iterdir()), sorted((photos / "c").iterdir())[:2]
    data, out = ImageSet("two", *(Split.from_paths(map(str, paths)) for paths in (train, test))), tmp_path / "f.csv"
    (photos / "a" / "00.png").write_bytes(b"")
    test[0].write_bytes(b"")
    for _ in range(2):  # the second time the list is there
        paths, _, _ = whole(logo_ssl.embed(encoder, data, out=out, workers=0, max_bad=0.3, overwrite=True))
        assert paths == [str(path) for path in [*train[1:-1], test[1]]]
    with pytest.raises(UserError, match="3 of 11 images cannot be read"):
        logo_ssl.embed(encoder, data, out=out, workers=0, max_bad=0.2, overwrite=True)


def test_a_list_of_paths_keeps_its_order_and_repetitions(encoder, photos):
    paths = [photos / "b" / "04.png", photos / "a" / "00.png", photos / "b" / "04.png"]
    found = logo_ssl.embed(encoder, paths, workers=0)
    array = logo_ssl.embed(encoder, np.array(list(map(str, paths)), dtype=object), workers=0)
    assert found.paths == array.paths == [str(path) for path in paths]
    assert found.labels == [None] * 3
    assert np.array_equal(found.vectors, array.vectors)
    assert np.array_equal(found.vectors[0], found.vectors[2])


def test_the_encoder_stays_where_and_as_it_was(encoder, photos):
    encoder.train()
    logo_ssl.embed(encoder, photos, workers=0)
    assert encoder.training
    assert next(encoder.parameters()).device.type == "cpu"


def test_a_comparison_shows_a_module_at_the_size_that_is_asked_for_and_leaves_it_as_it_is():
    module = logo_ssl.load("random/timm/test_vit", size=64)
    asked, named = open_encoders([module, "random/timm/test_vit"], 96)
    assert asked.size == named.size == 96
    assert asked.backbone.pos_embed.shape == named.backbone.pos_embed.shape != module.pos_embed.shape
    assert open_encoders([module, module])[0].backbone is module


@pytest.mark.parametrize(
    ("data", "options", "sentence"),
    [
        (None, {}, "--data"),
        ("nowhere", {}, "nowhere"),
        ([], {}, "images"),
        (np.zeros((2, 3, 4, 4)), {}, "float64"),
        (np.zeros((2, 3, 8, 8), np.uint8), {"split": "test"}, "test"),
        (np.zeros((2, 5, 8, 8), np.uint8), {}, "3 channels"),
        (["x.jpg"], {"max_bad": 2}, "max_bad=2"),
        (["x.jpg"], {"workers": -2}, "workers=-2"),
        (["x.jpg"], {"batch_size": 0}, "batch_size=0"),
        (["x.jpg"], {"workers": 0}, "1 of 1"),
        (["x.jpg"], {"out": "f.xlsx"}, "f.xlsx"),
        (["x.jpg"], {"out": "file/f.csv"}, "file"),
        pytest.param(
            ["x.jpg"],
            {"decoder": "nvjpeg"},
            "nvjpeg",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA"),
        ),
    ],
)
def test_bad_input_is_one_sentence(encoder, tmp_path, monkeypatch, data, options, sentence):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(UserError, match=sentence):
        logo_ssl.embed(encoder, data, **options)
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_without_pyarrow_the_extra_is_named(encoder, photos, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pip install 'logo-ssl\[parquet\]', or use .npz or .csv"):
        logo_ssl.embed(encoder, photos, out=tmp_path / "f.parquet")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("f.npz", b"only text"),  # which numpy would call a pickle
        ("f.npz", {"train_images": np.zeros(3)}),
        ("f.npz", {"paths": [], "labels": [], "splits": [], "vectors": np.zeros((0, 1)), "logo-ssl": "[" * 200_000}),
        ("f.csv", b"a,b\n"),
        ("f.csv", b""),
        ("f.parquet", b"x"),
    ],
)
def test_a_file_that_is_no_table_is_told(tmp_path, name, content):
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        np.savez(tmp_path / name, **content)
    with pytest.raises(UserError, match=name):  # noqa: PT012
        about_table(tmp_path / name)
        list(read_table(tmp_path / name))


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_names_that_are_no_text_come_back_or_get_escapes(encoder, photos, tmp_path, suffix):
    odd = (photos / "a").rename(photos / "cl\udce9") / "od\udce9.png"
    (photos / "cl\udce9" / "00.png").rename(odd)
    out = tmp_path / f"f.{suffix}"
    paths, labels, _ = whole(logo_ssl.embed(encoder, photos, out=out, workers=0))
    kept = suffix != "parquet"
    assert (str(odd) if kept else str(photos / "cl\\xe9" / "od\\xe9.png")) in paths
    assert ("cl\udce9" in labels) == kept
    (found,) = logo_ssl.search(encoder, out, photos / "b" / "04.png", k=30)
    assert (str(odd) if kept else printable(str(odd))) in [neighbour.path for neighbour in found]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_nvjpeg_gives_the_features_of_workers(encoder, photos):
    def apart():
        fast, slow = (logo_ssl.embed(encoder, photos, decoder=decoder) for decoder in ("nvjpeg", "workers"))
        assert (fast.paths, sorted(fast.bad)) == (slow.paths, sorted(slow.bad))
        return np.abs(fast.vectors - slow.vectors).max() / np.abs(slow.vectors).max()

    assert apart() < 0.1  # it enlarges coarse colours by repeating, others smoothly, and in noise that shows
    for file in photos.rglob("[0-9]*.jpg"):
        if file.name != "01.jpg":  # which is torn
            Image.open(file).save(file, subsampling=0)
    assert apart() < 0.02
