"""Features are the same however they are computed, and a cache of them is never wrong."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.data.images import FILES_READ
from logo_ssl.encoders import FrozenEncoder, load_encoder
from logo_ssl.errors import UserError
from logo_ssl.eval import features as features_module
from logo_ssl.eval.features import (
    Extraction,
    FeatureStore,
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
