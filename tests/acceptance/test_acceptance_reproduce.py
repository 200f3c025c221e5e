"""Does `reproduce` run the rows of a table, go on after an interruption, write the table, and do nothing twice?"""

import json
import signal
import time

import pytest
from command_line import ended, here, started
from made_up_data import save_npz

ROWS = ("cifar10-moco", "cifar10-moco-logo")
SMALL = ("backbone=tiny", "crops.global_size=16", "crops.local_size=16", "batch_size=64", "knn_every=1", "loggers=")
SET = [word for setting in (*SMALL, "checkpoint_every=1") for word in ("--set", setting)]
SHORT = ("--data", "cifar10.npz", "--device", "cpu", "--out", "out", *SET)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """A folder in which a row of Table 1 was interrupted and finished, with its curve and the picture of affinities."""
    folder = tmp_path_factory.mktemp("reproduce")
    save_npz(folder / "cifar10.npz", 208, 16, size=16)
    command = ("reproduce", "table1", "fig1b", "fig3", "--rows", ROWS[1], "--epochs", "8", *SHORT)
    process, run = started(*command, cwd=folder), folder / "out" / ROWS[1] / "seed0"
    while not list(run.glob("checkpoints/*.ckpt")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 130
    assert not (run / "provenance.json").exists()
    done = here(*command, cwd=folder)
    assert done.code == 0, done.err
    return folder, command


def test_an_interrupted_row_ends_as_a_run_and_the_table_has_its_figures(reproduced):
    folder, _ = reproduced
    table, run = (folder / "out" / "table1.md").read_text(), folder / "out" / ROWS[1] / "seed0"
    (row,) = json.loads((folder / "out" / "table1.json").read_text())["rows"]
    assert [figure["n"] for figure in row["figures"]] == [1, 1, 1]
    assert (run / "backbone.safetensors").is_file()
    (knn,) = run.glob("evaluation/*knn*.json")
    (linear,) = run.glob("evaluation/*linear*.json")
    first, second = json.loads(knn.read_text())["results"]
    assert (first["k"], second["k"]) == (20, 200)
    for figure in (first["top1"], second["top1"], json.loads(linear.read_text())["results"]["top-1"]):
        assert f"{figure:.2f}" in table
    assert "84.44" in table  # the paper's MoCo+LoGo
    assert ROWS[0] not in [path.name for path in (folder / "out").iterdir()]


def test_the_figures_are_pictures(reproduced):
    out = reproduced[0] / "out"
    assert (out / "fig1b.png").read_bytes().startswith(b"\x89PNG")
    assert list(out.glob("fig3*logo*.png"))


def test_rows_that_are_done_are_not_run_again(reproduced):
    folder, command = reproduced
    files = [file for file in folder.glob("out/*/seed0/**/*") if file.is_file()]
    before = {file: file.stat().st_mtime_ns for file in files}
    assert len(before) >= 10
    done = here(*(word for word in command if word != "fig3"), cwd=folder)
    assert done.code == 0, done.err
    assert {file: file.stat().st_mtime_ns for file in before} == before


def test_a_dry_run_names_the_rows_and_writes_nothing(logo, cwd, tmp_path):
    save_npz(tmp_path / "cifar10.npz", 64, 32)
    done = logo("reproduce", "table1", "--dry-run", "--seeds", "2", "--data", tmp_path / "cifar10.npz")
    assert done.code == 0, done.err
    for row in (*ROWS, "cifar10-simsiam", "cifar10-simsiam-logo"):
        assert row in done.out
    assert not list(cwd.rglob("*.*"))


def test_a_row_that_fails_gives_exit_code_1_and_is_named(logo, cwd, capfd):
    """Its regressor's steps are so long that nothing finite comes of them."""
    save_npz(cwd / "cifar10.npz", 208, 16, size=16)
    diverges = ("--epochs", "1", "--set", "strategy.lr=1e30")
    done = logo("reproduce", "table1", "--rows", ROWS[1], *diverges, *SHORT)
    assert done.code == 1, done.err
    assert ROWS[1] in done.err + done.out
    assert "Traceback" not in done.err + "".join(capfd.readouterr())
