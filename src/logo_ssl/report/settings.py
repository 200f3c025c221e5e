"""How were the runs made? Every setting, those that differ, and the command that runs each again."""

from collections.abc import Sequence

from .markup import Html, folded, joined, table, tag
from .numbers import words
from .reading import Told

UNINTERESTING = ("name", "paper", "chosen")


def differences(runs: Sequence[Told]) -> Html:
    """The settings in which the runs differ, side by side."""
    fields = [f for f in dict.fromkeys(f for run in runs for f in run.recipe) if f not in UNINTERESTING]
    rows = []
    for field in fields:
        values = [words(run.recipe[field]) if field in run.recipe else "absent" for run in runs]
        if len(set(values)) > 1:
            rows.append((field, *values))
    if not rows:
        return tag("p", "Nothing differs: the recipes are the same.")
    return table("Settings that differ", ("setting", *(run.name for run in runs)), rows)


def recipes(runs: Sequence[Told]) -> Html:
    """Every setting and who made it, with the command that runs it again."""
    parts = []
    for run in runs:
        parts.append(tag("h3", run.name))
        if run.rerun:
            again = {"tabindex": "0", "data_key": f"{run.name}: run again"}
            parts += [tag("p", "To run it again:"), tag("pre", tag("code", run.rerun), **again)]
        made = {key: value for key, value in run.provenance.items() if not isinstance(value, dict)}
        made |= run.provenance.get("versions") or {}
        if made:
            rows = [(key, words(value)) for key, value in made.items()]
            told = f"{run.name}: who made it"
            parts.append(folded("Provenance", table(told, ("what", "value"), rows), told))
        rows = [(key, words(value)) for key, value in run.recipe.items() if key != "paper"]
        told = f"{run.name}: every setting"
        parts.append(folded("Recipe", table(told, ("setting", "value"), rows), told))
    return joined(parts)
