"""The command line: help, wrong input, completion, demo, show-crops.

More wrong input is in the table of tests/acceptance.
"""

import errno
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from logo_ssl import cli
from logo_ssl.cli import COMMANDS, PROTOCOLS
from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.train import Pretraining

no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command line."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    told = capsys.readouterr()
    return stop.value.code or 0, told.out, told.err


@pytest.fixture
def few_scenes(monkeypatch):
    monkeypatch.setattr("logo_ssl.data.SCENES_TRAIN", 40)
    monkeypatch.setattr("logo_ssl.data.SCENES_TEST", 40)


def test_help_of_a_run_shows_what_may_change_with_the_values_of_the_run(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    write(tmp_path / "recipe.json", find_recipe("tiny").changed(epochs=37).to_json())
    _, out, _ = run(capsys, "resume", str(tmp_path), "--help")
    assert re.search(r"--epochs INT .*\(default: 37\)", out)
    assert "--loading.workers" in out
    assert "--seed" not in out


def test_recipes_lists_rows_and_numbers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, "recipes")
    assert code == 0
    assert re.search(r"auto +│ chosen ", out)
    assert re.search(r"cifar10-simsiam-logo +│ resnet18 +│ 1, 7 +│ 87\.67 +│ 88\.02", out)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("pretrain", "data"),
        ("pretrain --data", "--data"),
        ("pretrain --epochs 3 tiny", "recipe=tiny"),
        ("pretrain tiny --seed 18446744073709551616", "seed=18446744073709551616"),
        ("pretrain tiny --crops.jitter 1 1 1 x", "--crops.jitter"),
        ("pretrain tiny --loggers wandb", "wandb"),
        pytest.param("pretrain tiny --device cuda --epochs 1", "cuda", marks=no_cuda),
        ("resume", "RUN"),
        ("recipes tiny", "tiny"),
    ],
)
def test_wrong_input_is_named_with_exit_code_2_and_nothing_is_written(capsys, tmp_path, monkeypatch, line, named):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "photos").mkdir()
    write(tmp_path / "other" / "recipe.json", find_recipe("cifar10-moco").to_json())
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    code, _, err = run(capsys, *line.split())
    assert (code, "Traceback" in err) == (2, False)
    assert named in err
    after = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock")
    assert after == before  # nothing lost, nothing left in the way of another try


@pytest.mark.parametrize("line", ["doctor", "pretrain", "pretrain tiny", "show-crops", "bench tiny"])
def test_data_from_a_variable_that_is_not_set_are_not_this_folder(capsys, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (20, 20)).save(tmp_path / "image.png")
    code, _, err = run(capsys, *line.split(), "--data", "")
    assert (code, "data" in err) == (2, True), err
    assert [file.name for file in tmp_path.iterdir()] == ["image.png"]


@dataclass(frozen=True)
class Failing:
    """A command that fails."""

    how: str = "disk"
    """In which way."""

    def run(self):
        if self.how == "disk":
            raise OSError(errno.ENOSPC, "No space left on device", "runs/x")
        if self.how == "false":
            return False
        raise ZeroDivisionError("of ours")


FAIL = SimpleNamespace(about="fail", commands=None, load=lambda: Failing)


def test_a_disk_that_refuses_is_told_with_the_file(capsys, monkeypatch):
    monkeypatch.setitem(COMMANDS, "fail", FAIL)
    assert run(capsys, "fail") == (2, "", "logo-ssl: runs/x: No space left on device.\n")
    assert run(capsys, "fail", "--how", "false")[0] == 1


def test_an_error_that_nobody_foresaw_is_pythons_own_for_who_calls_main(monkeypatch):
    monkeypatch.setitem(COMMANDS, "fail", FAIL)
    with pytest.raises(ZeroDivisionError):
        cli.main(["fail", "--how", "ours"])


def test_the_shell_gets_one_line_and_the_traceback_in_a_file(capsys, monkeypatch, tmp_path):
    from logo_ssl.__main__ import main

    monkeypatch.setitem(COMMANDS, "fail", FAIL)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["logo-ssl", "fail", "--how", "ours"])
    with pytest.raises(SystemExit) as stop:
        main()
    (file,) = tmp_path.iterdir()
    told = capsys.readouterr().err
    assert (stop.value.code, told.count("\n"), str(file) in told, "of ours" in told) == (1, 1, True, True)
    assert "ZeroDivisionError" in file.read_text()
    monkeypatch.setattr("sys.argv", ["logo-ssl", "--debug", "fail", "--how", "ours"])
    with pytest.raises(ZeroDivisionError):
        main()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_protocols_options_and_values(capsys, tmp_path):
    script = tmp_path / "completion"
    script.write_text(run(capsys, "completion", "bash")[1])

    def completed(*words):
        line = f"source {script}; COMP_WORDS=({' '.join(repr(word) for word in words)}); COMP_CWORD={len(words) - 1}; "
        line += '"$(complete -p logo-ssl | cut -d" " -f3)"; printf "%s\\n" "${COMPREPLY[@]}"'
        told = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
        return set(told.stdout.split())

    assert completed("logo-ssl", "e") == {"embed", "eval", "export"}
    assert completed("logo-ssl", "eval", "") == {*PROTOCOLS, "-h", "--help"}
    assert completed("logo-ssl", "eval", "knn", "runs/x", "--prot") == {"--protocols"}
    assert completed("logo-ssl", "pretrain", "tiny", "--crops.gl") == {"--crops.global-size", "--crops.global-scale"}
    assert completed("logo-ssl", "pretrain", "tiny", "--framework", "by") == {"byol"}
    assert completed("logo-ssl", "export", "runs/x", "--to", "o") == {"onnx"}


def test_the_demo_compares_trained_features_with_pixels_and_chance(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.data.SCENES_TRAIN", 256)
    monkeypatch.setattr("logo_ssl.data.SCENES_TEST", 64)
    folder = tmp_path / "demo"
    code, out, err = run(capsys, "demo", "--out", str(folder), "--epochs", "1")
    assert code == 0, err
    for row in ("raw pixels", "pixels and colours", "untrained", "Verdict:"):
        assert row in out
    assert "data-map" in (folder / "report.html").read_text()
    code, out, _ = run(capsys, "demo", "--out", str(folder), "--epochs", "1")  # shown again
    assert (code, "epoch 1" in out, "Verdict:" in out) == (0, False, True)


def test_a_demo_that_was_interrupted_goes_on_to_its_end(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.data.SCENES_TRAIN", 256)
    monkeypatch.setattr("logo_ssl.data.SCENES_TEST", 64)
    monkeypatch.chdir(tmp_path)
    demo, folder = ("demo", "--epochs", "2", "--seed", "3"), Path("runs/demo")
    with monkeypatch.context() as patch:
        step = Pretraining.training_step
        patch.setattr(Pretraining, "training_step", lambda *given: (step(*given), _stop_this_process())[0])
        code, _, _ = run(capsys, *demo)
    assert (code, Run(folder).newest_step()) == (128 + signal.SIGTERM, 1)
    code, _, err = run(capsys, "demo", "--epochs", "4")
    assert (code, "--seed 3 --epochs 2" in err) == (2, True)
    with monkeypatch.context() as patch:
        patch.setattr("logo_ssl.report.commands.Report.run", _ctrl_c)
        code, _, _ = run(capsys, *demo)
    assert (code, Run(folder).is_finished) == (130, True)
    code, out, err = run(capsys, *demo)
    assert (code, "Verdict:" in out) == (0, True), err
    assert (folder / "report.html").is_file()


def _stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _ctrl_c(run: Run) -> None:
    raise KeyboardInterrupt


def test_show_crops_draws_a_picture(capsys, tmp_path, few_scenes):
    code, out, _ = run(capsys, "show-crops", "--images", "2", "--out", str(tmp_path / "new" / "crops.png"))
    assert (code, "crops.png" in out) == (0, True)
    with Image.open(tmp_path / "new" / "crops.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 300


def test_help_of_a_recipe_shows_its_values(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    _, out, _ = run(capsys, "pretrain", "tiny", "--framework", "byol", "--strategy", "two-view", "--help")
    shown = " ".join(out.split())
    for words in ("Settings of BYOL.", "Settings of the baseline.", "(default: 20)", "--crops.n-local INT"):
        assert words in shown
