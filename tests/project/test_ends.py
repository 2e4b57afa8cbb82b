"""How a process ends does not hang on what threads of pyarrow do while Python ends: its exit code is its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from buildcompare.history.ledger import Entry, pack, read_ledger, record
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.table import write_recording

ENDS = """
import os, sys
from pathlib import Path
import pyarrow.csv, pyarrow.parquet
import buildcompare as bc
from buildcompare.config.errors import InputError
from buildcompare.history import ledger
from buildcompare.recordings import delimited, table

def read(kind):
    try:
        ledger.read_ledger(Path(kind)).table(["name"]) if kind == "ledger" else bc.read(kind)
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
    build = {"label": "a", "version": None}
    test = {"name": "t", "type": "bounded"}
    data = {"kind": "study", "base": build, "new": build, "tests": [test], "source": "report"}
    (tmp_path / "ledger").mkdir()
    record(tmp_path / "ledger", [Entry.model_validate({**data, "name": f"e{i}"}) for i in range(400)])
    pack(read_ledger(tmp_path / "ledger"))
    command = [sys.executable, "-c", ENDS, "60", "bad.csv", "ours.parquet", "ledger"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3"] * 60, done.stderr[-300:]
