"""The rows of the paper's tables: which they are, how they run, and how what came out is written."""

import json

import pytest

from logo_ssl.recipes import find_recipe
from logo_ssl.reproduce.render import markdown, record_of
from logo_ssl.reproduce.run import with_settings
from logo_ssl.reproduce.tables import TITLES, RowRun, options_between, runs_of, tables_named


def finished(out, recipe, results, seed=0):
    """A run folder as a finished row leaves it."""
    folder = out / recipe.name / f"seed{seed}"
    (folder / "evaluation").mkdir(parents=True)
    (folder / "recipe.json").write_text(recipe.changed(seed=seed).to_json())
    made = {"seconds": 120.0, "hardware": "a GPU", "commit": "abc", "lr_scale": 0.5}
    (folder / "provenance.json").write_text(json.dumps(made))
    images = {"train_images": 50_000, "test_images": 10_000, "fingerprint": {"train": "x"}}
    (folder / "images.json").write_text(json.dumps(images))
    for name, result in results.items():
        (folder / "evaluation" / f"reproduce-{name}.json").write_text(json.dumps(result))
    return folder


@pytest.mark.parametrize(
    ("name", "rows", "paper"),
    [
        ("table1", 4, {79.58, 80.37, 84.44, 85.59, 80.48, 83.02, 87.67, 88.02}),
        ("table2", 4, {72.13, 79.07, 76.79, 80.73, 60.8, 71.66, 76.96, 80.61}),
        ("table3", 4, {64.18, 68.48, 76.82, 79.32, 71.21, 75.48, 78.48, 80.94}),
        ("table4", 4, {68.48, 79.32, 74.84, 85.14, None}),
        ("table5", 5, None),
        ("table6", 2, {78.65, 52.43, 57.22, 81.12, 54.91, 61.06, 59.11, 39.38, 42.55, 59.74, 40.23, 43.48}),
        ("table7", 12, None),
    ],
)
def test_tables_have_the_papers_rows_and_figures(name, rows, paper):
    (table,) = tables_named([name])
    assert len(table.rows) == rows
    found = {figure.paper for row in table.rows for figure in row.figures}
    assert paper is None or paper <= found


def test_table_5_has_ten_sets_for_each_row():
    (table,) = tables_named(["table5"])
    assert {len(row.figures) for row in table.rows} == {10}
    logo = next(row for row in table.rows if row.label == "MoCo-LoGo")
    assert [figure.paper for figure in logo.figures][:3] == [86.09, 63.43, 65.67]


def test_figures_show_rows_of_the_tables_next_to_them_and_figure_3_those_with_a_regressor():
    def names(*asked, **how):
        return {row.recipe.name for table in tables_named(asked, **how) for row in table.rows}

    assert names("fig1b") == names("table3")
    assert names("table1", "fig3") == names("table1")
    assert {table.name: len(table.rows) for table in tables_named(["table1", "fig3"])} == {"table1": 4, "fig3": 2}
    tuned = tables_named(["table1"], own=True)[0]
    assert {row.recipe.name for row in tuned.rows} == {f"cifar10-tuned-{n}" for n in (
        "moco", "moco-logo", "simsiam", "simsiam-logo")}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in TITLES if name.startswith("table")])
def test_options_between_recipes_make_the_one_of_the_other(name, capsys):
    for row in tables_named([name])[0].rows:
        recipe = row.recipe.changed(epochs=3, seed=2, crops__global_scale=(0.3, 1.0), deterministic=True)
        options = options_between(find_recipe(recipe.name), recipe)
        assert [*options].count("--seed") == 1
        assert "--deterministic" in options
        assert options[options.index("--crops.global-scale") + 1 :][:2] == ["0.3", "1.0"]


def test_tables_share_runs_and_a_finished_run_with_its_results_leaves_nothing_to_do(tmp_path):
    rows = runs_of(tables_named(["table1", "table7"], ["cifar10-*"]), 2, tmp_path)
    assert len(rows) == 2 * 6
    row = rows[0]
    commands = [command[0] for command in row.commands()]
    assert commands == ["pretrain", "eval", "eval"]
    finished(tmp_path, row.recipe, {evaluation.name: {} for evaluation in row.evaluations})
    assert list(row.commands()) == []
    row.result_file(row.evaluations[1]).unlink()
    assert [command[:2] for command in row.commands()] == [["eval", "linear"]]


def test_a_record_has_means_spreads_departures_and_what_is_missing(tmp_path):
    (table,) = tables_named(["table1"], ["cifar10-moco"])
    recipe = table.rows[0].recipe.changed(epochs=100)
    for seed, top1 in enumerate((80.0, 82.0)):
        knn = {"results": [{"k": 20, "tau": 0.07, "top1": top1}, {"k": 200, "tau": 0.1, "top1": 70.0}]}
        finished(tmp_path, recipe, {"knn": knn}, seed)
    failed = tmp_path / "cifar10-moco" / "seed2"
    record = record_of(table, tmp_path, {failed: "pretrain ended with exit code 2"})
    (row,) = record["rows"]
    assert row["departures"] == {"epochs": {"ours": 100, "recipe": 200}}
    first, second, linear = row["figures"]
    assert (first["n"], first["mean"], round(first["spread"], 3)) == (2, 81.0, 1.414)
    assert (second["mean"], second["spread"], linear["n"], linear["mean"]) == (70.0, 0.0, 0, None)
    text = markdown(record)
    assert "| MoCo \\* | kNN k=20, tau=0.07 | 79.58 | 81.00 ± 1.41 | n=2 | (2 + 0) x 100 | 2.0 | a GPU | abc |" in text
    for told in ("epochs 100 (recipe: 200)", "50,000 images to train on", "0.5 of its learning rate", "exit code 2"):
        assert told in text


def test_a_run_with_other_settings_is_refused_and_smaller_cuts_by_the_data_are_not(tmp_path):
    recipe = find_recipe("cifar10-moco")
    finished(tmp_path, recipe.changed(batch_size=256, framework__queue=104), {})
    RowRun(recipe, tmp_path / "cifar10-moco" / "seed0", ()).check()
    with pytest.raises(Exception, match=r"optimiser\.lr"):
        RowRun(recipe.changed(optimiser__lr=0.5), tmp_path / "cifar10-moco" / "seed0", ()).check()


def test_settings_reach_the_rows_that_have_the_field():
    rows = {name: find_recipe(name) for name in ("cifar10-moco", "cifar10-simsiam")}
    changed = with_settings(rows, ["framework.tau=0.3", "crops.global_scale=0.3,1", "deterministic=True"])
    assert changed["cifar10-moco"].framework.tau == 0.3
    assert changed["cifar10-simsiam"] == rows["cifar10-simsiam"].changed(
        crops__global_scale=(0.3, 1.0), deterministic=True
    )
