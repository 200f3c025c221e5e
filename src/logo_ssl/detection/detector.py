"""How does an encoder become a detector? Its stages feed torchvision's proposals and heads: ResNet-C4, or a pyramid."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import MultiScaleRoIAlign

from ..models.norm import BatchNorm
from .body import STAGES, body_of, stride_at_conv4, width
from .c4 import C4Heads, C4Pool, Conv5
from .recipe import DetectorConfig

RATIOS = (0.5, 1.0, 2.0)
PYRAMID, HIDDEN, MASK_WIDTH = 256, 1024, 256
OVERLAPS = {"fg_iou_thresh": 0.5, "bg_iou_thresh": 0.5, "positive_fraction": 0.25, "bbox_reg_weights": None}


class Proposer(RPNHead):
    """torchvision's, in float32: it decodes boxes in the type of their offsets, and bfloat16 knows 1000 px to 4."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Scores and offsets of every anchor on every map."""
        scores, offsets = super().forward(x)
        return [each.float() for each in scores], [each.float() for each in offsets]


class Judge(FastRCNNPredictor):
    """torchvision's, in float32 for the same reason; offsets for every class."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and offsets of every region."""
        scores, offsets = super().forward(x)
        return scores.float(), offsets.float()


class Parts(NamedTuple):
    """What differs between the heads."""

    backbone: nn.Module
    width: int
    anchors: tuple[tuple[int, ...], ...]
    heads: RoIHeads


def build_detector(
    encoder: nn.Module,
    mean: Sequence[float],
    std: Sequence[float],
    n_classes: int,
    config: DetectorConfig,
    masks: bool = False,
) -> GeneralizedRCNN:
    """Faster R-CNN, or with `masks` Mask R-CNN, on a copy of the encoder; class 0 is the background."""
    body = body_of(encoder, config.norm)
    parts = (_c4 if config.head == "c4" else _fpn)(body, n_classes + 1, config, masks)
    anchors = AnchorGenerator(parts.anchors, (RATIOS,) * len(parts.anchors))
    proposals = RegionProposalNetwork(
        anchors,
        Proposer(parts.width, anchors.num_anchors_per_location()[0]),
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=256,
        positive_fraction=0.5,
        pre_nms_top_n=dict(zip(("training", "testing"), config.candidates, strict=True)),
        post_nms_top_n=dict(zip(("training", "testing"), config.proposals, strict=True)),
        nms_thresh=0.7,
    )
    scales: Any = ScalesByMode(config, list(mean), list(std))
    return GeneralizedRCNN(parts.backbone, proposals, parts.heads, scales)


class ScalesByMode(GeneralizedRCNNTransform):
    """Normalises and resizes: each training picture to a side by chance, each test picture to one of its own."""

    def __init__(self, config: DetectorConfig, mean: list[float], std: list[float]) -> None:
        # torchvision tests at the last of its sides
        super().__init__([*config.short_sides, config.test_side], config.longest, mean, std)  # type: ignore[arg-type]

    def torch_choice(self, k: list[int]) -> int:
        """One of the training sides."""
        return super().torch_choice(k[:-1])


def _c4(body: Any, n_outputs: int, config: DetectorConfig, masks: bool) -> Parts:
    conv5 = Conv5(body.layer4)
    n_features = width(body.layer4)
    heads = C4Heads(
        C4Pool(stride_at_conv4(body)),
        conv5,
        Judge(n_features, n_outputs),
        **_settings(config),
        mask_predictor=MaskRCNNPredictor(n_features, MASK_WIDTH, n_outputs) if masks else None,
    )
    return Parts(IntermediateLayerGetter(body, {"layer3": "0"}), width(body.layer3), (config.anchors,), heads)


def _fpn(body: Any, n_outputs: int, config: DetectorConfig, masks: bool) -> Parts:
    levels = {stage: str(i) for i, stage in enumerate(STAGES)}
    widths = [width(getattr(body, stage)) for stage in STAGES]
    pyramid = BackboneWithFPN(body, levels, widths, PYRAMID, norm_layer=BatchNorm)
    names = list(levels.values())
    four = [PYRAMID] * 4
    with_masks = {
        "mask_roi_pool": MultiScaleRoIAlign(names, 14, 2),
        "mask_head": MaskRCNNHeads(PYRAMID, four, 1, norm_layer=BatchNorm),
        "mask_predictor": MaskRCNNPredictor(PYRAMID, MASK_WIDTH, n_outputs),
    }
    heads = RoIHeads(
        MultiScaleRoIAlign(names, 7, 2),
        FastRCNNConvFCHead((PYRAMID, 7, 7), four, [HIDDEN], norm_layer=BatchNorm),
        Judge(HIDDEN, n_outputs),
        **_settings(config),
        **(with_masks if masks else {}),
    )
    anchors = tuple((size,) for size in config.anchors)  # one for each level, and for the coarser that torchvision adds
    return Parts(pyramid, PYRAMID, anchors, heads)


def _settings(config: DetectorConfig) -> dict[str, Any]:
    return OVERLAPS | {
        "batch_size_per_image": config.regions,
        "score_thresh": config.lowest_score,
        "nms_thresh": 0.5,
        "detections_per_img": config.most_detections,
    }
