"""Drift against known truth: chains whose noise, drift and jumps were made by hand or drawn from a generator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from buildcompare.history.drift import level_interval, measure_change, measure_drift, measure_repeats
from buildcompare.results.codes import NoiseSource
from buildcompare.results.history import BetweenComparisons
from buildcompare.stats.noise import Noise

NOISE = Noise(sd=0.018, df=math.inf, noise_source=NoiseSource.CATALOGUE)


def chain(levels: Sequence[float], *, change: float = 1.0) -> pd.DataFrame:
    """Comparison i measures version i as its base at levels[i], and version i + 1 as its new."""
    base = np.asarray(levels, dtype=float)
    return rows(base, base * change)


def rows(base: np.ndarray, new: np.ndarray) -> pd.DataFrame:
    """One test of a chain, as `beside` makes it; of tables, one test for each row."""
    base, new = np.atleast_2d(base, new)
    place, test = (each.ravel() for each in np.indices(base.shape)[::-1])
    tests = pd.DataFrame({"order": place, "users_base": base.ravel(), "users_new": new.ravel()})
    shared = {"type": "unbounded", "db": "", "db_engine": "", "runs_base": 1, "runs_new": 1, "title_base": ""}
    return tests.assign(
        **shared,
        title_new="",
        key=test.astype(str),
        test=test,
        comparison=[f"c{i}" for i in place],
        minor_base=[f"1.{i}" for i in place],
        minor_new=[f"1.{i + 1}" for i in place],
    )


def same_version(tests: pd.DataFrame) -> tuple[pd.DataFrame, BetweenComparisons]:
    """Each comparison's base beside the earlier new, and what is between comparisons."""
    drift, (between,) = measure_drift(tests.reset_index(drop=True), NOISE)
    return drift[drift["kind"] == "same_version"].set_index("comparison"), between


def jumps(tests: pd.DataFrame) -> list[str]:
    found, _ = same_version(tests)
    return list(found.index[found["jump"]])


def measured(before: float | None, value: float | None, runs: int = 1) -> pd.Series:
    return pd.DataFrame(measure_change([before], [value], NOISE, (runs, runs))).iloc[0]


def test_a_change_has_the_interval_of_two_single_runs() -> None:
    change = measured(8638.0, 6537.0)
    half = 1.959964 * 0.018 * math.sqrt(2.0)
    center = math.log(6537 / 8638)
    assert change["delta_percent"] == pytest.approx(100 * (6537 / 8638 - 1))
    assert change["ci_low"] == pytest.approx(100 * math.expm1(center - half), abs=1e-4)
    assert change["ci_high"] == pytest.approx(100 * math.expm1(center + half), abs=1e-4)
    assert (change["before"], change["value"]) == (8638.0, 6537.0)
    assert change["p_value"] == pytest.approx(2 * stats.norm.sf(abs(center) / (0.018 * math.sqrt(2.0))))


def test_few_degrees_of_freedom_widen_the_interval() -> None:
    learned = Noise(0.018, 4.0, NoiseSource.CALIBRATION)
    change = measure_change([100.0], [100.0], learned)
    assert change["ci_high"] == pytest.approx(100 * math.expm1(stats.t.ppf(0.975, 4) * 0.018 * math.sqrt(2.0)))


def test_a_level_has_the_interval_of_its_runs() -> None:
    low, high = level_interval(pd.Series([1000.0]), pd.Series([4]), NOISE)
    expected = (1000 * math.exp(-1.959964 * 0.009), 1000 * math.exp(1.959964 * 0.009))
    assert (low[0], high[0]) == pytest.approx(expected)


def test_repeated_runs_narrow_the_interval() -> None:
    single, repeated = measured(100.0, 103.0), measured(100.0, 103.0, 4)
    assert single["ci_low"] < 0 < repeated["ci_low"]
    assert math.log1p(repeated["ci_high"] / 100) - repeated["log_ratio"] == pytest.approx(
        (math.log1p(single["ci_high"] / 100) - single["log_ratio"]) / 2
    )


@pytest.mark.parametrize("pair", [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, -1.0), (math.inf, 1.0), (1.0, math.nan)])
def test_no_change_without_two_levels(pair: tuple[float | None, float | None]) -> None:
    assert measured(*pair)[["log_ratio", "delta_percent", "ci_low", "ci_high", "p_value"]].isna().all()


def test_a_quiet_chain_has_no_jump_and_one_jump_is_found() -> None:
    rng = np.random.default_rng(1)
    quiet = 10_000 * np.exp(rng.normal(0, 0.018, 20))
    assert not jumps(chain(quiet))
    quiet[12:] *= 1.5
    assert jumps(chain(quiet)) == ["c12"]
    assert same_version(chain(quiet))[0].loc["c12", "delta_percent"] == pytest.approx(50, abs=10)


def test_chains_without_a_jump_are_rarely_said_to_have_one() -> None:
    levels = 10_000 * np.exp(np.random.default_rng(2).normal(0, 0.06, (200, 20)))
    drift, _ = measure_drift(rows(levels, levels), NOISE)
    found = drift[drift["kind"] == "same_version"]
    assert len(found) == 200 * 19
    assert found["jump"].mean() < 0.005, "a normal chain has a z-score over 3.5 in about one link of a thousand"


def test_the_deviation_between_comparisons_is_found_despite_jumps() -> None:
    rng = np.random.default_rng(3)
    steps = rng.normal(0, 0.08, 60)
    steps[[10, 30, 50]] += (0.8, -0.8, 0.8)
    tests = chain(10_000 * np.exp(np.cumsum(steps)))
    sd_percent = same_version(tests)[1].sd_percent
    assert sd_percent is not None
    assert math.log1p(sd_percent / 100) == pytest.approx(0.08, rel=0.25)
    found = set(jumps(tests))
    assert found >= {"c10", "c30", "c50"}
    assert len(found) <= 4, "of sixty links, one may be an outlier by chance"


def test_the_deviation_is_no_less_than_two_single_runs() -> None:
    _, between = same_version(chain([10_000.0] * 10))
    assert between.sd_percent == pytest.approx(100 * math.expm1(0.018 * math.sqrt(2)))


def test_few_links_call_no_jump() -> None:
    found, between = same_version(chain([10_000.0, 10_000.0, 20_000.0]))
    assert (between.sd_percent, between.links) == (None, 2)
    assert not found["jump"].any()
    assert found["z"].isna().all()


def test_other_versions_are_compared_but_are_no_drift() -> None:
    tests = chain([10_000.0] * 8)
    tests.loc[[4, 6], "users_base"] = 20_000.0
    tests.loc[4, ["minor_base", "minor_new"]] = ["1.7", "1.5"]  # its base is not what c3 called new
    tests.loc[6, ["minor_base", "minor_new"]] = ["", "1.7"]
    found, between = same_version(tests)
    assert not found.loc["c4", "same_version"]
    assert not found.loc["c6", "same_version"]
    assert found.loc["c4", "delta_percent"] == pytest.approx(100)
    assert not found["jump"].any()
    assert between.links == 5


def test_a_comparison_recorded_late_does_not_break_the_chain() -> None:
    """The third was recorded last but one: each base is still compared with its own version."""
    levels = chain([10_000.0, 10_100.0, 5_000.0, 10_200.0])

    def linked(order: list[int]) -> list[tuple[str, str, bool]]:
        found, _ = same_version(levels.loc[order].assign(order=range(4)))
        return list(zip(found.index, found["against"], found["same_version"], strict=True))

    assert linked([0, 1, 3, 2]) == [("c1", "c0", True), ("c3", "c1", False), ("c2", "c1", True)]
    assert linked([0, 2, 1, 3]) == [("c2", "c0", False), ("c1", "c0", True), ("c3", "c2", True)]


@pytest.mark.parametrize("links", [5, 33])
def test_chains_whose_batches_scatter_rarely_have_a_false_jump_and_show_a_true_one(links: int) -> None:
    """Batches of tests lie 8 % apart, as the published ones do; the true step halves the level."""
    rng = np.random.default_rng(20_000)
    levels, own = np.empty((300, 1, links + 1)), np.empty((300, 2, links + 1))
    for i in range(300):
        levels[i] = np.exp(math.log(10_000) + rng.normal(size=links + 1) * 0.08 / math.sqrt(2))
        own[i] = np.exp(rng.normal(size=(2, links + 1)) * NOISE.sd)
    drawn = rows(*(levels * own).swapaxes(0, 1))
    quiet, _ = measure_drift(drawn, NOISE)
    assert quiet.loc[quiet["jump"], "test"].nunique() <= 0.09 * 300
    at = links // 2 + 1
    drawn.loc[drawn["order"] >= at, ["users_base", "users_new"]] /= 2
    stepped, _ = measure_drift(drawn, NOISE)
    assert stepped.loc[stepped["order"] == at, "jump"].sum() >= 0.85 * 300


def test_a_comparison_without_this_test_is_skipped() -> None:
    tests = chain([10_000.0, 10_000.0, 11_000.0])
    tests.loc[1, ["users_base", "users_new"]] = math.nan
    found, _ = same_version(tests)
    assert list(zip(found.index, found["against"], found["same_version"], strict=True)) == [("c2", "c0", False)]


def test_repeats_are_pooled_within_groups() -> None:
    groups = [[100.0, 104.0], [200.0, 198.0, 205.0], [50.0]]
    users = pd.Series([level for group in groups for level in group])
    build = pd.Series([i for i, group in enumerate(groups) for _ in group])
    found = measure_repeats(users, build)
    assert found is not None
    squares = sum(float(np.var(np.log(group), ddof=1)) * (len(group) - 1) for group in groups[:2])
    assert found.df == 3
    expected = [math.sqrt(squares / 3), *(math.sqrt(squares / stats.chi2.ppf(p, 3)) for p in (0.975, 0.025))]
    percents = [100 * math.expm1(sd) for sd in expected]
    assert (found.sd_percent, found.ci_low, found.ci_high) == pytest.approx(tuple(percents))
    assert measure_repeats(users[:2], pd.Series([0, 1])) is None
