"""Does an encoder become a detector without a change to its features, and do all its heads learn and find?"""

from dataclasses import replace

import pytest
import torch
from small_detectors import SMALL as RECIPE
from thin import ThinResNet

from logo_ssl.detection.body import stride_at_conv4
from logo_ssl.detection.detector import build_detector
from logo_ssl.errors import UserError
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


@torch.no_grad()
def test_features_of_a_pyramid_start_from_those_of_the_encoder(generator):
    backbone, images = encoder(), torch.rand(1, 3, 64, 64, generator=generator)
    detector = build_detector(backbone, MEAN, STD, 3, PYRAMID).eval()
    assert torch.equal(conv4(backbone, images), detector.backbone.body(images)["2"])


@torch.no_grad()
def test_a_picture_is_normalised_as_the_encoder_is_used_to(generator):
    detector = build_detector(encoder(), MEAN, STD, 3, SMALL).eval()
    picture = torch.rand(3, 64, 64, generator=generator)
    shown = detector.transform([picture])[0].tensors[0]
    torch.testing.assert_close(shown, (picture - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None])


def test_training_pictures_draw_their_side_and_test_pictures_have_one():
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
    pictures = list(torch.rand(2, 3, 64, 64, generator=generator))
    losses = detector(pictures, [target(masks), nothing(masks)])
    assert ("loss_mask" in losses) == masks
    sum(losses.values()).backward()
    assert not [name for name, weight in detector.named_parameters() if weight.grad is None]
    found = detector.eval()(pictures)
    assert found[0]["boxes"].shape[1] == 4
    assert set(found[0]["labels"].tolist()) <= {1, 2, 3}
    if masks:
        assert found[0]["masks"].shape[1:] == (1, 64, 64)


def test_frozen_norms_have_no_weights_but_the_extra_one():
    detector = build_detector(encoder(), MEAN, STD, 3, replace(SMALL, norm="frozen"))
    names = [name for name, _ in detector.named_parameters() if "bn" in name or "norm" in name]
    assert names == ["roi_heads.box_head.norm.weight", "roi_heads.box_head.norm.bias"]


def test_the_encoder_is_left_alone():
    backbone = ThinResNet()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    detector = build_detector(backbone, MEAN, STD, 3, SMALL).train()
    sum(detector([torch.rand(3, 64, 64)] * 2, [target(False)] * 2).values()).backward()
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert all(weight.grad is None for weight in backbone.parameters())


@torch.no_grad()
def test_boxes_keep_their_pixels_in_bfloat16():
    detector = build_detector(encoder(), MEAN, STD, 3, SMALL).eval()
    with torch.autocast("cpu", torch.bfloat16):
        found = detector([torch.rand(3, 64, 64)])
    assert found[0]["boxes"].dtype == torch.float32


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


def test_networks_that_are_no_resnets_are_refused():
    with pytest.raises(UserError, match="detection takes ResNets"):
        build_detector(build_backbone("tiny"), MEAN, STD, 3, SMALL)
    with pytest.raises(UserError, match="sees 1 channels"):
        build_detector(build_backbone("resnet18", channels=1), MEAN, STD, 3, SMALL)
