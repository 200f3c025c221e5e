"""The recipe of a run folder, and what may change when a run goes on."""

import json
from dataclasses import replace
from typing import Any

from ..errors import UserError
from ..files import read_json
from ..run import Run
from .config import Recipe, check

Differences = dict[str, tuple[Any, Any]]

HARMLESS = (
    "data",  # the images may have moved; that they are the same is checked elsewhere
    "epochs",
    "device",
    "devices",
    "nodes",
    "compile",
    "knn_every",
    "loading",
    "log_every",
    "checkpoint_every",
    "checkpoint_minutes",
    "checkpoint_keep",
    "on_collapse",
    "deterministic",
    "loggers",
)
"""What may change between two sessions of a run: none of it decides what the next step learns (epochs: how slowly)."""
BUT = ("loading.max_side",)
"""Inner fields of these that do: smaller photographs are other images."""
ALWAYS_WRITTEN = ("name", "data", "epochs", "batch_size", "seed", "framework", "strategy", "crops")


def read_recipe(run: Run) -> Recipe:
    """The recipe of a run folder, checked."""
    try:
        recipe = Recipe.from_json(run.recipe_file.read_text())
        check(recipe)
    except UserError as error:
        raise UserError(f"{run.recipe_file}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{run.recipe_file}: is not a whole recipe ({error!r}).") from error
    return recipe


def recipe_as_written(run: Run) -> dict[str, Any]:
    """The recipe of a run folder by its fields, for those who need no part of it: one's own may be unknown here."""
    record = read_json(run.recipe_file)
    for field in ALWAYS_WRITTEN:
        if field not in record:
            raise UserError(f"{run.recipe_file}: is not a whole recipe (it has no {field}).")
    return record


def flat(recipe: Recipe) -> dict[str, Any]:
    """Every field by its full name, values as JSON has them."""

    def walk(part: dict[str, Any], prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in part.items():
            found |= walk(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
        return found

    return walk(json.loads(recipe.to_json()), "")


def differences(before: Recipe, after: Recipe) -> Differences:
    """The fields in which two recipes differ, inner ones with a dot, and both values; names do not count."""
    one, other = flat(before), flat(after)
    return {
        field: (one.get(field), other.get(field))
        for field in dict.fromkeys([*one, *other])
        if one.get(field) != other.get(field) and field not in ("name", "paper", "chosen")
    }


def is_harmless(field: str) -> bool:
    """Whether a field, by its full name, may change between two sessions."""
    return field.split(".")[0] in HARMLESS and field not in BUT


def unused(recipe: Recipe) -> set[str]:
    """Fields, by their full names, that have no part in what a recipe learns: what they are about is not there."""
    fields = {"framework.dim"} if recipe.framework_traits.labelled else set()  # as many as there are classes
    return fields if recipe.crops.n_local else fields | {"crops.local_size", "crops.local_scale"}


def with_harmless(saved: Recipe, asked: Recipe) -> Recipe:
    """The recipe of a run with all that may change on its way as another recipe has it."""
    taken = replace(saved, **{name: getattr(asked, name) for name in HARMLESS})
    return taken.changed(**{field.replace(".", "__"): flat(saved)[field] for field in BUT})


def refuse_harmful(changes: Differences) -> None:
    """Refuse changes after which the run would be neither the old one nor the new one."""
    before, after = changes.get("epochs", (0, 0))
    if after < before:
        raise UserError(f"epochs={after}: must be {before} or more, as this run has.")
    for field, (before, after) in changes.items():
        if not is_harmless(field):
            raise UserError(f"{field}={after}: must be {before}, as this run has; start another with its own --out.")
