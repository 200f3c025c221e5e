"""Which recipe does a run folder hold, and may a run go on with another one?"""

import json
from typing import Any

from ..errors import UserError
from ..run import Run
from .checks import check
from .recipe import Recipe

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
    "loggers",
)
"""What may change between two sittings of a run: none of it decides what the next step learns (epochs: how slowly)."""


def read_recipe(run: Run) -> Recipe:
    """The recipe of a run folder, checked."""
    try:
        recipe = Recipe.from_json(run.recipe_file.read_text())
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{run.recipe_file} is not a whole recipe ({error!r}); start again in another --out."
        ) from error
    check(recipe)
    return recipe


def differences(before: Recipe, after: Recipe) -> dict[str, tuple[Any, Any]]:
    """The fields in which two recipes differ, inner ones with a dot, and both values."""
    one, other = (_flat(json.loads(recipe.to_json())) for recipe in (before, after))
    ignored = ("name", "paper", "init")  # names and where weights once came from
    return {
        field: (one.get(field), other.get(field))
        for field in [*one, *(field for field in other if field not in one)]
        if one.get(field) != other.get(field) and field.split(".")[0] not in ignored
    }


def refuse_harmful(changes: dict[str, tuple[Any, Any]]) -> None:
    """Refuse changes after which the run would be neither the old one nor the new one."""
    harmful = [
        f"{field.replace('_', '-')} ({before} -> {after})"
        for field, (before, after) in changes.items()
        if field.split(".")[0] not in HARMLESS
    ]
    if harmful:
        raise UserError(
            f"A run cannot change {', '.join(harmful)} on its way; start another with `logo-ssl pretrain` and its own "
            "--out."
        )


def _flat(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
