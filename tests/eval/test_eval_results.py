"""Every evaluation is kept under a name of its own, with what it was made of, and the same one only once."""

import json
from dataclasses import replace

import pytest
from torch import nn

from logo_ssl.data import ImageSet
from logo_ssl.errors import UserError
from logo_ssl.eval.encoder import FrozenEncoder, load_encoder
from logo_ssl.eval.finetune import finetune
from logo_ssl.eval.knn import knn
from logo_ssl.eval.linear import linear
from logo_ssl.eval.options import Extraction
from logo_ssl.eval.results import save
from logo_ssl.eval.transfer import transfer
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.train import build
from logo_ssl.train.weights import save_encoder

HOW = Extraction(device="cpu")


@pytest.fixture
def encoder(tmp_path, images: ImageSet) -> FrozenEncoder:
    recipe, run = find_recipe("tiny").changed(crops__global_size=16), Run(tmp_path / "run")
    save_encoder(run, build(recipe, images))
    run.recipe_file.write_text(recipe.to_json())
    return load_encoder(str(run.path))


def test_the_same_evaluation_replaces_itself_and_another_does_not(encoder, images: ImageSet):
    first = save("linear", {"top1": 1}, encoder, images, HOW, settings={"seed": 0})
    assert save("linear", {"top1": 2, "seconds": 3}, encoder, images, HOW, settings={"seed": 0}) == first
    assert json.loads(first.read_text())["top1"] == 2
    other = replace(
        images, train=replace(images.train, images=images.train.array.flip(0))
    )  # another folder of the name
    files = {
        first,
        save("knn", {}, encoder, images, HOW, settings={"seed": 0}),
        save("linear", {}, encoder, images, HOW, settings={"seed": 1}),
        save("linear", {}, encoder, other, HOW, settings={"seed": 0}),
        save("linear", {}, encoder, replace(images, test=None), HOW, settings={"seed": 0}),
        save("linear", {}, replace(encoder, size=24), images, HOW, settings={"seed": 0}),
        save("linear", {}, replace(encoder, std=(1.0,) * 3), images, HOW, settings={"seed": 0}),
    }
    assert len(files) == 7
    assert set(encoder.run.evaluation_file("x").parent.iterdir()) == files


def test_a_record_names_the_first_unreadable_images_and_counts_all(encoder, images: ImageSet):
    data, names = replace(images, root="/photos"), [f"/photos/{i}.png" for i in range(100_000)]
    record = json.loads(save("knn", {}, encoder, data, replace(HOW, unreadable=names)).read_text())
    assert record["unreadable_count"] == 100_000
    assert record["unreadable_images"] == [f"{i}.png" for i in range(100)]


def test_a_record_tells_where_its_data_were_and_what_they_are(encoder, images: ImageSet):
    said: list[str] = []
    data = replace(images, source="/somewhere/blobs")
    file = save("knn", {}, encoder, data, replace(HOW, say=said.append))
    record = json.loads(file.read_text())
    assert said == [f"Saved: {file}"]
    assert (record["data"], record["source"], record["recipe"]) == ("blobs", "/somewhere/blobs", "tiny")
    assert record["data_fingerprint"].keys() == {"train", "test"}
    assert record["data_fingerprint"]["train"] != record["data_fingerprint"]["test"]
    assert {"commit", "hardware", "versions", "crops"} <= record.keys()


def test_an_empty_split_is_recorded_too(encoder, images: ImageSet):
    file = save("transfer", {}, encoder, replace(images, test=images.test.thinned(0)), HOW)
    assert json.loads(file.read_text())["data_fingerprint"]["test"]


def on_one_set(encoder, data, how, **options):
    return transfer(encoder, ["dtd"], how, **options)


@pytest.mark.parametrize("protocol", [knn, linear, finetune, on_one_set])
def test_in_python_too_files_of_others_are_refused_before_the_work(encoder, images: ImageSet, tmp_path, protocol):
    out = tmp_path / "x.json"
    place = out.with_name("x-dtd.json") if protocol is on_one_set else out
    place.write_text("precious")
    idle = replace(encoder, backbone=nn.Module())  # which can do nothing
    for name, sentence in ((out, "--overwrite"), (tmp_path / "x.txt", r"out=.*\.txt")):
        with pytest.raises(UserError, match=sentence):
            list(protocol(idle, images, HOW, out=name))
    assert place.read_text() == "precious"


@pytest.mark.parametrize("protocol", [knn, linear, finetune, on_one_set])
def test_a_run_that_cannot_be_written_is_refused_before_the_work_unless_out_names_a_place(
    encoder, images: ImageSet, tmp_path, protocol
):
    encoder.run.evaluation_file("x").parent.touch()  # in the folder's place: root may write anywhere else
    idle = replace(encoder, backbone=nn.Module())
    with pytest.raises(UserError, match="cannot be written"):
        list(protocol(idle, images, HOW))
    if protocol is knn:
        assert list(knn(encoder, images, HOW, protocols=((5, 0.07),), out=tmp_path / "x.json"))


def test_in_python_a_file_is_replaced_if_that_is_said(encoder, images: ImageSet, tmp_path):
    out, how = tmp_path / "x.json", replace(HOW, cache=False)
    out.write_text("precious")
    list(knn(encoder, images, how, protocols=((5, 0.07),), out=out, overwrite=True))
    assert json.loads(out.read_text())["protocol"].startswith("weighted kNN")


def test_without_a_run_or_a_place_nothing_is_written(images: ImageSet, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert save("knn", {}, load_encoder("random/tiny", size=16), images, HOW) is None
    assert sorted(tmp_path.rglob("*")) == before


def test_figures_are_saved_without_the_noise_of_binary_fractions(encoder, images: ImageSet):
    noisy = {"top1": 100 * (0.1 + 0.188), "validation": {1 / 3: 1e-7 / 3}, "n": 3, "rows": ({"fine": True},)}
    saved = json.loads(save("linear", noisy, encoder, images, HOW).read_text())
    assert (saved["top1"], saved["n"], saved["rows"]) == (28.8, 3, [{"fine": True}])
    assert saved["validation"] == {"0.3333333333": 3.333333333e-08}
    assert saved["mean"] == list(encoder.mean)  # what is shown stays exact
