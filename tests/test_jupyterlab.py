"""The notebook run by hand in JupyterLab: a pull shows how far it has come, and the report follows it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import BrowserThread
from prometheus_process import far_away, free_port
from prometheus_server import Prometheus, prometheus  # noqa: F401  # fixtures
from support import write_params
from test_pull import params

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DELAY_S = 0.4
"""Added to each round trip, so that a pull takes seconds and can be looked at."""
LIMIT_MS = 40_000


@pytest.fixture
def laboratory(tmp_path: Path, project: Path, prometheus: Prometheus) -> Iterator[str]:  # noqa: F811
    """The address of a JupyterLab in a project folder of its own, whose PARAMS are pulled from a server far away."""
    folder = tmp_path / "project"
    (folder / "params").mkdir(parents=True)
    (folder / "params/metrics").symlink_to(project / "params/metrics")
    shutil.copytree(project / "notebooks", folder / "notebooks")
    with far_away(prometheus.url, DELAY_S) as url:
        write_params(folder / "params/pulled.yaml", params(url))
        port = free_port()
        home = tmp_path / "home"
        home.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG_"))}
        environment |= {"HOME": str(home), "BUILDCOMPARE_ROOT": str(folder), "PARAMS": "params/pulled.yaml"}
        environment |= {"JUPYTER_PREFER_ENV_PATH": "1"}
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1"]
        command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
        command += ["--IdentityProvider.token=", "--ServerApp.allow_root=True", f"--LabApp.user_settings_dir={home}"]
        with (tmp_path / "jupyterlab.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/api/status", process, tmp_path / "jupyterlab.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no JupyterLab after 60 s: {log.read_text()}")


def test_a_pull_by_hand_shows_how_far_it_is(laboratory: str, browser: BrowserThread, tmp_path: Path) -> None:
    seen: dict[str, str] = {}
    shots = Path(os.environ.get("BUILDCOMPARE_SCREENSHOTS") or tmp_path)

    def by_hand(browser: Browser) -> None:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        try:
            page = context.new_page()
            page.set_default_timeout(LIMIT_MS)
            page.goto(f"{laboratory}/lab/tree/notebooks/comparison.ipynb")
            page.locator(".jp-RenderedMarkdown h1", has_text="Two builds").wait_for()
            page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for(state="attached")
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_text("Run All Cells", exact=True).click()
            for done, words in (("0/2", "postgresql_bounded, base, run 1"), ("1/2", "postgresql_bounded, new, run 1")):
                progress = page.locator(".jp-OutputArea-output", has_text=done).last
                progress.wait_for()
                progress.scroll_into_view_if_needed()
                page.screenshot(path=shots / f"pulling-{done[0]}.png")
                seen[done] = progress.inner_text()
                assert words in seen[done]
            page.locator(".jp-OutputArea-output", has_text="results.json").last.wait_for()
            progress = page.locator(".jp-OutputArea-output", has_text="2/2").last
            progress.scroll_into_view_if_needed()
            page.screenshot(path=shots / "pulled.png")
            seen["errors"] = str(page.locator("[data-mime-type='application/vnd.jupyter.error']").count())
            seen["stderr"] = str(page.locator("[data-mime-type='application/vnd.jupyter.stderr']").count())
        finally:
            context.close()

    browser.run(by_hand)
    assert seen["errors"] == seen["stderr"] == "0"
    assert "━" in seen["1/2"]
