"""A JupyterLab on a free loopback port, for tests that look at notebooks in a browser."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_server import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIMIT_MS = 90_000
KEEP_CELLS = {"@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"}}
"""Settings of JupyterLab: cells out of view stay in the page."""
QUIET = {"@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}}
RUN_ALL = """async () => {
  const panel = jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
  jupyterapp.commands.execute("notebook:run-all-cells");
}"""
"""What the menu's *Run All Cells* does, as soon as the kernel answers: a click before that is lost."""
STILL = """() => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  return kernel.status === "idle" && !kernel.hasPendingInput;
}"""


@contextlib.contextmanager
def jupyterlab(folder: Path, home: Path, settings: Mapping[str, Any], **variables: str) -> Iterator[str]:
    """The address of a JupyterLab in the project folder `folder`, with user settings and environment variables."""
    port = free_port()
    for name, values in settings.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / f"{name}.jupyterlab-settings").write_text(json.dumps(values))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "XDG_"))}
    environment |= {"HOME": str(home), "BUILDCOMPARE_ROOT": str(folder), "JUPYTER_PREFER_ENV_PATH": "1", **variables}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
    command += ["--IdentityProvider.token=", "--ServerApp.allow_root=True", f"--LabApp.user_settings_dir={home}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    log = home / "jupyterlab.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=file, stderr=file)
    try:
        _wait(f"http://127.0.0.1:{port}/api/status", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:  # a loaded machine; nothing of it is needed any more
            process.kill()
            process.wait(30)


@contextlib.contextmanager
def page_of(browser: Browser, address: str, *, height: int = 900) -> Iterator[Page]:
    """A page of JupyterLab. A dialog that comes up, of a kernel that is slow to start, is accepted."""
    context = browser.new_context(viewport={"width": 1280, "height": height})
    try:
        page = context.new_page()
        page.set_default_timeout(LIMIT_MS)
        accept = page.locator("dialog.jp-Dialog .jp-mod-accept").first
        page.add_locator_handler(accept, lambda button: button.click())
        page.goto(address)
        yield page
    finally:
        context.close()


def run_all_cells(page: Page, notebook: str) -> None:
    """Run all cells of the notebook that the page opened, as soon as its kernel answers."""
    page.wait_for_function(
        "name => window.jupyterapp?.shell.currentWidget?.context?.path.endsWith(name)", arg=f"{notebook}.ipynb"
    )
    page.evaluate(RUN_ALL)


def wait_until_idle(page: Page) -> None:
    """Wait until the kernel has answered all that the page asked of it."""
    page.wait_for_function(STILL)


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
