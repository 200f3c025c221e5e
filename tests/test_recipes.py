from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from logo_ssl.augment import CropPlan
from logo_ssl.errors import UserError
from logo_ssl.frameworks import FRAMEWORKS, MoCoConfig, SimSiamConfig
from logo_ssl.recipes import RECIPES, OptimiserConfig, Recipe, check, described, find_recipe, tuned, with_harmless
from logo_ssl.strategies import STRATEGIES, LoGoConfig, MultiCropConfig, StrategyTraits, TwoViewConfig

TINY = find_recipe("tiny")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_sound_and_survives_json(name):
    recipe = RECIPES[name]
    check(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe


@dataclass(frozen=True)
class MineConfig(MoCoConfig):
    """A framework of somebody's own, made from one of ours."""

    mine: int = 3


@dataclass(frozen=True)
class MyStrategyConfig(LoGoConfig):
    """The same of a strategy."""


def test_a_part_made_from_one_of_ours_stays_itself_in_json(monkeypatch):
    monkeypatch.setitem(FRAMEWORKS, "mine", MineConfig)
    monkeypatch.setitem(STRATEGIES, "my-strategy", MyStrategyConfig)
    recipe = TINY.changed(framework=MineConfig(mine=5), strategy=MyStrategyConfig(lam=0.5))
    check(recipe)
    again = Recipe.from_json(recipe.to_json())
    assert (type(again.framework), type(again.strategy)) == (MineConfig, MyStrategyConfig)
    assert again == recipe


@dataclass(frozen=True)
class ThreeCropsConfig(TwoViewConfig):
    """A strategy that wants three local crops, and has a rate."""

    lr: float = 0.1
    least_local: ClassVar[int] = 3


def test_a_strategy_of_ones_own_says_how_many_local_crops_it_wants(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "three", ThreeCropsConfig)
    recipe = TINY.changed(strategy="three", crops__n_local=3)
    check(recipe)
    with pytest.raises(UserError, match="n-local is 2; strategy three wants 3 or more"):
        check(recipe.changed(crops__n_local=2))
    with pytest.raises(UserError, match=r"strategy\.lr is -1; use a positive number"):
        check(recipe.changed(strategy__lr=-1))


def test_a_strategy_without_settings_averages_its_pairs_and_has_no_local_crops():
    assert StrategyTraits.of(object()) == (0, "mean")
    assert StrategyTraits.of(LoGoConfig(pairs="paper")) == (2, "paper")


@pytest.mark.parametrize(("part", "config"), [("framework", MineConfig()), ("strategy", MyStrategyConfig())])
def test_a_part_that_is_not_registered_is_refused_before_anything_is_trained(part, config):
    for tried in (check, Recipe.to_json):
        with pytest.raises(UserError, match=rf"^{part} is {type(config).__name__}\(.* a class of your own a name in"):
            tried(replace(TINY, **{part: config}))


def test_the_papers_temperatures_and_lambdas():
    tau = {name: RECIPES[f"{name}-moco-logo"].framework.tau for name in ("cifar10", "stl10", "imagenet100")}
    assert tau == {"cifar10": 0.1, "stl10": 0.2, "imagenet100": 0.07}
    for data in ("cifar10", "stl10", "imagenet100"):
        assert RECIPES[f"{data}-moco-logo"].strategy.lam == 5e-4
        assert RECIPES[f"{data}-simsiam-logo"].strategy.lam == 1e-4
    assert all(r.epochs == 200 and r.optimiser.weight_decay == 1e-4 for r in RECIPES.values() if r.paper)


def test_every_row_of_the_recognition_tables_has_one_recipe():
    rows = [(row.table, row.row) for recipe in RECIPES.values() for row in recipe.paper]
    assert len(rows) == len(set(rows))
    assert {table: sum(t == table for t, _ in rows) for table in (1, 2, 3, 4, 7)} == {1: 4, 2: 4, 3: 4, 4: 4, 7: 12}


@pytest.mark.parametrize("family", ["cifar10", "cifar10-tuned"])
def test_rows_of_a_table_differ_in_framework_and_strategy_alone(family):
    for framework, kind in (("moco", MoCoConfig), ("simsiam", SimSiamConfig)):
        base, without_l2l, full = (RECIPES[f"{family}-{framework}{s}"] for s in ("", "-multicrop", "-logo"))
        assert isinstance(full.framework, kind)
        assert [type(r.strategy) for r in (base, without_l2l, full)] == [TwoViewConfig, MultiCropConfig, LoGoConfig]
        same = {"name": "", "strategy": TwoViewConfig(), "crops": CropPlan(), "paper": ()}
        assert replace(base, **same) == replace(without_l2l, **same) == replace(full, **same)
        assert without_l2l.crops == full.crops


def test_tuned_rows_ask_both_ways_and_stand_for_no_row_of_the_paper_themselves():
    ours = [recipe for name, recipe in RECIPES.items() if "tuned" in name]
    assert len(ours) == 6
    assert all(recipe.paper == () and recipe.strategy.pairs == "mean" for recipe in ours)
    assert {tuned(recipe).name for recipe in RECIPES.values() if tuned(recipe)} == {recipe.name for recipe in ours}


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(UserError, match=r"'tinny'.*Did you mean tiny\?"):
        find_recipe("tinny")


def test_fields_can_be_changed_by_name_at_any_depth():
    changed = find_recipe("tiny").changed(epochs=3, strategy__lam=0.5)
    assert (changed.epochs, changed.strategy.lam, changed.strategy.depth) == (3, 0.5, 5)
    with pytest.raises(UserError, match=r"no field 'epoch'.*Did you mean epochs\?"):
        find_recipe("tiny").changed(epoch=3)
    with pytest.raises(UserError, match="LoGoConfig has no field 'lambda'"):
        find_recipe("tiny").changed(strategy__lambda=3)
    with pytest.raises(UserError, match=r"^Strategy two-view has no lam; strategy logo has\.$"):
        find_recipe("tiny").changed(strategy="two-view", strategy__lam=0.3)


def test_parts_are_swapped_by_name_or_with_their_settings_before_their_fields_in_any_order():
    named = TINY.changed(framework__layers=2, framework="simsiam")
    assert named == TINY.changed(framework=SimSiamConfig(layers=2))
    check(named)
    for two_view in ("two-view", TwoViewConfig()):
        recipe = TINY.changed(strategy__pairs="symmetric", strategy=two_view)
        assert recipe == replace(TINY, strategy=TwoViewConfig("symmetric"), crops=replace(TINY.crops, n_local=0))
        check(recipe)
    assert TINY.changed(crops__n_local=4, strategy="multi-crop").crops.n_local == 4


def test_an_unknown_field_in_a_recipe_file_names_the_nearest():
    text = find_recipe("tiny").to_json().replace('"epochs"', '"epoch"')
    with pytest.raises(UserError, match=r"'epoch'.*Did you mean epochs"):
        Recipe.from_json(text)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"batch_size": 1}, "batch of 1 has no other image"),
        ({"epochs": 0}, "^epochs is 0; use 1 or more"),
        ({"seed": -1}, "seed is -1"),
        ({"optimiser": OptimiserConfig(lr=0.0)}, "lr is 0.0"),
        ({"optimiser": OptimiserConfig(momentum=1.0)}, "momentum is 1.0"),
        ({"optimiser": OptimiserConfig(eta_min=1.0)}, "eta-min is 1.0"),
        ({"optimiser": OptimiserConfig(warmup_epochs=-1)}, "warmup-epochs is -1"),
        ({"crops": CropPlan(n_global=1)}, "1 global crops make no pair"),
        ({"crops": CropPlan(n_local=1)}, "crops.n-local is 1; strategy logo wants 2 or more"),
        ({"crops": CropPlan(n_local=31)}, "more than make sense"),
        ({"crops": CropPlan(local_size=4)}, "too small to see"),
        ({"crops": CropPlan(global_scale=(0.5, 1.5))}, "global-scale is 0.5 1.5"),
        ({"crops": CropPlan(local_scale=(0.4, 0.1))}, "local-scale is 0.4 0.1"),
        ({"crops": CropPlan(ratio=(0.0, 1.0))}, "ratio is 0.0 1.0"),
        ({"crops": CropPlan(grey_p=1.5)}, "grey-p is 1.5"),
        ({"crops": CropPlan(jitter=(0.4, 0.4, 0.4, 0.6))}, "hue <= 0.5"),
        ({"strategy": TwoViewConfig()}, "n-local is 2; strategy two-view leaves local crops unused: use 0"),
        ({"strategy": LoGoConfig(lam=-1.0)}, "lam is -1.0"),
        ({"strategy": LoGoConfig(depth=0)}, "depth is 0; use a positive number"),
        (
            {"strategy": MultiCropConfig(), "crops": CropPlan(n_local=0)},
            "n-local is 0; strategy multi-crop wants 1 or more",
        ),
        ({"framework": MoCoConfig(tau=0.0)}, "tau is 0.0"),
        ({"framework": MoCoConfig(m=1.5)}, "m is 1.5"),
        ({"framework": MoCoConfig(queue=0)}, "queue is 0"),
    ],
)
def test_a_value_that_cannot_work_is_named_with_its_cure(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        check(replace(TINY, **{"epochs": 20} | changes))


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("epochs", 2.5, "epochs is 2.5, which cannot be; give something like 20"),
        ("epochs", "many", "epochs is 'many', which cannot be"),
        (
            "batch_size",
            "64",
            "batch_size is '64', which cannot be, as it is text; give something like .*, without quotes",
        ),
        ("batch_size", True, "batch_size is True, which cannot be"),
        ("backbone", 3, "backbone is 3, which cannot be; give something like 'tiny'"),
        ("optimiser__lr", "x", "lr is 'x', which cannot be"),
        ("framework", "byl", "No framework is called 'byl'; choose moco, .*, supervised. Did you mean byol"),
        ("strategy", "two_view", "No strategy is called 'two_view'; choose .* Did you mean two-view"),
        ("framework", 3, "framework is 3, which cannot be; choose moco, simsiam"),
        ("strategy", SimSiamConfig(), r"strategy is SimSiamConfig\(.*, which cannot be; choose two-view"),
        ("epochs", CropPlan(), "epochs is CropPlan"),
        ("crops", OptimiserConfig(), "crops is OptimiserConfig"),
        ("stem", "cifr", "stem is 'cifr'; choose .* Did you mean cifar"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_at_once(field, value, sentence):
    with pytest.raises(UserError, match=sentence):
        find_recipe("tiny").changed(**{field: value})


def test_numbers_of_numpy_lists_and_paths_are_taken_as_python_has_them():
    changes = {"epochs": np.int64(3), "optimiser__lr": np.float64(0.5), "data": Path("photos")}
    scales = {"crops__local_scale": [np.float64(0.25), 0.5], "crops__global_scale": np.array([0.5, 1.0])}
    recipe = find_recipe("tiny").changed(**changes, **scales)
    assert (recipe.epochs, recipe.optimiser.lr, recipe.data) == (3, 0.5, "photos")
    assert (recipe.crops.local_scale, recipe.crops.global_scale) == ((0.25, 0.5), (0.5, 1.0))
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_a_run_that_goes_on_takes_what_may_change_and_nothing_else():
    saved = find_recipe("imagenet100-moco-logo")
    asked = saved.changed(loading__workers=1, loading__max_side=64, log_every=7, device="cpu", optimiser__lr=9.0)
    assert with_harmless(saved, asked) == saved.changed(loading__workers=1, log_every=7, device="cpu")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cifar10-best", "Our highest kNN on CIFAR-10 (docs/results/cifar10.md): MoCo with all pairs of six l"),
        (
            "cifar10-moco-logo",
            "The paper's rows MoCo+LoGo of Table 1 and MoCo-LoGo full, CIFAR10 of Table 7, with the p",
        ),
        (
            "cifar10-tuned-moco",
            "The paper's row MoCo of Table 1, with settings of our choice (docs/decisions/0025). mo",
        ),
        (
            "imagenette-moco",
            "For photographs of about 128 px (docs/results/imagenette.md). moco with strategy two-view on",
        ),
        ("cifar10-byol", "The paper's settings with a framework that it does not try. byol with strategy two-view on"),
        ("cifar10-supervised", "Learns from labels, to compare with what is learned without any. supervised with"),
    ],
)
def test_a_recipe_says_what_it_is_for(name, told, monkeypatch):
    assert all(described(recipe).count(". ") >= 1 for recipe in RECIPES.values())  # a purpose, then its settings
    assert described(RECIPES[name]).startswith(told)
    for own in ("mine", "my-tuned-one"):  # in the book, with no purpose that we know
        monkeypatch.setitem(RECIPES, own, replace(RECIPES["cifar10-byol"], name=own))
        assert described(RECIPES[own]).startswith("byol with strategy two-view on cifar10")
    swapped = described(RECIPES[name].changed(framework="simclr"))
    assert swapped.startswith("simclr with strategy")  # which is no row of the paper
