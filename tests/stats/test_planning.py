"""What further runs would show, the level of a look that is not the first, and one line over several tests."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import buildcompare as bc
from buildcompare.comparison.pooling import pool_effects, pool_metrics
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.findings import verdict
from buildcompare.results import TestResult, TrafficMixResult, Validity
from buildcompare.results.codes import Better, NoiseSource
from buildcompare.stats.effects import Effect, judge
from buildcompare.stats.planning import SPENT, Looks, enough_runs, levels, spent_early, spent_late
from quiet import quiet, with_metric
from support import sure


def status(runs: np.ndarray, df: float, known: float, margin: float, looks: Looks | None) -> bc.Status:
    n = runs.shape[1]
    squares = float(((runs - runs.mean(axis=1, keepdims=True)) ** 2).sum())
    sd = math.sqrt((df * known**2 + squares) / (df + 2.0 * (n - 1)))
    change = float(runs[1].mean() - runs[0].mean())
    effect = Effect(change, sd * math.sqrt(2.0 / n), df + 2.0 * (n - 1), sd, NoiseSource.CATALOGUE)
    return judge(effect, margin, Better.LOWER, looks=looks).status


@pytest.mark.parametrize("spending", [spent_early, spent_late])
def test_levels_spend_what_they_may(spending: Callable[[float], float]) -> None:
    parts = (0.25, 0.5, 0.75, 1.0)
    found = levels(tuple((4.0 * part, part) for part in parts), spending)
    sums = np.cumsum(np.random.default_rng(3).normal(size=(200_000, 4)), axis=1)
    p_values = 2.0 * special.ndtr(-np.abs(sums) / np.sqrt(np.arange(1, 5)))
    called = np.maximum.accumulate(p_values < found, axis=1).mean(axis=0)
    assert called == pytest.approx([spending(part) for part in parts], abs=0.002)
    assert spending(1.0) == pytest.approx(SPENT)


def test_one_look_is_judged_as_ever() -> None:
    assert (
        bc.look_level([1])
        == bc.look_level([3])
        == bc.look_level([3], planned=3)
        == bc.look_level([3], planned=2)
        == 0.05
    )
    assert bc.look_level([1, 1]) == 0.05  # the same runs again are no further look
    assert bc.look_level([1], planned=3) < bc.look_level([1, 2], planned=3) < bc.look_level([1, 2, 3], planned=3) < 0.05
    assert bc.look_level([1, 2, 3]) == bc.look_level([3, 1, 2])
    assert bc.look_level([1, 9, 10]) == bc.look_level([1, 9])  # beyond what was planned the level stays


@pytest.mark.untraced
@pytest.mark.parametrize("planned", [None, 9.0])
@pytest.mark.parametrize("df", [5.0, 8.0, 15.0])
def test_all_further_looks_together_call_no_more_than_one_should(df: float, planned: float | None) -> None:
    rng = np.random.default_rng([31, int(df)])
    called = naive = worse = 0
    repetitions = 1200
    for _ in range(repetitions):
        known, runs = 0.05 * math.sqrt(rng.chisquare(df) / df), rng.normal(0.0, 0.05, (2, 9))
        looks = [Looks(tuple(map(float, range(1, n + 1))), planned) for n in range(1, 10)]
        seen = [status(runs[:, :n], df, known, 0.1, looks[n - 1]) for n in range(1, 10)]
        called += any(each.changed for each in (seen if planned else seen[1:]))
        worse += bc.Status.REGRESSION in seen
        naive += any(status(runs[:, :n], df, known, 0.1, None).changed for n in range(1, 10))
    assert called / repetitions <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repetitions)
    assert worse / repetitions <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repetitions)  # the first look included
    assert naive / repetitions > 0.15


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("df", "sd", "margin"), [(5.0, 0.03, 5.0), (8.0, 0.056, 10.0), (15.0, 0.08, 10.0), (5.0, 0.03, 10.0)]
)
def test_what_was_planned_is_found(df: float, sd: float, margin: float) -> None:
    rng = np.random.default_rng(32)
    for further in (1, 3):
        step = bc.plan_runs(sd, df, margin_percent=margin)[further - 1]
        last, found, excluded = further + 1, 0, 0
        looks = Looks((1.0, float(last)), float(last))
        for _ in range(600):
            runs = rng.normal(0.0, sd / math.sqrt(rng.chisquare(df) / df), (2, last))  # `sd` is an estimate
            slower = runs + np.array([[0.0], [math.log1p(step.found_percent / 100.0)]])
            found += status(slower, df, sd, margin, looks).changed
            so_far = 100.0 * math.expm1(runs[1, 0] - runs[0, 0])
            bound = bc.plan_runs(sd, df, margin_percent=margin, delta_percent=so_far)[further - 1].no_worse_than_percent
            excluded += status(runs, df, sd, max(sure(bound) / 2.0, 0.1), looks) != bc.Status.INCONCLUSIVE
        assert 0.72 <= found / 600 <= 0.86
        assert excluded / 600 >= 0.72


@pytest.mark.untraced
@pytest.mark.parametrize("known", [True, False], ids=["noise known", "noise estimated"])
@pytest.mark.parametrize(("df", "sd", "margin"), [(5.0, 0.056, 10.0), (8.0, 0.03, 5.0), (15.0, 0.08, 10.0)])
def test_the_runs_that_settle_it_settle_four_of_five_cases(df: float, sd: float, margin: float, known: bool) -> None:
    """Of rows that were undecided after the first look, where the change is the one that the sentence names."""
    rng = np.random.default_rng(33)
    settled = []
    for _ in range(1000):
        noise = sd if known else sd * math.sqrt(rng.chisquare(df) / df)
        enough = sure(enough_runs(noise, df, margin_percent=margin))
        assert enough.found_percent <= margin
        last = enough.further + 1
        runs = rng.normal(0.0, sd, (2, last))
        runs[1] += math.log1p(enough.found_percent / 100.0)
        if status(runs[:, :1], df, noise, margin, None) == bc.Status.INCONCLUSIVE:
            settled.append(status(runs, df, noise, margin, Looks((1.0, last), last)).changed)
    assert len(settled) > 500
    assert 0.75 <= np.mean(settled) <= 0.86


def test_more_runs_show_more() -> None:
    steps = bc.plan_runs(0.06, 8.0, margin_percent=10.0, family=2, better="neutral")
    assert [step.further for step in steps] == [*range(1, 9)]
    assert all(one.found_percent > two.found_percent for one, two in itertools.pairwise(steps))
    assert {step.no_worse_than_percent for step in steps} == {None}
    alone = bc.plan_runs(0.06, 8.0, margin_percent=10.0)
    assert alone[0].found_percent < steps[0].found_percent
    fewer, more = (bc.plan_runs(0.06, 8.0, margin_percent=1.0, better=each)[0] for each in ("higher", "lower"))
    assert sure(fewer.no_worse_than_percent) < sure(more.no_worse_than_percent)  # halved: doubled
    assert enough_runs(2.0, 8.0, margin_percent=0.1) is None


DF = 15.0


def effects(ratios: np.ndarray, sd: float, df: float = DF) -> list[Effect]:
    return [Effect(float(ratio), sd, df, sd / math.sqrt(2.0), NoiseSource.CATALOGUE) for ratio in ratios]


@pytest.mark.untraced
@pytest.mark.parametrize("tests", [2, 4])
def test_of_tests_in_which_nothing_changed_one_in_twenty_differs_at_most(tests: int) -> None:
    """The noise is an estimate that the tests share; 0.05 plus two standard errors of 2,000 draws is 0.06."""
    rng = np.random.default_rng(1)
    called = 0
    for _ in range(2_000):
        sd = 0.05 * math.sqrt(rng.chisquare(DF) / DF)
        called += pool_effects(effects(rng.normal(0.0, 0.05, tests), sd))[0].p_value < 0.05
    assert 0.01 < called / 2_000 < 0.06


def test_tests_that_contradict_each_other_widen_the_interval() -> None:
    alike, none = pool_effects(effects(np.array([0.10, 0.10]), 0.03))
    apart, between = pool_effects(effects(np.array([0.30, -0.10]), 0.03))
    assert none == 0.0
    assert between == pytest.approx(math.sqrt(0.2**2 * 2 - 0.03**2), rel=0.01)  # variance beyond that of the noise
    assert apart.sd > 5.0 * alike.sd
    assert apart.p_value > 0.3


def catalogue(*slugs: str) -> Catalogue:
    known = read_catalogue("mattermost")
    metrics = [
        metric.model_copy(update={"independent_tests": ("bounded",) if metric.slug in slugs else ()})
        for metric in known.metrics
    ]
    return known.model_copy(update={"metrics": tuple(metrics)})


def changed(name: str, delta: float, **more: Any) -> TestResult:
    row = {"delta_percent": delta, "se_log": 0.03, "noise_df": DF, "noise_source": NoiseSource.CATALOGUE}
    return with_metric(quiet(name), "cpu-utilization", **row, **more)


def test_rows_of_valid_tests_are_pooled_and_no_verdict_counts_the_line() -> None:
    tests = [changed("mysql_bounded", 8.0), changed("postgresql_bounded", 10.0)]
    (line,) = pool_metrics(tests, catalogue("cpu-utilization"))
    assert (line.slug, line.type, line.tests) == ("cpu-utilization", "bounded", ["mysql_bounded", "postgresql_bounded"])
    assert line.delta_percent == pytest.approx(9.0, abs=0.01)
    assert (line.status, line.between_percent) == ("regression", 0.0)
    assert verdict.of_comparison(tests) == verdict.of_comparison([quiet("mysql_bounded"), quiet()])


@pytest.mark.parametrize(
    "other",
    [
        changed("postgresql_bounded", 10.0).model_copy(update={"validity": Validity(status="invalid")}),
        changed("postgresql_bounded", 10.0, decided_by="none"),
        changed("postgresql_bounded", 10.0, decided_by="traffic_mix", traffic_mix=TrafficMixResult(
            group="api", kind="mix", counts=True, base=1.0, new=1.1, delta_percent=10.0, mix_percent=10.0,
            speed_percent=0.0, status="inconclusive",
        )),
        changed("postgresql_bounded", 10.0).model_copy(update={"type": "unbounded"}),
    ],
)  # fmt: skip
def test_what_is_not_judged_alike_is_not_pooled(other: TestResult) -> None:
    assert pool_metrics([changed("mysql_bounded", 8.0), other], catalogue("cpu-utilization")) == []


def test_a_metric_whose_tests_move_together_is_not_pooled() -> None:
    assert pool_metrics([changed("mysql_bounded", 8.0), changed("postgresql_bounded", 8.0)], catalogue()) == []


def test_what_is_by_hand_is_what_statsmodels_finds() -> None:
    from statsmodels.stats.meta_analysis import combine_effects

    rng = np.random.default_rng(5)
    for size, scatter in [(2, 0.0), (2, 0.2), (4, 0.05), (9, 0.3)] * 2:
        sds = rng.uniform(0.01, 0.05, size)
        ratios = rng.normal(0.02, scatter, size) + rng.normal(0.0, sds)
        pairs = zip(ratios.tolist(), sds.tolist(), strict=True)
        mean, between = pool_effects([Effect(ratio, sd, DF, sd, NoiseSource.CATALOGUE) for ratio, sd in pairs])
        # At a finer tolerance the iteration of statsmodels takes a rounding error for a variance of 0.
        found = combine_effects(ratios, sds**2, method_re="pm", atol=1e-7)
        assert (mean.log_ratio, mean.sd) == pytest.approx((found.mean_effect_re, found.sd_eff_w_re), rel=1e-6)
        assert between**2 == pytest.approx(found.tau2, rel=1e-5)
        squares = float(((ratios - mean.log_ratio) ** 2 / (sds**2 + between**2)).sum())  # what defines `between`
        assert squares == pytest.approx(size - 1, rel=1e-12) if between else squares <= size - 1
