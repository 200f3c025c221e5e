"""What stands on the page? Each section as HTML, from runs as they are told."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .affinity_choice import affinity_choice
from .comparing import better
from .feature_map import feature_maps
from .gaps import Gap, by_reason, which
from .headline import headline
from .markup import Html, folded, joined, picture, table, tag
from .neighbours import neighbours
from .numbers import percent, result, words
from .paper_tables import Paper, detection_table, transfer_table
from .plots import looks
from .reading import Told
from .results import Figure, Kind, accuracies, labels
from .results import rows as results

MOST_BAD = 50
STROKES = {"solid": "none", "dash": "9 4", "dot": "4 3", "dashdot": "9 3 3 3", "longdash": "14 4"}
NOTES = {"knn": "; epoch 0 is the untrained encoder"}
UNINTERESTING = ("name", "paper", "chosen")
HIDDEN = (
    "results",
    "protocol",
    "data_fingerprint",
    "about",
    "versions",
    "keys_not_in_checkpoint",
    "keys_without_place",
)

OWN_SETTINGS = ", with settings of our choice, not the paper's"
DEPARTURES = "differs from the recipe with the paper's settings in"
ABOUT_AFFINITY = (
    "Each measure runs from 0 (least alike) to 1 (most alike) over the crops beside a reference; lines are means over "
    "an image's crops. References come by chance, never by looks. How well each measure ranks over many references is "
    "measured by the command affinity, and stands in the evaluations. Its picture chooses "
    "the images beside a reference among another number of images, so that the same reference has other company there."
)


def chooser(runs: Sequence[Told]) -> Html:
    """A box for each run that shows and hides its curves."""
    boxes = []
    for i, run in enumerate(runs):
        box = tag("input", type="checkbox", data_run=i, data_key=f"{run.name}: curves", checked=True)
        boxes.append(tag("label", box, _swatch(i), run.name))
    return tag("fieldset", tag("legend", "Runs shown in the curves"), *boxes, class_="runs")


def curves(runs: Sequence[Told], made: list[dict[str, Any]]) -> Html:
    """A place for each plot; the script fills it, and its label says how each curve ends."""
    if not made:
        return tag("p", "Nothing was logged yet.")
    figures = [
        tag(
            "figure",
            tag("figcaption", plot["title"] + NOTES.get(plot["name"], "")),
            tag("div", class_="plot", data_plot=i, role="img", aria_label=plot["summary"]),
        )
        for i, plot in enumerate(made)
    ]
    none = tag("p", "No run is chosen; tick one above to see its curves.", data_none=True, hidden=True)
    return joined((chooser(runs), none, tag("div", *figures, class_="plots")))


def beside_the_paper(runs: Sequence[Told], paper: Paper) -> Html:
    """The paper's rows, by its settings or ours, and those of transfer and detection, beside what was measured."""
    measured = [figure for run in runs for kind in ("knn", "linear") for figure in accuracies(run, kind)]
    named = labels(measured)
    rows = [
        (
            run.name,
            f"Table {row.get('table')}: {row.get('row')}{mark}",
            percent(row.get("knn")),
            _lines(accuracies(run, "knn"), named),
            percent(row.get("linear")),
            _lines(accuracies(run, "linear"), named),
            ", ".join(run.departures) or "none",
        )
        for run in runs
        for mark, rows_of_paper in (("", run.paper), (OWN_SETTINGS, run.beside))
        for row in rows_of_paper
    ]
    head = ("run", "paper", "paper's kNN", "kNN here", "paper's linear", "linear here", DEPARTURES)
    parts = [table("Top-1 in percent; the paper names no k and no temperature", head, rows)] if rows else []
    parts += [part for part in (transfer_table(runs, paper), detection_table(runs, paper)) if part]
    return joined(parts)


def evaluations(runs: Sequence[Told]) -> Html:
    """Every evaluation, whole."""
    parts = []
    for run in runs:
        older = run.older()
        for name, record in run.evaluations.items():
            parts.append(tag("h3", f"{run.name}: {name}"))
            parts += [tag("p", f"This is {older[name]}.", class_="alarm")] if name in older else []
            parts.append(tag("p", f"{record.get('protocol', 'no protocol was saved')}."))
            if found := results(record):
                head = list(dict.fromkeys(key for row in found for key in row))
                cells = [[result(key, row[key]) if key in row else "" for key in head] for row in found]
                parts.append(table(f"{run.name}: {name}", head, cells))
            parts.append(folded("Settings and provenance", tag("p", _settings(record)), f"{run.name}: {name}"))
    if not parts:
        parts.append(tag("p", "Nothing was evaluated yet; logo-ssl eval does it."))
    return joined(parts)


def pictures(runs: Sequence[Told]) -> Html:
    """What the network sees, and what its measure says."""
    shown = [
        _sheet(picture(content, f"{run.name}: {words}"), f"{run.name}: {words}")
        for run in runs
        for words, content in run.figures()
    ]
    return joined(shown)


def _sheet(drawn: Html, told: str) -> Html:
    """A picture that scrolls by itself where the screen is too narrow to read it."""
    inside = tag("div", drawn, class_="wide sheet", tabindex="0", role="region", aria_label=told)
    return tag("figure", inside, tag("figcaption", told))


def bad_images(runs: Sequence[Told]) -> Html:
    """Which images could not be read, and why; the first of them where they are many."""
    parts = []
    for run in runs:
        if found := run.bad_images:
            told = f"{run.name}: {len(found)} image{'s' * (len(found) != 1)} could not be read"
            told += f"; the first {MOST_BAD}" if len(found) > MOST_BAD else ""
            parts.append(table(told, ("image", "reason"), found[:MOST_BAD]))
    return joined(parts)


def comparison(runs: Sequence[Told]) -> Html:
    """What differs between the runs, and which of them is better."""
    return joined((differences(runs), better(runs))) if len(runs) > 1 else Html("")


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
            parts += [tag("p", f"To run it again{_in_one(run)}:"), tag("pre", tag("code", run.rerun), **again)]
        made = {key: value for key, value in run.provenance.items() if not isinstance(value, dict)}
        made |= run.provenance.get("versions", {})
        if made:
            rows = [(key, words(value)) for key, value in made.items()]
            told = f"{run.name}: who made it"
            parts.append(folded("Provenance", table(told, ("what", "value"), rows), told))
        rows = [(key, words(value)) for key, value in run.recipe.items() if key != "paper"]
        told = f"{run.name}: every setting"
        parts.append(folded("Recipe", table(told, ("setting", "value"), rows), told))
    return joined(parts)


def _in_one(run: Told) -> str:
    """In what one command differs from a run that was made longer on the way."""
    first, epochs = run.provenance.get("epochs_first_planned"), run.provenance.get("epochs")
    if first is None or first == epochs:
        return ""
    return f", all {epochs} epochs in one (it was planned for {first} at first: its learning rate took another course)"


def section(title: str, *parts: Html) -> Html:
    """A part of the page that can be jumped to."""
    identity = _identity(title)
    return tag("section", tag("h2", title, id=identity), *parts, aria_labelledby=identity)


def health(runs: Sequence[Told]) -> Html:
    """Damages and signs of collapse in words, or that there is none, and whether training has helped."""
    parts = []
    for run in runs:
        parts += [tag("li", f"{run.name}: {sentence}", class_="alarm") for sentence in (*run.damages, *run.alarms)]
        parts += [] if run.alarms else [tag("li", f"{run.name}: {_well(run)}")]
        parts += [tag("li", f"{run.name}: {run.verdict}")] if run.verdict else []
    return tag("ul", *parts)


def seen(runs: Sequence[Told]) -> dict[str, Html]:
    """What needs the encoder: neighbours, maps and affinities of the runs that have one, by title."""
    near = [neighbours(run.name, run.neighbourhood) for run in runs if run.neighbourhood]
    maps = [(run.name, run.feature_map) for run in runs if run.feature_map]
    asked = [(run.name, run.comparisons) for run in runs if run.comparisons]
    bars = [affinity_choice(i, name, found) for i, (name, found) in enumerate(asked)]
    return {
        "Nearest neighbours": joined(near),
        "Map of features": joined(feature_maps(maps) if maps else ()),
        "Affinity": joined((tag("p", ABOUT_AFFINITY), *bars) if bars else ()),
    }


def not_shown(runs: Sequence[Told]) -> Html:
    """What is missing from the page, and why."""
    gaps = by_reason(Gap(run.name, run.run.path, sentence) for run in runs for sentence in run.missing)
    gone = [tag("li", f"{which(names, len(runs))}: {sentence}") for names, sentence in gaps]
    return tag("ul", *gone) if gone else Html("")


def all_sections(runs: Sequence[Told], made: list[dict[str, Any]], paper: Paper) -> Html:
    """The page's body, with links to its sections first."""
    parts = {
        "Headline": headline(runs),
        "Health": health(runs),
        "Comparison": comparison(runs),
        "Curves": curves(runs, made),
        "Beside the paper": beside_the_paper(runs, paper),
        "Evaluations": evaluations(runs),
        **seen(runs),
        "Pictures": pictures(runs),
        "Bad images": bad_images(runs),
        "Not shown": not_shown(runs),
        "Recipe and provenance": recipes(runs),
    }
    kept = {title: part for title, part in parts.items() if part}
    links = [tag("a", title, href=f"#{_identity(title)}") for title in kept]
    wrapped = (section(title, part) for title, part in kept.items())
    return joined((tag("nav", *links, aria_label="Sections"), *wrapped))


def _swatch(i: int) -> Html:
    """A short line as run i has it."""
    look = looks(i)
    line = {"stroke": look["color"], "stroke_width": 4, "stroke_dasharray": STROKES[look["dash"]]}
    return tag("svg", tag("path", d="M0 4H32", **line), viewBox="0 0 32 8", class_="swatch", aria_hidden="true")


def _well(run: Told) -> str:
    lines = [line for line in run.metrics if isinstance(line.get("z_std"), int | float)]
    if not lines:
        return f"nothing was measured{'' if run.finished else ' yet'}."
    spread, rank = lines[-1]["z_std"], lines[-1].get("z_rank", 0.0)
    most = f" of at most {run.most_directions}" if run.most_directions else ""
    return f"no sign of collapse (spread of the latents {spread:.3f} of 1, effective rank {rank:.1f}{most}, at last)."


def _identity(title: str) -> str:
    return title.lower().replace(" ", "-")


def _settings(record: dict[str, Any]) -> str:
    plain = {k: v for k, v in record.items() if k not in HIDDEN and isinstance(v, str | int | float)}
    return "; ".join(f"{key.replace('_', ' ')}: {result(key, value)}" for key, value in plain.items())


def _lines(found: Iterable[Figure], named: Mapping[Kind, str]) -> str:
    told = ((figure.written(), ", ".join(filter(None, (named[figure.kind], figure.chosen)))) for figure in found)
    return "; ".join(f"{number} ({how})" for number, how in told) or "not measured"
