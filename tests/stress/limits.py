"""Work grows with an input's size, not with its square.

    python tests/stress/limits.py

prints for each thing that may be large the CPU seconds of an eighth, a half and the whole of what is allowed, and the
exponent by which work grows from the eighth to the whole: 1 is in proportion, 2 with the square.
"""

import contextlib
import datetime as dt
import gc
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import buildcompare as bc
import fuzzing  # the tests' own parts
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
    path = folder / ("x.yaml" if kind in fuzzing.YAML else "x")
    path.write_bytes(contents)
    gc.freeze()
    try:
        started = time.process_time()
        with contextlib.suppress(bc.BuildcompareError, PassingError, RefusedAnswerError):
            fuzzing.READERS[kind](path, contents)
        return time.process_time() - started
    finally:
        gc.unfreeze()


GROWN, NOISE_S = 16, 0.03


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_work_grows_no_faster_than_its_input(name: str, tmp_path: Path) -> None:
    """Sixteen times the input may take three times sixteen times the work; the square would be 256 times."""
    kind, make, most = CASES[name]
    small, large = (make(max(most // part, 10)) for part in (64 * GROWN, 64))
    takes_s(kind, small, tmp_path)  # imports
    before = min(takes_s(kind, small, tmp_path) for _ in range(3))
    assert takes_s(kind, large, tmp_path) < 3 * GROWN * max(before, NOISE_S / GROWN)


def main(names: list[str]) -> None:
    print(f"{'':28} {'most':>12} {'MB':>7} {'1/8 s':>7} {'1/2 s':>7} {'all s':>7} {'grows':>6}")
    with tempfile.TemporaryDirectory() as name:
        for what in names:
            kind, make, most = CASES[what]
            takes_s(kind, make(10), Path(name))
            inputs = [make(most // part) for part in (8, 2, 1)]
            seconds = [takes_s(kind, each, Path(name)) for each in inputs]
            grows = math.log(seconds[2] / seconds[0]) / math.log(8) if seconds[0] > 0.01 else math.nan
            cells = " ".join(f"{each:7.2f}" for each in seconds)
            print(f"{what:28} {most:12,} {len(inputs[2]) / 1e6:7.1f} {cells} {grows:6.2f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [*CASES])
