"""How often does a comparison of three runs of each build call what did not change, if runs scatter unusually?

    python benchmarks/repeats.py [DRAWS]

Runs of one build are drawn one, two and three times as noisy as the catalogue says: simulated ones, whose metrics share
a part of their noise, and real ones. Those are deviations of identical runs of Mattermost's ceiling tests (the folder
of real runs: BUILDCOMPARE_REAL) from the mean of their configuration. Every second configuration, by name, belongs to
the other half, which shows whether a setting made on the first holds; the half that is not drawn from is a calibration
in the last rows. Printed are the rows with p below 5 % where nothing changed, the rows called, and the rows that are
called worse where each metric is worse by twice its margin.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from identical import CATALOGUE, SMALL, read

from buildcompare.calibration.file import beside_runs
from buildcompare.load.view import view_run
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Better, Pair
from buildcompare.stats.effects import judge_metrics, measure_effects
from buildcompare.stats.noise import RepeatedRuns, RunLevel, catalogue_noise, metric_noise
from loadcalibrate.learn import run_levels

RUNS = 3
SHARED = 0.53  # correlation of simulated metrics: eight are worth 2.7 independent ones, as in the ceiling tests
Draw = Callable[[np.random.Generator, int], FloatArray]
"""Log deviations of so many runs, shape (runs, metrics)."""


def rates(
    slugs: Sequence[str], draw: Draw, factor: float, draws: int, groups: Sequence[RepeatedRuns], kind: str
) -> str:
    """Shares of rows with p < 0.05, called, and found."""
    rng, rows = np.random.default_rng(20261124), []
    find = beside_runs(CATALOGUE, groups).find
    metrics = [find(slug) for slug in slugs]
    priors = {metric.slug: metric_noise(metric, kind, groups) for metric in metrics}  # type: ignore[arg-type]
    worse = {m.slug: math.log1p(2 * m.margin_percent / 100) * (-1 if m.better == Better.HIGHER else 1) for m in metrics}
    for _ in range(draws):
        logs = factor * draw(rng, 2 * RUNS)
        for planted in (0.0, 1.0):
            levels = {}
            for slug, of in zip(slugs, logs.T, strict=True):
                new = of[RUNS:] + planted * worse[slug]
                levels[slug] = Pair(*([RunLevel(math.exp(each)) for each in side] for side in (of[:RUNS], new)))
            effects = measure_effects(levels, priors)
            judged = judge_metrics([(metric, effects[metric.slug]) for metric in metrics])
            rows += [(planted, each.effect.p_value < 0.05, each.status.changed) for each in judged if each]
    table = np.array(rows, dtype=np.float64)
    none, moved = table[table[:, 0] == 0], table[table[:, 0] == 1]
    return f"{none[:, 1].mean():8.1%} {none[:, 2].mean():8.1%} {moved[:, 2].mean():8.1%}"


def simulated(slugs: Sequence[str], kind: str) -> Draw:
    """Runs whose metrics scatter as the catalogue says."""
    sds = np.array([noise.sd for slug in slugs if (noise := catalogue_noise(CATALOGUE.find(slug), kind))])  # type: ignore[arg-type]

    def draw(rng: np.random.Generator, count: int) -> FloatArray:
        common, rest = rng.normal(size=(count, 1)), rng.normal(size=(count, sds.size))
        return np.asarray(sds * (math.sqrt(SHARED) * common + math.sqrt(1.0 - SHARED) * rest))

    return draw


def resampled(slugs: Sequence[str], groups: Sequence[RepeatedRuns]) -> Draw:
    """Runs drawn from the deviations of these groups, with a run's metrics together."""
    deviations = []
    for group in groups:
        logs = np.log([[run.metrics[slug].level for slug in slugs] for run in group.runs])
        deviations += [*((logs - logs.mean(axis=0)) * math.sqrt(len(logs) / (len(logs) - 1)))]
    pool = np.array(deviations)
    return lambda rng, count: np.asarray(pool[rng.choice(len(pool), count, replace=False)])


def main(draws: str = "400") -> None:
    """Print the rates."""
    given = os.environ.get("BUILDCOMPARE_REAL") or "../shared/real"
    groups = [
        RepeatedRuns(name, kind, [run_levels(view_run(r, kind, CATALOGUE), kind, CATALOGUE) for r in runs])  # type: ignore[arg-type]
        for (name, kind), runs in sorted(read(Path(given).resolve())[0].items())
        if name not in SMALL and kind == "unbounded"
    ]
    halves = groups[::2], groups[1::2]
    every = [
        m.slug for m in CATALOGUE.metrics if not m.load and m.run_sd_percent.unbounded and m.run_sd_percent.bounded
    ]
    kept = [s for s in every if all(s in run.metrics for group in groups for run in group.runs)]
    cases: list[tuple[str, Draw, Sequence[str], Sequence[RepeatedRuns], str]] = [
        (f"simulated, {kind}", simulated(every, kind), every, [], kind) for kind in ("bounded", "unbounded")
    ]
    for name, half, other in (("first", *halves), ("second", *halves[::-1])):
        cases.append((f"{name} half, catalogue", resampled(kept, half), kept, [], "unbounded"))
        cases.append((f"{name} half, calibrated", resampled(kept, half), kept, other, "unbounded"))
    print(f"{len(every)} metrics simulated, {len(kept)} real\n{'':26} times    p<.05   called    found")
    for name, draw, slugs, known, kind in cases:
        for factor in (1.0, 2.0, 3.0):
            print(f"{name:26} {factor:5g} {rates(slugs, draw, factor, int(draws), known, kind)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
