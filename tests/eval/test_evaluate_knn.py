"""Does kNN of frozen features agree with scikit-learn, leave one out, and record how it was done?"""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from logo_ssl.data.files import Stamp
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier

from logo_ssl.data import ImageSet, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import Extraction, data_for, features_of, load_encoder
from logo_ssl.eval.chance import chance_of
from logo_ssl.eval.knn import PROTOCOLS, knn
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
    told = "blobs has no labelled test images; each training image is classified by all the others."
    counts = "60 images are classified by 59 training images, in 6 classes. "
    guesses = "Chance: 16.67 %; always the commonest training class: 16.67 %."
    assert said == [told, counts + guesses, f"Saved: {out}"]
    assert json.loads(out.read_text())["chance"] == 16.67
    assert "leave-one-out" in json.loads(out.read_text())["protocol"]


def test_as_many_neighbours_as_images_are_refused(encoder, images: ImageSet):
    with pytest.raises(UserError, match=r"k=200 needs more than 200 images .* blobs has 60 training images"):
        next(knn(encoder, images))
    with pytest.raises(UserError, match="k=60 needs more than 60 images to compare with, or all would vote"):
        next(knn(encoder, images, protocols=((60, 0.1),)))
    most = ((20, 0.07), (59, 0.1))
    results = dict(knn(encoder, images, protocols=most))
    assert list(results) == [f"knn top-{n}, k={k}, tau={tau}" for k, tau in most for n in (1, 5)]
    with pytest.raises(UserError, match="blobs has 1 training image for it"):
        next(knn(encoder, replace(images, train=images.train[torch.tensor([0, 1])], test=None), protocols=most))
    with pytest.raises(UserError, match=r"k=59 needs .* has 59 training images"):  # one is left out
        next(knn(encoder, replace(images, test=None), protocols=most))


@pytest.mark.parametrize(("n_train", "shown"), [(200, {20}), (201, {20, 200})])
def test_a_customary_k_is_shown_where_there_are_more_images_than_it(encoder, images: ImageSet, n_train, shown):
    said: list[str] = []
    data = replace(images, train=images.train[torch.arange(n_train) % 60])
    figures = knn(encoder, data, Extraction(say=said.append), protocols=None)
    assert {int(name.split("k=")[1].split(",")[0]) for name, _ in figures} == shown
    told = "k=200 is left out: there are only 200 training images of blobs to compare with, and all would vote."
    assert (told in said) == (200 not in shown)


def test_images_that_cannot_be_read_are_no_neighbours(encoder, photos):
    (photos / "b" / "4.png").write_bytes(b"")
    data, how = load_data(str(photos), 16), Extraction(workers=0)
    assert len(list(knn(encoder, data, how, protocols=((27, 0.07),)))) == 1
    with pytest.raises(UserError, match=r"k=28 needs .* photos has 28 training images for it; give"):
        next(knn(encoder, data, how, protocols=((28, 0.07),)))
    with pytest.raises(UserError, match=r"k=29 needs .* 29 training images for it, if all can be read;"):
        next(knn(encoder, data, how, protocols=((29, 0.07),)))  # before anything is read


def test_where_no_protocols_are_asked_for_those_that_fit_are_measured(encoder, photos, tmp_path):
    (photos / "b" / "4.png").write_bytes(b"")
    said: list[str] = []
    data, how = load_data(str(photos), 16), Extraction(workers=0, say=said.append)
    out = tmp_path / "knn.json"
    assert list(dict(knn(encoder, data, how, protocols=None, out=out))) == ["knn top-1, k=20, tau=0.07"]
    assert "k=200 is left out: there are only 28 training images of photos to compare with, and all would vote." in said
    assert [(row["k"], row["tau"]) for row in json.loads(out.read_text())["results"]] == [(20, 0.07)]
    few = replace(data, train=data.train[torch.arange(0, 30, 2)])
    with pytest.raises(UserError, match=r"k=20 needs more than 20 images .* photos has 14 training images"):
        next(knn(encoder, few, how, protocols=None))


def test_enough_images_are_measured_by_both_protocols_unasked(encoder, images: ImageSet):
    said: list[str] = []
    many = replace(images, train=images.train[torch.arange(60).repeat(4)])
    asked, unasked = (list(knn(encoder, many, Extraction(say=said.append), protocols=p)) for p in (PROTOCOLS, None))
    assert asked == unasked
    assert not any("k=200" in sentence for sentence in said)


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


def test_progress_is_shown(encoder, images: ImageSet):
    seen: dict[str, tuple[int, int]] = {}
    how = Extraction(progress=lambda what, done, total: seen.update({what: (done, total)}))
    list(knn(encoder, images, how, protocols=((5, 0.07),)))
    assert seen == {
        "features of training images": (60, 60),
        "features of test images": (24, 24),
        "nearest neighbours": (24, 24),
    }


def test_what_cannot_work_is_said(encoder, images: ImageSet):
    with pytest.raises(UserError, match="random/tiny is no run, so its data are unknown; name them with --data"):
        data_for(encoder, None)
    with pytest.raises(UserError, match=r"k 0 and tau 0.1"):
        next(knn(encoder, images, protocols=((0, 0.1),)))
    with pytest.raises(UserError, match="protocols is empty"):
        next(knn(encoder, images, protocols=()))
    with pytest.raises(UserError, match="has no labels"):
        next(knn(encoder, replace(images, train=replace(images.train, labels=None))))


def test_what_guessing_gives_depends_on_how_common_classes_are():
    bank, asked = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 1, 1])
    assert chance_of(asked, bank) == (4, 4, 2, 2, 100 * (0.75 * 0.25 + 0.25 * 0.75), 25.0)
    assert chance_of(asked, bank, per_class=True) == (4, 4, 2, 2, 50.0, 50.0)


def test_a_class_that_no_test_image_is_of_is_told():
    guesswork = chance_of(torch.tensor([0, 0, 2]), torch.tensor([0, 1, 2]))
    assert "in 3 classes, of which 2 are asked for. Chance: " in str(guesswork)
    assert guesswork.recorded["classes_asked_for"] == 2
    alone = str(chance_of(torch.tensor([2]), torch.tensor([0, 1, 2])))
    assert alone.startswith("1 image is classified by 3 training images, in 3 classes, of which 1 is asked for. ")
