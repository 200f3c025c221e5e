"""Does the affinity figure show what the run's own networks say, and does the ranking count right?"""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from logo_ssl import cli
from logo_ssl.data import load_data, locate
from logo_ssl.errors import UserError
from logo_ssl.report.affinity import (
    Reference,
    compare_rankings,
    find_reference,
    gather_pool,
    load_measures,
    reference_group,
    slide,
    spread_over,
    window_boxes,
)
from logo_ssl.report.commands import Affinity
from logo_ssl.strategies import LoGoConfig, MultiCropConfig, TwoViewConfig
from logo_ssl.system.randomness import stream


def test_each_task_ranks_its_own_crops_and_the_difference_is_paired():
    image, labels = np.arange(6).repeat(2), np.array([0, 0, 1, 1, 2, 3])
    own = image[None] == np.arange(6)[:, None]
    same_class = labels[image][None] == labels[:, None]
    scores = {"learned": own.astype(float), "cosine": same_class.astype(float) - 2 * own}
    rows = {(row["task"], row["metric"]): row for row in compare_rankings(scores, image, labels)}
    assert rows["same image", "AUC"]["learned"] == {"mean": 1, "low": 1, "high": 1}
    assert rows["same image", "AUC"]["cosine"]["mean"] < 0.5
    assert rows["same image", "AUC"]["references"] == 6
    classes = rows["same class, other image", "AUC"]  # two classes have one image only
    assert classes["references"] == 4
    assert (classes["learned"]["mean"], classes["cosine"]["mean"]) == (0.5, 1)
    assert classes["difference"] == {"mean": -0.5, "low": -0.5, "high": -0.5}
    assert {task for task, _ in rows} == {"same image", "same class, other image"}
    assert {row["task"] for row in compare_rankings(scores, image, None)} == {"same image"}


def test_affinities_are_the_regressor_and_the_cosine_of_projected_latents_in_eval_mode(make_run, images):
    measures = load_measures(make_run(), "cpu")
    image = images.test.array[0]
    z = measures.encode(image, measures.draw(image, 7, stream(0, "x"))).z
    assert not any(part.training for part in (measures.encoder.backbone, measures.projector, measures.regressor))
    found = measures.affinities(z[:2], z[2:])
    for r in range(2):
        pairs = z[r].expand(5, -1), z[2:]
        np.testing.assert_allclose(found["learned"][r], measures.regressor(*pairs).numpy(), rtol=1e-5)
        np.testing.assert_allclose(found["cosine"][r], torch.cosine_similarity(*pairs).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": MultiCropConfig()},
        {"strategy": TwoViewConfig(), "crops__n_local": 0},
        {"strategy": LoGoConfig(affinity="cosine")},
    ],
)
def test_a_run_without_a_regressor_is_refused(make_run, changes):
    run = make_run(**changes)
    with pytest.raises(UserError, match="has no regressor"):
        cli.parse(["affinity", str(run.path)]).run()


def test_the_company_is_own_image_same_class_nearest_class_and_another(make_run, images):
    measures = load_measures(make_run(), "cpu")
    pool = gather_pool(images, measures.encoder, 16, 640, stream(0, "pool"))
    assert pool.part == "test"
    centres = {
        0: torch.tensor([1.0, 0.0]),
        1: torch.tensor([-1.0, 0.0]),
        2: torch.tensor([0.9, 0.1]),
        3: torch.zeros(2),
    }
    reference = Reference(pool.images[0], "first", 0)
    company = reference_group(reference, pool, centres, images.classes, measures, stream(0, "company"))
    own, same, near, other = company.members
    assert [len(member.boxes) for member in company.members] == [10] * 4
    assert own.role == "own image"
    assert same.role == "same class: ash"
    assert near.role == "nearest class by features: cedar"
    assert other.role.startswith("other class: ")
    assert torch.equal(own.image, reference.image)
    assert not torch.equal(same.image, reference.image)
    by_bytes = {image.numpy().tobytes(): label for image, label in zip(pool.images, pool.labels, strict=True)}
    assert [by_bytes[member.image.numpy().tobytes()] for member in (same, near)] == [0, 2]
    unlabelled = reference_group(reference._replace(label=None), pool, centres, (), measures, stream(0, "company"))
    assert [member.role for member in unlabelled.members] == ["own image", *["another image"] * 3]


def test_a_box_by_hand_is_x_y_w_h_in_pixels_of_the_file(make_run, images, tmp_path):
    encoder = load_measures(make_run(), "cpu").encoder
    file = tmp_path / "a:b photo.png"
    Image.fromarray(np.zeros((40, 80, 3), np.uint8)).save(file)
    reference = find_reference(f"{file}:20,10,40,20", images, encoder, max_side=40)
    assert reference.image.shape == (3, 20, 40)
    assert reference.box.tolist() == [[5, 10, 10, 20]]
    assert reference.label is None
    assert find_reference(str(file), images, encoder, max_side=0).box is None
    numbered = find_reference("5:0,0,16,16", images, encoder, 640)
    assert (numbered.label, numbered.box.tolist()) == (1, [[0, 0, 16, 16]])


def test_a_reference_among_the_images_has_its_class_by_whichever_way_it_is_named(make_run, tmp_path, monkeypatch):
    for place in ("photos/ash", "photos/elm", "ext"):
        (tmp_path / place).mkdir(parents=True)
    for place in ("ash/1.png", "elm/2.png"):
        Image.new("RGB", (16, 16)).save(tmp_path / "photos" / place)
    monkeypatch.chdir(tmp_path / "ext")
    encoder, data = load_measures(make_run(), "cpu").encoder, load_data(locate("../photos"), 16)
    for way in ("../photos/elm/2.png", "../photos/ash/../elm/2.png", str(tmp_path / "photos" / "elm" / "2.png")):
        assert find_reference(way, data, encoder, max_side=0).label == 1


WRONG = ["16", "nowhere.png", "nowhere:5.png", "5:0,0,17,4", "5:-1,0,4,4", "5:0,0,0,4", "5:0,0,16", "5:a,b,c,d",
         "5:1.5,2,8,8", "5:", "", "broken.png"]  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_reference_that_cannot_be_is_a_user_error(make_run, images, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(UserError, match="reference="):
        find_reference(text, images, load_measures(make_run(), "cpu").encoder, 640)


@pytest.mark.parametrize("wrong", [{"images": 3}, {"rows": 0}, {"out": "affinity.gif"}, {"out": "."}])
def test_what_would_fail_late_is_refused_first(make_run, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = {key: Path(value) if key == "out" else value for key, value in wrong.items()}
    with pytest.raises(UserError):
        Affinity(make_run().path, **wrong).run()


def test_windows_reach_every_edge_and_are_at_most_a_quarter_of_their_side_apart():
    boxes = window_boxes((30, 50), (0.4, 0.2))
    tops, lefts, heights, widths = boxes.unbind(dim=1)
    assert (heights.unique().tolist(), widths.unique().tolist()) == ([12], [10])
    for starts, side, length in ((tops.unique(), 12, 30), (lefts.unique(), 10, 50)):
        assert (int(starts[0]), int(starts[-1])) == (0, length - side)
        assert starts.diff().max() <= -(-side // 4)
    assert window_boxes((8, 8), (1.0, 1.0)).tolist() == [[0, 0, 8, 8]]


def test_a_pixel_has_the_mean_of_the_boxes_over_it():
    boxes = torch.tensor([[0, 0, 2, 2], [0, 1, 2, 2]])
    assert spread_over(np.array([1.0, 3.0]), boxes, (2, 3)).tolist() == [[1, 2, 3], [1, 2, 3]]


def test_heat_is_the_affinity_of_the_windows(make_run, images):
    measures = load_measures(make_run(), "cpu")
    image, box = images.test.array[0], torch.tensor([[0, 0, 16, 16]])
    z = measures.encode(image, box).z
    heat = slide(measures, z, image, (1.0, 1.0))
    expected = measures.affinities(z, z)
    np.testing.assert_allclose(heat["learned"], np.full((16, 16), expected["learned"]), rtol=1e-5)
    np.testing.assert_allclose(heat["cosine"], np.ones((16, 16)), rtol=1e-5)
