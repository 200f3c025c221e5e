"""What does the whole page hold? One HTML file with its style, its script, its plotting library and its pictures."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from ..errors import UserError
from ..run import write
from .markup import Html, data_script, joined, tag
from .reading import Told
from .sections import all_sections

LARGEST = 15_000_000  # bytes
NOTHING_FROM_OUTSIDE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
HERE = Path(__file__).parent


def write_report(runs: Sequence[Told], out: Path) -> Path:
    """Write the page of some runs."""
    content = page(runs)
    size = len(content.encode())
    if size > LARGEST:
        raise UserError(
            f"The report of {len(runs)} runs would have {size / 1e6:.1f} MB, more than {LARGEST / 1e6:.0f}; give fewer "
            "runs, or leave out their crops with --no-crops."
        )
    return write(out, content)


def page(runs: Sequence[Told]) -> str:
    """The page as text."""
    body, made = all_sections(runs)
    title = "LoGo: " + ", ".join(run.name for run in runs)
    head = joined(
        (
            Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{NOTHING_FROM_OUTSIDE}">'),
            Html('<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'),
            tag("title", title),
            tag("style", Html((HERE / "page.css").read_text())),
        )
    )
    library = tag("script", Html(_plotly())) if made else Html("")
    script = tag("script", Html((HERE / "page.js").read_text()))
    main = tag("main", tag("h1", title), body)
    whole = joined((tag("head", head), tag("body", main, data_script("plots", made), library, script)))
    return "<!doctype html>\n" + tag("html", whole, lang="en-GB") + "\n"


def _plotly() -> str:
    """plotly.js as the package plotly carries it; the package itself is not imported."""
    text = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script")
