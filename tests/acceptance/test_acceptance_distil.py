"""Does a small network learn from a frozen one by the command line, and from no other when it goes on?"""

import json
import shutil

from command_line import options, weights

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
