"""Does a process know who it is, before it knows the others?"""

import pytest

from logo_ssl.errors import UserError
from logo_ssl.recipes import find_recipe
from logo_ssl.system import launch
from logo_ssl.system.launch import Processes
from logo_ssl.system.terminal import plain_console, signature
from logo_ssl.train.trainer import check_processes, processes_for

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "RANK": "5", "LOCAL_RANK": "1"}
SLURM = {"SLURM_NTASKS": "16", "SLURM_NNODES": "2", "SLURM_PROCID": "0", "SLURM_JOB_NAME": "train"}


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("LOCAL_RANK", "NODE_RANK", "RANK", "WORLD_SIZE", *TORCHRUN, *SLURM):
        monkeypatch.delenv(name, raising=False)


def surround(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("variables", "started", "first", "signed"),
    [
        ({}, None, True, "logo-ssl"),
        (TORCHRUN, (4, 2, "torchrun"), False, "logo-ssl (process 5)"),
        (TORCHRUN | {"RANK": "0", "LOCAL_RANK": "0"}, (4, 2, "torchrun"), True, "logo-ssl"),
        (SLURM, (8, 2, "Slurm"), True, "logo-ssl"),
        (SLURM | {"SLURM_PROCID": "9"}, (8, 2, "Slurm"), False, "logo-ssl (process 9)"),
        (SLURM | {"SLURM_JOB_NAME": "interactive"}, None, True, "logo-ssl"),
        ({"LOCAL_RANK": "2"}, None, False, "logo-ssl (process 2)"),
        ({"NODE_RANK": "1"}, None, False, "logo-ssl (process 0 of machine 1)"),
    ],
)
def test_who_started_it_and_who_speaks(monkeypatch, variables, started, first, signed):
    surround(monkeypatch, variables)
    assert launch.started() == started
    assert launch.is_first() == first
    assert plain_console().quiet != first
    assert signature() == signed


def test_a_launcher_decides_how_many_train(monkeypatch):
    tiny = find_recipe("tiny")
    assert processes_for(tiny.changed(devices=2, nodes=3)) == Processes(2, 3)
    assert processes_for(tiny.changed(devices="auto", device="cpu")) == Processes(1, 1)
    surround(monkeypatch, TORCHRUN)
    assert processes_for(tiny) == Processes(4, 2, "torchrun")
    check_processes(tiny, 64)
    check_processes(tiny.changed(devices=4, nodes=2), 64)
    with pytest.raises(UserError, match=r"torchrun started 2 x 4 processes, but nodes=1 and devices=2"):
        check_processes(tiny.changed(devices=2), 64)


@pytest.mark.parametrize("variable", ["TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"])
def test_a_restart_is_known(monkeypatch, variable):
    assert not launch.is_restarted()
    monkeypatch.setenv(variable, "1")
    assert launch.is_restarted()
