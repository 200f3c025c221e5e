"""Are records that were copied for the documentation whole, small, and free of the machine's folders?"""

import json
import runpy
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from logo_ssl.recipes import Recipe, find_recipe

TOOLS = Path(__file__).parents[2] / "tools"
TOOL = runpy.run_path(str(TOOLS / "keep_records.py"))


@pytest.fixture
def out(tmp_path):
    """What `reproduce` leaves of a run that ended and of one that did not."""
    out = tmp_path / "elsewhere"
    for row in ("ended", "begun"):
        run = out / row / "seed0"
        (run / "evaluation").mkdir(parents=True)
        record = {"asked": {"data": "/far/away/set.npz"}} | ({"figures": {}} if row == "ended" else {})
        run.with_suffix(".json").write_text(json.dumps(record))
        (run / "recipe.json").write_text(json.dumps({"data": "/far/away/set.npz"}))
        (run / "sittings.json").write_text("[]")
        (run / "backbone.safetensors").write_bytes(b"weights")
        (run / "evaluation" / "knn.json").write_text(json.dumps({"encoder": str(run), "source": "/far/away/set.npz"}))
        lines = [
            json.dumps({("knn" if step % 100 == 0 else "z_std" if step % 10 == 1 else "loss"): step})
            for step in range(1000)
        ]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return out


def test_what_ended_is_kept_without_weights_and_without_folders(out, tmp_path):
    kept = tmp_path / "kept"
    TOOL["main"]([str(out), str(kept)])
    found = {str(file.relative_to(kept)) for file in kept.rglob("*") if file.is_file()}
    run = "ended/seed0"
    named = ("recipe.json", "sittings.json", "evaluation/knn.json", "metrics.jsonl")
    assert found == {f"{run}.json", *(f"{run}/{name}" for name in named)}
    assert json.loads((kept / run / "evaluation" / "knn.json").read_text()) == {"encoder": run, "source": "set.npz"}
    assert not any("/far/away" in (kept / name).read_text() for name in found)


def test_a_record_tells_how_many_shared_the_device(out, tmp_path):
    for options, told in (([], 1), (["--at-once", "3"], 3)):
        kept = tmp_path / f"kept{told}"
        TOOL["main"]([str(out), str(kept), *options])
        assert json.loads((kept / "ended" / "seed0.json").read_text())["jobs"] == told


def test_what_was_kept_before_is_left_as_it_was(out, tmp_path, capsys):
    kept = tmp_path / "kept"
    TOOL["main"]([str(out), str(kept)])
    assert capsys.readouterr().out == "ended/seed0: kept\n"
    before = {file: file.read_text() for file in kept.rglob("*") if file.is_file()}
    shutil.copytree(out / "ended" / "seed0", out / "ended" / "seed1")
    shutil.copy(out / "ended" / "seed0.json", out / "ended" / "seed1.json")
    TOOL["main"]([str(out), str(kept), "--at-once", "3"])
    first, second = capsys.readouterr().out.splitlines()
    assert first == "ended/seed1: kept"
    assert second.startswith("ended/seed0: there already")
    assert {file: file.read_text() for file in before} == before
    assert json.loads((kept / "ended" / "seed1.json").read_text())["jobs"] == 3


def test_a_thinned_log_has_all_of_knn_and_its_last_line(out):
    lines = (out / "ended" / "seed0" / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in TOOL["thinned"](lines)]
    assert [line["knn"] for line in told if "knn" in line] == list(range(0, 1000, 100))
    for kind, last in (("loss", 999), ("z_std", 991)):
        logged = [line[kind] for line in told if kind in line]
        assert len(logged) == TOOL["LOGGED"]
        assert logged == sorted(logged)
        assert logged[-1] == last
    assert TOOL["thinned"](['{"a": 1}', '{"b": 2}']) == ['{"a": 1}', '{"b": 2}']


def test_a_folder_of_the_machine_is_not_published(out, tmp_path):
    (out / "ended" / "seed0" / "recipe.json").write_text('{"init": "/home/me/weights.pth"}')
    shutil.copytree(out / "ended", out / "earlier")
    (out / "earlier" / "seed0" / "recipe.json").write_text("{}")
    begun = tmp_path / "kept" / "ended" / "seed0" / "recipe.json"
    begun.parent.mkdir(parents=True)
    begun.write_text("{}")
    with pytest.raises(SystemExit, match=r"names a folder of this machine: \"/home/me"):
        TOOL["main"]([str(out), str(tmp_path / "kept")])
    assert [file for file in (tmp_path / "kept").rglob("*") if file.is_file()] == [begun]  # nothing was touched


def test_a_line_for_each_run_tells_what_it_was_and_what_came(tmp_path):
    recipe = find_recipe("cifar10-tuned-moco-logo")
    recipe = replace(recipe, data="/far/away/cifar10.npz", strategy=replace(recipe.strategy, lam=0.5))
    run = tmp_path / "run"
    (run / "evaluation").mkdir(parents=True)
    (run / "recipe.json").write_text(recipe.to_json())
    facts = {"crops": "2 global + 2 local", "seed": 1, "commit": "abc", "hardware": "a GPU", "seconds": 9.0}
    (run / "provenance.json").write_text(json.dumps({**facts, "versions": {"torch": "2.11.0"}}))
    logged = [
        {"step": 0, "knn": 39.0, "knn_k": 20, "epochs_done": 0},
        {"step": 1, "loss": 3.0, "images_per_s": 100.4},
        {"step": 2, "loss": 2.0, "images_per_s": 300.0},
        {"step": 3, "loss": 1.0, "images_per_s": 200.4},
        {"step": 3, "z_std": 0.9, "z_rank": 40.5, "epoch": 19},
        {"step": 3, "knn": 72.0, "knn_k": 20, "epochs_done": 20},
    ]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in logged))
    evaluation = {"evaluation": "linear-sgd", "protocol": "MoCo's", "results": {"top-1": 73.0}}
    (run / "evaluation" / "linear.json").write_text(json.dumps({**evaluation, "encoder": str(run)}))
    file = tmp_path / "kept.jsonl"
    keep = runpy.run_path(str(TOOLS / "keep_runs.py"))["main"]
    keep([str(file), str(run), str(run)])
    line, again = file.read_text().splitlines()
    told = json.loads(line)
    assert line == again
    assert told.items() >= facts.items()
    assert Recipe.from_json(json.dumps(told["settings"])) == replace(recipe, data="cifar10")
    assert (told["recipe"], told["epochs"]) == (recipe.name, recipe.epochs)
    assert told["knn_k20_by_epoch"] == {"0": 39.0, "20": 72.0}
    assert told["last_logged"] == logged[-3]
    assert told["last_gauged"] == {"z_std": 0.9, "z_rank": 40.5}
    assert told["median_images_per_s"] == 200
    assert told["evaluations"] == [evaluation]
    assert str(tmp_path) not in line
    assert "/far/away" not in line

    (run / "recipe.json").write_text(replace(recipe, init="/home/me/weights.pth").to_json())
    with pytest.raises(SystemExit, match=r"names a folder of this machine: \"/home/me/weights.pth"):
        keep([str(file), str(run)])
    assert file.read_text().splitlines() == [line, line]
