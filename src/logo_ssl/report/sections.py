"""What stands on the page? Each section as HTML, from runs as they are told."""

from collections.abc import Iterator, Sequence
from typing import Any

from .markup import Html, joined, picture, table, tag
from .plots import looks, plots
from .reading import Told

MOST_BAD = 50
UNINTERESTING = ("name", "paper")
HIDDEN = (
    "results",
    "protocol",
    "data_fingerprint",
    "about",
    "versions",
    "keys_not_in_checkpoint",
    "keys_without_place",
)


def headline(runs: Sequence[Told]) -> Html:
    """The numbers to take away, each with its protocol."""
    rows = []
    for run in runs:
        for protocol, value in _headlines(run):
            rows.append((run.name, value, protocol))
        if not run.provenance:
            rows.append((run.name, "not finished", "go on with logo-ssl resume"))
    return section("Headline", table("The numbers, and how they were measured", ("run", "figure", "protocol"), rows))


def chooser(runs: Sequence[Told]) -> Html:
    """A box for each run that shows and hides its curves."""
    boxes = []
    for i, run in enumerate(runs):
        box = Html(f'<input type="checkbox" data-run="{i}" checked>')
        swatch = tag("span", class_="swatch", style=f"background:{looks(i)['color']}", aria_hidden="true")
        boxes.append(tag("label", box, swatch, run.name))
    return tag("fieldset", tag("legend", "Runs shown in the curves"), *boxes, class_="runs")


def curves(runs: Sequence[Told], made: list[dict[str, Any]]) -> Html:
    """A place for each plot; the script fills it, and its label says how each curve ends."""
    if not made:
        return section("Curves", tag("p", "Nothing was logged yet."))
    figures = [
        tag(
            "figure",
            tag("figcaption", plot["title"]),
            tag("div", class_="plot", data_plot=i, role="img", aria_label=plot["summary"]),
        )
        for i, plot in enumerate(made)
    ]
    return section("Curves", chooser(runs), tag("div", *figures, class_="plots"))


def beside_the_paper(runs: Sequence[Told]) -> Html:
    """The paper's rows that the recipes stand for, beside what was measured."""
    rows = []
    for run in runs:
        knn = dict(_measured(run, "knn"))
        linear = dict(_measured(run, "linear"))
        for row in run.paper:
            said = f"Table {row.get('table')}: {row.get('row')}"
            departures = ", ".join(run.departures) or "none"
            rows.append(
                (
                    run.name,
                    said,
                    _number(row.get("knn")),
                    _lines(knn),
                    _number(row.get("linear")),
                    _lines(linear),
                    departures,
                )
            )
    if not rows:
        return Html("")
    head = ("run", "paper", "paper's kNN", "kNN here", "paper's linear", "linear here", "departs from the recipe in")
    return section("Beside the paper", table("Top-1 in percent; the paper names no k and no temperature", head, rows))


def evaluations(runs: Sequence[Told]) -> Html:
    """Every evaluation, whole."""
    parts = []
    for run in runs:
        for name, record in run.evaluations.items():
            parts.append(tag("h3", f"{run.name}: {name}"))
            parts.append(tag("p", f"{record.get('protocol', 'no protocol was saved')}. {_settings(record)}"))
            rows = _result_rows(record)
            if rows:
                head = list(dict.fromkeys(key for row in rows for key in row))
                cells = [[_words(row.get(key, "")) for key in head] for row in rows]
                parts.append(table(f"{run.name}: {name}", head, cells))
    if not parts:
        parts.append(tag("p", "Nothing was evaluated yet; logo-ssl eval does it."))
    return section("Evaluations", *parts)


def pictures(runs: Sequence[Told]) -> Html:
    """What the network sees, and what its measure says."""
    shown = [
        tag("figure", picture(content, f"{run.name}: {words}"), tag("figcaption", f"{run.name}: {words}"))
        for run in runs
        for words, content in run.figures()
    ]
    return section("Pictures", *shown) if shown else Html("")


def bad_images(runs: Sequence[Told]) -> Html:
    """Which images could not be read, and why; the first of them where they are many."""
    parts = []
    for run in runs:
        if found := run.bad_images:
            told = f"{run.name}: {len(found)} images could not be read"
            told += f"; the first {MOST_BAD}" if len(found) > MOST_BAD else ""
            parts.append(table(told, ("image", "reason"), found[:MOST_BAD]))
    return section("Bad images", *parts) if parts else Html("")


def differences(runs: Sequence[Told]) -> Html:
    """The settings in which the runs differ, side by side."""
    if len(runs) < 2:
        return Html("")
    fields = [f for f in dict.fromkeys(f for run in runs for f in run.recipe) if f not in UNINTERESTING]
    rows = []
    for field in fields:
        values = [_words(run.recipe[field]) if field in run.recipe else "absent" for run in runs]
        if len(set(values)) > 1:
            rows.append((field, *values))
    if not rows:
        return section("What differs", tag("p", "Nothing: the recipes are the same."))
    return section("What differs", table("Settings that differ", ("setting", *(run.name for run in runs)), rows))


def recipes(runs: Sequence[Told]) -> Html:
    """Every setting and who made it, with the command that runs it again."""
    parts = []
    for run in runs:
        parts.append(tag("h3", run.name))
        if run.rerun:
            parts += [tag("p", "To run it again:"), tag("pre", tag("code", run.rerun), tabindex="0")]
        made = {key: value for key, value in run.provenance.items() if not isinstance(value, dict)}
        made |= run.provenance.get("versions") or {}
        if made:
            rows = [(key, _words(value)) for key, value in made.items()]
            parts.append(_folded("Provenance", table(f"{run.name}: who made it", ("what", "value"), rows)))
        rows = [(key, _words(value)) for key, value in run.recipe.items() if key != "paper"]
        parts.append(_folded("Recipe", table(f"{run.name}: every setting", ("setting", "value"), rows)))
    return section("Recipe and provenance", *parts)


def section(title: str, *parts: Html) -> Html:
    """A part of the page that can be jumped to."""
    identity = title.lower().replace(" ", "-")
    return tag("section", tag("h2", title, id=identity), *parts, aria_labelledby=identity)


def all_sections(runs: Sequence[Told]) -> tuple[Html, list[dict[str, Any]]]:
    """The page's body, and the plots that its script draws."""
    made = plots(runs)
    parts = (headline(runs), curves(runs, made), beside_the_paper(runs), evaluations(runs))
    return joined((*parts, pictures(runs), bad_images(runs), differences(runs), recipes(runs))), made


def _headlines(run: Told) -> Iterator[tuple[str, str]]:
    if line := run.online_knn():
        where = f"weighted kNN while training, k={line.get('knn_k')}, tau={line.get('knn_tau')}"
        yield f"{where}, after epoch {line.get('epochs_done')}, on {run.recipe.get('data')}", f"{line['knn']:.2f} %"
    for kind in ("knn", "linear", "finetune", "semi"):
        for what, value in _measured(run, kind):
            yield what, f"{value} %"
    for name, record in run.evaluations.items():
        if name.startswith("transfer") and "value" in record:
            yield f"transfer to {record.get('data')}, {record.get('metric')}", f"{record['value']} %"
        if name.startswith("affinity"):
            for row in _result_rows(record):
                if row.get("metric") == "AUC":
                    both = " against ".join(_words(row.get(measure, "")) for measure in ("learned", "cosine"))
                    where = f"{row.get('references')} references, on {record.get('data')}"
                    yield f"learned affinity against cosine: AUC of {row.get('task')}, {where}", both


def _measured(run: Told, kind: str) -> Iterator[tuple[str, Any]]:
    """Top-1 of the trained encoder by the evaluations of a kind, with their settings."""
    for name, record in run.evaluations.items():
        if name.split("-")[0] != kind:
            continue
        for row in _result_rows(record):
            top1 = row.get("top1", row.get("top-1"))
            if top1 is not None and row.get("features", "trained encoder") == "trained encoder":
                told = [f"{key}={row[key]}" for key in ("k", "tau", "fraction") if key in row]
                yield (
                    ", ".join([name.split("-")[0] if kind == "knn" else name, *told, f"on {record.get('data')}"]),
                    top1,
                )


def _result_rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    match record.get("results"):
        case list() as rows:
            return [row for row in rows if isinstance(row, dict)]
        case dict() as row:
            return [row]
        case _:
            return [{"metric": record["metric"], "value": record["value"]}] if "value" in record else []


def _settings(record: dict[str, Any]) -> str:
    plain = {k: v for k, v in record.items() if k not in HIDDEN and isinstance(v, str | int | float) and v is not None}
    return "; ".join(f"{key.replace('_', ' ')}: {_words(value)}" for key, value in plain.items())


def _folded(title: str, inside: Html) -> Html:
    return tag("details", tag("summary", title), inside)


def _words(value: Any) -> str:
    match value:
        case {"mean": mean, "low": low, "high": high}:
            return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        case list():
            return " ".join(map(_words, value))
        case None:
            return "none"
        case _:
            return str(value)


def _number(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""


def _lines(found: dict[str, Any]) -> str:
    return "; ".join(f"{value} ({what})" for what, value in found.items()) or "not measured"
