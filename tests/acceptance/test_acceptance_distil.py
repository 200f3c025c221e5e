"""Does a small network learn from a frozen one by the command line, and from no other when it goes on?"""

import json
import runpy
import shutil
import sys
from pathlib import Path

from command_line import here, options, weights

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

OF_MOCO = {f"framework__{name}": None for name in ("head", "tau", "m", "splits")}
DISTIL = {"framework": "distil", "framework__dim": 16, "framework__hidden": 32} | OF_MOCO


def test_a_student_learns_from_a_run_and_is_measured_and_exported_like_any(logo, cwd, data, run):
    shutil.copytree(run, cwd / "large")
    words = options(**DISTIL, framework__teacher="large", checkpoint_minutes=0)
    done = logo("pretrain", "tiny", "--data", data, "--out", "small", *words)
    assert done.code == 0, done.err
    assert "large, frozen, 256 features" in done.out
    assert json.loads((cwd / "small" / "recipe.json").read_text())["framework"]["teacher"] == str(cwd / "large")
    assert {"heads projector.0.weight", "heads h.weight"} <= weights(cwd / "small").keys()
    for command in (("eval", "knn", "small"), ("export", "small", "--to", "safetensors")):
        assert logo(*command).code == 0

    longer = ("resume", "small", "--epochs", "2")
    shutil.move(cwd / "large", cwd / "elsewhere")
    gone = logo(*longer)
    shutil.copytree(cwd / "small", cwd / "large")  # another encoder in its place
    other = logo(*longer)
    for refused in (gone, other):
        assert refused.code == 2
        assert f"framework.teacher={cwd / 'large'}" in refused.err
        assert "Traceback" not in refused.err
    shutil.rmtree(cwd / "large")
    shutil.move(cwd / "elsewhere", cwd / "large")
    assert logo(*longer).code == 0


def test_without_a_teacher_or_with_one_that_is_not_there_the_option_is_named(logo, data):
    for words in ((), ("--framework.teacher", "nowhere")):
        done = logo("pretrain", "tiny", "--data", data, "--framework", "distil", *words)
        assert done.code == 2
        assert "framework.teacher=" in done.err


def test_the_benchmark_measures_the_teacher_and_students_with_and_without_it(run, data, cwd, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    script = runpy.run_path(str(BENCHMARKS / "distil.py"))

    def run_all(_, rows, ended):
        for command in (command for row in rows for command in row.commands()):
            assert (done := here(*command, cwd=cwd)).code == 0, done.err

    monkeypatch.setattr(script["Runner"], "run_all", run_all)
    cwd.mkdir()
    words = ["--teacher", str(run), "--data", str(data), "--epochs", "1", "--device", "cpu", "--out", str(cwd / "out")]
    script["main"](["scenes", *words, "--arms", "alone", "taught-logo"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [(line["arm"], line["n"]) for line in lines] == [("teacher", 1), ("alone", 1), ("taught-logo", 1)]
    assert lines[0]["kept"] == {"knn-20": 100, "linear": 100}  # 64 images are too few for k=200
    for line in lines:
        assert line["kept"]["linear"] == round(100 * line["linear"][0] / lines[0]["linear"][0], 1)
        assert line["seconds"][0] > 0
