"""What is true of one test, and what is said of it? Levels, labels, gaps and repeated runs."""

import math

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare import findings
from buildcompare.load.ramps import round_marks, time_to_users
from buildcompare.text.sentences import say
from curves import curve, kinds, recording
from quiet import compared
from support import users_curve

TIMES = pd.Index(np.arange(600.0), name="elapsed_s")


def test_a_level_leaves_out_what_is_no_number_and_counts_it() -> None:
    values = np.array([1.0, math.nan, 3.0, math.inf, 5.0])
    level = bc.measure_level(curve(values), (-5.0, 20.0))
    assert (level.value, level.mean, level.samples, level.missing) == (3.0, 3.0, 3, 2)
    assert bc.measure_level(curve(values * math.nan), (0.0, 20.0)).value is None
    level = bc.measure_level(curve(np.array([0.01, 0.0, 0.04, 0.02])), (-5.0, 15.0), geometric=True)
    assert (level.value, level.mean) == (pytest.approx(0.02), pytest.approx(0.07 / 3))
    assert (level.samples, level.missing) == (3, 1)  # a time of zero was not measured


def test_the_time_to_users() -> None:
    users = curve(users_curve(1000, ramp_s=1000, hold_s=100))
    marks = round_marks([1000.0, 1100.0])
    assert (marks, time_to_users(users, marks)[400]) == ([200, 400, 600, 800, 1000], 400.0)
    assert time_to_users(users, [5000]) == {5000: None}
    assert time_to_users(curve([500.0, 600.0]), [100]) == {100: None}  # the window opened in mid-ramp
    assert round_marks([]) == []
    gone = users.copy()
    gone[(gone.index > 350) & (gone.index < 650)] = math.nan  # nobody saw when 400 and 600 were reached
    assert time_to_users(gone, marks) == {200: 200.0, 400: None, 600: None, 800: 800.0, 1000: 1000.0}
    assert time_to_users(gone.dropna(), marks) == time_to_users(gone, marks)


def test_bounded_runs_of_unequal_length_are_compared_over_one_length() -> None:
    def run(seed: int, samples: int) -> pd.DataFrame:
        elapsed, noise = np.arange(float(samples)), np.random.default_rng(seed).normal(1.0, 0.05, samples)
        return pd.DataFrame({"users": 20.0, "latency_s": noise * (1.0 + 2.0 * np.exp(-elapsed / 40.0))}, elapsed)

    long, short = ([run(seed, samples) for seed in (samples, samples + 1)] for samples in (300, 200))
    for builds, verdict in (((short, long), "pass"), ((long, short), "inconclusive")):  # the new server may have died
        (test,) = bc.compare(*builds).results.tests
        assert {run.window for runs in test.runs for run in runs} == {(299 / 12, 199.0)}
        assert (test.validity.codes, test.verdict) == (["window_shorter"] * 2, verdict)


OTHER_RATES = [(1.0, 1.0, []), (1.3, 1.0, ["warning"]), (0.8, 1.25, ["info"]), (1.5, 0.67, ["info"])]


@pytest.mark.parametrize(("rate", "time", "told"), OTHER_RATES)
def test_a_changed_rate_that_stands_for_the_load_is_named(rate: float, time: float, told: list[str]) -> None:
    def run(seed: int, rate: float, seconds: float) -> pd.DataFrame:
        noise = np.random.default_rng(seed).normal(1.0, 0.02, (2, 600))
        return pd.DataFrame({"requests_per_second": rate * noise[0], "latency_s": seconds * noise[1]}, TIMES)

    runs = [[run(seed, *of), run(seed + 1, *of)] for seed, of in ((1, (100.0, 0.05)), (5, (100.0 * rate, 0.05 * time)))]
    found = bc.compare(*runs).results.findings
    assert [each.severity for each in found if each.kind == "load_may_differ"] == told


def test_missing_metrics_nan_and_gaps_are_said_with_their_size() -> None:
    users = users_curve(1000, ramp_s=600, hold_s=3000)
    holes = np.ones(users.size)
    holes[300:400] = np.nan
    base = recording(number_of_connected_devices=users, rps=holes, my_own=np.ones(users.size))
    new = recording(number_of_connected_devices=users * 0, rps=np.full(users.size, math.nan))
    result = compared([base], [new])
    metrics = {metric.slug: metric for metric in result.metrics}
    assert metrics["rps"].reason.model_dump(exclude_none=True) == {"code": "no_number", "build": "new"}
    assert metrics["my-own"].reason.model_dump(exclude_none=True) == {"code": "not_recorded", "build": "new"}
    assert metrics["my-own"].better == "neutral"
    assert {metric.status for metric in result.metrics} == {"inconclusive", "not_comparable"}
    assert "avg-api-times" in result.runs.base[0].missing
    coverage = {c.slug: c for c in result.runs.new[0].coverage}
    assert (coverage["rps"].present, coverage["rps"].finite, result.verdict) == (users.size, 0, "inconclusive")
    found = kinds(result)
    assert found["empty_metrics"] == {"side": "new", "run": 1, "runs": 1, "others": 0, "slugs": ["rps"]}
    assert (found["gaps"]["side"], found["gaps"]["slugs"]) == ("base", ["rps"])
    assert found["gaps"]["worst_percent"] == pytest.approx(86, abs=0.5)
    assert found["gaps"]["worst"]["longest_gap_s"] == pytest.approx(505.0)
    assert len(found["metrics_nowhere"]["slugs"]) == 8
    whole = recording(number_of_connected_devices=users, rps=holes, heap_in_use=holes)
    one = kinds(compared([whole], [base]))
    assert one["missing_metrics"] == {"side": "new", "run": 1, "runs": 1, "others": 0, "slugs": ["heap-in-use"]}
    short = recording(number_of_connected_devices=users[100:160], rps=holes[:60])
    reasons = kinds(compared([base], [short]))["validity"]["reasons"]
    (reason,) = (each for each in reasons if each["code"] == "no_steady_window")
    assert (reason["side"], reason["because"]["code"], round(reason["because"]["minutes"])) == ("new", "short", 2)


def test_a_window_that_opens_in_mid_ramp_does_not_know_the_time_to_users() -> None:
    users = users_curve(6000, ramp_s=3000, hold_s=3000)
    base, late = (recording(number_of_connected_devices=u, rps=u / 10.0) for u in (users, users[240:]))
    result = compared([base], [late], type="unbounded")
    assert (result.ramp_up.base.time_to["4000"], set(result.ramp_up.new.time_to.values())) == (2000.0, {None})
    assert not [f for f in findings.find([result], ("a", "b")) if f.kind == "time_to_users"]


@pytest.mark.parametrize("factor", [1e-18, 1e18])
def test_a_metric_that_all_but_vanishes_breaks_no_report(factor: float) -> None:
    users = users_curve(5000, ramp_s=600, hold_s=3000)
    heap = 1e9 * np.exp(0.01 * np.random.default_rng(1).normal(size=users.size))
    base, new = (recording(number_of_connected_devices=users, heap_in_use=heap * k) for k in (1.0, factor))
    result = compared([base], [new])
    row = next(metric for metric in result.metrics if metric.slug == "heap-in-use")
    assert row.delta_percent == pytest.approx(100.0 * (factor - 1.0))
    assert any(f.metric == "heap-in-use" for f in findings.find([result], ("a", "b")))
    assert say("reasons", "explain", row)


@pytest.mark.parametrize(("missing", "others"), [(10, 4), (1, None)], ids=["gaps", "first rate"])
def test_gaps_of_all_runs_are_one_finding_and_a_missing_first_rate_is_none(missing: int, others: int | None) -> None:
    users = users_curve(1000, ramp_s=60, hold_s=140)
    assert users.size < 50, "one sample is more than 2 %"
    holes = np.ones(users.size)
    holes[:missing] = np.nan
    runs = [recording(number_of_connected_devices=users, rps=holes) for _ in range(5)]
    gaps = [each for each in findings.find([compared(runs[:3], runs[3:])], ("v1", "v2")) if each.kind == "gaps"]
    assert [each.evidence["others"] for each in gaps] == ([] if others is None else [others])
    assert all("and 4 other runs have gaps" in each.text for each in gaps)


def test_repeated_runs_know_their_own_noise_where_nothing_else_does() -> None:
    def run(level: float, rows: float) -> pd.DataFrame:
        columns = {"Connections": 8.0, "Time per transaction": level, "Rows written": rows}
        return pd.DataFrame(columns, index=np.arange(0.0, 900.0, 5.0))

    base = [run(1e-3 * each, 800.0 / each) for each in (0.99, 1.0, 1.01)]
    new = [run(1.3e-3 * each, 800.0 * each) for each in (0.99, 1.0, 1.01)]
    rows = bc.compare(base, new, catalogue="postgresql").metrics.set_index("metric")
    assert rows.loc["time-per-transaction", ["status", "noise_source"]].tolist() == ["regression", "repeats"]
    assert rows.loc["rows-written", "status"] == "equivalent"
    once = bc.compare(base[:1], new[:1], catalogue="postgresql").metrics.set_index("metric")
    assert once.loc["time-per-transaction", ["status", "noise_source"]].tolist() == ["inconclusive", "none"]
