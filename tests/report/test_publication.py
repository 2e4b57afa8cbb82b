"""Nothing lost, nothing half-written: the output folder through faults and kills."""

import contextlib
import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from buildcompare.config.project import locked
from buildcompare.report import publication
from support import killed_at

REPORT = '{"schema_version": 1, "comparison": "x", "complete": true}'


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "x"
    with pytest.raises(FileNotFoundError), publication.staged(folder) as staging:
        (staging / "missing" / "results.json").write_text("{}")
    assert list((tmp_path / "reports").iterdir()) == []
    with publication.staged(folder) as staging:
        (staging / "results.json").write_text("{}")
        assert not folder.exists()
    assert ((folder / "results.json").read_text(), list((tmp_path / "reports").iterdir())) == ("{}", [folder])


def test_what_no_report_makes_is_carried_over(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    (folder / "graphs").mkdir(parents=True)
    (folder / "notes").mkdir()
    for name in ("results.json", "graphs/mine.png", "mine.txt", "notes/mine.txt"):
        (folder / name).write_text(REPORT)
    (folder / "graphs/x_0_rps.svg").write_text("made")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "linked").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    with publication.staged(folder) as staging:
        (staging / "results.json").write_text("new")
    assert (folder / "results.json").read_text() == "new"
    assert (folder / "mine.txt").read_text() == (folder / "notes/mine.txt").read_text() == REPORT
    assert [path.name for path in (folder / "graphs").iterdir()] == ["mine.png"]
    assert ((folder / "dangling").readlink(), (folder / "linked").readlink()) == (Path("nowhere"), tmp_path)
    assert (folder / "pipe").is_fifo()


def test_what_a_killed_run_left_is_tidied_up(tmp_path: Path) -> None:
    gone, alive, part = tmp_path / ".x.abc.making", tmp_path / ".x.def.making", tmp_path / ".x.y.abc.making"
    for folder in (gone, alive, part):
        folder.mkdir()
    with locked(alive), publication.staged(tmp_path / "x") as staging:
        (staging / "results.json").write_text("{}")
    assert not gone.exists()
    assert alive.exists()
    assert part.exists()  # of the report x.y


def test_killed_at_any_step_of_taking_a_place(tmp_path: Path) -> None:
    new, found = REPORT.replace("x", "y"), set()

    def publish(folder: Path) -> None:
        with publication.staged(folder) as staging:
            (staging / "results.json").write_text(new)

    for step in itertools.count(1):
        folder = tmp_path / str(step) / "x"
        folder.mkdir(parents=True)
        for name in ("results.json", "mine.txt"):
            (folder / name).write_text(REPORT)
        was_killed = killed_at(step, functools.partial(publish, folder))
        with contextlib.suppress(KeyboardInterrupt), publication.staged(folder):
            raise KeyboardInterrupt
        found.add((folder / "results.json").read_text())
        assert {path.name for path in folder.iterdir()} == {"results.json", "mine.txt"}
        assert [path.name for path in folder.parent.iterdir()] == ["x"]
        if not was_killed:
            break
    assert found == {REPORT, new}
    assert step > 8


@pytest.mark.slow
def test_publications_at_one_time_lose_nobody_s_file(project: Path) -> None:
    command = [sys.executable, "tests/stress/races.py", "400"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
