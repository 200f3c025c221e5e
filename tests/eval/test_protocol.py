"""Every evaluation is kept under a name of its own, with what it was made of, and the same one only once."""

import json
import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, top_k_accuracy_score

from logo_ssl.data import ImageSet
from logo_ssl.encoders import FrozenEncoder, load_encoder
from logo_ssl.eval.features import Extraction
from logo_ssl.eval.protocol import about_data, mean_per_class, top1, top_k
from logo_ssl.eval.protocol import save as save_result

HOW = Extraction(device="cpu")


@pytest.fixture
def encoder(run) -> FrozenEncoder:
    return load_encoder(str(run.path))


def save(protocol, result, encoder, data, how, **options):
    return save_result(protocol, result | about_data(data, how), encoder, how, **options)


def test_the_same_evaluation_replaces_itself_and_another_does_not(encoder, images: ImageSet):
    first = save("linear", {"top1": 1}, encoder, images, HOW, settings={"seed": 0})
    assert save("linear", {"top1": 2, "seconds": 3}, encoder, images, HOW, settings={"seed": 0}) == first
    assert json.loads(first.read_text())["top1"] == 2
    flipped = replace(images.train, images=images.train.array.flip(0))
    files = {
        first,
        save("knn", {}, encoder, images, HOW, settings={"seed": 0}),
        save("linear", {}, encoder, images, HOW, settings={"seed": 1}),
        save("linear", {}, encoder, replace(images, train=flipped), HOW, settings={"seed": 0}),
        save("linear", {}, encoder, replace(images, test=None), HOW, settings={"seed": 0}),
        save("linear", {}, encoder, replace(images, test=images.test.thinned(0)), HOW, settings={"seed": 0}),
        save("linear", {}, replace(encoder, size=24), images, HOW, settings={"seed": 0}),
        save("linear", {}, replace(encoder, std=(1.0,) * 3), images, HOW, settings={"seed": 0}),
    }
    assert len(files) == 8
    assert set(encoder.run.evaluation_file("x").parent.iterdir()) == files


def test_a_record_tells_what_it_was_made_of_and_the_first_unreadable_images(encoder, images: ImageSet):
    data = replace(images, source="/somewhere/blobs", root="/photos")
    how = replace(HOW, unreadable=[f"/photos/{i}.png" for i in range(100_000)])
    record = json.loads(save("knn", {}, encoder, data, how).read_text())
    assert (record["data"], record["source"], record["recipe"]) == ("blobs", "/somewhere/blobs", "tiny")
    assert record["data_fingerprint"].keys() == {"train", "test"}
    assert record["data_fingerprint"]["train"] != record["data_fingerprint"]["test"]
    assert (record["encoder"], record["fingerprint"]) == (encoder.name, encoder.fingerprint)
    assert {"commit", "hardware", "versions", "crops", "seed"} <= record.keys()
    assert record["unreadable_count"] == 100_000
    assert record["unreadable_images"] == [f"{i}.png" for i in range(100)]


@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 40), st.integers(1, 8))
def test_accuracies_are_those_of_scikit_learn(seed, n_classes, n_images, k):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_images, n_classes, generator=generator)
    labels = torch.randint(0, n_classes, (n_images,), generator=generator)
    guess = scores.argmax(1)
    assert top1(scores, labels) == pytest.approx(100 * accuracy_score(labels, guess))
    with warnings.catch_warnings(action="ignore"):  # scikit-learn warns of guesses that no label bears
        expected = balanced_accuracy_score(labels, guess)
    assert mean_per_class(scores, labels) == pytest.approx(100 * expected)
    if n_classes > 2 and k < n_classes:
        expected = top_k_accuracy_score(labels, scores, k=k, labels=range(n_classes))
        assert top_k(scores, labels, k) == pytest.approx(100 * expected)


def test_a_class_without_images_does_not_count_and_five_guesses_name_three_classes():
    assert mean_per_class(torch.eye(4)[[0, 1, 1]], torch.tensor([0, 1, 0])) == pytest.approx(75)
    assert top_k(torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]), k=5) == 100
