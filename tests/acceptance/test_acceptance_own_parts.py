"""Are a framework, a strategy, a backbone and a recipe from a file outside the package known to every command?"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import ended, started
from made_up_data import save_npz

import logo_ssl

EXAMPLES = Path(__file__).parents[2] / "examples"
BRIEF = "--epochs 1 --batch-size 16 --data data.npz --device cpu --loggers --out run"
ONE_AFTER_THE_OTHER = """
import runpy, sys
file, *lines = sys.argv[1:]
for line in lines:
    sys.argv = [file, *line.split()]
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit as stop:
        assert not stop.code, line
"""


def with_file(name: str, *lines: str, cwd: Path) -> None:
    """The command lines of a file that registers parts of its own, in one process: a new one imports torch again."""
    save_npz(cwd / "data.npz")
    end = ended(started(EXAMPLES / name, *lines, cwd=cwd, program=("-c", ONE_AFTER_THE_OTHER)))
    assert end.code == 0, end.err


def test_a_framework_of_ones_own_trains_and_its_encoder_needs_nothing_of_it(logo, cwd):
    with_file("own_framework.py", f"pretrain tiny --framework align-uniform --framework.t 3 {BRIEF}", cwd=cwd)
    framework = json.loads((cwd / "run" / "recipe.json").read_text())["framework"]
    assert (framework["kind"], framework["t"]) == ("align-uniform", 3)
    done = logo("embed", "run", "--out", "features.npz")
    assert done.code == 0, done.err
    assert np.load(cwd / "features.npz")["vectors"].shape == (96, 256)
    done = logo("resume", "run", "--epochs", "2")
    assert (done.code, "align-uniform" in done.err) == (2, True)
    assert "Traceback" not in done.err
    weights = logo_ssl.load(cwd / "run").state_dict()
    for file in ("backbone.safetensors", "provenance.json"):
        (cwd / "run" / file).unlink()  # as if it had been interrupted
    with pytest.warns(UserWarning, match="run"):
        newest = logo_ssl.load(cwd / "run").state_dict()
    assert all(torch.equal(newest[name], weight) for name, weight in weights.items())


def test_a_strategy_a_backbone_and_a_recipe_of_ones_own_train_go_on_and_are_shown(tmp_path):
    lines = (f"pretrain mine --strategy.pull 3 {BRIEF}", "resume run --epochs 2", "embed run --out features.npz")
    with_file("own_parts.py", *lines, "report run --out page.html --images 0 --no-crops", cwd=tmp_path)
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert (recipe["name"], recipe["backbone"], recipe["strategy"]["pull"]) == ("mine", "patches", 3)
    assert '"l_lm"' in (tmp_path / "run" / "metrics.jsonl").read_text()
    assert np.load(tmp_path / "features.npz")["vectors"].shape == (96, 128)
    assert "l_lm over epochs" in (tmp_path / "page.html").read_text()
