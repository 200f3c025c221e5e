"""Does what a row says name only what can be typed at `reproduce`?"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from logo_ssl.errors import UserError, WrongValue
from logo_ssl.frameworks import SimSiamConfig
from logo_ssl.recipes import OptimiserConfig, find_recipe
from logo_ssl.reproduce.options import by_eval, by_set, retold
from logo_ssl.reproduce.settings import with_settings
from logo_ssl.run import Run
from logo_ssl.strategies import LoGoConfig
from logo_ssl.train.collapse_causes import diagnose
from logo_ssl.train.faults import Diverged, diagnosis
from logo_ssl.train.folder import cure
from logo_ssl.train.learning import FEWER_WORKERS

RECIPE = find_recipe("cifar10-simsiam-logo")
FREE = re.compile(r"(?<!\S)--(?!(?:set|out|epochs|device|data|rows|jobs)\b)")
"""An option that `reproduce` does not have."""


@pytest.mark.parametrize(
    ("sentence", "here"),
    [
        ("A lower --optimiser.lr usually helps.", "A lower --set optimiser.lr usually helps."),
        ("use --batch-size 32 or more.", "use --set batch_size=32 or more."),
        (
            "--batch-size 48 and --optimiser.lr 0.0056 make more.",
            "--set batch_size=48 and --set optimiser.lr=0.0056 make more.",
        ),
        ("a lower --optimiser.lr (0.06), in another --out.", "a lower --set optimiser.lr (0.06), in another --out."),
        ("(`--compile off` trains at once)", "(`--set compile=off` trains at once)"),
        ("use --framework.constant-lr, or wait", "use --set framework.constant_lr=True, or wait"),
        ("use --backbone resnet18 --stem imagenet.", "use --set backbone=resnet18 --set stem=imagenet."),
        ("choose another --backbone.", "choose another --set backbone."),
        ("use --crops.jitter and --crops.ratio.", "use --set crops.jitter and --set crops.ratio."),
        ("or use more --devices.", "or use more --set devices."),
        ("--backbone and --stem go together.", "--set backbone and --set stem go together."),
        ("--init of another network", "--set init of another network"),
        ("use --crops.global-scale 0.2 1.0.", "use --set crops.global_scale=0.2,1.0."),
        ("a--batch-size/x.png cannot be read.",) * 2,
        ("--device is 'cuda'; use --device cpu.", "device is 'cuda'; use --device cpu."),
        ("use --epochs 5, or `logo-ssl pretrain tiny --knn-every 2`.",) * 2,
        ("use --epochs 5, or `python mine.py pretrain tiny --knn-every 2`.",) * 2,
        ("--framework.queue is for others, and so is --nothing 3.",) * 2,
    ],
)
def test_an_option_of_pretrain_is_told_as_reproduce_takes_it(sentence, here):
    assert by_set(sentence, RECIPE) == here
    assert by_set(here, RECIPE) == here  # however often it is told


def test_what_is_said_of_a_field_names_an_option_only_where_it_was_given():
    sentence = "--precision is bf16, which cannot be; use --precision fp32."
    assert by_set(sentence, RECIPE) == "precision is bf16, which cannot be; use --set precision=fp32."
    assert by_set(sentence, RECIPE, {"precision"}).startswith("--set precision is bf16")
    assert by_set("--backbone needs a value.", RECIPE, {"backbone"}) == "--set backbone needs a value."


@pytest.mark.parametrize(
    "recipe",
    [
        RECIPE,
        replace(RECIPE, batch_size=8),
        replace(RECIPE, strategy=LoGoConfig(lam=2.0)),
        replace(RECIPE, optimiser=OptimiserConfig(lr=5.0)),
        replace(RECIPE, framework=SimSiamConfig(constant_lr=False)),
        replace(RECIPE, strategy=LoGoConfig(affinity="cosine", bound="mean-difference")),
    ],
    ids=["nothing", "batch", "lambda", "rate", "predictor", "cosine"],
)
def test_each_cure_of_a_training_can_be_typed(recipe):
    diverged = diagnosis(Diverged(3, ["omega"]), recipe).typed
    for sentence in (diagnose(recipe), diverged, f"try {FEWER_WORKERS}."):
        told = by_set(sentence, recipe)
        assert "--set" in told
        assert not FREE.search(told), told
        for setting in re.findall(r"--set (\S+=[^\s,;.]+)", told):
            with_settings([recipe], [setting])


def test_a_row_goes_on_by_the_same_command():
    sentence = f"The disk is full; free some space, then {cure(Run(Path('out/cifar10-moco/seed0')))}."
    assert by_set(sentence, RECIPE) == "The disk is full; free some space, then give the same command again."


@pytest.mark.parametrize(
    ("measurement", "sentence", "here"),
    [
        (
            "knn",
            "more than --max-bad 0.3 allows; allow more.",
            "more than --set loading.max_bad=0.3 allows; allow more.",
        ),
        ("detect-coco", "try fewer --workers.", "try fewer --set loading.workers."),
        ("linear-sgd", "point LOGO_DATA elsewhere, or use --data.", "point LOGO_DATA elsewhere, or use --data."),
        (
            "linear-sgd",
            "too little memory; lower --batch-size.",
            "too little memory; lower --batch-size. That is an option of `logo-ssl eval linear 'a run'`; rows of a "
            "table have none.",
        ),
        (
            "segment-coco",
            "lower --lr, or allow --max-bad 0.1.",
            "lower --lr, or allow --max-bad 0.1. Those are options of `logo-ssl eval segment 'a run'`; rows of a table "
            "have none.",
        ),
    ],
)
def test_an_option_of_eval_is_told_by_its_field_or_as_evals(measurement, sentence, here):
    assert by_eval(sentence, RECIPE, measurement, Path("a run")) == here


def test_an_error_is_retold_as_what_it_is():
    with pytest.raises(WrongValue) as caught, retold(lambda sentence: by_set(sentence, RECIPE)):
        raise WrongValue("--batch-size 16 fits.")
    assert caught.value.typed == "--set batch_size=16 fits."
    with pytest.raises(UserError, match=r"^Nothing to say otherwise\.$"), retold(str):
        raise UserError("Nothing to say otherwise.")
