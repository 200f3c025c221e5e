"""The page: one HTML file with its style, its scripts, its plotting library and its images."""

import base64
import math
import struct
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..errors import UserError
from ..files import write
from ..system.text import printable
from . import sections
from .gallery import Thumbnails, affinity_data, map_data, thumbnail
from .results import grouped, words
from .summary import RunSummary

LARGEST = 15_000_000  # bytes
MOST_NAMED = 4  # runs in the heading
TEMPLATES = Environment(
    loader=PackageLoader("logo_ssl.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["words"] = words
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}


def write_report(runs: Sequence[RunSummary], out: Path) -> Path:
    """Write the page of some runs."""
    content = page(runs)
    size = len(content.encode())
    if size > LARGEST:
        raise UserError(
            f"The report of {len(runs)} runs would have {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}: give fewer "
            "runs, or leave out their images with --no-crops and --images 0."
        )
    return write(out, content)


def page(runs: Sequence[RunSummary], *, version: str | None = None) -> str:
    """The page as text; a served one, which has a version, asks for its library and for newer versions."""
    names, groups = [run.name for run in runs], grouped(runs)
    text = TEMPLATES.get_template("page.html").render(
        title=f"LoGo: {', '.join(names) if len(names) <= MOST_NAMED else f'{len(names)} runs'}",
        plotly=Markup(plotly()) if version is None else None,
        version=version,
        runs=runs,
        names=names,
        swatches=sections.swatches(runs),
        headline=sections.headline(runs),
        health=sections.health(runs),
        differences=sections.differences(runs),
        group_notes=sections.group_notes(groups),
        comparison=sections.comparison(groups),
        plots=_json(sections.plots(runs)),
        seen=_json(_seen(runs)),
        paper=sections.compared_with_the_paper(runs),
        evaluations=sections.evaluations(runs),
        not_shown=sections.not_shown(runs),
        png=_png,
        thumbnail=thumbnail,
    )
    return printable(text)


def plotly() -> str:
    """plotly.js as the package plotly carries it; the package itself is not imported."""
    text = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script")


def _seen(runs: Sequence[RunSummary]) -> dict[str, Any]:
    """What the script needs for maps and affinities, each thumbnail once; empty without either."""
    thumbnails = Thumbnails()
    found = [(run.name, run.collected) for run in runs]
    maps = [map_data(name, of_run.feature_map, thumbnails) for name, of_run in found if of_run.feature_map]
    bars = [affinity_data(name, of_run.comparisons, thumbnails) for name, of_run in found if of_run.comparisons]
    return {"maps": maps, "affinities": bars, "pictures": list(thumbnails.addresses)} if maps or bars else {}


def _png(content: bytes) -> dict[str, Any]:
    """A PNG inside the page; its size keeps a place for it, or links would miss what is below."""
    width, height = struct.unpack(">II", content[16:24])
    return {"src": "data:image/png;base64," + base64.b64encode(content).decode(), "width": width, "height": height}


def _json(value: Any) -> Any:
    """Values as JSON can hold them: numbers that are not finite are null, names are text."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return printable(value)
        case dict():
            return {printable(str(key)): _json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_json(inner) for inner in value]
        case _:
            return value
