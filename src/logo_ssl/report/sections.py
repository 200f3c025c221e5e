"""What stands on the page? Each section as HTML, from runs as they are told."""

from collections.abc import Sequence
from typing import Any

from .affinity_choice import affinity_choice
from .comparing import better
from .feature_map import feature_maps
from .markup import Html, joined, picture, table, tag
from .measured import beside_the_paper, evaluations, headline
from .neighbours import neighbours
from .paper_tables import Paper
from .plots import looks
from .reading import Told
from .settings import differences, recipes

MOST_BAD = 50
STROKES = {"solid": "none", "dash": "9 4", "dot": "4 3", "dashdot": "9 3 3 3", "longdash": "14 4"}
ABOUT_AFFINITY = (
    "Each measure runs from 0 (least alike) to 1 (most alike) over the crops beside a reference; lines are means over "
    "an image's crops. References come by chance, never by looks. How well each measure ranks over many references is "
    "measured by logo-ssl affinity, and stands in the evaluations."
)


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


def section(title: str, *parts: Html) -> Html:
    """A part of the page that can be jumped to."""
    identity = _identity(title)
    return tag("section", tag("h2", title, id=identity), *parts, aria_labelledby=identity)


def _identity(title: str) -> str:
    return title.lower().replace(" ", "-")


def health(runs: Sequence[Told]) -> Html:
    """Signs of collapse in words, or that there is none."""
    parts = []
    for run in runs:
        said = [tag("li", f"{run.name}: {sentence}", class_="alarm") for sentence in run.alarms]
        parts += said or [tag("li", f"{run.name}: {_well(run)}")]
    return tag("ul", *parts)


def _well(run: Told) -> str:
    lines = [line for line in run.metrics if isinstance(line.get("z_std"), int | float)]
    if not lines:
        return "nothing was measured yet."
    spread, rank = lines[-1]["z_std"], lines[-1].get("z_rank", 0.0)
    most = f" of {run.most_directions}" if run.most_directions else ""
    return f"no sign of collapse (spread of the latents {spread:.3f} of 1, effective rank {rank:.1f}{most}, at last)."


def comparison(runs: Sequence[Told]) -> Html:
    """What differs between the runs, and which of them is better."""
    return joined((differences(runs), better(runs))) if len(runs) > 1 else Html("")


def curves(runs: Sequence[Told], made: list[dict[str, Any]]) -> Html:
    """A place for each plot; the script fills it, and its label says how each curve ends."""
    if not made:
        return tag("p", "Nothing was logged yet.")
    figures = [
        tag(
            "figure",
            tag("figcaption", plot["title"]),
            tag("div", class_="plot", data_plot=i, role="img", aria_label=plot["summary"]),
        )
        for i, plot in enumerate(made)
    ]
    return joined((chooser(runs), tag("div", *figures, class_="plots")))


def chooser(runs: Sequence[Told]) -> Html:
    """A box for each run that shows and hides its curves."""
    boxes = []
    for i, run in enumerate(runs):
        box = tag("input", type="checkbox", data_run=i, data_key=f"{run.name}: curves", checked=True)
        boxes.append(tag("label", box, _swatch(i), run.name))
    return tag("fieldset", tag("legend", "Runs shown in the curves"), *boxes, class_="runs")


def _swatch(i: int) -> Html:
    """A short line as run i has it."""
    look = looks(i)
    line = {"stroke": look["color"], "stroke_width": 4, "stroke_dasharray": STROKES[look["dash"]]}
    return tag("svg", tag("path", d="M0 4H32", **line), viewBox="0 0 32 8", class_="swatch", aria_hidden="true")


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


def pictures(runs: Sequence[Told]) -> Html:
    """What the network sees, and what its measure says."""
    shown = [
        tag("figure", picture(content, f"{run.name}: {words}"), tag("figcaption", f"{run.name}: {words}"))
        for run in runs
        for words, content in run.figures()
    ]
    return joined(shown)


def bad_images(runs: Sequence[Told]) -> Html:
    """Which images could not be read, and why; the first of them where they are many."""
    parts = []
    for run in runs:
        if found := run.bad_images:
            told = f"{run.name}: {len(found)} images could not be read"
            told += f"; the first {MOST_BAD}" if len(found) > MOST_BAD else ""
            parts.append(table(told, ("image", "reason"), found[:MOST_BAD]))
    return joined(parts)


def not_shown(runs: Sequence[Told]) -> Html:
    """What is missing from the page, and why."""
    gone = [tag("li", f"{run.name}: {sentence}") for run in runs for sentence in run.missing]
    return tag("ul", *gone) if gone else Html("")
