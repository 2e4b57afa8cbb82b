"""The data of a chart: every sample as it was recorded, and of long runs the extremes of equal spans."""

import base64
import json
import zlib
from collections.abc import Mapping
from operator import methodcaller
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from buildcompare.comparison.analysis import TestView
from buildcompare.config.catalogue import read_catalogue
from buildcompare.figures.chart import MOST_SAMPLES, chart
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import MetricResult, RunResult, TestResult
from buildcompare.results.codes import Pair
from buildcompare.results.users import RampUp


def unpacked(attributes: Mapping[str, str]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Header and floats of each run, as a browser reads them."""
    raw = zlib.decompress(base64.b64decode(attributes["data"]))
    size = int.from_bytes(raw[:4], "little")
    header, floats = json.loads(raw[4 : 4 + size]), np.frombuffer(raw[4 + size :], "<f4")
    counts = [run["size"] * (2 if run.get("timed") else 1) + run.get("minutes", 0) for run in header["runs"]]
    assert sum(counts) == floats.size
    return header, np.split(floats, np.cumsum(counts)[:-1])


def chart_of(*runs: Series) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The chart of runs of the base, and of one of the new build."""
    recordings = [Recording((run,), (0.0, max(100.0, run.times[-1])), True) for run in runs]
    result = cast(Any, RunResult).model_construct(
        samples_sha256="0123456789", stop_s=None, duration_s=100.0, window=(10.0, 90.0), phases=[],
        ramp_up=RampUp(onset_s=5.0),
    )  # fmt: skip
    test = cast(Any, TestResult).model_construct(
        name="t", type="bounded", events=[], runs=Pair([result] * len(runs), [result])
    )
    metric = cast(Any, MetricResult).model_construct(name="RPS", slug="rps", unit="", labels={})
    view = TestView(test, {"base": recordings, "new": recordings[:1]}, read_catalogue("mattermost"), Pair("a", "b"), {})
    return unpacked(chart(view, metric, methodcaller("total", "rps"), title="title", alt="words"))


def series(times: Any, values: Any) -> Series:
    return Series("rps", "RPS", "", np.asarray(times, float), np.asarray(values, float))


def test_what_is_missing_stays_missing_and_samples_without_a_grid_keep_their_times() -> None:
    _, floats = chart_of(series([0, 5, 10, 25, 30], [1, np.nan, np.inf, 4, 5]))
    assert floats[0] == pytest.approx([1, np.nan, np.nan, np.nan, np.nan, 4, 5], nan_ok=True)
    times = [0.0, 5.0, 11.5, 15.0, 20.0]
    header, floats = chart_of(series(times, [1, 2, 3, 4, 5]))
    assert header["runs"][0]["timed"]
    assert floats[0] == pytest.approx([1, 2, 3, 4, 5, *times])
    header, floats = chart_of(series([3.0], [7.0]))
    assert (header["runs"][0]["size"], floats[0]) == (1, pytest.approx([7.0]))


def test_a_long_run_keeps_the_extremes_of_each_span_and_its_means() -> None:
    times, values = np.arange(100_000.0), np.sin(np.arange(100_000.0))
    values[[40_000, 70_001]] = 99.0, -99.0
    values[50_000:51_000] = np.nan
    header, floats = chart_of(series(times, values))
    run = header["runs"][0]
    shown, elapsed, means = np.split(floats[0], [run["size"], 2 * run["size"]])
    assert run["size"] <= MOST_SAMPLES
    assert (run["thinned"], elapsed[shown == 99.0].tolist()) == (pytest.approx(40.0, rel=0.001), [40_000.0])
    assert elapsed[shown == -99.0].tolist() == [70_001.0]
    assert np.isnan(shown[(elapsed > 50_040) & (elapsed < 50_960)]).all()
    of_minutes = pd.Series(values).groupby(times // 60).mean()
    assert means == pytest.approx(of_minutes, abs=1e-4, nan_ok=True)
    assert header["runs"][1]["thinned"]
