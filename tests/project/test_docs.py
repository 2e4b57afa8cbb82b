"""The documentation site builds without a warning, loads nothing from elsewhere, and its worked changes apply."""

import re
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


def test_worked_changes_apply_and_touch_few_files(project: Path) -> None:
    """Where code has moved on, the change in docs/extending.md has to follow."""
    changes = re.findall(r"^```diff\n(.*?)^```$", (project / "docs/extending.md").read_text("utf-8"), re.M | re.S)
    assert len(changes) == 3
    for change in changes:
        files = re.findall(r"^\+\+\+ b/(.+)$", change, re.M)
        assert len(files) <= 4
        done = subprocess.run(
            ["git", "apply", "--check", "--verbose", "-"],
            cwd=project, input=change, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_what_holds_a_fault_is_there(project: Path) -> None:
    """Each test, row and program that docs/trust.md names."""
    page, rows = ((project / f"docs/{name}.md").read_text("utf-8") for name in ("trust", "input-faults"))
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page)
    assert len(tests) > 20
    for file, name in tests:
        assert f"\ndef {name}(" in (project / file).read_text("utf-8"), f"{file}::{name}"
    named = re.findall(r'row "([^"]+)"', page)
    assert len(named) > 15
    for row in named:
        assert f"| {row} |" in rows, row
    for file in re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", page):
        assert (project / file).is_file(), file
