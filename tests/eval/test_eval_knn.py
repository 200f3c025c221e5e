"""kNN of frozen features agrees with scikit-learn, leaves one out, and records how it was done."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from logo_ssl.data import ImageSet, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval.encoder import load_encoder
from logo_ssl.eval.features import features_of
from logo_ssl.eval.knn import knn
from logo_ssl.eval.options import Extraction
from logo_ssl.eval.results import data_for
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.train import build
from logo_ssl.train.weights import save_encoder


@pytest.fixture
def encoder():
    return load_encoder("random/tiny", size=16)


def reference(k: int, tau: float) -> KNeighborsClassifier:
    return KNeighborsClassifier(k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / tau))


def test_knn_agrees_with_scikit_learn_on_the_same_features(encoder, images: ImageSet):
    results = dict(knn(encoder, images, protocols=((5, 0.07), (20, 0.1))))
    train, test = (features_of(encoder, split).double().numpy() for split in (images.train, images.test))
    for k, tau in ((5, 0.07), (20, 0.1)):
        fitted = reference(k, tau).fit(train, images.train.labels.numpy())
        truth = images.test.labels.numpy()
        assert results[f"knn top-1, k={k}, tau={tau}"] == pytest.approx(100 * fitted.score(test, truth))
        votes = fitted.predict_proba(test)
        top5 = [y in np.argsort(-v)[:5] and v[y] > 0 for v, y in zip(votes, truth, strict=True)]
        assert results[f"knn top-5, k={k}, tau={tau}"] == pytest.approx(100 * np.mean(top5))


def test_without_a_test_split_one_is_left_out(encoder, images: ImageSet, tmp_path):
    said: list[str] = []
    alone = replace(images, test=None)
    out = tmp_path / "knn.json"
    results = dict(knn(encoder, alone, Extraction(say=said.append), protocols=((7, 0.07),), out=out))
    features, labels = features_of(encoder, images.train).double().numpy(), images.train.labels.numpy()
    predicted = cross_val_predict(reference(7, 0.07), features, labels, cv=LeaveOneOut())
    assert results["knn top-1, k=7, tau=0.07"] == pytest.approx(100 * np.mean(predicted == labels))
    assert any("each training image is classified by all the others" in sentence for sentence in said)
    assert any("60 images classified by 59, 6 classes, chance 16.67 %" in sentence for sentence in said)
    assert json.loads(out.read_text())["chance"] == 16.67
    assert "leave-one-out" in json.loads(out.read_text())["protocol"]


def test_results_are_recorded_in_the_run_and_are_the_same_again(images: ImageSet, tmp_path):
    recipe = find_recipe("tiny").changed(crops__global_size=16, data=str(tmp_path / "set.npz"))
    arrays = {"train": images.train, "test": images.test}
    np.savez(
        tmp_path / "set.npz",
        **{f"{part}_images": split.array.permute(0, 2, 3, 1).numpy() for part, split in arrays.items()},
        **{f"{part}_labels": split.labels.numpy() for part, split in arrays.items()},
    )
    run = Run(tmp_path / "run")
    save_encoder(run, build(recipe, images))
    run.recipe_file.write_text(recipe.to_json())
    encoder = load_encoder(str(run.path))
    data = data_for(encoder, None)
    few = ((5, 0.07), (20, 0.1))
    first = list(knn(encoder, data, protocols=few))
    (file,) = run.evaluation_file("knn-set").parent.iterdir()
    saved = json.loads(file.read_text())
    assert {"protocol", "commit", "hardware", "versions", "seconds", "recipe", "seed", "crops"} <= saved.keys()
    assert (saved["encoder"], saved["fingerprint"]) == (encoder.name, encoder.fingerprint)
    assert (saved["train_images"], saved["test_images"], saved["classes"]) == (60, 24, 6)
    assert [(row["k"], row["tau"]) for row in saved["results"]] == [*few]
    how = Extraction(batch_size=7, cache=False)
    assert list(knn(load_encoder(str(run.path)), data, how, protocols=few)) == first
    assert list(file.parent.iterdir()) == [file]
    assert json.loads(file.read_text())["results"] == saved["results"]


def test_a_k_that_all_images_would_vote_in_is_refused_if_asked_for_else_left_out(encoder, images: ImageSet, tmp_path):
    with pytest.raises(UserError, match=r"k=200 must be below the 60 images of blobs"):
        next(knn(encoder, images))
    with pytest.raises(UserError, match=r"k=59 must be below the 59 images"):  # one is left out
        next(knn(encoder, replace(images, test=None), protocols=((20, 0.07), (59, 0.1))))
    assert len(dict(knn(encoder, images, protocols=((20, 0.07), (59, 0.1))))) == 4
    out = tmp_path / "knn.json"
    assert list(dict(knn(encoder, images, protocols=None, out=out))) == [f"knn top-{n}, k=20, tau=0.07" for n in (1, 5)]
    assert [(row["k"], row["tau"]) for row in json.loads(out.read_text())["results"]] == [(20, 0.07)]
    many = replace(images, train=images.train[torch.arange(60).repeat(4)])
    assert list(knn(encoder, many)) == list(knn(encoder, many, protocols=None))


def test_images_that_cannot_be_read_are_no_neighbours(encoder, photos):
    (photos / "b" / "4.png").write_bytes(b"")
    data, how = load_data(str(photos), 16), Extraction(workers=0)
    assert len(list(knn(encoder, data, how, protocols=((27, 0.07),)))) == 1
    with pytest.raises(UserError, match="below the 28 images of photos"):
        next(knn(encoder, data, how, protocols=((28, 0.07),)))


def test_top5_needs_more_than_five_classes_and_five_neighbours(encoder, images: ImageSet, photos):
    figures = dict(knn(encoder, images, protocols=((3, 0.07), (5, 0.07))))
    assert list(figures) == ["knn top-1, k=3, tau=0.07", "knn top-1, k=5, tau=0.07", "knn top-5, k=5, tau=0.07"]
    three = load_data(str(photos), 16)
    assert list(dict(knn(encoder, three, protocols=((5, 0.07),)))) == ["knn top-1, k=5, tau=0.07"]
