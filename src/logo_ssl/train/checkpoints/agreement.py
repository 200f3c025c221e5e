"""When do several processes stop or save? At the same step: they ask each other every few seconds."""

import time

import torch
import torch.distributed as dist

from ...ranks import world_size

AGREE_S = 2.0  # seconds between two times that several processes ask each other whether to stop or to save
AGREE_STEPS = 20  # steps between them at most: the next ones may take longer than the last


class Agreement:
    """When several processes ask each other, and what they agree on: after a step, every `AGREE_S` seconds or so.

    Clocks differ between processes, so they count steps: as many as the slowest of them will make in that time.
    """

    def __init__(self, step: int = 0) -> None:
        self.step, self.due, self.since = step, step + 1, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether it is time; one process alone never minds."""
        return world_size() == 1 or step >= self.due

    def reach(self, wishes: tuple[int, int], step: int, device: torch.device) -> tuple[int, int]:
        """The largest of what all processes wish, in one message; with it they tell each other how long steps take."""
        each = (time.monotonic() - self.since) / max(1, step - self.step)
        told = torch.tensor([*wishes, each], dtype=torch.float32, device=device)
        dist.all_reduce(told, dist.ReduceOp.MAX)
        first, second, slowest = told.tolist()
        steps = min(AGREE_STEPS, max(1, int(AGREE_S / max(slowest, 1e-6))))
        self.step, self.due, self.since = step, step + steps, time.monotonic()
        return int(first), int(second)
