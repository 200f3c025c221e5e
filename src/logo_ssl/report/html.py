"""The page: one HTML file with its style, its scripts, its plotting library and its images."""

import base64
import math
import struct
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..errors import UserError
from ..files import write
from ..text import printable
from . import sections
from .curves import plots
from .gallery import Thumbnails, affinity_data, thumbnail
from .maps import map_data
from .summary import RunSummary

LARGEST = 15_000_000  # bytes
MOST_NAMED = 4  # runs in the heading
NOTHING_FROM_OUTSIDE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
FROM_THE_SERVER = (
    NOTHING_FROM_OUTSIDE.replace("'unsafe-inline';", "'unsafe-inline' 'self';", 1) + "; connect-src 'self'"
)
HERE = Path(__file__).parent
TEMPLATES = Environment(
    loader=PackageLoader("logo_ssl.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}


class Png(NamedTuple):
    """A PNG inside the page; its size keeps a place for it, or links would miss what is below."""

    address: str
    width: int
    height: int


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
    names = [run.name for run in runs]
    served = version is not None
    groups = sections.compared_groups(runs)
    scripts = [(HERE / f"{name}.js").read_text() for name in ("page", "map", "affinity")]
    scripts.append((HERE / "watch.js").read_text() if served else "start();\n")
    text = TEMPLATES.get_template("page.html").render(
        title=f"LoGo: {', '.join(names) if len(names) <= MOST_NAMED else f'{len(names)} runs'}",
        policy=FROM_THE_SERVER if served else NOTHING_FROM_OUTSIDE,
        style=Markup((HERE / "page.css").read_text()),
        scripts=Markup("\n".join(scripts)),
        plotly=None if served else Markup(plotly()),
        version=version,
        runs=runs,
        names=names,
        swatches=sections.swatches(runs),
        headline=sections.headline(runs),
        health=sections.health(runs),
        differences=sections.differences(runs) if len(runs) > 1 else None,
        group_notes=sections.group_notes(groups),
        comparison=sections.comparison(groups) if groups else [],
        plots=_json(plots(runs)),
        seen=_json(_seen(runs)),
        paper_tables=sections.paper_tables(runs),
        evaluations=sections.evaluations(runs),
        bad_images=sections.bad_images(runs),
        not_shown=sections.not_shown(runs),
        recipes=sections.recipes(runs),
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
    maps = [map_data(run.name, run.feature_map, thumbnails) for run in runs if run.feature_map]
    bars = [affinity_data(run.name, run.comparisons, thumbnails) for run in runs if run.comparisons]
    return {"maps": maps, "affinities": bars, "pictures": list(thumbnails.addresses)} if maps or bars else {}


def _png(content: bytes) -> Png:
    width, height = struct.unpack(">II", content[16:24])
    return Png("data:image/png;base64," + base64.b64encode(content).decode(), width, height)


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
