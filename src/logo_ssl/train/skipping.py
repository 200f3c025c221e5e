"""What if a gradient is not finite? It counts as 0, and is counted; no step waits for that.

Momentum, weight decay and the statistics of batch norm go on, as after any step that teaches nothing new.
"""

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm


class Skipped(nn.Module):
    """Steps without a finite gradient, counted on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(4), persistent=False)
        """The encoder's, the regressor's, either in a row, and the most in a row."""

    def leave_out(self, gradients: list[Tensor], regressor_broken: Tensor) -> None:
        """Make the encoder's gradients 0 unless they are finite; count it, and whether the regressor's were."""
        broken = ~get_total_norm(gradients).isfinite()
        for gradient in gradients:
            gradient.masked_fill_(broken, 0)
        encoder, regressor, in_a_row, most = self.counts
        in_a_row = (in_a_row + 1) * (broken | regressor_broken)
        counts = (encoder + broken, regressor + regressor_broken, in_a_row, torch.maximum(most, in_a_row))
        self.counts.copy_(torch.stack(counts))

    def terms(self) -> dict[str, Tensor]:
        """What is logged, and watched."""
        encoder, regressor, _, most_in_a_row = self.counts
        return {"skipped": encoder, "skipped_by_regressor": regressor, "skipped_in_a_row": most_in_a_row}

    def reset(self) -> None:
        """Count from 0."""
        self.counts.zero_()
