"""The detector on an encoder: ResNet-C4 or a feature pyramid, region proposals, box and mask heads, image sizes.

Its parts are torchvision's wherever these follow MoCo's protocol (detectron2); each class says where they do not.
"""

from collections import OrderedDict
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead, FastRCNNPredictor
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import RoIHeads, maskrcnn_inference, maskrcnn_loss
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import FrozenBatchNorm2d, MultiScaleRoIAlign, roi_align

from ..errors import UserError
from ..models.batch_norm import BatchNorm, set_uneven, with_our_batch_norm
from ..ranges import Allowed, BelowOne, Count, Side, check_ranges
from ..system.randomness import stream

Target = dict[str, Tensor]
"""Boxes, labels, and scores or masks, of one image."""
ImageSizes = list[tuple[int, int]]

STAGES = ("layer1", "layer2", "layer3", "layer4")
PARTS = ("conv1", "bn1", "relu", "maxpool", *STAGES)
PIXELS = 14
"""Of a region's side at conv4."""
Head = Literal["c4", "fpn"]
Norm = Literal["trained", "frozen"]
Pair = Annotated[tuple[int, int], Allowed(lambda pair: min(pair) > 0, "positive")]
Sizes = Annotated[tuple[int, ...], Allowed(lambda sizes: min(sizes, default=0) > 0, "positive")]
Sides = Annotated[tuple[int, ...], Allowed(lambda sides: min(sides, default=0) >= 8, "8 or more")]
LEVELS = 5
"""Of a feature pyramid."""


@dataclass(frozen=True)
class DetectorConfig:
    """What the detector is; defaults are those of ResNet-C4 in the protocol."""

    head: Head = "c4"
    """c4: conv4 for proposals and conv5 for the head; fpn: a feature pyramid."""
    norm: Norm = "trained"
    """Whether the encoder's batch norms are trained or frozen."""
    short_sides: Sides = tuple(range(480, 801, 32))
    """Short sides of training images in pixels; each image draws one."""
    test_side: Side = 800
    """Short side of test images in pixels."""
    longest: Side = 1333
    """Limit of the longer side in pixels."""
    anchors: Sizes = (32, 64, 128, 256, 512)
    """Sides of the anchors in pixels, at ratios 1:2, 1:1 and 2:1."""
    candidates: Pair = (12_000, 6_000)
    """Proposals before non-maximum suppression, in training and in testing."""
    proposals: Pair = (2_000, 1_000)
    """Proposals after non-maximum suppression, in training and in testing."""
    regions: Count = 512
    """Proposals of an image that the head learns from, up to a quarter of them objects."""
    lowest_score: BelowOne = 0.05
    """Detections with a lower score are left out."""
    most_detections: Count = 100
    """Detections of one image, at most."""

    def __post_init__(self) -> None:
        check_ranges(self)
        for name, sides in (("test_side", (self.test_side,)), ("short_sides", self.short_sides)):
            if max(sides) > self.longest:
                raise UserError(f"{name}={max(sides)}: must be at most longest={self.longest}.")
        if self.head == "fpn" and len(self.anchors) != LEVELS:
            raise UserError(f"anchors={self.anchors}: must be {LEVELS} sizes for fpn.")


def check_backbone(encoder: Any) -> None:
    """Raise a UserError for an encoder that cannot become a detector."""
    if not all(hasattr(encoder, part) for part in PARTS):
        raise UserError(f"Detection needs a ResNet such as resnet18; the encoder is a {type(encoder).__name__}.")
    if encoder.conv1.in_channels != 3:
        raise UserError(
            f"Detection needs an encoder of RGB images; this one takes {encoder.conv1.in_channels} channels."
        )


def width(stage: Any) -> int:
    """Channels that a stage of basic blocks or bottlenecks gives."""
    last = stage[-1]
    return getattr(last, "conv3", last.conv2).out_channels


def stride_at_conv4(body: Any) -> int:
    """Pixels of the image per pixel of conv4: 16, or 4 with a CIFAR stem."""
    pool = body.maxpool.stride if isinstance(body.maxpool, nn.MaxPool2d) else 1
    return body.conv1.stride[0] * pool * 4


def _freeze_norms(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, BatchNorm):
            fixed = FrozenBatchNorm2d(child.num_features, child.eps)
            fixed.load_state_dict({k: v for k, v in child.state_dict().items() if k != "num_batches_tracked"})
            setattr(module, name, fixed)
        else:
            _freeze_norms(child)


class ImageRandomness:
    """Random numbers of each image by (seed, iteration, place in the whole batch), whichever process has it."""

    seed = iteration = first = 0

    def begin(self, seed: int, iteration: int, first: int = 0) -> None:
        """Set the iteration, and the place of this process's first image in the whole batch."""
        self.seed, self.iteration, self.first = seed, iteration, first

    def of(self, purpose: str, place: int) -> torch.Generator:
        """The stream of an image, on the CPU."""
        return stream(self.seed, purpose, self.iteration, self.first + place)


class DetectionTransform(GeneralizedRCNNTransform):
    """Normalises, resizes and stacks images, and moves their boxes and masks along; brings back what was found.

    Training images draw their scale, test images have one. torchvision would send its mean, its deviation and four
    numbers for each image's boxes to the device one by one, and wait for each.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: DetectorConfig, mean: list[float], std: list[float], draws: ImageRandomness) -> None:
        super().__init__(config.test_side, config.longest, mean, std)
        self.config, self.draws = config, draws
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(
        self, images: list[Tensor], targets: list[Target] | None = None
    ) -> tuple[ImageList, list[Target] | None]:
        """The images as one tensor, each in its upper left corner, and what is in them."""
        shapes = [self.shape(image.shape[1], image.shape[2], self._side(place)) for place, image in enumerate(images)]
        shown = [self._shown(image, shape) for image, shape in zip(images, shapes, strict=True)]
        if targets is not None:
            pairs = zip(images, targets, shapes, strict=True)
            targets = [_moved(target, image.shape[1:], shape) for image, target, shape in pairs]
        return ImageList(self.batch_images(shown, self.size_divisible), shapes), targets

    def postprocess(
        self, result: list[Target], image_shapes: ImageSizes, original_image_sizes: ImageSizes
    ) -> list[Target]:
        """Boxes and masks [n 1 H W] of what was found, in pixels of the images that were given."""
        for found, shown, given in zip(result, image_shapes, original_image_sizes, strict=True):
            found["boxes"] = _resized(found["boxes"], shown, given)
            if "masks" in found:
                found["masks"] = paste_masks(found["masks"][:, 0], found["boxes"], *given)[:, None]
        return result

    def shape(self, height: int, width: int, side: int) -> tuple[int, int]:
        """Height and width with that short side, or with the longer one at its limit; whole pixels, rounded."""
        scale = min(side / min(height, width), self.config.longest / max(height, width))
        return max(int(height * scale + 0.5), 1), max(int(width * scale + 0.5), 1)

    def _side(self, place: int) -> int:
        if not self.training:
            return self.config.test_side
        sides = self.config.short_sides
        return sides[int(torch.randint(len(sides), (1,), generator=self.draws.of("side", place)))]

    def _shown(self, image: Shaped[Tensor, "3 H W"], shape: tuple[int, int]) -> Float[Tensor, "3 h w"]:
        pixels = image if image.is_floating_point() else image.float() / 255
        pixels = (pixels - self.mean) / self.std
        shrinks = shape[0] < image.shape[1]
        return F.interpolate(pixels[None], shape, mode="bilinear", align_corners=False, antialias=shrinks)[0]


def _moved(target: Target, before: torch.Size, after: tuple[int, int]) -> Target:
    """Boxes and masks of an image that was resized."""
    moved = target | {"boxes": _resized(target["boxes"], before, after)}
    if "masks" in target:
        moved["masks"] = F.interpolate(target["masks"][:, None].float(), after)[:, 0].byte()
    return moved


def _resized(boxes: Float[Tensor, "n 4"], before: Sequence[int], after: Sequence[int]) -> Float[Tensor, "n 4"]:
    """Boxes of an image whose height and width changed."""
    down, across = (new / old for new, old in zip(after, before, strict=True))
    left, top, right, bottom = boxes.unbind(1)
    return torch.stack((left * across, top * down, right * across, bottom * down), 1)


INSIDE = 0.5
AT_ONCE = 1 << 28
"""Pixels of all masks that are pasted together: 1 GiB of float32."""


def paste_masks(
    masks: Float[Tensor, "n M M"], boxes: Float[Tensor, "n 4"], height: int, width: int
) -> Bool[Tensor, "n {height} {width}"]:
    """Masks in their boxes, bilinear at the centre of every pixel, and 0 around them.

    torchvision rounds boxes to whole pixels and makes each one wider: masks of small objects are a tenth too large.
    """
    n, cells = max(1, AT_ONCE // (height * width)), masks.shape[-1]
    pasted = []
    with torch.autocast(masks.device.type, enabled=False):
        for part, places in zip(masks.float().split(n), boxes.float().split(n), strict=True):
            left, top, right, bottom = places.unbind(1)
            rows, columns = _cell_weights(top, bottom, height, cells), _cell_weights(left, right, width, cells)
            pasted.append(rows @ part @ columns.mT >= INSIDE)
    return torch.cat(pasted)


def _cell_weights(
    begin: Float[Tensor, " n"], end: Float[Tensor, " n"], pixels: int, cells: int
) -> Float[Tensor, "n _ _"]:
    """How much of each cell a pixel's centre sees along one side: all at the cell's centre, none a cell further on."""
    centres = torch.arange(pixels, device=begin.device) + 0.5
    seen = (centres - begin[:, None]) / (end - begin)[:, None] * cells - 0.5
    return (1 - (seen[..., None] - torch.arange(cells, device=begin.device)).abs()).clamp(0)


class C4Pool(MultiScaleRoIAlign):
    """Regions of one feature map, without torchvision's shift by half a pixel."""

    def __init__(self, stride: int) -> None:
        super().__init__(["0"], PIXELS, 0)
        self.stride = stride

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: ImageSizes) -> Tensor:
        """The pixels of each box, bilinear: [n C 14 14], channels last in memory if they are so in the map."""
        regions = roi_align(x["0"], boxes, PIXELS, 1 / self.stride, sampling_ratio=0, aligned=True)
        last = x["0"].is_contiguous(memory_format=torch.channels_last)
        return regions.contiguous(memory_format=torch.channels_last) if last else regions


class C4Heads(RoIHeads):
    """Boxes and, with a mask predictor, masks from the same features of conv5, as in the protocol.

    torchvision's own heads would compute conv5 again for masks, on objects only, and with other statistics of batch
    norms.
    """

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: ImageSizes,
        targets: list[Target] | None = None,
    ) -> tuple[list[Target], dict[str, Tensor]]:
        """Losses in training, detections else."""
        if self.training:
            return [], self._losses(features, proposals, image_shapes, targets)
        maps = self._maps(features, proposals, image_shapes)
        logits, offsets = self.box_predictor(maps.mean((2, 3)))
        boxes, scores, labels = self.postprocess_detections(logits, offsets, proposals, image_shapes)
        found = [
            {"boxes": box, "scores": score, "labels": label}
            for box, score, label in zip(boxes, scores, labels, strict=True)
        ]
        if self.mask_predictor is not None:
            logits = self.mask_predictor(self._maps(features, boxes, image_shapes))
            for each, masks in zip(found, maskrcnn_inference(logits, labels), strict=True):
                each["masks"] = masks
        return found, {}

    def _maps(self, features: dict[str, Tensor], boxes: list[Tensor], shapes: ImageSizes) -> Tensor:
        return self.box_head(self.box_roi_pool(features, boxes, shapes))

    def _losses(
        self, features: dict[str, Tensor], proposals: list[Tensor], shapes: ImageSizes, targets: Any
    ) -> dict[str, Tensor]:
        proposals, matched, labels, offsets = self.select_training_samples(proposals, targets)
        maps = self._maps(features, proposals, shapes)
        logits, moves = self.box_predictor(maps.mean((2, 3)))
        truth = torch.cat(labels)
        losses = {
            "loss_classifier": F.cross_entropy(logits, truth),
            "loss_box_reg": box_loss(moves, truth, torch.cat(offsets)),
        }
        if self.mask_predictor is not None:
            objects = [label > 0 for label in labels]
            losses["loss_mask"] = maskrcnn_loss(
                self.mask_predictor(maps[torch.cat(objects)]),
                [boxes[rows] for boxes, rows in zip(proposals, objects, strict=True)],
                [target["masks"] for target in targets],
                [target["labels"] for target in targets],
                [numbers[rows] for numbers, rows in zip(matched, objects, strict=True)],
            )
        return losses


def box_loss(moves: Float[Tensor, "n outputs"], labels: Int[Tensor, " n"], truth: Float[Tensor, "n 4"]) -> Tensor:
    """L1 between the offsets of each object's own class and the true ones, over the number of all regions."""
    objects = torch.where(labels > 0)[0]
    of_class = moves.unflatten(1, (-1, 4))[objects, labels[objects]]
    return F.l1_loss(of_class, truth[objects], reduction="sum") / max(len(labels), 1)


class BalancedSampler(BalancedPositiveNegativeSampler):
    """torchvision's choice of examples, with draws of each image's own: processes can share a batch in any way."""

    def __init__(self, draws: ImageRandomness, purpose: str, examples: int, share: float) -> None:
        super().__init__(examples, share)
        self.draws, self.purpose = draws, purpose

    def __call__(self, matched_idxs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Masks of the objects and of the background to learn from, for each image."""
        objects, background = [], []
        for place, labels in enumerate(matched_idxs):
            # by seed, not as numbers: the device draws for itself, and nothing is sent there
            torch.manual_seed(self.draws.of(self.purpose, place).initial_seed())
            for chosen, masks in zip(super().__call__([labels]), (objects, background), strict=True):
                masks += chosen
        return objects, background


RATIOS = (0.5, 1.0, 2.0)
EXAMPLES, ANCHOR_OBJECTS = 256, 0.5
"""Anchors of an image to learn from, and the largest share of objects among them."""


class Anchors(AnchorGenerator):
    """torchvision's, neither rounded to pixels nor to the type of the features: bfloat16 knows 1000 px to 4."""

    def set_cell_anchors(self, dtype: torch.dtype, device: torch.device) -> None:
        """Bring them to a device."""
        super().set_cell_anchors(torch.float32, device)

    def generate_anchors(
        self,
        scales: Sequence[int],
        aspect_ratios: Sequence[float],
        dtype: torch.dtype = torch.float32,
        device: torch.device = torch.device("cpu"),  # noqa: B008 (as torchvision has it)
    ) -> Tensor:
        """Boxes around the origin: each ratio (height to width) in each size."""
        sides = torch.as_tensor(scales, dtype=dtype, device=device)
        stretch = torch.as_tensor(aspect_ratios, dtype=dtype, device=device).sqrt()
        widths, heights = (factor[:, None] * sides[None] for factor in (1 / stretch, stretch))
        return torch.stack((-widths, -heights, widths, heights), 2).flatten(0, 1) / 2


class ProposalHead(RPNHead):
    """torchvision's, in float32: it decodes boxes in the type of their offsets."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Scores and offsets of every anchor on every map."""
        scores, offsets = super().forward(x)
        return [each.float() for each in scores], [each.float() for each in offsets]


class RegionProposals(RegionProposalNetwork):
    """torchvision's, with plain L1 between offsets, and every sum over as many examples as were wished for."""

    def compute_loss(
        self,
        objectness: Tensor,
        pred_bbox_deltas: Tensor,
        labels: Sequence[Tensor],
        regression_targets: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Losses of scores and of offsets."""
        objects, background = (torch.cat(masks).bool() for masks in self.fg_bg_sampler([*labels]))
        wished = EXAMPLES * len(labels)
        found, chosen = torch.where(objects)[0], torch.where(objects | background)[0]
        truth = torch.cat([*labels])[chosen]
        by_score = F.binary_cross_entropy_with_logits(objectness.flatten()[chosen], truth, reduction="sum")
        by_box = F.l1_loss(pred_bbox_deltas[found], torch.cat([*regression_targets])[found], reduction="sum")
        return by_score / wished, by_box / wished


PYRAMID, HIDDEN, MASK_WIDTH = 256, 1024, 256
OBJECTS = 0.25
"""The largest share of objects among the regions that the head learns from."""


class BoxPredictor(FastRCNNPredictor):
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


def mask_predictor(in_channels: int, num_classes: int) -> MaskRCNNPredictor:
    """torchvision's, from small weights."""
    predictor: Any = MaskRCNNPredictor(in_channels, MASK_WIDTH, num_classes)
    nn.init.normal_(predictor.mask_fcn_logits.weight, std=0.001)
    for layer in (predictor.conv5_mask, predictor.mask_fcn_logits):
        nn.init.zeros_(layer.bias)
    return predictor


class Detector(GeneralizedRCNN):
    """torchvision's, without its looks at every box of every batch, each of which waits for the device."""

    transform: DetectionTransform
    draws: ImageRandomness

    def forward(self, images: list[Tensor], targets: list[Target] | None = None) -> Any:
        """Losses in training, detections else; images are uint8, or floats from 0 to 1."""
        sizes = [(int(image.shape[1]), int(image.shape[2])) for image in images]
        shown, targets = self.transform(images, targets)
        features = self.backbone(shown.tensors)
        proposals, of_proposals = self.rpn(shown, features, targets)
        found, of_heads = self.roi_heads(features, proposals, shown.image_sizes, targets)
        return of_proposals | of_heads if self.training else self.transform.postprocess(found, shown.image_sizes, sizes)


def build_detector(
    encoder: nn.Module,
    mean: Sequence[float],
    std: Sequence[float],
    n_classes: int,
    config: DetectorConfig,
    masks: bool = False,
) -> Detector:
    """Faster R-CNN, or with `masks` Mask R-CNN, on a copy of the encoder; class 0 is the background."""
    check_backbone(encoder)
    draws = ImageRandomness()
    body: Any = with_our_batch_norm(deepcopy(encoder).cpu()).requires_grad_(True).train()
    if config.norm == "frozen":
        _freeze_norms(body)
    backbone, n_features, sizes, heads = (_c4 if config.head == "c4" else _fpn)(body, n_classes + 1, config, masks)
    heads.fg_bg_sampler = BalancedSampler(draws, "regions", config.regions, OBJECTS)
    anchors = Anchors(sizes, (RATIOS,) * len(sizes))
    proposals = RegionProposals(
        anchors,
        ProposalHead(n_features, anchors.num_anchors_per_location()[0]),
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=EXAMPLES,
        positive_fraction=ANCHOR_OBJECTS,
        pre_nms_top_n=dict(zip(("training", "testing"), config.candidates, strict=True)),
        post_nms_top_n=dict(zip(("training", "testing"), config.proposals, strict=True)),
        nms_thresh=0.7,
    )
    proposals.fg_bg_sampler = BalancedSampler(draws, "anchors", EXAMPLES, ANCHOR_OBJECTS)
    transform = DetectionTransform(config, list(mean), list(std), draws)
    detector = Detector(backbone, proposals, heads, transform)
    detector.draws = draws
    set_uneven(detector)
    return detector


Parts = tuple[nn.Module, int, tuple[tuple[int, ...], ...], RoIHeads]
"""What differs between the heads: backbone, channels, sizes of the anchors on each map, heads."""


def _c4(body: Any, n_outputs: int, config: DetectorConfig, masks: bool) -> Parts:
    n_features = width(body.layer4)
    # the encoder's last stage, and a batch norm that brings its features to a scale
    conv5 = nn.Sequential(OrderedDict(layer4=body.layer4, norm=BatchNorm(n_features)))
    heads = C4Heads(
        C4Pool(stride_at_conv4(body)),
        conv5,
        BoxPredictor(n_features, n_outputs),
        **_settings(config),
        mask_predictor=mask_predictor(n_features, n_outputs) if masks else None,
    )
    return IntermediateLayerGetter(body, {"layer3": "0"}), width(body.layer3), (config.anchors,), heads


def _fpn(body: Any, n_outputs: int, config: DetectorConfig, masks: bool) -> Parts:
    levels = {stage: str(i) for i, stage in enumerate(STAGES)}
    widths = [width(getattr(body, stage)) for stage in STAGES]
    pyramid = BackboneWithFPN(body, levels, widths, PYRAMID, norm_layer=BatchNorm)
    names = list(levels.values())
    four = [PYRAMID] * 4
    with_masks = {
        "mask_roi_pool": MultiScaleRoIAlign(names, 14, 2),
        "mask_head": MaskRCNNHeads(PYRAMID, four, 1, norm_layer=BatchNorm),
        "mask_predictor": mask_predictor(PYRAMID, n_outputs),
    }
    heads = RoIHeads(
        MultiScaleRoIAlign(names, 7, 2),
        FastRCNNConvFCHead((PYRAMID, 7, 7), four, [HIDDEN], norm_layer=BatchNorm),
        BoxPredictor(HIDDEN, n_outputs),
        **_settings(config),
        **(with_masks if masks else {}),
    )
    anchors = tuple((size,) for size in config.anchors)  # one for each level, and for the coarser that torchvision adds
    return pyramid, PYRAMID, anchors, heads


def _settings(config: DetectorConfig) -> dict[str, Any]:
    return {
        "fg_iou_thresh": 0.5,
        "bg_iou_thresh": 0.5,
        "positive_fraction": OBJECTS,
        "bbox_reg_weights": None,
        "batch_size_per_image": config.regions,
        "score_thresh": config.lowest_score,
        "nms_thresh": 0.5,
        "detections_per_img": config.most_detections,
    }
