"""Do runs and their pages live with file names that are any bytes?"""

import io
import os

import pytest
from PIL import Image
from rich.console import Console
from rich.table import Table
from shown_runs import SMALL

from logo_ssl import pretrain
from logo_ssl.cli import main
from logo_ssl.data.scenes import make_scenes
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.commands import Report
from logo_ssl.report.serve import PageRenewer
from logo_ssl.system.terminal import plain_console
from logo_ssl.system.text import printable

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


OBEYED = "red\x1b[31m"


def test_a_sentence_about_what_went_wrong_holds_no_command_to_the_terminal(capsys):
    with pytest.raises(SystemExit):
        main(["report", f"{OBEYED}{ODD}"])
    told = capsys.readouterr().err
    assert r"red\x1b[31m\xff\xfe is not a run" in told


def test_tables_are_harmless_too_and_fit_what_the_terminal_can_write():
    table = Table()
    table.add_column(f"name{ODD}", width=20)
    table.add_row(OBEYED)
    for encoding in ("utf-8", "ascii"):
        console = plain_console()
        console.file = io.TextIOWrapper(io.BytesIO(), encoding, errors="strict")
        console.print(table)
        console.print(f"caf\xe9 {ODD}\u2028\ttab")
        console.file.flush()
        written = console.file.buffer.getvalue()
        assert rb"red\x1b[31m" in written
        assert rb"name\xff\xfe" in written
        assert b"\x1b" not in written
    assert rb"caf\xe9 \xff\xfe\u2028" in written
