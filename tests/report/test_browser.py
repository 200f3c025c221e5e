"""Does the page work in a real browser? Chromium without a screen, and a page from disk of runs that were trained."""

import io
import json
import os
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console
from shown_runs import SMALL

from logo_ssl import pretrain
from logo_ssl.data.scenes import make_scenes
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.commands import Report
from logo_ssl.report.serve import PageRenewer, open_server, serving
from logo_ssl.run import Run

CHROMIUM = Path(sys.prefix) / "chromium" / "chromium"
HOSTILE = "<img src=x onerror=document.title='taken'>"
CLASSES = ("ash", "birch", f"<b>elm & {HOSTILE}")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-sync"]


@pytest.fixture(scope="module")
def browser():
    """Chromium, as `make test` sets it up."""
    if not CHROMIUM.is_file():
        missing = CHROMIUM.with_name("why-not.txt")
        reason = missing.read_text().strip() if missing.is_file() else "run tools/chromium .venv/chromium"
        if os.environ.get("LOGO_BROWSER") == "required":
            pytest.fail(f"No browser: {reason}")
        pytest.skip(f"no browser: {reason}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield program
        program.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs on scenes in class folders, one with a name that is HTML; so are a class and all files."""
    root = tmp_path_factory.mktemp("browser")
    images, _ = make_scenes(72, 32)
    for i, pixels in enumerate(images):
        place = root / "data" / ("train" if i < 48 else "val") / CLASSES[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place / f"{HOSTILE} {i:02}.png")
    (root / "data" / "train" / "ash" / f"{HOSTILE}.jpg").write_bytes(b"broken")
    for name, seed in (("first", 0), (HOSTILE, 1)):
        said = Console(file=io.StringIO())
        pretrain(SMALL, root / name, data=str(root / "data"), seed=seed, console=said)
    return root


@pytest.fixture(scope="module")
def file(folder) -> Path:
    """The report of both runs."""
    out = folder / "report.html"
    Report((folder / "first", folder / HOSTILE), out, images=24).run()
    return out


def until(page, condition, seconds=30):
    """Wait for a condition, asked from outside: the pages forbid what Playwright's own waiting does inside."""
    for _ in range(10 * seconds):
        if page.evaluate(f"() => {{ try {{ return {condition}; }} catch (error) {{ return false; }} }}"):
            return
        page.wait_for_timeout(100)
    raise AssertionError(condition)


class Opened:
    """A page, with what it said and what it asked for."""

    def __init__(self, browser, address, width=1200, **options) -> None:
        self.context = browser.new_context(**{"viewport": {"width": width, "height": 900}} | options)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        until(self.page, "document.querySelectorAll('output .tile').length > 0")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.fixture(scope="module")
def opened(browser, file):
    """The report from disk, without any network."""
    with Opened(browser, file.as_uri(), offline=True) as opened:
        yield opened


@pytest.fixture
def page(opened):
    return opened.page


COLOURS_OF_MAP = """
[...document.querySelectorAll('details.of-run[open] canvas')].map((canvas) => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
})
"""


def test_curves_maps_and_images_are_drawn_without_errors_or_network(opened):
    page = opened.page
    assert page.locator("[data-plot]").count() == 11
    assert page.evaluate("all('[data-plot]').every((plot) => plot.querySelectorAll('.line[d*=L]').length === 2)")
    assert page.evaluate("document.images.length") > 40
    assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    assert page.locator("[data-map]").count() == 2
    assert all(colours > 100 for colours in page.evaluate(COLOURS_OF_MAP))
    assert opened.said == []
    assert all(address.startswith(("file:", "data:")) for address in opened.asked)


def test_another_reference_shows_its_bars_by_keyboard(page):
    shown = "all('.affinity')[0].querySelectorAll('.reference').values().filter((part) => part.checkVisibility())"
    first = page.evaluate(f"[...{shown}].map((part) => part.textContent)")
    page.locator("[name=reference-0]").first.focus()
    page.keyboard.press("ArrowRight")
    second = page.evaluate(f"[...{shown}].map((part) => part.textContent)")
    assert len(first) == len(second) == 1
    assert first != second
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("all('.pair i').some((bar) => bar.offsetHeight > 50)")


LOOKED_AT = "document.querySelector('[data-map] output strong').textContent"


def test_an_image_is_looked_at_by_mouse_slider_and_from_neighbour_to_neighbour(page):
    first, slider, canvas = page.evaluate(LOOKED_AT), page.locator("[type=range]").first, page.locator("canvas").first
    assert page.locator("[data-map] >> nth=0 >> output li").count() == 6
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1"
    second = page.evaluate(LOOKED_AT)
    assert second != first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    seen = set()
    for x in range(1, 12):
        page.mouse.move(box["x"] + x * box["width"] / 12, box["y"] + box["height"] / 2)
        seen.add(page.evaluate(LOOKED_AT))
    assert len(seen) > 2
    slider.focus()
    page.keyboard.press("Home")
    assert page.evaluate(LOOKED_AT) == first


def test_zoom_points_and_groups_change_the_map(page):
    drawn = "document.querySelector('canvas').toDataURL()"
    pictures = [page.evaluate(drawn)]
    for change in (
        "[data-zoom='1.6']",
        "[name=look-0][value=points]",
        "[name=projection-0][value=PCA]",
        "[data-group='0']",
    ):
        page.locator(change).first.click()
        pictures.append(page.evaluate(drawn))
    assert len(set(pictures)) == len(pictures)
    for back in (
        "[data-zoom='0']",
        "[name=look-0][value=images]",
        "[name=projection-0][value=t-SNE]",
        "[data-group='0']",
    ):
        page.locator(back).first.click()
    assert page.evaluate(drawn) == pictures[0]


def test_a_pointer_over_a_curve_shows_each_runs_value(page):
    plot = page.locator("[data-plot='1']")
    plot.hover()
    words = plot.locator(".tip").all_text_contents()
    assert words[0].startswith("epoch ")
    assert [word.split()[0] for word in words[1:]] == ["first", "<img"]


def test_hostile_names_are_text(page):
    text = page.locator("body").inner_text()
    assert HOSTILE in text
    assert CLASSES[2] in page.locator(".legend").first.inner_text()
    assert f"{HOSTILE}.jpg" in page.locator("section:has(#settings)").text_content()
    assert any(CLASSES[2] in words for words in page.locator(".reference figcaption").all_text_contents())
    assert "onerror" in page.evaluate(LOOKED_AT)
    assert page.title().startswith("LoGo: ")
    assert page.evaluate("document.querySelectorAll('[onerror], img[src=x]').length") == 0


def test_a_run_that_is_not_chosen_leaves_the_curves(page):
    boxes, lines = page.locator("[data-run]"), page.locator("[data-plot='0'] .line")
    for i in range(boxes.count()):
        assert lines.count() == boxes.count() - i
        boxes.nth(i).uncheck()
    assert lines.count() == 0
    for i in range(boxes.count()):
        boxes.nth(i).check()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_axe_finds_no_serious_violation_and_nothing_is_wider_than_the_screen(browser, file, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    with Opened(browser, file.as_uri(), width, color_scheme=scheme) as opened:
        page = opened.page
        page.evaluate("all('details').forEach((part) => (part.open = true))")
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response
        serious = [rule for rule in found["violations"] if rule["impact"] in ("serious", "critical")]
        told = {rule["id"]: [node["html"][:200] for node in rule["nodes"][:3]] for rule in serious}
        assert told == {}
        assert len(found["passes"]) > 20
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("all('caption > span').every((part) => part.getBoundingClientRect().right <= innerWidth)")


def test_print_shows_what_is_folded_and_no_controls(browser, file):
    with Opened(browser, file.as_uri(), 718) as opened:
        page = opened.page
        page.locator("[data-run='1']").uncheck()
        page.emulate_media(media="print")
        shown = "all(`{}`).filter((part) => part.checkVisibility({{ contentVisibilityAuto: true }})).length"
        assert page.evaluate(shown.format(".chosen-runs label")) == 1
        assert page.evaluate(shown.format("input, nav, button[data-zoom]")) == 0
        assert page.evaluate("all('[data-plot]').every((plot) => plot.getBoundingClientRect().height > 100)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 718


@pytest.fixture
def watched(folder):
    """The address of a watched page, its keeper, and a function that renews what is served."""
    run = Run(folder / "first")
    keeper, whole = PageRenewer([run.path], RunCollector(crops=False, images=24).collect), run.metrics_file.read_text()
    keeper.look()

    def renew(loss):
        run.metrics_file.write_text(whole + json.dumps({"step": 99, "loss": loss, "epoch": 1}) + "\n")
        assert keeper.look()

    with serving(open_server("127.0.0.1", 0, lambda: keeper.latest)) as address:
        yield address, keeper, renew
    run.metrics_file.write_text(whole)


def test_a_watched_page_renews_itself_and_keeps_choices_focus_and_scroll(browser, watched):
    address, keeper, renew = watched
    assert b'aria-live="polite"' not in keeper.latest.page
    with Opened(browser, address, 320) as opened:
        page = opened.page
        until(
            page, "all('output').every((part) => part.ariaLive === 'polite')"
        )  # only what changes later is read aloud
        page.locator("[name=reference-0]").nth(2).check()
        page.locator("summary").last.click()
        for i, selector in enumerate(
            ("[type=range]", "[name=reference-0] >> nth=2", "summary >> nth=-1", "nav a >> nth=1")
        ):
            page.locator(selector).focus()
            before = page.evaluate("keyOf(document.activeElement)")
            page.evaluate("all('.wide').forEach((part) => (part.scrollLeft = 7))")
            scrolled = page.evaluate("all('.wide').map((part) => part.scrollLeft)")
            assert 7 in scrolled
            renew(1.5 + i)
            page.evaluate("Promise.all([refresh(), refresh()])")  # as when an answer takes longer than the next asking
            until(page, f"told('plots')[0].traces[0].y.concat(told('plots')[1].traces[0].y).includes({1.5 + i})")
            assert page.evaluate("keyOf(document.activeElement)") == before
            assert page.evaluate("all('.wide').map((part) => part.scrollLeft)") == scrolled
        assert page.locator("[name=reference-0]").nth(2).is_checked()
        assert page.locator("details").last.get_attribute("open") is not None
        assert "Last renewed at " in page.locator("#renewed").text_content()
        assert opened.said == []


def test_trouble_is_on_the_page_as_text_and_a_refusal_is_not_a_page(watched, browser):
    address, keeper, _ = watched
    with Opened(browser, address) as opened:
        page = opened.page
        keeper.latest = keeper.latest._replace(trouble="<b>it broke")
        page.evaluate("refresh()")
        until(page, "document.getElementById('news').textContent === '<b>it broke'")
        page.route("**/version", lambda route: route.fulfill(status=500, body="no"))
        page.evaluate("refresh()")
        until(page, "document.getElementById('news').textContent.includes('does not answer since')")
        assert page.locator("h1").count() == 1
