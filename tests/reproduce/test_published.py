"""Are the tables in the documentation those that the runs' records give?"""

import json
from pathlib import Path

import pytest

from logo_ssl.reproduce.launch import Outcome
from logo_ssl.reproduce.markdown import markdown
from logo_ssl.reproduce.plan import tasks_for
from logo_ssl.reproduce.results import gather
from logo_ssl.reproduce.tables import choose

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RAW = RESULTS / "raw" / "cifar10-tuned"


def record(name):
    """The table of all rows that have ended, as `reproduce --tuned` gathers it."""
    rows = sorted(folder.name for folder in RAW.iterdir() if folder.is_dir())
    seeds = min(len(list((RAW / row).glob("seed*.json"))) for row in rows)
    (table,) = (table for table in choose(["table1", "table7"], rows, own=True) if table.name == name)
    return gather(table, [(task, Outcome("done")) for task in tasks_for([table], seeds, RAW)])


@pytest.mark.parametrize("name", ["table1", "table7"])
def test_a_table_on_its_page_is_what_the_records_give(name):
    page = (RESULTS / "cifar10.md").read_text()
    _, _, table = markdown(record(name)).partition("\n\n")
    assert "NVIDIA H200" in table
    assert table.strip() in page


@pytest.mark.parametrize("row", record("table1")["rows"], ids=lambda row: row["recipe"])
def test_readme_shows_the_same_figures(row):
    knn20, knn200, linear = (f"{figure['mean']:.2f}" for figure in row["figures"])
    label = row["row"].removesuffix(", tuned").replace("+", "-")
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {label} |")]
    told = [line.replace("*", "") for line in lines]
    assert any(f"| {knn20} | {knn200} |" in line and f"| {linear} |" in line for line in told)


@pytest.mark.parametrize("page", ["cifar10.md", "experiments.md"])
@pytest.mark.parametrize("baseline", ["cifar10-tuned-moco", "cifar10-tuned-simsiam"])
def test_margins_are_those_of_the_rows(baseline, page):
    figures = {row["recipe"]: [figure["mean"] for figure in row["figures"]] for row in record("table1")["rows"]}
    above = (ours - theirs for ours, theirs in zip(figures[f"{baseline}-logo"], figures[baseline], strict=True))
    assert f"| {' | '.join(f'{points:+.2f}' for points in above)} |" in (RESULTS / page).read_text()


def ends(run):
    """The kNN figures of a run's last epoch: evaluated, or else measured while training."""
    evaluated = [each["results"] for each in run["evaluations"] if each["evaluation"] == "knn"]
    return [result["top1"] for results in evaluated for result in results] or [
        run["knn_k20_by_epoch"][str(run["epochs"])]
    ]


@pytest.mark.parametrize("name", ["l2l-twenty-epochs", "simsiam-four-large-crops"])
def test_where_single_runs_ended_is_told_with_the_experiment(name):
    (file,) = RESULTS.glob(f"raw/*-{name}.jsonl")
    _, _, told = (RESULTS / "experiments.md").read_text().partition(f"raw/{file.name}")
    figures = [f"{figure:.2f}" for line in file.read_text().splitlines() for figure in ends(json.loads(line))]
    assert len(figures) > 1
    assert [figure for figure in figures if figure not in told] == []
