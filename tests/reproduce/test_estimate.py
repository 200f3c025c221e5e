"""How long a table takes: by which passes, how well that does, and how it is told."""

from dataclasses import replace

import pytest

from logo_ssl.recipes import RECIPES, find_recipe
from logo_ssl.reproduce.estimate import _benched, _benchmarks, _cost, _network

PIXELS = 32**2


@pytest.mark.parametrize(
    ("recipe", "pairs", "units"),
    [
        ("cifar10-moco", "paper", 3 + 1),
        ("cifar10-moco", "mean", 2 * 3 + 2),
        ("cifar10-moco-logo", "mean", 4 * 3 + 2),
        ("cifar10-moco-logo", "paper", 3 * 3 + 2),
        ("cifar10-simsiam", "paper", 2 * 3),
        ("cifar10-simsiam-logo", "mean", 4 * 3),
    ],
)
def test_a_step_costs_what_passes_forward_and_thrice_what_comes_back(recipe, pairs, units):
    recipe = find_recipe(recipe)
    assert _cost(replace(recipe, strategy=replace(recipe.strategy, pairs=pairs))) == units * PIXELS


def test_a_measured_row_is_predicted_from_the_others_of_its_network():
    """How well it does: within 4 % for SimSiam and 12 % for MoCo, where pixels alone are wrong by a factor of 1.6.

    Four rows, two of a network: all that was measured, at one batch and crop size. Each is predicted from its like.
    """
    errors = {}
    for bench in _benchmarks():
        recipe = RECIPES[bench["recipe"]]
        others = [line for line in _benchmarks() if line["recipe"] != recipe.name]
        if any(_network(RECIPES[line["recipe"]]) == _network(recipe) for line in others):
            predicted = _benched(recipe, others)
            errors[recipe.name] = 100 * (predicted.images_per_s / bench["images_per_s"]["whole_step"] - 1)
    assert errors == pytest.approx(
        {"cifar10-simsiam-logo": 3.6, "cifar10-moco-logo": -10.8, "cifar10-simsiam": -3.5, "cifar10-moco": 12.1},
        abs=0.1,
    )
