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
from typing import Any

from prometheus_server import free_port


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
