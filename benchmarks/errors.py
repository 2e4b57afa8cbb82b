"""How often are errors called: where one in a hundred requests begins to fail, and where nothing changed?

    python benchmarks/errors.py [REPETITIONS] [--frames]

Three runs of each build with 10,000 requests each; also two and five runs, and other shares. The share of failures of
a run is beta-distributed: `rho` is the correlation of two requests of one run (0: all runs alike, 0.01: shares of 1 %
differ by as much as they are large). `AR(1)`: within a run, failures come and go in ten-second intervals with a
correlation of 0.9, around a level of the run. Printed are the percentages that differ at p < 0.05, in either direction,
by the test in use (`ours`), a quasi-binomial test (dispersion of the runs, at least 1: `quasi`), the same mixed with
four degrees of freedom at rho 0.001 (`prior`), and a beta-binomial likelihood-ratio test (`beta`, of the first 150
repetitions, F-corrected). `--frames` prints how many `buildcompare.compare` calls a regression, of frames with 300
samples. The test was chosen on seed 11; these are seeds from 1000 on. Of 2,000 repetitions, 5 % has a Monte Carlo error
of 0.5. Shares of 1 % that scatter by 17 % (unbounded repeats of a published study; bounded: 2 %) have rho 0.0003.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

import buildcompare as bc
from buildcompare.recordings.recording import FloatArray
from buildcompare.stats.failures import failures_effect

REQUESTS, SAMPLES = 10_000, 300
CASES = [(0.0, 0.01), (0.01, 0.01), (0.001, 0.001), (0.0001, 0.0001), (0.05, 0.05), (0.001, 0.003), (0.0, 0.001)]
RHOS = (0.0, 0.001, 0.01)
BETA = 150
Test = Callable[[FloatArray, FloatArray], float]


def shares(rng: np.random.Generator, share: float, rho: float, runs: int) -> FloatArray:
    """Share of failures of each run."""
    if share == 0.0 or rho == 0.0:
        return np.full(runs, share)
    return rng.beta(share * (1.0 / rho - 1.0), (1.0 - share) * (1.0 / rho - 1.0), runs)


def wandering(rng: np.random.Generator, share: float) -> FloatArray:
    """Share of failures in each interval of a run, AR(1) on the logarithm, with the mean `share`."""
    steps = rng.normal(size=SAMPLES) * np.sqrt(1.0 - 0.9**2)
    log = np.empty(SAMPLES)
    log[0] = rng.normal()
    for i in range(1, SAMPLES):
        log[i] = 0.9 * log[i - 1] + steps[i]
    return np.minimum(share * np.exp(log - 0.5), 1.0)


def counts(rng: np.random.Generator, share: float, rho: float, runs: int, *, ar1: bool) -> FloatArray:
    """Failures of each run."""
    levels = shares(rng, share, rho, runs)
    if not ar1:
        return rng.binomial(REQUESTS, levels).astype(float)
    each = round(REQUESTS / SAMPLES)
    return np.array([rng.binomial(each, wandering(rng, level)).sum() for level in levels], dtype=float)


def ours(base: FloatArray, new: FloatArray) -> float:
    """p-value of the library."""
    effect = failures_effect(*([(each, REQUESTS) for each in side] for side in (base, new)))
    return effect.p_value if effect else 1.0


def quasi(base: FloatArray, new: FloatArray, prior_df: float = 0.0) -> float:
    """p-value of the quasi-binomial test, with a prior of the dispersion at rho 0.001."""
    means = np.array([base.mean(), new.mean()]) / REQUESTS
    pooled = means.mean()
    if pooled == 0.0:
        return 1.0
    squares, df = prior_df * (1.0 + 0.001 * (REQUESTS - 1)), prior_df
    for side, mean in zip((base, new), means, strict=True):
        if mean > 0.0:  # a build without failures tells nothing of their scatter
            squares += float(((side - REQUESTS * mean) ** 2).sum()) / (REQUESTS * mean * (1.0 - mean))
            df += side.size - 1
    per_run = 1.0 / base.size + 1.0 / new.size
    se = np.sqrt(max(squares / df, 1.0) * pooled * (1.0 - pooled) / REQUESTS * per_run)
    return float(2.0 * stats.t.sf(abs(means[1] - means[0]) / se, df))


def beta(base: FloatArray, new: FloatArray) -> float:
    """p-value of the beta-binomial likelihood-ratio test, by the F distribution of its degrees of freedom."""
    both = np.concatenate([base, new])
    if not both.any():
        return 1.0

    def log_likelihood(failed: FloatArray, share: float, rho: float) -> float:
        scale = 1.0 / special.expit(rho) - 1.0
        a, b = special.expit(share) * scale, special.expit(-share) * scale
        return float((special.betaln(a + failed, b + REQUESTS - failed) - special.betaln(a, b)).sum())

    def best(sides: list[FloatArray]) -> float:
        start = [float(special.logit((side.mean() + 0.25) / (REQUESTS + 0.5))) for side in sides]

        def minus(point: FloatArray) -> float:
            return -sum(log_likelihood(side, share, point[-1]) for side, share in zip(sides, point, strict=False))

        found = [optimize.minimize(minus, [*start, rho], method="Nelder-Mead").fun for rho in (-8.0, -4.0)]
        return -float(min(found))

    df = both.size - 2
    ratio = 2.0 * (best([base, new]) - best([both]))
    return float(stats.f.sf(max(ratio, 0.0) * df / both.size, 1, df))


TESTS: dict[str, Test] = {"ours": ours, "quasi": quasi, "prior": lambda b, n: quasi(b, n, 4.0), "beta": beta}


def rates(repetitions: int) -> Iterator[str]:
    """Lines of the table."""
    settings = [(case, rho, 3, ar1) for case in CASES for rho in RHOS for ar1 in (False, True)]
    settings += [(case, rho, runs, False) for case in CASES[:2] for rho in RHOS for runs in (2, 5)]
    yield "  base     new    rho  runs  AR(1) " + "".join(f"{name:>8}" for name in TESTS)
    for seed, ((base, new), rho, runs, ar1) in enumerate(settings, start=1000):
        rng = np.random.default_rng(seed)
        pairs = [[counts(rng, each, rho, runs, ar1=ar1) for each in (base, new)] for _ in range(repetitions)]
        called = [
            np.mean([test(*p) < 0.05 for p in pairs[: BETA if test is beta else None]]) for test in TESTS.values()
        ]
        line = f"{base:7.2%} {new:7.2%} {rho:6g} {runs:5d} {'yes' if ar1 else 'no':>6} "
        yield line + "".join(f"{100 * each:8.1f}" for each in called)


def verdicts(repetitions: int) -> Iterator[str]:
    """Lines of the verdicts of frames."""

    def frame(rng: np.random.Generator, level: float, names: tuple[str, ...], *, ar1: bool) -> pd.DataFrame:
        elapsed = np.arange(SAMPLES) * 10.0
        share = wandering(rng, level) if ar1 and level else np.full(SAMPLES, level)
        requests = rng.poisson(REQUESTS / SAMPLES, SAMPLES)
        failed = rng.binomial(requests, share)
        columns = {
            "Users": np.minimum(elapsed, 500.0),
            "latency_ms": rng.lognormal(2.0, 0.05, SAMPLES),
            "requests_per_second": requests / 10.0,
            "errors_per_second": failed / 10.0,
            "errors_percent": 100.0 * failed / np.maximum(requests, 1),
            "success_rate": 1.0 - failed / np.maximum(requests, 1),
        }
        return pd.DataFrame({name: columns[name] for name in ("Users", "latency_ms", *names)}, index=elapsed)

    kinds = [("errors_per_second", "requests_per_second"), ("errors_percent",), ("success_rate",)]
    settings = [(c, rho, kind, ar1, 3) for kind in kinds for c in CASES[:2] for rho in RHOS for ar1 in (False, True)]
    settings += [(c, rho, kinds[0], False, 1) for c in CASES[:2] for rho in RHOS]
    yield "columns                                   base     new    rho  AR(1)  runs  regressions"
    for seed, (case, rho, kind, ar1, runs) in enumerate(settings, start=2000):
        rng, called = np.random.default_rng(seed), 0
        for _ in range(repetitions):
            sides = [[frame(rng, level, kind, ar1=ar1) for level in shares(rng, each, rho, runs)] for each in case]
            rows = bc.compare(*sides, type="bounded", users=500).results.tests[0].metrics
            called += any(row.status == "regression" for row in rows if row.name.startswith(("errors", "success")))
        line = f"{', '.join(kind):38} {case[0]:7.2%} {case[1]:7.2%} {rho:6g} {'yes' if ar1 else 'no':>6} {runs:5d}"
        yield line + f"{100 * called / repetitions:11.1f} %"


def main(*arguments: str) -> None:
    """Print the tables."""
    numbers = [int(each) for each in arguments if each.isdigit()]
    repetitions = numbers[0] if numbers else 2000
    for line in verdicts(repetitions) if "--frames" in arguments else rates(repetitions):
        print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
