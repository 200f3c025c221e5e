"""The page's figures come as SVG and PNG, in the colours of the page, with names as they are."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from logo_ssl import cli
from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.report import Curve, draw_knn_curves, figures
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.curves import DASHES, plots
from logo_ssl.report.figures import LINES, MARKERS, draw_affinity_map, draw_figures
from logo_ssl.report.gallery import COLOURS, Heat, HeatMap
from logo_ssl.report.maps import SYMBOLS
from logo_ssl.report.summary import RunSummary
from logo_ssl.run import Run

HOSTILE = "$two$ & <b>"


def train(run, loss):
    lines = [{"step": step, "loss": loss - step / 10, "lr": 0.1, "epoch": 0} for step in range(1, 4)]
    lines.append({"step": 4, "knn": 40.0, "knn_k": 20, "knn_tau": 0.07, "epochs_done": 1})
    run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_every_curve_and_map_is_a_figure_in_both_formats(make_run, tmp_path):
    first, second = make_run("one"), make_run(HOSTILE, seed=1)
    train(first, 5.0)
    train(second, 4.0)
    (one,) = RunCollector(crops=False).collect([first])
    (two,) = RunCollector(crops=False, images=0).collect([second])
    files = draw_figures([replace(one, comparisons=one.comparisons[:1]), two], tmp_path / "figures")
    stems = {"knn", "loss", "lr", "one-pca", "one-t-sne", "one-affinity"}
    assert sorted(files) == sorted(tmp_path / "figures" / f"{stem}.{kind}" for stem in stems for kind in ("png", "svg"))
    for stem in stems:
        with Image.open(tmp_path / "figures" / f"{stem}.png") as picture:
            assert picture.width > 500
    drawn = tmp_path / "figures" / "loss.svg"
    assert all(colour.lower() in drawn.read_text() for colour in COLOURS[:2])
    assert HOSTILE in [element.text for element in ElementTree.parse(drawn).iter()]
    words = " ".join(element.text or "" for element in ElementTree.parse(drawn.with_stem("knn")).iter())
    assert "k=20, tau=0.07" in " ".join(words.split())


def test_every_protocol_of_the_curves_is_named(tmp_path):
    def told(name, **protocol):
        run = Run(tmp_path / name)
        write(run.metrics_file, json.dumps({"step": 1, "knn": 40.0, "epochs_done": 1, **protocol}) + "\n")
        return RunSummary(run, name, run.logged(), {})

    def title(*runs):
        return next(plot["title"] for plot in plots(runs) if plot["name"] == "knn")

    one, other = told("one", knn_k=20, knn_tau=0.07), told("other", knn_k=5, knn_tau=0.07)
    assert title(one) == title(one, one) == "kNN top-1 while training, k=20, tau=0.07 (%)"
    assert title(one, other) == "kNN top-1 while training, k=20, tau=0.07 or k=5, tau=0.07 (%)"
    assert title(told("silent")) == "kNN top-1 while training (%)"


def test_the_command_draws_them_where_it_is_told(make_run, tmp_path, capsys):
    run = make_run(HOSTILE)
    train(run, 5.0)
    options = ["--out", str(tmp_path / "r.html"), "--figures", str(tmp_path / "f"), "--images", "0", "--no-crops"]
    cli.parse(["report", str(run.path), *options]).run()
    assert f"Figure: {tmp_path / 'f' / 'knn.svg'}" in capsys.readouterr().out
    assert (tmp_path / "f" / "knn.svg").is_file()


def test_the_figures_know_every_dash_and_symbol_of_the_page():
    assert set(LINES) == set(DASHES)
    assert set(MARKERS) == set(SYMBOLS)


@pytest.mark.parametrize("panels", [["cifar10"], ["cifar10", "stl10"]])
def test_curves_of_knn_have_their_legend_below_and_their_heading_inside(tmp_path, monkeypatch, panels):
    run = Run(tmp_path / "run")
    write(run.metrics_file, json.dumps({"step": 1, "knn": 40.0, "knn_k": 20, "knn_tau": 0.07, "epochs_done": 1}) + "\n")
    rows = ("MoCo", "MoCo+LoGo", "SimSiam", "SimSiam+LoGo")
    curves = [Curve(row, f"{row}, tuned", panel, (run,)) for panel in panels for row in rows]
    drawn = []
    monkeypatch.setattr("logo_ssl.report.figures.save_figure", lambda figure, file: drawn.append(figure) or [])
    told = "The paper's Figure 1b is ImageNet-100 with ResNet-34; this one is CIFAR-10 with backbone small AlexNet."
    draw_knn_curves(curves, tmp_path / "fig1b", told)
    (figure,) = drawn
    figure.draw_without_rendering()
    for axes in figure.axes:
        legend, labels = axes.get_legend().get_window_extent(), axes.xaxis.get_tightbbox()
        assert 0 <= legend.y0 < legend.y1 <= labels.y0
        assert 0 <= legend.x0 < legend.x1 <= figure.bbox.width
    heading = figure._suptitle.get_window_extent()
    margin = figure.bbox.width / 20
    assert margin < heading.x0 < heading.x1 < figure.bbox.width - margin


@pytest.mark.parametrize(("name", "n"), [("r.html", 0), ("f/lr.png", 0), ("f/one-t-sne.svg", 4)])
def test_an_existing_file_stops_the_report_before_all_work(make_run, tmp_path, monkeypatch, name, n):
    run = make_run("one")
    train(run, 5.0)
    (tmp_path / "f").mkdir()
    (tmp_path / name).write_text("precious")
    line = [str(run.path), "--out", str(tmp_path / "r.html"), "--figures", str(tmp_path / "f"), "--no-crops"]
    with monkeypatch.context() as patch:
        patch.setattr(RunCollector, "_collect", lambda *_: pytest.fail("this would take long"))
        with pytest.raises(UserError, match="exists"):
            cli.parse(["report", *line, "--images", str(n)]).run()
    assert (tmp_path / name).read_text() == "precious"
    cli.parse(["report", *line, "--images", str(n), "--overwrite"]).run()
    assert n or (tmp_path / name).read_bytes() != b"precious"  # four images make no map


def test_letters_that_the_font_lacks_are_in_the_svg_and_give_no_warning(tmp_path):
    pixels, heat = np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8))
    shown = Heat("\U0001f431: \u732b", pixels, heat, heat)  # a cat's face, and the word in Chinese
    draw_affinity_map([HeatMap("\U0001f415", (0, 0, 4, 4), pixels, [shown])], tmp_path / "map.png", "\U0001f4f7")
    words = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert all(letter in words for letter in "\U0001f431\u732b\U0001f415\U0001f4f7")


def test_images_of_any_shape_have_room_of_one_size(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, *_: drawn.append(figure) or [])
    images = [Heat("own", np.zeros((*s, 3), np.uint8), np.zeros(s), np.zeros(s)) for s in ((20, 40), (30, 10))]
    draw_affinity_map([HeatMap("x", (0, 0, 4, 4), np.zeros((8, 8, 3), np.uint8), images)], tmp_path / "x.png")
    drawn[0].canvas.draw()
    sides = [axes.get_window_extent().size for axes in drawn[0].axes if axes.images]
    np.testing.assert_allclose(sides, sides[0][None].repeat(len(sides), axis=0), rtol=1e-3)
    plt.close(drawn[0])
