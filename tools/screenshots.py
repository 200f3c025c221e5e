"""How does a report look? A picture of a page from its neighbours on, for the tutorial.

python tools/screenshots.py report.html docs/images/report.png
"""

import argparse
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

CHROMIUM = Path(sys.prefix) / "chromium" / "chromium"


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="what `logo-ssl report` wrote")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1120, "height": 1250}, color_scheme="light")
        view.goto(options.page.absolute().as_uri())
        view.add_style_tag(
            content="nav, .query:nth-child(n + 3) { display: none !important } html { scroll-padding: 1rem }"
        )
        view.locator("#neighbours").evaluate("(part) => part.scrollIntoView()")
        view.wait_for_timeout(2000)  # the map is drawn
        view.screenshot(path=options.out)
        browser.close()
    Image.open(options.out).quantize(128).save(options.out, optimize=True)


if __name__ == "__main__":
    main()
