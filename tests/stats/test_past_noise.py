"""Noise of earlier comparisons: from contrasts between their tests, and never larger than without them."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from buildcompare.config.catalogue import Metric, RunSd
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.noise import Noise, metric_noise, with_contrasts
from support import sure

SD = 0.03
CATALOGUE = Noise(0.05, 8.0, NoiseSource.CATALOGUE, seconds=1800.0)
METRIC = Metric(name="metric", slug="metric", better="lower", run_sd_percent=RunSd(bounded=5.0, unbounded=5.0))


def contrasts(squares: object, df: float = 1.0, misread: bool = False) -> pd.DataFrame:
    """One comparison for each sum of squares."""
    frame = pd.DataFrame({"squares": squares, "df": df, "misread": misread})
    return frame.assign(comparison=frame.index)


def drawn(seed: int, count: int, df: int = 1) -> pd.DataFrame:
    """Comparisons whose tests scatter by `SD` around the change of their build."""
    return contrasts(SD**2 * np.random.default_rng(seed).chisquare(df, count), df)


def test_contrasts_pool_with_the_catalogue_by_degrees_of_freedom() -> None:
    taught = sure(with_contrasts(CATALOGUE, contrasts([2 * SD**2] * 10, 2.0)))
    assert taught.sd == pytest.approx(math.sqrt((20 * SD**2 + 8 * 0.05**2) / 28))
    assert (taught.df, taught.comparisons, taught.noise_source) == (28.0, 10, NoiseSource.CATALOGUE)
    assert taught.seconds == CATALOGUE.seconds
    repeated = Noise(0.05, 12.0, NoiseSource.CALIBRATION)
    beside = sure(with_contrasts(repeated, contrasts([SD**2] * 12)))
    assert (beside.df, beside.noise_source) == (24.0, NoiseSource.CALIBRATION)
    assert beside.sd == pytest.approx(math.sqrt((SD**2 + 0.05**2) / 2))


@pytest.mark.parametrize("squares", [[0.05**2] * 20, [0.3**2] * 20, []])
def test_a_ledger_never_makes_the_noise_larger(squares: list[float]) -> None:
    assert with_contrasts(CATALOGUE, contrasts(squares)) == with_contrasts(CATALOGUE, None) == CATALOGUE


def test_without_another_source_enough_comparisons_teach_alone() -> None:
    alone = sure(with_contrasts(None, drawn(1, 4000)))
    assert alone.sd == pytest.approx(SD, rel=0.05)
    assert (alone.noise_source, alone.comparisons, alone.df) == (NoiseSource.LEDGER, 4000, 4000.0)
    assert with_contrasts(None, drawn(1, 7)) is None


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 19])
def test_pairs_where_nothing_changed_are_rarely_called(count: int) -> None:
    """At most 5 % of pairs, and not far fewer: 2,000 ledgers, each with one pair."""
    changes = np.random.default_rng(2).normal(0, math.sqrt(2) * SD, 2000)
    wrong = 0
    for seed, change in enumerate(changes):
        taught = sure(with_contrasts(None, drawn(seed, count)))
        wrong += 2 * stats.t.sf(abs(change) / (math.sqrt(2) * taught.sd), taught.df) < 0.05
    assert 0.04 < wrong / 2000 < 0.06


def test_in_unbounded_tests_only_metrics_of_unknown_noise_learn() -> None:
    past = {(kind, "metric"): contrasts([SD**2] * 20) for kind in ("bounded", "unbounded")}
    unknown = METRIC.model_copy(update={"run_sd_percent": RunSd()})
    taught = sure(metric_noise(METRIC, "bounded", (), past))
    assert taught.comparisons == 20
    assert metric_noise(METRIC, "unbounded", (), past) == metric_noise(METRIC, "unbounded")
    alone = sure(metric_noise(unknown, "unbounded", (), past))
    assert alone.noise_source == NoiseSource.LEDGER
    assert metric_noise(unknown, "unbounded") is None


def test_values_read_off_plots_teach_about_such_values() -> None:
    """Their changes hold the reading error already: it is not added once more."""
    past = {("bounded", "metric"): pd.concat([contrasts([0.04**2] * 20, misread=True), contrasts([0.01**2] * 20)])}
    clean, plotted = (sure(metric_noise(METRIC, "bounded", (), past, misread=percent)) for percent in (0.0, 4.0))
    borrowed = math.log(1.05)
    assert clean.sd == pytest.approx(math.sqrt((20 * 0.01**2 + 8 * borrowed**2) / 28))
    with_error = borrowed**2 + math.log(1.04) ** 2
    assert plotted.sd == pytest.approx(math.sqrt((20 * 0.04**2 + 8 * with_error) / 28))
