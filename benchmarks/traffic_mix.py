"""Is a changed traffic mix told apart from changed speed? Simulated pairs of bounded runs with a known answer.

    python benchmarks/traffic_mix.py [PAIRS] [FIRST_SEED] [RUNS_PER_BUILD]

In each pair the calls of labels are dropped or multiplied until the true averages of API and store times move by 15 %
or more. In the first row nothing else changed, in the others every call became
slower or faster too. Runs differ from each other as runs of one build do. The error rate of a called speed was
chosen after a look at seeds 2000 to 2099; figures come from seeds 10000 and up.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from buildcompare.comparison.measure import compare_test
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Test
from buildcompare.results import TestResult
from loadsim import Coordinator, RunSettings, Thresholds, Traffic, simulate_run
from loadsim.labels import typical_seconds

SETTINGS = RunSettings(
    type="bounded", coordinator=Coordinator(max_users=3000, thresholds=Thresholds(None, None, None, None))
)
LEAST = 0.15
"""True change by mix, in log terms: beyond the margin of 10 % by more than a rounding."""
SPEEDS = (1.0, 1.2, 0.8, 1.4, 0.65)
"""Factors on the time of every call; 1: only the mix changed."""
SLUGS = {"api": "avg-api-times", "store": "avg-store-times"}


def main(pairs: int = 40, first: int = 10_000, runs: int = 1) -> None:
    """Print how often each kind of pair was called what."""
    last = first + 2 * runs * pairs * len(SPEEDS) - 1
    print(f"{pairs} pairs each, {runs} runs per build, seeds {first} to {last}; API and store averages")
    print("speed  mix only  both  speed only  neither  gate regression, of those that got slower by the mix alone")
    for number, speed in enumerate(SPEEDS):
        kinds: Counter[str] = Counter()
        failed = slower = 0
        start, step = first + 2 * runs * pairs * number, 2 * runs
        for seed in range(start, start + step * pairs, step):
            traffic = drawn_mix(np.random.default_rng(seed))
            result = compared(replace(traffic, times=(("api/*", speed), ("store/*", speed))), seed, runs)
            for row in result.metrics:
                if row.slug in SLUGS.values():
                    kinds[row.traffic_mix.kind if row.traffic_mix else "no split"] += 1
            row = next(row for row in result.metrics if row.slug == "avg-api-times")
            if row.status == "regression" and speed == 1.0:
                slower += 1
                failed += row.at_unchanged_mix.status == "regression"
        cells = [100.0 * kinds[kind] / (2 * pairs) for kind in ("mix", "both", "speed", "neither")]
        rest = sum(kinds.values()) - sum(kinds[kind] for kind in ("mix", "both", "speed", "neither"))
        told = "  ".join(f"{cell:6.1f} %" for cell in cells)
        print(f"{speed:5.2f}  {told}  {failed} of {slower}" + (f"  ({rest} without an answer)" if rest else ""))


def drawn_mix(rng: np.random.Generator) -> Traffic:
    """Calls dropped or multiplied for some labels of each table until its average moves by `LEAST`."""
    while True:
        traffic = Traffic(calls=tuple(_some(rng)))
        if all(abs(np.log(traffic.average_factor(group, SETTINGS))) >= LEAST for group in SLUGS):
            return traffic


def compared(traffic: Traffic, seed: int, runs: int = 1) -> TestResult:
    """The test of a build with unchanged traffic against one with `traffic`."""
    files = [{"recording": f"{i}.parquet"} for i in range(runs)]
    params = Test.model_validate({"name": "bounded", "type": "bounded", "users": 3000, "base": files, "new": files})
    base = [simulate_run(SETTINGS, seed + 2 * i, traffic=Traffic()).recording for i in range(runs)]
    new = [simulate_run(SETTINGS, seed + 2 * i + 1, traffic=traffic).recording for i in range(runs)]
    return compare_test(params, {"base": base, "new": new}, read_catalogue("mattermost")).result


def _some(rng: np.random.Generator) -> Iterator[tuple[str, float]]:
    for group, typical in typical_seconds(SETTINGS).items():
        for label in rng.choice(sorted(typical), size=int(rng.integers(1, 6)), replace=False):
            yield f"{group}/{label}", 0.0 if rng.random() < 0.3 else float(np.exp(rng.normal() * 1.5))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
