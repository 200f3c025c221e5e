"""Do the pages and pictures about a run come out, and does a browser show the pages?"""

import json
import os
import re
import shutil
import signal
import sys
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from command_line import ended, here, options, started
from PIL import Image

CHROMIUM = Path(sys.prefix) / "chromium" / "chromium"


class Page(HTMLParser):
    """What a page asks the network for, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.text: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {("script", "src"), ("link", "href"), ("img", "src")}
        self.addresses += [value for name, value in attrs if (tag, name) in wanted and value]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory, run, trained) -> Path:
    """The report of two runs that differ in their framework, one of them measured, with figures beside it."""
    folder = tmp_path_factory.mktemp("report")
    shutil.copytree(run, folder / "measured")
    assert here("eval", "knn", "measured", "--protocols", "5", "0.07", cwd=folder).code == 0
    changes = {f"framework__{name}": None for name in ("head", "queue", "tau", "m", "splits")}
    other = trained("other-framework", framework="simclr", **changes)
    done = here("report", "measured", other, "--out", "page.html", "--figures", "figures", "--images", "16", cwd=folder)
    assert done.code == 0, done.err
    return folder / "page.html"


def test_a_report_is_one_file_that_needs_no_network_and_holds_figures_and_settings(page):
    parsed = Page(page.read_text())
    assert all(address.startswith(("data:", "#")) for address in parsed.addresses)
    text = " ".join(parsed.text)
    record = json.loads(next((page.parent / "measured" / "evaluation").glob("*.json")).read_text())
    for told in ("measured", "other-framework", "simclr", "moco", f"{record['results'][0]['top1']:.2f}"):
        assert told in text, told
    assert {file.suffix for file in (page.parent / "figures").iterdir()} == {".svg", ".png"}
    for file in (page.parent / "figures").glob("*.png"):
        with Image.open(file) as picture:
            assert min(picture.size) > 100, file


def test_the_report_opens_in_a_browser_without_errors(page):
    if not CHROMIUM.is_file():
        missing = CHROMIUM.with_name("why-not.txt")
        reason = missing.read_text().strip() if missing.is_file() else "run tools/chromium .venv/chromium"
        if os.environ.get("LOGO_BROWSER") == "required":
            pytest.fail(f"No browser: {reason}")
        pytest.skip(f"no browser: {reason}")
    from playwright.sync_api import sync_playwright

    complaints, asked = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        opened = browser.new_context(offline=True, viewport={"width": 1200, "height": 900}).new_page()
        opened.on("console", lambda message: complaints.append(message.text))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(page.as_uri())
        for _ in range(300):  # the page forbids what Playwright's own waiting does inside
            if opened.evaluate("document.querySelectorAll('svg').length") > 5:
                break
            opened.wait_for_timeout(100)
        plots = opened.evaluate("document.querySelectorAll('svg').length")
        title, wide = opened.title(), opened.evaluate("document.documentElement.scrollWidth")
        browser.close()
    assert plots > 5
    assert title
    assert wide <= 1200
    assert complaints == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in asked)


def test_a_report_of_a_folder_of_runs_shows_those_below_it(logo, cwd, run):
    for name in ("first", "second"):
        shutil.copytree(run, cwd / "runs" / name)
    done = logo("report", "runs", "--out", "page.html", "--no-crops", "--images", "0")
    assert done.code == 0, done.err
    text = " ".join(Page((cwd / "page.html").read_text()).text)
    assert "first" in text
    assert "second" in text


def test_watch_serves_the_page_until_ctrl_c(tmp_path, own_run):
    process = started("watch", own_run, "--port", "0", "--no-crops", "--images", "0", "--every", "0.2", cwd=tmp_path)
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        with urllib.request.urlopen(found[0], timeout=60) as answer:
            assert own_run.name in answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
    end = ended(process)
    assert end.code in (0, 130)
    assert "Traceback" not in end.err


def test_affinity_draws_and_measures_both_measures(logo, own_run):
    done = logo("affinity", own_run, "--map", "--images", "16", "--rows", "1", "--seed", "3")
    assert done.code == 0, done.err
    for name in ("affinity.png", "affinity.svg", "affinity-map.png"):
        assert (own_run / "figures" / name).stat().st_size > 0, name
    (file,) = (own_run / "evaluation").glob("affinity*.json")
    record = file.read_text()
    for told in ("learned", "cosine", "auc"):
        assert told in record.lower(), told


def test_affinity_takes_a_reference_and_a_place_for_its_picture(logo, cwd, own_run, data, tmp_path):
    Image.fromarray(np.load(data)["test_images"][3]).save(tmp_path / "reference.png")
    words = ("--reference", "0", f"{tmp_path / 'reference.png'}:4,4,16,16", "--images", "8", "--out", "drawn.png")
    done = logo("affinity", own_run, *words)
    assert done.code == 0, done.err
    with Image.open(cwd / "drawn.png") as picture:
        assert min(picture.size) > 100


def test_crops_are_drawn_alike_for_a_seed_and_differently_for_another(logo, cwd, data):
    small = options(epochs=None, loggers=None, knn_every=None)
    for out, seed in (("a.png", 0), ("b.png", 0), ("c.png", 1)):
        words = options(of=tuple(small), seed=seed)
        done = logo("show-crops", "tiny", "--data", data, "--out", out, "--images", "2", *words)
        assert done.code == 0, done.err
    a, b, c = (np.asarray(Image.open(cwd / out)) for out in ("a.png", "b.png", "c.png"))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
