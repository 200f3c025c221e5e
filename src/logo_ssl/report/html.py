"""The page: one HTML file with its style, its scripts and its images."""

import base64
import shlex
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..system.terminal import printable
from . import sections
from .gallery import MEASURES, atlas, group_look, map_data, thumbnail
from .results import grouped, words
from .summary import RunSummary

MOST_NAMED = 4  # runs in the heading
MAIN_CURVES = 3  # that are not folded
TEMPLATES = Environment(
    loader=PackageLoader("logo_ssl.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"words": words, "quote": shlex.quote}
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
TEMPLATES.globals |= {"thumbnail": thumbnail, "group_look": group_look, "measures": MEASURES}


def page(runs: Sequence[RunSummary], *, version: str | None = None) -> str:
    """The page as text; a served one has a version, and asks for newer ones."""
    names, groups = [run.name for run in runs], grouped(runs)
    text = TEMPLATES.get_template("page.html").render(
        title=f"LoGo: {', '.join(names) if 0 < len(names) <= MOST_NAMED else f'{len(names)} runs'}",
        version=version,
        runs=runs,
        looks=[sections.run_look(i) for i in range(len(runs))],
        main_curves=MAIN_CURVES,
        sections=sections,
        groups=groups,
        plots=sections.plots(runs),
        maps=_maps(runs),
        png=_png,
    )
    return printable(text)


def _maps(runs: Sequence[RunSummary]) -> dict[str, Any]:
    """What the script needs for maps; runs that saw the same images share them."""
    atlases, maps = dict[str, dict[str, Any]](), []
    for run in runs:
        if (found := run.collected.features) is not None:
            images = atlas([image.pixels for image in found.images])
            atlases.setdefault(images["src"], images)
            maps.append(map_data(run.name, found) | {"atlas": list(atlases).index(images["src"])})
    return {"maps": maps, "atlases": list(atlases.values())} if maps else {}


def _png(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()
