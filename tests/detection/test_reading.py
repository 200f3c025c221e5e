"""Do worker processes read as this one does, and what if one of them dies?"""

import os
import signal
from multiprocessing import get_context
from multiprocessing.context import ForkProcess

import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from logo_ssl.detection.samples import read


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, place: int) -> int:
        return place


class Mortal(Numbers):
    """A worker process that is asked for the fifth place dies, once it may."""

    def __init__(self) -> None:
        self.may_die = get_context("fork").Event()

    def __getitem__(self, place: int) -> int:
        if place == 4 and get_worker_info() is not None:
            assert self.may_die.wait(60)
            os.kill(os.getpid(), signal.SIGKILL)
        return place


def test_other_errors_are_no_deaths_of_workers():
    class Broken(Numbers):
        def __getitem__(self, place: int) -> int:
            raise RuntimeError("no such number")

    with pytest.raises(RuntimeError, match="no such number"):
        list(read(Broken(), [[0]], 1))


def test_workers_are_forked_and_draw_nothing_from_the_global_stream():
    torch.manual_seed(5)
    batches = read(Numbers(), [[0], [1]], 1)
    assert next(batches) == [0]
    assert all(isinstance(worker, ForkProcess) for worker in batches.gi_frame.f_locals["batches"]._workers)
    assert list(batches) == [[1]]
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(5)).item()
