"""Where does the chance of a picture come from? From (seed, iteration, place in the batch), whoever else is there."""

import torch
from torch import Tensor
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler

from ..randomness import stream


class Draws:
    """Which iteration it is, and which picture of the whole batch is the first of this process."""

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, seed: int, iteration: int, first: int = 0) -> None:
        """Say what comes next."""
        self.seed, self.iteration, self.first = seed, iteration, first

    def of(self, purpose: str, place: int) -> torch.Generator:
        """The stream of a picture, on the CPU."""
        return stream(self.seed, purpose, self.iteration, self.first + place)


class Sampler(BalancedPositiveNegativeSampler):
    """torchvision's choice of examples, with draws of each picture's own: processes can share a batch in any way."""

    def __init__(self, draws: Draws, purpose: str, examples: int, share: float) -> None:
        super().__init__(examples, share)
        self.draws, self.purpose = draws, purpose

    def __call__(self, matched_idxs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Masks of the objects and of the background to learn from, for each picture."""
        objects, background = [], []
        for place, labels in enumerate(matched_idxs):
            # by seed, not as numbers: the device draws for itself, and nothing is sent there
            torch.manual_seed(self.draws.of(self.purpose, place).initial_seed())
            for chosen, masks in zip(super().__call__([labels]), (objects, background), strict=True):
                masks += chosen
        return objects, background
