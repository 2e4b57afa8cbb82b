"""Drift against known truth: chains whose noise, drift and jumps were made by hand or drawn from a generator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from buildcompare.history.drift import Change, Levels, MeasureChange, MeasureDrift, MeasureRepeats
from buildcompare.stats.noise import Noise

NOISE = Noise(sd=0.018, df=math.inf, noise_source="catalogue")
MEASURE = MeasureChange(NOISE)


def chain(levels: Sequence[float], *, change: float = 1.0) -> list[Levels]:
    """Comparison i measures version i as its base at levels[i], and version i + 1 as its new."""
    return [Levels(f"c{i}", f"1.{i}", f"1.{i + 1}", level, level * change) for i, level in enumerate(levels)]


def test_a_change_has_the_interval_of_two_single_runs() -> None:
    change = MEASURE(8638.0, 6537.0)
    assert change is not None
    half = 1.959964 * 0.018 * math.sqrt(2.0)
    center = math.log(6537 / 8638)
    assert change.percent == pytest.approx(100 * (6537 / 8638 - 1))
    assert change.low == pytest.approx(100 * math.expm1(center - half), abs=1e-4)
    assert change.high == pytest.approx(100 * math.expm1(center + half), abs=1e-4)
    assert change.beyond_chance


def test_a_level_has_the_interval_of_its_runs() -> None:
    low, high = MEASURE.interval(1000.0, 4)
    assert (low, high) == pytest.approx((1000 * math.exp(-1.959964 * 0.009), 1000 * math.exp(1.959964 * 0.009)))


def test_repeated_runs_narrow_the_interval() -> None:
    single, repeated = MEASURE(100.0, 103.0), MEASURE(100.0, 103.0, (4, 4))
    assert single is not None
    assert repeated is not None
    assert not single.beyond_chance
    assert repeated.beyond_chance
    assert math.log1p(repeated.high / 100) - repeated.log_ratio == pytest.approx(
        (math.log1p(single.high / 100) - single.log_ratio) / 2
    )


@pytest.mark.parametrize("pair", [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, -1.0), (math.inf, 1.0), (1.0, math.nan)])
def test_no_change_without_two_levels(pair: tuple[float | None, float | None]) -> None:
    assert MEASURE(*pair) is None


def test_a_quiet_chain_has_no_jump_and_one_jump_is_found() -> None:
    rng = np.random.default_rng(1)
    quiet = 10_000 * np.exp(rng.normal(0, 0.018, 20))
    assert not MeasureDrift(MEASURE)(chain(list(quiet))).jumps
    quiet[12:] *= 1.5
    drift = MeasureDrift(MEASURE)(chain(list(quiet)))
    assert [link.comparison for link in drift.jumps] == ["c12"]
    level = drift.jumps[0].level
    assert level is not None
    assert level.percent == pytest.approx(50, abs=10)


def test_chains_without_a_jump_are_rarely_said_to_have_one() -> None:
    rng = np.random.default_rng(2)
    called = links = 0
    for _ in range(200):
        drift = MeasureDrift(MEASURE)(chain(list(10_000 * np.exp(rng.normal(0, 0.06, 20)))))
        called += len(drift.jumps)
        links += len(drift.links)
    assert called / links < 0.005, "a normal chain has a modified z-score over 3.5 in about one link of a thousand"


def test_the_deviation_between_comparisons_is_found_despite_jumps() -> None:
    rng = np.random.default_rng(3)
    steps = rng.normal(0, 0.08, 60)
    steps[[10, 30, 50]] += (0.8, -0.8, 0.8)
    drift = MeasureDrift(MEASURE)(chain(list(10_000 * np.exp(np.cumsum(steps)))))
    assert drift.between_sd == pytest.approx(0.08, rel=0.25)
    found = {link.comparison for link in drift.jumps}
    assert found >= {"c10", "c30", "c50"}
    assert len(found) <= 4, "of sixty links, one may be an outlier by chance"


def test_the_deviation_is_no_less_than_two_single_runs() -> None:
    drift = MeasureDrift(MEASURE)(chain([10_000.0] * 10))
    assert drift.between_sd == pytest.approx(0.018 * math.sqrt(2))


def test_few_links_call_no_jump() -> None:
    drift = MeasureDrift(MEASURE)(chain([10_000.0, 10_000.0, 20_000.0]))
    assert drift.between_sd is None
    assert not drift.jumps
    assert [link.z for link in drift.links] == [None, None]


def test_other_versions_are_compared_but_are_no_drift() -> None:
    levels = chain([10_000.0] * 8)
    levels[4] = Levels("c4", "1.7", "1.5", 20_000.0, 10_000.0)  # its base is not what c3 called new
    levels[6] = Levels("c6", None, "1.7", 20_000.0, 10_000.0)
    drift = MeasureDrift(MEASURE)(levels)
    by_name = {link.comparison: link for link in drift.links}
    assert not by_name["c4"].same_version
    assert not by_name["c6"].same_version
    level = by_name["c4"].level
    assert level is not None
    assert level.percent == pytest.approx(100)
    assert not drift.jumps
    assert drift.same_version_links == 5


def test_a_comparison_recorded_late_does_not_break_the_chain() -> None:
    """The third was recorded last but one: each base is still held against its own version."""
    levels = chain([10_000.0, 10_100.0, 5_000.0, 10_200.0])
    links = MeasureDrift(MEASURE)([levels[0], levels[1], levels[3], levels[2]]).links
    assert [(link.comparison, link.before, link.same_version) for link in links] == [
        ("c1", "c0", True),
        ("c3", "c1", False),
        ("c2", "c1", True),
    ]
    late = MeasureDrift(MEASURE)([levels[0], levels[2], levels[1], levels[3]]).links
    assert [(link.before, link.same_version) for link in late] == [("c0", False), ("c0", True), ("c2", True)]


@pytest.mark.parametrize("links", [5, 33])
def test_chains_whose_batches_scatter_rarely_have_a_false_jump_and_show_a_true_one(links: int) -> None:
    """Batches of tests lie 8 % apart, as the published ones do; the true step halves the level."""
    rng = np.random.default_rng(20_000)
    false = found = 0
    for _ in range(300):
        levels = np.exp(math.log(10_000) + rng.normal(size=links + 1) * 0.08 / math.sqrt(2))
        own = np.exp(rng.normal(size=(2, links + 1)) * NOISE.sd)
        drawn = [
            Levels(f"c{i}", f"{i}", f"{i + 1}", levels[i] * own[0, i], levels[i] * own[1, i]) for i in range(links + 1)
        ]
        false += bool(MeasureDrift(MEASURE)(drawn).jumps)
        at = links // 2 + 1
        halved = [
            Levels(f"c{i}", f"{i}", f"{i + 1}", float(each.base or 0) / 2, float(each.new or 0) / 2)
            if i >= at
            else each
            for i, each in enumerate(drawn)
        ]
        found += f"c{at}" in [link.comparison for link in MeasureDrift(MEASURE)(halved).jumps]
    assert false <= 0.09 * 300
    assert found >= 0.85 * 300


def test_a_comparison_without_this_test_is_skipped() -> None:
    levels = chain([10_000.0, 10_000.0, 11_000.0])
    levels[1] = Levels("c1", "1.1", "1.2", None, None)
    (link,) = MeasureDrift(MEASURE)(levels).links
    assert (link.before, link.comparison, link.same_version) == ("c0", "c2", False)


def test_repeats_are_pooled_within_groups() -> None:
    groups = [[100.0, 104.0], [200.0, 198.0, 205.0], [50.0]]
    found = MeasureRepeats()(groups)
    assert found is not None
    squares = sum(float(np.var(np.log(group), ddof=1)) * (len(group) - 1) for group in groups[:2])
    assert found.df == 3
    assert found.sd == pytest.approx(math.sqrt(squares / 3))
    low, high = (math.sqrt(squares / stats.chi2.ppf(p, 3)) for p in (0.975, 0.025))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert MeasureRepeats()([[1.0], [2.0]]) is None


def test_a_change_says_what_it_stands_against() -> None:
    change = MEASURE(2.0, 1.0)
    assert isinstance(change, Change)
    assert (change.against, change.value) == (2.0, 1.0)
    assert change.log_ratio == pytest.approx(-math.log(2))
