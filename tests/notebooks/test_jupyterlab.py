"""The notebook in a real JupyterLab: a pull shows its progress, and the report follows."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from buildcompare.results.codes import Pair
from conftest import BrowserThread
from jupyterlab_server import KEEP_CELLS, QUIET, jupyterlab, page_of, run_all_cells
from prometheus_server import Servers, proxying
from pulling import params
from support import write_params

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INTO_VIEW = "element => element.scrollIntoView({block: 'center'})"


@dataclass(frozen=True)
class Laboratory:
    """The address of a JupyterLab, and the gates behind which the servers of both builds wait."""

    url: str
    gates: Pair[threading.Event]


@pytest.fixture
def laboratory(tmp_path: Path, project: Path, servers: Servers) -> Iterator[Laboratory]:
    """A JupyterLab in a project folder of its own, whose PARAMS are pulled; each server waits for its gate to open."""
    folder = tmp_path / "project"
    (folder / "params").mkdir(parents=True)
    (folder / "params/metrics").symlink_to(project / "params/metrics")
    shutil.copytree(project / "notebooks", folder / "notebooks")
    server, gates = servers("prometheus").url, Pair(threading.Event(), threading.Event())
    base_gate, new_gate = (lambda _, gate=gate: gate.wait(600) for gate in (gates.base, gates.new))
    with proxying(server, base_gate) as base, proxying(server, new_gate) as new:
        pulled = params(base.url, timeout_s=600)
        pulled["tests"][0]["new"]["url"] = new.url
        write_params(folder / "params/pulled.yaml", pulled)
        with jupyterlab(folder, tmp_path / "home", KEEP_CELLS | QUIET, PARAMS="params/pulled.yaml") as url:
            yield Laboratory(url, gates)


def test_a_pull_shows_its_progress(laboratory: Laboratory, browser: BrowserThread, tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    shots = Path(os.environ.get("BUILDCOMPARE_SCREENSHOTS") or tmp_path)

    def by_hand(browser: Browser) -> None:
        with page_of(browser, f"{laboratory.url}/lab/tree/notebooks/comparison.ipynb") as page:
            run_all_cells(page, "comparison")
            for (side, gate), done in zip(laboratory.gates.items(), ("0/2", "1/2"), strict=True):
                shown = re.compile(rf"postgresql_bounded, {side}, run 1.*{done}", re.DOTALL)
                progress = page.locator(".jp-RenderedHTML", has_text=shown).first  # it stays until the gate opens
                progress.evaluate(INTO_VIEW)
                page.screenshot(path=shots / f"pulling-{done[0]}.png")
                gate.set()
            page.get_by_text("reports/pulled/results.json").wait_for(state="attached")
            cell = page.locator(".jp-CodeCell", has_text="bc.compare(comparison").first
            cell.evaluate(INTO_VIEW)
            page.screenshot(path=shots / "pulled.png")
            seen["after"] = cell.inner_text()

    browser.run(by_hand)
    assert "recordings" in seen["after"]
    assert "2/2" in seen["after"]
