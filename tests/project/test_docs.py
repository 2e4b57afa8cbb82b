"""The documentation site builds without a warning and loads nothing from elsewhere; examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parents[2] / "lib"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_offline(
    project: Path, tmp_path: Path, requests_of: Callable[..., list[str]]
) -> None:
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", str(tmp_path)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index", "statistics", "api", "gallery"):
        assert all(address.startswith("file://") for address in requests_of(tmp_path / f"{page}.html")), page


def with_examples() -> list[str]:
    files = [file for file in LIBRARY.rglob("*.py") if ">>>" in file.read_text("utf-8")]
    modules = [".".join(file.relative_to(LIBRARY).with_suffix("").parts) for file in files]
    return sorted(name.removesuffix(".__init__") for name in modules)


@pytest.mark.parametrize("module", with_examples())
def test_examples_in_docstrings_hold(module: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    found = doctest.testmod(importlib.import_module(module), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 0
    assert found.failed == 0
