"""What do frameworks say of themselves, and what is taken for granted where they say nothing?"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar, get_origin, get_type_hints

import pytest

from logo_ssl.frameworks import FRAMEWORKS, FrameworkTraits, MoCoConfig, SimSiamConfig, SupervisedConfig
from logo_ssl.recipes import check, find_recipe, summary
from logo_ssl.train.monitors import diagnose


@dataclass(frozen=True)
class SilentConfig:
    """A framework of somebody's own, which declares nothing and inherits nothing."""

    dim: int = 8

    def build(self, backbone, n_features):
        return NotImplemented


@dataclass(frozen=True)
class ToldConfig(SilentConfig):
    """The same, with what it says of itself: in a ClassVar, a field and a property."""

    least_global: ClassVar[int] = 1
    queue: int = 4

    @property
    def splits(self):
        return 3


def test_a_framework_that_declares_nothing_is_taken_as_usual(monkeypatch):
    monkeypatch.setitem(FRAMEWORKS, "silent", SilentConfig)
    recipe = replace(find_recipe("tiny"), batch_size=64)
    object.__setattr__(recipe, "framework", SilentConfig())  # while tests run, a recipe is made of our own only
    check(recipe)
    assert recipe.framework_traits == FrameworkTraits()
    assert '"framework": {\n    "kind": "silent",\n    "dim": 8\n  }' in recipe.to_json()
    assert "queue" not in summary(recipe)
    assert diagnose(recipe).startswith("A lower optimiser.lr")


def test_a_framework_says_what_it_is_by_a_field_a_property_or_a_class_variable():
    told = FrameworkTraits(least_global=1, queue=6, splits=3)
    assert FrameworkTraits.of(ToldConfig(queue=6)) == told
    assert FrameworkTraits.of(MoCoConfig(queue=6, splits=2)) == FrameworkTraits(queue=6, splits=2)
    assert not FrameworkTraits.of(SimSiamConfig(constant_lr=False)).constant_lr
    assert FrameworkTraits.of(SupervisedConfig()) == FrameworkTraits(labelled=True, least_global=1)


@pytest.mark.parametrize("config", FRAMEWORKS.values())
def test_what_a_framework_declares_is_asked_for_and_is_no_setting(config):
    declared = {name for name, hint in get_type_hints(config).items() if get_origin(hint) is ClassVar}
    assert declared <= set(FrameworkTraits._fields)
    assert not declared & {field.name for field in fields(config)}
