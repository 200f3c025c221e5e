"""Is a device that is not there refused, and float64 computed where it exists?"""

import pytest
import torch

from logo_ssl.errors import UserError
from logo_ssl.system.hardware import best_device, exact_device


def machine(monkeypatch: pytest.MonkeyPatch, *, cuda: bool, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_the_best_device_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for cuda, mps, best in ((True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        machine(monkeypatch, cuda=cuda, mps=mps)
        assert best_device("auto").type == best
        assert best_device(best).type == best
        assert best_device("cpu").type == "cpu"


def test_a_device_that_is_not_there_is_refused_and_those_that_are_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=False, mps=False)
    with pytest.raises(UserError, match=r"^device='cuda': this machine does not have it; use auto or cpu\.$"):
        best_device("cuda")
    machine(monkeypatch, cuda=False, mps=True)
    with pytest.raises(UserError, match="use auto or mps or cpu"):
        best_device("cuda")


def test_float64_is_computed_where_it_exists() -> None:
    for device, exact in (("mps", "cpu"), ("cuda", "cuda"), ("cpu", "cpu")):
        assert exact_device(torch.device(device)).type == exact
