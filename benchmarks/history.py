"""What does looking back cost? CPU of what a report asks of ledgers, and of the index and the history command.

    python benchmarks/history.py [PAIRS]

Prints CPU seconds, the least of the tries, and their ratios to a reference of the same run. For a report these are the
reading of the ledger (once to check it, once to use it), the noise learned from it and the comparison with the chain,
beside the analysis of the bundled comparison without a ledger. For `index` and `history` it is the command `index`
without a ledger; each is a process of its own. Ledgers hold four tests and ten metrics in each comparison.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import buildcompare.report.preload  # noqa: F401  # a report's memory, as its process has it
from buildcompare.comparison.analysis import analyse
from buildcompare.comparison.reading import catalogue_of, read_recordings
from buildcompare.config.params import Comparison, read_params
from buildcompare.history.chain import compare_to_ledger, supported_users_noise
from buildcompare.history.ledger import Entry, entry_of, read_entry, read_ledger, record
from buildcompare.history.levels import contrasts_in
from buildcompare.results import TestResult
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.noise import Noise, with_contrasts

PARAMS = "params/v10.4.0-rc1.yaml"
METRICS = (
    "avg-api-times", "p99-api-times", "avg-store-times", "p99-store-times", "cpu-utilization", "goroutines-in-use",
    "heap-in-use", "rps", "stack-in-use", "number-of-connected-devices",
)  # fmt: skip
COUNTS = (200, 2_000, 5_000)  # comparisons of the ledgers


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
    for side, shift in (("base", 0), ("new", 1)):
        version = f"{1 + (number + shift) // 1000}.{(number + shift) % 1000}.0"
        about[side] = {"label": version, "version": version}
    return Entry.model_validate({**about, "setup": {"Tool": f"v{number // 10}", "Dataset": "12M posts"}})


def write(folder: Path, count: int) -> Path:
    """A ledger of so many comparisons, in which each base is the new build of the one before."""
    rng = np.random.default_rng(1)
    record(folder, [entry(number, rng) for number in range(count)])
    return folder


def looking_back(params: Comparison, tests: Sequence[TestResult], folder: Path) -> float:
    """CPU seconds of all that a report asks of a ledger; each learned noise three times, as four tests ask for it."""
    catalogue = catalogue_of(params)
    read_entry.cache_clear()
    began = time.process_time()
    read_ledger(folder)
    ledger = read_ledger(folder)
    ledger.find(entry_of(params, position=1))
    for contrasts in contrasts_in(ledger, params, {"none"}, simulated=True).values():
        for _ in range(3):
            with_contrasts(Noise(0.02, 8.0, NoiseSource.CATALOGUE), contrasts)
    compare_to_ledger(ledger, params, tests, supported_users_noise(catalogue), simulated=True)
    return time.process_time() - began


def report_cpu(ledgers: dict[str, Path], pairs: int) -> tuple[float, dict[str, float]]:
    """CPU seconds of an analysis without a ledger, and of looking back at each."""
    params = read_params(PARAMS)
    recordings = read_recordings(params)
    tests, alone = analyse(params, recordings).results.tests, []
    found: dict[str, list[float]] = {name: [] for name in ledgers}
    for _ in range(pairs):
        began = time.process_time()
        analyse(params, recordings)
        alone.append(time.process_time() - began)
        for name, folder in ledgers.items():
            found[name].append(looking_back(params, tests, folder))
    return min(alone), {name: min(each) for name, each in found.items()}


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
        ledgers = {f"{count:,}": write(here / str(count), count) for count in COUNTS}
        alone, found = report_cpu(ledgers, pairs)
        print(f"{'analysis without a ledger':28} {alone:6.2f} s")
        for name, took in found.items():
            print(f"{f'looking back at {name}':28} {took:6.2f} s  {took / alone:5.2f} of the analysis")
        commands = {"index of no ledger": ("index", "--history", str(here / "none"))}
        for name, folder in ledgers.items():
            commands[f"index of {name}"] = ("index", "--history", str(folder))
            commands[f"history of {name}"] = ("history", str(folder))
        reference = None
        for name, arguments in commands.items():
            output = ["--output", str(here / "reports")] if arguments[0] == "index" else []
            took = min(command_cpu(*arguments, *output) for _ in range(pairs))
            reference = reference or took
            print(f"{name:28} {took:6.2f} s  {took / reference:5.2f} of the index of no ledger")


if __name__ == "__main__":
    main()
