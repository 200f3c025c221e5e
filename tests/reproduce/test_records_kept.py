"""Are records that were copied for the documentation whole, small, and free of the machine's folders?"""

import json
import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "keep_records.py"))


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
        lines = [json.dumps({"knn": step} if step % 100 == 0 else {"loss": step}) for step in range(1001)]
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


def test_a_thinned_log_has_all_of_knn_and_its_last_line(out):
    lines = (out / "ended" / "seed0" / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in TOOL["thinned"](lines)]
    assert [line["knn"] for line in told if "knn" in line] == list(range(0, 1001, 100))
    losses = [line["loss"] for line in told if "loss" in line]
    assert len(losses) == TOOL["LOGGED"]
    assert losses == sorted(losses)
    assert losses[-1] == 999
    assert TOOL["thinned"](["a", "b"]) == ["a", "b"]
