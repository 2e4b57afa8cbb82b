"""Exit codes are right whatever becomes of standard output, standard error and the folder of temporary files."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from buildcompare.config import project as paths
from support import small_params, write_params

COMMAND = f"{sys.executable} -m buildcompare"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a shell makes of a line, which prints the exit codes on its last one."""
    known = {**os.environ, **environment}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=known, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"{COMMAND} schema | true; echo ${{PIPESTATUS[0]}}", 0),  # whoever closed the pipe had read enough
        (f"{COMMAND} --help | true; echo ${{PIPESTATUS[0]}}", 4),  # 1 would mean a regression
        (f"{COMMAND} bogus 2>&1 | true; echo ${{PIPESTATUS[0]}}", 3),
        (f"{COMMAND} schema > /dev/full; echo $?", 4),
        (f"{COMMAND} report missing.yaml 2>&-; echo $?", 3),
        (f"{COMMAND} report missing.yaml 2> /dev/full; echo $?", 3),
        (f"({COMMAND} report missing.yaml <&- >&- 2>&-); echo $?", 3),
        (f"{COMMAND} bogus 2>&-; echo $?", 3),
    ],
)
def test_the_code_is_that_of_the_work(line: str, code: int) -> None:
    assert shell(line).stdout.splitlines()[-1] == str(code)


@pytest.mark.slow
def test_a_published_report_is_done_whoever_reads_of_it(tmp_path: Path) -> None:
    file = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    line = f"{COMMAND} report {file} --output {tmp_path / 'out'} --fail-on regression"
    done = shell(f"{line} | true; echo ${{PIPESTATUS[0]}}", TMPDIR=str(tmp_path / "none"))
    assert done.stdout.split() == ["0"]
    assert (tmp_path / "out/report.html").exists()


@pytest.mark.slow
def test_a_disk_that_is_full_leaves_the_report_that_stands_there(tmp_path: Path) -> None:
    """A bound on the size of files stands for the disk; of blocks of 1,024 bytes."""
    file = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    line = f"{COMMAND} report {file} --output {tmp_path / 'out'}"

    def standing() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert shell(line).returncode == 0
    before = standing()
    done = shell(f"ulimit -f 60; {line}")
    assert done.returncode == 4
    found = re.fullmatch(
        r"buildcompare: (.*): expected a machine that can do this, found File too large\n", done.stderr
    )
    assert found, done.stderr
    assert str(tmp_path) in found[1]
    assert standing() == before


@pytest.mark.slow
def test_no_escape_sequence_of_a_name_reaches_the_terminal(tmp_path: Path) -> None:
    name = tmp_path / "a\x1b]0;owned\x07\nb.yaml"
    done = subprocess.run([*COMMAND.split(), "report", str(name)], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr + done.stdout
    assert r"a\x1b]0;owned\x07\nb.yaml" in done.stderr


def test_sockets_have_a_short_folder_and_what_the_killed_left_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems cut paths of sockets at 104 characters; connection files of killed kernels stand in these folders."""
    long = tmp_path / ("x" * 150)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with paths.socket_folder() as folder:
        assert len(str(folder)) < 80
    short = tmp_path / "t"
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    monkeypatch.setattr(paths, "SOCKET_PATH", 1_000)
    for left in ("bc-aaaaaaaa", "bc-bbbbbbbb"):
        (short / left).mkdir(parents=True)
        (short / left / "kernel.json").write_text("{}")
        os.utime(short / left, (1.0, 1.0))
    with paths.locked(short / "bc-bbbbbbbb"), paths.socket_folder():
        names = {path.name for path in short.iterdir()}
    assert "bc-aaaaaaaa" not in names
    assert "bc-bbbbbbbb" in names


def test_halves_of_files_that_a_killed_process_left_go_with_the_next_writing(tmp_path: Path) -> None:
    """Whether their maker lives is told by its lock: the number of a process may be another machine's."""
    for left in ("killed", "living"):
        half = tmp_path / f".x.json.{left}.part"
        half.mkdir()
        (half / "x.json").write_text("half")
        os.utime(half, (1.0, 1.0))
    with paths.locked(half):
        paths.write_files({tmp_path / "x.json": "whole"})
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", ".x.json.living.part"}
    assert (tmp_path / "x.json").read_text() == "whole"


def test_nobody_is_taken_for_gone_where_folders_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with paths.locked(tmp_path) as free, paths.locked(tmp_path, wait=False) as known_free:
        assert (free, known_free) == (True, False)
