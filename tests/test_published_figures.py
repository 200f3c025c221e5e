"""The figures in README and on the pages of results are those of the records: means over seeds, rounded."""

import json
import subprocess
import sys
from math import sqrt
from pathlib import Path
from statistics import mean, stdev

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results"
COLUMNS = {"kNN k=20": ("knn-20",), "kNN k=200": ("knn-200",), "linear": ("linear-sgd", "linear-lbfgs")}
ROWS = {"": "", " with local crops, without L2L": "-multicrop", "-LoGo": "-logo", ", four large crops": "-four-large"}
NAMES = {f"{on}{row}": f"{on.lower()}{name}" for on in ("MoCo", "SimSiam") for row, name in ROWS.items()}
NAMES["`cifar10-best`: MoCo, six large crops"] = "moco-six-large"
TUNED, PAPER, IMAGENETTE, HELD_OUT = "cifar10-tuned", "cifar10-paper", "imagenette", "cifar10-held-out"
MARGINS = {
    "over MoCo: equal epochs, twice the crops": (TUNED, "moco-logo", "moco"),
    "the same with weight decay 5e-4 in place of 1e-3": ("cifar10-variants", "moco-logo-decay-5e-4", "moco-decay-5e-4"),
    "over MoCo, four large crops: equal epochs and crops": (TUNED, "moco-logo", "moco-four-large"),
    "over SimSiam: equal epochs, twice the crops": (TUNED, "simsiam-logo", "simsiam"),
    "over SimSiam, four large crops: equal epochs and crops": (TUNED, "simsiam-logo", "simsiam-four-large"),
    "LoGo over MoCo": (PAPER, "moco-logo", "moco"),
    "LoGo over SimSiam": (PAPER, "simsiam-logo", "simsiam"),
    "MoCo-LoGo over MoCo: equal epochs": (IMAGENETTE, "moco-logo", "moco"),
    "MoCo-LoGo over four large crops: equal epochs and crops": (IMAGENETTE, "moco-logo", "moco-four-large"),
    "MoCo-LoGo over the same without L2L": (IMAGENETTE, "moco-logo", "moco-multicrop"),
}
DECAY, LOGO_DECAY = "simsiam-decay-5e-4", "simsiam-logo-decay-5e-4"
DEPENDS = (
    (PAPER, DECAY, LOGO_DECAY),
    (PAPER, f"{DECAY}-global-40-100", LOGO_DECAY),
    (PAPER, DECAY, f"{LOGO_DECAY}-global-20-100-local-20-80"),
    (HELD_OUT, "paper-simsiam", "paper-simsiam-logo-pairs-summed"),
    (HELD_OUT, "paper-simsiam", "paper-simsiam-logo-pairs-averaged"),
    (HELD_OUT, "paper-simsiam-loss-five-times", "paper-simsiam-logo-pairs-summed"),
)


def figures(family, name, column):
    """Every seed's figure of a row, for the first kind of measurement that it has."""
    lines = (ROOT / "results" / "records" / f"{family}.jsonl").read_text().splitlines()
    runs = [run for run in map(json.loads, lines) if run["name"] == name]
    found = [[run["figures"][kind] for run in runs if kind in run.get("figures", {})] for kind in COLUMNS[column]]
    if column == "kNN k=20" and not any(found):  # short runs were measured while they trained
        return [run["knn_by_epoch"][str(run["epochs"])] for run in runs]
    return next(filter(None, found), [])


def tables(text):
    """(title, label, cells by column) of every row of every table, without emphasis; a title is the first header."""
    header = []
    for line in text.replace("*", "").splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else []
        if header and cells and set(cells[0]) != {"-"}:
            yield header[0], cells[0], dict(zip(header[1:], cells[1:], strict=True))
        header = header or cells if cells else []


def rows_of(page, title):
    return {label: cells for found, label, cells in tables((PAGES / page).read_text()) if found == title}


@pytest.mark.parametrize(
    ("title", "family", "rows"),
    [("tuned", TUNED, 9), ("the paper's settings", PAPER, 6), ("200 epochs", IMAGENETTE, 4)],
)
def test_rows_are_means_over_the_seeds_that_they_name(title, family, rows):
    shown = rows_of("imagenette.md" if family == IMAGENETTE else "cifar10.md", title)
    assert len(shown.keys() & NAMES.keys()) == rows
    for label, cells in ((label, cells) for label, cells in shown.items() if label in NAMES):
        for column in COLUMNS:
            found = figures(family, NAMES[label], column)
            spread = f" ± {stdev(found):.2f}" if len(found) > 1 else ""
            alone = " (n=1)" if found and len(found) < int(cells["n"]) else ""
            assert cells[column] == (f"{mean(found):.2f}{spread}{alone}" if found else ""), (label, column)
            assert alone or len(found) in (0, int(cells["n"])), (label, column)


def test_margins_are_differences_of_means():
    pages = [row for page in ("cifar10.md", "imagenette.md") for row in tables((PAGES / page).read_text())]
    shown = {label: cells for _, label, cells in pages if label in MARGINS}
    assert shown.keys() == MARGINS.keys()
    for label, cells in shown.items():
        family, one, other = MARGINS[label]
        for column in COLUMNS:
            margin = mean(figures(family, one, column)) - mean(figures(family, other, column))
            assert cells[column] == f"{margin:+.2f}", (label, column)


def test_what_simsiams_margin_depends_on():
    rows = rows_of("cifar10.md", "the paper's settings, but").values()
    for cells, (family, alone, logo) in zip(rows, DEPENDS, strict=True):
        pairs = [(figures(family, logo, column), figures(family, alone, column)) for column in COLUMNS]
        margins = [f"{ours[0] - theirs[0]:+.2f}" for ours, theirs in pairs if ours]
        assert (cells["SimSiam-LoGo"], cells["SimSiam"]) == tuple(f"{side[0]:.2f}" for side in pairs[0])
        assert (cells["margin"], cells["k=200, linear"]) == (margins[0], ", ".join(margins[1:]))


def test_the_outside_run_is_shown_by_seed():
    without, logo, change = rows_of("imagenette.md", "outside run").values()
    for column in ("kNN k=20", "linear"):
        ours, theirs = (figures(IMAGENETTE, f"{name}-outside", column) for name in ("moco-logo", "moco-multicrop"))
        by_seed = [one - other for one, other in zip(ours, theirs, strict=True)]
        assert change[column] == f"{mean(by_seed):+.2f} ± {stdev(by_seed) / sqrt(len(by_seed)):.2f}"
        assert logo[column] == ", ".join(f"{figure:.2f}" for figure in ours)
        assert without[column] == ", ".join(f"{figure:.2f}" for figure in theirs)


def test_the_pages_of_l2l_have_every_trial_as_the_tool_prints_it():
    command = [sys.executable, str(ROOT / "tools" / "write_tables.py"), "l2l-arms", "l2l", "l2l-means", "l2l-short"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pages = [PAGES / "l2l.md", ROOT / "results" / "l2l-short.md"]
    shown = [row for page in pages for row in tables(page.read_text()) if row[0] != "candidate"]
    assert shown == list(tables(printed))


@pytest.mark.parametrize(("images", "family", "rows"), [("CIFAR-10", TUNED, 6), ("Imagenette", IMAGENETTE, 4)])
def test_readme_has_the_means_and_how_many_seeds_they_have(images, family, rows):
    shown = [(label, cells) for _, label, cells in tables((ROOT / "README.md").read_text()) if f"{images} kNN" in cells]
    assert len([label for label, cells in shown if cells[f"{images} kNN"]]) == rows
    for label, cells in shown:
        for column, measure in ((f"{images} kNN", "kNN k=20"), (f"{images} linear", "linear")):
            found = figures(family, NAMES[label.replace("not pushed apart", "without L2L")], measure)
            assert cells[column] == (f"{mean(found):.2f} (n={len(found)})" if found else ""), (label, column)
