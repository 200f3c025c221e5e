"""The real command on images of noise, its rows in this process: a new one would import torch again for each."""

import numpy as np
import pytest

from logo_ssl import cli
from logo_ssl.reproduce.launch import Workers
from logo_ssl.reproduce.worker import attempt

SMALL = "--device cpu --set backbone=tiny --set crops.global-size=16 --set crops.local-size=16 --set batch-size=64"
SMALL += " --set knn-every=1 --set loggers= --set checkpoint-every=1"


@pytest.fixture(autouse=True)
def _nothing_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOGO_DATA", str(tmp_path / "sets"))


@pytest.fixture
def data(tmp_path):
    """208 + 16 images of noise in three classes, which are hard to tell apart: enough for k = 200."""
    rng = np.random.default_rng(0)
    labels = np.arange(224) % 3
    images = (rng.integers(0, 200, (224, 16, 16, 3)) + labels[:, None, None, None]).astype(np.uint8)
    file = tmp_path / "cifar10.npz"
    parts = {"train_images": images[:208], "train_labels": labels[:208]}
    np.savez(file, **parts, test_images=images[208:], test_labels=labels[208:])
    return file


@pytest.fixture
def performed(monkeypatch):
    """Names of the runs that were worked at, in this process."""
    names = []

    def here(self, task):
        names.append(task.name)
        return attempt(task.place.run.path, list(task.measurements))

    monkeypatch.setattr(Workers, "run", here)
    return names


@pytest.fixture
def reproduce(capsys, tmp_path, data):
    """Exit code, standard output and standard error of `logo-ssl reproduce`, with small settings."""

    def command(line, out="out", small=True, backbone="tiny", source=data):
        options = f"{SMALL} --data {source}".replace("=tiny", f"={backbone}").split() if small else []
        with pytest.raises(SystemExit) as stop:
            cli.main(["reproduce", *line.split(), "--out", str(tmp_path / out), *options])
        told = capsys.readouterr()
        return stop.value.code or 0, told.out, told.err

    return command
