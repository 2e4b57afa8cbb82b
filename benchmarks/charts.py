"""How soon a page's charts are there, and how large the page is: python benchmarks/charts.py reports/X/report.html

Prints the size of the page, of its script of charts and of their data; and in headless Chromium, the median of seven
tries, milliseconds from navigation to the first chart, to a redraw of all charts after a zoom, and per chart.

Chosen by it: a script of our own. The script of the same chart by Bokeh 3.9.2 is 1,268 kB; one chart of 2 x 1,081
samples in an otherwise empty page was there after 530 to 650 ms, 40 of them after 2,320 to 2,840 ms, on the same two
cores that took 600 to 1,050 ms for eight charts in the whole report.
"""

from __future__ import annotations

import re
import shutil
import statistics
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from buildcompare.figures import component

FIRST = """new MutationObserver(() => (window.first ??= performance.now())).observe(document, {
  subtree: true, attributes: true, attributeFilter: ["ready"] });"""
ALL = """async () => {
  const charts = [...document.querySelectorAll("build-chart")];
  await Promise.all(charts.map((chart) => chart.build()));
  const start = performance.now();
  for (const group of new Set(charts.map((chart) => chart.group))) group.change({ range: [10, 30] });
  charts.forEach((chart) => chart.getBoundingClientRect());
  return [performance.now() - start, charts.length];
}"""


def main(page: Path) -> None:
    """Measure `page`."""
    text = page.read_text("utf-8")
    data = sum(len(each) for each in re.findall(r'<build-chart [^>]*data="([^"]*)"', text))
    print(
        f"page {page.stat().st_size / 1e3:,.0f} kB, script {len(component()) / 1e3:,.0f} kB, data {data / 1e3:,.0f} kB"
    )
    first, redrawn, count = [], [], 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(7):
            tab = chromium.new_page(viewport={"width": 1280, "height": 900})
            tab.add_init_script(FIRST)
            tab.goto(f"{page.resolve().as_uri()}#ramp-up")
            tab.locator("build-chart[ready]").first.wait_for()
            first.append(tab.evaluate("window.first"))
            took, count = tab.evaluate(ALL)
            redrawn.append(took)
            tab.close()
    print(f"first chart {statistics.median(first):.0f} ms; zoom of {count} charts {statistics.median(redrawn):.0f} ms")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
