"""Takes the README's pictures of a published report: `python docs/screenshots.py reports/v10.4.0-rc1/report.html`.

Of `reports/missing-index/report.html` it takes the top alone, for `docs/example.md`.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
WIDTH, TELEPHONE, TOP, EXAMPLE, COLOURS = 1000, 380, 1000, 800, 256
"""Pixels; few colours keep the files small."""


def main(report: Path) -> None:
    """The top of the page, also on a telephone, its first printed sheet, a ramp-up in dark, charts with a cursor."""
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--headless", "--no-sandbox"])
        pictures = (
            ("light", "report.png"), ("light", "telephone.png"), ("light", "print.png"), ("dark", "ramp-up.png"),
            ("light", "charts.png"),
        )  # fmt: skip
        for scheme, name in (("light", "example.png"),) if report.parent.name == "missing-index" else pictures:
            height = EXAMPLE if name == "example.png" else TOP
            width = TELEPHONE if name == "telephone.png" else WIDTH
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(report.resolve().as_uri())
            if name in ("report.png", "telephone.png", "example.png"):
                shot = page.screenshot()
            elif name == "print.png":
                command = ["pdftoppm", "-r", "60", "-png", "-f", "1", "-l", "1", "-"]
                shot = subprocess.run(command, input=page.pdf(format="A4"), check=True, stdout=subprocess.PIPE).stdout
            elif name == "ramp-up.png":
                region = page.locator("#ramp-up ~ .pictures").first
                region.scroll_into_view_if_needed()
                page.locator("#ramp-up ~ .pictures .picture[open] build-chart[ready]").nth(1).wait_for()
                page.locator("#ramp-up").evaluate("element => element.scrollIntoView()")
                box = region.bounding_box()
                shot = page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"] + 16})
            else:
                region = page.locator("#metrics ~ .pictures").first
                for each in range(4):
                    region.locator("summary").nth(each).click()
                region.evaluate("element => element.previousElementSibling.previousElementSibling.scrollIntoView()")
                region.locator("build-chart .plot").first.hover()
                shot = page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": 720})
            Image.open(io.BytesIO(shot)).convert("RGB").quantize(COLOURS).save(DOCS / name, optimize=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
