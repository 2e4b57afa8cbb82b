"""Inputs of any size, for each thing that may be large in one, and what reading them takes."""

import contextlib
import datetime as dt
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path

import fuzzing
from buildcompare.config.errors import BuildcompareError
from buildcompare.recordings.prometheus_answer import PassingError, RefusedAnswerError


def _panels(size: int) -> bytes:
    fields = [{"type": "time", "values": [1e12, 2e12]}, {"type": "number", "values": [1, 2]}]
    panels = [{"title": f"P{i}", "snapshotData": [{"fields": fields}]} for i in range(size)]
    return json.dumps({"dashboard": {"panels": panels}}).encode()


def _rows(line: str, head: str = "") -> Callable[[int], bytes]:
    return lambda size: (head + "".join(line.format(i=i, n=i + 1, t=1_700_000_000 + i) for i in range(size))).encode()


def _entry(size: int) -> bytes:
    test = fuzzing.ENTRY["tests"][0] | {"samples": [f"{i:064x}" for i in range(size)]}
    return json.dumps(fuzzing.ENTRY | {"tests": [test]}).encode()


def _vmstat(size: int) -> bytes:
    line = VMSTAT.splitlines(True)[-1].decode()
    start = dt.datetime(2024, 3, 2, tzinfo=dt.UTC)
    times = (start + dt.timedelta(seconds=i) for i in range(size))
    return VMSTAT + "".join(line.replace("2024-03-01 16:08:10", f"{at:%F %T}") for at in times).encode()


CSV = "timestamp,metric,value\n"
VMSTAT = fuzzing.seed("sysstat-vmstat")
PARAMS = fuzzing.seed("comments-params").decode().replace("comments: # those of\n  - 'an analyst'\n", "comments:\n")
PAST = fuzzing.seed("past-table").decode().splitlines()[0] + "\n"
CASES: dict[str, tuple[str, Callable[[int], bytes], int]] = {
    "rows of a table": ("csv", _rows("{t},rps,1\n", CSV), 1_800_000),
    "columns of a table": ("csv", lambda size: b"timestamp" + b",x" * size + b"\n1\n", 10_000_000),
    "names of a table": ("csv", _rows("{t},m{i},1\n", CSV), 1_500_000),
    "letters of a name": ("csv", lambda size: f'{CSV}1,"{"x" * size}",1\n'.encode(), 30_000_000),
    "labels": ("labels", _rows("api,call{i},avg,1\n", "group,label,stat,value\n"), 100_000),
    "panels of a dashboard": ("grafana", _panels, 150_000),
    "lists of a report": ("ltctl", lambda size: b'{"StartTime": [' + b"[]," * size + b"[]]}", 10_000_000),
    "lines of pgbench's log": ("pgbench", lambda size: b"0 199 2241 0 1175850568 995598\n" * size, 1_000_000),
    "lines of vmstat": ("sysstat", _vmstat, 200_000),
    "stacks of a profile": ("profile", _rows("main;f{i};g 1\n"), 1_500_000),
    "blanks of an answer": ("answer", lambda size: b'{"status":"success",' + b" " * size + b'"data":5}', 100_000_000),
    "values of params": ("params", _rows("  - c{i}\n", PARAMS), 20_000),
    "a comparison's past runs": ("entry", _entry, 14_000),
    "rows of earlier comparisons": (
        "past", _rows("r{i},yes,{n},v{i}.0.0,v{i}.1.0,mysql,unbounded,9,9,,,\n", PAST), 99_000,
    ),
    "lines of a README": ("written", lambda size: b"# a line\n" * size + fuzzing.END.encode(), 1_000_000),
}  # fmt: skip
"""What there is many of: the reader, what makes so many, and how many its limit (or its size) allows."""


def takes_s(kind: str, contents: bytes, folder: Path) -> float:
    """CPU seconds of reading, or of refusing, without the collector's walk over the objects of other tests."""
    path = folder / ("x.yaml" if kind in fuzzing.YAML else "x")
    path.write_bytes(contents)
    gc.freeze()
    try:
        started = time.process_time()
        with contextlib.suppress(BuildcompareError, PassingError, RefusedAnswerError):
            fuzzing.READERS[kind](path, contents)
        return time.process_time() - started
    finally:
        gc.unfreeze()
