"""Do runs and their pages live with file names that are any bytes?"""

import io
import os

from PIL import Image
from rich.console import Console
from shown_runs import SMALL

from logo_ssl import pretrain
from logo_ssl.data.scenes import make_scenes
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.commands import Report
from logo_ssl.report.serve import PageRenewer
from logo_ssl.system.terminal import printable

ODD = os.fsdecode(b"\xff\xfe")


def test_a_run_is_trained_reported_and_watched_whose_images_have_names_that_are_no_text(tmp_path):
    images, _ = make_scenes(24, 16)
    for i, pixels in enumerate(images):
        place = tmp_path / "data" / ("ash", f"birch{ODD}")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place / f"{ODD}{i:02}.png")
    run = pretrain(SMALL, tmp_path / "run", data=str(tmp_path / "data"), epochs=1, console=Console(file=io.StringIO()))
    Report((run.path,), tmp_path / "report.html", images=24).run()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert r"birch\xff\xfe" in page
    keeper = PageRenewer([run.path], RunCollector(crops=False, images=24).collect)
    assert keeper.look()
    assert rb"birch\xff\xfe" in keeper.latest.page


def test_odd_text_is_printable():
    assert printable(f"caf\xe9{ODD}") == "caf\xe9\\xff\\xfe"
    assert printable("half\ud800") == r"half\ud800"
