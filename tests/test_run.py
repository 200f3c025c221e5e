import re
import subprocess
import sys

import pytest

from logo_ssl import __version__
from logo_ssl.errors import UserError
from logo_ssl.files import read_json, write
from logo_ssl.run import Run, runs_below
from logo_ssl.system.hardware import commit


def test_a_torn_last_line_is_left_out(tmp_path):
    run = Run(tmp_path)
    run.metrics_file.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert [line["step"] for line in run.metrics()] == [1, 2]


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 200_000], ids=["empty", "torn", "a list", "too deep"])
def test_a_file_that_is_not_whole_says_nothing(tmp_path, content):
    run = Run(tmp_path)
    for file in (run.images_file, run.metrics_file, run.evaluation_file("knn")):
        write(file, content)
    assert (read_json(run.images_file), list(run.metrics()), read_json(run.evaluation_file("knn"))) == ({}, [], {})


def test_a_folder_of_runs_names_them_and_one_of_photographs_is_none(tmp_path):
    for name in ("a/seed0", "a/seed1", "b", "c/seed0", "far/down/d/seed0"):
        write(Run(tmp_path / name).recipe_file, "{}")
    with pytest.raises(UserError, match=f"did you mean {re.escape(str(tmp_path / 'b'))}"):
        Run.existing(tmp_path)
    write(tmp_path / "photos" / "cat" / "1.png", "")
    with pytest.raises(UserError, match="is not a run"):
        Run.existing(tmp_path / "photos")
    assert Run.existing(tmp_path / "b").path == tmp_path / "b"


def test_runs_are_looked_for_in_no_run_nor_hidden_folder_nor_link(tmp_path):
    for name in ("a/b/c/seed0", "a/seed0", "a/seed0/checkpoints/inner", ".venv/seed0"):
        write(Run(tmp_path / name).recipe_file, "{}")
    (tmp_path / "a" / "b" / "circle").symlink_to(tmp_path)
    assert [run.path for run in runs_below(tmp_path)] == [tmp_path / "a/b/c/seed0", tmp_path / "a/seed0"]


def test_the_commit_is_this_checkouts_or_the_release(monkeypatch, tmp_path):
    assert re.fullmatch(r"[0-9a-f]{12}(\+changes)?|release .*", commit())
    package = tmp_path / "site-packages" / "logo_ssl"
    monkeypatch.setattr("logo_ssl.system.hardware.__file__", str(package / "system" / "hardware.py"))
    package.mkdir(parents=True)
    assert commit() == f"release {__version__}"
    (package / "COMMIT").write_text("0123456789ab\n")  # tools/commit_of_build.py
    assert commit() == "0123456789ab"
    monkeypatch.setenv("LOGO_COMMIT", "abc")
    assert commit() == "abc"


@pytest.mark.parametrize("module", ["logo_ssl", "logo_ssl.report", "logo_ssl.cli", "logo_ssl.run"])
def test_importing_what_needs_no_torch_imports_no_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
