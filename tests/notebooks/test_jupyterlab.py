"""The notebook run by hand in JupyterLab: a pull shows how far it has come, and the report follows it."""

from __future__ import annotations

import json
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
from far_away import far_away
from prometheus_server import Servers, free_port
from pulling import params
from support import write_params

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DELAY_S = 0.4
"""Added to each round trip, so that a pull takes seconds and can be looked at."""
LIMIT_MS = 90_000
SETTINGS = {
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},  # cells out of view are kept
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
INTO_VIEW = "element => element.scrollIntoView({block: 'center'})"


@pytest.fixture
def laboratory(tmp_path: Path, project: Path, servers: Servers) -> Iterator[str]:
    """The address of a JupyterLab in a project folder of its own, whose PARAMS are pulled from a server far away."""
    folder = tmp_path / "project"
    (folder / "params").mkdir(parents=True)
    (folder / "params/metrics").symlink_to(project / "params/metrics")
    shutil.copytree(project / "notebooks", folder / "notebooks")
    with far_away(servers("prometheus").url, DELAY_S) as url:
        write_params(folder / "params/pulled.yaml", params(url))
        port = free_port()
        home = tmp_path / "home"
        for name, settings in SETTINGS.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / f"{name}.jupyterlab-settings").write_text(json.dumps(settings))
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
            for done in ("0/2", "1/2"):
                progress = page.locator(".jp-RenderedHTML", has_text=done).first
                progress.evaluate(INTO_VIEW)
                page.screenshot(path=shots / f"pulling-{done[0]}.png")
                seen[done] = progress.inner_text()
            page.get_by_text("reports/pulled/results.json").wait_for(state="attached")
            cell = page.locator(".jp-CodeCell", has_text="analysis.read_recordings").first
            cell.evaluate(INTO_VIEW)
            page.screenshot(path=shots / "pulled.png")
            seen["after"] = cell.inner_text()
        finally:
            context.close()

    browser.run(by_hand)
    assert "postgresql_bounded, base, run 1" in seen["0/2"]
    assert "postgresql_bounded, new, run 1" in seen["1/2"]
    assert "recordings" in seen["after"]
    assert "2/2" in seen["after"]
