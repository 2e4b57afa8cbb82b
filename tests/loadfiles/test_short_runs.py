"""Runs of a minute or less: repeated ones are judged, a single one is shown with what it needs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.recordings.recording import Recording

FILES = Path(__file__).parents[1] / "load_tools"
SHORT = {"k6.csv.gz": 2, "jmeter.jtl.gz": 2, "vegeta.csv.gz": 1, "locust/base/run1_stats_history.csv": 9}
"""Recorded runs of 13, 15, 12 and 60 s; the longest time of rates that makes each long enough."""


def other(run: Recording, factor: float = 1.0001) -> Recording:
    """Another run: equal recordings are refused as named twice."""
    return replace(run, series=tuple(replace(each, values=each.values * factor) for each in run.series))


@pytest.mark.parametrize("name", SHORT)
def test_a_single_short_run_is_shown_with_what_it_needs(name: str) -> None:
    run = bc.read(FILES / name, catalogue="http").with_rate(60.0)
    result = bc.compare(run, other(run))
    rows = result.metrics.set_index("metric")
    assert rows.loc["response-time", ["base", "new"]].notna().all()
    assert set(rows["status"]) == {"inconclusive"}
    (reason, _) = result.results.tests[0].validity.reasons
    assert "s long; a steady window needs 6 min" in reason.text
    assert reason.text.endswith(f", or rate_s: {SHORT[name]}")
    long_enough = bc.compare(run, other(run), rate_s=SHORT[name])
    assert long_enough.results.tests[0].runs.base[0].window is not None
    assert not long_enough.results.tests[0].validity.reasons


@pytest.mark.parametrize("users", ["constant", "ramp", "unknown"])
def test_repeated_runs_of_74_seconds_are_judged(users: str) -> None:
    rng = np.random.default_rng(7)

    def run(seconds_per_call: float) -> pd.DataFrame:
        elapsed, level = np.arange(74.0), rng.lognormal(0.0, 0.01)
        rising = np.minimum(elapsed / 15.0, 1.0) if users == "ramp" else np.ones(74)
        columns = {
            "Users": 20.0 * rising,
            "Requests": 50.0 * rising * rng.lognormal(0.0, 0.02, 74),
            "Response time": seconds_per_call * level * rng.lognormal(0.0, 0.1, 74),
        }
        return pd.DataFrame(columns, elapsed).drop(columns="Users" if users == "unknown" else [])

    base, same, slower = ([run(seconds) for _ in range(3)] for seconds in (0.02, 0.02, 0.026))
    result = bc.compare(base, slower)
    assert result.metrics.set_index("metric").loc["response-time", "status"] == "regression"
    assert result.results.tests[0].validity.status == "valid"
    start, _ = result.results.tests[0].runs.new[0].window or (0.0, 0.0)
    assert (15.0 < start < 30.0) == (users == "ramp")
    assert ("; Requests stands for the load." in "".join(result.findings["text"])) == (users == "unknown")
    assert str(bc.compare(base, same).verdict) in ("pass", "inconclusive")


def test_runs_of_a_few_seconds_are_not_judged_however_many() -> None:
    run = bc.read(FILES / "k6.csv.gz", catalogue="http")
    runs = [other(run, 1.0 + 0.0001 * i) for i in range(6)]
    result = bc.compare(runs[:3], runs[3:])
    assert set(result.metrics["status"]) == {"inconclusive"}
    assert "13 s long; a steady window needs 25 s" in result.findings.loc[0, "text"]


def test_a_params_file_states_the_time_of_rates_of_its_files(tmp_path: Path) -> None:
    source = FILES / "locust/base/run1_stats_history.csv"
    text = "source: {kind: recorded, rate_s: 60}\nmetrics: http\nbase: {label: a}\nnew: {label: b}\ntests:\n"
    runs = f"base: {{recording: {source}}}, new: {{recording: {FILES / 'locust/new/run1_stats_history.csv'}}}"
    (tmp_path / "a.yaml").write_text(f"{text}  - {{name: t, type: bounded, {runs}}}\n", "utf-8")
    (test,) = bc.compare(bc.read_params(tmp_path / "a.yaml")).results.tests
    assert test.runs.base[0].window is None
