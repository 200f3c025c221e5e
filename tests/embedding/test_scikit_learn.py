"""Does LoGoFeatures behave as scikit-learn expects of a transformer?"""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

import logo_ssl
from logo_ssl import LoGoFeatures
from logo_ssl.embedding.scikit_learn import _seed
from logo_ssl.errors import UserError

MUST_PASS = {
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_estimators_unfitted",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_transformers_unfitted",
}


class SaidToTakeTables(LoGoFeatures):
    """Tags say that it takes no tables, at which scikit-learn leaves out nearly every check."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


@pytest.fixture
def paths(photos):
    return [str(path) for path in sorted(photos.rglob("*.png"))]


@pytest.fixture
def features():
    return LoGoFeatures("random/tiny", size=16, workers=0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_checks_pass_where_they_apply(features):
    check_estimator(features)
    estimator = SaidToTakeTables("random/tiny", size=16, workers=0)
    results = check_estimator(estimator, on_fail=None)  # many checks feed tables of numbers, and fail
    assert {result["check_name"] for result in results if result["status"] == "passed"} >= MUST_PASS


def test_features_are_those_of_embed_whatever_the_order(features, paths):
    expected = logo_ssl.embed(logo_ssl.load("random/tiny", size=16), paths, workers=0).vectors
    assert np.array_equal(features.fit_transform(paths), expected)
    assert np.array_equal(features.fit(paths).transform(np.array(paths)[:, None]), expected)  # a column of a table
    np.testing.assert_allclose(features.transform(paths[::-1]), expected[::-1], rtol=1e-4, atol=1e-5)
    one_by_one = np.concatenate([features.transform([path]) for path in paths])
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-4, atol=1e-5)
    assert len(features.get_feature_names_out()) == expected.shape[1]
    for copy in (pickle.loads(pickle.dumps(features)), clone(features).fit(paths)):
        assert np.array_equal(copy.transform(paths), expected)


def test_without_an_encoder_fitting_pretrains_one(paths, tmp_path, capsys):
    features = LoGoFeatures(recipe="tiny", out=tmp_path / "run", epochs=1, device="cpu", workers=0, random_state=3)
    vectors = features.fit_transform(paths)
    assert vectors.shape == (len(paths), 256)
    saved = logo_ssl.load(tmp_path / "run")
    assert np.array_equal(logo_ssl.embed(saved, paths, workers=0).vectors, vectors)
    assert capsys.readouterr().out == ""
    images = np.random.default_rng(0).integers(0, 256, (8, 3, 16, 16), np.uint8)
    beside = LoGoFeatures(epochs=1, device="cpu", workers=0).fit_transform(images)
    assert beside.shape == (8, 256)
    assert sorted(child.name for child in tmp_path.iterdir()) == ["photos", "run", "run-images.txt"]


@pytest.mark.parametrize("given", [[], "one.jpg", [[1.0, 2.0]]])
def test_what_is_no_list_of_images_is_told(features, given):
    with pytest.raises(UserError, match="list of paths"):
        features.fit(given)


def test_an_unreadable_image_is_an_error(features, paths, photos):
    with pytest.raises(UserError, match=r"bad\.jpg"):
        features.fit(paths).transform([*paths, str(photos / "a" / "bad.jpg")])


QUICK = {"recipe": "tiny", "epochs": 1, "device": "cpu", "workers": 0}


def test_fitting_replaces_nothing(paths, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("precious")
    features = LoGoFeatures(out=tmp_path / "run", **QUICK).fit(paths).fit(paths)
    assert features.encoder_.about.run.path == tmp_path / "run-3"
    assert [child.name for child in (tmp_path / "run").iterdir()] == ["notes"]


def test_an_encoder_of_a_temporary_run_is_exported(paths, tmp_path):
    features = LoGoFeatures(random_state=np.random.RandomState(1), **QUICK).fit(paths)
    assert logo_ssl.export(features.encoder_, "safetensors", tmp_path / "x.safetensors").path.is_file()


def test_a_loaded_encoder_is_taken_and_left_as_it_is(features, paths):
    given = logo_ssl.load("random/tiny", size=24)
    expected = features.fit_transform(paths)
    for encoder in (given, given.about):
        taken = LoGoFeatures(encoder, size=16, workers=0)
        assert np.array_equal(taken.fit_transform(paths), expected)
        assert np.array_equal(clone(taken).fit_transform(paths), expected)
    assert given.about.size == given.transform.size == 24


def test_seeds_are_those_of_scikit_learn():
    assert _seed(np.int64(3)) == 3
    assert _seed(np.random.RandomState(1)) == _seed(np.random.RandomState(1)) != _seed(np.random.RandomState(2))
    assert 0 <= _seed(None) < 2**31
    with pytest.raises(ValueError, match="x"):
        _seed("x")
