"""Do help, the small commands and refusals work, whichever module they are in?"""

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import ended, environment, named, started
from made_up_data import as_png, pictures, save_coco

import logo_ssl

PROJECT = Path(__file__).parents[2]
COMMANDS = (
    *("demo", "recipes", "pretrain", "resume", "eval", "embed", "search", "export", "affinity", "report", "watch"),
    *("compare", "finetune", "predict", "show-crops", "reproduce", "bench", "doctor"),
)
OPTIONS = {
    "demo": "--out --epochs --seed",
    "pretrain tiny": "--data --out --epochs --batch-size --framework.tau --strategy.lam --crops.n-local --optimiser.lr",
    "resume": "--epochs --device --devices --checkpoint-every --loading.workers",
    "eval knn": "--data --protocols --out --overwrite --device --size",
    "eval linear": "--protocol --epochs --rates --seed",
    "eval transfer": "--sets",
    "eval finetune": "--epochs --lr --batch-size",
    "finetune": "--data --out --frozen --epochs --lr --overwrite",
    "predict": "--data --out --max-bad --overwrite",
    "eval semi": "--fractions --epochs --lr",
    "eval detect": "--data --iterations --head --anchors --dry-run --devices",
    "eval segment": "--data --iterations",
    "embed": "--data --out --split --batch-size --workers --overwrite",
    "compare": "--data --labels --out --seed --size",
    "search": "--index --query --k --out",
    "export": "--to --out --overwrite",
    "affinity": "--reference --rows --images --map --out",
    "report": "--out --figures --data --images",
    "watch": "--port --host --every",
    "show-crops": "--data --out --images",
    "reproduce": "--rows --seeds --tuned --data --set --jobs --dry-run --out",
    "bench tiny": "--data --batch-size",
    "doctor": "--data --device",
}


def test_the_first_screen_names_every_command(logo):
    for words in ((), ("--help",)):
        done = logo(*words)
        assert done.code == 0
        assert all(command in done.out for command in COMMANDS)


@pytest.mark.parametrize("command", OPTIONS)
def test_help_of_a_command_lists_its_options(logo, command):
    done = logo(*command.split(), "--help")
    assert done.code == 0, done.err
    assert [option for option in OPTIONS[command].split() if not named(done.out, option)] == []


def test_the_version_is_that_of_the_package(logo):
    done = logo("--version")
    assert done.code == 0
    assert logo_ssl.__version__ in done.out


def test_the_installed_command_is_what_python_m_runs():
    script = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]["logo-ssl"]
    module, function = script.split(":")
    assert callable(getattr(importlib.import_module(module), function))
    code = f"import sys; from {module} import {function}; sys.argv = ['logo-ssl', '--version']; {function}()"
    end = ended(subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=-1, stderr=-1, text=True))
    assert end.code == 0
    assert logo_ssl.__version__ in end.out


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nonsense"]])
def test_help_and_a_wrong_name_do_not_wait_for_torch(tmp_path, words):
    code = "import runpy, sys\ntry:\n    runpy.run_module('logo_ssl', run_name='__main__')\n"
    code += "finally:\n    sys.exit(99 if 'torch' in sys.modules else 0)"
    end = ended(started(*words, cwd=tmp_path, program=("-c", code)))
    assert end.code == 0, end.err


def test_every_public_name_is_there():
    assert set(logo_ssl.__all__) <= set(dir(logo_ssl))
    for name in logo_ssl.__all__:
        assert getattr(logo_ssl, name) is not None


def test_recipes_are_listed(logo):
    done = logo("recipes")
    assert done.code == 0, done.err
    assert [name for name in logo_ssl.RECIPES if name not in done.out] == []


def test_doctor_names_versions_and_looks_at_the_data(logo, cwd, data):
    done = logo("doctor", "--data", data)
    assert done.code == 0, done.err
    for told in (logo_ssl.__version__, torch.__version__.split("+")[0], np.__version__, "cpu", "64"):
        assert told in done.out, told
    assert not list(cwd.iterdir())


def test_bench_prints_a_line_of_json_and_keeps_nothing(logo, cwd, data, monkeypatch):
    monkeypatch.setattr("logo_ssl.train.bench.SECONDS", 0.2)
    done = logo("bench", "tiny", "--data", data, "--batch-size", "32", "--device", "cpu")
    assert done.code == 0, done.err
    measured = json.loads(done.out.splitlines()[-1])
    assert measured["recipe"] == "tiny"
    assert measured["images_per_s"]["whole_step"] > 0
    assert not list(cwd.iterdir())


def test_the_demo_trains_measures_and_leaves_a_report(logo, cwd, monkeypatch):
    """Which recipe it takes and what it reaches are its own affair."""
    monkeypatch.setattr("logo_ssl.data.SCENES_TRAIN", 256)
    monkeypatch.setattr("logo_ssl.data.SCENES_TEST", 64)
    done = logo("demo", "--out", "demo", "--epochs", "1")
    assert done.code == 0, done.err
    for name in ("backbone.safetensors", "recipe.json", "report.html"):
        assert (cwd / "demo" / name).stat().st_size > 0, name
    assert list((cwd / "demo" / "evaluation").glob("*.json"))
    assert "%" in done.out


BAD = [
    ("nonsense", "nonsense"),
    ("pretrain no-such-recipe", "no-such-recipe"),
    ("pretrain tiny --no-such 3", "--no-such"),
    ("pretrain tiny --framework.nope 3", "--framework.nope"),
    ("pretrain tiny --epochs many", "--epochs many"),
    ("pretrain tiny --epochs 0 --data {data} --out o", "--epochs"),
    ("pretrain tiny --data nowhere --out o", "nowhere"),
    ("pretrain tiny --data {empty} --out o", "empty"),
    ("pretrain tiny --data {text} --out o", "text.npz"),
    ("pretrain tiny --framework nope --out o", "nope"),
    ("pretrain tiny --strategy nope --out o", "nope"),
    ("pretrain tiny --backbone nope --data {data} --out o", "nope"),
    ("pretrain tiny --device tpu --out o", "tpu"),
    ("pretrain tiny --devices 0 --data {data} --out o", "--devices"),
    ("pretrain tiny --batch-size -3 --data {data} --out o", "-3 --batch-size"),
    ("pretrain tiny --seed -1 --data {data} --out o", "--seed"),
    ("pretrain tiny --init nowhere.safetensors --data {data} --out o", "nowhere.safetensors --init"),
    ("pretrain tiny --loggers nope --out o", "nope"),
    ("pretrain tiny --crops.global-scale 0.9 0.1 --data {data} --out o", "--crops.global-scale"),
    ("pretrain tiny --crops.global-size 0 --data {data} --out o", "--crops.global-size 0"),
    ("pretrain tiny --crops.n-global 1 --data {data} --out o", "--crops.n-global"),
    ("pretrain tiny --crops.n-local 0 --data {data} --out o", "--crops.n-local"),
    ("pretrain tiny --strategy two-view --crops.n-local 2 --data {data} --out o", "--crops.n-local"),
    ("pretrain tiny --optimiser.lr nan --data {data} --out o", "--optimiser.lr"),
    ("pretrain tiny --optimiser.weight-decay-end -1 --data {data} --out o", "optimiser.weight_decay_end"),
    ("pretrain tiny --optimiser.layer-decay 0.5 --data {data} --out o", "optimiser.layer_decay"),
    ("pretrain tiny --optimiser.pull 1 --data {data} --out o", "optimiser.pull init"),
    ("pretrain tiny --optimiser.backbone-lr 0 --data {data} --out o", "--optimiser.backbone-lr"),
    ("pretrain tiny --backbone timm/vgg11 --drop-path 0.1 --data {data} --out o", "drop_path=0.1"),
    ("pretrain tiny --framework.tau 0 --data {data} --out o", "--framework.tau"),
    ("pretrain tiny --framework.m 2 --data {data} --out o", "--framework.m"),
    ("pretrain tiny --data {data} --out {run}", "run --out"),
    ("resume nowhere", "nowhere"),
    ("resume {broken}", "recipe.json broken"),
    ("resume {run} --framework.dim 3", "--framework.dim"),
    ("resume {run} --epochs 0", "--epochs"),
    ("eval nope {run}", "nope"),
    ("eval knn", "ENCODER"),
    ("eval knn nowhere", "nowhere"),
    ("eval knn {text}", "text.npz"),
    ("eval knn {run} --protocols 5", "--protocols"),
    ("eval knn {run} --protocols 0 0.07", "--protocols"),
    ("eval knn {run} --data nowhere", "nowhere"),
    ("eval knn torchvision/nope", "nope"),
    ("eval linear {run} --protocol nope", "nope"),
    ("eval linear {run} --rates -1", "--rates"),
    ("eval transfer {run} --sets nowhere", "nowhere"),
    ("eval finetune {run} --epochs 0", "--epochs"),
    ("eval semi {run} --fractions 2", "--fractions fraction"),
    ("compare {run}", "encoders"),
    ("compare {run} nowhere", "nowhere"),
    ("compare untrained {run}", "untrained"),
    ("compare {run} pixels --data nowhere", "nowhere"),
    ("compare {run} pixels --out page.pdf", "page.pdf"),
    ("eval detect {resnet}", "--data"),
    ("eval detect {resnet} --data nowhere", "nowhere"),
    ("eval detect {resnet} --data {coco} --steps 5 3", "--steps"),
    ("eval detect {resnet} --data {coco} --save-model {resnet}", "resnet"),
    ("eval detect {run} --data {coco}", "ResNet"),
    ("eval segment {resnet} --data nowhere", "nowhere"),
    ("finetune {run} --data {data}", "--out"),
    ("finetune {run} --data {data} --out m --lr 0", "--lr"),
    ("finetune {run} --data {data} --out {run}", "run --out"),
    ("predict {run} --data {data} --out p.csv", "finetune"),
    ("predict nowhere --data {data} --out p.csv", "nowhere"),
    ("predict {run} --out p.csv", "--data"),
    ("embed {run}", "--out"),
    ("embed {run} --out features.txt", "features.txt"),
    ("embed {run} --out f.npz --split nope", "nope"),
    ("embed {run} --out f.npz --size 0", "--size"),
    ("embed {run} --out f.npz --mean 0.5", "--mean"),
    ("embed {run} --out f.npz --batch-size 0", "--batch-size"),
    ("embed random/tiny --out f.csv", "--data"),
    ("embed {run} --out f.npz --split val", "val"),
    ("search {run} --index nowhere.npz --query {image}", "nowhere.npz"),
    ("search {run} --index {text} --query {image}", "text.npz"),
    ("search {run} --index {features}", "--query"),
    ("search {run} --index {features} --query nowhere.png", "nowhere.png"),
    ("search {run} --index {features} --query {image} --k 0", "--k"),
    ("search {resnet} --index {features} --query {image}", "features.npz"),
    ("export {run}", "--to"),
    ("export {run} --to nope", "nope"),
    ("export {run} --to torchvision", "tiny"),
    ("affinity nowhere", "nowhere"),
    ("affinity {run} --rows 0", "--rows"),
    ("affinity {run} --reference 999", "999"),
    ("report nowhere", "nowhere"),
    ("report {run} --images 3", "--images"),
    ("report {run} --out report.txt", "report.txt --out"),
    ("watch {run} --port 99999", "99999 --port"),
    ("show-crops tiny --data {data} --images 0", "--images"),
    ("show-crops tiny --data {data} --out crops.doc", "crops.doc --out"),
    ("reproduce table9", "table9"),
    ("reproduce table1 --rows nope --data {data}", "nope"),
    ("reproduce table1 --set nope=3", "nope"),
    ("reproduce table1 --seeds 0", "--seeds"),
    ("reproduce table1 --jobs 0", "--jobs"),
    ("reproduce table1 --epochs 0", "--epochs"),
    ("reproduce table2 --tuned", "table2"),
    ("reproduce table1 --set epochs=3", "epochs=3"),
    ("reproduce table1 --set nonsense", "nonsense"),
    ("reproduce table1 --set optimiser.lr=abc --dry-run", "optimiser.lr='abc'"),
    ("reproduce table1 --data missing.npz", "missing.npz"),
    ("reproduce table7 --data x=y", "x=y"),
    ("bench nope", "nope"),
    ("bench tiny --batch-size 0", "--batch-size 0"),
    ("doctor --data nowhere", "nowhere"),
    ("doctor --device tpu", "tpu"),
    ("demo --epochs 0", "--epochs"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory, data, run, resnet) -> dict[str, Path]:
    """What the command lines below name in braces."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "empty").mkdir()
    (folder / "text.npz").write_text("text")
    (folder / "broken").mkdir()
    (folder / "broken" / "recipe.json").write_text("{")
    (folder / "image.png").write_bytes(as_png(pictures(1)[0][0]))
    logo_ssl.embed(run, data, out=folder / "features.npz")
    save_coco(folder / "coco", {"train": 2, "val": 1})
    made = {name: folder / name for name in ("empty", "broken", "coco")}
    made |= {"text": folder / "text.npz", "image": folder / "image.png", "features": folder / "features.npz"}
    return made | {"data": data, "run": run, "resnet": resnet}


@pytest.mark.parametrize(("line", "words"), BAD, ids=[line for line, _ in BAD])
def test_a_mistake_ends_with_code_2_names_what_is_wrong_and_leaves_nothing(logo, cwd, places, line, words):
    """It names one of these words: how the sentence around them reads is not promised."""
    done = logo(*(word.format(**places) for word in line.split()))
    assert done.code == 2, done.out
    assert any(named(done.err, word) for word in words.split()), done.err
    assert "Traceback" not in done.err
    assert not list(cwd.iterdir())


def test_a_mistake_in_a_process_of_its_own_is_the_same(tmp_path):
    end = ended(started("nonsense", cwd=tmp_path))
    assert (end.code, named(end.err, "nonsense"), "Traceback" in end.err) == (2, True, False)
