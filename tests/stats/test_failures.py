"""Failures are judged by how they scatter between runs: what is called, what is not, and where it cannot be told."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import buildcompare as bc
from buildcompare.stats.failures import Failures, failures_effect
from support import sure

ATTEMPTS = 10_000


def runs(*failed: float) -> list[Failures]:
    return [Failures(each, ATTEMPTS) for each in failed]


def test_few_failures_are_judged_by_the_exact_test() -> None:
    """Runs that agree by chance (none in the base) would be certain by their scatter alone."""
    effect = sure(failures_effect(runs(0, 0, 0), runs(1, 1, 1)))
    assert effect.p_value == pytest.approx(stats.binomtest(3, 3).pvalue)
    few, more = runs(2, 2, 2), runs(7, 7, 7)
    judged = sure(failures_effect(few, more))
    assert judged.p_value == pytest.approx(stats.binomtest(21, 27).pvalue)


def test_runs_that_differ_are_judged_by_their_scatter() -> None:
    base, new = (20, 90, 240), (60, 300, 150)
    effect = sure(failures_effect(runs(*base), runs(*new)))
    odds = [np.log((np.array(side) + 0.5) / (ATTEMPTS - np.array(side) + 0.5)) for side in (base, new)]
    assert effect.p_value == pytest.approx(stats.ttest_ind(*odds).pvalue)
    swapped = sure(failures_effect(runs(*base), runs(*new), succeeded=True))
    assert swapped.log_ratio < 0 < effect.log_ratio
    assert swapped.p_value == pytest.approx(effect.p_value)


def frame(share: float, columns: tuple[str, ...], seed: int) -> pd.DataFrame:
    """Ten requests a second for fifty minutes, of which a share fails."""
    rng, elapsed = np.random.default_rng(seed), np.arange(0.0, 3000.0, 10.0)
    requests = rng.poisson(100, elapsed.size)
    failed = rng.binomial(requests, share)
    every = {
        "Users": np.minimum(elapsed * 2, 500), "requests": requests, "requests_per_second": requests / 10,
        "errors": failed, "errors_per_second": failed / 10, "error_rate": failed / requests,
        "errors_percent": 100 * failed / requests, "success_rate": 1 - failed / requests,
    }  # fmt: skip
    every["latency_ms"] = rng.lognormal(2, 0.05, elapsed.size)
    return pd.DataFrame({name: every[name] for name in ("Users", "latency_ms", *columns)}, index=elapsed)


@pytest.mark.parametrize(
    "names",
    ["errors", "errors requests", "errors_per_second requests_per_second", "error_rate", "success_rate",
     "errors_percent requests_per_second"],
)  # fmt: skip
def test_frames_in_which_one_in_a_hundred_fails_are_a_regression(names: str) -> None:
    columns = tuple(names.split())

    def verdict(base: float, new: float, count: int = 3) -> bc.Verdict:
        sides = [[frame(share, columns, 10 * side + i) for i in range(count)] for side, share in enumerate((base, new))]
        return bc.compare(*sides, type="bounded", users=500).verdict

    assert verdict(0.0, 0.0123) == "regression"
    assert verdict(0.01, 0.01) != "regression"
    assert verdict(0.0, 0.0123, count=1) != "regression", "one run says nothing of the next"


def test_numbers_of_failures_are_judged_beside_the_requests() -> None:
    def build(*failed: int) -> list[dict[str, float]]:
        return [{"errors": each, "requests": ATTEMPTS} for each in failed]

    result = bc.compare(build(0, 0, 0), build(110, 140, 120))
    assert result.verdict == "regression"
    (found,) = (each for each in result.results.findings if each.kind == "error_rate")
    assert (found.severity, found.metric) == ("critical", "errors")
    assert bc.compare(build(0), build(370)).verdict == "inconclusive"
    assert bc.compare(build(0, 0, 0), build(0, 0, 0)).metrics.loc[0, "reason"] == "none_failed"
    assert bc.compare(build(100, 90, 115), build(110, 95, 104)).verdict != "regression"
