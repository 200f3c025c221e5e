"""Does docs/paper-settings.md tell what the recipes have, and all of it that matters?"""

from pathlib import Path

import pytest

from logo_ssl.recipes import find_recipe, flat, is_harmless

TEXT = (Path(__file__).parents[1] / "docs" / "paper-settings.md").read_text()
CIFAR10, OTHERS = (
    {
        cells[0].strip("` "): [cell.strip() for cell in cells[1:-1]]
        for cells in (line.strip("|").split("|") for line in part.splitlines() if line.startswith("| `"))
    }
    for part in TEXT.split("\n## ")[1:]
)
FRAMEWORKS, DATA = ("moco", "simsiam"), ("stl10", "imagenet100")
OF_COURSE = {
    "name",
    "paper",
    "chosen",
    "replans",
    "data",
    "init",
    "init_key",
    "framework.kind",
    "strategy.kind",
    "loading.max_side",
    *(f"optimiser.{name}" for name in ("frozen_epochs", "backbone_lr", "pull")),  # about `init`
}
"""What makes a row that row, or has nothing to do with the paper; nor does AugSelf."""


def matters(field):
    """Whether a field decides what comes out, not only where, how fast and how closely watched a run is."""
    return field == "epochs" or (field != "seed" and not is_harmless(field))


def settings(recipe):
    """Every field that matters, as the page shows it."""
    found = {name: value for name, value in flat(find_recipe(recipe)).items() if matters(name)}
    shown = {
        bool: lambda value: "yes" if value else "no",
        list: lambda value: " ".join(str(round(number, 4)) for number in value),
    }
    return {
        name: shown.get(type(value), str)(value)
        for name, value in found.items()
        if name not in OF_COURSE and not name.startswith("augself.")
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_on_cifar10_every_setting_is_told_as_the_recipe_has_it(framework):
    told = {name: values[FRAMEWORKS.index(framework)] for name, values in CIFAR10.items()}
    assert {name: value for name, value in told.items() if value} == settings(f"cifar10-{framework}-logo")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("data", DATA)
def test_on_other_data_all_that_differs_is_told_as_the_recipe_has_it(data, framework):
    told = {name: values[DATA.index(data)].split(", ")[FRAMEWORKS.index(framework)] for name, values in OTHERS.items()}
    told = {name: value for name, value in told.items() if value != "-"}
    on_cifar10, here = settings(f"cifar10-{framework}-logo"), settings(f"{data}-{framework}-logo")
    assert {name for name in here if here[name] != on_cifar10[name]} <= told.keys()
    assert told.items() <= here.items()
