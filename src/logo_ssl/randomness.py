"""Where does chance come from? From (seed, place) alone, so that a run has no random state to lose."""

import numpy as np
import torch


def stream(seed: int, *place: int) -> torch.Generator:
    """A CPU generator for one place of a run, such as (epoch,) or (step, rank): the same there every time."""
    state = np.random.SeedSequence([seed, *place]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
