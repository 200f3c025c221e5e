"""What a person at a shell sees: one sentence, exit code 2, no traceback."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from logo_ssl import __version__, cli, pretrain
from logo_ssl.commands.looking import PROTOCOL_NAMES
from logo_ssl.errors import UserError
from logo_ssl.eval.commands import PROTOCOLS
from logo_ssl.files import write
from logo_ssl.output_names import TABLES, TARGETS
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.signals import Stopped
from logo_ssl.train import Pretraining
from logo_ssl.train.faults import Diverged
from logo_ssl.train.folder import alone, is_finished
from logo_ssl.embedding.exporting import WAYS
from logo_ssl.embedding.tables import FORMATS

no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")


def run(capsys, *arguments):
    """Exit code, standard output and standard error of a command line."""
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    told = capsys.readouterr()
    return stop.value.code or 0, told.out, told.err


def test_version_and_help(capsys):
    assert run(capsys, "--version") == (0, f"logo-ssl {__version__}\n", "")
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(command in out for command in cli.COMMANDS)


def test_recipes_lists_rows_and_numbers(capsys):
    code, out, _ = run(capsys, "recipes")
    assert code == 0
    assert re.search(r"cifar10-simsiam-logo +│ resnet18 +│ 1, 7 +│ 87\.67 +│ 88\.02", out)
    assert max(map(len, out.splitlines())) <= 80


def test_recipes_does_not_tell_of_auto_what_it_has_yet_to_choose(capsys):
    _, out, _ = run(capsys, "recipes")
    assert re.search(r"auto +│ chosen ", out)


def test_help_of_a_recipe_shows_every_field(capsys):
    code, out, _ = run(capsys, "pretrain", "tiny", "--help")
    assert code == 0
    for option in ("--out", "--data", "--epochs", "--batch-size", "--seed", "--framework.tau", "--strategy.lam"):
        assert option in out
    assert "lambda: how strongly" in out
    assert "Pretrain an encoder by tiny. A small encoder that learns made-up scenes" in out


def test_recipes_say_in_the_heading_whose_figures_they_show_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "recipes")
    first, second = out.splitlines()[:2]
    assert [len(row) <= 80 for row in out.splitlines()[:9]] == [True] * 9
    for column in ("kNN %", "linear %"):
        assert first[second.index(column) :].startswith("paper")


HELPS = ["demo", "doctor", "embed", "search", "export", "affinity", "report", "watch", "reproduce", "resume"]
HELPS += ["pretrain auto", "pretrain tiny", "bench tiny", "show-crops", *(f"eval {name}" for name in PROTOCOL_NAMES)]


@pytest.mark.parametrize("line", HELPS)
def test_help_shows_values_that_can_be_typed_and_no_empty_default(capsys, monkeypatch, line):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(capsys, *line.split(), "--help")
    assert (code, "-h, --help" in out) == (0, True)
    assert not re.search(r"None|default: *\)|\.\.\.\]|\) \(default", out)


def test_help_says_what_an_option_takes_what_it_is_otherwise_and_what_must_be_given(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")

    def told(line):
        return re.sub(r"[ │\n]+", " ", run(capsys, *line.split(), "--help")[1])

    search, reproduce, detect = told("search"), told("reproduce"), told("eval detect")
    assert (
        "--index PATH The file that `embed` wrote. (required) --query PATH ... One image or more. (required)" in search
    )
    assert "--k INT Neighbours of each. (default: 12) --out PATH A contact sheet to draw (.png). --over" in search
    assert "--stem {imagenet,cifar,solo-learn} First" in search
    assert "'cifar10-*' (default: all rows). --tuned" in reproduce
    assert "else Table 3's. (required)" in reproduce
    assert "--candidates INT INT Proposals" in detect
    assert "--flip {True,False} Mirror every other training picture. (default: True)" in detect
    assert "--epochs INT Passes over the data (default: the recipe's). --seed INT" in told("demo")
    assert "--loggers {tensorboard,wandb,mlflow} ..." in told("pretrain tiny")
    assert "stands for those below it, in 5,000 folders at most, that are finished. (required)" in told("report")


def test_what_comes_next_needs_no_extra_and_is_quoted_for_a_shell(capsys, monkeypatch):
    monkeypatch.setattr("logo_ssl.train.pretrain", lambda recipe, out: Run(out))
    _, out, _ = run(capsys, "pretrain", "tiny", "--out", "my run")
    assert out.endswith("Next: logo-ssl embed 'my run' --out 'my run-features.npz'\n")


def test_a_run_that_went_on_ends_as_one_that_did_not(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("logo_ssl.train.resume", lambda path, recipe: Run(path))
    write(tmp_path / "run" / "recipe.json", find_recipe("tiny").to_json())
    _, out, _ = run(capsys, "resume", str(tmp_path / "run"))
    assert out.endswith(f"Next: logo-ssl embed {tmp_path / 'run'} --out run-features.npz\n")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("pretain tiny", "No command is called 'pretain'.*Did you mean pretrain"),
        ("pretrain", "Say where your images are.*or name a recipe"),
        ("pretrain --epochs 3", "Say where your images are"),
        ("pretrain auto", "Say where your images are"),
        ("pretrain --data scenes --device tpu", "logo-ssl: --device is 'tpu', which this machine does not have"),
        ("pretrain --data nowhere", "No data at"),
        ("bench auto", "Say where your images are"),
        ("pretrain tinny", "No recipe is called 'tinny'.*Did you mean tiny"),
        ("pretrain resnet18 --data photos", "No recipe is called 'resnet18'; .* For a backbone: --backbone resnet18."),
        ("recipes tiny", "lists all; `logo-ssl pretrain tiny --help` shows what tiny sets"),
        ("recipes tinny", "No recipe is called 'tinny'.*Did you mean tiny"),
        ("pretrain photos", "No recipe is called 'photos'; .*If these are your images, say --data photos"),
        ("pretrain tiny photos", "photos. If these are your images, say --data photos"),
        ("doctor photos", "photos. If these are your images, say --data photos"),
        ("eval knn photos", "photos holds no run.* If these are your images, say --data photos, and the"),
        ("embed photos --out a.npz", "photos holds no run.* If these are your images, say --data photos, and"),
        ("export photos --to timm", r"photos holds no run .*a pretraining\.$"),
        ("pretrain tiny --epoch 3", "--epoch.*Did you mean --epochs"),
        ("pretrain tiny --set knn_every=3", r"--set. Here a field is an option: --knn-every 3\. `"),
        ("pretrain tiny --set crops.global_scale=0.2,1", r"is an option: --crops.global-scale 0.2 1\. `"),
        ("pretrain tiny --set", "(needs a value|options: --set. `)"),
        ("reproduce table1 --strategy.lam 0.1", r"If that is a field of recipes: --set strategy.lam=0.1\. `"),
        ("reproduce table1 --crops.local-scale 0.05 0.4", r"recipes: --set crops.local_scale=0.05,0.4\. `"),
        ("reproduce table1 --deterministic --dry-run", r"recipes: --set deterministic=VALUE\. `"),
        ("reproduce table1 --batch-size=64", r"If that is a field of recipes: --set batch_size=64\. `"),
        ("reproduce table1 --set batch_size=64 framework.queue=128", r"before each: --set framework.queue=128\. `"),
        ("reproduce table1 --set a=1 b.c=0.2,1.0 d=2", r"before each: --set b.c=0.2,1.0 --set d=2\. `"),
        ("reproduce table1 --set strategy.kind=logo", r"does not take strategy.kind; choose rows with --rows\.$"),
        ("reproduce table1 --seed 3", "options: --seed. Did you mean --seeds"),
        ("pretrain --dta photos", "Unrecognized options: --dta. Did you mean --data.*pretrain auto --help"),
        ("pretrain --out runs/a --dta photos", "options: --dta. Did you mean --data"),
        ("pretrain auto --framework simsiam --dta=photos", "options: --dta. Did you mean --data"),
        ("pretrain --epocs 3", "options: --epocs. Did you mean --epochs"),
        ("pretrain --epochs 3 --out runs/a", "Say where your images are, for example: logo-ssl pretrain --data"),
        ("pretrain tiny --epocs=3 --optimiser.l=0.1", "options: --epocs, --optimiser.l. Did you mean --epochs"),
        ("bench --dta photos", "options: --dta. Did you mean --data"),
        ("pretrain tiny --strategy.lambda 3", "options: --strategy.lambda. Did you mean --strategy.la"),
        (
            "pretrain cifar10-moco --strategy two-view --strategy.lam 0.3",
            "options: --strategy.lam. Strategy two-view has no lam; --strategy logo has\\. `",
        ),
        (
            "pretrain tiny --epocs 3 --framework=simsiam --framework.tau=0.3",
            "options: --epocs, --framework.tau. Framework simsiam has no tau; --framework moco or simclr has\\. `",
        ),
        ("pretrain tiny --crops.global-sale 0.3 1", "options: --crops.global-sale. Did you mean --crops.global-scale"),
        ("pretrain tiny --epochs three", "logo-ssl: --epochs is 'three'; give a whole number\\. `logo-ssl"),
        ("pretrain tiny --epochs 3.5", "logo-ssl: --epochs is '3.5'; give a whole number"),
        ("pretrain tiny --optimiser.lr fast", "logo-ssl: --optimiser.lr is 'fast'; give a number"),
        ("pretrain tiny --devices all", "logo-ssl: --devices is 'all'; give a whole number, or auto"),
        ("pretrain tiny --crops.jitter 1 1 1 x", "logo-ssl: --crops.jitter is '1', '1', '1', 'x'; give numbers"),
        ("eval knn random/tiny --size big", "logo-ssl: --size is 'big'; give a whole number"),
        ("eval knn random/tiny --mean a b c", "logo-ssl: --mean is 'a', 'b', 'c'; give numbers"),
        ("pretrain tiny --epochs 0", "logo-ssl: --epochs is 0"),
        ("pretrain --data scenes --stem cifr", "logo-ssl: --stem is 'cifr'; choose .* Did you mean cifar"),
        ("pretrain tiny --crops.n-local 1", "--crops.n-local is 1; strategy logo wants 2 or more"),
        ("pretrain tiny --batch-size 1", "batch of 1 has no other image"),
        ("pretrain tiny --strategy.bound none", "--strategy.bound is 'none'; choose logistic, mean-difference\\. `"),
        ("eval knn random/tiny --stem resnet", "logo-ssl: --stem is 'resnet'; choose cifar, imagenet, solo-learn\\. `"),
        ("eval detect random/tiny --flip maybe", "logo-ssl: --flip is 'maybe'; choose False, True\\. `"),
        ("eval detect random/tiny --candidates 3", "logo-ssl: --candidates is '3'; give two whole numbers"),
        ("eval detect random/tiny --steps x", "logo-ssl: --steps is 'x'; give whole numbers"),
        ("eval detect random/tiny --lr x", "logo-ssl: --lr is 'x'; give a number\\. `"),
        ("demo --epochs", "logo-ssl: --epochs needs a value\\. `"),
        ("pretrain tiny --crops.ratio 1", "logo-ssl: --crops.ratio needs 2 values\\. `"),
        ("pretrain tiny --crops.n-local 99", "more than make sense"),
        ("pretrain tiny --crops.flip 2", "flip.*2"),
        ("pretrain tiny --loading.max-bad 2", "logo-ssl: --loading.max-bad is 2"),
        ("pretrain tiny --loading.workers -3", "logo-ssl: --loading.workers is -3"),
        ("pretrain tiny --loading.max-side -1", "logo-ssl: --loading.max-side is -1"),
        ("pretrain tiny --loading.placement moon", "moon"),
        ("pretrain tiny --loading.placement disk", "--loading.placement is 'disk', but these images are an array"),
        ("show-crops --images 0", "logo-ssl: --images is 0; show 1 to"),
        ("show-crops --out crops.jpg", "crops are drawn as a .png"),
        ("show-crops tinny", "No recipe is called 'tinny'"),
        ("show-crops --data nowhere", "No data at"),
        ("bench", "Say which recipe to measure"),
        ("eval", "Say which protocol and which encoder"),
        ("eval knnn x", "No protocol is called 'knnn'.*Did you mean knn"),
        ("eval knn", "ENCODER"),
        ("eval knn random/tiny --siz 64", "--siz.*Did you mean --size"),
        ("eval knn nowhere", "nowhere"),
        ("eval knn random/tiny", "name them with --data"),
        ("eval knn random/tiny --data nowhere", "No data at"),
        (
            "eval knn random/tiny --data scenes --size 32 --protocols 200 0.1",
            "k=200 needs more than 200 images",
        ),
        ("eval linear random/tiny --data scenes --epochs 0", "logo-ssl: --epochs is 0"),
        ("eval linear random/tiny --data scenes --rates", "--rates is .*; give one or more learning rates above 0"),
        ("eval linear random/tiny --data scenes --seed -1", "logo-ssl: --seed is -1; use 0 to"),
        ("eval semi random/tiny --data scenes --seed -1", "logo-ssl: --seed is -1; use 0 to"),
        ("eval semi random/tiny --data scenes --lr nan", "logo-ssl: --lr is nan; use a positive"),
        ("eval transfer random/tiny --sets scenes --seed -1", "logo-ssl: --seed is -1; use 0 to"),
        ("eval transfer random/tiny --sets", "logo-ssl: --sets is empty; give one or more of cifar10,"),
        ("eval knn random/tiny --data scenes --protocols 5 nan", "--protocols has k 5 and tau nan; use k of 1 or more"),
        pytest.param("eval linear random/tiny --data scenes --device cuda", "use auto or .*cpu", marks=no_cuda),
        pytest.param("eval finetune random/tiny --data scenes --device cuda", "use auto or .*cpu", marks=no_cuda),
        ("eval semi random/tiny --data scenes --fractions", "logo-ssl: --fractions is empty"),
        ("eval semi random/tiny --data scenes --fractions 3", "fraction=3"),
        ("eval knn random/tiny --data scenes --out other", "other is to be a file, but is a folder"),
        ("eval knn random/tiny --data scenes --out file/x.json", "nothing can be written in .*file"),
        ("eval knn random/tiny --data scenes --max-bad 2", "logo-ssl: --max-bad is 2"),
        ("eval knn random/tiny --data scenes --batch-size 0", "logo-ssl: --batch-size is 0"),
        (
            "eval knn random/tiny --data scenes --mean 0.5 --std 0.5 0.5 0.5",
            "logo-ssl: --std has 3 values, and random/tiny sees 1 channel; give one for every channel",
        ),
        ("eval knn random/tiny --data scenes --std 0.5 0 0.5", "logo-ssl: --std is 0.5 0.0 0.5; give values above 0"),
        ("eval knn random/tiny --data scenes --workers -2", "logo-ssl: --workers is -2; use -1 .one per core. or more"),
        ("eval finetune random/tiny --data scenes --no-cache", "cache"),
        ("eval transfer random/tiny --sets nowhere neither", "There is no set 'nowhere'; give one or more of cifar10,"),
        ("eval transfer random/tiny --sets petts", "There is no set 'petts';.*dtd, another.*Did you mean pets?"),
        ("eval knn random/tiny --data pets", "No data at 'pets'; the set Pets is called oxfordiiitpet here"),
        (
            "eval knn random/tiny --data scenes --protocols 5",
            "logo-ssl: --protocols is '5'; give k and tau in pairs, such as 5 0.07\\. `",
        ),
        ("eval knn resnet18 --data scenes", "Did you mean torchvision/resnet18, timm/resnet18, random/resnet18?"),
        ("eval linear random/tiny --data scenes --protocol lbfgs --epochs 3", "--epochs and --rates belong to SGD"),
        ("eval linear random/tiny --data scenes --protocol lbfgs --rates 3", "--epochs and --rates belong to SGD"),
        ("bench tiny --epochs 0", "logo-ssl: --epochs is 0"),
        ("pretrain tiny --crops.local-scale 0.9 0.1", "logo-ssl: --crops.local-scale is 0.9 0.1"),
        ("pretrain tiny --data nowhere", "No data at '.*nowhere'"),
        ("pretrain tiny --backbone resnet81", "Did you mean resnet18"),
        pytest.param(
            "pretrain tiny --device cuda --epochs 1",
            "'cuda', which this machine does not have; use auto or (mps or )?cpu",
            marks=no_cuda,
        ),
        pytest.param(
            "pretrain tiny --device cuda --devices 2",
            "'cuda', which this machine does not have; use auto or (mps or )?cpu",
            marks=no_cuda,
        ),
        ("pretrain tiny --framework mocco", "No framework is called 'mocco'.*Did you mean moco"),
        ("pretrain tiny --out file/run", "cannot be used"),
        ("pretrain tiny --seed 18446744073709551616", "logo-ssl: --seed is 18446744073709551616"),
        ("pretrain tiny --loggers wandb", "The logger wandb is not installed"),
        ("pretrain cifar10-moco-logo --backbone timm/resnet18", "--stem is cifar.*timm/resnet18.*use --stem imagenet"),
        (
            "pretrain tiny --backbone timm/swin_tiny_patch4_window7_224",
            "cannot take crops of (32|16) px .*--crops.local-size",
        ),
        ("pretrain tiny --init nowhere.bin", "logo-ssl: --init is 'nowhere.bin'; give a .safetensors file"),
        ("demo --fresh --out other", "no demo, so --fresh will not clear it"),
        ("resume nowhere", "nowhere holds no run"),
        ("demo --epochs x", "logo-ssl: --epochs is 'x'; give a whole number"),
    ],
)
def test_bad_input_is_one_sentence_and_code_2(capsys, tmp_path, monkeypatch, line, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 40)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 20)
    (tmp_path / "file").write_text("precious")
    (tmp_path / "photos").mkdir()
    write(tmp_path / "other" / "recipe.json", find_recipe("cifar10-moco").to_json())
    before = sorted(tmp_path.rglob("*"))
    code, _, err = run(capsys, *line.split())
    assert code == 2
    assert re.search(sentence, err), err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before  # nothing lost, nothing left in the way of another try


def test_what_is_typed_is_told_by_its_option_and_what_a_recipe_file_says_by_its_field(capsys, tmp_path):
    recipe = find_recipe("tiny")
    file = write(tmp_path / "run" / "recipe.json", recipe.to_json())
    _, _, err = run(capsys, "resume", str(tmp_path / "run"), "--epochs", "0")
    assert err == "logo-ssl: --epochs is 0; use 1 or more.\n"
    write(file, recipe.changed(epochs=0).to_json())
    _, _, err = run(capsys, "resume", str(tmp_path / "run"), "--epochs", "5")
    assert err == f"logo-ssl: {file} cannot be used: epochs is 0; use 1 or more.\n"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("eval kmm runs/first", "No protocol is called 'kmm'; choose knn"),
        ("eval knn nowhere", "'nowhere' is no encoder"),
        ("embed nowhere --out f.npz", "'nowhere' is no encoder"),
        ("search timmm/resnet18 --index f.npz", "'timmm/resnet18' is no encoder"),
        ("export nowhere --to onnx", "'nowhere' is no encoder"),
        ("embed random/tiny", "Say where the features go: --out features.npz"),
        ("embed random/tiny --size 16 --out f.txt", "f.txt is none of .parquet, .npz, .csv; features lie in one"),
        ("export random/tiny", r"export random/tiny --to onnx \(or torchvision, timm, safetensors, hf\)"),
        ("export random/tiny --to=tflite", "No export is called 'tflite'; choose torchvision"),
        ("report nowhere", "nowhere holds no run"),
        ("affinity nowhere", "nowhere holds no run"),
        ("completion csh", "'csh' is no shell"),
    ],
)
def test_names_that_are_wrong_are_told_before_torch_is_imported(tmp_path, line, sentence):
    code = "import sys; sys.modules['torch'] = None; from logo_ssl.cli import main; main(sys.argv[1:])"
    where = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    line = [sys.executable, "-c", code, *line.split()]
    told = subprocess.run(line, cwd=tmp_path, env=where, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert re.search(sentence, told.stderr), told.stderr


def test_protocols_have_the_same_names_wherever_they_are_listed():
    assert tuple(PROTOCOLS) == PROTOCOL_NAMES
    assert (tuple(FORMATS), tuple(WAYS)) == (TABLES, TARGETS)


@pytest.mark.parametrize(
    ("command", "number", "sentence"),
    [
        ("pretrain", errno.ENOSPC, "the disk is full; free some space, then go on with `logo-ssl resume` and the run"),
        ("reproduce", errno.EDQUOT, "runs/x cannot be written: the disk is full; free some space, then give the same"),
        ("recipes", errno.EACCES, "runs/x cannot be written (no); choose another --out"),
        ("resume", errno.EACCES, "runs/x cannot be written (no); allow it, or go on with a copy of the run."),
        ("recipes", errno.EIO, "runs/x cannot be used (no); choose another path"),
    ],
)
def test_a_disk_that_refuses_is_told_in_a_sentence(capsys, monkeypatch, command, number, sentence):
    def refuse(arguments):
        raise OSError(number, "no", "runs/x")

    monkeypatch.setitem(cli.COMMANDS, command, refuse)
    code, _, err = run(capsys, command)
    assert code == 2
    assert sentence in err


@pytest.mark.parametrize(
    "line",
    [
        "doctor",
        "pretrain",
        "pretrain tiny",
        "show-crops",
        "bench tiny",
        "embed random/tiny --out f.npz",
        "eval knn random/tiny",
    ],
)
def test_data_from_a_variable_that_is_not_set_are_not_this_folder(capsys, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (20, 20)).save(tmp_path / "image.png")
    code, _, err = run(capsys, *line.split(), "--data", "")
    assert (code, "data is empty, as from a variable that is not set" in err) == (2, True), err
    assert [file.name for file in tmp_path.iterdir()] == ["image.png"]


@pytest.mark.parametrize(
    "line",
    [
        "demo",
        "pretrain tiny",
        "show-crops",
        "embed random/tiny --data scenes",
        "search random/tiny --index features.npz --query image.png",
        "export random/tiny --to safetensors",
        "eval knn random/tiny --data scenes",
        "eval detect random/tiny --data scenes",
        "report .",
        "affinity .",
        "reproduce table1 --dry-run",
    ],
)
@pytest.mark.parametrize("empty", [["--out", ""], ["--out="]])
def test_an_out_from_a_variable_that_is_not_set_is_not_this_folder(capsys, tmp_path, monkeypatch, line, empty):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "recipe.json", find_recipe("tiny").to_json())
    code, _, err = run(capsys, *line.split(), *empty)
    told = "logo-ssl: --out is empty, as from a variable that is not set; give a path.\n"
    assert (code, err) == (2, told)
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.json"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["report", ""], "RUN"),
        (["report", ".", ""], "RUN"),
        (["report", ".", "--out", "page.html", ""], "RUN"),
        (["report", ".", "--overwrite", ""], "RUN"),
        (["watch", ""], "RUN"),
        (["affinity", ""], "RUN"),
        (["resume", ""], "RUN"),
        (["eval", "knn", ""], "ENCODER"),
        (["eval", "knn", "--data", "scenes", ""], "ENCODER"),
        (["embed", "", "--data", "scenes", "--out", "f.npz"], "ENCODER"),
        (["export", "", "--to", "safetensors"], "ENCODER"),
        (["search", "random/tiny", "--index", "f.npz", "--query", "a.png", ""], "--query"),
    ],
)
def test_a_path_from_a_variable_that_is_not_set_is_not_this_folder(capsys, tmp_path, monkeypatch, line, named):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "recipe.json", find_recipe("tiny").to_json())
    code, _, err = run(capsys, *line)
    assert (code, err.startswith(f"logo-ssl: {named} is empty, as from a variable that is not set; ")) == (2, True), err
    assert [file.name for file in tmp_path.iterdir()] == ["recipe.json"]


def test_an_empty_out_is_refused_in_python_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^out is empty, as from a variable that is not set; give a path\.$"):
        pretrain("tiny", "")
    assert [*tmp_path.iterdir()] == []


def test_framework_and_strategy_can_be_swapped_by_name(capsys):
    code, out, _ = run(capsys, "pretrain", "tiny", "--framework", "byol", "--strategy", "two-view", "--help")
    assert code == 0
    assert "Settings of BYOL." in out
    assert "Settings of the baseline." in out


def test_the_demo_compares_trained_features_with_pixels_and_chance(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 256)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 64)
    code, out, err = run(capsys, "demo", "--out", str(tmp_path / "demo"), "--epochs", "1")
    assert code == 0, err
    for row in ("raw pixels", "random initialisation", "trained encoder"):
        assert row in out
    assert (tmp_path / "demo" / "curves.png").stat().st_size > 10_000
    *_, report, following = out.splitlines()
    assert report.startswith(f"Report: {tmp_path / 'demo' / 'report.html'} (")
    assert following.endswith(": logo-ssl pretrain --data photos/ --out runs/photos")
    assert "data-map" in (tmp_path / "demo" / "report.html").read_text()
    assert run(capsys, "demo", "--out", str(tmp_path / "demo"), "--epochs", "1")[0] == 2
    assert Run.existing(tmp_path / "demo").backbone_file.is_file()
    code, out, _ = run(capsys, "resume", str(tmp_path / "demo"))
    assert code == 0
    assert "is finished" in out
    assert run(capsys, "demo", "--out", str(tmp_path / "demo"), "--epochs", "1", "--fresh")[0] == 0


def test_a_demo_that_was_interrupted_goes_on_to_its_end(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 256)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 64)
    monkeypatch.chdir(tmp_path)
    demo, folder = ("demo", "--epochs", "2", "--seed", "3"), Path("runs/demo")
    with monkeypatch.context() as patch:
        step = Pretraining.training_step
        patch.setattr(Pretraining, "training_step", lambda *given: (step(*given), stop_this_process())[0])
        code, _, err = run(capsys, *demo, "--fresh")
    assert (code, Run(folder).newest_step()) == (128 + signal.SIGTERM, 1)
    assert err.endswith("saved at step 1; go on with `logo-ssl demo --epochs 2 --seed 3`.\n")
    code, _, err = run(capsys, "demo", "--epochs", "4")
    assert (code, err) == (
        2,
        "logo-ssl: runs/demo holds an unfinished demo with --seed 3 and --epochs 2; go on with `logo-ssl demo "
        "--epochs 2 --seed 3`, replace it with --fresh, or choose another --out.\n",
    )
    shutil.copytree(folder, "runs/copy")
    with monkeypatch.context() as patch:
        patch.setattr("logo_ssl.demo.draw_curves", _stopped)
        code, _, err = run(capsys, "demo", "--seed", "3", "--epochs", "2", "--out", "runs/copy")
    assert (code, is_finished(Run(Path("runs/copy")))) == (130, True)
    begin = "begin anew with `logo-ssl demo --out runs/copy --epochs 2 --seed 3 --fresh` to see it compared"
    assert err == f"logo-ssl: Stopped by Ctrl-C; the encoder is trained; {begin}.\n"
    code, out, err = run(capsys, "demo", "--seed", "3")
    assert code == 0, err
    assert out.startswith("runs/demo holds a demo that was interrupted; it goes on.\n")
    assert "trained encoder" in out
    assert (folder / "report.html").is_file()
    over = "runs/demo holds a demo that is over; --fresh replaces it, or choose another --out."
    assert run(capsys, *demo)[::2] == (2, f"logo-ssl: {over}\n")


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _stopped(run: Run) -> None:
    raise KeyboardInterrupt


def test_a_demo_does_not_go_on_with_what_is_none(capsys, tmp_path):
    other = find_recipe("tiny").changed(framework="byol")
    write(tmp_path / "recipe.json", other.to_json())
    write(tmp_path / "checkpoints" / f"step-1-{'0' * 16}.ckpt", "")
    code, _, err = run(capsys, "demo", "--out", str(tmp_path))
    assert code == 2
    assert f"{tmp_path} holds an unfinished run; go on with `logo-ssl resume {tmp_path}`" in err


def test_a_fresh_demo_replaces_whatever_an_earlier_one_left(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.demo.pretrain", refused)
    folder = tmp_path / "demo"
    for name in (".lock", ".metrics.jsonl.abc", "bad-images.csv", "checkpoints/step-1-0.ckpt", "report.html"):
        write(folder / name, "")
    write(folder / "recipe.json", find_recipe("tiny").to_json())
    code, _, err = run(capsys, "demo", "--out", str(folder), "--fresh")
    assert (code, err) == (2, "logo-ssl: It was cleared.\n")
    assert not folder.exists()


def test_a_fresh_demo_leaves_one_that_is_being_trained_and_files_of_others(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.demo.pretrain", refused)
    folder = tmp_path / "demo"
    write(folder / "recipe.json", find_recipe("tiny").to_json())
    write(folder / "metrics.jsonl", "precious")
    with alone(Run(folder)):
        code, _, err = run(capsys, "demo", "--out", str(folder), "--fresh")
    assert code == 2
    assert f"{folder} is being trained by another process" in err
    write(folder / "notes.txt", "precious")
    (folder / ".lock").unlink()
    before = sorted(folder.iterdir())
    code, _, err = run(capsys, "demo", "--out", str(folder), "--fresh")
    assert (code, err) == (
        2,
        f"logo-ssl: {folder} holds notes.txt, so --fresh will not clear it; choose another --out.\n",
    )
    assert sorted(folder.iterdir()) == before


def refused(*args: object, **changes: object) -> None:
    raise UserError("It was cleared.")


def test_show_crops_draws_a_picture(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 20)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 20)
    code, out, _ = run(capsys, "show-crops", "--images", "2", "--out", str(tmp_path / "new" / "crops.png"))
    assert code == 0
    assert "crops.png" in out
    with Image.open(tmp_path / "new" / "crops.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 300


def test_show_crops_of_a_folder_leaves_bad_images_out(capsys, tmp_path):
    folder, line = tmp_path / "photos", ("show-crops", "--data", str(tmp_path / "photos"), "--out")
    folder.mkdir()
    Image.new("RGB", (90, 60), (200, 30, 30)).save(folder / "good.jpg")
    (folder / "bad.jpg").write_bytes(b"nothing")
    assert run(capsys, *line, str(tmp_path / "crops.png"))[0] == 0
    (folder / "good.jpg").unlink()
    code, _, err = run(capsys, *line, str(tmp_path / "crops.png"))
    assert (code, "None of the images can be read (the first: " in err) == (2, True)
    assert "bad.jpg, not an image); look at the files" in err


@pytest.mark.filterwarnings("ignore:.*limit_train_batches")
def test_bench_measures_the_parts_and_the_whole(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 40)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 40)
    monkeypatch.setattr("logo_ssl.train.bench.SECONDS", 0.01)
    code, out, err = run(capsys, "bench", "tiny", "--batch-size", "8", "--device", "cpu", "--epochs", "2")
    assert code == 0
    assert "Training 4 epochs of 200 steps at most, whatever --epochs says: the first one warms up" in err
    result = json.loads(out)
    assert "estimated_minutes_for_2_epochs" in result
    assert set(result["images_per_s"]) == {"data", "augmentation", "raw_forward_backward", "learning", "whole_step"}
    assert all(rate > 0 for rate in result["images_per_s"].values())
    assert 0 < result["ratio"] < 2
    assert {"commit", "hardware", "crops", "batch_size", "knn_s", "start_s"} <= result.keys()
    assert list(tmp_path.iterdir()) == []


def _out_of_memory(*_: object) -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


def _diverges(*_: object) -> None:
    raise Diverged(3, ["l_gg"])


def _is_stopped(*_: object) -> None:
    raise Stopped(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore:.*limit_train_batches")
@pytest.mark.parametrize(
    ("happens", "code", "sentence"),
    [
        (_out_of_memory, 2, r"has too little memory for a batch of 16; --batch-size 8 fits\."),
        (
            _diverges,
            2,
            r"Training diverged at step 3 \(l_gg not finite\), so its speed is not known; try a lower --opt",
        ),
        (_is_stopped, 143, r"SIGTERM; nothing is kept, and the same command"),
    ],
)
def test_a_bench_that_cannot_measure_says_why(capsys, monkeypatch, happens, code, sentence):
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 40)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 40)
    monkeypatch.setattr(Pretraining, "algorithm_1", happens)
    monkeypatch.setattr(Pretraining, "try_batch", lambda self, size: None)
    found, out, err = run(capsys, "bench", "tiny", "--batch-size", "16", "--device", "cpu")
    assert (found, out) == (code, "")
    assert re.search(rf"^logo-ssl: .*{sentence}", err, re.MULTILINE), err
    assert "Traceback" not in err


@pytest.mark.parametrize("protocol", ["knn", "linear", "transfer", "finetune", "semi"])
def test_every_protocol_shows_its_figures(capsys, tmp_path, monkeypatch, protocol):
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 60)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 40)
    monkeypatch.setenv("LOGO_CACHE", str(tmp_path / "cache"))
    options = {
        "knn": "--data scenes --protocols 5 0.07 20 0.1",
        "linear": "--data scenes --epochs 3",
        "transfer": "--sets scenes",
        "finetune": "--data scenes --epochs 1",
        "semi": "--data scenes --epochs 1 --fractions 0.5",
    }
    out = tmp_path / "result.json"
    line = ["eval", protocol, "random/tiny", "--device", "cpu", "--out", str(out), "--stem", "cifar"]
    line += ["--mean", "0.1", "0.2", "0.3", "--std", "1", "1", "1"]
    code, said, err = run(capsys, *line, *options[protocol].split())
    assert code == 0, err
    assert "top-1" in said
    assert "The encoder takes images of 32 px, with mean 0.100 0.200 0.300 and std 1.000 1.000 1.000." in said
    (saved,) = re.findall(r"^Saved: (.*)$", said, re.MULTILINE)
    assert json.loads(Path(saved).read_text())["about"][0] == "tiny with the cifar stem is untrained (seed 0)."
    assert Path(saved).parent == tmp_path
    assert run(capsys, "eval", protocol, "--help")[0] == 0
