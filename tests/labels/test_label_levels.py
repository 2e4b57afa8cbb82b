"""Label tables from series per label, against a hand-made run whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from buildcompare.comparison.test import compare_test
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Test
from buildcompare.labels.histogram import HistogramQuantile
from buildcompare.labels.levels import MeasureLabels
from buildcompare.recordings.recording import LabelSummary, Recording, Series
from support import users_curve

TIMES = 60.0 * np.arange(1, 61)


def recording(average: float, *, calls: float = 2.0) -> Recording:
    """An hour of one handler: slow and rare before 600 s, then `average` seconds, `calls` a second."""
    early = TIMES <= 600
    values = {
        "avg": np.where(early, 9.0, average),
        "p99": np.where(early, 10.0, 5 * average),
        "calls": np.where(early, 0.1, calls),
    }
    values["avg"][40] = math.nan
    labels = tuple(Series("api", "getPost", "seconds", TIMES, v, role="label", stat=s) for s, v in values.items())
    users = users_curve(1000, ramp_s=600, hold_s=3000)
    load = Series("number-of-connected-devices", "Users", "users", 5.0 * np.arange(users.size), users)
    summaries = (LabelSummary("api", "getPost", "avg", 7.0),)
    return Recording((load, *labels), (0.0, 3600.0), stop_known=True, label_summaries=summaries)


def test_an_average_is_weighted_with_its_calls() -> None:
    levels = MeasureLabels()(recording(0.02), (0.0, 3600.0))
    truth = (10 * 0.1 * 9.0 + 49 * 2.0 * 0.02) / (10 * 0.1 + 49 * 2.0)
    found = {summary.stat: summary.value for summary in levels.summaries}
    assert found["avg"] == pytest.approx(truth, rel=1e-12)
    assert found["p99"] == pytest.approx(0.1)
    assert levels.calls["api", "getPost"] == pytest.approx((10 * 0.1 + 50 * 2.0) * 60)


def test_without_series_the_source_s_own_summaries_count() -> None:
    bare = recording(0.02)
    bare = Recording(bare.series[:1], bare.window, stop_known=True, label_summaries=bare.label_summaries)
    assert MeasureLabels()(bare, (0.0, 3600.0)).summaries == bare.label_summaries
    assert not MeasureLabels()(recording(0.02), None).steady


def test_a_label_table_is_of_the_steady_window_where_it_can_be() -> None:
    run = Run(recording="x")
    test = Test(name="x", type="bounded", base=[run], new=[run])
    recordings = {"base": [recording(0.02)], "new": [recording(0.03, calls=4.0)]}
    result = compare_test(test, recordings, read_catalogue("mattermost")).result
    average, p99 = result.labels
    assert (average.stat, average.window, p99.window) == ("avg", "steady", "steady")
    assert average.base == pytest.approx(0.02)
    assert average.delta_percent == pytest.approx(50.0)
    assert average.calls is not None
    assert average.calls.new == pytest.approx(2 * float(average.calls.base or 0))


def with_buckets() -> Recording:
    """The same hour with buckets: in its last part half of the calls take up to 0.1 s, half up to 1 s."""
    plain = recording(0.02)
    early = TIMES <= 600
    counted = {"0.1": np.where(early, 0.0, 1.0), "1": np.where(early, 0.0, 2.0), "+Inf": np.where(early, 50.0, 2.0)}
    counted["1"][45] = math.nan  # a point that is missing in one bucket: rounding, or a late scrape
    counted["+Inf"][45] = math.nan
    counted["0.1"][45] = math.nan
    buckets = tuple(
        Series("api", "getPost", "calls/s", TIMES, v, role="bucket", labels={"le": le}, stat="buckets")
        for le, v in counted.items()
    )
    return replace(plain, series=plain.series + buckets)


def test_a_percentile_comes_from_the_buckets_of_its_window() -> None:
    found = {s.stat: s.value for s in MeasureLabels()(with_buckets(), (600.0, 3600.0)).summaries}
    assert found["p99"] == pytest.approx(0.1 + 0.9 * (0.99 * 2 - 1) / 1, rel=1e-12)
    found = {s.stat: s.value for s in MeasureLabels()(with_buckets(), (0.0, 600.0)).summaries}
    assert found["p99"] == 1.0  # all of them beyond the last bound: at least that


def test_a_steady_window_is_never_held_against_a_whole_run() -> None:
    run = Run(recording="x")
    test = Test(name="x", type="bounded", base=[run], new=[run])
    restless = replace(recording(0.03), series=tuple(s for s in recording(0.03).series if s.role == "label"))
    result = compare_test(test, {"base": [recording(0.02)], "new": [restless]}, read_catalogue("mattermost")).result
    [average] = result.labels
    assert (average.window, average.base, average.new) == ("whole_run", 7.0, 7.0)


INF = math.inf


@pytest.mark.parametrize(
    ("quantile", "bounds", "counts", "expected"),
    [
        (0.5, [1, 2, INF], [0, 10, 10], 1.5),
        (0.5, [1, 2, INF], [10, 10, 10], 0.5),
        (0.99, [1, 2, INF], [0, 0, 10], 2),
        (0.5, [1, 2, INF], [4, 3.9999999999, 8], 1),
        (0.5, [-1, 2, INF], [10, 10, 10], -1),
        (0.5, [1, 2, INF], [0, 0, 0], math.nan),
        (0.5, [1, 2], [1, 2], math.nan),
        (0.5, [INF], [1], math.nan),
    ],
)
def test_a_quantile_of_buckets(quantile: float, bounds: list[float], counts: list[float], expected: float) -> None:
    found = HistogramQuantile(quantile)(np.array(bounds, dtype=float), np.array(counts, dtype=float))
    assert found == pytest.approx(expected, nan_ok=True)
