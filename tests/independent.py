"""What a comparison of tables must say, computed anew in a few lines of plain Python, for random tables.

`python tests/independent.py 5000` tries so many; the tests try a few.
"""

from __future__ import annotations

import math
import random
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import buildcompare as bc

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0}
MIRROR = {bc.Status.REGRESSION: bc.Status.IMPROVEMENT, bc.Status.IMPROVEMENT: bc.Status.REGRESSION}
EDGE = {bc.Status.EQUIVALENT, bc.Status.NOT_WORSE, bc.Status.INCONCLUSIVE}
"""Margins are percent of the base, so that swapped builds may differ among these."""
LOAD = "Number of Connected Devices"
Numbers = dict[str, list[float]]


def geometric(numbers: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, numbers)))


def judged(base: list[bc.Recording], new: list[bc.Recording]) -> dict[str, tuple[Any, ...]]:
    test = bc.compare(base, new, type="bounded", users=2000).results.tests[0]
    found: dict[str, tuple[Any, ...]] = {
        row.name: (row.base, row.new, row.delta_percent, row.status, row.window.base)
        for row in test.metrics
        if row.name != LOAD
    }
    for row in test.labels:
        found[f"api {row.label}"] = row.base, row.new, row.delta_percent, row.status, None
    return found


def run_of(rng: random.Random, folder: Path, levels: Numbers, labels: Numbers, i: int) -> bc.Recording:
    rows = []
    for name, samples in levels.items():
        unit = rng.choice([*UNITS])
        rows += [f"{1733911200 + 60 * k},{name},{value / UNITS[unit]!r},{unit}" for k, value in enumerate(samples)]
    lines = []
    for name, values in labels.items():
        unit = rng.choice([*UNITS])
        lines.append(f"api,{name},avg,{values[i] / UNITS[unit]!r},{unit}")
    rows += [f"{1733911200 + 60 * k},{LOAD},{min(400 * k, 2000)}," for k in range(60)]
    rng.shuffle(rows)
    rng.shuffle(lines)
    file, beside = folder / "run.csv", folder / "labels.csv"
    file.write_text("\n".join(["timestamp,metric,value,unit", *rows, ""]), "utf-8")
    beside.write_text("\n".join(["group,label,stat,value,unit", *lines, ""]), "utf-8")
    return bc.read(file, labels=beside)


def wrong(seed: int) -> list[str]:
    """What of one random comparison differs from plain sums, or from the same in another order, unit or direction."""
    rng = random.Random(seed)
    names = rng.sample(["Avg API times", "P99 API times", "Avg Store times"], 2)
    sizes = rng.randint(1, 3), rng.randint(1, 3)
    change = [1.0, rng.choice([1.0, 0.7, 1.05, 1.5])]
    builds = [
        [
            {n: [0.02 * change[b] * rng.lognormvariate(0, 0.05) for _ in range(60)] for n in names}
            for _ in range(sizes[b])
        ]
        for b in (0, 1)
    ]
    labels = [
        {f"c{k}": [0.01 * (k + 1) * change[b] * rng.lognormvariate(0, 0.1) for _ in range(sizes[b])] for k in range(6)}
        for b in (0, 1)
    ]
    with tempfile.TemporaryDirectory() as name:
        made = [[run_of(rng, Path(name), levels, labels[b], i) for i, levels in enumerate(builds[b])] for b in (0, 1)]
    first, swapped = judged(made[0], made[1]), judged(made[1], made[0])
    shuffled = judged(*(rng.sample(build, len(build)) for build in made))
    faults = [] if {*first} == {*names, *(f"api {label}" for label in labels[0])} else [f"other rows: {first.keys()}"]
    for key, (*seen, status, window) in first.items():
        if window:
            inside = slice(int(window[0] // 60) + 1, int(window[1] // 60) + 1)
            base, new = (geometric([geometric(run[key][inside]) for run in build]) for build in builds)
        else:
            base, new = (statistics.fmean(of[key.removeprefix("api ")]) for of in labels)
        right = [base, new, 100 * (new / base - 1)]
        if not all(math.isclose(*pair, rel_tol=1e-9, abs_tol=1e-9) for pair in zip(seen, right, strict=True)):
            faults.append(f"{seed}: {key}: {seen} is not {right}")
        if shuffled[key][3] != status or not math.isclose(shuffled[key][2], seen[2], rel_tol=1e-9, abs_tol=1e-9):
            faults.append(f"{seed}: {key}: {shuffled[key]} in another order, {seen} before")
        mirrored = {MIRROR.get(status, status)} | (EDGE if status in EDGE else set())
        back = 100 * (base / new - 1)
        if swapped[key][3] not in mirrored or not math.isclose(swapped[key][2], back, rel_tol=1e-9, abs_tol=1e-9):
            faults.append(f"{seed}: {key}: {swapped[key]} swapped, {[*seen, status]} before")
    return faults


if __name__ == "__main__":
    counts = [wrong(seed) for seed in range(int(sys.argv[1]))]
    print("\n".join(fault for each in counts for fault in each))
    print(f"{len(counts):,} comparisons, {sum(map(bool, counts)):,} differ")
