"""The commit that a report names is that of the project itself."""

import subprocess
from pathlib import Path

import pytest

from buildcompare.config.project import commit


def test_the_commit_is_that_of_the_project_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    assert commit(tmp_path) is None, "no checkout"
    git("init", "--quiet")
    assert commit(tmp_path) is None, "no commit yet"
    (tmp_path / "kept").write_text("one")
    git("add", "kept")
    git("commit", "--quiet", "-m", "one")
    (tmp_path / "new").write_text("not tracked")
    assert commit(tmp_path) == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "kept").write_text("two")
    assert commit(tmp_path) == git("rev-parse", "--short=12", "HEAD") + " with changes"
    (tmp_path / "inside").mkdir()
    assert commit(tmp_path / "inside") is None, "a folder in somebody else's checkout"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit(tmp_path) is None, "no git"
