"""Does the map show, at each pixel, how alike the windows over it are?"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image

from logo_ssl.eval.affinity import load_measures, slide, spread_over, window_boxes
from logo_ssl.report import affinity_map
from logo_ssl.report.affinity import Affinity
from logo_ssl.report.affinity_map import Heated, HeatMap, draw_affinity_map


def test_windows_reach_every_edge_and_are_at_most_a_quarter_of_their_side_apart():
    boxes = window_boxes((30, 50), (0.4, 0.2))
    tops, lefts, heights, widths = boxes.unbind(dim=1)
    assert (heights.unique().tolist(), widths.unique().tolist()) == ([12], [10])
    for starts, side, length in ((tops.unique(), 12, 30), (lefts.unique(), 10, 50)):
        assert (int(starts[0]), int(starts[-1])) == (0, length - side)
        assert starts.diff().max() <= -(-side // 4)
    assert window_boxes((8, 8), (1.0, 1.0)).tolist() == [[0, 0, 8, 8]]


def test_a_pixel_has_the_mean_of_the_boxes_over_it():
    boxes = torch.tensor([[0, 0, 2, 2], [0, 1, 2, 2]])
    assert spread_over(np.array([1.0, 3.0]), boxes, (2, 3)).tolist() == [[1, 2, 3], [1, 2, 3]]


def test_heat_is_the_affinity_of_the_windows(make_run, images):
    measures = load_measures(make_run(), "cpu")
    image, box = images.test.array[0], torch.tensor([[0, 0, 16, 16]])
    z = measures.boxes_seen(image, box).z
    heat = slide(measures, z, image, (1.0, 1.0))
    expected = measures.affinities(z, z)
    np.testing.assert_allclose(heat.learned, np.full((16, 16), expected["learned"]), rtol=1e-5)
    np.testing.assert_allclose(heat.cosine, np.ones((16, 16)), rtol=1e-5)


def test_the_command_draws_the_map_beside_the_bars(make_run, tmp_path):
    out = tmp_path / "pictures" / "mine.png"
    Affinity(make_run().path, images=8, map=True, reference=("3:2,2,8,8",), device="cpu", out=out).run()
    assert {file.name for file in out.parent.iterdir()} == {"mine.png", "mine.svg", "mine-map.png", "mine-map.svg"}
    with Image.open(out.parent / "mine-map.png") as picture:
        assert picture.width > 1000


def test_letters_that_the_font_lacks_are_drawn_without_a_warning_and_stand_in_the_svg(tmp_path):
    pixels, heat = np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8))
    shown = Heated("\U0001f431: \u732b", pixels, heat, heat)  # a cat's face, and the word in Chinese
    draw_affinity_map([HeatMap("\U0001f415", (0, 0, 4, 4), pixels, [shown])], tmp_path / "map.png", "\U0001f4f7")
    words = (tmp_path / "map.svg").read_text(encoding="utf-8")
    assert all(letter in words for letter in "\U0001f431\u732b\U0001f415\U0001f4f7")


def test_names_are_drawn_as_they_are_and_long_ones_shortened(make_run, tmp_path, monkeypatch, images):
    dollars = replace(images, classes=("a$b", "$x_{$", "_^$$", "\\frac"))
    monkeypatch.setattr("logo_ssl.eval.results.load_data", lambda source, size: dollars)
    file = tmp_path / f"{'long' * 20}$1$.png"
    Image.new("RGB", (20, 20)).save(file)
    out = tmp_path / "out.png"
    Affinity(make_run().path, images=8, map=True, reference=(str(file), "1"), device="cpu", out=out).run()
    for picture in ("out.svg", "out-map.svg"):
        words = (tmp_path / picture).read_text()
        assert "...longlonglonglong$1$.png"[-20:] in words
        assert "$x_{$" in words
        assert str(tmp_path) not in words


def test_images_of_any_shape_have_room_of_one_size(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(affinity_map, "save_figure", lambda figure, *_: drawn.append(figure) or [])
    images = [
        Heated("own", np.zeros((*size, 3), np.uint8), np.zeros(size), np.zeros(size)) for size in ((20, 40), (30, 10))
    ]
    crop = np.zeros((8, 8, 3), np.uint8)
    draw_affinity_map([HeatMap("x", (0, 0, 4, 4), crop, images)], tmp_path / "x.png")
    drawn[0].canvas.draw()
    sides = [axes.get_window_extent().size for axes in drawn[0].axes if axes.images]
    np.testing.assert_allclose(sides, sides[0][None].repeat(len(sides), axis=0), rtol=1e-3)
    plt.close(drawn[0])
