"""Ctrl-C ends a command that is still importing, without a traceback."""

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import logo_ssl

SOURCE = Path(logo_ssl.__file__).parents[1]
STUBBORN = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000): pass
except BaseException:
    raise RecursionError("as numpy's import ends")
print("went on")
raise SystemExit(7)
"""
"""A library during whose import Ctrl-C is typed, and which makes something else of it."""
COMMAND = "import sys; from logo_ssl.__main__ import main; sys.argv[0] = 'logo-ssl'; main()"


def interrupted(folder: Path, library: str, *line: str, **options) -> subprocess.CompletedProcess:
    (folder / f"{library}.py").write_text(STUBBORN)
    where = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{SOURCE}"}
    return subprocess.run(
        [sys.executable, *line], cwd=folder, env=where, capture_output=True, text=True, check=False, **options
    )


@pytest.mark.parametrize("start", [("-m", "logo_ssl"), ("-c", COMMAND)], ids=["module", "command"])
@pytest.mark.parametrize(
    ("library", "command"),
    [("rich", "recipes"), ("tyro", "--help"), ("torch", "doctor"), ("torch", "eval knn random/tiny --data x")],
)
def test_ctrl_c_while_libraries_are_imported_ends_at_once(tmp_path, start, library, command):
    ended = interrupted(tmp_path, library, *start, *command.split())
    assert (ended.returncode, ended.stderr, ended.stdout) == (-signal.SIGINT, "", "")


def test_a_command_in_the_background_goes_on(tmp_path):
    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as shells do before they start one

    ended = interrupted(tmp_path, "rich", "-m", "logo_ssl", "recipes", preexec_fn=ignore)
    assert (ended.returncode, ended.stdout) == (7, "went on\n")


def test_the_installed_command_begins_there():
    project = SOURCE.parent / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["scripts"] == {"logo-ssl": "logo_ssl.__main__:main"}


def test_nothing_large_is_imported_before_ctrl_c_is_heeded():
    code = "import sys, logo_ssl.__main__; sys.exit(bool({'rich', 'numpy', 'tyro', 'logo_ssl.cli'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_of_a_command_wait_without_spinning_unless_the_user_wishes():
    code = "import os, sys; from logo_ssl.__main__ import main; sys.argv[1:] = ['--version']\ntry: main()\n"
    code += "except SystemExit: sys.exit(os.environ['OMP_WAIT_POLICY'])"
    for given in ({}, {"OMP_WAIT_POLICY": "active"}):
        env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"} | given
        ended = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert ended.stderr.strip() == given.get("OMP_WAIT_POLICY", "PASSIVE")
