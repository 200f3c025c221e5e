"""Random streams from (seed, purpose, place) alone, so that a run has no random state to lose."""

import random
import zlib
from typing import Any

import numpy as np
import torch

from ..ranges import Seed, check_range


def stream(seed: int, purpose: str, *place: int) -> torch.Generator:
    """A CPU generator for one purpose at one place of a run, such as ("order", epoch): the same there every time.

    Purpose and length keep streams apart: to numpy, the seeds (0, 3) and (0, 3, 0) are one.
    """
    check_range("seed", seed, Seed)
    state = np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), len(place), *place]).generate_state(
        1, np.uint64
    )[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def seed_global_streams(seed: int, *place: int) -> None:
    """Seed the streams that libraries draw from (a timm network's dropout, say); we have no other use for them."""
    number = stream(seed, "global", *place).initial_seed()
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.manual_seed(number)


def global_streams(device: torch.device) -> dict[str, Any]:
    """Where this process's global streams stand: Python's, numpy's, torch's on the CPU and on its device."""
    name, keys, *rest = np.random.get_state(legacy=True)
    return {
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_global_streams(state: dict[str, Any], device: torch.device) -> None:
    """Put the global streams back to where they stood."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
