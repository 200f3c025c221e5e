"""Where does chance come from? From (seed, purpose, place) alone, so that a run has no random state to lose."""

import zlib

import numpy as np
import torch


def stream(seed: int, purpose: str, *place: int) -> torch.Generator:
    """A CPU generator for one purpose at one place of a run, such as ("order", epoch): the same there every time.

    Purpose and length keep streams apart: to numpy, the seeds (0, 3) and (0, 3, 0) are one.
    """
    state = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), len(place), *place]).generate_state(
        1, np.uint64
    )[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
