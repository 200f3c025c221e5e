"""What does the whole page hold? One HTML file with its style, its script, its plotting library and its pictures."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import write
from .affinity_choice import affinity_data
from .feature_map import map_data
from .markup import Html, data_script, joined, tag
from .paper_tables import NOTHING, Paper
from .plots import plots
from .reading import Told
from .sections import all_sections
from .thumbnails import Thumbnails

LARGEST = 15_000_000  # bytes
MOST_NAMED = 4  # runs in the heading
NOTHING_FROM_OUTSIDE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
FROM_THE_SERVER = (
    NOTHING_FROM_OUTSIDE.replace("'unsafe-inline';", "'unsafe-inline' 'self';", 1) + "; connect-src 'self'"
)
LIBRARY = "plotly.js"
HERE = Path(__file__).parent


def write_report(runs: Sequence[Told], out: Path, paper: Paper = NOTHING) -> Path:
    """Write the page of some runs."""
    content = page(runs, paper)
    size = len(content.encode())
    if size > LARGEST:
        raise UserError(
            f"The report of {len(runs)} runs would have {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}; give fewer "
            "runs, or leave out their pictures with --no-crops and --images 0."
        )
    return write(out, content)


def page(runs: Sequence[Told], paper: Paper = NOTHING, *, served: bool = False) -> str:
    """The page as text; a served one asks for its library, and for news."""
    made, pictured = plots(runs), seen_data(runs)
    names = [run.name for run in runs]
    title = f"LoGo: {', '.join(names) if len(names) <= MOST_NAMED else f'{len(names)} runs'}"
    scripts = joined(
        (
            data_script("plots", made),
            data_script("seen", pictured) if pictured else "",
            _library(served) if made or pictured else "",
            tag("script", _script(served)),
        )
    )
    main = tag("main", tag("h1", title), all_sections(runs, made, paper))
    news = joined((tag("p", id="news", role="status"), tag("p", id="renewed"))) if served else ""
    whole = joined((tag("head", _head(title, served)), tag("body", news, main, scripts)))
    return "<!doctype html>\n" + tag("html", whole, lang="en-GB") + "\n"


def seen_data(runs: Sequence[Told]) -> dict[str, Any]:
    """What the script needs for maps and affinities, each small picture once; empty without either."""
    thumbnails = Thumbnails()
    maps = [map_data(run.name, run.feature_map, thumbnails) for run in runs if run.feature_map]
    bars = [affinity_data(run.name, run.comparisons, thumbnails) for run in runs if run.comparisons]
    return {"maps": maps, "affinities": bars, "pictures": list(thumbnails.addresses)} if maps or bars else {}


def plotly() -> str:
    """plotly.js as the package plotly carries it; the package itself is not imported."""
    text = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script")


def _head(title: str, served: bool) -> Html:
    policy = FROM_THE_SERVER if served else NOTHING_FROM_OUTSIDE
    return joined(
        (
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="generator", content="logo-ssl"),
            tag("link", rel="icon", href="data:,"),
            tag("title", title),
            tag("style", Html((HERE / "page.css").read_text())),
        )
    )


def _library(served: bool) -> Html:
    return tag("script", src=LIBRARY) if served else tag("script", Html(plotly()))


def _script(served: bool) -> Html:
    """All scripts as one; a page from disk starts at once, a served one when it begins to watch."""
    parts = [(HERE / f"{name}.js").read_text() for name in ("page", "map", "affinity", *(["watch"] if served else []))]
    return Html("\n".join([*parts, *([] if served else ["start();\n"])]))
