"""The page's figures come as SVG and PNG, in the colours of the page, with names as they are."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from logo_ssl import cli
from logo_ssl.errors import UserError
from logo_ssl.report import Curve, draw_knn_curves
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.figures import draw_affinity_map, draw_curves
from logo_ssl.report.gallery import COLOURS, Heat, HeatMap
from logo_ssl.run import Run

HOSTILE = "$two$ & <b>"


def train(run, loss):
    lines = [{"step": step, "loss": loss - step / 10, "lr": 0.1, "epoch": 0} for step in range(1, 4)]
    lines.append({"step": 4, "knn": 40.0, "knn_k": 20, "knn_tau": 0.07, "epochs_done": 1})
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_every_curve_is_a_figure_in_both_formats(make_run, tmp_path):
    runs = [make_run("one"), make_run(HOSTILE, seed=1)]
    for run in runs:
        train(run, 5.0)
    files = draw_curves(RunCollector(crops=False, images=0).collect(runs), tmp_path / "figures")
    assert sorted(file.name for file in files) == [
        f"{stem}.{kind}" for stem in ("knn", "loss", "lr") for kind in ("png", "svg")
    ]
    with Image.open(tmp_path / "figures" / "loss.png") as picture:
        assert picture.width > 500
    drawn = tmp_path / "figures" / "loss.svg"
    assert all(colour.lower() in drawn.read_text() for colour in COLOURS[:2])
    assert HOSTILE in [element.text for element in ElementTree.parse(drawn).iter()]
    words = " ".join(element.text or "" for element in ElementTree.parse(drawn.with_stem("knn")).iter())
    assert "k=20, tau=0.07" in " ".join(words.split())


@pytest.mark.parametrize("panels", [["cifar10"], ["cifar10", "stl10"]])
def test_curves_of_knn_have_their_legend_below(tmp_path, monkeypatch, panels):
    run, drawn = Run(tmp_path), []
    train(run, 5.0)
    rows = ("MoCo", "MoCo+LoGo", "SimSiam", "SimSiam+LoGo")
    curves = [Curve(row, f"{row}, tuned", panel, (run,)) for panel in panels for row in rows]
    monkeypatch.setattr("logo_ssl.report.figures.save_figure", lambda figure, file: drawn.append(figure) or [])
    draw_knn_curves(curves, tmp_path / "fig1b.png")
    (figure,) = drawn
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend, labels = axes.get_legend().get_window_extent(), axes.xaxis.get_tightbbox()
        assert 0 <= legend.y0 < legend.y1 <= labels.y0
        assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width


def test_existing_outputs_stop_the_report_before_all_work(make_run, tmp_path, monkeypatch):
    run = make_run("one")
    train(run, 5.0)
    (tmp_path / "f").mkdir()
    (tmp_path / "r.html").write_text("precious")
    line = ["report", str(run.path), "--no-crops", "--images", "0"]
    places = {"page": ["--out", str(tmp_path / "r.html")], "figures": ["--figures", str(tmp_path / "f")]}
    with monkeypatch.context() as patch:
        patch.setattr(RunCollector, "collect", lambda *_: pytest.fail("this would take long"))
        for place in places.values():
            with pytest.raises(UserError, match="exists"):
                cli.parse([*line, *place]).run()
    assert (tmp_path / "r.html").read_text() == "precious"
    cli.parse([*line, *places["page"], *places["figures"], "--overwrite"]).run()
    assert (tmp_path / "r.html").read_text() != "precious"
    assert (tmp_path / "f" / "knn.svg").is_file()


def test_letters_that_the_font_lacks_are_in_the_svg_and_give_no_warning(tmp_path):
    pixels, heat = np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8))
    shown = Heat("\U0001f431: \u732b", pixels, heat, heat)  # a cat's face, and the word in Chinese
    draw_affinity_map([HeatMap("\U0001f415", (0, 0, 4, 4), pixels, [shown])], tmp_path / "map.png", "\U0001f4f7")
    words = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert all(letter in words for letter in "\U0001f431\u732b\U0001f415\U0001f4f7")
