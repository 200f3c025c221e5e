"""What is printed: losses by their order, sentences kept in a log, and a reader who has seen enough."""

import os
import subprocess
import sys

import pytest

from logo_ssl.terminal import plain_console
from logo_ssl.train.callbacks import _rounded


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.5123, "0.512"), (-12.0, "-12.000"), (182150009699958784.0, "1.82e+17"), (float("inf"), "inf")],
)
def test_a_loss_that_has_run_away_is_told_by_its_order(value, told):
    assert _rounded(value) == told


def test_commands_to_a_terminal_are_shown_as_escapes(capsys):
    plain_console().print("a sentence", "of a file\x1b[2J")
    assert capsys.readouterr().out == "a sentence of a file\\x1b[2J\n"


def test_a_reader_who_has_seen_enough_ends_nothing(tmp_path):
    code = """
from pathlib import Path
from logo_ssl.terminal import plain_console, put
console = plain_console()
for _ in range(3):
    console.print("a line")
put("and text")
Path("saved").touch()
"""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "saved").exists()
