"""Which runs a page is about, and how far they are."""

import json
import os

import pytest
from filelock import FileLock

from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.report.page import state
from logo_ssl.report.summary import find_runs
from logo_ssl.run import LOCK, Run

ROWS = ["cifar10-moco/seed0", "cifar10-moco/seed1", "cifar10-moco-logo/seed0", "cifar10-moco-logo/seed1"]


@pytest.fixture
def out(tmp_path):
    """What `reproduce` leaves: two rows of two seeds, and files next to them."""
    for at, name in enumerate(ROWS):
        run = Run(tmp_path / "out" / name)
        write(run.recipe_file, find_recipe(name.split("/")[0]).to_json())
        os.utime(run.recipe_file, (at, at))
        write(run.path.with_suffix(".json"), "{}")
    write(tmp_path / "out" / "table1.md", "# Table 1\n")
    return tmp_path / "out"


def names(*paths, out):
    return {str(run.path.relative_to(out)) for run in find_runs(paths)[0]}


def test_a_folder_stands_for_the_runs_in_it_and_files_next_to_runs_are_passed_over(out):
    assert names(out, out=out) == names(*sorted(out.glob("*")), out=out) == set(ROWS)
    assert names(out / ROWS[0], out / ROWS[0], out=out) == {ROWS[0]}
    assert names(*sorted(out.glob("*/seed*")), out=out) == set(ROWS)


def test_a_run_that_a_link_leads_to_is_shown_once(out):
    (out / "cifar10-moco" / "latest").symlink_to("seed1")
    assert len(find_runs([out / "cifar10-moco", out / "cifar10-moco" / "latest"])[0]) == 2


def test_of_too_many_the_newest_and_those_that_are_named_are_shown(out, monkeypatch):
    monkeypatch.setattr("logo_ssl.report.summary.MOST_RUNS", 2)
    assert names(out, out=out) == set(ROWS[2:])
    assert names(out, out / ROWS[0], out=out) == {ROWS[0], ROWS[3]}
    assert find_runs([out])[1] == 2


def test_a_path_without_a_run_is_a_user_error(out):
    for path in (out / "cifar10-moco" / "seed0.json", out / "nowhere"):
        with pytest.raises(UserError, match=path.name):
            find_runs([path])


def test_a_run_is_running_while_its_folder_is_held_and_tells_when_it_will_be_done(tmp_path, summarise):
    run = Run(tmp_path / "run")
    write(run.recipe_file, find_recipe("tiny").changed(epochs=10).to_json())
    write(run.images_file, json.dumps({"train_images": 6000, "test_images": 0, "fingerprint": {}}))
    write(run.metrics_file, json.dumps({"step": 6000 // 64 * 5, "loss": 1.0, "images_per_s": 10.0, "epoch": 4}))
    assert state(summarise(run)) == "stopped, 5.0 of 10 epochs"
    with FileLock(run.path / LOCK):
        assert state(summarise(run)) == "running, 5.0 of 10 epochs, about 50 min left"
    write(run.provenance_file, '{"commit": "abc123"}')
    assert state(summarise(run)) == "finished, 10 epochs"
