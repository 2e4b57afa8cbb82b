"""Exit codes are right whatever becomes of standard output, standard error and the folder of temporary files."""

import errno
import fcntl
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.config import project as paths
from buildcompare.recordings.recording import Series
from buildcompare.recordings.table import write_recording
from support import small_params, write_params

COMMAND = f"{sys.executable} -m buildcompare"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
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
        (f"{COMMAND} report missing.yaml 2> /dev/full; echo $?", 3),
        (f"({COMMAND} report missing.yaml <&- >&- 2>&-); echo $?", 3),
    ],
)
def test_the_code_is_that_of_the_work(line: str, code: int) -> None:
    assert shell(line).stdout.splitlines()[-1] == str(code)


@pytest.mark.slow
def test_a_report_is_done_whoever_reads_of_it_and_stays_where_the_disk_is_full(tmp_path: Path) -> None:
    """A bound on the size of files stands for the disk; of blocks of 1,024 bytes."""
    file = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    line = f"{COMMAND} report {file} --output {tmp_path / 'out'}"
    done = shell(f"{line} --fail-on regression | true; echo ${{PIPESTATUS[0]}}", TMPDIR=str(tmp_path / "none"))
    assert (done.stdout, (tmp_path / "out/report.html").exists()) == ("0\n", True)

    def standing() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    before = standing()
    done = shell(f"ulimit -f 60; {line}")
    assert done.returncode == 4
    said = rf"buildcompare: .*{tmp_path}.*: expected a machine that can do this, found File too large\n"
    assert re.fullmatch(said, done.stderr), done.stderr
    assert standing() == before


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
    for left in ("killed", "living"):
        half = tmp_path / f".x.json.{left}.part"
        half.mkdir()
        (half / "x.json").write_text("half")
        os.utime(half, (1.0, 1.0))
    with paths.locked(half):
        paths.write_files({tmp_path / "x.json": "whole"})
    assert {path.name for path in tmp_path.iterdir()} == {"x.json", ".x.json.living.part"}
    assert (tmp_path / "x.json").read_text() == "whole"


def test_nobody_is_taken_for_gone_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with paths.locked(tmp_path) as free, paths.locked(tmp_path, wait=False) as known_free:
        assert (free, known_free) == (True, False)


ENDS = """
import os, sys
import pyarrow.csv, pyarrow.parquet
import buildcompare as bc
from buildcompare.config.errors import InputError
from buildcompare.recordings import table

def read(kind):
    try:
        bc.read(kind)
    except InputError:
        pass

for i in range(int(sys.argv[1])):
    process = os.fork()
    if process == 0:  # before it reads there are no threads
        read(sys.argv[2 + i % len(sys.argv[2:])])
        sys.exit(3)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)  # or the next child writes it too
"""


@pytest.mark.slow
def test_what_was_read_last_does_not_end_its_process(tmp_path: Path) -> None:
    """Once in thirty such a process was aborted: a thread let go of Python's memory when Python had gone."""
    times = np.arange(20_000.0)
    line = "{},1.5\n".format
    (tmp_path / "bad.csv").write_text("time,rps\n" + line(0) + "1,2,3\n" + "".join(map(line, range(2, 200_000))))
    series = [Series("m", f"m{i}", "", times, times * i, labels={"i": str(i)}) for i in range(20)]
    write_recording(bc.Recording(tuple(series), (0.0, 20_000.0), stop_known=True), tmp_path / "ours.parquet")
    command = [sys.executable, "-c", ENDS, "40", "bad.csv", "ours.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3"] * 40, done.stderr[-300:]


ABORTS = """
import os, sys
from buildcompare import __main__ as command_line
from buildcompare.recordings import table

table.open_table = lambda *given: os.abort()  # as pyarrow does on some damaged files
command_line.main()
"""


def test_a_reader_that_aborts_leaves_one_line_and_an_exit_code(project: Path) -> None:
    folder = project / "data/recordings/v10.4.0-rc1/mysql_bounded"
    command = [sys.executable, "-c", ABORTS, "compare", *(str(folder / f"{side}.parquet") for side in ("base", "new"))]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines()[-1] == "buildcompare: its process was ended by SIGABRT"


def test_the_commit_is_that_of_the_project_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    assert paths.commit(tmp_path) is None, "no checkout"
    git("init", "--quiet")
    assert paths.commit(tmp_path) is None, "no commit yet"
    (tmp_path / "kept").write_text("one")
    git("add", "kept")
    git("commit", "--quiet", "-m", "one")
    (tmp_path / "new").write_text("not tracked")
    assert paths.commit(tmp_path) == git("rev-parse", "--short=12", "HEAD")
    (tmp_path / "kept").write_text("two")
    assert paths.commit(tmp_path) == git("rev-parse", "--short=12", "HEAD") + " with changes"
    (tmp_path / "inside").mkdir()
    assert paths.commit(tmp_path / "inside") is None, "a folder in somebody else's checkout"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert paths.commit(tmp_path) is None, "no git"
