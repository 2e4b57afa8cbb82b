"""May one look again after each further run, and do further runs show what was promised?

    python benchmarks/looks.py [REPETITIONS]

One metric, one run of each build, then up to eight further ones. The noise is an estimate with 5, 8 or 15 degrees of
freedom that repeated runs count beside, as in a comparison. The first two tables chose the bound (tuning seeds below
250); the others judge by `buildcompare.stats` itself (seeds from 1000):

1. Bounds: how often an unchanged metric is called over all looks, and how often a change is found after each look.
2. What is called over all looks where nothing changed: by itself at each look, and as reports do it.
3. What the plan promises (80 %) and what is found after the planned runs, looked at in the end alone and in between.
4. "N runs of each build would show a change of X %": how often they do, of all and of those that were undecided.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence

import numpy as np
from scipy import special

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Better, NoiseSource, Status
from buildcompare.stats.effects import Effect, judge
from buildcompare.stats.planning import ALPHA, Looks, enough_runs, plan_runs, spent_early, spent_late
from buildcompare.stats.planning import levels as levels_of

RUNS = np.arange(1, 10)  # of each build
DFS = (5.0, 8.0, 15.0)
CHANGE = 2.2  # standard deviations of one run: one look at five runs of each build finds it in 80 to 90 %
MIXED_SD = 1.5  # of the change in the mixture test, in standard deviations of one run: the best of 1, 1.5 and 2.5
CASES = [(df, sd, margin) for df in DFS for sd, margin in ((0.03, 5.0), (0.03, 10.0), (0.056, 10.0), (0.08, 10.0))]


def main(repetitions: int = 2000) -> None:
    """Print every table."""
    bounds(repetitions * 5)
    all_looks(repetitions * 5)
    promised(repetitions)
    sentences(repetitions)


def t_statistics(df: float, change: float, repetitions: int, seed: int) -> FloatArray:
    """Shape (repetitions, 9): the change over its standard error after each pair of runs."""
    rng = np.random.default_rng(seed)
    known = rng.chisquare(df, repetitions)
    runs = rng.normal(0.0, 1.0, (repetitions, 2, RUNS.size))
    found = []
    for n in RUNS:
        means = runs[:, :, :n].mean(axis=2)
        squares = ((runs[:, :, :n] - means[:, :, None]) ** 2).sum(axis=(1, 2))
        variance = (known + squares) / (df + 2.0 * (n - 1))
        found.append((means[:, 1] - means[:, 0] + change) / np.sqrt(variance * 2.0 / n))
    return np.array(found).T


def bounds(repetitions: int) -> None:
    """Table 1: bounds for the looks after the first."""
    spendings: dict[str, Callable[[float], float]] = {
        "Lan-DeMets, as Pocock": spent_early,
        "Lan-DeMets, as O'Brien-Fleming": spent_late,
    }
    looks = tuple((float(n), (n - 1) / 8.0) for n in RUNS[1:])
    levels = {name: np.array(levels_of(looks, spending)) for name, spending in spendings.items()}
    print(f"1. Looks after each of 8 further pairs, {repetitions} repetitions; a change of {CHANGE} sd of one run\n")
    print("| bound | df | called, nothing changed | found after 1 to 8 further pairs | mean |")
    print("| --- | --- | --- | --- | --- |")
    for name in (*levels, "mixture (anytime-valid)"):
        for seed, df in enumerate(DFS):
            called = []
            for change in (0.0, CHANGE):
                t = t_statistics(df, change, repetitions, seed)[:, 1:]
                known = df + 2.0 * (RUNS[1:] - 1)
                p_values = 2.0 * special.stdtr(known, -np.abs(t))
                beyond = p_values < levels[name] if name in levels else mixture(t, known) >= 1.0 / ALPHA
                called.append(np.maximum.accumulate(beyond, axis=1).mean(axis=0))
            each = " ".join(f"{100 * rate:.0f}" for rate in called[1])
            print(f"| {name} | {df:g} | {100 * called[0][-1]:.1f} % | {each} % | {100 * called[1].mean():.0f} % |")


def mixture(t: FloatArray, df: FloatArray) -> FloatArray:
    """Likelihood ratio of a normally distributed change against none, scale-invariant (Robbins 1970; Lai 1976)."""
    ratio = MIXED_SD**2 * RUNS[1:] / 2.0
    shrunk = (1.0 + t**2 / df) / (1.0 + t**2 / (df * (1.0 + ratio)))
    return np.asarray((1.0 + ratio) ** -0.5 * shrunk ** ((df + 1.0) / 2.0))


class Laboratory:
    """Runs of two builds that differ by `change` (log), and what is known of their noise."""

    def __init__(self, df: float, sd: float, change: float, rng: np.random.Generator, known: float | None = None):
        self.df, self.known = df, known or sd * math.sqrt(rng.chisquare(df) / df)
        self.runs = rng.normal(0.0, sd, (2, 100))
        self.runs[1] += change

    def status(self, n: int, margin: float, looks: Looks | None) -> Status:
        """How the metric is judged after `n` runs of each build."""
        runs = self.runs[:, :n]
        squares = float(((runs - runs.mean(axis=1, keepdims=True)) ** 2).sum())
        df = self.df + 2.0 * (n - 1)
        sd = math.sqrt((self.df * self.known**2 + squares) / df)
        change = float(runs[1].mean() - runs[0].mean())
        effect = Effect(change, sd * math.sqrt(2.0 / n), df, sd, NoiseSource.CATALOGUE)
        return judge(effect, margin, Better.LOWER, looks=looks).status


def seen(runs: Sequence[int], planned: int | None) -> Looks:
    """Looks at so many runs."""
    return Looks(tuple(float(n) for n in runs), planned)


def all_looks(repetitions: int) -> None:
    """Table 2: what is called where nothing changed; a small margin, so that nothing is called no difference."""
    print(f"\n2. Nothing changed, looked at after 1 to 9 pairs, {repetitions} repetitions\n")
    print(
        "| df | each look by itself | looks after the first | all nine, the first by itself | of these regressions"
        " | all nine, `planned_runs: 9` |\n| --- | --- | --- | --- | --- | --- |"
    )
    for i, df in enumerate(DFS):
        rng = np.random.default_rng(1000 + i)
        called = np.zeros((repetitions, 5))
        for row in called:
            laboratory = Laboratory(df, 0.05, 0.0, rng)
            naive = [laboratory.status(n, 0.1, None).changed for n in RUNS]
            later = [laboratory.status(n, 0.1, seen(RUNS[:n], None)) for n in RUNS]
            shared = [laboratory.status(n, 0.1, seen(RUNS[:n], 9)).changed for n in RUNS]
            worse = Status.REGRESSION in later
            row[:] = any(naive), any(s.changed for s in later[1:]), any(s.changed for s in later), worse, any(shared)
        print(f"| {df:g} | " + " | ".join(f"{100 * rate:.1f} %" for rate in called.mean(axis=0)) + " |")


def promised(repetitions: int) -> None:
    """Table 3: the power after the planned runs."""
    print(f"\n3. Found after the planned runs (promised: 80 %), {repetitions} repetitions\n")
    print("| df | sd | margin | further | promised change | looked at in the end | and in between |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for i, (df, sd, margin) in enumerate(CASES):
        rng = np.random.default_rng(1100 + i)
        for further in (1, 3, 6):
            step = plan_runs(sd, df, margin_percent=margin)[further - 1]
            change, last = math.log1p(step.found_percent / 100.0), further + 1
            found = np.zeros((repetitions, 2))
            for row in found:
                laboratory = Laboratory(df, sd, change, rng)
                between = [laboratory.status(n, margin, seen(range(1, n + 1), last)) for n in range(2, last + 1)]
                row[:] = laboratory.status(last, margin, seen((1, last), last)).changed, any(s.changed for s in between)
            rates = " | ".join(f"{100 * rate:.0f} %" for rate in found.mean(axis=0))
            print(f"| {df:g} | {100 * sd:.1f} % | {margin:g} % | {further} | {step.found_percent:.1f} % | {rates} |")


def sentences(repetitions: int) -> None:
    """Table 4: the sentence, said by an estimate of the noise, of a build that is slower by what it names."""
    print(f"\n4. Runs that would show a change, {repetitions} repetitions; the noise known exactly | as estimated\n")
    print(
        "| df | sd | margin | runs | called | of undecided | runs | called | of undecided | decided, nothing changed |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for i, (df, sd, margin) in enumerate(CASES):
        cells = []
        for known in (sd, None):
            rng, told, quiet = np.random.default_rng(1200 + i), [], []
            for _ in range(repetitions):
                laboratory = Laboratory(df, sd, 0.0, rng, known)
                enough = enough_runs(laboratory.known, df, margin_percent=margin)
                if enough is None:
                    continue
                last = enough.further + 1
                looks = seen((1, last), last)
                quiet.append(laboratory.status(last, margin, looks) != Status.INCONCLUSIVE)
                laboratory.runs[1] += math.log1p(enough.found_percent / 100.0)
                undecided = laboratory.status(1, margin, None) == Status.INCONCLUSIVE
                told.append((last, laboratory.status(last, margin, looks).changed, undecided))
            runs, called, undecided_first = np.array(told, dtype=float).T
            before = undecided_first > 0
            rate = f"{100 * called[before].mean():.0f} % of {before.sum()}" if before.any() else "none"
            cells.append(f"{np.median(runs):.0f} | {100 * called.mean():.0f} % | {rate}")
        print(f"| {df:g} | {100 * sd:.1f} % | {margin:g} % | {' | '.join(cells)} | {100 * np.mean(quiet):.0f} % |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
