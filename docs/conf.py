"""How Sphinx builds the documentation: Markdown by MyST, formulas as MathML, nothing from the network."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from generate import pages  # noqa: E402 (beside this file)

from logo_ssl import __version__  # noqa: E402

project, author, release = "LoGo", "LoGo's contributors", __version__
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
highlight_language = "text"
smartquotes = False  # an option begins with two hyphens

html_theme, html_title = "furo", "LoGo"
html_static_path, html_css_files = ["_static"], ["logo.css"]
html_copy_source = html_show_sphinx = html_show_copyright = False
html_math_renderer = "mathml"

FETCHED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["'](?:https?:)?//[^"']+""")


def write_reference(app: Sphinx) -> None:
    """Write the generated pages that are not there, or not as they should be; remove others."""
    folder, texts = HERE / "reference", pages()
    for page in folder.rglob("*.md"):
        if page.relative_to(folder).as_posix() not in texts:
            page.unlink()
    for name, text in texts.items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        if not page.is_file() or page.read_text() != text:
            page.write_text(text)


def list_decisions(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the notes below their index in the menu; on its own page it is a plain list."""
    if page == "decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"


def refuse_network(app: Sphinx, error: Exception | None) -> None:
    """Stop if a page would fetch a font, a script or a picture from elsewhere."""
    for page in Path(app.outdir).rglob("*.html") if error is None else ():
        if found := FETCHED.search(page.read_text()):
            raise ExtensionError(f"{page.relative_to(app.outdir)} fetches from the network: {found[0]}")


def as_mathml(display: str) -> Callable[[nodes.NodeVisitor, nodes.Element], None]:
    """A visitor that writes a formula as MathML, which every browser draws by itself."""

    def visit(translator: nodes.NodeVisitor, node: nodes.Element) -> None:
        translator.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return visit


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.add_html_math_renderer("mathml", (as_mathml("inline"), None), (as_mathml("block"), None))
    app.connect("builder-inited", write_reference)
    app.connect("source-read", list_decisions)
    app.connect("build-finished", refuse_network)
