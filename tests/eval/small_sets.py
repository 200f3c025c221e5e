"""Small sets and encoders that several tests evaluate."""

import numpy as np
import torch
from torch import nn

from logo_ssl.data import Split
from logo_ssl.eval.options import Extraction

QUIET = Extraction(device="cpu", workers=0, cache=False)


class Pooled(nn.Module):
    """Mean colours as features: enough to tell classes of different colours apart."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


def colours(n: int, seed: int) -> Split:
    """Three classes of noisy colours."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    images = rng.integers(0, 120, (n, 3, 8, 8))
    images[np.arange(n), labels] += 90
    return Split(torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(labels))


def poisoned(split: Split) -> Split:
    """Every label is wrong."""
    return Split(split.images, (split.labels + 1) % 3)


def unbalanced(n: int, seed: int) -> Split:
    """Five images of the first two classes for every one of the third."""
    split = colours(n, seed)
    rows = torch.arange(n)
    return split[(split.labels < 2) | (rows % 5 == 0)]
