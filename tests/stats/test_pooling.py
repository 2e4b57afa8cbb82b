"""One line over several tests: how often it is wrong, and which rows it is made of."""

import math
from typing import Any

import numpy as np
import pytest

from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.findings import verdict
from buildcompare.results import TestResult, TrafficMixResult, Validity
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.effects import Effect
from buildcompare.stats.pooling import pool_effects, pool_metrics
from quiet import quiet, with_metric

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
