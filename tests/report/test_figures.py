"""The page's figures come as SVG and PNG, in the colours of the page, with names as they are."""

import json
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from logo_ssl.report.collect import RunCollector
from logo_ssl.report.figures import draw_affinity_map, draw_curves
from logo_ssl.report.gallery import COLOURS, Heat, HeatMap

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


def test_letters_that_the_font_lacks_are_in_the_svg_and_give_no_warning(tmp_path):
    pixels, heat = np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8))
    shown = Heat("\U0001f431: \u732b", pixels, heat, heat)  # a cat's face, and the word in Chinese
    draw_affinity_map([HeatMap("\U0001f415", (0, 0, 4, 4), pixels, [shown])], tmp_path / "map.png", "\U0001f4f7")
    words = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert all(letter in words for letter in "\U0001f431\u732b\U0001f415\U0001f4f7")
