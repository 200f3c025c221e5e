"""Features are the same however they are computed, and a cache of them is never wrong."""

import os
import runpy
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from logo_ssl.data import ImageSet, Photos, Split, load_data
from logo_ssl.data.images import FILES_READ, Paths
from logo_ssl.errors import UserError
from logo_ssl.eval import features as features_module
from logo_ssl.eval.encoder import FrozenEncoder, load_encoder
from logo_ssl.eval.features import (
    PIXELS_PER_WORKER,
    Extraction,
    FeatureStore,
    decodes_on_gpu,
    features_of,
    labelled_features,
)
from logo_ssl.knn import extract

ROUNDING = {"rtol": 1e-5, "atol": 1e-6}  # float32, whose sums other batch sizes may take in another order
UNCACHED = Extraction(cache=False, workers=0)


def counted(encoder: FrozenEncoder) -> list[int]:
    """Grows by the size of each batch that the encoder sees."""
    seen: list[int] = []
    encoder.backbone.register_forward_pre_hook(lambda module, x: seen.append(len(x[0])))
    return seen


@pytest.mark.parametrize("source", ["random/tiny", "random/resnet18"])
def test_features_do_not_depend_on_the_batch_size(images: ImageSet, source):
    encoder = load_encoder(source, size=16, stem="cifar")
    split = images.train.thinned(20)
    whole = features_of(encoder, split, UNCACHED)
    for batch_size in (1, 3, 16):
        parts = features_of(encoder, split, replace(UNCACHED, batch_size=batch_size))
        torch.testing.assert_close(parts, whole, **ROUNDING)


def test_features_of_shuffled_files_are_shuffled_features(tiny, photos, generator):
    split = load_data(str(photos), 16).train
    order = torch.randperm(len(split), generator=generator)
    shuffled = features_of(tiny, split[order], UNCACHED)
    torch.testing.assert_close(shuffled, features_of(tiny, split, UNCACHED)[order], **ROUNDING)


def test_worker_processes_change_nothing(tiny, photos):
    split = load_data(str(photos), 16).train
    assert features_of(tiny, split, Extraction(cache=False, workers=1)).equal(features_of(tiny, split, UNCACHED))


def test_features_are_computed_once(tiny, images: ImageSet, photos):
    for split in (images.train, load_data(str(photos), 16).train):
        first = features_of(tiny, split)
        seen = counted(tiny)
        assert features_of(tiny, split).equal(first)
        assert seen == []
        assert features_of(tiny, split, UNCACHED).equal(first)
        assert sum(seen) == len(split)


def test_whatever_features_depend_on_makes_them_new(tiny, images: ImageSet):
    features_of(tiny, images.train)
    changed = images.train.array.clone()
    changed[59, 2, 15, 15] += 1
    others = [
        (tiny, Split(changed)),
        (replace(tiny, mean=(0.1, 0.2, 0.3)), images.train),
        (replace(tiny, std=(0.1, 0.2, 0.3)), images.train),
        (replace(tiny, size=24), images.train),
        (replace(tiny, fingerprint="other"), images.train),
    ]
    for other, split in others:
        expected = extract(other.backbone, split.array, other.mean, other.std, other.size)
        torch.testing.assert_close(features_of(other, split), expected, **ROUNDING)


def test_pixels_that_another_decoder_rounds_have_features_of_their_own(tiny, photos, monkeypatch):
    seen, split = counted(tiny), load_data(str(photos), 16).train
    features_of(tiny, split, Extraction(workers=0))
    monkeypatch.setattr(features_module, "decodes_on_gpu", lambda *how: True)
    features_of(tiny, split, Extraction(workers=0))
    assert seen == [30, 30]
    features_of(tiny, split, Extraction(workers=0))
    assert seen == [30, 30]


def test_a_changed_file_of_equal_size_makes_features_new(tiny, tmp_path):
    for i in range(2 * FILES_READ):
        Image.fromarray(np.full((16, 16, 3), i, np.uint8)).save(tmp_path / f"{i:03}.bmp")
    split = load_data(str(tmp_path), 16).train
    before = features_of(tiny, split)
    for i in (1, 70, 126):  # one after the other, so that none hides another
        Image.fromarray(np.full((16, 16, 3), 200, np.uint8)).save(tmp_path / f"{i:03}.bmp")
        after = features_of(tiny, split)
        assert [row for row in range(len(split)) if not after[row].equal(before[row])] == [i]
        before = after


def test_a_shard_written_anew_makes_features_new(tiny, tmp_path):
    def pack(changed: int) -> None:
        with tarfile.open(tmp_path / "set.tar", "w") as tar:
            for i in range(2 * FILES_READ):
                Image.fromarray(np.full((16, 16, 3), i + changed * (i == 70), np.uint8)).save(tmp_path / "image.bmp")
                tar.add(tmp_path / "image.bmp", f"{i:03}.bmp")

    pack(0)
    split = load_data(str(tmp_path / "set.tar"), 16).train
    before = features_of(tiny, split)
    pack(99)
    assert not features_of(tiny, split)[70].equal(before[70])


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-9], lambda b: b"x" * 99])
def test_a_damaged_cache_is_rewritten(tiny, images: ImageSet, cache, damage):
    first = features_of(tiny, images.train)
    (file,) = cache.glob("*.safetensors")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert features_of(tiny, images.train).equal(first)
    assert file.read_bytes() == whole


def test_an_interrupted_extraction_goes_on_where_it_was(tiny, images: ImageSet, monkeypatch):
    monkeypatch.setattr(features_module, "PART", 16)
    whole = features_of(tiny, images.train, UNCACHED)

    def interrupt(what, done, total):
        if done > 32:
            raise KeyboardInterrupt

    monkeypatch.setattr("logo_ssl.eval.features.CHUNK", 8)
    with pytest.raises(KeyboardInterrupt):
        features_of(tiny, images.train, Extraction(progress=interrupt))
    seen, steps = counted(tiny), []
    how = Extraction(progress=lambda what, done, total: steps.append((done, total)))
    rest = features_of(tiny, images.train, how)
    torch.testing.assert_close(rest, whole, **ROUNDING)
    assert sum(seen) == 60 - 32
    assert steps[0] == (40, 60)
    assert steps[-1] == (60, 60)


def test_without_the_cache_nothing_is_written(tiny, images: ImageSet, cache):
    features_of(tiny, images.train, UNCACHED)
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_costs_a_sentence(tiny, images: ImageSet, cache):
    cache.write_text("a file where the folder should be")
    said: list[str] = []
    features_of(tiny, images.train, Extraction(say=said.append))
    assert [str(cache) in sentence for sentence in said] == [True]


def test_the_cache_forgets_what_was_not_used_for_longest(tmp_path):
    store = FeatureStore(tmp_path, most_bytes=100_000)
    for age, name in enumerate("abc"):  # each takes a little more than 40,000 bytes
        store.save(name, torch.full((100, 100), float(age)))
        os.utime(tmp_path / f"{name}.safetensors", (age, age))
    assert store.load("a", 100) is None
    assert store.load("b", 100) is not None  # and so is the one used last
    store.save("d", torch.zeros(100, 100))
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["b", "d"]
    assert store.load("b", 99) is None


def test_unreadable_photographs_are_left_out_and_said(tiny, photos):
    (photos / "b" / "4.png").write_bytes(b"")
    split = load_data(str(photos), 16).train
    said: list[str] = []
    how = Extraction(workers=0, say=said.append)
    features, labels = labelled_features(tiny, split, how, "training images")
    names = [split.images.name(i) for i in range(30)]
    kept = [i for i in range(30) if not names[i].endswith("b/4.png")]
    assert labels.equal(split.labels[kept])
    torch.testing.assert_close(features, features_of(tiny, split[torch.tensor(kept)], UNCACHED), **ROUNDING)
    assert said[0].startswith("1 of 30 training images cannot be read")
    assert str(photos / "b" / "4.png") in said[0]
    assert how.unreadable == [str(photos / "b" / "4.png")]


def test_grey_images_fill_every_channel_and_others_are_refused(tiny, images: ImageSet):
    grey = images.train.array[:5, :1]
    same = features_of(tiny, Split(grey.expand(-1, 3, -1, -1).contiguous()), UNCACHED)
    assert features_of(tiny, Split(grey), UNCACHED).equal(same)
    with pytest.raises(UserError, match="3 channels, and these images have 2"):
        features_of(tiny, Split(images.train.array[:, :2]), UNCACHED)


def test_features_that_are_not_finite_are_refused(tiny, images: ImageSet):
    next(tiny.backbone.parameters()).fill_(torch.inf)
    with pytest.raises(UserError, match="random/tiny gives features that are not finite"):
        features_of(tiny, images.train, UNCACHED)


@pytest.fixture
def cuda(monkeypatch):
    """A machine with a CUDA device that decodes, and cores for four workers."""
    monkeypatch.setattr(features_module, "best_device", lambda wish: torch.device("cuda"))
    monkeypatch.setattr(features_module.nvjpeg, "works", lambda device: True)
    monkeypatch.setattr("logo_ssl.data.workers.default_workers", lambda: 4)
    return monkeypatch


@pytest.fixture
def three_photos(tmp_path):
    """Three photographs for which four workers are just enough."""
    for i in range(3):
        Image.new("RGB", (PIXELS_PER_WORKER // 100, 400)).save(tmp_path / f"{i}.jpg")
    return Photos.all(Paths(sorted(tmp_path.iterdir())))


DECODERS = [  # decoder, workers, whether photographs are large, whether nvJPEG works, and then who decodes
    ("auto", -1, False, True, False),
    ("auto", 3, False, True, True),
    ("auto", -1, True, True, True),
    ("auto", 0, False, False, False),
    ("nvjpeg", -1, False, True, True),
    ("workers", 0, True, True, False),
]


@pytest.mark.parametrize(("decoder", "workers", "large", "works", "on_gpu"), DECODERS)
def test_nvjpeg_decodes_if_asked_for_or_if_workers_are_few_for_the_photographs(
    cuda, three_photos, tmp_path, decoder, workers, large, works, on_gpu
):
    for i in range(1, 3 if large else 1):  # most of them
        Image.new("RGB", (1000, 800)).save(tmp_path / f"{i}.jpg")
    cuda.setattr(features_module.nvjpeg, "works", lambda device: works)
    assert decodes_on_gpu(Extraction(decoder=decoder, workers=workers), three_photos, 224) == on_gpu


def test_workers_decode_where_nothing_can_be_read(cuda, tmp_path):
    (tmp_path / "0.jpg").write_bytes(b"no image")
    assert not decodes_on_gpu(Extraction(decoder="auto", workers=0), Photos.all(Paths([tmp_path / "0.jpg"])), 224)


BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "features.py"


def test_features_and_labels_of_real_images_are_written(photos, tmp_path, capsys):
    out = tmp_path / "f.npz"
    main = runpy.run_path(str(BENCHMARK))["main"]
    main(["random/tiny", "--data", str(photos), "--size", "16", "--out", str(out)])
    arrays, split = np.load(out), load_data(str(photos), 16).train
    assert arrays["labels"].tolist() == split.labels.tolist()
    expected = features_of(load_encoder("random/tiny", size=16), split)
    assert np.array_equal(arrays["features"], expected.numpy())
    assert "30 images, 256 features, 3 classes" in capsys.readouterr().out
