"""The documentation site builds without a warning and loads nothing from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_offline(
    project: Path, tmp_path: Path, requests_of: Callable[..., list[str]]
) -> None:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index", "statistics", "api", "gallery"):
        assert all(address.startswith("file://") for address in requests_of(tmp_path / f"{page}.html")), page
