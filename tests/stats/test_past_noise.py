"""Noise of earlier comparisons: robust, by its degrees of freedom, and never from another setup alone."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from buildcompare.config.catalogue import Metric, RunSd
from buildcompare.metrics.judge_at_load import noise_at_load
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.noise import MAD_EFFICIENCY, Noise, metric_noise, with_past

SD = 0.03
CATALOGUE = Noise(0.05, 8.0, NoiseSource.CATALOGUE, seconds=1800.0)
METRIC = Metric(name="metric", slug="metric", better="lower", run_sd_percent=RunSd(bounded=5.0, unbounded=5.0))


def changes(ratios: Sequence[float] | np.ndarray, tests: int = 2, **more: object) -> pd.DataFrame:
    """One comparison for each `tests` of the log ratios."""
    about = {"base_runs": 1, "new_runs": 1, "se_log": 0.0, "seconds": math.nan, "within": math.nan}
    flags = {"misread": False, "same_setup": True}
    return pd.DataFrame({"comparison": np.arange(len(ratios)) // tests, "log_ratio": ratios, **about, **flags, **more})


def drawn(seed: int, count: int, changed: float = 0.0) -> list[float]:
    """Log ratios of unchanged builds; a part of them `changed` by 20 %."""
    rng = np.random.default_rng(seed)
    return [*(rng.normal(0, math.sqrt(2) * SD, count) + np.where(rng.random(count) < changed, 0.2, 0.0))]


def test_the_noise_of_many_comparisons_takes_the_catalogues_place() -> None:
    known = with_past(CATALOGUE, changes(drawn(1, 4000)))
    assert known is not None
    assert known.sd == pytest.approx(SD, rel=0.05)
    assert (known.noise_source, known.comparisons) == (NoiseSource.LEDGER, 2000)


def test_releases_that_changed_something_hardly_move_it() -> None:
    known = with_past(CATALOGUE, changes(drawn(2, 4000, changed=0.2)))
    assert known is not None
    assert SD < known.sd < 1.4 * SD  # the standard deviation of these changes would be 2.3 times too large


@pytest.mark.parametrize("count", [16, 38])
def test_its_degrees_of_freedom_are_those_of_a_median_absolute_deviation(count: int) -> None:
    """Of pairs where nothing changed at most 5 % are called, and not far fewer: 4,000 ledgers, each with one pair."""
    wrong = 0
    for seed in range(4000):
        *past, new = drawn(seed, count + 1)
        known = with_past(CATALOGUE, changes(past))
        assert known is not None
        assert known.df == pytest.approx(MAD_EFFICIENCY * count)
        wrong += 2 * stats.t.sf(abs(new) / (math.sqrt(2) * known.sd), known.df) < 0.05
    assert 0.025 < wrong / 4000 < 0.06  # 3.4 % and 4.4 %


def test_few_comparisons_count_beside_the_catalogue() -> None:
    quiet = with_past(CATALOGUE, changes([0.0] * 14))
    assert quiet is not None
    assert (quiet.noise_source, quiet.comparisons) == (NoiseSource.CATALOGUE, 7)
    assert quiet.df == pytest.approx(8.0 + MAD_EFFICIENCY * 14)
    assert quiet.sd == pytest.approx(0.05 * math.sqrt(8.0 / quiet.df))
    assert with_past(None, changes(drawn(3, 14))) is None
    assert with_past(CATALOGUE, changes([])) == with_past(CATALOGUE, None) == CATALOGUE


def test_repeated_runs_keep_their_weight() -> None:
    repeated = Noise(0.03, 12.0, NoiseSource.CALIBRATION)
    known = with_past(repeated, changes([0.0] * 40))
    assert known is not None
    assert known.sd == pytest.approx(0.03 * math.sqrt(12.0 / (12.0 + MAD_EFFICIENCY * 40)))


def test_noise_does_not_travel() -> None:
    """A ledger of another setup makes the noise larger, or nothing."""
    calm, rough = changes([0.001, -0.001] * 10, same_setup=False), changes([0.3, -0.3] * 10, same_setup=False)
    assert with_past(CATALOGUE, calm) == CATALOGUE
    wider = with_past(CATALOGUE, rough)
    assert wider is not None
    assert wider.sd == pytest.approx(1.4826 * 0.3 / math.sqrt(2), rel=1e-3)
    assert (wider.df, wider.noise_source, wider.comparisons) == (8.0, NoiseSource.CATALOGUE, 0)
    assert with_past(None, rough) is None


def test_the_mean_of_several_runs_is_quieter() -> None:
    ratios = drawn(5, 4000)
    single, mean = with_past(CATALOGUE, changes(ratios)), with_past(CATALOGUE, changes(ratios, base_runs=4, new_runs=4))
    assert single is not None
    assert mean is not None
    assert mean.sd == pytest.approx(2.0 * single.sd)


def test_at_equal_load_the_errors_within_runs_are_scaled_too() -> None:
    """Pairs whose curves are known less well lie farther apart: by their errors, times what is learned."""
    rng = np.random.default_rng(6)
    errors = rng.uniform(0.01, 0.2, 4000)
    ratios = rng.normal(0, 0.5 * np.hypot(errors, math.sqrt(2) * math.log(1.05)))  # half of what is expected
    known = noise_at_load(METRIC, (), {("equal_load", "metric"): changes(ratios, 1, se_log=errors)})
    assert known is not None
    assert known.within_scale == pytest.approx(0.5, rel=0.05)
    assert known.sd == pytest.approx(0.5 * math.log(1.05), rel=0.05)


def test_each_test_type_has_its_own() -> None:
    past = {("bounded", "metric"): changes([0.0] * 20)}
    assert metric_noise(METRIC, "bounded", (), past) != metric_noise(METRIC, "bounded")
    assert metric_noise(METRIC, "unbounded", (), past) == metric_noise(METRIC, "unbounded")


def test_values_read_off_plots_teach_about_such_values() -> None:
    """Their changes hold the reading error already: it is not added once more."""
    read_off, measured = changes([0.2, -0.2] * 20, misread=True), changes([0.01, -0.01] * 20)
    clean, plotted = (with_past(CATALOGUE, pd.concat([read_off, measured]), misread=percent) for percent in (0.0, 4.0))
    assert clean is not None
    assert plotted is not None
    assert clean.sd == pytest.approx(1.4826 * 0.01 / math.sqrt(2), rel=1e-3)
    assert plotted.sd == pytest.approx(1.4826 * 0.2 / math.sqrt(2), rel=1e-3)
    alone = with_past(CATALOGUE, measured, misread=4.0)
    assert alone is not None
    assert alone.sd == pytest.approx(math.hypot(0.05, math.log(1.04)))
