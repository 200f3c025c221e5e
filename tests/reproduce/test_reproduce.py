"""The whole way: rows run, go on, are not run twice, and end in tables and curves."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.data.folder import load_folder
from logo_ssl.detection.recipe import DetectionRecipe, DetectorConfig
from logo_ssl.detection.sources import OFFICIAL, Counts
from logo_ssl.errors import DataMissing, Interrupted, UserError
from logo_ssl.eval import Extraction, load_encoder
from logo_ssl.lock import Held, locked
from logo_ssl.recipes import find_recipe
from logo_ssl.reproduce import rows
from logo_ssl.reproduce.images import facts_of, other_sets
from logo_ssl.reproduce.launch import PATIENCE_S, Workers
from logo_ssl.reproduce.plan import Place, Task
from logo_ssl.reproduce.rows import _measure
from logo_ssl.reproduce.sources import images_at
from logo_ssl.reproduce.tables import choose
from logo_ssl.reproduce.worker import attempt
from logo_ssl.run import Run
from logo_ssl.train.monitors import CollapseGauge

sys.path.insert(0, str(Path(__file__).parents[1] / "detection"))

from drawn import save_coco

no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
LOGO = "--rows cifar10-moco cifar10-moco-logo --set strategy.width=16 --epochs 1"


def test_rows_run_once_and_tables_share_them(reproduce, performed, tmp_path, monkeypatch):
    code, out, err = reproduce(f"table1 fig1b fig3 {LOGO} --seeds 2")
    assert code == 0, err
    four = [f"{row}, seed {seed}" for row in ("cifar10-moco", "cifar10-moco-logo") for seed in (0, 1)]
    assert performed == four
    assert "are few to learn from" not in out  # advice for one's own pretraining; a row is what it is
    text = (tmp_path / "out" / "table1.md").read_text()
    assert text in out
    assert text.startswith("# Table 1: CIFAR-10, backbone tiny\n")
    record = json.loads((tmp_path / "out" / "table1.json").read_text())
    assert [row["row"] for row in record["rows"]] == ["MoCo", "MoCo+LoGo"]
    for row in record["rows"]:
        assert [figure["protocol"] for figure in row["figures"]] == [
            "kNN k=20, tau=0.07",
            "kNN k=200, tau=0.1",
            "linear, sgd",
        ]
        assert all(figure["values"].keys() == {"0", "1"} and figure["n"] == 2 for figure in row["figures"])
        assert {"commit", "hardware", "seconds"} <= row["runs"][0]["provenance"].keys()
        assert row["departures"]["epochs"] == {"ours": 1, "recipe": 200}
        assert "data" not in row["departures"]  # a file named after the set is the set
        assert "knn_every" not in row["departures"]  # nor does it matter how closely a run is watched
    first, second = record["rows"][1]["figures"][0]["values"].values()
    mean, spread = (first + second) / 2, abs(first - second) / 2**0.5
    assert f"| {mean:.2f} ± {spread:.2f} | n=2 | (2 + 2) x 1 |" in text
    assert "strategy.width 16 (recipe: 256)" in text

    strange = "The paper's Figure 1b is ImageNet-100 with ResNet-34; this one is CIFAR-10 with backbone tiny."
    assert out.count(strange) == 1
    assert (tmp_path / "out" / "fig1b.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "out" / "fig1b.svg").read_text()
    assert sorted(re.findall(r'id="row-([\w-]+)"', svg)) == ["cifar10-moco", "cifar10-moco-logo"]
    told = json.loads((tmp_path / "out" / "fig1b.json").read_text())
    curves = told["curves"]
    counts = "208 images to train on, not 50,000; 16 images to test on, not 10,000"
    caption = [strange.replace("CIFAR-10", f"CIFAR-10 ({counts})"), "Settings differ from the paper's: see fig1b.json."]
    assert told["remarks"] == caption
    assert {row: list(points) for row, points in curves.items()} == {
        "cifar10-moco": ["0", "1"],
        "cifar10-moco-logo": ["0", "1"],
    }

    assert out.count("The paper's Figure 3 is ImageNet-100; this one is CIFAR-10 with backbone tiny.") == 1
    pictures = sorted(file.name for file in (tmp_path / "out").glob("fig3*.png"))
    assert pictures == ["fig3-cifar10-moco-logo.png"]  # MoCo has learned no measure
    told = json.loads((tmp_path / "out" / "fig3.json").read_text())
    assert f"this one is CIFAR-10 ({counts}) with backbone tiny." in told["remarks"][0]
    assert told["remarks"][1] == "Settings differ from the paper's: see fig3.json."
    shown = told["affinities"]["cifar10-moco-logo"]
    assert shown["seed"] == 0
    ranked = shown["results"]
    assert {"AUC"} <= {result["metric"] for result in ranked}
    assert all(0 <= result["learned"]["mean"] <= 1 for result in ranked if result["metric"] == "AUC")

    with monkeypatch.context() as patch:
        patch.setattr("logo_ssl.show.affinity.Affinity.run", refuse)
        code, out, _ = reproduce(f"fig3 table1 {LOGO} --seeds 2")
    assert (code, text in out) == (1, True)  # a picture that fails costs no table
    assert "cifar10-moco-logo is not drawn: No data." in out

    performed.clear()
    code, out, _ = reproduce(f"table1 table7 {LOGO} --seeds 2")
    assert (code, performed) == (0, [])
    assert (tmp_path / "out" / "table7.md").read_text() in out
    assert re.search(r"MoCo-LoGo full, CIFAR10 \\\* \| kNN k=20, tau=0.07 \| 84.44 \| [\d.]+ ± [\d.]+ \| n=2", out)

    code, out, _ = reproduce(f"table1 {LOGO} --seeds 3 --dry-run")
    assert (code, performed) == (0, [])
    assert "cifar10-moco, each of seeds 0 and 1: finished" in out
    assert re.search(r"moco, seed 2: 1 epoch of 208 images, about .* images/s measured in .*cifar10-moco.seed0", out)

    code, _, err = reproduce(f"table1 {LOGO} --seeds 2 --set optimiser.lr=0.12")
    assert code == 2
    assert re.search(r"seed0 was begun with other settings \(optimiser.lr 0.06, now 0.12\); choose another --out", err)


def refuse(*_):
    raise UserError("No data.")


def test_figure_1b_names_a_bank_that_was_thinned(reproduce, performed, tmp_path, monkeypatch):
    line, told = "fig1b --rows cifar10-moco --epochs 1", "Neighbours of cifar10 are looked for among 30 of 208 images."
    monkeypatch.setattr("logo_ssl.train.monitors.online_knn.MOST_FEATURES", 30)
    assert told in reproduce(line)[1]
    assert told in json.loads((tmp_path / "out" / "fig1b.json").read_text())["remarks"]
    log = next((tmp_path / "out").rglob("metrics.jsonl"))
    log.write_text(re.sub(r'"knn_bank": \d+, "knn_bank_of": \d+, ', "", log.read_text()))  # an old one
    code, out, _ = reproduce(line)
    assert (code, "Neighbours of" in out) == (0, False)


def test_an_interrupted_row_goes_on_where_it_was_and_its_data_may_move(
    reproduce, performed, data, tmp_path, monkeypatch
):
    measure = CollapseGauge.on_train_epoch_end

    def stop(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            raise Interrupted("Interrupted.")  # as training says it
        measure(self, trainer, pl_module)

    line = "table1 --rows cifar10-moco --epochs 2"
    with monkeypatch.context() as patch:
        patch.setattr(CollapseGauge, "on_train_epoch_end", stop)
        code, _, err = reproduce(line)
    assert (code, "the same command goes on where it stopped" in err) == (130, True)
    code, out, _ = reproduce(f"{line} --dry-run")
    assert "cifar10-moco, seed 0: goes on after 1 of 2 epochs" in out
    (tmp_path / "moved").mkdir()
    code, out, err = reproduce(f"{line} --set log_every=7", source=data.rename(tmp_path / "moved" / data.name))
    assert code == 0, err
    assert "log-every: 20 -> 7" in out  # what may change on the way does
    assert "cifar10-moco, seed 0: goes on (1 of 1)" in out
    assert "Going on after 1 epoch" in out
    assert "| > " not in out  # the time before the interruption is counted too
    lines = Run(tmp_path / "out" / "cifar10-moco" / "seed0").metrics()
    assert [line["epochs_done"] for line in lines if "knn" in line] == [0, 1, 2]


def test_a_row_that_was_killed_before_its_first_line_runs_all_the_same(reproduce, performed, tmp_path, monkeypatch):
    def kill(*_, **__):
        raise Interrupted("Interrupted.")

    line = "table1 --rows cifar10-moco --epochs 1"
    with monkeypatch.context() as patch:
        patch.setattr("logo_ssl.reproduce.rows.begin", kill)
        assert reproduce(line)[0] == 130
    run = Run(tmp_path / "out" / "cifar10-moco" / "seed0")
    run.path.mkdir(parents=True)
    run.recipe_file.write_text(json.dumps(json.loads(run.path.with_suffix(".json").read_text())["asked"]))
    run.metrics_file.touch()
    (run.path / "tensorboard").mkdir()
    code, out, err = reproduce(line)
    assert code == 0, err
    assert "cifar10-moco, seed 0: goes on (1 of 1)" in out
    assert "| n=1 |" in out


@pytest.mark.parametrize("asked", ["table1", "fig1b"])
def test_images_without_labels_are_refused_before_anything_is_trained(reproduce, performed, tmp_path, asked):
    file = tmp_path / "cifar10.npz"
    np.savez(file, train_images=np.zeros((40, 16, 16, 3), np.uint8))
    code, _, err = reproduce(f"{asked} --rows cifar10-moco --data {file}", small=False)
    assert (code, performed) == (2, [])
    assert "cifar10 has no labels, and this evaluation needs them; give two or more class folders" in err
    np.savez(file, train_images=np.zeros((40, 16, 16, 3), np.uint8), train_label=np.arange(40))
    code, _, err = reproduce(f"{asked} --rows cifar10-moco --data {file}", small=False)
    assert (code, performed) == (2, [])
    assert "needs them; give two or more class folders" in err
    assert f"train_label in {file} is not read; did you mean train_labels?" in err


def test_tuned_rows_are_told_from_the_papers_and_written_apart(reproduce, performed, tmp_path):
    code, out, err = reproduce("table1 --tuned --rows cifar10-moco --epochs 1")  # by the name of the paper's row, too
    assert code == 0, err
    text = (tmp_path / "out" / "table1-tuned.md").read_text()
    assert text in out
    paper, ours = text.split("Set for this table, not of our choice (the tuned recipe's in brackets):")
    assert "framework.tau 0.2 (recipe: 0.1)" in paper
    assert "epochs 1 (recipe: 200)" in paper
    assert "framework.tau" not in ours
    assert "epochs 1 (recipe: 200)" in ours
    assert not (tmp_path / "out" / "table1.md").exists()


def test_a_row_that_fails_or_lacks_its_data_is_told_and_the_others_go_on(reproduce, performed, data, monkeypatch):
    rows = "--rows imagenet100-moco-logo cifar10-moco-logo cifar10-simsiam-logo"
    monkeypatch.setattr("logo_ssl.reproduce.rows.begin", diverge)
    code, out, _ = reproduce(f"table7 {rows} --data cifar10={data}", small=False)
    assert code == 1
    assert len(performed) == 3
    assert "cifar10-moco-logo, seed 0: failed: Training diverged." in out
    assert "imagenet100-moco-logo, seed 0: missing: imagenet100 cannot be downloaded" in out
    assert ("table7 is not written: nothing in it is measured yet." in out, "| n=0" in out) == (True, False)


def test_a_table_names_below_it_the_rows_that_failed_or_lack_their_data(reproduce, performed, data, monkeypatch):
    row = f"table7 --epochs 1 --data cifar10={data} --set loggers= --set backbone=tiny --set stem=imagenet"
    assert reproduce(f"{row} --rows cifar10-moco-multicrop", small=False)[0] == 0
    monkeypatch.setattr("logo_ssl.reproduce.rows.begin", diverge)
    code, out, _ = reproduce(f"{row} --rows imagenet100-moco-logo cifar10-moco-*", small=False)
    absent = out[out.index("Not there:") :]
    assert (code, "MoCo-LoGo full, CIFAR10 (cifar10-moco-logo), seed 0, failed: Training diverged." in absent) == (1, 1)
    assert re.search(r"IN100 \(imagenet100-moco-logo\), seed 0, missing: imagenet100 cannot be downloaded", absent)
    assert re.search(r"MoCo-LoGo full, IN100 \\\* \| kNN k=20, tau=0.07 \| 76.82 \| - \| n=0 of 1 ", out)


def test_a_set_that_is_missing_is_looked_for_and_told_once(reproduce, performed, tmp_path, monkeypatch):
    def missing(source, size):
        raise DataMissing("cifar10 could not be downloaded (no network); give it by --data cifar10.npz.")

    monkeypatch.setattr("logo_ssl.reproduce.rows.load_data", missing)
    code, out, _ = reproduce("table1 --epochs 1 --set backbone=tiny", small=False)
    assert (code, performed) == (1, ["cifar10-moco, seed 0"])
    assert out.count("could not be downloaded") == 1
    for row in ("moco-logo", "simsiam", "simsiam-logo"):
        assert f"cifar10-{row}, seed 0: missing: cifar10 is not here, as for cifar10-moco, seed 0.\n" in out
    assert out.endswith("\ntable1 is not written: nothing in it is measured yet.\n")
    assert not list((tmp_path / "out").glob("table1*"))


def diverge(*_):
    raise UserError("Training diverged.")


def test_table_5_transfers_to_the_sets_that_are_there_and_names_the_others(reproduce, performed, data, monkeypatch):
    def only_textures(source, size):
        if source != "dtd":
            raise DataMissing(f"No {source} here.")
        return load_data(str(data), size)

    monkeypatch.setattr("logo_ssl.eval.transfer.load_data", only_textures)
    monkeypatch.setattr("logo_ssl.reproduce.rows.TRANSFER_SIZE", 16)
    code, out, _ = reproduce("table5 --rows imagenet100-resnet50-supervised --epochs 1")
    assert code == 1
    assert re.search(r"Super\(IN-100\) \\\* \| DTD, top-1 \| 62.07 \| [\d.]+ \| n=1 \|", out)
    assert "| Pets, mean per class | 73.50 | - | n=0 of 1 |" in out
    assert "Pets is missing: No oxfordiiitpet here." in out
    assert "framework.dim" not in out  # as many as there are classes


def test_table_6_detects_on_the_sets_that_are_there_and_names_the_others(reproduce, performed, tmp_path, monkeypatch):
    few = save_coco(tmp_path / "few" / "coco", {"train": 3, "val": 2})
    small = DetectorConfig(short_sides=(32,), test_side=32, candidates=(20, 20), proposals=(8, 8), regions=4)
    brief = DetectionRecipe(small, iterations=1, batch_size=2, steps=(), warm_up=0, norm_batches=0)
    monkeypatch.setenv("LOGO_DATA", str(few.parent))
    monkeypatch.setitem(OFFICIAL, "coco", Counts(3, 2, 2))
    monkeypatch.setattr("logo_ssl.reproduce.rows.recipe_for", lambda *about: brief)
    line = "table6 --rows imagenet100-resnet50-moco-logo --epochs 1"
    code, out, _ = reproduce(line, backbone="resnet18")
    assert code == 1
    assert re.search(r"MoCo-LoGo \\\* \| coco, mask AP50 \| 56.55 \| [\d.]+ \| n=1 \|", out)
    assert "| voc07+12, box AP50 | 81.12 | - | n=0 of 1 |" in out
    assert "unpack VOCtrainval and VOCtest of 2007" in out
    assert "Detection: Faster R-CNN with a ResNet-C4 head" in out


def test_a_part_of_a_set_makes_no_row_of_table_6(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    said = []
    assert not _measure("segment-coco", load_encoder("random/tiny"), None, Extraction(say=said.append), seed=0)
    assert said[0].startswith("This is not the coco of Table 6 (118,287 + 5,000 pictures")


def test_a_dry_run_of_table_5_tells_which_sets_are_there_and_how_to_bring_the_others(reproduce, performed, tmp_path):
    sets = tmp_path / "sets"
    (sets / "cifar-100-python").mkdir(parents=True)
    code, out, _ = reproduce("table5 --dry-run", small=False)
    assert (code, performed) == (0, [])
    told = "eval transfer of each row to 10 sets: {} there in {}; cifar10, food101, oxfordiiitpet, flowers102, "
    told += "caltech101, fgvcaircraft and dtd are missing, and would be downloaded where the network allows; {} "
    told += "missing, and must be placed by hand.\n"
    assert told.format("cifar100 is", sets, "mit67 and stanfordcars are") in out
    assert f"\nmit67 is not in {sets}; unpack indoorCVPR_09 there" in out
    assert re.search(rf"\nstanfordcars .*{re.escape(str(sets / 'stanford_cars'))}", out)
    (sets / "mit67").mkdir()
    for part in ("Train", "Test"):
        (sets / "mit67" / f"{part}Images.txt").write_text("bar/a.jpg\n")
    _, out, _ = reproduce("table5 --dry-run", small=False)
    assert told.format("cifar100 and mit67 are", sets, "stanfordcars is") in out
    assert "\nmit67 " not in out
    assert "eval transfer" not in reproduce("table1 --dry-run", small=False)[1]


def test_a_dry_run_of_table_6_shows_its_schedules_and_what_to_place_where(reproduce, performed):
    code, out, _ = reproduce("table6 --dry-run", small=False)
    assert (code, performed) == (0, [])
    assert "eval detect of each row on voc07+12: 16,551 training pictures; iterations 24,000 of 16 pictures" in out
    assert "eval segment of each row on coco: 118,287 training pictures; iterations 180,000 of 16 pictures" in out
    assert out.count("training time") == 2
    assert "unpack VOCtrainval" in out
    assert "place train2017/, val2017/ and annotations/instances_train2017.json" in out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "Say what to reproduce first"),
        ("--seeds 2", "Say what to reproduce first"),
        ("table8", "No table is called 'table8'; choose among table1.*Did you mean table"),
        ("cifar10-best", "cifar10-best is in no table of the paper; run `logo-ssl pretrain cifar10-best`"),
        ("table1 --rows cifar10-best", "cifar10-best is in no table of the paper; run `logo-ssl pretrain cifar10-b"),
        ("cifar10-moco-logo", "is no table, but a row of table1 and table7; run `logo-ssl reproduce table1 --rows ci"),
        ("cifar10-tuned-moco", "run `logo-ssl reproduce table1 --tuned --rows cifar10-tuned-moco`"),
        ("table1 --rows MoCo", r"No row matches 'MoCo'; .* Did you mean cifar10-moco\?"),
        ("table1 --rows simsiam+logo", r"Did you mean cifar10-simsiam-logo\?"),
        ("table1 table2 --rows MoCo", r"Did you mean cifar10-moco or stl10-moco\?"),
        ("fig3 --rows cifar10-moco", "No row matches 'cifar10-moco'; there are cifar10-moco-logo,"),
        ("fig2", "No table is called 'fig2'; choose among table1.*fig1b, fig3"),
        ("table1 --seeds 0", "--seeds is 0; use 1 or more"),
        ("table1 --jobs 0", "--jobs is 0; use 1 or more"),
        ("table1 --epochs 0", "--epochs is 0; use 1 or more"),
        ("table1 --images-per-s 0", "images-per-s is 0"),
        ("table1 --images-per-s nan", "images-per-s is nan"),
        ("table1 --images-per-s inf", "images-per-s is inf"),
        ("table1 --set epochs=3", "--set does not take epochs; use --epochs"),
        ("table1 --set chosen=x", "--set does not take chosen"),
        ("table1 --set backbone=tiny --set backbone=resnet18", "--set gives backbone twice"),
        ("table1 --data stl10=some.npz", "No chosen row is on stl10, so --data stl10=some.npz is for none"),
        ("table1 fig1b --set knn_every=0", "fig1b draws kNN over epochs, and knn_every is 0"),
        (
            "table1 fig3 --set strategy.affinity=cosine",
            "fig3 draws what a regressor learned, and strategy.affinity is cos",
        ),
        ("table1 --set precision=bf17", "--set precision is 'bf17'; choose auto, bf16, fp32"),
        ("table1 --set backbone=", "--set backbone needs a value"),
        ("table1 --rows cifar10-mocco", "No row matches 'cifar10-mocco'.*Did you mean cifar10-moco"),
        ("table1 --rows stl10-moco", "No row matches 'stl10-moco'; there are cifar10-moco,"),
        ("table2 --tuned", "No row of table2 has settings of our choice; .* among table1, table7, fig1b, fig3"),
        ("table1 --rows cifar10-tuned-moco", "No row matches 'cifar10-tuned-moco'; .* Add --tuned"),
        ("table1 --set backbone=resnet19", "No backbone is called 'resnet19'.*Did you mean resnet18"),
        ("table1 --data nowhere.npz", "No data at '.*nowhere.npz'"),
        ("table1 --data cifra10=some.npz", "No set is called 'cifra10'.* rows are on cifar10. Did you mean cifar10"),
        (
            "table1 --data cifar10.npz other.npz",
            r"--data has two sources for cifar10, .*cifar10\.npz and other\.npz; give one",
        ),
        (
            "table7 --data some.npz",
            "rows are on cifar10, stl10, imagenet100, so --data some.npz is unclear; .*--rows 'cifar10-\\*'",
        ),
        ("table1 --set optimiser.lr", "--set takes FIELD=VALUE"),
        ("table1 --set optimiser.lrr=1", "No chosen row has the field 'optimiser.lrr'. Did you mean optimiser.lr"),
        ("table1 --set lr=1", "No chosen row has the field 'lr'. Did you mean optimiser.lr"),
        (
            "table1 --set optimiser.lr=fast",
            "--set optimiser.lr is 'fast'; give a number.*logo-ssl pretrain cifar10-moco --help",
        ),
        ("table1 --set optimiser.lr=-1", "--set optimiser.lr is -1"),
        ("table1 --set optimiser.eta_min=-1", "--set optimiser.eta_min is -1"),
        (
            "table1 --set backbone=timm/resnet18",
            "logo-ssl: stem is cifar, and timm/resnet18 .*; use --set stem=imagenet, or --set backbone=resnet18 for a",
        ),
        ("table1 --set stem=cifar --set backbone=timm/resnet18", "logo-ssl: --set stem is cifar, and timm/resnet18"),
        ("table1 --rows *-logo --set crops.n-local=1", "--set crops.n_local is 1; strategy logo wants 2 or more"),
        ("table1 --set crops.ratio=1", r"logo-ssl: --set crops.ratio needs 2 values\."),
        ("table1 --set foo=3", r"the field 'foo'\. `logo-ssl pretrain cifar10-moco --help` shows those of a row"),
        ("table1 --set seed=3", "--set does not take seed; use --seeds"),
        ("table1 --set framework=byol", "--set does not take framework; choose rows"),
        (
            "table1 --rows cifar10-moco --set strategy.lam=1",
            "No chosen row has the field 'strategy.lam'. Rows with strategy logo have it",
        ),
        ("table1 --set backbone='tiny", "backbone='tiny cannot be read .*close the quotes"),
        pytest.param(
            "table1 --device cuda",
            "--device is 'cuda', which this machine does not have; use auto or (mps or )?cpu",
            marks=no_cuda,
        ),
        ("table1 --sedes 2", "--sedes.*Did you mean --seeds"),
        ("table1 --tuend", r"--tuend.*Did you mean --tuned\?"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(reproduce, performed, tmp_path, line, sentence):
    code, _, err = reproduce(line, small=False)
    assert (code, performed) == (2, [])
    assert re.search(sentence, err), err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lies", "sentence"),
    [
        ("cifar10-moco", "cifar10-moco is to be a folder, and is none; move it"),
        ("cifar10-moco/seed0.json/mine.txt", "seed0.json is to be a file, and is a folder; move it"),
        ("cifar10-moco/seed0", "seed0 exists and holds no run; choose a new or empty folder"),
        ("cifar10-moco/seed0/holiday.txt", "seed0 exists and holds no run; choose a new or empty folder"),
        ("recipe.json", "out, which is a run; name a folder for tables and their runs"),
    ],
)
def test_what_lies_where_runs_are_to_be_is_told_before_anything_runs(reproduce, performed, tmp_path, lies, sentence):
    (tmp_path / "out" / lies).parent.mkdir(parents=True)
    (tmp_path / "out" / lies).write_text("mine")
    code, _, err = reproduce("table1 --rows cifar10-simsiam cifar10-moco")
    assert (code, performed) == (2, [])
    assert sentence in err
    assert (tmp_path / "out" / lies).read_text() == "mine"


def test_a_speed_to_estimate_by_is_told_to_change_nothing_where_nothing_is_estimated(reproduce, monkeypatch):
    monkeypatch.setattr(Workers, "run", lambda self, task: (2, "It is only looked."))
    told = "--images-per-s is for --dry-run alone, and changes nothing here."
    line = "table1 --rows cifar10-moco --images-per-s 100"
    assert told in reproduce(line)[1]
    assert told not in reproduce(f"{line} --dry-run")[1]


def test_a_figure_alone_says_whose_rows_it_shows(reproduce):
    told = "fig1b shows Table 3's rows; `table1 fig1b` shows others."
    assert told in reproduce("fig1b --dry-run", small=False)[1]
    told = "fig1b shows Table 1's rows, by --data (cifar10); `table3 fig1b` shows others."
    code, out, err = reproduce("fig1b --dry-run")
    assert (code, err) == (0, "")
    assert told in out
    assert "cifar10-simsiam-logo, seed 0: 200 epochs of 208 images" in out
    assert "imagenet100" not in out.replace(told, "").replace("The paper's Figure 1b is imagenet100", "")
    for line, shown in {
        "fig1b table1": "fig1b shows Table 1's rows.\n",
        "fig1b --tuned --rows *-moco": "fig1b shows cifar10-tuned-moco.\n",
        "table7 fig1b": "fig1b shows Table 7's rows.\n",
        "table7 fig1b --rows cifar10-moco-*": "fig1b shows cifar10-moco-multicrop and cifar10-moco-logo.\n",
        "table7": "",
    }.items():
        out = reproduce(f"{line} --dry-run", small=False)[1]
        assert ("shows others" in out, shown in out) == (False, True)


def test_rows_run_side_by_side_in_processes_of_their_own(reproduce, tmp_path):
    code, out, err = reproduce("table7 --rows cifar10-moco-multicrop cifar10-moco-logo --epochs 1 --jobs 2")
    assert code == 0, (out, err)
    assert "(2 at once)" in out
    log = tmp_path / "out" / "cifar10-moco-logo" / "seed0.log"
    assert re.search(rf"cifar10-moco-logo, seed 0: begins \([12] of 2\); its progress: {re.escape(str(log))}", out)
    assert "epoch 1/1" in log.read_text()


def test_what_a_row_said_by_itself_is_kept_too(reproduce, tmp_path):
    code, out, err = reproduce("table1 --rows cifar10-moco --epochs 1")
    assert code == 0, (out, err)
    said = (tmp_path / "out" / "cifar10-moco" / "seed0.log").read_text()
    assert ("epoch 1/1" in said, "Measuring knn" in said, "\x1b" in said) == (True, True, False)


def test_a_row_that_collapsed_to_the_end_is_remarked_on(reproduce, performed, tmp_path):
    line = "table1 --rows cifar10-moco --epochs 2"
    assert reproduce(line)[0] == 0
    metrics = tmp_path / "out" / "cifar10-moco" / "seed0" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    for collapsed, told in (([1, 2], True), ([1], False)):
        changed = [{**e, "z_std": 0.001 if e["epoch"] + 1 in collapsed else 0.9} if "z_std" in e else e for e in lines]
        metrics.write_text("".join(f"{json.dumps(each)}\n" for each in changed))
        out = reproduce(line)[1]
        assert ("- MoCo, seed 0: Epochs 1 to 2: the latents are collapsing to one point (spread 0.001" in out) == told
        assert ("A lower --set optimiser.lr usually helps." in out) == told


@pytest.mark.parametrize("on_collapse", ["warn", "stop"])
def test_a_row_that_collapses_names_what_can_be_typed_here(reproduce, performed, monkeypatch, on_collapse):
    monkeypatch.setattr("logo_ssl.train.monitors.collapse.STD_FLOOR", 9.0)
    code, out, _ = reproduce(f"table1 --rows cifar10-moco --epochs 1 --set on_collapse={on_collapse}")
    stopped = " Stopped, as --set on_collapse asks." if on_collapse == "stop" else ""
    assert re.search(
        rf"Epoch 1: the latents are collapsing .* A lower --set optimiser.lr usually helps\.{stopped}\n", out
    )
    assert "--optimiser" not in out
    assert code == (on_collapse == "stop")


def test_a_row_that_could_not_be_measured_says_whose_options_it_names(reproduce, performed, tmp_path, monkeypatch):
    def too_much(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("logo_ssl.eval.extraction.extract", too_much)
    code, out, _ = reproduce("table1 --rows cifar10-moco --epochs 1")
    assert code == 1
    run = tmp_path / "out" / "cifar10-moco" / "seed0"
    told = f"too little memory for 256 images; lower --batch-size. That is an option of `logo-ssl eval knn {run}`;"
    assert told in out


def test_a_row_that_another_command_runs_is_left_to_it(reproduce, tmp_path):
    place = Place(tmp_path / "out" / "cifar10-moco" / "seed0")
    with locked(place.lock, "it is being run"):
        place.log.write_text("epoch 3/6\n")
        code, out, _ = reproduce("table1 fig1b --rows cifar10-moco --epochs 1 --jobs 2")
    assert (code, place.log.read_text()) == (0, "epoch 3/6\n")  # nothing failed, a figure without that row neither
    assert not place.file.exists()
    told = f"left to another command: process {os.getpid()} on {platform.node()} runs it, and the command that ends l"
    assert out.count(f"cifar10-moco, seed 0: {told}") == 1
    assert not (tmp_path / "out" / "table1.md").exists()  # nothing would be in it


def test_a_row_whose_command_is_ended_meanwhile_is_run_in_the_end(reproduce, performed, monkeypatch):
    held = iter([True])

    def held_at_first(path, what):
        if path.parent.name == "cifar10-moco" and next(held, False):
            raise Held("It is being run.", "process 7")
        return locked(path, what)

    monkeypatch.setattr("logo_ssl.reproduce.launch.locked", held_at_first)
    code, out, err = reproduce(f"{ONE_EPOCH} cifar10-moco cifar10-simsiam")
    assert (code, performed) == (0, ["cifar10-simsiam, seed 0", "cifar10-moco, seed 0"]), err
    assert "Not there" not in out


def test_rows_are_numbered_in_the_order_in_which_they_begin(reproduce, monkeypatch):
    start, other_began = Place.start, threading.Event()

    def start_late(self, *asked):
        if self.run.path.parent.name == "cifar10-moco":
            other_began.wait(60)
        start(self, *asked)

    monkeypatch.setattr(Place, "start", start_late)
    monkeypatch.setattr(Workers, "run", lambda self, task: (other_began.set(), (2, "It broke."))[1])
    _, out, _ = reproduce("table1 --rows cifar10-moco cifar10-simsiam --jobs 2")
    assert re.findall(r"(\S+), seed 0: begins \((. of .)\)", out) == [
        ("cifar10-simsiam", "1 of 2"),
        ("cifar10-moco", "2 of 2"),
    ]


def test_a_table_keeps_the_rows_and_seeds_that_are_finished(reproduce, performed, tmp_path):
    def table():
        rows = json.loads((tmp_path / "out" / "table1.json").read_text())["rows"]
        return {row["recipe"]: list(row["figures"][0]["values"]) for row in rows}

    assert reproduce("table1 --rows cifar10-simsiam --epochs 1 --seeds 2 --set optimiser.lr=0.01")[0] == 0
    performed.clear()
    code, out, _ = reproduce("table1 --rows cifar10-moco --epochs 1 --set optimiser.lr=0.01")
    assert (code, performed) == (0, ["cifar10-moco, seed 0"])
    assert (
        f"table1 also shows what is finished in {tmp_path / 'out'}: cifar10-simsiam, seed 0; cifar10-simsiam, s" in out
    )
    assert table() == {"cifar10-moco": ["0"], "cifar10-simsiam": ["0", "1"]}
    code, out, _ = reproduce("table1 --rows cifar10-simsiam --epochs 1 --set optimiser.lr=0.01")
    assert table() == {"cifar10-moco": ["0"], "cifar10-simsiam": ["0", "1"]}
    (tmp_path / "out" / "cifar10-simsiam" / "seed1" / "provenance.json").unlink()  # so it is not finished any more
    reproduce("table1 --rows cifar10-moco --epochs 1 --set optimiser.lr=0.01")
    assert table() == {"cifar10-moco": ["0"], "cifar10-simsiam": ["0"]}
    code, out, _ = reproduce("table1 --rows cifar10-moco-logo --epochs 1")
    assert (code, "also shows" in out) == (0, False)  # the others have another rate
    assert table() == {"cifar10-moco-logo": ["0"]}


def test_figures_keep_the_rows_that_are_finished_and_figure_3_draws_none_that_was_not_asked_for(
    reproduce, performed, tmp_path, monkeypatch
):
    drawn = []

    def draw(self, caption):
        drawn.append(self.out.name)
        self.out.write_bytes(b"")
        return []

    monkeypatch.setattr("logo_ssl.show.affinity.Affinity.run", draw)
    first, second, small = "cifar10-moco-logo", "cifar10-simsiam-logo", "--overwrite --set strategy.width=16 --epochs 1"

    def shown(stem, what):
        return set(json.loads((tmp_path / "out" / f"{stem}.json").read_text())[what])

    assert reproduce(f"table1 --rows {first} {small}")[0] == 0
    performed.clear()
    code, out, _ = reproduce(f"table1 fig1b fig3 --rows {second} {small}")
    assert (code, performed) == (0, [f"{second}, seed 0"])
    for stem in ("table1", "fig1b"):
        assert f"{stem} also shows what is finished in {tmp_path / 'out'}: {first}, seed 0." in out
    assert (shown("fig1b", "curves"), shown("fig3", "affinities")) == ({first, second}, {second})
    assert reproduce(f"fig3 --rows {first} {small}")[0] == 0
    assert drawn == [f"fig3-{row}.png" for row in (second, first)]  # each once
    assert shown("fig3", "affinities") == {first, second}  # what was drawn before is still told


def test_figure_3_is_drawn_of_the_first_seed_that_has_weights_and_says_when_none_has(
    reproduce, performed, tmp_path, monkeypatch
):
    monkeypatch.setattr("logo_ssl.show.affinity.Affinity.run", lambda self, caption: [])
    row, line = "cifar10-moco-logo", "fig3 --rows cifar10-moco-logo --set strategy.width=16 --epochs 1"
    assert reproduce(f"{line} --seeds 2")[0] == 0

    def lose_weights(seed):
        run = Run(tmp_path / "out" / row / f"seed{seed}")
        for file in (run.backbone_file, *run.saved()):
            file.unlink()

    lose_weights(0)
    for asked in (line, f"{line} --seeds 2"):  # the other seed may be asked for, or only be there
        code, out, _ = reproduce(asked)
        assert (code, f"{row} is drawn of seed 1, since the weights of its seed 0 are gone." in out) == (0, True)
        told = json.loads((tmp_path / "out" / "fig3.json").read_text())
        assert told["affinities"][row]["seed"] == 1
        assert "fig3 cannot draw" not in reproduce(f"{asked} --dry-run")[1]
    lose_weights(1)
    cannot = f"fig3 cannot draw {row}: the weights of its {{}} are gone; --seeds 3 trains seed 2."
    assert cannot.format("seeds 0 and 1") in reproduce(f"{line} --seeds 2 --dry-run")[1]
    assert cannot.format("seed 0") in reproduce(f"{line} --dry-run")[1]
    code, out, _ = reproduce(line)
    assert (code, f"{row} is not drawn: the weights of its seed 0 are gone." in out) == (1, True)


ONE_EPOCH = "table1 --epochs 1 --rows"


def rows_of(out):
    """Recipes of a table, with the seeds that each is the mean of."""
    rows = json.loads((out / "table1.json").read_text())["rows"]
    return {row["recipe"]: list(row["figures"][0]["values"]) for row in rows}


def test_the_table_of_what_is_finished_is_there_before_the_next_row_begins(reproduce, performed, tmp_path, monkeypatch):
    assert reproduce("table1 --rows cifar10-moco --epochs 1")[0] == 0
    table = tmp_path / "out" / "table1.md"
    table.unlink()
    seen = []
    monkeypatch.setattr(
        Workers, "run", lambda self, task: (seen.append(table.read_text()), (2, "It is only looked."))[1]
    )
    assert reproduce("table1 --rows cifar10-moco --epochs 1 --seeds 2")[0] == 1
    assert [re.search(r"n=1 of 2", text) is not None for text in seen] == [True]


def test_images_that_are_not_the_papers_set_are_told_before_anything_runs(reproduce, data, tmp_path):
    why = "208 images to train on, not 50,000; 16 images to test on, not 10,000; 3 classes, not 10"
    for line, name in (("table1", data), ("fig3 --rows cifar10-moco-logo", shutil.copy(data, tmp_path / "mine.npz"))):
        code, out, _ = reproduce(f"{line} --dry-run", source=name)
        told = f"{name} is not the paper's CIFAR-10 ({why}); the paper's figures are of other images."
        assert (code, out.count(told)) == (0, 1)
    out = reproduce("table1 --dry-run", source="scenes")[1]
    assert "scenes is not the paper's CIFAR-10 (by its name); " in out
    assert "is not the paper's" not in reproduce("table1 --dry-run", small=False)[1]


def test_a_source_is_listed_once_by_the_command_and_once_by_its_row(reproduce, tmp_path, monkeypatch):
    for i in range(60):
        file = tmp_path / "photos" / ("test" if i < 20 else "train") / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (4 * i, 0, 0)).save(file)
    listed, held = [], []

    def listing(path):
        listed.append(path)
        return load_folder(path)

    def attempting(*row):
        held.append(images_at.cache_info().currsize)
        return attempt(*row)

    monkeypatch.setattr("logo_ssl.data.sources.load_folder", listing)
    monkeypatch.setattr(Workers, "run", lambda self, task: attempting(task.place.run.path, list(task.measurements)))
    code, _, err = reproduce("table1 --rows cifar10-moco --epochs 1", source=tmp_path / "photos")
    assert code == 0, err
    assert len(listed) == 2
    assert held == [0]  # no images while rows run


def test_a_set_as_large_as_the_papers_with_as_many_classes_passes_for_it(monkeypatch):
    labels = torch.arange(50_000) % 10
    found = ImageSet(
        "x",
        Split(torch.empty(50_000, 1, 1, 1, dtype=torch.uint8), labels),
        Split(torch.empty(10_000, 1, 1, 1, dtype=torch.uint8)),
    )
    monkeypatch.setattr("logo_ssl.reproduce.images.images_at", lambda source, size: found)
    (table,) = choose(["table1"])
    recipes = {row.recipe.name: replace(row.recipe, data="elsewhere/x.npz") for row in table.rows}
    assert other_sets([table.with_recipes(recipes)]) == []
    found = replace(found, train=Split(found.train.images, torch.arange(50_000) % 100))
    (told,) = other_sets([table.with_recipes(recipes)])
    assert "(100 classes, not 10)" in told


def test_a_table_keeps_no_rows_of_another_set(reproduce, performed, data, tmp_path):
    assert reproduce(f"{ONE_EPOCH} cifar10-simsiam cifar10-moco --seeds 2")[0] == 0
    shutil.rmtree(tmp_path / "out" / "cifar10-moco" / "seed0")
    (tmp_path / "out" / "cifar10-moco" / "seed0.json").unlink()
    shutil.copy(data, tmp_path / "mine.npz")
    code, out, err = reproduce(f"{ONE_EPOCH} cifar10-moco", source=tmp_path / "mine.npz")
    assert (code, "also shows" in out) == (0, False), err
    assert rows_of(tmp_path / "out") == {"cifar10-moco": ["0"]}
    text = (tmp_path / "out" / "table1.md").read_text()
    assert "Not run: MoCo+LoGo; SimSiam+LoGo\n" in text
    assert "Finished in this folder with other settings or on other images, so not shown: SimSiam\n" in text


def test_a_damaged_or_copied_run_is_no_part_of_a_table(reproduce, performed, tmp_path):
    out = tmp_path / "out"
    assert reproduce(f"{ONE_EPOCH} cifar10-simsiam")[0] == 0
    shutil.copytree(out / "cifar10-simsiam" / "seed0", out / "cifar10-simsiam" / "seed5")
    shutil.copy(out / "cifar10-simsiam" / "seed0.json", out / "cifar10-simsiam" / "seed5.json")
    assert reproduce(f"{ONE_EPOCH} cifar10-moco")[0] == 0
    assert rows_of(out) == {"cifar10-moco": ["0"], "cifar10-simsiam": ["0"]}
    (out / "cifar10-simsiam" / "seed0" / "recipe.json").unlink()
    assert reproduce(f"{ONE_EPOCH} cifar10-moco")[0] == 0
    assert rows_of(out) == {"cifar10-moco": ["0"]}


def test_what_another_command_finishes_meanwhile_is_shown(reproduce, performed, tmp_path, monkeypatch):
    out = tmp_path / "out"
    assert reproduce(f"{ONE_EPOCH} cifar10-simsiam cifar10-moco")[0] == 0
    for row in ("cifar10-simsiam", "cifar10-moco"):
        (out / row).rename(tmp_path / row)
    end = Workers.run

    def meanwhile(self, task):
        (tmp_path / "cifar10-simsiam").rename(out / "cifar10-simsiam")
        return end(self, task)

    monkeypatch.setattr(Workers, "run", meanwhile)
    assert reproduce(f"{ONE_EPOCH} cifar10-moco-logo")[0] == 0
    assert rows_of(out) == {"cifar10-moco-logo": ["0"], "cifar10-simsiam": ["0"]}

    def finished_by_the_other(*_):
        (tmp_path / "cifar10-moco").rename(out / "cifar10-moco")
        raise Held("It is being run.", "process 7")

    monkeypatch.setattr("logo_ssl.reproduce.launch.locked", finished_by_the_other)
    assert reproduce(f"{ONE_EPOCH} cifar10-moco")[0] == 0
    assert "Not there" not in (out / "table1.md").read_text()


def test_a_row_that_does_not_take_a_setting_hides_no_other(reproduce, performed, tmp_path):
    without = "--set crops.n_local=0"  # which rows with LoGo refuse
    assert reproduce(f"{ONE_EPOCH} cifar10-simsiam {without}")[0] == 0
    assert reproduce(f"{ONE_EPOCH} cifar10-moco-logo")[0] == 0
    assert reproduce(f"{ONE_EPOCH} cifar10-moco {without}")[0] == 0
    assert rows_of(tmp_path / "out") == {"cifar10-moco": ["0"], "cifar10-simsiam": ["0"]}


def test_a_table_keeps_no_rows_on_other_images(reproduce, performed, data, tmp_path):
    assert reproduce("table1 --rows cifar10-simsiam --epochs 1")[0] == 0
    with np.load(data) as images:
        others = {name: values[::-1] for name, values in images.items()}
    (tmp_path / "others").mkdir()
    np.savez(tmp_path / "others" / "cifar10.npz", **others)
    line = "table1 --rows cifar10-moco --epochs 1"
    code, out, err = reproduce(line, source=tmp_path / "others" / "cifar10.npz")
    assert (code, "also shows" in out) == (0, False), err
    assert [row["recipe"] for row in json.loads((tmp_path / "out" / "table1.json").read_text())["rows"]] == [
        "cifar10-moco"
    ]


def test_a_log_goes_on_and_its_last_line_is_the_rows_own(tmp_path, monkeypatch):
    place = Place(tmp_path / "row" / "seed0")
    place.log.parent.mkdir()
    place.log.write_text("epoch 3/6\n")
    speak = [sys.executable, "-c", "import sys; sys.stderr.write('so it ends\\n'); sys.exit(2)"]
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: start(speak, **options))
    task = Task(find_recipe("cifar10-moco"), place, ())
    assert Workers(alone=False).run(task) == (2, "so it ends")
    assert place.log.read_text() == "epoch 3/6\nso it ends\n"


def test_rows_that_will_not_stop_are_waited_for_together(monkeypatch):
    now, killed = [0.0], []

    class Stubborn:
        stdin = None

        def wait(self, patience):
            now[0] += patience
            raise subprocess.TimeoutExpired("a row", patience)

        def kill(self):
            killed.append(self)

    monkeypatch.setattr("logo_ssl.reproduce.launch.time.monotonic", lambda: now[0])
    workers = Workers(alone=False)
    workers.running = {Stubborn(), Stubborn(), Stubborn()}
    workers.stop(lambda sentence: None)
    assert now[0] == PATIENCE_S
    assert set(killed) == workers.running


@pytest.mark.parametrize(("rows", "at_once"), [("cifar10-moco", 1), ("cifar10-moco cifar10-simsiam", 2)])
def test_a_row_is_said_to_have_had_the_company_that_it_had(reproduce, tmp_path, monkeypatch, rows, at_once):
    monkeypatch.setattr(Workers, "run", lambda self, task: (2, "It broke."))
    reproduce(f"table1 --rows {rows} --epochs 1 --jobs 3")
    assert Place(tmp_path / "out" / "cifar10-moco" / "seed0").record()["jobs"] == at_once


def test_a_table_of_the_rows_that_have_ended_outlives_an_interruption(reproduce, performed, tmp_path, monkeypatch):
    end = Workers.run
    lines = []

    def then_stop(self, task):
        if performed:
            lines.extend((tmp_path / "out" / "table1.md").read_text().splitlines())
            raise Interrupted("Interrupted.")
        return end(self, task)

    monkeypatch.setattr(Workers, "run", then_stop)
    rows = "table1 fig1b --rows cifar10-moco cifar10-simsiam --epochs 1"
    assert reproduce(rows)[0] == 130
    text = (tmp_path / "out" / "table1.md").read_text()
    assert text.splitlines() == lines
    assert re.search(r"MoCo \\\* \| kNN k=20, tau=0.07 \| 79.58 \| \d+.\d\d \| n=1 ", text)
    assert re.search(r"SimSiam \\\* \| kNN k=20, tau=0.07 \| 80.48 \| - \| n=0 of 1 ", text)
    assert "- SimSiam (cifar10-simsiam), seed 0, waiting: the same command runs it, or goes on with it." in text
    assert not list((tmp_path / "out").glob("fig1b*"))

    monkeypatch.setattr(Workers, "run", end)
    code, out, _ = reproduce(rows)
    assert (code, "waiting" in out) == (0, False)
    assert (tmp_path / "out" / "table1.md").read_text() in out


def test_a_row_that_was_stopped_has_not_failed(reproduce, tmp_path, monkeypatch):
    """One that does not stop in time is killed."""

    def killed(self, task):
        if task.recipe.name == "cifar10-moco":
            raise Interrupted("Interrupted.")
        while not self.stopped:
            time.sleep(0.01)
        return -9, ""

    monkeypatch.setattr(Workers, "run", killed)
    code, out, _ = reproduce("table1 --rows cifar10-moco cifar10-simsiam cifar10-moco-logo --jobs 2")
    assert (code, "failed" in out) == (130, False)
    assert not (tmp_path / "out" / "table1.md").exists()


def test_a_table_that_cannot_be_kept_meanwhile_stops_no_row(reproduce, performed, monkeypatch):
    monkeypatch.setattr("logo_ssl.reproduce.command.Reproduce._record", full)
    rows = "cifar10-moco cifar10-simsiam"
    assert reproduce(f"table1 --rows {rows} --epochs 1")[0] != 0
    assert performed == [f"{row}, seed 0" for row in rows.split()]


def full(*_):
    raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_when_a_row_ends_costs_no_training(reproduce, performed, tmp_path, monkeypatch):
    line = "table1 --rows cifar10-simsiam --epochs 1"
    with monkeypatch.context() as patch:
        patch.setattr("logo_ssl.train.weights.write_together", full)
        code, out, err = reproduce(line)
    assert code == 1, err
    assert "simsiam, seed 0: failed: The disk is full; free some space, then give the same command again.\n" in out
    monkeypatch.setattr("logo_ssl.train.module.Pretraining.training_step", full)
    code, out, err = reproduce(line)
    assert (code, "cifar10-simsiam, seed 0: goes on" in out) == (0, True), err


STAND_IN = """
import sys, time, types
sys.modules["logo_ssl.reproduce.rows"] = types.SimpleNamespace(perform=lambda *row: time.sleep(600))
sys.argv = ["worker", "nowhere"]
from logo_ssl.reproduce import worker
worker.main()
"""


def test_a_row_stops_when_its_parent_is_gone():
    process = subprocess.Popen([sys.executable, "-c", STAND_IN], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    _, told = process.communicate(timeout=120)  # which closes its input
    assert process.returncode == 130
    assert told.decode() == "Stopped by the end of `reproduce`; give the same command again.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk is full here")
def test_why_a_row_failed_may_not_fit_into_its_log():
    fails = "\nfrom logo_ssl.errors import UserError\ndef fail():\n    raise UserError('It failed.')\n"
    failing = fails + STAND_IN.replace("time.sleep(600)", "fail()")
    with Path("/dev/full").open("w") as full:
        for log, code in ((full, 4), (subprocess.DEVNULL, 2)):
            with subprocess.Popen([sys.executable, "-c", failing], stdin=subprocess.PIPE, stderr=log) as process:
                assert process.wait(timeout=120) == code


def test_ctrl_c_is_answered_before_the_rows_under_way_have_ended(reproduce, monkeypatch):
    """Rows that take their time are told of at once, and all ended by a second Ctrl-C."""
    slow = "import os, time; os.read(0, 1); time.sleep(600)"
    begun = []

    def stubborn(command, **options):
        begun.append(command)
        if len(begun) == 2:
            for seconds in (0.5, 3):
                threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        return subprocess.Popen([sys.executable, "-c", slow], **options)

    here = SimpleNamespace(Popen=stubborn, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr("logo_ssl.reproduce.launch.subprocess", here)
    began = time.monotonic()
    code, out, err = reproduce("table1 --rows cifar10-moco cifar10-simsiam --epochs 1 --jobs 2")
    assert (len(begun), time.monotonic() - began < 300) == (2, True)
    assert (code, "Interrupted; the same command goes on where it stopped" in err) == (130, True)
    assert out.count("Stopping: what is under way finishes its step and saves it; Ctrl-C stops at once.") == 1


def test_a_row_that_dies_is_told_with_its_log(reproduce, monkeypatch):
    ends = iter([(-9, ""), (-9, "half a line"), (1, "RuntimeError: no such kernel"), (4, "epoch 1/6")])
    monkeypatch.setattr(Workers, "run", lambda self, task: next(ends))
    code, out, _ = reproduce("table1")
    assert code == 1
    assert (
        "cifar10-moco, seed 0: failed: It was killed by SIGKILL. The same command goes on with it.\n" in out
    )  # a log that is empty tells nothing
    assert re.search(r"moco-logo, seed 0: failed: It was killed by SIGKILL; .*seed0.log may tell more", out)
    assert re.search(r"simsiam, seed 0: failed: It crashed \(RuntimeError: no such kernel\); .*seed0.log", out)
    assert re.search(r"simsiam-logo, seed 0: failed: Why could not be written to .*seed0.log; free some space, th", out)


def test_a_table_mixes_no_images_and_tells_which_they_were(reproduce, performed, data, tmp_path):
    line = "table1 --rows cifar10-simsiam --epochs 1"
    assert reproduce("fig1b --rows cifar10-simsiam --epochs 1")[0] == 0  # noted whatever is measured
    assert reproduce(line)[0] == 0
    text = (tmp_path / "out" / "table1.md").read_text()
    assert (
        "- cifar10: 208 images to train on, 16 to test on; not the 50,000 and 10,000 of the paper's cifar10\n" in text
    )
    noted = tmp_path / "out" / "cifar10-simsiam" / "seed0.json"
    record = json.loads(noted.read_text())
    with np.load(data) as parts:
        original = dict(parts)
    others = {
        "train: other labels": original | {"train_labels": original["train_labels"][::-1]},
        "train: 208 images of other pixels or in another order": original
        | {"train_images": original["train_images"][::-1]},
        "train: 208 images then, 207 now; test: 16 images then, 15 now": {
            name: values[:-1] for name, values in original.items()
        },
    }
    for told, changed in others.items():
        place(data, changed)
        code, _, err = reproduce(f"{line} --seeds 2")
        assert (code, performed) == (2, ["cifar10-simsiam, seed 0"] * 2)
        assert re.search(
            rf"seed0 was begun on other images than .*cifar10.npz has now \({told}\); choose another --out", err
        )
    noted.write_text(json.dumps({name: value for name, value in record.items() if name != "images"}))
    assert reproduce(line)[0] == 2  # the run itself tells
    (noted.with_suffix("") / "images.json").unlink()
    assert reproduce(line)[0] == 2  # its evaluation tells
    for file in (noted.with_suffix("") / "evaluation").iterdir():
        file.unlink()
    assert "- cifar10: which images they were was not noted" in reproduce(line)[1]


def test_runs_on_different_images_make_no_table_together(reproduce, performed, data):
    rows = ["cifar10-moco", "cifar10-simsiam"]
    with np.load(data) as parts:
        original = dict(parts)
    for row, by in zip(rows, (1, -1), strict=True):
        place(data, {name: values[::by] for name, values in original.items()})
        assert reproduce(f"table1 --rows {row} --epochs 1")[0] == 0
    line = f"table1 --rows {' '.join(rows)} --epochs 1"
    code, _, err = reproduce(line, source="cifar10")  # which is not on this machine
    assert code == 2
    assert re.search(
        r"simsiam.seed0 and .*moco.seed0 were begun on different images \(train: 208 .*make a table of each", err
    )


def place(file, parts):
    np.savez(file, **parts)
    facts_of.cache_clear()


@pytest.mark.parametrize(
    ("n", "labels", "sentence"),
    [
        (20, 3, "cifar10 has 20 labelled images to train on, and kNN needs 21 or more (each test image is compared"),
        (300, 1, "are of one class"),
    ],
)
def test_images_that_cannot_be_measured_are_refused_before_any_training(
    reproduce, performed, data, n, labels, sentence
):
    images = np.random.default_rng(0).integers(0, 255, (n, 16, 16, 3), dtype=np.uint8)
    parts = {"train_images": images, "train_labels": np.arange(n) % labels}
    np.savez(data, **parts, test_images=images[:9], test_labels=np.arange(9) % labels)
    code, _, err = reproduce("table1 --rows cifar10-simsiam --epochs 1")
    assert (code, performed) == (2, [])
    assert sentence in err
    code, _, _ = reproduce("fig1b --rows cifar10-simsiam --epochs 1 --dry-run")
    assert code == (0 if labels > 1 else 2)  # kNN over epochs takes fewer neighbours where there are fewer images


def test_validation_images_of_strange_classes_are_refused_before_any_training(reproduce, performed, data):
    with np.load(data) as parts:
        strange = {"val_images": parts["test_images"], "val_labels": np.full(len(parts["test_images"]), 99)}
        place(data, {**parts, **strange})
    code, _, err = reproduce("table1 --rows cifar10-simsiam --epochs 1")
    assert (code, performed) == (2, [])
    assert "validation" in err
    assert reproduce("fig1b --rows cifar10-simsiam-logo --epochs 1 --dry-run")[0] == 0  # kNN chooses nothing


def test_a_k_that_asks_for_all_images_is_left_out_and_the_table_says_so(reproduce, performed, data, tmp_path):
    with np.load(data) as parts:
        few = {name: values[:40] for name, values in parts.items()}
    place(data, few)
    line = "table1 --rows cifar10-simsiam --epochs 1"
    code, out, err = reproduce(line)
    assert code == 0, err
    assert "k=200 is left out: there are only 40 training images of cifar10 to compare with" in out
    assert re.search(r"kNN k=20, tau=0.07 \| 80.48 \| [\d.]+ \| n=1 ", out)
    assert re.search(r"kNN k=200, tau=0.1 \| 80.48 \| - \| n=0 of 1 ", out)
    told = "- SimSiam: kNN k=200, tau=0.1 is left out, since there are too few images to compare with\n"
    assert told in (tmp_path / "out" / "table1.md").read_text()
    code, out, _ = reproduce(line)
    assert (code, performed, told in out) == (0, ["cifar10-simsiam, seed 0"], True)  # not measured again


def test_what_was_measured_of_a_run_stands_when_its_weights_are_gone(reproduce, performed, tmp_path):
    line = "table7 --epochs 1 --rows cifar10-simsiam-multicrop"
    assert reproduce(line)[0] == 0
    run = tmp_path / "out" / "cifar10-simsiam-multicrop" / "seed0"
    (run / "backbone.safetensors").unlink()
    shutil.rmtree(run / "checkpoints")
    noted = json.loads(run.with_name("seed0.json").read_text())
    del noted["figures"]["linear-sgd"]
    run.with_name("seed0.json").write_text(json.dumps(noted))
    code, out, err = reproduce(line)
    assert (code, performed) == (0, ["cifar10-simsiam-multicrop, seed 0"]), err  # not worked at again
    told = "SimSiam-LoGo w/o L2L, CIFAR10, seed 0: linear, sgd was not measured, and its weights are gone"
    assert f"- {told}\n" in (tmp_path / "out" / "table7.md").read_text()
    assert re.search(r"linear, sgd \| - \| - \| n=0 of 1 ", out)
    run.with_name("seed0.json").write_text(json.dumps(noted | {"figures": {"transfer-food": {"food top-1": 50.0}}}))
    code, out, _ = reproduce(line)
    assert code != 0  # a run of which nothing that the table shows is known is no row
    assert "its checkpoints are gone" in out


def test_files_that_are_not_whole_are_made_again_from_what_there_is(reproduce, performed, tmp_path):
    line = "table1 fig1b --epochs 1 --rows cifar10-moco"
    assert reproduce(line)[0] == 0
    text, run = (tmp_path / "out" / "table1.md").read_text(), tmp_path / "out" / "cifar10-moco" / "seed0"
    noted = run.with_name("seed0.json")
    figures = json.loads(noted.read_text())["figures"]
    told = json.loads(noted.read_text())
    shapes = [{"figures": wrong} for wrong in ([], {"knn": 3}, {"knn": {}}, {"knn": {"top": float("nan")}})]
    shapes += [{"images": {"train_images": 1}}, {"images": [1]}, {"asked": 3}, {"asked": {}}, {"jobs": "x"}]
    for damage in ("", '{"asked": 1', '["no", "record"]', *(json.dumps(told | shape) for shape in shapes)):
        noted.write_text(damage)
        assert reproduce(line)[0] == 0  # measured again, not trained again
        assert json.loads(noted.read_text())["figures"] == figures
    weights = (run / "backbone.safetensors").read_bytes()
    for damage in ("", "[1, 2]", "{}"):
        (run / "provenance.json").write_text(damage)
        code, out, err = reproduce(line)
        assert code == 0, err
        assert "cifar10-moco, seed 0: goes on" in out
    assert (run / "backbone.safetensors").read_bytes() == weights
    assert _without_minutes((tmp_path / "out" / "table1.md").read_text()) == _without_minutes(text)
    log = run / "metrics.jsonl"
    log.write_text("".join(line for line in log.read_text().splitlines(True) if '"epochs_done": 1' not in line))
    _, out, _ = reproduce(line)
    assert "The log of cifar10-moco tells no kNN after epoch 0 of 1." in out
    log.write_text("")
    code, out, _ = reproduce(line)
    assert (code, "cifar10-moco is not drawn: it has no finished run with kNN over epochs." in out) == (1, True)
    (run / "recipe.json").write_text("")
    performed.clear()
    code, _, err = reproduce(f"{line} cifar10-simsiam")
    assert (code, performed, len(err.strip().splitlines())) == (2, [], 1)  # before anything else is trained
    assert "recipe.json cannot be read" in err


def _without_minutes(text):
    return re.sub(r"(?:> )?\d+(?:\.\d| s) \| cpu", "cpu", text, flags=re.IGNORECASE)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("more", ["", " --dry-run"])
def test_a_folder_where_nothing_can_be_written_is_refused_before_anything_runs(reproduce, performed, more):
    code, _, err = reproduce(f"table1 --rows cifar10-simsiam{more}", out="/proc/x")
    assert (code, performed) == (2, [])
    assert "There is no place for /proc/x/table1.json: nothing can be written in /proc; choose another place" in err


def test_files_of_others_are_not_replaced(reproduce, performed, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "table1.md").write_text("my notes")
    line = "table1 --rows cifar10-simsiam --epochs 1"
    code, _, err = reproduce(line)
    assert (code, performed, (out / "table1.md").read_text()) == (2, [], "my notes")
    assert "table1.md is there, and does not say that logo-ssl wrote it" in err
    (out / "fig3-cifar10-moco-logo.svg").write_text("my drawing")
    code, _, err = reproduce("fig3 --rows cifar10-moco-logo --epochs 1")
    assert (code, performed) == (2, [])
    assert "fig3-cifar10-moco-logo.svg is there, and does not say" in err
    for overwrite in (" --overwrite", ""):  # the second time all is ours
        assert reproduce(line + overwrite)[0] == 0
    (tmp_path / "file").write_text("")
    code, _, err = reproduce(f"{line} --dry-run", out="file")
    assert (code, "which is a file; name a folder" in err) == (2, True)


def test_a_row_that_breaks_tells_last_what_went_wrong(monkeypatch, tmp_path):
    def broken(*_):
        error = RuntimeError("no kernel")
        error.add_note("go on with `logo-ssl resume x`")
        raise error

    monkeypatch.setattr(rows, "perform", broken)
    with pytest.raises(RuntimeError) as caught:
        attempt(tmp_path, [])
    assert traceback.format_exception(caught.value)[-1] == "RuntimeError: no kernel\n"
