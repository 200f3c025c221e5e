"""How does the report look? Pictures of a run's page for the README: wide and light, narrow and dark.

python tools/screenshots.py RUN docs/images
"""

import argparse
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from logo_ssl.report.commands import Report

CHROMIUM = Path(sys.prefix) / "chromium" / "chromium"
LOOKS = {
    "report-wide": {"viewport": {"width": 1200, "height": 1440}, "color_scheme": "light"},
    "report-narrow": {"viewport": {"width": 412, "height": 1440}, "color_scheme": "dark"},
}
BEGINS = {"report-wide": "#map-of-features", "report-narrow": "h1"}


def main() -> None:
    """Write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        Report((options.run,), page).run()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, look in LOOKS.items():
            view = browser.new_page(**look)
            view.goto(page.as_uri())
            view.wait_for_function("document.querySelectorAll('.plot .main-svg').length > 0")
            view.locator(BEGINS[name]).evaluate("(part) => part.scrollIntoView()")
            view.wait_for_timeout(1000)  # pictures are loaded when they are near
            view.screenshot(path=options.folder / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
