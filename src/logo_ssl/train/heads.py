"""What does a run keep beside its backbone, and under which names? What framework and strategy name (`kept`)."""

from collections.abc import Iterable, Mapping

from torch import Tensor

NAMES = {"framework.encoder.net.projector": "projector", "framework.h": "h", "strategy.regressor": "regressor"}
"""Heads that a run's file calls otherwise than a checkpoint; all others have one name, so that no two can meet."""


def named_heads(weights: Mapping[str, Tensor], heads: Iterable[str]) -> dict[str, Tensor]:
    """The weights of these heads of a checkpoint or module, named as in a run's file."""
    return {
        NAMES.get(head, head) + key.removeprefix(head): value
        for head in heads
        for key, value in weights.items()
        if key == head or key.startswith(f"{head}.")
    }
