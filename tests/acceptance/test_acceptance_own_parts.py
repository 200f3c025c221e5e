"""Are a framework, a strategy, a backbone and a recipe from a file outside the package known to every command?"""

import json
from pathlib import Path

import numpy as np
from command_line import Ended, ended, started
from made_up_data import save_npz

EXAMPLES = Path(__file__).parents[2] / "examples"
BRIEF = ("--epochs", "1", "--batch-size", "16", "--data", "data.npz", "--device", "cpu", "--loggers", "--out", "run")


def with_file(name: str, *argv: str, cwd: Path) -> Ended:
    """The command line of a file that registers parts of its own."""
    return ended(started(*argv, cwd=cwd, program=(str(EXAMPLES / name),)))


def test_a_framework_of_ones_own_trains_and_its_encoder_needs_nothing_of_it(logo, cwd):
    save_npz(cwd / "data.npz")
    words = ("pretrain", "tiny", "--framework", "align-uniform", "--framework.t", "3", *BRIEF)
    done = with_file("own_framework.py", *words, cwd=cwd)
    assert done.code == 0, done.err
    framework = json.loads((cwd / "run" / "recipe.json").read_text())["framework"]
    assert (framework["kind"], framework["t"]) == ("align-uniform", 3)
    done = logo("embed", "run", "--out", "features.npz")
    assert done.code == 0, done.err
    assert np.load(cwd / "features.npz")["vectors"].shape == (96, 256)
    done = logo("resume", "run", "--epochs", "2")
    assert (done.code, "align-uniform" in done.err) == (2, True)
    assert "Traceback" not in done.err


def test_a_strategy_a_backbone_and_a_recipe_of_ones_own_train_and_go_on(tmp_path):
    save_npz(tmp_path / "data.npz")
    done = with_file("own_parts.py", "pretrain", "mine", "--strategy.pull", "3", *BRIEF, cwd=tmp_path)
    assert done.code == 0, done.err
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert (recipe["name"], recipe["backbone"], recipe["strategy"]["pull"]) == ("mine", "patches", 3)
    assert '"l_lm"' in (tmp_path / "run" / "metrics.jsonl").read_text()
    done = with_file("own_parts.py", "resume", "run", "--epochs", "2", cwd=tmp_path)
    assert done.code == 0, done.err
