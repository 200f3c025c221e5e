"""Does the page work in a real browser? Chromium without a screen, and a page from disk of runs that were trained."""

import io
import json
import os
import re
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
from logo_ssl.report.html import plotly
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

    def __init__(self, browser, address, **options) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}} | options)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(address)
        until(self.page, "document.querySelectorAll('.plot .main-svg').length > 0")

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


def test_every_plot_is_drawn_without_errors_or_network(opened):
    page, places = opened.page, opened.page.locator(".plot")
    kinds = {kind: page.locator(f".plot[data-{kind}]").count() for kind in ("plot", "map", "bars")}
    assert kinds == {"plot": 11, "map": 4, "bars": 2}
    for i in range(places.count()):
        place = places.nth(i)
        box = place.locator(".main-svg").first.bounding_box()
        assert box["width"] > 100
        assert box["height"] > 100
        assert place.locator("path.js-line, path.point, .points path").count() > 0, place.get_attribute("aria-label")
    assert opened.said == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in opened.asked)


def test_every_picture_is_shown(page):
    page.evaluate("[...document.images].forEach((image) => (image.loading = 'eager'))")
    until(page, "[...document.images].every((image) => image.complete)")
    assert page.evaluate("document.images.length") > 40
    assert page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")


@pytest.mark.parametrize("which", [-3, -1])
def test_links_lead_to_their_headings_though_pictures_come_late(browser, file, which):
    with Opened(browser, file.as_uri(), offline=True) as opened:
        page, link = opened.page, opened.page.locator("nav a").nth(which)
        target = link.get_attribute("href")
        link.click()
        page.wait_for_timeout(1000)
        top, below = page.evaluate(
            f"[document.getElementById('{target[1:]}').getBoundingClientRect().top,"
            " document.documentElement.scrollHeight - innerHeight - scrollY]"
        )
        assert -5 <= top <= 60 or below <= 1, (target, top, below)


def test_another_reference_changes_the_bars_by_keyboard(page):
    def bars():
        return page.evaluate("document.querySelector('[data-bars]').data.slice(0, 2).map((trace) => trace.y)")

    def heights():
        return page.evaluate(
            "[...document.querySelectorAll('[data-bars=\"0\"] .point path')].map((p) => p.getAttribute('d'))"
        )

    before, drawn, means = bars(), heights(), page.locator("[data-means]").first.text_content()
    page.locator("[name=reference-0]").first.focus()
    page.keyboard.press("ArrowRight")
    after = bars()
    assert page.locator("[name=reference-0]").nth(1).is_checked()
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert heights() != drawn
    assert page.locator("[data-means]").first.text_content() != means
    label = page.locator("[data-bars]").first.get_attribute("aria-label")
    assert page.locator("[data-means]").first.text_content() in label
    page.keyboard.press("ArrowLeft")
    assert bars() == before


def test_hovering_over_a_point_shows_its_image(page):
    picture = page.locator("[data-looked='0'] img")
    page.locator("[data-map='0']").first.scroll_into_view_if_needed()
    before = picture.get_attribute("src")
    points = page.locator("[data-map='0']").first.locator(".points path")
    points.nth(points.count() // 2).hover(force=True)
    until(page, "document.querySelector(\"[data-slider='0']\").value !== '0'")
    assert picture.get_attribute("src") != before
    assert picture.get_attribute("src").startswith("data:image/webp")
    page.mouse.move(0, 0)
    until(page, "!document.querySelector(\"[data-map='0'] .hoverlayer > *\")")


def test_the_slider_goes_from_image_to_image_on_every_map(opened):
    page = opened.page
    page.reload()
    until(page, "document.querySelectorAll('[data-map] .main-svg').length > 0")
    picture, slider = page.locator("[data-looked='0'] img"), page.locator("[data-slider='0']")
    ring = "[...document.querySelectorAll('[data-map=\"0\"]')].map((map) => map.data.at(-1).x[0])"
    first, places = picture.get_attribute("src"), page.evaluate(ring)
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "1"
    assert picture.get_attribute("src") != first
    assert all(one != other for one, other in zip(places, page.evaluate(ring), strict=True))
    page.keyboard.press("Home")
    assert picture.get_attribute("src") == first


def test_hostile_names_are_text(page):
    text = page.locator("main").inner_text()
    assert HOSTILE in text
    assert CLASSES[2] in page.locator(".legend").first.inner_text()
    assert f"{HOSTILE}.jpg" in page.locator("section:has(#bad-images)").inner_text()
    titles = page.locator("[data-bars] .annotation-text").all_text_contents()
    assert any(CLASSES[2] in title for title in titles)
    names = page.evaluate("[...document.querySelectorAll('[data-looked]')].map((output) => output.textContent)")
    assert all("onerror" in name for name in names)
    assert page.title().startswith("LoGo: ")
    assert page.evaluate("document.querySelectorAll('[onerror], img[src=x]').length") == 0


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_axe_finds_no_serious_violation_and_nothing_is_wider_than_the_screen(browser, file, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    with Opened(browser, file.as_uri(), viewport={"width": width, "height": 844}, color_scheme=scheme) as opened:
        found = Axe().run(opened.page, options={"resultTypes": ["violations"]}).response
        serious = [rule for rule in found["violations"] if rule["impact"] in ("serious", "critical")]
        told = {rule["id"]: [node["html"][:200] for node in rule["nodes"][:3]] for rule in serious}
        assert told == {}
        assert len(found["passes"]) > 20
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture
def watched(folder):
    """The address of a watched page, its keeper, and a function that renews what is served."""
    run = Run(folder / "first")
    keeper, whole = PageRenewer([run.path], RunCollector(crops=False, images=24).collect), run.metrics_file.read_text()
    keeper.look()

    def renew(loss):
        run.metrics_file.write_text(whole + json.dumps({"step": 99, "loss": loss, "epoch": 1}) + "\n")
        assert keeper.look()

    with serving(open_server("127.0.0.1", 0, lambda: keeper.latest, plotly().encode())) as address:
        yield address, keeper, renew
    run.metrics_file.write_text(whole)


LAST_LOSS = "document.querySelector('[data-plot=\"1\"]').data[0].y.at(-1)"


def test_a_watched_page_renews_itself_and_keeps_what_was_chosen(browser, watched):
    address, _, renew = watched
    with Opened(browser, address) as opened:
        page = opened.page
        page.locator("[name=reference-0]").nth(2).check()
        assert page.evaluate(LAST_LOSS) != 1.25
        renew(1.25)
        page.evaluate("refresh()")
        until(page, f"{LAST_LOSS} === 1.25")
        assert re.fullmatch(r"Last renewed at \d\d:\d\d:\d\d\.", page.locator("#renewed").text_content())
        assert page.locator("[name=reference-0]").nth(2).is_checked()
        assert page.locator("[data-bars='0'] .main-svg").count() > 0
        assert sum(each.endswith("plotly.js") for each in opened.asked) == 1
        assert opened.said == []


def test_a_renewed_page_keeps_focus_and_scroll_and_leaves_no_plots_behind(browser, watched):
    address, _, renew = watched
    with Opened(browser, address, viewport={"width": 320, "height": 600}) as opened:
        page = opened.page
        purged = (
            "window.purged = 0; const purge = Plotly.purge; Plotly.purge = (x) => { window.purged += 1; purge(x); }"
        )
        page.evaluate(f"() => {{ {purged} }}")
        plots = page.locator(".plot").count()
        focused = "keyOf(document.activeElement)"
        for i, selector in enumerate(
            ("[data-slider]", "[name=reference-0] >> nth=0", "summary >> nth=-1", "nav a >> nth=1")
        ):
            page.locator(selector).focus()
            before = page.evaluate(focused)
            page.evaluate("all('.wide').forEach((part) => (part.scrollLeft = 7))")
            scrolled = page.evaluate("all('.wide').map((part) => part.scrollLeft)")
            assert 7 in scrolled
            renew(1.5 + i)
            page.evaluate("Promise.all([refresh(), refresh()])")  # as when an answer takes longer than the next asking
            until(page, f"{LAST_LOSS} === {1.5 + i}")
            assert page.evaluate(focused) == before
            assert page.evaluate("all('.wide').map((part) => part.scrollLeft)") == scrolled
            assert page.evaluate("purged") == plots * (i + 1)
        assert opened.said == []


def test_only_what_changes_later_is_read_aloud(watched, browser):
    address, _, _ = watched
    with Opened(browser, address) as opened:
        until(opened.page, "all('output').every((part) => part.ariaLive === 'polite')")
    assert b'aria-live="polite"' not in watched[1].latest.page


def test_trouble_is_told_on_the_page_and_a_refusal_is_no_page(watched, browser):
    address, keeper, _ = watched
    with Opened(browser, address) as opened:
        page = opened.page
        keeper.latest = keeper.latest._replace(trouble="<b>it broke")
        page.evaluate("refresh()")
        until(page, "document.getElementById('news').textContent === '<b>it broke'")
        page.route("**/version", lambda route: route.fulfill(status=500, body="no"))
        page.evaluate("refresh()")
        until(page, "document.getElementById('news').textContent.includes('does not answer since')")
        assert page.evaluate("getComputedStyle(document.getElementById('news')).paddingLeft") == "16px"
        assert page.locator("main h1").count() == 1


def test_without_any_chosen_run_the_page_says_so_instead_of_empty_charts(page):
    boxes, told, charts = page.locator("[data-run]"), page.locator("[data-none]"), page.locator("[data-plot='0']")
    assert not told.is_visible()
    lines = page.locator("[data-plot='0'] path.js-line")
    for i in range(boxes.count()):
        assert lines.count() == boxes.count() - i
        boxes.nth(i).uncheck()
    assert told.is_visible()
    assert not charts.is_visible()
    for i in range(boxes.count()):
        boxes.nth(i).check()
    assert not told.is_visible()
    assert lines.count() == 2


def test_curves_and_bars_have_their_legend_in_print(browser, file):
    with Opened(browser, file.as_uri()) as opened:
        page = opened.page
        page.locator("[data-run='1']").uncheck()
        page.locator("[name=reference-0]").nth(1).check()
        page.emulate_media(media="print")
        shown = "all(`{}`).filter((part) => part.checkVisibility()).length"
        assert page.locator("fieldset.runs .swatch").first.is_visible()
        assert page.evaluate(shown.format(".runs label")) == 1
        assert page.evaluate(shown.format("[data-choice='0'] label")) == 1
        assert page.evaluate(shown.format("input")) == 0
        page.set_viewport_size({"width": 718, "height": 1000})
        until(page, "document.documentElement.scrollWidth <= 718")


def test_on_a_phone_what_is_wider_than_the_screen_says_so_and_captions_are_whole(browser, file):
    with Opened(browser, file.as_uri(), viewport={"width": 375, "height": 800}) as opened:
        page = opened.page
        page.evaluate("[...document.images].forEach((image) => (image.loading = 'eager'))")
        until(page, "[...document.images].every((image) => image.complete)")
        until(
            page,
            "all('.wide').every((part) => part.classList.contains('more') === part.scrollWidth > part.clientWidth + 2)",
        )
        hints = "all('.wide.scrolls').map((part) => getComputedStyle(part, '::before').content)"
        assert all("scroll sideways" in hint for hint in page.evaluate(hints))
        assert page.evaluate("all('.sheet.scrolls').length") > 0
        assert page.evaluate("all('[data-bars]').every((part) => part.parentElement.matches('.more'))")
        assert page.evaluate("all('caption > span').every((part) => part.getBoundingClientRect().right <= 375)")
        assert page.evaluate("document.querySelector('.stacked').parentElement.scrollWidth") <= 375
        page.evaluate("all('.wide').forEach((part) => (part.scrollLeft = 9999))")
        until(page, "all('.more').length === 0 && all('.scrolls').length > 0")
