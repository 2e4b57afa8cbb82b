"""What does looking back cost? CPU of a report's analysis beside ledgers, and of the index and the history command.

    python benchmarks/history.py [PAIRS]

Prints medians of CPU seconds and their ratios to a reference of the same run: for a report, the analysis of the bundled
comparison without a ledger, in one process, in turns; for `index` and `history`, the command `index` without a ledger,
each a process of its own. Ledgers hold four tests and ten metrics in each comparison.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from buildcompare.comparison.analysis import analyse, read_recordings
from buildcompare.config.params import read_params
from buildcompare.history import dataset
from buildcompare.history.ledger import Entry, ledger_of, read_ledger

PARAMS = "params/v10.4.0-rc1.yaml"
METRICS = (
    "avg-api-times", "p99-api-times", "avg-store-times", "p99-store-times", "cpu-utilization", "goroutines-in-use",
    "heap-in-use", "rps", "stack-in-use", "number-of-connected-devices",
)  # fmt: skip
DRAWN = 200  # comparisons with levels of their own; longer ledgers repeat them under other names


def entry(number: int, rng: np.random.Generator) -> Entry:
    """A comparison of four tests whose levels scatter by 3 %."""

    def pair(level: float = 1.0) -> dict[str, float]:
        return {side: float(level * math.exp(rng.normal(0.0, 0.03))) for side in ("base", "new")}

    def runs() -> dict[str, list[float]]:
        return {side: [value] for side, value in pair().items()}

    tests = []
    for db in ("mysql", "postgresql"):
        about = {"db_engine": db, "within_se_log": dict.fromkeys(METRICS, 0.005)}
        about |= {"levels_of_runs": {metric: runs() for metric in METRICS}}
        about |= {"windows_s": {"base": [1800.0], "new": [1800.0]}, "samples": [f"{number}{db}"]}
        at_load = {metric: {"users": 8000.0, **pair(), "within_se_log": 0.01} for metric in METRICS}
        tests.append({**about, "name": f"{db}_bounded", "type": "bounded", "users": 5000})
        unbounded = {"name": f"{db}_unbounded", "type": "unbounded", "users": 20000, "at_load": at_load}
        tests.append({**about, **unbounded, "supported_users": pair(9000.0), "errors": pair(3000.0)})
    about = {"name": f"r{number}", "position": number + 1, "tests": tests, "source": "report", "simulated": True}
    about |= {"base": {"label": f"b{number}"}, "new": {"label": f"n{number}"}, "verdict": "pass"}
    return Entry.model_validate({**about, "setup": {"Tool": f"v{number // 10}", "Dataset": "12M posts"}})


def write(folder: Path, count: int) -> Path:
    """A packed ledger of so many comparisons, in which each base is the new build of the one before."""
    rng = np.random.default_rng(1)
    drawn = ledger_of([entry(number, rng) for number in range(DRAWN)]).table(dataset.SCHEMA.names)
    table = pa.concat_tables([drawn] * math.ceil(count / DRAWN)).slice(0, count * 4)
    number = np.arange(count).repeat(4)

    def build(shift: int) -> pa.StructArray:
        versions = [f"{1 + (i + shift) // 1000}.{(i + shift) % 1000}.0" for i in range(count)]
        texts = np.array(versions, dtype=object).repeat(4)
        return pa.StructArray.from_arrays([pa.array(texts), pa.array(texts)], ["label", "version"])

    names = pa.array([f"r{i}" for i in range(count)]).take(pa.array(number))
    for name, column in (("name", names), ("position", number + 1), ("base", build(0)), ("new", build(1))):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(name), pa.array(column))
    folder.mkdir()
    (folder / dataset.FILE).write_bytes(dataset.contents(table.combine_chunks()))
    return folder


def report_cpu(ledgers: dict[str, Path | None], pairs: int) -> dict[str, list[float]]:
    """CPU seconds of an analysis beside each ledger, in turns."""
    params = read_params(PARAMS)
    recordings = read_recordings(params)
    found: dict[str, list[float]] = {name: [] for name in ledgers}
    for turn in range(pairs + 1):  # the first is not counted: it imports
        for name, folder in ledgers.items():
            asked = params.model_copy(update={"history": str(folder) if folder else None})
            began = time.process_time()
            analyse(asked, recordings)
            if turn:
                found[name].append(time.process_time() - began)
    return found


def command_cpu(*arguments: str) -> float:
    """CPU seconds of a command."""
    before = os.times()
    subprocess.run([sys.executable, "-m", "buildcompare", *arguments], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Measure and print."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        many, few = write(here / "100000", 100_000), write(here / "2000", 2_000)
        print(f"100,000 comparisons: {(many / dataset.FILE).stat().st_size / 1e6:.0f} MB")
        print(f"2,000 read whole: {len(read_ledger(few).entries)}")
        found = report_cpu({"none": None, "2,000": few, "100,000": many}, pairs)
        alone = statistics.median(found["none"])
        print(f"{'analysis alone':28} {alone:6.2f} s")
        for name in ("2,000", "100,000"):
            added = statistics.median(a - b for a, b in zip(found[name], found["none"], strict=True))
            print(f"{f'beside {name} comparisons':28} {added:+6.2f} s  {added / alone:5.2f} of the analysis")
        commands = {
            "index of no ledger": ("index", "--history", str(here / "none")),
            "index of 2,000": ("index", "--history", str(few)),
            "index of 100,000": ("index", "--history", str(many)),
            "history of 2,000": ("history", str(few)),
            "history of 100,000": ("history", str(many)),
        }
        reference = None
        for name, arguments in commands.items():
            output = ["--output", str(here / "reports")] if arguments[0] == "index" else []
            took = statistics.median(command_cpu(*arguments, *output) for _ in range(pairs))
            reference = reference or took
            print(f"{name:28} {took:6.2f} s  {took / reference:5.2f} of the index of no ledger")


if __name__ == "__main__":
    main()
