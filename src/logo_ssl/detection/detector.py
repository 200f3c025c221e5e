"""How does an encoder become a detector? Its stages feed torchvision's proposals and heads: ResNet-C4, or a pyramid."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads
from torchvision.ops import MultiScaleRoIAlign

from ..models.batch_norm import BatchNorm, set_uneven
from .body import STAGES, body_of, stride_at_conv4, width
from .c4 import C4Heads, C4Pool, Conv5
from .draws import Draws, Sampler
from .proposals import proposals_on
from .recipe import DetectorConfig
from .scales import Scales

PYRAMID, HIDDEN, MASK_WIDTH = 256, 1024, 256
OBJECTS = 0.25
"""The largest share of objects among the regions that the head learns from."""
OVERLAPS = {"fg_iou_thresh": 0.5, "bg_iou_thresh": 0.5, "positive_fraction": OBJECTS, "bbox_reg_weights": None}


class Judge(FastRCNNPredictor):
    """torchvision's, in float32 as proposals are, from small weights; offsets for every class."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__(in_channels, num_classes)
        for layer, spread in ((self.cls_score, 0.01), (self.bbox_pred, 0.001)):
            nn.init.normal_(layer.weight, std=spread)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and offsets of every region."""
        scores, offsets = super().forward(x)
        return scores.float(), offsets.float()


class Outliner(MaskRCNNPredictor):
    """torchvision's masks, from small weights."""

    conv5_mask: nn.ConvTranspose2d
    mask_fcn_logits: nn.Conv2d

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__(in_channels, MASK_WIDTH, num_classes)
        nn.init.normal_(self.mask_fcn_logits.weight, std=0.001)
        for bias in (self.conv5_mask.bias, self.mask_fcn_logits.bias):
            assert bias is not None
            nn.init.zeros_(bias)


class Detector(GeneralizedRCNN):
    """torchvision's, without its looks at every box of every batch, each of which waits for the device."""

    transform: Scales

    def __init__(
        self, backbone: nn.Module, rpn: nn.Module, roi_heads: nn.Module, transform: Scales, draws: Draws
    ) -> None:
        super().__init__(backbone, rpn, roi_heads, transform)
        self.draws = draws

    def forward(self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None) -> Any:
        """Losses in training, detections else; pictures are uint8, or floats from 0 to 1."""
        sizes = [(int(image.shape[1]), int(image.shape[2])) for image in images]
        shown, targets = self.transform(images, targets)
        features = self.backbone(shown.tensors)
        proposals, of_proposals = self.rpn(shown, features, targets)
        found, of_heads = self.roi_heads(features, proposals, shown.image_sizes, targets)
        return of_proposals | of_heads if self.training else self.transform.postprocess(found, shown.image_sizes, sizes)


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
) -> Detector:
    """Faster R-CNN, or with `masks` Mask R-CNN, on a copy of the encoder; class 0 is the background."""
    draws = Draws()
    body = body_of(encoder, config.norm)
    parts = (_c4 if config.head == "c4" else _fpn)(body, n_classes + 1, config, masks)
    parts.heads.fg_bg_sampler = Sampler(draws, "regions", config.regions, OBJECTS)
    proposals = proposals_on(parts.width, parts.anchors, config, draws)
    detector = Detector(parts.backbone, proposals, parts.heads, Scales(config, list(mean), list(std), draws), draws)
    set_uneven(detector)
    return detector


def _c4(body: Any, n_outputs: int, config: DetectorConfig, masks: bool) -> Parts:
    conv5 = Conv5(body.layer4)
    n_features = width(body.layer4)
    heads = C4Heads(
        C4Pool(stride_at_conv4(body)),
        conv5,
        Judge(n_features, n_outputs),
        **_settings(config),
        mask_predictor=Outliner(n_features, n_outputs) if masks else None,
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
        "mask_predictor": Outliner(PYRAMID, n_outputs),
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
