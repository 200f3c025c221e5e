"""kNN of frozen features agrees with scikit-learn, and leaves one out if there is no test."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from small_sets import QUIET, listening, measured

from logo_ssl.data import ImageSet, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval.features import features_of
from logo_ssl.eval.knn import KNN


def reference(k: int, tau: float) -> KNeighborsClassifier:
    return KNeighborsClassifier(k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / tau))


def test_knn_agrees_with_scikit_learn_on_the_same_features(tiny, images: ImageSet):
    found = measured(KNN, tiny, images, protocols=((5, 0.07), (20, 0.1)))
    train, test = (features_of(tiny, split, QUIET).double().numpy() for split in (images.train, images.test))
    for k, tau in ((5, 0.07), (20, 0.1)):
        fitted = reference(k, tau).fit(train, images.train.labels.numpy())
        truth = images.test.labels.numpy()
        assert found.figures[f"knn top-1, k={k}, tau={tau}"] == pytest.approx(100 * fitted.score(test, truth))
        votes = fitted.predict_proba(test)
        top5 = [y in np.argsort(-v)[:5] and v[y] > 0 for v, y in zip(votes, truth, strict=True)]
        assert found.figures[f"knn top-5, k={k}, tau={tau}"] == pytest.approx(100 * np.mean(top5))


def test_without_a_test_split_one_is_left_out(tiny, images: ImageSet):
    found = measured(KNN, tiny, replace(images, test=None), protocols=((7, 0.07),))
    features, labels = features_of(tiny, images.train, QUIET).double().numpy(), images.train.labels.numpy()
    predicted = cross_val_predict(reference(7, 0.07), features, labels, cv=LeaveOneOut())
    assert found.figures["knn top-1, k=7, tau=0.07"] == pytest.approx(100 * np.mean(predicted == labels))
    assert found.record["chance"] == 16.67
    assert "leave-one-out" in found.record["protocol"]


def test_a_k_that_all_images_would_vote_in_is_left_out_and_refused_alone(tiny, images: ImageSet):
    alone = replace(images, test=None)
    for data, k in ((images, 60), (alone, 59)):  # one is left out
        with pytest.raises(UserError, match=f"k={k}"):
            measured(KNN, tiny, data, protocols=((k, 0.1),))
    how, said = listening()
    found = measured(KNN, tiny, images, how)
    assert list(found.figures) == [f"knn top-{n}, k=20, tau=0.07" for n in (1, 5)]
    assert [row["k"] for row in found.record["results"]] == [20]
    assert any("k=200" in sentence for sentence in said)


def test_images_that_cannot_be_read_are_no_neighbours(tiny, photos):
    (photos / "b" / "4.png").write_bytes(b"")
    data = load_data(str(photos), 16)
    assert len(measured(KNN, tiny, data, protocols=((27, 0.07),)).figures) == 1
    with pytest.raises(UserError, match="k=28"):
        measured(KNN, tiny, data, protocols=((28, 0.07),))
