"""How a process ends does not hang on what threads of pyarrow do while Python ends: its exit code is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.table import write_recording

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
    write_recording(Recording(tuple(series), (0.0, 20_000.0), stop_known=True), tmp_path / "ours.parquet")
    command = [sys.executable, "-c", ENDS, "60", "bad.csv", "ours.parquet"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3"] * 60, done.stderr[-300:]


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
