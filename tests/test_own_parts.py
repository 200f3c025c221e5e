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
from logo_ssl.recipes import RECIPES, Recipe, check, find_recipe
from logo_ssl.strategies import LoGoConfig
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
