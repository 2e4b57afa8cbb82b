"""What does judging cost? 10,000 pairs of series of 1,081 points, against one Mann-Whitney test per pair.

    python benchmarks/significance.py [PAIRS]

Prints CPU seconds, the ratio to scipy.stats.mannwhitneyu on the same pairs (timed on every 20th of them), and the
memory that judging adds for one and for all of ten parts: it must not grow with the number of pairs.
"""

from __future__ import annotations

import sys
import time
import tracemalloc

import numpy as np
from scipy import stats
from scipy.signal import lfilter

from buildcompare.config.catalogue import Metric
from buildcompare.stats.effects import judge_metrics, measure_effect
from buildcompare.stats.levels import mean_with_error
from buildcompare.stats.noise import Noise, RunLevel

POINTS = 1081
PHI = 0.9
EVERY = 20


def main(pairs: int = 10_000) -> None:
    """Print the table."""
    rng = np.random.default_rng(20_241)
    base, new = (_series(rng, pairs) for _ in range(2))
    _judged(base[:10], new[:10])  # imports and first calls outside the clock
    start = time.process_time()
    _judged(base, new)
    ours = time.process_time() - start

    start = time.process_time()
    for b, n in zip(base[::EVERY], new[::EVERY], strict=True):
        stats.mannwhitneyu(b, n)
    theirs = (time.process_time() - start) * pairs / len(base[::EVERY])

    print(f"{pairs:,} pairs of {POINTS:,} points, CPU seconds")
    print(f"  buildcompare: level, standard error, effect, interval, families  {ours:8.2f}")
    print(f"  scipy.stats.mannwhitneyu, one call per pair                      {theirs:8.2f}")
    print(f"  ratio                                                            {ours / theirs:8.2f}")
    for part in (pairs // 10, pairs):
        tracemalloc.start()
        _judged(base[:part], new[:part])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"  memory added for {part:,} pairs: {peak / 1e6:.1f} MB, {peak / part:,.0f} bytes for each")


def _series(rng: np.random.Generator, count: int) -> np.ndarray:
    noise = lfilter([1.0], [1.0, -PHI], rng.normal(size=(count, POINTS)), axis=1)
    return np.asarray(100.0 + noise)


def _judged(base: np.ndarray, new: np.ndarray) -> int:
    """Judge each row of `base` against the row of `new`, as a comparison does; how many were called."""
    metric = Metric(name="metric", slug="metric", better="lower")
    noise = Noise(0.02, 14.0, "calibration")
    levels = [[RunLevel(mean, se / mean) for mean, se, _ in map(mean_with_error, table)] for table in (base, new)]
    effects = [(metric, measure_effect([b], [n], noise)) for b, n in zip(*levels, strict=True)]
    judged = judge_metrics(effects)
    for each in judged:
        if each is not None:
            each.effect.interval()
    return sum(each is not None and each.status == "regression" for each in judged)


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
