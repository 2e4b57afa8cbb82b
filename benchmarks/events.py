"""How often are changes claimed where there are none, how many are found, and what do real tests show?

``python benchmarks/events.py`` prints all of it, ``python benchmarks/events.py noise real identical`` a part.
The seed differs from all that chose settings. Real load tests are in the folder named by BUILDCOMPARE_REAL, or
../shared/real; without it their parts are left out. The rules (a witness, what is lasting, how far the other build is
looked at) were written with these comparisons in view, `metrics.compare_events.LONE` with these identical runs: what
they print is no independent measure.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from identical import SMALL, read
from scipy.signal import lfilter

from buildcompare.comparison.measure import compare_test
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Test
from buildcompare.findings import load
from buildcompare.metrics.events import find_events
from buildcompare.recordings.sources import record
from buildcompare.results import TestResult
from buildcompare.results.codes import SIDES, FindingKind
from buildcompare.stats.changepoints import changepoints, penalty_factor
from loadcalibrate.penalty import no_change_of
from validity import published

SEED = 20261121
REPETITIONS = 1000
CALIBRATIONS = 100
CALIBRATION_RUNS = 20
REAL = Path(os.environ.get("BUILDCOMPARE_REAL") or Path(__file__).resolve().parents[2] / "shared" / "real").resolve()
CATALOGUE = read_catalogue("mattermost")
MARGINS = {metric.slug: metric.margin_percent for metric in CATALOGUE.metrics}


def ar1(rng: np.random.Generator, size: int, phi: float) -> np.ndarray:
    shocks = rng.standard_normal(size + 300) * math.sqrt(1.0 - phi**2)
    return lfilter([1.0], [1.0, -phi], shocks)[300:]


# ---- Simulated noise ------------------------------------------------------------------------------------------------


def noise() -> None:
    rng = np.random.default_rng(SEED)
    print(f"\nAR(1) noise, {REPETITIONS} series each; a step of 2 sd in the middle; near: within 5 % of the series")
    print(f"calibrated: penalty from {CALIBRATION_RUNS} identical runs, {CALIBRATIONS} such calibrations")
    print("    n  phi | estimated: false  found   near | calibrated: false  found   near | find_events: false")
    for size, phi in itertools.product((1080, 75), (0.0, 0.5, 0.9)):
        calibrated = [
            penalty_factor([no_change_of(ar1(rng, size, phi)) for _ in range(CALIBRATION_RUNS)])
            for _ in range(CALIBRATIONS)
        ]
        cells = []
        for penalties in ([None], calibrated):
            step = 2.0 * (np.arange(size) >= size // 2)
            false = [bool(_changes(penalties, i, ar1(rng, size, phi))) for i in range(REPETITIONS)]
            found = [_changes(penalties, i, ar1(rng, size, phi) + step) for i in range(REPETITIONS)]
            near = [any(abs(at - size // 2) <= size // 20 for at in changes) for changes in found]
            cells.append(f"{np.mean(false):7.1%}{np.mean([bool(each) for each in found]):7.1%}{np.mean(near):7.1%}")
        index = pd.Index(60.0 * np.arange(1, size + 1))
        events = [
            bool(find_events(pd.Series(100 + ar1(rng, size, phi), index=index), (0.0, 60.0 * size)).events)
            for _ in range(REPETITIONS)
        ]
        print(f"{size:5} {phi:4} |      {cells[0]}    |       {cells[1]}    | {np.mean(events):7.1%}")


def _changes(penalties: Sequence[float | None], i: int, values: np.ndarray) -> tuple[int, ...]:
    return changepoints(values, factor=penalties[i % len(penalties)]).changes


# ---- Real load tests ------------------------------------------------------------------------------------------------


def show(result: TestResult, groups: Iterable[int]) -> None:
    for each in (event for event in result.events if event.group in groups):
        size = "     ?" if each.size_percent is None else f"{each.size_percent:+6.1f}"
        span = f"{each.span_s[0] / 60:.1f}-{each.span_s[1] / 60:.1f}"
        print(
            f"    {each.build:4} group {each.group:2} {each.metric:26} {each.kind:5} "
            f"{each.at_s / 60:6.1f} min ({span:>13}) {size} %{'  warned of' if each.warning else ''}"
        )


def count(results: Sequence[tuple[str, TestResult]]) -> None:
    """Print the events of one build only, and how many tests have such as are told of."""
    rows: dict[str, Counter[str]] = {"bounded": Counter(), "unbounded": Counter()}
    for name, result in results:
        told = [found for found in load.events(result) if found.kind == FindingKind.EVENT]
        print(f"  {name}: {len(told)} told of")
        show(result, [found.evidence["group"] for found in told])  # type: ignore[misc]
        metrics = max((len({event.metric for event in found.evidence["events"]}) for found in told), default=0)  # type: ignore[attr-defined]
        rows[result.type] += Counter(
            {
                "tests": 1,
                "with an event": bool(told),
                "of two metrics": metrics > 1,
                "of three": metrics > 2,
                "without a ramp": any(run.ramp_up.onset_s is None for side in result.runs for run in side),
                "groups in the base": sum(found.evidence["side"] == "base" for found in told),
                "groups in the new build": sum(found.evidence["side"] == "new" for found in told),
                "tests with more than five": any(f.kind == FindingKind.MORE_EVENTS for f in load.events(result)),
            }
        )
    for kind, row in rows.items():
        print(f"{kind}: {', '.join(f'{number} {what}' for what, number in row.items())}")


def real() -> None:
    print("\nEvents of the published comparisons (development half) that only one build shows")
    results = []
    for name, test, source in published(REAL):
        recordings = {side: [record(run, source, CATALOGUE) for run in test.runs(side)] for side in SIDES}
        results.append((name, compare_test(test, recordings, CATALOGUE).result))
    count(results)


def identical() -> None:
    print("\nPairs of identical runs (ceiling tests): nothing happened")
    results, lone = [], 0.0
    for (name, kind), runs in read(REAL)[0].items():
        for (i, first), (j, second) in itertools.combinations(enumerate(runs, 1), 2):
            test = Test(name=f"{name}_{i}_{j}", type=kind, base=[Run(report="-")], new=[Run(report="-")])  # type: ignore[arg-type]
            result = compare_test(test, {"base": [first], "new": [second]}, CATALOGUE).result
            results.append((test.name, result))
            steady = [event for event in result.events if event.phase == "steady" and not event.matched]
            sizes = [
                abs(each.size_percent) / MARGINS[each.metric]
                for each in steady
                if each.kind != "level"
                and each.size_percent is not None
                and len({other.metric for other in steady if other.group == each.group}) == 1
                and name not in SMALL
            ]
            lone = max([lone, *sizes])
    count(results)
    print(f"largest excursion of one metric alone, smallest machines left out: {lone:.1f} margins")


PARTS: dict[str, Callable[[], None]] = {"noise": noise, "real": real, "identical": identical}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        if name in ("real", "identical") and not REAL.is_dir():
            print(f"\n{name}: no real data, {REAL} is not a folder")
        else:
            PARTS[name]()
