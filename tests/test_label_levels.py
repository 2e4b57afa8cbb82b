"""Label tables from series per label, against a hand-made run whose truth is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from buildcompare.analysis.label_levels import MeasureLabels
from buildcompare.compare import CompareTest
from buildcompare.metrics import read_catalogue
from buildcompare.params import Run, Test
from buildcompare.recording import LabelSummary, Recording, Series
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
    compare = CompareTest(read_catalogue("mattermost"))
    result = compare(test, {"base": [recording(0.02)], "new": [recording(0.03, calls=4.0)]})
    average, p99 = result.labels
    assert (average.stat, average.window, p99.window) == ("avg", "steady", "steady")
    assert average.base == pytest.approx(0.02)
    assert average.delta_percent == pytest.approx(50.0)
    assert average.calls is not None
    assert average.calls.new == pytest.approx(2 * float(average.calls.base or 0))
