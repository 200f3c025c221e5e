"""Is a part of somebody's own refused, before anything is trained, where a run folder could not keep or name it?"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from logo_ssl.augment import CropPlan
from logo_ssl.errors import UserError
from logo_ssl.frameworks import FRAMEWORKS, MoCoConfig, SimSiamConfig
from logo_ssl.frameworks.moco import MoCo
from logo_ssl.recipes import RECIPES, Recipe, check, find_recipe
from logo_ssl.strategies import STRATEGIES, LoGoConfig
from logo_ssl.train import pretrain

TINY = find_recipe("tiny")


def with_values(thing, **values):
    """A copy with other values: while tests run, neither wrong types nor parts that are not ours can be given."""
    thing = copy(thing)
    for name, value in values.items():
        object.__setattr__(thing, name, value)
    return thing


def config(hint, value):
    """The class of a config with one more field."""

    @dataclass(frozen=True)
    class MineConfig(MoCoConfig):
        extra: hint = field(default_factory=lambda: value)

    return MineConfig


@dataclass(frozen=True)
class Inner:
    depth: int = 3


UNKEPT = {"list": (list[int], [1]), "dict": (dict[str, int], {"a": 1}), "dataclass": (Inner, Inner())}
UNKEPT |= {"function": (Callable[[], int], int), "path": (Path, Path("x")), "Path or None": (Path | None, None)}
UNKEPT |= {"tuple of lists": (tuple[list[int], ...], ([1],))}


@pytest.mark.parametrize(("hint", "value"), UNKEPT.values(), ids=UNKEPT)
def test_a_field_that_a_run_folder_cannot_keep_is_refused(hint, value, monkeypatch, tmp_path):
    mine = config(hint, value)
    monkeypatch.setitem(FRAMEWORKS, "mine", mine)
    sentence = r"^framework\.extra is of type .*, which recipe\.json cannot keep; use bool, int, float, str, Literal, "
    for given in ("mine", mine()):
        with pytest.raises(UserError, match=sentence):
            TINY.changed(framework=given)
    with pytest.raises(UserError, match=sentence):
        pretrain(with_values(TINY, framework=mine()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


KEPT = {"tuples": (tuple[tuple[int, float], ...], ((1, 2.0), (3, 4.0))), "some": (int | None, None)}
KEPT |= {"choice": (Literal["a", 2], 2), "switch": (bool, True), "any tuple": (tuple, (1, "a"))}


@pytest.mark.parametrize(("hint", "value"), KEPT.values(), ids=KEPT)
def test_a_field_that_a_run_folder_can_keep_comes_back(hint, value, monkeypatch):
    monkeypatch.setitem(FRAMEWORKS, "mine", config(hint, value))
    recipe = TINY.changed(framework="mine")
    check(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_a_config_that_its_fields_alone_do_not_make_is_refused(monkeypatch):
    @dataclass(frozen=True)
    class MineConfig(MoCoConfig):
        half: int = field(init=False, default=3)

    monkeypatch.setitem(FRAMEWORKS, "mine", MineConfig)
    with pytest.raises(UserError, match=r"^MineConfig cannot be read back from recipe\.json \(.*'half'"):
        TINY.changed(framework="mine")
    monkeypatch.setitem(FRAMEWORKS, "mine", config(tuple, (Path("x"),)))
    with pytest.raises(UserError, match=r"^MineConfig cannot be read back from recipe\.json \(.*Path"):
        TINY.changed(framework="mine")


def test_a_list_in_a_tuple_which_would_come_back_as_a_tuple_is_refused(monkeypatch):
    monkeypatch.setitem(FRAMEWORKS, "mine", config(tuple, (1, (2, [3]))))
    with pytest.raises(UserError, match=r"cannot be read back from recipe\.json .other values come back"):
        TINY.changed(framework="mine")


def test_a_type_that_only_type_checkers_know_is_told(monkeypatch):
    @dataclass(frozen=True)
    class MineConfig(MoCoConfig):
        other: "Nowhere" = None  # noqa: F821

    monkeypatch.setitem(FRAMEWORKS, "mine", MineConfig)
    with pytest.raises(UserError, match=r"^A type of MineConfig is not known while it runs .*'Nowhere'"):
        TINY.changed(framework="mine")


def test_a_field_that_takes_the_place_of_the_name_is_refused(monkeypatch):
    @dataclass(frozen=True)
    class MineConfig(MoCoConfig):
        kind: str = "x"

    monkeypatch.setitem(FRAMEWORKS, "mine", MineConfig)
    with pytest.raises(UserError, match=r"^framework\.kind is what recipe\.json calls the framework, mine; give"):
        TINY.changed(framework="mine")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"knn_every": 1.5}, "knn_every is 1.5, which cannot be; give something of type int"),
        ({"batch_size": "64"}, "batch_size is '64', which cannot be; give something of type int"),
        ({"stem": "cifr"}, r"stem is 'cifr', .* of type Literal\['imagenet', 'cifar'\]"),
        ({"data": Path("photos")}, "data is .*, which cannot be; give something of type str"),
        ({"framework": with_values(MoCoConfig(), dim="64")}, "framework.dim is '64', .* of type int"),
        ({"strategy": with_values(LoGoConfig(), lam="a")}, "strategy.lam is 'a', .* of type float"),
        (
            {"crops": with_values(CropPlan(), ratio=(1.0,))},
            r"crops.ratio is \(1.0,\), .* tuple\[float, float\]",
        ),
        ({"crops": 3}, "crops is 3, .* of type CropPlan"),
    ],
)
def test_a_value_of_a_wrong_type_is_named_before_anything_else(values, sentence, monkeypatch, tmp_path, shell):
    wrong = with_values(TINY, **values, name="wrong")
    for tried in (check, lambda recipe: pretrain(recipe, tmp_path / "run")):
        with pytest.raises(UserError, match=f"^{sentence}"):
            tried(wrong)
    assert not (tmp_path / "run").exists()
    monkeypatch.setitem(RECIPES, "wrong", wrong)
    with pytest.raises(UserError, match=f"^{sentence}"):
        find_recipe("wrong")
    code, _, told = shell("pretrain wrong --out run")
    assert (code, told.count("which cannot be")) == (2, 1)


def test_a_config_of_a_wrong_type_is_refused_where_it_is_given():
    with pytest.raises(UserError, match=r"^framework\.dim is 'a', which cannot be; give something of type int"):
        TINY.changed(framework=with_values(SimSiamConfig(), dim="a"))


class NoDataclass:
    """A config that cannot be written."""

    dim = 8

    def build(self, backbone, n_features):
        return NotImplemented


@pytest.mark.parametrize("value", [NoDataclass, MoCo, MoCoConfig(), None], ids=["class", "framework", "object", "none"])
def test_what_is_registered_is_the_dataclass_of_a_config(value, monkeypatch, shell):
    monkeypatch.setitem(FRAMEWORKS, "mine", value)
    sentence = r"FRAMEWORKS\['mine'\] is .*, which is no config; register the dataclass whose `build` makes"
    for tried in (check, Recipe.to_json, lambda recipe: recipe.changed(framework="mine")):
        with pytest.raises(UserError, match=f"^{sentence}"):
            tried(TINY)
    code, _, told = shell("pretrain tiny --framework mine")
    assert (code, told.count("which is no config")) == (2, 1)


def test_a_name_of_ours_and_a_class_of_two_names_are_refused(monkeypatch):
    mine = config(int, 3)
    monkeypatch.setitem(FRAMEWORKS, "moco", mine)
    with pytest.raises(UserError, match=r"^FRAMEWORKS\['moco'\] is MineConfig, and moco is one of ours; register it"):
        check(TINY)
    monkeypatch.setitem(FRAMEWORKS, "moco", MoCoConfig)
    for name in ("one", "other"):
        monkeypatch.setitem(FRAMEWORKS, name, mine)
    with pytest.raises(UserError, match=r"^FRAMEWORKS has MineConfig as one and as other, and recipe\.json could not"):
        TINY.changed(framework="one")


def test_a_recipe_is_found_under_the_name_that_it_has(monkeypatch):
    monkeypatch.setitem(RECIPES, "mine", TINY)
    with pytest.raises(UserError, match=r"^RECIPES\['mine'\] calls itself 'tiny', .*; give it the same name"):
        find_recipe("mine")


def test_a_config_lacks_nothing_that_is_asked_of_it(monkeypatch):
    @dataclass(frozen=True)
    class NeedyConfig(LoGoConfig):
        strength: float = field(kw_only=True)

    @dataclass(frozen=True)
    class EmptyConfig:
        t: float = 1.0

    monkeypatch.setitem(STRATEGIES, "needy", NeedyConfig)
    with pytest.raises(UserError, match=r"^NeedyConfig has no default for strength, .* strategy needy .* give it one"):
        TINY.changed(strategy="needy")
    check(TINY.changed(strategy=NeedyConfig(strength=2.0)))
    monkeypatch.setitem(FRAMEWORKS, "empty", EmptyConfig)
    with pytest.raises(UserError, match=r"^EmptyConfig of framework empty has no build; give it a method `build\("):
        TINY.changed(framework="empty")
    monkeypatch.setattr(EmptyConfig, "build", NoDataclass.build, raising=False)
    with pytest.raises(UserError, match=r"^EmptyConfig of framework empty has no dim; give it a field `dim`, the"):
        TINY.changed(framework="empty")
