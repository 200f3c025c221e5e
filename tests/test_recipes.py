"""Recipes: the rows of the paper, changes by name, JSON, parts of one's own, and one table of values that cannot be."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import pytest

from logo_ssl.augment import CropPlan
from logo_ssl.cli import parse
from logo_ssl.errors import UserError
from logo_ssl.frameworks import FRAMEWORKS, MoCoConfig, SimSiamConfig
from logo_ssl.ranges import at_least
from logo_ssl.recipes import RECIPES, OptimiserConfig, Recipe, check, find_recipe, tuned
from logo_ssl.strategies import STRATEGIES, LoGoConfig, MultiCropConfig, TwoViewConfig

TINY = find_recipe("tiny")


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_sound_and_survives_json(name):
    recipe = RECIPES[name]
    check(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe


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


def test_fields_can_be_changed_by_name_at_any_depth():
    changed = TINY.changed(epochs=3, strategy__lam=0.5)
    assert (changed.epochs, changed.strategy.lam, changed.strategy.depth) == (3, 0.5, 5)


def test_parts_are_swapped_by_name_or_with_their_settings_before_their_fields_in_any_order():
    named = TINY.changed(framework__layers=2, framework="simsiam")
    assert named == TINY.changed(framework=SimSiamConfig(layers=2))
    check(named)
    for two_view in ("two-view", TwoViewConfig()):
        recipe = TINY.changed(strategy__pairs="symmetric", strategy=two_view)
        assert recipe == replace(TINY, strategy=TwoViewConfig("symmetric"), crops=replace(TINY.crops, n_local=0))
        check(recipe)
    assert TINY.changed(crops__n_local=4, strategy="multi-crop").crops.n_local == 4


def test_numbers_of_numpy_lists_and_paths_are_taken_as_python_has_them():
    changes = {"epochs": np.int64(3), "optimiser__lr": np.float64(0.5), "data": Path("photos")}
    scales = {"crops__local_scale": [np.float64(0.25), 0.5], "crops__global_scale": np.array([0.5, 1.0])}
    recipe = TINY.changed(**changes, **scales)
    assert (recipe.epochs, recipe.optimiser.lr, recipe.data) == (3, 0.5, "photos")
    assert (recipe.crops.local_scale, recipe.crops.global_scale) == ((0.25, 0.5), (0.5, 1.0))
    assert Recipe.from_json(recipe.to_json()) == recipe


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"epochs": 0}, "epochs"),
        ({"epochs": 2.5}, "epochs"),
        ({"epochs": "many"}, "epochs"),
        ({"epochs": CropPlan()}, "epochs"),
        ({"epoch": 3}, "Did you mean epochs"),
        ({"batch_size": 1}, "batch_size"),
        ({"batch_size": "64"}, "batch_size"),
        ({"seed": -1}, "seed"),
        ({"backbone": 3}, "backbone"),
        ({"backbone": "resnet81"}, "Did you mean resnet18"),
        ({"stem": "cifr"}, "Did you mean cifar"),
        ({"stem": "cifar", "backbone": "timm/resnet18"}, "stem"),
        ({"devices": 0}, "devices"),
        ({"loading__max_bad": 2.0}, "loading.max_bad"),
        ({"loading__workers": -3}, "loading.workers"),
        ({"optimiser__lr": "x"}, "optimiser.lr"),
        ({"optimiser__lr": 0.0}, "optimiser.lr"),
        ({"optimiser__lr": float("nan")}, "optimiser.lr"),
        ({"optimiser__momentum": 1.0}, "optimiser.momentum"),
        ({"optimiser__eta_min": 1.0}, "optimiser.eta_min"),
        ({"optimiser__warmup_epochs": -1}, "optimiser.warmup_epochs"),
        ({"crops": OptimiserConfig()}, "crops"),
        ({"crops__n_global": 1}, "crops.n_global"),
        ({"crops__n_local": 1}, "crops.n_local"),
        ({"crops__n_local": 31}, "crops.n_local"),
        ({"crops__local_size": 4}, "crops.local_size"),
        ({"crops__global_scale": (0.5, 1.5)}, "crops.global_scale"),
        ({"crops__local_scale": (0.4, 0.1)}, "crops.local_scale"),
        ({"crops__ratio": (0.0, 1.0)}, "crops.ratio"),
        ({"crops__ratio": (1.0,)}, "crops.ratio"),
        ({"crops__grey_p": 1.5}, "crops.grey_p"),
        ({"crops__jitter": (0.4, 0.4, 0.4, 0.6)}, "crops.jitter"),
        ({"strategy": "two_view"}, "Did you mean two-view"),
        ({"strategy": SimSiamConfig()}, "strategy"),
        ({"strategy": "two-view", "crops__n_local": 2}, "crops.n_local"),
        ({"strategy": MultiCropConfig(), "crops__n_local": 0}, "crops.n_local"),
        ({"strategy__lambda": 3}, "strategy.lambda"),
        ({"strategy__lam": -1.0}, "strategy.lam"),
        ({"strategy__depth": 0}, "strategy.depth"),
        ({"framework": "byl"}, "Did you mean byol"),
        ({"framework": 3}, "framework"),
        ({"framework__tau": 0.0}, "framework.tau"),
        ({"framework__m": 1.5}, "framework.m"),
        ({"framework__queue": 0}, "framework.queue"),
        ({"framework": "simsiam", "framework__tau": 0.3}, "framework.tau"),
        ({"augself__crop": 0.5}, "crops.n_global|augself"),
    ],
)
def test_a_value_that_cannot_be_is_named(changes, named):
    recipe = TINY.changed(strategy__pairs="paper") if "augself__crop" in changes else TINY
    with pytest.raises(UserError, match=named):
        check(recipe.changed(**changes))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("epoch",), 3, "epoch:.*Did you mean epochs"),
        (("crops", "sizes"), 3, "crops.sizes"),
        (("crops",), 3, "crops"),
        (("framework", "kind"), "mine", "framework='mine'"),
        (("paper",), [{"table": "one", "row": "a"}], "table"),
        (("loggers",), ["paper"], "loggers"),
    ],
)
def test_a_recipe_file_with_another_value_is_refused(path, value, named):
    record = json.loads(TINY.to_json())
    part = record
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(UserError, match=named):
        Recipe.from_json(json.dumps(record))


@dataclass(frozen=True)
class MineConfig(MoCoConfig):
    """A framework of somebody's own, made from one of ours."""

    mine: int = 3


@dataclass(frozen=True)
class ThreeCropsConfig(LoGoConfig):
    """A strategy of somebody's own that needs three local crops."""

    least_local: ClassVar[int] = 3


def test_a_part_made_from_one_of_ours_stays_itself_in_json(monkeypatch):
    monkeypatch.setitem(FRAMEWORKS, "mine", MineConfig)
    monkeypatch.setitem(STRATEGIES, "three", ThreeCropsConfig)
    recipe = TINY.changed(framework=MineConfig(mine=5), strategy=ThreeCropsConfig(lam=0.5), crops__n_local=3)
    check(recipe)
    again = Recipe.from_json(recipe.to_json())
    assert (type(again.framework), type(again.strategy)) == (MineConfig, ThreeCropsConfig)
    assert again == recipe
    with pytest.raises(UserError, match="n_local=2: strategy three"):
        check(recipe.changed(crops__n_local=2))
    with pytest.raises(UserError, match=r"strategy\.lam"):
        check(recipe.changed(strategy__lam=-1.0))


@dataclass(frozen=True)
class OtherMeaningConfig(LoGoConfig):
    """A strategy of somebody's own whose fields have names of ours, and ranges of their own."""

    lam: float = -1.0
    lr: Annotated[float, at_least(3)] = 4.0


def test_the_range_of_a_field_belongs_to_the_config_that_has_it(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "other", OtherMeaningConfig)
    recipe = TINY.changed(strategy="other")
    check(recipe)
    with pytest.raises(UserError, match=r"strategy\.lr=2\.0"):
        check(recipe.changed(strategy__lr=2.0))


@pytest.mark.parametrize(("part", "config"), [("framework", MineConfig()), ("strategy", ThreeCropsConfig())])
def test_a_part_that_is_not_registered_is_refused_before_anything_is_trained(part, config):
    for tried in (check, Recipe.to_json):
        with pytest.raises(UserError, match=rf"^{part}={type(config).__name__}\("):
            tried(replace(TINY, **{part: config}))


KEPT = {"tuples": (tuple[tuple[int, float], ...], ((1, 2.0), (3, 4.0))), "some": (int | None, None)}
KEPT |= {"choice": (Literal["a", 2], 2), "switch": (bool, True), "any tuple": (tuple, (1, "a"))}
KEPT |= {"list": (list[int], [1, 2]), "dict": (dict[str, int], {"a": 1})}


@pytest.mark.parametrize(("hint", "value"), KEPT.values(), ids=KEPT)
def test_a_field_of_ones_own_comes_back_from_json(hint, value, monkeypatch):
    @dataclass(frozen=True)
    class OwnConfig(MoCoConfig):
        extra: hint = field(default_factory=lambda: value)

    monkeypatch.setitem(FRAMEWORKS, "own", OwnConfig)
    recipe = TINY.changed(framework="own")
    check(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_a_recipe_is_written_in_yaml_or_json_over_another_or_the_defaults(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "recipe: tiny\nepochs: 3\ncompile: off\nloggers: []\nframework: {kind: simsiam, layers: 2}\n"
        "strategy.lam: 1e-2\noptimiser:\n  lr: 3e-2\ncrops: {global_scale: [0.3, 1.0]}\ndeterministic: True\n"
    )
    expected = TINY.changed(
        framework="simsiam", framework__layers=2, epochs=3, compile="off", loggers=(), strategy__lam=0.01,
        optimiser__lr=0.03, crops__global_scale=(0.3, 1.0), deterministic=True,
    )  # fmt: skip
    assert find_recipe(str(mine)) == replace(expected, name="mine")
    assert parse(["pretrain", str(mine), "--epochs", "5"]).checked() == replace(expected, name="mine", epochs=5)
    mine.with_suffix(".json").write_text(expected.to_json())
    assert find_recipe(str(mine.with_suffix(".json"))) == replace(expected, name="mine")
    mine.write_text("batch_size: 64")
    assert find_recipe(str(mine)) == Recipe("mine", batch_size=64)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("epoch: 3", "Did you mean epochs"),
        ("recipe: tinny", "Did you mean tiny"),
        ("optimiser: {lr: fast}", "optimiser.lr='fast'"),
        ("framework: {kind: simsiam, tau: 0.3}", "framework.tau"),
        ("optimiser: 3", "optimiser"),
        ("- 3", "fields"),
        ("", "fields"),
        ("a: [", "cannot be read"),
        ("!!python/object/apply:os.system [false]", "fields"),
    ],
)
def test_a_file_that_holds_no_recipe_is_named(tmp_path, text, named):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=named) as refused:
        find_recipe(str(tmp_path / "mine.yaml"))
    assert "mine.yaml" in str(refused.value)


def test_a_recipe_that_kept_encoded_images_is_read():
    text = find_recipe("tiny").to_json()
    assert Recipe.from_json(text.replace('"placement": "auto"', '"placement": "encoded"')).to_json() == text
