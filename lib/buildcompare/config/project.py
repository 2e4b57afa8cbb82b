"""Where the project's folders are: relative paths in params mean the same from any working directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def root() -> Path:
    """The project's root: ``BUILDCOMPARE_ROOT``, else the checkout that this package is installed from."""
    configured = os.environ.get("BUILDCOMPARE_ROOT")
    return Path(configured).resolve() if configured else Path(__file__).resolve().parents[3]


def resolve(path: str | Path) -> Path:
    """Make `path` absolute: relative paths count from the project's root."""
    return root() / Path(path)


def commit() -> str | None:
    """The git commit that the project stands at, ``with changes`` where tracked files differ from it.

    None where the project is no checkout of its own, or git is not to be had.
    """
    if not (root() / ".git").exists():
        return None
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return f"{head} with changes" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root()), *arguments]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20, errors="replace")
    return made.stdout.strip()
