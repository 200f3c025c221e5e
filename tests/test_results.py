"""Is the archive in results/ whole, and do the tools read it?"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGES = {int(page.name[:2]): page for page in sorted((RESULTS / "experiments").glob("*.md"))}
FAMILIES = {file.stem: [json.loads(line) for line in file.read_text().splitlines()]
            for file in sorted((RESULTS / "records").glob("*.jsonl"))}  # fmt: skip
RUNS = [run for lines in FAMILIES.values() for run in lines if "name" in run]
PAPERS = {"79.58", "80.37", "84.44", "85.59", "80.48", "83.02", "87.67", "88.02"}  # its Table 1


def run_tool(name, *arguments, code=0):
    command = [sys.executable, str(ROOT / "tools" / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.parametrize("family", FAMILIES)
def test_every_record_holds_its_fields_and_no_folder_of_a_machine(family):
    lines = FAMILIES[family]
    assert lines
    for line in lines:
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", line["date"])
        assert '"/' not in json.dumps(line)
    runs = [line for line in lines if "name" in line]
    assert len(runs) in (0, len(lines))
    assert len({(run["name"], run["seed"]) for run in runs}) == len(runs)
    for run in runs:
        assert {"experiment", "recipe", "epochs", "commit", "hardware"} <= run.keys()
        assert {"settings", "options", "remark"} & run.keys()
        assert {"figures", "knn_by_epoch"} & run.keys()
        if "settings" in run:
            facts = {"name": run["recipe"], "seed": run["seed"], "epochs": run["epochs"]}
            assert run["settings"].items() >= facts.items()


def test_the_index_lists_every_experiment_and_the_records_name_no_other():
    readme = (RESULTS / "README.md").read_text()
    listed = re.findall(r"^\| \[(\d+)\]\((.+?)\)", readme, re.M)
    assert {int(number): RESULTS / place for number, place in listed} == PAGES
    assert len(listed) == len(PAGES)
    assert {run["experiment"] for run in RUNS} <= PAGES.keys()
    never_run = {int(number) for number in re.findall(r"^- \*\*(\d+)\.", readme, re.M)}
    assert never_run | PAGES.keys() == set(range(1, max(PAGES) + 1))
    assert set(re.findall(r"`([a-z0-9-]+)`", readme)) >= FAMILIES.keys()


@pytest.mark.parametrize("number", PAGES)
def test_the_figures_of_a_page_are_those_of_the_records(number):
    text = " ".join(PAGES[number].read_text().split())
    outcome = text.partition("**Outcome**")[2].partition("**What follows**")[0]
    quoted = set(re.findall(r"(?<![-+.\d])(?<!± )\d\d\.\d\d(?!\d| ±)", outcome))
    known = {f"{value:.2f}" for lines in FAMILIES.values() for line in lines for value in numbers(line)}
    assert quoted <= known | PAPERS
    named = re.findall(r"`([a-z0-9.-]+)`", text.partition("**Records**")[2])
    assert not [name for name in named if name not in FAMILIES and not any(name in run["name"] for run in RUNS)]


def numbers(value):
    """All numbers of a record, but for its settings."""
    if isinstance(value, dict):
        return [number for key, inner in value.items() if key != "settings" for number in numbers(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in numbers(inner)]
    return [value] if isinstance(value, int | float) else []


def test_both_sides_of_a_trial_differ_in_l2l_alone(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    from l2l_trials import TRIALS
    from records import runs

    for trial in TRIALS:
        sides = [[run for run in runs(place) if "settings" in run] for place in (trial.with_l2l, trial.without)]
        without_strategy = [
            [{key: value for key, value in run["settings"].items() if key not in ("name", "strategy")} for run in side]
            for side in sides
        ]
        assert without_strategy[0] == without_strategy[1]
        for run in sides[0]:
            crops, strategy = run["settings"]["crops"], run["settings"]["strategy"]
            low, high = crops["local_scale"]
            assert (trial.epochs, trial.local) == (run["epochs"], f"{100 * low:g}-{100 * high:g}")
            assert (strategy["kind"], strategy["lam"]) == ("logo", trial.lam)
        assert all(run["settings"]["strategy"].get("lam", 0) == 0 for run in sides[1])


def test_tables_have_the_figures_that_were_published():
    printed = run_tool("write_tables")
    for row in (
        "| MoCo-LoGo | 2 + 2 | 92.16 | 91.33 | 92.85 | 2 |",
        "| SimSiam, four large crops | 4 | 91.11 | 90.05 | 91.50 | 1 |",
        "| MoCo | 79.58 | 80.37 | 77.03 | 73.27 | 79.76 | 1 |",
    ):
        assert row in printed
    assert run_tool("write_tables", "imagenette").count("\n| MoCo") == 6


def test_every_figure_of_the_results_is_drawn(tmp_path):
    run_tool("draw_results", tmp_path)
    drawn = {file.name for file in tmp_path.glob("*.png")}
    assert drawn == {
        f"{name}.png" for name in ("cifar10-crops", "cifar10-knn", "cifar10-paper", "imagenette-knn", "l2l")
    }
    assert drawn <= {file.name for file in (ROOT / "docs" / "images").glob("*.png")}


@pytest.fixture
def ended(tmp_path):
    """A run as `reproduce --out` leaves it."""
    run = tmp_path / "out" / "cifar10-tuned-moco" / "seed7"
    (run / "evaluation").mkdir(parents=True)
    recipe = {"name": "cifar10-tuned-moco", "data": "/far/away/cifar10.npz", "epochs": 20, "seed": 7, "knn_every": 20}
    provenance = {"commit": "abc", "hardware": "a GPU", "seconds": 9.0, "versions": {"torch": "2.11.0"}}
    evaluations = {
        "knn": {"evaluation": "knn", "results": [{"k": 20, "top1": 89.5, "top5": 99.1}]},
        "linear": {"evaluation": "linear-sgd", "results": {"top-1": 90.0, "top-5": 99.5}, "lr": 30.0},
    }
    log = [
        {"step": 0, "time": 1.8e9, "knn": 39.0, "knn_k": 20, "epochs_done": 0},
        {"step": 5, "time": 1.8e9, "loss": 3.0, "images_per_s": 100.4, "epoch": 15},
        {"step": 9, "time": 1.8e9, "loss": 1.0, "images_per_s": 300.4, "epoch": 19},
        {"step": 9, "time": 1.8e9, "z_std": 0.9, "z_rank": 40.51, "epoch": 19},
        {"step": 9, "time": 1.8e9, "knn": 89.4, "knn_k": 20, "epochs_done": 20},
    ]
    (run / "backbone.safetensors").touch()
    (run / "recipe.json").write_text(json.dumps(recipe))
    (run / "provenance.json").write_text(json.dumps(provenance))
    for name, record in evaluations.items():
        (run / "evaluation" / f"{name}.json").write_text(json.dumps(record))
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in log))
    return run


def test_a_run_is_kept_as_a_line_once_and_only_when_it_has_ended(ended, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "tools")
    import keep
    import records

    monkeypatch.setattr(records, "RECORDS", tmp_path)
    arguments = ["some-family", str(ended), "--experiment", "55", "--at-once", "2"]
    keep.main(arguments)
    (run,) = records.runs("some-family/cifar10-tuned-moco:7")
    assert run["figures"] == {"knn-20": 89.5, "linear-sgd": 90.0}
    assert run["knn_by_epoch"] == {"0": 39.0, "20": 89.4}
    assert (run["date"], run["images_per_s"], run["late"], run["rank_by_epoch"]) == (
        "2027-01-15", 200, {"loss": 1.0}, {"20": 40.5})  # fmt: skip
    assert run["settings"] == {"name": "cifar10-tuned-moco", "data": "cifar10", "epochs": 20, "seed": 7}
    with pytest.raises(SystemExit):
        keep.main(arguments)
    (ended / "backbone.safetensors").unlink()
    with pytest.raises(SystemExit, match="has not ended"):
        keep.main([*arguments, "--name", "other"])
    assert len(records.family("some-family")) == 1
