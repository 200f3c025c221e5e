"""Which runs a page is about, if folders of runs and files next to them are given."""

import json

import pytest

from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.report.summary import find_runs, names_of
from logo_ssl.run import Run

FINISHED = ["cifar10-moco/seed0", "cifar10-moco-logo/seed0", "cifar10-moco-logo/seed1"]


@pytest.fixture
def out(tmp_path):
    """What `reproduce` leaves: two rows of two seeds, one of which is not finished, and files next to them."""
    for row in ("cifar10-moco", "cifar10-moco-logo"):
        for seed in (0, 1):
            run = Run(tmp_path / "out" / row / f"seed{seed}")
            write(run.recipe_file, find_recipe(row).changed(seed=seed).to_json())
            write(run.path.with_suffix(".json"), "{}")
            if (row, seed) != ("cifar10-moco", 1):
                write(run.provenance_file, json.dumps({"commit": "abc", "seconds": 1.0}))
    write(tmp_path / "out" / "table1.md", "# Table 1\n")
    return tmp_path / "out"


def names(paths, out):
    """The runs, and those that are left out."""
    return [[str(run.path.relative_to(out)) for run in runs] for runs in find_runs(paths)]


def test_a_folder_of_runs_stands_for_those_that_are_finished(out):
    unfinished = "cifar10-moco/seed1"
    assert names([out], out) == [FINISHED, [unfinished]]
    assert names([out / unfinished, out], out) == [[unfinished, *FINISHED], []]
    assert names([out / FINISHED[0]] * 2, out) == [FINISHED[:1], []]


def test_a_run_that_a_link_leads_to_is_shown_once(out):
    row = out / "cifar10-moco-logo"
    (row / "latest").symlink_to("seed1")
    for paths in ([row], [row, row / "seed1"], [row, row / "latest"]):
        assert names(paths, row)[0] == ["seed0", "seed1"]
    assert names([row / "latest"], row)[0] == ["latest"]


@pytest.mark.parametrize("pattern", ["*", "*/seed*"])
def test_files_that_a_pattern_gives_with_runs_are_left_out(out, pattern):
    assert set(names(sorted(out.glob(pattern)), out)[0]) >= set(FINISHED)


def test_paths_without_a_finished_run_and_too_many_runs_are_user_errors(out, monkeypatch):
    with pytest.raises(UserError, match=r"seed0\.json"):
        find_runs([out / "cifar10-moco" / "seed0.json"])
    monkeypatch.setattr("logo_ssl.report.summary.MOST_RUNS", 2)
    for paths in ([out], []):
        with pytest.raises(UserError, match="runs"):
            find_runs(paths)
    for name in FINISHED:
        Run(out / name).provenance_file.unlink()
    with pytest.raises(UserError):
        find_runs([out])


def test_runs_are_named_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    runs = [Run(tmp_path / "a" / "demo"), Run(tmp_path / "b" / "demo"), Run(tmp_path / "b" / "demo")]
    assert names_of(runs) == ["a/demo", "b/demo", "b/demo (3)"]
    assert names_of(runs[:1]) == ["demo"]
