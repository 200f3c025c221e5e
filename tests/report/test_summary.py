"""Which runs a page is about, if folders of runs and files next to them are given."""

import json
import os

import pytest

from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.report.summary import RunDiscovery, find_runs, names_of
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


def names(runs, out):
    return [str(run.path.relative_to(out)) for run in runs]


def test_a_folder_of_runs_stands_for_those_that_are_finished(out):
    found = find_runs([out])
    assert names(found.runs, out) == FINISHED
    assert found.below == {out: 3}
    assert names(found.unfinished, out) == ["cifar10-moco/seed1"]
    found = find_runs([out / "cifar10-moco" / "seed1", out])
    assert names(found.runs, out) == ["cifar10-moco/seed1", *FINISHED]
    assert found.unfinished == []
    assert names(find_runs([out / FINISHED[0]] * 2).runs, out) == FINISHED[:1]


def test_a_run_that_a_link_leads_to_is_shown_once_by_its_own_name(out):
    row = out / "cifar10-moco-logo"
    link = row / "latest"
    link.symlink_to("seed1")
    for paths in ([row], [row, row / "seed1"], [row, link]):
        assert names(find_runs(paths).runs, row) == ["seed0", "seed1"]
    assert names(find_runs([link]).runs, row) == ["latest"]


@pytest.mark.parametrize("pattern", ["*", "*/seed*"])
def test_files_that_a_pattern_gives_with_runs_are_left_out(out, pattern):
    assert set(names(find_runs(sorted(out.glob(pattern))).runs, out)) >= set(FINISHED)


def test_paths_without_a_finished_run_are_user_errors(out):
    with pytest.raises(UserError, match=r"seed0\.json"):
        find_runs([out / "cifar10-moco" / "seed0.json"])
    for run in find_runs([out]).runs:
        run.provenance_file.unlink()
    with pytest.raises(UserError):
        find_runs([out])


def test_of_more_runs_than_a_page_shows_the_newest_are_watched_and_those_that_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.report.summary.MOST_RUNS", 2)
    out = tmp_path / "out"

    def begin(name, at):
        write(Run(out / name).recipe_file, "{}")
        os.utime(Run(out / name).recipe_file, (at, at))

    begin("b", 3)
    begin("c", 1)
    folder, both = RunDiscovery([out]), RunDiscovery([out, out / "c"])
    assert names(folder.runs(), out) == names(both.runs(), out) == ["b", "c"]
    for name, at in (("a", 2), ("d", 4)):
        begin(name, at)
        folder.until = both.until = 0  # ten seconds later
        assert names(folder.runs(), out) == {"a": ["a", "b"], "d": ["b", "d"]}[name]
        assert names(both.runs(), out) == {"a": ["b", "c"], "d": ["c", "d"]}[name]


def test_runs_are_named_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    runs = [Run(tmp_path / "a" / "demo"), Run(tmp_path / "b" / "demo"), Run(tmp_path / "b" / "demo")]
    assert names_of(runs) == ["a/demo", "b/demo", "b/demo (3)"]
    assert names_of(runs[:1]) == ["demo"]
