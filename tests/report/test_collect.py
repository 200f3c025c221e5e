"""Neighbours are the nearest, maps what they are called, and each thumbnail is on the page once."""

import base64
import io
import json
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from logo_ssl.data import ImageSet, Split
from logo_ssl.encoders import load_encoder
from logo_ssl.errors import UserError
from logo_ssl.knn import extract
from logo_ssl.recipes import read_recipe
from logo_ssl.report.affinity import load_measures
from logo_ssl.report.collect import NEAR, RunCollector, neighbours_and_map
from logo_ssl.report.gallery import (
    LEAST_FOR_TSNE,
    FeatureMap,
    Pictured,
    atlas,
    clustered,
    map_data,
    projections,
    thumbnail,
)
from logo_ssl.report.page import TEMPLATES, page
from logo_ssl.train import build
from logo_ssl.weights import digest


def neighbours(found):
    return str(TEMPLATES.get_template("parts.html").module.neighbours(found))


def unit_features(encoder, split):
    return F.normalize(extract(encoder.backbone, split.array, encoder.mean, encoder.std, encoder.size), dim=1)


@pytest.mark.parametrize("alone", [False, True])
def test_neighbours_are_the_most_alike_training_images(make_run, images, alone):
    """Without a test split each image is asked among all others."""
    encoder = load_encoder(str(make_run().path))
    data = ImageSet("blobs", images.train, None, images.classes) if alone else images
    asked, part = (images.train, "train") if alone else (images.test, "test")
    found = neighbours_and_map(encoder, data, 40, seed=0)
    similar = unit_features(encoder, asked) @ unit_features(encoder, images.train).T
    if alone:
        similar.fill_diagonal_(-1)
    nearest = images.train.labels[similar.argmax(dim=1)] == asked.labels
    assert found.right == pytest.approx(100 * nearest.double().mean().item())
    assert len({image.name for image in found.images[: found.asked]}) == found.asked == len(asked)
    assert ("there are no test images" in found.among) is alone
    for i, (near, cosines) in enumerate(zip(found.near, found.cosine, strict=True)):
        row = int(found.images[i].name.removeprefix(f"{part} image "))
        best = similar[row].topk(NEAR)
        assert [found.images[k].name for k in near] == [f"train image {k}" for k in best.indices.tolist()]
        assert cosines == pytest.approx(best.values.tolist(), abs=1e-5)
        assert found.images[i].label == images.classes[asked.labels[row]]


def test_too_few_images_are_a_user_error(make_run, images):
    encoder = load_encoder(str(make_run().path))
    few = ImageSet("few", images.train[torch.arange(3)], None, images.classes)
    with pytest.raises(UserError, match="few has 2"):
        neighbours_and_map(encoder, few, 40, seed=0)


def test_a_class_that_the_bank_lacks_leaves_the_share_of_right_ones_open(make_run, images):
    encoder = load_encoder(str(make_run().path))
    narrow = ImageSet("narrow", images.train[images.train.labels < 3], images.test, images.classes)
    assert neighbours_and_map(encoder, narrow, 40, seed=0).right is None


def test_images_without_labels_are_all_shown_in_clusters_and_have_neighbours_without_marks(make_run, images):
    encoder = load_encoder(str(make_run().path))
    found = neighbours_and_map(encoder, ImageSet("bare", Split(images.train.array), None), None, seed=0)
    text = neighbours(found)
    assert "right" not in text
    assert "wrong" not in text
    assert found.asked == len(images.train) == sum(cluster.size for cluster in found.clusters)
    data = map_data("run", found)
    assert [group["name"] for group in data["groups"]] == [f"cluster {i}" for i in (1, 2, 3, 4)]
    for k, cluster in enumerate(found.clusters):
        assert data["group"].count(k) == cluster.size
        assert all(data["group"][row] == k for row in cluster.examples)


def test_clusters_are_groups_of_features_that_are_alike(random):
    centres = torch.eye(4, 8, dtype=torch.float64).repeat_interleave(10, dim=0)
    clusters, of = clustered(F.normalize(centres + 0.05 * random(40, 8), dim=1).numpy(), 0)
    assert [cluster.size for cluster in clusters] == [10] * 4
    assert all(len(set(of[i : i + 10])) == 1 for i in range(0, 40, 10))


def test_marks_are_words_and_names_are_text():
    pixels = np.zeros((4, 6, 3), dtype=np.uint8)
    images = [Pictured(pixels, "q", "ash"), *(Pictured(pixels, "<i>a</i>.png", label) for label in ("ash", "elm"))]
    found = FeatureMap(images, [[1, 2]], [[0.5, 0.4]], "9 training images", "", {}, {}, 50.0)
    text = neighbours(found)
    assert text.count("\N{CHECK MARK} right") == 1
    assert text.count("\N{MULTIPLICATION X} wrong") == 1
    assert "<i>" not in text
    assert "&lt;i&gt;a&lt;/i&gt;.png" in text


def test_maps_of_few_or_equal_images_are_pca_alone(random):
    few = F.normalize(random(LEAST_FOR_TSNE - 1, 5), dim=1)
    assert set(projections(few.numpy(), 0)[0]) == {"PCA"}
    assert projections(np.ones((20, 5)), 0)[0]["PCA"].tolist() == [[0, 0]] * 20


def test_runs_that_saw_the_same_images_share_their_pictures(make_run):
    text = page(RunCollector(crops=False).collect([make_run("one"), make_run("two")]))
    seen = json.loads(re.search(r'id="seen">(.*?)</script>', text)[1])
    assert [each["run"] for each in seen["maps"]] == ["one", "two"]
    assert len(seen["atlases"]) == 1


def as_checkpoint(run, images, step=2):
    """Make a run unfinished: what it has learned is in a checkpoint."""
    recipe = read_recipe(run)
    module = build(recipe, images)
    content = {
        "state_dict": module.state_dict(),
        "recipe": recipe.to_json(),
        "mean": module.mean,
        "std": module.std,
        "kept": module.kept,
    }
    run.checkpoints.mkdir(exist_ok=True)
    torch.save(content | {"global_step": step, "steps_per_epoch": 2}, run.checkpoints / "new.ckpt")
    name = f"step-{step:09}-{digest(run.checkpoints / 'new.ckpt')}.ckpt"
    return (run.checkpoints / "new.ckpt").rename(run.checkpoints / name)


def test_an_unfinished_run_is_shown_by_its_newest_checkpoint(make_run, images):
    run = make_run()
    finished = load_measures(run, "cpu")
    run.backbone_file.unlink()
    run.heads_file.unlink()
    as_checkpoint(run, images)
    (told,) = RunCollector(crops=False).collect([run])
    assert told.collected.features
    assert told.collected.comparisons
    assert [missing.what for missing in told.collected.missing] == ["the finished encoder"]
    unfinished = load_measures(run, "cpu")
    for before, now in zip(finished.regressor.parameters(), unfinished.regressor.parameters(), strict=True):
        assert torch.equal(before, now)  # both are untrained, of one seed
    for before, now in zip(finished.projector.parameters(), unfinished.projector.parameters(), strict=True):
        assert torch.equal(before, now)


def test_a_run_that_goes_on_is_looked_at_now_and_then(make_run, images, monkeypatch):
    run, now = make_run(), [0.0]
    run.backbone_file.unlink()
    monkeypatch.setattr("logo_ssl.report.collect.time.monotonic", lambda: now[0])
    collector = RunCollector(crops=False)
    seen = list[str]()
    for step, at in ((0, 0.0), (2, 200.0), (4, 201.0), (4, 400.0)):
        now[0] = at
        if step:
            as_checkpoint(run, images, step)
        (told,) = collector.collect([run])
        seen += re.findall("no backbone|epoch . of 2", told.collected.missing[0].why)
    assert seen == ["no backbone", "epoch 1 of 2", "epoch 1 of 2", "epoch 2 of 2"]


def opened(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))


def test_small_images_are_not_enlarged_and_boxes_are_drawn():
    pixels = np.full((16, 32, 3), 128, dtype=np.uint8)
    assert opened(thumbnail(pixels, 96)).size == (32, 16)
    assert opened(thumbnail(pixels, 8)).size == (8, 4)
    boxed = opened(thumbnail(pixels, 96, (0, 0, 8, 16)))
    assert boxed.size == (96, 48)
    assert np.asarray(boxed.convert("L")).min() < 60


def test_an_atlas_has_each_image_at_its_place():
    greys = [np.full((20, 30, 3), 20 * i, dtype=np.uint8) for i in range(5)]
    found = atlas(greys)
    assert (found["side"], found["columns"]) == (30, 3)
    sheet = np.asarray(opened(found["src"]).convert("L"))
    assert sheet.shape == (60, 90)
    for i in range(5):
        assert abs(int(sheet[30 * (i // 3) + 15, 30 * (i % 3) + 15]) - 20 * i) < 6


@pytest.mark.parametrize(
    ("file", "content", "what"),
    [
        ("heads_file", None, "affinities"),
        ("heads_file", b"torn", "affinities"),
        ("backbone_file", None, "neighbours, maps and affinities"),
        ("backbone_file", b"torn", "neighbours, maps and affinities"),
    ],
)
def test_a_missing_or_torn_file_costs_what_needs_it_only(file, content, what, make_run):
    run = make_run()
    getattr(run, file).unlink()
    if content is not None:
        getattr(run, file).write_bytes(content)
    (told,) = RunCollector().collect([run])
    assert told.collected.crops is not None
    assert (told.collected.features is None) == (file == "backbone_file")
    assert list(told.collected.comparisons) == []
    assert [missing.what for missing in told.collected.missing] == [what]
