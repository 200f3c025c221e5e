"""The detector: the encoder's features, the protocol's numbers, losses and masks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_detectors import SMALL as RECIPE
from small_detectors import ThinResNet, small, untrained

from logo_ssl.detection import model as masking
from logo_ssl.detection.model import (
    EXAMPLES,
    Anchors,
    BalancedSampler,
    DetectionTransform,
    DetectorConfig,
    ImageRandomness,
    box_loss,
    build_detector,
    paste_masks,
    stride_at_conv4,
)
from logo_ssl.detection.train import batches_by_orientation
from logo_ssl.models import build_backbone

SMALL = replace(RECIPE.detector, longest=128, lowest_score=0.0)
PYRAMID = replace(SMALL, head="fpn", anchors=(8, 16, 32, 48, 64))
MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)


def encoder(name="resnet18", stem="imagenet"):
    """A ResNet whose batch norms have seen something."""
    torch.manual_seed(0)
    backbone = build_backbone(name, stem)
    with torch.no_grad():
        for key, value in backbone.state_dict().items():
            if "running" in key:
                value.uniform_(0.5, 1.5)
    return backbone.eval()


def conv4(backbone, images):
    kept = []
    hook = backbone.layer3.register_forward_hook(lambda module, inputs, output: kept.append(output))
    backbone(images)
    hook.remove()
    return kept[0]


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
@pytest.mark.parametrize("norm", ["trained", "frozen"])
@torch.no_grad()
def test_features_at_conv4_are_those_of_the_encoder(name, norm, generator):
    backbone = encoder(name)
    detector = build_detector(backbone, MEAN, STD, 3, replace(SMALL, norm=norm)).eval()
    images = torch.rand(2, 3, 64, 96, generator=generator)
    expected, found = conv4(backbone, images), detector.backbone(images)["0"]
    if norm == "trained":
        assert torch.equal(expected, found)
    else:  # frozen norms multiply in another order
        torch.testing.assert_close(expected, found, rtol=1e-3, atol=1e-3)
    assert stride_at_conv4(backbone) == images.shape[-1] // found.shape[-1]
    last = detector.roi_heads.box_head.layer4(found)
    torch.testing.assert_close(last, backbone.layer4(expected), rtol=1e-3, atol=1e-3)


def test_training_images_draw_their_side_and_test_images_have_one():
    detector = build_detector(encoder(), MEAN, STD, 3, replace(SMALL, short_sides=(32, 64), test_side=96))
    sides = set()
    for iteration in range(20):
        detector.draws.begin(0, iteration)
        sides.add(min(detector.transform([torch.rand(3, 50, 50)])[0].image_sizes[0]))
    assert sides == {32, 64}
    assert detector.eval().transform([torch.rand(3, 50, 50)])[0].image_sizes[0] == (96, 96)


def target(masks):
    box = {"boxes": torch.tensor([[8.0, 8.0, 40.0, 44.0]]), "labels": torch.tensor([2])}
    pixels = torch.zeros(1, 64, 64, dtype=torch.uint8)
    pixels[:, 8:44, 8:40] = 1
    return box | ({"masks": pixels} if masks else {})


def nothing(masks):
    none = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    return none | ({"masks": torch.zeros(0, 64, 64, dtype=torch.uint8)} if masks else {})


@pytest.mark.parametrize(
    ("config", "masks"),
    [(SMALL, False), (SMALL, True), (replace(PYRAMID, regions=4), True), (replace(SMALL, norm="frozen"), False)],
    ids=["c4", "c4 with masks", "fpn with masks", "frozen"],
)
def test_every_weight_learns_and_every_head_finds(config, masks, generator):
    detector = build_detector(ThinResNet(), MEAN, STD, 3, config, masks).train()
    images = list(torch.rand(2, 3, 64, 64, generator=generator))
    losses = detector(images, [target(masks), nothing(masks)])
    assert ("loss_mask" in losses) == masks
    sum(losses.values()).backward()
    assert not [name for name, weight in detector.named_parameters() if weight.grad is None]
    found = detector.eval()(images)
    assert found[0]["boxes"].shape[1] == 4
    assert set(found[0]["labels"].tolist()) <= {1, 2, 3}
    if masks:
        assert found[0]["masks"].shape[1:] == (1, 64, 64)


def test_anchors_and_losses_keep_32_bits_in_bfloat16():
    detector = build_detector(ThinResNet(), MEAN, STD, 3, SMALL, masks=True).train()
    with torch.autocast("cpu", torch.bfloat16):
        losses = detector([torch.rand(3, 64, 64)] * 2, [target(True)] * 2)
        shown = detector.transform([torch.rand(3, 64, 64)])[0]
        features = detector.backbone(shown.tensors)["0"]
        (anchors,) = detector.rpn.anchor_generator(shown, [features])
    assert features.dtype == torch.bfloat16
    assert {anchors.dtype, *(loss.dtype for loss in losses.values())} == {torch.float32}
    assert not torch.equal(anchors, anchors.bfloat16().float())
    sum(losses.values()).backward()


@pytest.fixture
def detector():
    torch.manual_seed(0)
    return build_detector(ThinResNet(), MEAN, STD, 3, DetectorConfig(), masks=True)


def test_anchors_have_the_area_of_their_size_and_are_not_rounded():
    (cells,) = Anchors(((32, 512),), ((0.5, 1.0, 2.0),)).cell_anchors
    widths, heights = (cells[:, 2:] - cells[:, :2]).unbind(1)
    torch.testing.assert_close(widths * heights, torch.tensor([32.0, 512.0]).repeat(3) ** 2)
    torch.testing.assert_close(heights / widths, torch.tensor([0.5, 1.0, 2.0]).repeat_interleave(2))
    torch.testing.assert_close(cells[:, :2], -cells[:, 2:])
    assert cells[0, 0] == pytest.approx(-32 / 2 / 0.5**0.5)


def test_losses_of_proposals_are_sums_over_as_many_examples_as_were_wished_for(detector, generator):
    labels = [torch.tensor([1.0, 0.0, -1.0, 1.0, 0.0])]  # -1: neither
    scores, offsets, truth = (torch.randn(5, n, generator=generator) for n in (1, 4, 4))
    by_score, by_box = detector.rpn.compute_loss(scores, offsets, labels, [truth])
    known = [0, 1, 3, 4]
    expected = sum(F.softplus(-scores[n, 0] if labels[0][n] else scores[n, 0]) for n in known)
    torch.testing.assert_close(by_score, expected / EXAMPLES)
    torch.testing.assert_close(by_box, sum((offsets[n] - truth[n]).abs().sum() for n in (0, 3)) / EXAMPLES)


def test_the_loss_of_boxes_is_l1_of_each_objects_class_over_all_regions(generator):
    moves, truth = torch.randn(4, 12, generator=generator), torch.randn(4, 4, generator=generator)
    labels = torch.tensor([0, 2, 0, 1])
    expected = (moves[1, 8:12] - truth[1]).abs().sum() + (moves[3, 4:8] - truth[3]).abs().sum()
    torch.testing.assert_close(box_loss(moves, labels, truth), expected / 4)
    assert box_loss(moves, torch.zeros(4, dtype=torch.long), truth) == 0


def test_numbers_that_no_option_changes_are_the_protocols(detector):
    rpn, heads = detector.rpn, detector.roi_heads
    assert (rpn.nms_thresh, heads.nms_thresh, heads.score_thresh, heads.detections_per_img) == (0.7, 0.5, 0.05, 100)
    assert (rpn.proposal_matcher.high_threshold, rpn.proposal_matcher.low_threshold) == (0.7, 0.3)
    assert (heads.proposal_matcher.high_threshold, heads.proposal_matcher.low_threshold) == (0.5, 0.5)
    for sampler, examples, share in ((rpn.fg_bg_sampler, 256, 0.5), (heads.fg_bg_sampler, 512, 0.25)):
        assert (sampler.batch_size_per_image, sampler.positive_fraction) == (examples, share)
    assert (rpn.box_coder.weights, heads.box_coder.weights) == ((1, 1, 1, 1), (10, 10, 5, 5))


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 333), (300, 1200), (640, 480)])
def test_images_are_resized_as_pillow_does(height, width):
    scales = DetectionTransform(DetectorConfig(), [0.0] * 3, [1.0] * 3, ImageRandomness()).eval()
    rng = np.random.default_rng(0)
    image = (
        rng.integers(0, 256, (height // 5, width // 5, 3), dtype=np.uint8).repeat(5, 0).repeat(5, 1)[:height, :width]
    )
    for side in (200, 800):
        shape = scales.shape(*image.shape[:2], side)
        assert min(shape) == side or max(shape) == 1333
        ours = scales._shown(torch.from_numpy(image).permute(2, 0, 1), shape).permute(1, 2, 0).numpy()
        theirs = np.asarray(Image.fromarray(image).resize(shape[::-1], Image.Resampling.BILINEAR)) / 255
        assert abs(ours - theirs).max() < 1.5 / 255  # theirs are rounded, twice


def test_boxes_and_masks_move_with_their_image(detector):
    target = {"boxes": torch.tensor([[10.0, 20.0, 30.0, 60.0]]), "labels": torch.tensor([1])}
    target["masks"] = torch.zeros(1, 80, 100, dtype=torch.uint8)
    target["masks"][:, 20:60, 10:30] = 1
    shown, (moved,) = detector.eval().transform([torch.zeros(3, 80, 100, dtype=torch.uint8)], [target])
    assert shown.image_sizes == [(800, 1000)]
    assert moved["boxes"].tolist() == [[100, 200, 300, 600]]
    assert moved["masks"][0, 200:600, 100:300].all()
    assert moved["masks"].sum() == 400 * 200
    assert target["boxes"].tolist() == [[10, 20, 30, 60]]


def test_examples_of_a_image_do_not_depend_on_who_else_is_there():
    draws = ImageRandomness()
    sampler = BalancedSampler(draws, "regions", 8, 0.25)
    labels = [(torch.arange(40) % (3 + n) == 0).float() for n in range(4)]
    together = [torch.stack(masks) for masks in sampler(labels)]
    draws.begin(0, 0, first=2)
    apart = [torch.stack(masks) for masks in sampler(labels[2:])]
    assert all(torch.equal(a[2:], b) for a, b in zip(together, apart, strict=True))
    assert [int(mask.sum()) for mask in together] == [8, 24]
    draws.begin(0, 1, first=2)
    assert not torch.equal(torch.stack(sampler(labels[2:])[1]), apart[1])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 7), st.integers(1, 20), st.integers(0, 3))
def test_batches_lie_or_stand_and_every_image_has_its_turn(landscape, batch_size, n_batches, seed):
    landscape = np.array(landscape)
    rows = batches_by_orientation(landscape, batch_size, n_batches, seed)
    assert rows.shape == (n_batches, batch_size)
    assert all(len(set(landscape[batch])) == 1 for batch in rows)
    assert np.array_equal(batches_by_orientation(landscape, batch_size, n_batches + 3, seed)[:n_batches], rows)
    for kind in (True, False):
        seen = [row for batch in rows for row in batch if landscape[row] == kind]
        alike = int((landscape == kind).sum())
        for start in range(0, len(seen) - alike + 1, max(alike, 1)):  # pass after pass
            assert len(set(seen[start : start + alike])) == alike


HEIGHT, WIDTH = 24, 31


def naive(mask, box, height=HEIGHT, width=WIDTH):
    """Bilinear between the centres of cells, zero beyond, at the centre of each pixel; in float64."""
    cells = len(mask)
    values = np.zeros((height, width))
    left, top, right, bottom = box

    def cell(row, column):
        return mask[row][column] if 0 <= row < cells and 0 <= column < cells else 0.0

    for y in range(height):
        for x in range(width):
            across = (x + 0.5 - left) / (right - left) * cells - 0.5
            down = (y + 0.5 - top) / (bottom - top) * cells - 0.5
            column, row = int(np.floor(across)), int(np.floor(down))
            for far_down in (0, 1):
                for far_across in (0, 1):
                    share = abs(1 - far_down - (down - row)) * abs(1 - far_across - (across - column))
                    values[y, x] += share * cell(row + far_down, column + far_across)
    return values


starts, sides = st.floats(-5, 20), st.floats(0.5, 30)
boxes = st.tuples(starts, starts, sides, sides).map(lambda b: (b[0], b[1], b[0] + b[2], b[1] + b[3]))


@settings(max_examples=60, deadline=None)
@given(boxes, st.integers(1, 7), st.integers(0, 99))
def test_masks_follow_the_continuous_mask(box, cells, seed):
    mask = np.random.default_rng(seed).random((cells, cells)).astype(np.float32)
    box = np.array(box, np.float32)
    expected = naive(mask.astype(np.float64), box.astype(np.float64))
    (found,) = paste_masks(torch.from_numpy(mask)[None], torch.from_numpy(box)[None], HEIGHT, WIDTH).numpy()
    clear = abs(expected - masking.INSIDE) > 1e-4  # elsewhere float32 may round to either side
    assert np.array_equal(found[clear], expected[clear] >= masking.INSIDE)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_what_was_found_is_brought_back_to_the_image_that_was_given(kind):
    scales = untrained(small(RECIPE, test_side=64), masks=True).eval().transform
    found = {"boxes": torch.tensor([[20.0, 10.0, 60.0, 50.0]]), "masks": torch.ones(1, 1, 14, 14, dtype=kind)}
    with torch.autocast("cpu", torch.bfloat16):
        (given_,) = scales.postprocess([found], [(64, 96)], [(32, 48)])
    assert given_["boxes"].tolist() == [[10, 5, 30, 25]]
    assert given_["masks"].shape == (1, 1, 32, 48)
    assert given_["masks"][0, 0, 5:25, 10:30].all()
    assert given_["masks"].sum() == 20 * 20
