"""How fast is a pull, beside plain curl on the same queries? Run as ``python benchmarks/pull.py``.

Debian's Prometheus is filled with generated samples, and every case is pulled 45 times, each time beside the same
queries by one curl process without gzip, one after the other on one connection: evaluation and transfer, the practical
bound. The two take turns at being first. What is printed is the median of the ratios, and their range, which the
server's garbage collection makes wide; seconds differ between machines, ratios less so.

(a) 40 small queries, as a catalogue asks them (one series of 1,081 points each); target: at most 1.3
(b) one query of 200 series, 1,081 points each; target: at most 1.3
(c) one query of 5,000 series, 1,081 points each; target: at most 1.6, in less than 500 MB
(d) the queries of (a) over a way that adds 30 ms to each round trip: our threads beside one; target: at least 4.0
(e) 200 small queries; target: at most 1.3

A pull is the whole of `pull_run`: session, who the server is, answers, series, provenance. All pulls of a case run in
one process, set up as the command line's (`buildcompare.report.preload`); the memory is that process's peak.
The exit code is 1 where a target is missed. The cases take about five minutes, a gigabyte of disk and two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from prometheus_server import proxying, run_prometheus

START, STEP_S, POINTS = 1_733_911_200, 5, 1_081
LOOKBACK_S = 120
"""Samples before the window, so that rate() has an answer at its first point."""
SERVICES, INSTANCES, SOME, MANY = 40, 2, 200, 5_000
REPEATS = 45
DELAY_S = 0.03
SMALL = [f'sum(rate(calls_total{{service="s{i}"}}[1m]))' for i in range(SERVICES)]
SMALL_200 = [query.replace("1m", f"{60 + i}s") for i in range(5) for query in SMALL]
CASES = {"a": SMALL, "b": ["some"], "c": ["many"], "e": SMALL_200}


@dataclass(frozen=True)
class Pull:
    """One measured pull."""

    seconds: float
    megabytes: float
    points: int


# ---- What is measured: a process of its own -------------------------------------------------------------------------


def pull(url: str, queries: list[str], threads: int | None) -> None:
    """Say that everything is imported; at each line of the input pull, and print what it took."""
    from buildcompare.config.catalogue import Catalogue
    from buildcompare.config.params import Run, Source
    from buildcompare.recordings.prometheus import pull_run

    named = [{"name": query, "slug": f"m{i}", "query": query} for i, query in enumerate(queries)]
    catalogue = Catalogue.model_validate({"metrics": named})
    settings = {"kind": "prometheus", "url": url, "step_s": STEP_S, **({"threads": threads} if threads else {})}
    source = Source.model_validate(settings)
    start = dt.datetime.fromtimestamp(START, dt.UTC)
    run = Run(start=start, end=start + dt.timedelta(seconds=(POINTS - 1) * STEP_S))
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        recording = pull_run(run, source, catalogue)
        seconds = time.perf_counter() - started
        points = sum(series.values.size for series in recording.series)
        print(json.dumps({"seconds": seconds, "megabytes": _peak_mb(), "points": points}), flush=True)


def _peak_mb() -> float:
    """The most memory that this process held; getrusage() would count what its parent held before it began."""
    status = Path("/proc/self/status").read_text("ascii")
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024


@contextlib.contextmanager
def waiting(url: str, case: str, threads: int | None = None) -> Iterator[Callable[[], Pull]]:
    """A process that pulls `case` each time the yielded function is called."""
    more = ["--threads", str(threads)] if threads else []
    command = [sys.executable, __file__, "--pull", case, "--url", url, *more]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        to, back = process.stdin, process.stdout
        assert to is not None
        assert back is not None
        assert back.readline() == "ready\n"

        def go() -> Pull:
            to.write("go\n")
            to.flush()
            found = Pull(**json.loads(back.readline()))
            expected = len(CASES[case]) * POINTS * {"b": SOME, "c": MANY}.get(case, 1)
            assert found.points == expected, f"{found.points} points instead of {expected}"
            return found

        yield go


# ---- The reference --------------------------------------------------------------------------------------------------


def curl(url: str, queries: list[str]) -> float:
    """Seconds of one curl process for all `queries`, its start included."""
    end = START + (POINTS - 1) * STEP_S
    lines = ["silent", "show-error", "fail"]
    for query in queries:
        asked = urllib.parse.urlencode({"query": query, "start": START, "end": end, "step": STEP_S})
        lines += [f'url = "{url}/api/v1/query_range?{asked}"', 'output = "/dev/null"']
    started = time.perf_counter()
    # No time-out: with one, Python looks only at 64 ms, 114 ms and so on whether the process has ended.
    subprocess.run(["curl", "--config", "-"], input="\n".join(lines), text=True, check=True)
    return time.perf_counter() - started


# ---- Samples --------------------------------------------------------------------------------------------------------


def write_samples(file: Path) -> None:
    """Counters for (a), and values of full length, as averages have them, for (b) and (c)."""
    draw = random.Random(4)
    times = range(START - LOOKBACK_S, START + POINTS * STEP_S, STEP_S)
    with file.open("w") as out:
        out.write("# TYPE calls counter\n")
        for i in range(SERVICES * INSTANCES):
            labels, total = f'service="s{i % SERVICES}",instance="i{i // SERVICES}"', 0
            for at in times:
                total += draw.randrange(400, 600)
                out.write(f"calls_total{{{labels}}} {total} {at}\n")
        for name, count in (("many", MANY), ("some", SOME)):
            out.write(f"# TYPE {name} gauge\n")
            for i in range(count):
                head = f'{name}{{handler="h{i}"}} '
                out.write("".join([f"{head}{draw.random()!r} {at}\n" for at in times]))
        out.write("# EOF\n")


# ---- Cases ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    case: str
    unit: str
    figure: str
    found: float
    target: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.found >= self.target if self.at_least else self.found <= self.target


def beside_curl(url: str, case: str, target: float) -> Iterator[Row]:
    """The ratio to curl, in pairs; both have been asked for once before, so that the server's caches are warm."""
    curl(url, CASES[case])
    pairs = []
    with waiting(url, case) as go:
        for number in range(REPEATS):
            pulled = go() if number % 2 else None
            reference = curl(url, CASES[case])
            pairs.append((pulled or go(), reference))
    ratios = [pulled.seconds / reference for pulled, reference in pairs]
    seconds = statistics.median(pulled.seconds for pulled, _ in pairs)
    figure = f"{min(ratios):.2f} to {max(ratios):.2f}; {seconds:.3f} s"
    yield Row(case, "times curl", figure, statistics.median(ratios), target)
    if case == "c":
        peak = max(pulled.megabytes for pulled, _ in pairs)
        yield Row(case, "MB", f"{peak:.0f} MB", peak, 500)


def beside_one_thread(url: str, target: float) -> Iterator[Row]:
    """How much faster our threads are than one, over a long way."""
    with (
        proxying(url, lambda _: time.sleep(DELAY_S), everywhere=True) as there,
        waiting(there.url, "a", threads=1) as alone,
        waiting(there.url, "a") as together,
    ):
        ratios = [alone().seconds / together().seconds for _ in range(REPEATS)]
    figure = f"{min(ratios):.2f} to {max(ratios):.2f}"
    yield Row("d", "times faster than one thread", figure, statistics.median(ratios), target, at_least=True)


def rows(cases: str) -> Iterator[Row]:
    """Measure these cases, one after the other, on a server that is filled for them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_samples(folder / "samples.om")
        with run_prometheus(folder, [(folder / "samples.om").read_text("utf-8")]) as url:
            (folder / "samples.om").unlink()
            measured: dict[str, Callable[[], Iterator[Row]]] = {
                "a": lambda: beside_curl(url, "a", 1.3),
                "b": lambda: beside_curl(url, "b", 1.3),
                "c": lambda: beside_curl(url, "c", 1.6),
                "d": lambda: beside_one_thread(url, 4.0),
                "e": lambda: beside_curl(url, "e", 1.3),
            }
            for case in cases:
                yield from measured[case]()


def missing() -> list[str]:
    """The programs that are not on the PATH."""
    return [name for name in ("prometheus", "promtool", "curl") if shutil.which(name) is None]


def main(cases: str) -> int:
    """Print the table."""
    if missing():
        print(f"benchmarks/pull.py: expected the program {missing()[0]} on the PATH, found none", file=sys.stderr)
        return 3
    missed = 0
    for row in rows(cases):
        missed += not row.met
        bound = f"{'at least' if row.at_least else 'at most'} {row.target:,g}"
        met = "met" if row.met else "MISSED"
        print(f"({row.case}) {row.found:8.2f}  {bound:<15} {met:6}  {row.unit} ({row.figure})", flush=True)
    return 1 if missed else 0


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", default="abcde", help="which of them, such as ab")
    parser.add_argument("--pull", choices=sorted(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    if given.pull:
        pull(given.url, CASES[given.pull], given.threads)
    else:
        sys.exit(main(given.cases))
