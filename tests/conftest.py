"""Every test runs with shapes checked: jaxtyping's annotations, by beartype.

Not on a GPU, where tests compile: torch.compile would trace the checks too.
"""

import torch
from jaxtyping import install_import_hook

if not torch.cuda.is_available():
    install_import_hook("logo_ssl", "shapecheck.checked")

import shlex
import signal

import pytest

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell, for what it runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def random(generator: torch.Generator):
    """Draws float64 tensors of a shape."""
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    """Runs a command line in a folder of its own; gives exit code, output and errors."""
    from logo_ssl import cli

    monkeypatch.chdir(tmp_path)

    def run(line: str):
        with pytest.raises(SystemExit) as stop:
            cli.main(shlex.split(line))
        told = capsys.readouterr()
        return stop.value.code or 0, told.out, told.err

    return run
