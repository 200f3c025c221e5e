"""Where might objects be? torchvision's proposals, with the anchors and losses of the protocol."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead

from .draws import Draws, Sampler
from .recipe import DetectorConfig

RATIOS = (0.5, 1.0, 2.0)
EXAMPLES, OBJECTS = 256, 0.5
"""Anchors of a picture to learn from, and the largest share of objects among them."""


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


class Proposer(RPNHead):
    """torchvision's, in float32: it decodes boxes in the type of their offsets."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Scores and offsets of every anchor on every map."""
        scores, offsets = super().forward(x)
        return [each.float() for each in scores], [each.float() for each in offsets]


class Proposals(RegionProposalNetwork):
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


def proposals_on(width: int, sizes: tuple[tuple[int, ...], ...], config: DetectorConfig, draws: Draws) -> Proposals:
    """Proposals on feature maps of a width, with anchors of these sizes on each."""
    anchors = Anchors(sizes, (RATIOS,) * len(sizes))
    proposals = Proposals(
        anchors,
        Proposer(width, anchors.num_anchors_per_location()[0]),
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=EXAMPLES,
        positive_fraction=OBJECTS,
        pre_nms_top_n=dict(zip(("training", "testing"), config.candidates, strict=True)),
        post_nms_top_n=dict(zip(("training", "testing"), config.proposals, strict=True)),
        nms_thresh=0.7,
    )
    proposals.fg_bg_sampler = Sampler(draws, "anchors", EXAMPLES, OBJECTS)
    return proposals
