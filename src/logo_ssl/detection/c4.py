"""How does ResNet-C4 judge a region? conv5 on 14 x 14 pixels of conv4, one more batch norm, and their mean.

Masks share what conv5 made of the region, as in the protocol; torchvision's own heads would compute it again, on
objects only, and with other statistics of batch norms.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchvision.models.detection.roi_heads import RoIHeads, maskrcnn_inference, maskrcnn_loss
from torchvision.ops import MultiScaleRoIAlign, roi_align

from ..models.batch_norm import BatchNorm
from .body import width

PIXELS = 14


class C4Pool(MultiScaleRoIAlign):
    """Regions of one feature map, without torchvision's shift by half a pixel."""

    def __init__(self, stride: int) -> None:
        super().__init__(["0"], PIXELS, 0)
        self.stride = stride

    def forward(self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]) -> Tensor:
        """The pixels of each box, bilinear: [n C 14 14], channels last in memory if they are so in the map."""
        regions = roi_align(x["0"], boxes, PIXELS, 1 / self.stride, sampling_ratio=0, aligned=True)
        last = x["0"].is_contiguous(memory_format=torch.channels_last)
        return regions.contiguous(memory_format=torch.channels_last) if last else regions


class Conv5(nn.Sequential):
    """The encoder's last stage, and a batch norm that brings its features to a scale."""

    def __init__(self, layer4: nn.Module) -> None:
        super().__init__()
        self.layer4 = layer4
        self.norm = BatchNorm(width(layer4))


class C4Heads(RoIHeads):
    """Boxes and, with a mask predictor, masks from the same features of conv5."""

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
        targets: list[dict[str, Tensor]] | None = None,
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
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

    def _maps(self, features: dict[str, Tensor], boxes: list[Tensor], shapes: list[tuple[int, int]]) -> Tensor:
        return self.box_head(self.box_roi_pool(features, boxes, shapes))

    def _losses(
        self, features: dict[str, Tensor], proposals: list[Tensor], shapes: list[tuple[int, int]], targets: Any
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
