"""Are anchors, losses, first weights, scales and batches those of the protocol, where torchvision's differ?"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from small_detectors import MEAN, STD
from thin import ThinResNet

from logo_ssl.detection.c4 import box_loss
from logo_ssl.detection.detector import build_detector
from logo_ssl.detection.draws import Draws, Sampler
from logo_ssl.detection.proposals import EXAMPLES, Anchors
from logo_ssl.detection.recipe import DetectorConfig
from logo_ssl.detection.samples import batches_alike
from logo_ssl.detection.scales import Scales


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


def test_heads_start_from_small_weights_without_bias(detector):
    judge, outliner = detector.roi_heads.box_predictor, detector.roi_heads.mask_predictor
    for layer, spread in ((judge.cls_score, 0.01), (judge.bbox_pred, 0.001), (outliner.mask_fcn_logits, 0.001)):
        assert layer.weight.std().item() == pytest.approx(spread, rel=0.2)
        assert not layer.bias.any()
    for layer in (detector.rpn.head.cls_logits, detector.rpn.head.bbox_pred):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.2)


def test_numbers_that_no_option_changes_are_the_protocols(detector):
    rpn, heads = detector.rpn, detector.roi_heads
    assert (rpn.nms_thresh, heads.nms_thresh, heads.score_thresh, heads.detections_per_img) == (0.7, 0.5, 0.05, 100)
    assert (rpn.proposal_matcher.high_threshold, rpn.proposal_matcher.low_threshold) == (0.7, 0.3)
    assert (heads.proposal_matcher.high_threshold, heads.proposal_matcher.low_threshold) == (0.5, 0.5)
    for sampler, examples, share in ((rpn.fg_bg_sampler, 256, 0.5), (heads.fg_bg_sampler, 512, 0.25)):
        assert (sampler.batch_size_per_image, sampler.positive_fraction) == (examples, share)
    assert (rpn.box_coder.weights, heads.box_coder.weights) == ((1, 1, 1, 1), (10, 10, 5, 5))


@pytest.mark.parametrize(("height", "width"), [(375, 500), (500, 333), (300, 1200), (640, 480)])
def test_pictures_are_resized_as_pillow_does(height, width):
    scales = Scales(DetectorConfig(), [0.0] * 3, [1.0] * 3, Draws()).eval()
    rng = np.random.default_rng(0)
    picture = (
        rng.integers(0, 256, (height // 5, width // 5, 3), dtype=np.uint8).repeat(5, 0).repeat(5, 1)[:height, :width]
    )
    for side in (200, 800):
        shape = scales.shape(*picture.shape[:2], side)
        assert min(shape) == side or max(shape) == 1333
        ours = scales._shown(torch.from_numpy(picture).permute(2, 0, 1), shape).permute(1, 2, 0).numpy()
        theirs = np.asarray(Image.fromarray(picture).resize(shape[::-1], Image.Resampling.BILINEAR)) / 255
        assert abs(ours - theirs).max() < 1.5 / 255  # theirs are rounded, twice


def test_boxes_and_masks_move_with_their_picture(detector):
    target = {"boxes": torch.tensor([[10.0, 20.0, 30.0, 60.0]]), "labels": torch.tensor([1])}
    target["masks"] = torch.zeros(1, 80, 100, dtype=torch.uint8)
    target["masks"][:, 20:60, 10:30] = 1
    shown, (moved,) = detector.eval().transform([torch.zeros(3, 80, 100, dtype=torch.uint8)], [target])
    assert shown.image_sizes == [(800, 1000)]
    assert moved["boxes"].tolist() == [[100, 200, 300, 600]]
    assert moved["masks"][0, 200:600, 100:300].all()
    assert moved["masks"].sum() == 400 * 200
    assert target["boxes"].tolist() == [[10, 20, 30, 60]]


def test_examples_of_a_picture_do_not_depend_on_who_else_is_there():
    draws = Draws()
    sampler = Sampler(draws, "regions", 8, 0.25)
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
def test_batches_lie_or_stand_and_every_picture_has_its_turn(lying, batch_size, n_batches, seed):
    lying = np.array(lying)
    rows = batches_alike(lying, batch_size, n_batches, seed)
    assert rows.shape == (n_batches, batch_size)
    assert all(len(set(lying[batch])) == 1 for batch in rows)
    assert np.array_equal(batches_alike(lying, batch_size, n_batches + 3, seed)[:n_batches], rows)
    for kind in (True, False):
        seen = [row for batch in rows for row in batch if lying[row] == kind]
        alike = int((lying == kind).sum())
        for start in range(0, len(seen) - alike + 1, max(alike, 1)):  # pass after pass
            assert len(set(seen[start : start + alike])) == alike
