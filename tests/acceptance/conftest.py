"""Runs that many acceptance tests look at, each trained once; none of these tests knows a module below `logo_ssl`."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import EPOCHS, SMALL, Ended, here, options
from made_up_data import save_npz


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """A folder for what is made once."""
    return tmp_path_factory.mktemp("acceptance")


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(home, monkeypatch):
    monkeypatch.setenv("LOGO_CACHE", str(home / "cache"))
    monkeypatch.setenv("LOGO_DATA", str(home / "sets"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def logo(tmp_path) -> Callable[..., Ended]:
    """Runs a command in an empty folder."""
    (tmp_path / "cwd").mkdir()
    return lambda *argv: here(*argv, cwd=tmp_path / "cwd")


@pytest.fixture
def cwd(tmp_path) -> Path:
    """The folder that `logo` runs in."""
    return tmp_path / "cwd"


@pytest.fixture(scope="session")
def data(home) -> Path:
    """64 training and 32 test images of 32 px in four classes."""
    return save_npz(home / "data.npz")


@pytest.fixture(scope="session")
def trained(home, data) -> Callable[..., Path]:
    """Trains a run of that name, unless it is there."""

    def train(name: str, of: tuple[str, ...] = SMALL, **changes: object) -> Path:
        if not (home / name).exists():
            done = here("pretrain", "tiny", "--data", data, "--out", name, *options(of=of, **changes), cwd=home)
            assert done.code == 0, done.err
        return home / name

    return train


@pytest.fixture(scope="session")
def run(trained) -> Path:
    """A run of an epoch with the smallest network. Tests that write into it take `own_run`."""
    return trained("run")


@pytest.fixture(scope="session")
def resnet(trained) -> Path:
    """A run of an epoch with a ResNet-18, which other libraries know."""
    return trained("resnet", backbone="resnet18", checkpoint_keep=1, knn_every=0)


@pytest.fixture(scope="session")
def whole(trained) -> Path:
    """An uninterrupted run of some epochs."""
    return trained("whole", epochs=EPOCHS)


@pytest.fixture
def own_run(run, tmp_path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(run, tmp_path / "own-run"))
