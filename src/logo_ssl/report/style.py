"""How do our pictures look? One style, readable by the colour-blind and in grey, as PNG and SVG."""

import io
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..files import write

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")  # Okabe & Ito: readable by the colour-blind
ON_WHITE = (*COLOURS, "#000000", "#56B4E9")  # more of theirs, where no page turns dark
GREY = "#555555"
HEAT = "cividis"  # as light as it is warm, to every eye
DPI = 144
ABOUT = {"png": {"Software": "logo-ssl"}, "svg": {"Creator": "logo-ssl", "Date": None}}
"""What a file of each kind says of itself."""


def plain(axes: Axes) -> None:
    """Only the lines that carry something."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def save_figure(figure: Figure, file: Path) -> list[Path]:
    """Write a figure whole, as .png and .svg beside each other, the same figure gives the same bytes."""
    files = {kind: file.with_suffix(f".{kind}") for kind in ABOUT}
    with (
        plt.rc_context({"svg.hashsalt": "logo-ssl", "svg.fonttype": "none", "font.family": "DejaVu Sans"}),
        warnings.catch_warnings(),
    ):
        # Names have letters that the font lacks: boxes in the .png, and themselves in the .svg, which holds text.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        for kind, place in files.items():
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=DPI, metadata=ABOUT[kind])
            write(place, content.getvalue())
    plt.close(figure)
    return [*files.values()]
