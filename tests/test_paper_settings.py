"""Does docs/paper-settings.md tell what the recipes have?"""

from pathlib import Path

import pytest

from logo_ssl.recipes import find_recipe

TEXT = (Path(__file__).parents[1] / "docs" / "paper-settings.md").read_text()
CIFAR10, OTHERS = (
    [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| `")]
    for part in TEXT.split("\n## ")[1:]
)


def value(recipe, field):
    """A field as the page shows it."""
    found = find_recipe(recipe)
    for part in field.strip("`").split("."):
        found = getattr(found, part)
    if isinstance(found, bool):
        return "yes" if found else "no"
    return " ".join(map(str, found)) if isinstance(found, tuple) else f"{found}"


@pytest.mark.parametrize("row", CIFAR10, ids=lambda row: row[0])
@pytest.mark.parametrize("framework", ["moco", "simsiam"])
def test_on_cifar10_every_value_is_the_recipes(row, framework):
    field, moco, simsiam, _ = row
    told = moco if framework == "moco" else simsiam
    if told:
        assert value(f"cifar10-{framework}-logo", field) == told


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row[0])
@pytest.mark.parametrize("place", [0, 1], ids=["stl10", "imagenet100"])
def test_on_other_data_every_value_is_the_recipes(row, place):
    field, *told, _ = row
    data = ("stl10", "imagenet100")[place]
    for framework, shown in zip(("moco", "simsiam"), told[place].split(", "), strict=True):
        if shown != "-":
            assert value(f"{data}-{framework}-logo", field) == shown
    shown_of_cifar10 = next(cells[1:3] for cells in CIFAR10 if cells[0] == field)
    assert [told[0].split(", "), told[1].split(", ")] != [shown_of_cifar10, shown_of_cifar10]  # else it need not stand
