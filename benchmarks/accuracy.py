"""How often is a comparison wrong, and what does it find? On simulated runs, and on real runs of unchanged builds.

    python benchmarks/accuracy.py [REPETITIONS]

Simulated series are AR(1), 1,080 samples of 5 s. Settings were chosen with other seeds (see the git log); the real
tables judge each configuration by the others only, but the pipeline's choices (two families, pooling, tails) were made
with these runs at hand, so they are no figures from unseen data. The real runs are found through BUILDCOMPARE_REAL.

The peer is mattermost-load-test-ng's `ltctl report compare`: it calls every row changed whose rounded difference is
not zero. Beside it stands the rule that people read it with, a fixed size of change of plain means. Its threshold is
set, knowing the answer, to the false-alarm rate that buildcompare has on the same rows. A third line gives that rule
the geometric means of times that buildcompare uses.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special
from scipy.signal import lfilter

from buildcompare.config.catalogue import Metric, read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import root
from buildcompare.labels.noise import label_pairs
from buildcompare.load.view import view_run
from buildcompare.recordings.sources import read
from buildcompare.stats.effects import measure_effect
from buildcompare.stats.levels import mean_with_error
from buildcompare.stats.noise import RepeatedRuns, RunLevel, RunLevels, metric_noise
from loadcalibrate.learn import INJECTED, check_labels, check_metrics, run_levels

SAMPLES = 1080
SMALL = ("v1-1.1", "v2-L110", "v2-L222")
"""The smallest machines, whose runs differ by 11 to 26 %: reported apart."""
FIVE = ("cpu-utilization", "heap-in-use", "stack-in-use", "goroutines-in-use", "rps")
METRIC = Metric(name="simulated", slug="simulated", better="lower", margin_percent=0.001)


def main(repetitions: int = 4000) -> None:
    """Print every table."""
    within_runs(repetitions)
    between_runs(repetitions)
    real = Path(os.environ.get("BUILDCOMPARE_REAL") or root().parent / "shared" / "real").resolve()
    if not real.is_dir():
        print("\nNo real runs: BUILDCOMPARE_REAL names no folder.")
        return
    groups, means = real_groups(real)
    identical_pairs("configurations of useful size", [g for g in groups if g.name not in SMALL], means)
    identical_pairs("with the smallest machines", groups, means, only=SMALL)


# ---- Simulated ------------------------------------------------------------------------------------------------------


def ar1(rng: np.random.Generator, runs: int, phi: float) -> np.ndarray:
    """Series of unit standard deviation, shape (runs, SAMPLES), past their transient."""
    lead = 500
    noise = rng.normal(size=(runs, SAMPLES + lead))
    series = lfilter([math.sqrt(1.0 - phi**2)], [1.0, -phi], noise, axis=1)
    return np.asarray(series[:, lead:])


def within_pair(base: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Two-sided p-values of k pairs of series, shape (k, n) each, by their own standard errors alone."""
    worth = (np.array([mean_with_error(series) for series in table]).T for table in (base, new))
    (b, b_se, b_effective), (n, n_se, n_effective) = worth
    df = np.maximum(b_effective + n_effective - 2.0, 1.0)
    return np.asarray(2.0 * special.stdtr(df, -np.abs(n - b) / np.hypot(b_se, n_se)))


def within_runs(repetitions: int) -> None:
    """No variance between runs: size and power of the test within one pair."""
    print("Within one pair, no run-to-run variance: called at a nominal 5 %")
    print(f"{'phi':>6} {'size %':>8} {'power at 0.5 sd %':>18}")
    for phi in (0.0, 0.5, 0.9, 0.97):
        rng = np.random.default_rng(int(phi * 100) + 77_000)
        base, same, moved = (ar1(rng, repetitions, phi) for _ in range(3))
        size = np.mean(within_pair(base, same) < 0.05)
        power = np.mean(within_pair(base, moved + 0.5) < 0.05)
        print(f"{phi:6.2f} {100 * size:8.1f} {100 * power:18.1f}")


def between_runs(repetitions: int) -> None:
    """Variance between runs, learned from ten pairs of runs."""
    print("\nCalibrated by 10 pairs of runs, phi 0.9: at a nominal 5 %")
    print(f"{'run sd':>6} {'size %':>8} {'power at 3.3 sd %':>18} {'interval holds the truth %':>27}")
    for run_sd in (0.3, 1.0, 3.0):
        rng = np.random.default_rng(int(run_sd * 10) + 88_000)
        called, found, held = 0, 0, 0
        for _ in range(repetitions):
            levels = _run_levels(rng, 22, run_sd)
            pairs = [RepeatedRuns(str(i), "bounded", levels[i : i + 2]) for i in range(0, 20, 2)]
            noise = metric_noise(METRIC, "bounded", pairs)
            base, new = (run.metrics["simulated"] for run in levels[20:])
            assert noise is not None
            s_within = math.sqrt((1 + 0.9) / (1 - 0.9) / SAMPLES)
            truth = 3.3 * math.sqrt(2.0) * math.hypot(run_sd, s_within) / LEVEL
            null = measure_effect([base], [new], noise)
            moved = measure_effect([base], [RunLevel(new.level * (1 + truth), new.se_log, new.seconds)], noise)
            assert null is not None
            assert moved is not None
            called += null.p_value < 0.05
            found += moved.p_value < 0.05
            low, high = moved.interval()
            held += low <= 100.0 * truth <= high
        rates = [100.0 * count / repetitions for count in (called, found, held)]
        print(f"{run_sd:6.1f} {rates[0]:8.1f} {rates[1]:18.1f} {rates[2]:27.1f}")


LEVEL = 1000.0
"""Level of the simulated metric, in standard deviations within a run: relative effects stay small."""


def _run_levels(rng: np.random.Generator, runs: int, run_sd: float) -> list[RunLevels]:
    series = LEVEL + run_sd * rng.normal(size=(runs, 1)) + ar1(rng, runs, 0.9)
    worth = (mean_with_error(run) for run in series)
    return [RunLevels({"simulated": RunLevel(mean, se / mean, 5.0 * SAMPLES)}) for mean, se, _ in worth]


# ---- Real runs of unchanged builds ----------------------------------------------------------------------------------


Means = dict[int, dict[str, float]]
"""Arithmetic means of a run's metrics, by the identity of its levels."""


def real_groups(real: Path) -> tuple[list[RepeatedRuns], Means]:
    """The published ceiling tests: runs of each configuration, as a calibration learns them, and their plain means."""
    catalogue = read_catalogue("mattermost")
    table = pd.read_csv(real / "ceiling/runs.csv", dtype={"config": str})
    groups: list[RepeatedRuns] = []
    means: Means = {}
    for (suite, config), rows in table.groupby(["suite", "config"]):
        runs = []
        for row in rows.itertuples():
            try:
                recording = read(real / "ceiling" / str(row.file), catalogue=catalogue, kind="ltctl")
            except InputError:
                continue  # one file is empty, as published
            view = view_run(recording, row.test_type, catalogue)
            runs.append(run_levels(view, row.test_type, catalogue))
            levels = {series.metric: view.level(series) for series in recording.graphs()}
            means[id(runs[-1])] = {slug: level.mean for slug, level in levels.items() if level and level.mean}
        if len(runs) > 1:
            groups.append(RepeatedRuns(f"{suite}-{config}", rows.test_type.iloc[0], runs))
    return groups, means


def identical_pairs(
    title: str, groups: Sequence[RepeatedRuns], means: Means, only: Sequence[str] | None = None
) -> None:
    """False alarms and detection on pairs between which nothing changed, beside the peer's rule."""
    metrics, labels = check_metrics(groups, read_catalogue("mattermost")), check_labels(groups)
    shown = [group for group in groups if only is None or group.name in only]
    metrics, labels = (rows[rows["group"].isin([group.name for group in shown])] for rows in (metrics, labels))
    changes = [ratio for group in shown for ratio in label_pairs(group).eval("second / first")]
    runs = {(g.name, i): pair for g in shown for i, pair in enumerate(itertools.combinations(g.runs, 2))}
    plain = []
    for row in metrics.itertuples():
        pair = runs[row.group, row.pair]  # of a load without a curve of users its stand-in's level
        first, second = (means[id(run)].get(row.key, run.metrics[row.key].level) for run in pair)
        plain.append(second / first)
    milliseconds = [_peer_calls(group) for group in shown]
    print(f"\nReal identical pairs, {title}: {len(runs)} pairs")
    reports = int(metrics.groupby(["group", "pair"])["called"].any().sum())
    print(f"  single-test reports with a called metric: {reports} of {len(runs)} ({_rate(reports, len(runs))})")
    for name, rows, rules in (
        ("metrics", metrics, {"plain means": plain, "the same levels": np.exp(metrics["log_ratio"])}),
        ("label rows", labels, {"the tables' values": changes}),
    ):
        alarms = int(rows["called"].sum())
        print(f"  {name}: called {alarms} of {len(rows)} ({_rate(alarms, len(rows))}), ", end="")
        print(f"95 % intervals that hold zero {_rate(rows['covering'].sum(), len(rows))}")
        print(f"    {'one run scaled by':<44}" + "".join(f"{f'+{p:g} %':>9}" for p in INJECTED))
        print(f"    {'buildcompare finds':<44}" + "".join(f"{_rate(rows[p].sum(), len(rows)):>9}" for p in INJECTED))
        for what, ratios in rules.items():
            threshold = _threshold(ratios, alarms / len(rows))
            peer = [_rate(sum(r * (1 + p / 100) - 1 > threshold for r in ratios), len(ratios)) for p in INJECTED]
            rule = f"{100 * threshold:.1f} % of {what} finds"
            print(f"    {rule:<44}" + "".join(f"{each:>9}" for each in peer))
    listed, of = (sum(each) for each in zip(*milliseconds, strict=True))
    print(f"  the peer's own rule lists {listed} of {of} label rows as changed ({_rate(listed, of)})")
    five = metrics[metrics["key"].isin(FIVE)]
    print(f"  +20 % on {', '.join(FIVE)}: found in {_rate(five[20.0].sum(), len(five))}")
    for key, rows in metrics.groupby("key"):
        cells = "".join(f"{_rate(rows[p].sum(), len(rows)):>9}" for p in INJECTED)
        print(f"    {key:<30} called {_rate(rows['called'].sum(), len(rows)):>6}{cells}")


def _threshold(ratios: Sequence[float], rate: float) -> float:
    """The size of change that calls the same part of unchanged rows."""
    sizes = np.sort(np.abs(np.asarray(ratios) - 1.0))
    return float(sizes[max(math.ceil((1.0 - rate) * len(sizes)) - 1, 0)])


def _peer_calls(group: RepeatedRuns) -> tuple[int, int]:
    """Rows of label tables whose difference is not zero once both are whole milliseconds; and all rows."""
    pairs = label_pairs(group)
    differing = (1e3 * pairs["first"]).round() != (1e3 * pairs["second"]).round()
    return int(differing.sum()), len(differing)


def _rate(count: int, of: int) -> str:
    return f"{100.0 * count / of:.1f} %" if of else "none"


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
