"""Everything that is to be fast, in one table: ``make bench``, or ``python benchmarks/speed.py [PART...]``.

    reports    CPU of a report alone and in a batch, beside the commands papermill and nbconvert on the same notebook
    pull       wall time of pulling from a real Prometheus, beside curl with the same queries
    labels     CPU of a label series among 20,000 of a run, beside one among 2,000
    ledger     CPU of looking back at 2,000 comparisons, and of commands on 5,000, beside work without a ledger
    notebook   CPU of the first verdict of a notebook, of a window and of a margin, beside comparing the whole release
    files      CPU of reading 1 GB of k6's CSV, beside pyarrow.csv alone, and its memory

Each ratio is to a reference of the same run: seconds differ between machines, ratios less so; those of wall time hold
on idle cores only. Bounds that were asked for in CPU seconds are ratios on the machine where they were set: 0.3 of a
choice in a notebook, 2.5 of its first verdict and 0.2 of a ledger of 2,000, where comparing took 0.3; and 5 of commands
on 5,000, where an index of no ledger took 1.1. docs/performance.md says why the ratios are what they are. The exit
code is 1 where a bound is missed. All takes ten minutes on two cores; a part whose programs are missing is named and
left out.
"""

from __future__ import annotations

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio, or a figure that has none, and what it may be at most."""

    what: str
    found: str
    beside: str
    ratio: float
    most: float


def reports() -> Iterator[Row]:
    """Medians of three runs."""
    import report

    with tempfile.TemporaryDirectory() as folder:
        runs = [report.run(Path(folder)) for _ in range(3)]
    names = {"report": 0.5, f"batch of {report.BATCH}": 0.15, f"batch of {report.BATCH} --no-graphs": 0.15}
    for name, most in names.items():
        ratio = statistics.median(each[name][0] / each["papermill and nbconvert"][0] for each in runs)
        cpu, wall = (statistics.median(each[name][i] for each in runs) for i in (0, 1))
        yield Row(f"{name}, each report", f"{cpu:.2f} CPU s", "papermill and nbconvert", ratio, most)
        if name == f"batch of {report.BATCH}" and (os.cpu_count() or 1) > 1:
            yield Row(f"{name}, wall time", f"{wall:.2f} s", "its CPU", wall / cpu, 0.6)


def pull() -> Iterator[Row]:
    """Medians of five pairs."""
    import pull as pulls

    if pulls.missing():
        print(f"pull: left out, as {pulls.missing()[0]} is not on the PATH")
        return
    sizes = {"a": "40 queries", "b": "200 series", "c": "5,000 series", "e": "200 queries"}
    for row in pulls.rows("abce"):
        if row.unit == "times curl":
            yield Row(f"pull of {sizes[row.case]}", row.figure.split(",")[0] + " s", "curl", row.found, row.target)
        else:
            yield Row(f"pull of {sizes[row.case]}, memory", row.figure, "500 MB", row.found / row.target, 1.0)


def labels() -> Iterator[Row]:
    """Medians of three reports of simulated runs."""
    import labels as of_labels

    _, few, many = of_labels.costs((10, 2_000, 20_000))
    yield Row("label series among 20,000", f"{many.each_ms:.2f} CPU ms", "among 2,000", many.each_ms / few.each_ms, 1.2)
    yield Row("report of 20,000 label series", f"{many.memory_mb:.0f} MB", "1,000 MB", many.memory_mb / 1e3, 1.0)
    yield Row("page of 20,000 label series", f"{many.page_mb:.2f} MB", "3 MB", many.page_mb / 3.0, 1.0)


def ledger() -> Iterator[Row]:
    """The least of three tries."""
    import history

    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        few, many = history.write(here / "few", 2_000), history.write(here / "many", 5_000)
        alone, found = history.report_cpu({"few": few}, 3)
        index = ("index", "--output", str(here / "reports"), "--history")
        without = min(history.command_cpu(*index, str(here / "none")) for _ in range(3))
        yield Row("looking back at 2,000", f"{found['few']:.2f} CPU s", "an analysis", found["few"] / alone, 0.6)
        for name, command in (("index", index), ("history", ("history",))):
            took = min(history.command_cpu(*command, str(many)) for _ in range(3))
            yield Row(f"{name} of 5,000", f"{took:.2f} CPU s", "an index of no ledger", took / without, 4.5)


def notebook() -> Iterator[Row]:
    """A kernel of its own, and medians of nine in this one."""
    import interactive

    params = "params/v10.4.0-rc1.yaml"
    verdict, _ = interactive.opened(params)
    whole, steps = interactive.steps(params)
    yield Row("first verdict of a notebook", f"{verdict:.2f} CPU s", "comparing", verdict / whole, 8.0)
    for name in ("a window", "a margin"):
        yield Row(f"{name} that is chosen", f"{steps[name]:.3f} CPU s", "comparing", steps[name] / whole, 1.0)


K6 = Path(__file__).parents[1] / "tests/load_tools/k6.csv.gz"
READ = {
    "pyarrow.csv": "from pyarrow import csv; [*(len(each) for each in csv.open_csv({!r}))]",
    "ours": "import buildcompare as bc; bc.read({!r}, catalogue='http')",
}


def files() -> Iterator[Row]:
    """Seconds of a recorded run again and again, until they are 1 GB; medians of three."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.csv"
        head, rows = gzip.decompress(K6.read_bytes()).split(b"\n", 1)
        seconds = sorted({int(row.split(b",")[1]) for row in rows.splitlines()})
        with file.open("wb") as out:
            out.write(head + b"\n")
            while out.tell() < 1e9:
                out.write(rows)
                for at in seconds:
                    rows = rows.replace(
                        b",%d," % at,
                        b",%d," % (at + len(seconds)),
                    )
                seconds = [at + len(seconds) for at in seconds]
        used = {name: [_used(code.format(str(file))) for _ in range(3)] for name, code in READ.items()}
    cpu = {name: statistics.median(each[0] for each in of) for name, of in used.items()}
    peak = statistics.median(each[1] for each in used["ours"])
    yield Row("1 GB of k6's CSV", f"{cpu['ours']:.1f} CPU s", "pyarrow.csv", cpu["ours"] / cpu["pyarrow.csv"], 2.0)
    yield Row("1 GB of k6's CSV, memory", f"{peak:.0f} MB", "1,000 MB", peak / 1e3, 1.0)


def _used(code: str) -> tuple[float, float]:
    """CPU seconds and largest memory in MB of a Python process."""
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{code}: ended with {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    each.__name__: each for each in (reports, pull, labels, ledger, notebook, files)
}


def main(parts: list[str]) -> int:
    """Print the table."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code and templates are compiled once, not by every command
    print(f"{'what':36} {'found':>14} {'ratio':>6} {'at most':>7}         beside")
    missed = 0
    for name in parts or PARTS:
        for row in PARTS[name]():
            missed += row.ratio > row.most
            met = "MISSED" if row.ratio > row.most else "met"
            print(f"{row.what:36} {row.found:>14} {row.ratio:6.2f} {row.most:7.2f} {met:7} {row.beside}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="one or more of the parts above; all without")
    parser.add_argument("--profile", action="store_true", help="print instead where the CPU of one warm report goes")
    given = parser.parse_args()
    if given.profile:
        import report

        sys.exit(report.profile())
    unknown = [each for each in given.parts if each not in PARTS]
    if unknown:
        parser.error(f"expected some of {', '.join(PARTS)}, found {unknown[0]}")
    sys.exit(main(given.parts))
