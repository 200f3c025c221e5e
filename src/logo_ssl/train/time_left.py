"""How long will the rest take? Its steps at the pace of the last epochs, and its kNN evaluations at what one takes."""

from collections import deque
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since whenever."""
EPOCHS = 4  # to look at: the pace of a single one jumps with every pause
AT_LEAST = 50  # steps to look at, where these epochs have fewer


class TimeLeft:
    """Takes the time of steps, and leaves out what is none: a resumed epoch is short, and one with kNN long.

    The pace is that of the last few epochs; until there are twice as many, that of the newer half of the steps, so the
    first one, which may wait for a compiler, tells nothing.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.left_out = clock, 0.0
        self.ticks: deque[float] = deque()

    def begin(self, steps_per_epoch: int) -> None:
        """Now the first step begins."""
        self.ticks = deque(maxlen=2 * max(EPOCHS * steps_per_epoch, AT_LEAST) + 1)
        self.tick()

    def tick(self) -> None:
        """Now a step has ended, and the next one begins."""
        self.ticks.append(self.clock() - self.left_out)

    def leave_out(self, seconds: float) -> None:
        """So long nothing was learned."""
        self.left_out += seconds

    def seconds(self, steps: int, evaluations: int, each: float) -> float | None:
        """What so many steps take, and evaluations of so many seconds each; None as long as it cannot be told."""
        seen = len(self.ticks) - 1
        older = seen // 2
        if steps and seen < 2:
            return None
        pace = (self.ticks[-1] - self.ticks[older]) / max(1, seen - older)
        return steps * pace + evaluations * each
