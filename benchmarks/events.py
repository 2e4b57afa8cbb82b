"""How often are changes claimed where there are none, how many are found, and what do real tests show?

``python benchmarks/events.py`` prints all of it, ``python benchmarks/events.py noise real identical`` a part.
The seed differs from all that chose settings. Real load tests are in the folder named by BUILDCOMPARE_REAL, or
../shared/real; without it their parts are left out. The rules for a warning (a witness, what is lasting, how far the
other build is looked at) were written with these comparisons in view, and `compare_events.LONE` with these identical
runs: what they print is no independent measure, only releases that were not looked at are.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.signal import lfilter

from buildcompare.config.catalogue import read_catalogue
from buildcompare.load.curve import find_stop, steady_window
from buildcompare.metrics.events import AFTER_RAMP_S, PlacedEvent, RunEvents, find_events, match_events
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import read
from buildcompare.stats.changepoints import CalibratedPenalty, changepoints

SEED = 20261121
REPETITIONS = 1000
CALIBRATIONS = 100
CALIBRATION_RUNS = 20
REAL = Path(os.environ.get("BUILDCOMPARE_REAL") or Path(__file__).resolve().parents[2] / "shared" / "real").resolve()
CATALOGUE = read_catalogue("mattermost")
MARGINS = {metric.slug: metric.margin_percent for metric in CATALOGUE.metrics}

SMALLEST = ("1.1", "L110", "L222")
"""Machines of the smallest size, whose runs differ by tens of percent."""


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
            CalibratedPenalty.learn([ar1(rng, size, phi) for _ in range(CALIBRATION_RUNS)]) for _ in range(CALIBRATIONS)
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


def _changes(penalties: Sequence[CalibratedPenalty | None], i: int, values: np.ndarray) -> tuple[int, ...]:
    return changepoints(values, calibration=penalties[i % len(penalties)]).changes


# ---- Real load tests ------------------------------------------------------------------------------------------------


def found_in(recording: Recording, *, bounded: bool, clock: list[float]) -> dict[str, RunEvents] | None:
    """The events of every metric of the catalogue within the steady window; None where there is none."""
    users = recording.total("number-of-connected-devices")
    load = users or recording.total("goroutines-in-use")
    if load is None:
        return None
    curve = recording.curve(load)
    stop = find_stop(curve) if users else find_stop(curve, fastest_fall=None)
    if stop is None:
        return None
    window = steady_window(curve, "bounded" if bounded else "unbounded", stop=stop).window
    if window is None:
        return None
    inside = (window[0] + AFTER_RAMP_S * bounded, window[1])
    series = {metric.slug: recording.total(metric.slug) for metric in CATALOGUE.metrics}
    curves = {slug: recording.curve(each) for slug, each in series.items() if each is not None}
    start = time.process_time()
    found = {slug: find_events(each, inside, smallest_percent=MARGINS[slug] / 5) for slug, each in curves.items()}
    clock[0] += time.process_time() - start
    return found


def placed_in(base: dict[str, RunEvents], new: dict[str, RunEvents], clock: list[float]) -> tuple[PlacedEvent, ...]:
    start = time.process_time()
    placed = match_events(base, new, MARGINS)
    clock[0] += time.process_time() - start
    return placed


def show(placed: tuple[PlacedEvent, ...]) -> None:
    for each in placed:
        what = "matched" if each.matched else "WARNING" if each.warning else "unmatched"
        size = "     ?" if each.size_percent is None else f"{each.size_percent:+6.1f}"
        span = f"{each.span_s[0] / 60:.1f}-{each.span_s[1] / 60:.1f}"
        print(
            f"    {each.build:4} group {each.group:2} {each.metric:26} {each.kind:5} "
            f"{each.at_s / 60:6.1f} min ({span:>13}) {size} %  {what}"
        )


def warnings_of(placed: tuple[PlacedEvent, ...]) -> int:
    return len({each.group for each in placed if each.warning})


def real() -> None:
    print("\nEvents of the published comparisons (development half), in the steady window")
    clock, counts = [0.0], {True: [], False: []}
    for folder in sorted((REAL / "comparisons").glob("*/*_*bounded")):
        bounded = not folder.name.endswith("unbounded")
        runs = [
            found_in(read(folder / f"{side}.csv.gz", catalogue=CATALOGUE), bounded=bounded, clock=clock)
            for side in ("base", "new")
        ]
        if runs[0] is None or runs[1] is None:
            print(f"  {folder.parent.name} {folder.name}: no steady window")
            continue
        placed = placed_in(runs[0], runs[1], clock)
        counts[bounded].append(warnings_of(placed))
        print(f"  {folder.parent.name} {folder.name}: {warnings_of(placed)} groups of unmatched events warned of")
        show(placed)
    for bounded, found in counts.items():
        name = "bounded" if bounded else "unbounded"
        print(f"{name}: {sum(found)} groups warned of in {len(found)} tests, {np.mean(found):.2f} per test")
    print(f"CPU seconds of a four-test comparison: {4 * clock[0] / sum(map(len, counts.values())):.2f}")


def identical() -> None:
    print("\nPairs of identical runs (ceiling tests): nothing happened")
    clock = [0.0]
    groups: dict[tuple[str, str, str], list[dict[str, RunEvents]]] = {}
    for row in csv.DictReader((REAL / "ceiling" / "runs.csv").open(encoding="utf-8")):
        if row["n_metrics"]:
            recording = read(REAL / "ceiling" / row["file"], catalogue=CATALOGUE, kind="ltctl")
            found = found_in(recording, bounded=row["test_type"] == "bounded", clock=clock)
            if found is not None:
                groups.setdefault((row["suite"], row["config"], row["test_type"]), []).append(found)
    counts, lone = [], 0.0
    for key, runs in groups.items():
        for base, new in itertools.combinations(runs, 2):
            placed = placed_in(base, new, clock)
            counts.append(warnings_of(placed))
            if counts[-1]:
                print(f"  {' '.join(key)}: {counts[-1]}")
                show(tuple(each for each in placed if each.warning))
            sizes = [
                abs(each.size_percent) / MARGINS[each.metric]
                for each in placed
                if each.kind != "level"
                and each.size_percent is not None
                and not each.matched
                and len({other.metric for other in placed if other.group == each.group}) == 1
                and key[1] not in SMALLEST
            ]
            lone = max([lone, *sizes])
    print(f"{sum(counts)} groups warned of in {len(counts)} pairs, {np.mean(counts):.2f} per pair")
    print(f"largest excursion of one metric alone, smallest machines left out: {lone:.1f} margins")


PARTS: dict[str, Callable[[], None]] = {"noise": noise, "real": real, "identical": identical}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        if name in ("real", "identical") and not REAL.is_dir():
            print(f"\n{name}: no real data, {REAL} is not a folder")
        else:
            PARTS[name]()
