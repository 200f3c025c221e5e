"""Do the page's figures come as SVG and PNG, in the colours of the page, with names as they are?"""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from PIL import Image

from logo_ssl import cli
from logo_ssl.errors import UserError
from logo_ssl.files import write
from logo_ssl.report import Curve, draw_knn_curves
from logo_ssl.report.feature_map import SYMBOLS
from logo_ssl.report.figures import DASHES, MARKERS, draw_figures
from logo_ssl.report.plots import DASHES as DASHES_OF_THE_PAGE
from logo_ssl.report.plots import plots
from logo_ssl.report.reading import Told
from logo_ssl.report.style import COLOURS
from logo_ssl.report.telling import Teller
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
    (one,) = Teller(crops=False).tell([first])
    (two,) = Teller(crops=False, images=0).tell([second])
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
        return Told(run, name)

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
    cli.COMMANDS["report"]([str(run.path), *options])
    assert f"Figure: {tmp_path / 'f' / 'knn.svg'}" in capsys.readouterr().out
    assert (tmp_path / "f" / "knn.svg").is_file()


def test_the_figures_know_every_dash_and_symbol_of_the_page():
    assert set(DASHES) == set(DASHES_OF_THE_PAGE)
    assert set(MARKERS) == set(SYMBOLS)


def test_pages_and_figures_of_others_stay(make_run, tmp_path, capsys):
    run = make_run("one")
    train(run, 5.0)
    line = [str(run.path), "--out", str(tmp_path / "r.html"), "--figures", str(tmp_path / "f")]
    line += ["--images", "0", "--no-crops"]
    (tmp_path / "f").mkdir()
    for name in ("r.html", "f/knn.svg"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(UserError, match=f"{name} is there, and does not say that logo-ssl wrote it"):
            cli.COMMANDS["report"](line)
        assert (tmp_path / name).read_text() == "precious"
        cli.COMMANDS["report"]([*line, "--overwrite"])
        assert f"{tmp_path / name} (replaced)" in capsys.readouterr().out
        cli.COMMANDS["report"](line)
        assert f"{tmp_path / name} (replaced)" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "looked"), [("lr.png", 0), ("one-t-sne.svg", 4), ("one-affinity.png", 4)])
def test_a_figure_of_somebody_elses_stops_the_report_before_all_work(make_run, tmp_path, monkeypatch, name, looked):
    run = make_run("one")
    train(run, 5.0)
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / name).write_text("precious")
    for work in ("_crops", "_look"):
        monkeypatch.setattr(Teller, work, lambda *_: pytest.fail("this would take long"))
    line = [str(run.path), "--out", str(tmp_path / "r.html"), "--figures", str(tmp_path / "f")]
    with pytest.raises(UserError, match=f"{name} is there, and does not say"):
        cli.COMMANDS["report"]([*line, "--images", str(looked)])
    assert [child.name for child in (tmp_path / "f").iterdir()] == [name]
    assert (tmp_path / "f" / name).read_text() == "precious"
    assert not (tmp_path / "r.html").exists()


def test_figures_are_drawn_all_or_none(make_run, tmp_path):
    run = make_run("one")
    train(run, 5.0)
    (tmp_path / "lr.svg").write_text("precious")
    with pytest.raises(UserError, match=r"lr\.svg is there, and does not say"):
        draw_figures(Teller(crops=False, images=0).tell([run]), tmp_path)
    assert not (tmp_path / "loss.svg").exists()


def test_affinities_of_a_run_are_drawn_anew_and_other_pictures_stay(make_run, tmp_path, capsys):
    run = make_run("one")
    line = [str(run.path), "--images", "4", "--rows", "1", "--device", "cpu"]
    (tmp_path / "a.svg").write_text("precious")
    with pytest.raises(UserError, match=r"a\.svg is there, and does not say that logo-ssl wrote it"):
        cli.COMMANDS["affinity"]([*line, "--out", str(tmp_path / "a.png")])
    assert (tmp_path / "a.svg").read_text() == "precious"
    (run.path / "figures").mkdir()
    (run.path / "figures" / "affinity.png").write_text("of an earlier version")
    cli.COMMANDS["affinity"](line)
    assert "affinity.png (replaced)" in capsys.readouterr().out


@pytest.mark.parametrize("panels", [["cifar10"], ["cifar10", "stl10"]])
def test_curves_of_knn_have_their_legend_below_and_their_heading_inside(tmp_path, monkeypatch, panels):
    run = Run(tmp_path / "run")
    write(run.metrics_file, json.dumps({"step": 1, "knn": 40.0, "knn_k": 20, "knn_tau": 0.07, "epochs_done": 1}) + "\n")
    rows = ("MoCo", "MoCo+LoGo", "SimSiam", "SimSiam+LoGo")
    curves = [Curve(row, f"{row}, tuned", panel, (run,)) for panel in panels for row in rows]
    drawn = []
    monkeypatch.setattr("logo_ssl.report.knn_curves.save_figure", lambda figure, file: drawn.append(figure) or [])
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
