"""Is a test valid whose windows and curves are made by hand?"""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from buildcompare.config.params import Run
from buildcompare.load.curve import find_falls
from buildcompare.load.users import supported_users
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import Estimate
from buildcompare.results.codes import Pair
from buildcompare.validity.rules import RunInTest, judge_runs, judge_validity
from loadsim import Coordinator, Restart, RunSettings, Truncation, simulate_run
from quiet import compared
from support import sure
from validity_cases import (
    CATALOGUE,
    HELD,
    bounded,
    changed,
    codes,
    flat,
    in_test,
    judged,
    loaded,
    recorded,
    scaled,
    unbounded,
)


def test_a_load_that_sags_is_not_held() -> None:
    sags = HELD.copy()
    sags[400:520] = 5000 - 300 * np.sin(np.linspace(0, np.pi, 120))
    found = judged(flat(HELD), flat(sags))
    assert (codes(found), found.test.status) == ({("target_not_held", "new")}, "limited")
    sags[400:900] = 5000 - 300 * np.sin(np.linspace(0, np.pi, 500))
    assert judged(flat(HELD), flat(sags)).test.status == "invalid"


@pytest.mark.parametrize("target", [5000, None])
def test_users_in_excess_of_the_load_are_not_lost_when_they_go(target: int | None) -> None:
    excess = HELD.copy()
    excess[165:190] *= 1.1  # two minutes
    assert judged(flat(HELD, target=target), flat(excess, target=target)).test.status == "valid"
    sags = excess.copy()
    sags[400:900] = 5000 - 300 * np.sin(np.linspace(0, np.pi, 500))
    assert codes(judged(flat(HELD, target=target), flat(sags, target=target))) == {("target_not_held", "new")}
    excess[600:] *= 0.9
    assert codes(judged(flat(HELD, target=target), flat(excess, target=target))) == {("users_lost", "new")}


def test_without_a_target_the_builds_are_held_against_each_other() -> None:
    found = judged(flat(HELD, target=None), flat(0.9 * HELD, target=None))
    assert (codes(found), found.test.status) == ({("loads_differ", None)}, "invalid")
    assert judged(flat(HELD, target=None), flat(0.97 * HELD, target=None)).test.status == "valid"


USERS, PROXY = "number-of-connected-devices", "goroutines-in-use"


def test_users_that_are_zero_all_through_are_no_valid_test() -> None:
    run = recorded()
    found = judged(bounded(), in_test(scaled(run, USERS, 0.0), "bounded", 5000))
    assert (codes(found), found.test.status) == ({("no_users", "new")}, "limited")
    without = in_test(changed(run, lambda s: s if s.metric != USERS else None), "bounded", 5000)
    assert judged(bounded(), without).runs["new"][0].status == "valid"


def test_a_bounded_run_that_falls_silent_before_its_stop_is_limited() -> None:
    run = recorded()

    def until_then(series: Series) -> Series:
        kept = series.times <= run.window[0] + 4500.0
        return replace(series, times=series.times[kept], values=series.values[kept])

    found = judged(bounded(), in_test(changed(run, until_then), "bounded", 5000))
    assert codes(found) == {("silent_end", "new")}
    assert found.test.reasons[0].numbers["seconds"] == pytest.approx(16 * 60, abs=45)


def test_a_window_that_begins_before_the_data_is_limited_with_its_length() -> None:
    """The ramp of such a run begins late by as much, which a reader would take for the build's own."""
    run = recorded()
    base, (start, end) = bounded(seed=3), run.window
    assert judged(base, in_test(replace(run, window=(start - 100.0, end)), "bounded", 5000)).test.reasons == []
    found = judged(base, in_test(replace(run, window=(start - 720.0, end)), "bounded", 5000))
    assert (codes(found), found.test.status) == ({("silent_start", "new")}, "limited")
    assert found.test.reasons[0].numbers["seconds"] == pytest.approx(12 * 60, abs=30)


def with_dips(*dips: tuple[float, float]) -> RunInTest:
    """5,000 users for 100 minutes, 2,000 of them missing between the times of each dip."""
    elapsed = np.arange(0.0, 6000.0, 5.0)
    return flat(5000.0 - 2000.0 * sum(((elapsed > start) & (elapsed <= end)) for start, end in dips))


@pytest.mark.parametrize(
    ("dips", "from_s", "until_s"),
    [
        ([(1500.0, 1620.0)], 1685.0, None),  # back at 1,625 s, and a minute for rates
        ([(5000.0, 5120.0)], None, 5000.0),
        ([(1500.0, 1620.0), (5000.0, 5120.0)], 1685.0, 5000.0),
        ([(1000.0, 1120.0), (1300.0, 1420.0)], 1485.0, None),
    ],
)
def test_a_dip_costs_its_minutes(dips: list[tuple[float, float]], from_s: float | None, until_s: float | None) -> None:
    own = with_dips(*dips)
    found = judged(flat(HELD), own)
    assert found.test.status == "limited"
    (of_run,) = found.runs.new
    assert (of_run.valid_from_s, of_run.valid_until_s) == (from_s, until_s)
    assert "judged from 28 min" in of_run.reasons[0].text or from_s != 1685.0
    _, views = judge_validity(own.test, Pair([flat(HELD).view], [own.view]), CATALOGUE, own.coordinator, own.labels)
    assert views.new[0].steady.window == (from_s or 900.0, until_s or 5995.0)


def test_what_is_left_between_dips_may_be_too_short() -> None:
    often = [(start, start + 200.0) for start in np.arange(950.0, 6000.0, 500.0)]
    assert judged(flat(HELD), with_dips(*often)).test.status == "invalid"


def test_one_recording_in_two_places_is_no_comparison() -> None:
    run, other = bounded(), bounded(seed=3)
    found = judged(run, run).test
    assert found.status == "invalid"
    assert [(r.code, r.side, r.run) for r in found.reasons] == [("same_recording", "new", 1)]
    assert found.reasons[0].text.startswith("it is the same recording, to the last sample, as one of the other build")
    twice = judge_runs(Pair([run, run], [other])).test
    assert [(r.code, r.side, r.run) for r in twice.reasons] == [("same_recording", "base", 2)]
    assert "another of the same build" in twice.reasons[0].text
    assert judged(run, other).test.status == "valid"
    assert judge_runs(Pair([run, other], [bounded(seed=4), bounded(seed=5)])).test.status == "valid"
    labels_only = in_test(Recording((), (0.0, 10.0), stop_known=True), "bounded", None)
    assert "same_recording" not in [r.code for r in judged(labels_only, labels_only).test.reasons]


@pytest.mark.parametrize(("base", "new", "seconds"), [(1.0, 250.0, 1.9), (6.0, 1600.0, 12.0)])
def test_one_build_that_is_very_slow_is_a_regression_and_no_other_unit(base: float, new: float, seconds: float) -> None:
    """Averages above 9.9 s lie above a percentile that ends at the histogram's last bucket."""
    runs = []
    for seed, factor in ((2, base), (3, new)):
        recording = scaled(recorded(seed=seed), "avg-api-times", factor)
        (average,) = (each.values for each in recording.series if each.metric == "avg-api-times")
        p99 = np.minimum(10.0 * average, 9.9)
        slow = tuple(replace(s, values=p99) if s.metric == "p99-api-times" else s for s in recording.series)
        runs.append(in_test(replace(recording, series=slow), "bounded", 5000))
    assert "unlikely_unit" not in [reason.code for reason in judged(*runs).test.reasons]
    assert runs[1].levels["avg-api-times"] > seconds


@pytest.mark.parametrize(
    ("metric", "factors", "number", "said"),
    [
        ("cpu-utilization", (0.01, 0.01), "least", "a fraction"),
        ("cpu-utilization", (1.0, 0.01), "least", "a fraction"),
        ("p99-api-times", (1.0, 250.0), "top", "milliseconds"),
        ("p99-store-times", (600.0, 600.0), "top", "milliseconds"),
        ("heap-in-use", (1.0, 1e3), "times", "another unit"),
        ("avg-api-times", (1.0, 200.0), "p99", "milliseconds"),
        ("avg-api-times", (1e4, 1.0), "times", "expected seconds, found what may be milliseconds"),
    ],
)
def test_levels_in_another_unit(metric: str, factors: tuple[float, float], number: str, said: str) -> None:
    runs = [
        in_test(scaled(recorded(seed=seed), metric, factor), "bounded", 5000, Run(recording=f"{seed}.csv"))
        for seed, factor in zip((2, 3), factors, strict=True)
    ]
    found = judged(*runs).test
    assert found.status == "invalid"
    assert {(reason.code, reason.metric) for reason in found.reasons} == {("unlikely_unit", metric)}
    assert {reason.side for reason in found.reasons} <= {
        side for side, factor in zip(("base", "new"), factors, strict=True) if factor != 1.0
    }
    assert number in found.reasons[0].numbers
    assert said in found.reasons[0].text
    assert f" in {found.reasons[0].file}, " in found.reasons[0].text


@pytest.mark.parametrize(
    ("stated", "labels", "found"),
    [
        (("v10.3.0", "10.4.0 RC1"), ("v10.3.0", "v10.4.0-rc1"), []),
        (("10.3", "v10.4.0rc1 mysql, second run"), ("v10.3.0", "v10.4.0-rc1"), []),
        (("ct2XL222-1", "ct2XL222-2"), ("v10.3.0", "v10.4.0-rc1"), []),  # as in Mattermost's published reports
        (("", "v10.4.0-rc1"), ("v10.3.0", "v10.4.0-rc1"), []),
        (("v10.3.0", "v10.3.0"), ("v10.3.0", "v10.4.0-rc1"), ["new"]),
        (("v10.4.0-rc1", "v10.3.0"), ("v10.3.0", "v10.4.0-rc1"), ["base", "new"]),
        (("v10.3.0", "v10.4.0-rc2"), ("v10.3.0", "v10.4.0-rc1"), ["new"]),
        (("v9.11.2", "v10.4.0-rc1"), ("v10.3.0", "v10.4.0-rc1"), ["base"]),
        (("main", "feature"), ("feature", "main"), ["base", "new"]),
        (("main", "another"), ("main", "feature"), ["new"]),  # here reports state their builds
        (("old", "new"), ("base", "new"), []),
        (("v10.4.0", "v10.4.0"), ("v10.4.0", "v10.4.0"), []),
    ],
)
def test_a_report_of_another_build(stated: tuple[str, str], labels: tuple[str, str], found: list[str]) -> None:
    runs = []
    for label in stated:
        own = flat(HELD)
        recording = replace(own.view.recording, provenance={"label": label})
        view = replace(own.view, recording=recording, run=Run(report=f"{label}.json"))
        runs.append(replace(own, view=view, labels=Pair(*labels)))
    of = judged(*runs).test
    reasons = [reason for reason in of.reasons if reason.code == "another_build"]
    assert [reason.side for reason in reasons] == found
    assert (of.status == "invalid") is bool(found)
    for reason in reasons:
        at = ("base", "new").index(str(reason.side))
        assert reason.text.startswith(f"{stated[at]}.json states the build {stated[at]}, the params")
        assert labels[at] in reason.text


@pytest.mark.parametrize("part", [0.3, 0.5, 0.7])
def test_an_unbounded_run_that_was_cut_on_its_ramp_is_no_test(part: float) -> None:
    whole = unbounded(seed=1)
    assert whole.climb is None
    cut = unbounded(Truncation(part * sure(sure(whole.view.shape).ramp).end_s), seed=1)
    found = judged(unbounded(seed=2), cut)
    assert found.test.status == "invalid"
    (reason,) = [reason for reason in found.test.reasons if reason.status == "invalid"]
    assert (reason.code, reason.side) == ("cut_in_ramp", "new")
    assert reason.text.startswith("cut on its ramp: at its end")
    reporting = replace(cut, view=replace(cut.view, run=Run(recording="x", supported_users=7000)))
    assert reporting.climb is None, "a run that reports its supported users is whole"


def test_a_restart_on_a_curve_that_stands_in_counts_no_users() -> None:
    runs = [unbounded(Restart(4000.0), seed=seed) for seed in (2, 3)]
    assert judged(*runs).test.status == "limited"
    whole = simulate_run(RunSettings(injections=(Restart(4000.0),)), 2).recording
    recording = changed(whole, lambda s: s if s.metric != USERS else None)
    (reason,) = judge_runs(Pair([in_test(recording, "unbounded", None)], [])).runs.base[0].reasons
    assert (reason.code, reason.numbers["stand_in"]) == ("restarted", 1.0)


def test_what_follows_a_restart_in_the_last_30_minutes_is_not_compared() -> None:
    rule = Coordinator(max_users=20_000)
    runs = [
        simulate_run(RunSettings(coordinator=rule, injections=injections), 2).recording
        for injections in ((), (Restart(5500.0),))
    ]
    result = compared(*runs, type="unbounded", users=20_000)
    window = result.runs.new[0].window
    assert window[1] == result.validity.valid_until_s == pytest.approx(5500.0, abs=10.0)
    assert not [metric.slug for metric in result.metrics if metric.status == "regression"]


def test_an_unbounded_test_without_a_load_has_no_steady_window() -> None:
    recording = simulate_run(RunSettings(), 2).recording
    own = in_test(changed(recording, lambda s: s if s.metric not in (USERS, PROXY) else None), "unbounded", None)
    assert own.view.steady.window is None
    assert set(judge_runs(Pair([own], [])).test.codes) == {"no_steady_window"}


def test_windows_may_not_overlap_on_one_server() -> None:
    first = flat(HELD, window=(1000.0, 6000.0), clock="http://a")
    assert codes(judged(first, flat(HELD, window=(5900.0, 9900.0), clock="http://a"))) == {("windows_overlap", "new")}
    assert judged(first, flat(HELD, window=(6000.0, 9900.0), clock="http://a")).test.status == "valid"
    assert judged(first, flat(HELD, window=(1000.0, 6000.0), clock="http://b")).test.status == "valid"
    nowhere = flat(HELD, window=(1000.0, 6000.0))
    assert judged(nowhere, nowhere).test.status == "valid"
    twice = judge_runs(Pair([first, first], [flat(HELD, window=(9000.0, 9900.0), clock="http://a")]))
    assert [(r.code, r.side, r.run) for r in twice.test.reasons] == [("windows_overlap", "base", 2)]


def test_counters_that_started_again_are_said() -> None:
    found = judged(flat(HELD), flat(HELD, resets=2))
    assert [(r.code, r.numbers["times"]) for r in found.test.reasons] == [("counters_restarted", 2)]


@pytest.mark.parametrize(
    ("estimate", "reported", "status"),
    [
        (Estimate(estimated=7000.0, at_least=None, reason=None), 7030, "valid"),
        (Estimate(estimated=7000.0, at_least=None, reason=None), 7200, "invalid"),
        (Estimate(estimated=None, at_least=7200.0, reason="ceiling_reached"), 7000, "valid"),
        (Estimate(estimated=None, at_least=7400.0, reason="ceiling_reached"), 7000, "invalid"),
        (Estimate(estimated=None, at_least=7000.0, reason="still_climbing", slope_users_per_s=0.5), 7400, "limited"),
        (Estimate(estimated=None, at_least=7000.0, reason="still_climbing", slope_users_per_s=0.5), 6700, "invalid"),
        (Estimate(estimated=None, at_least=None, reason="no_users_curve"), 6700, "valid"),
        (Estimate(estimated=None, at_least=None, reason="interrupted", slope_users_per_s=0.05), 6700, "valid"),
        (Estimate(estimated=None, at_least=None, reason="may_be_cut", slope_users_per_s=0.15), 6700, "limited"),
    ],
)
def test_a_curve_is_held_against_the_reported_users(estimate: Estimate, reported: int, status: str) -> None:
    run = flat(HELD, kind="unbounded", target=None, estimate=estimate, reported=reported)
    assert judged(flat(HELD, kind="unbounded", target=None), run).test.status == status


@pytest.mark.parametrize(("curve", "status"), [(6800.0, "limited"), (6500.0, "invalid")])
def test_curves_equally_far_below_their_reports_are_judged(curve: float, status: str) -> None:
    estimates = (Estimate(estimated=users, at_least=None, reason=None) for users in (6790.0, curve))
    runs = (flat(HELD, kind="unbounded", target=None, estimate=each, reported=7000) for each in estimates)
    found = judged(*runs).test
    assert (found.status, set(found.codes)) == (status, {"other_runs"})
    assert ("as far below the reported supported users as the other build's" in found.reasons[0].text) == (
        status == "limited"
    )


def test_a_missed_scrape_and_the_coordinator_itself_lose_nobody() -> None:
    curve = pd.Series(HELD, index=np.arange(HELD.size) * 5.0)
    curve.iloc[500] = 0.0
    curve.iloc[700] = np.nan
    assert find_falls(curve.drop(curve.index[600:640]), 5000.0, fastest_fall=0.0) == ()
    curve.iloc[500:506] = 0.0
    fall = find_falls(curve, 5000.0, fastest_fall=0.0)[0]
    assert (fall.kind, fall.at_s, fall.before, fall.after) == ("restart", 499 * 5.0, 5000.0, 0.0)
    hunting = 7000 + 60 * np.sin(np.arange(800) / 5.0)
    assert find_falls(pd.Series(hunting, index=np.arange(800) * 5.0), 4000.0) == ()
    bumps = np.concatenate([200 * np.abs(np.sin(np.arange(60) / 10.0)), hunting])
    assert find_falls(pd.Series(bumps, index=np.arange(bumps.size) * 5.0), 4000.0) == ()


def test_goroutines_may_fall_but_not_to_nothing() -> None:
    spikes = np.full(1000, 15_000.0)
    spikes[300:400] = 22_000.0
    spikes[500:520] = 7000.0
    run = flat(spikes, users=False)
    assert judged(run, run).test.status == "valid"
    spikes[500:520] = 300.0
    assert codes(judged(run, flat(spikes, users=False))) == {("restarted", "new")}


@pytest.mark.parametrize("seed", range(20))
def test_any_curve_is_judged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for size in (1, 2, 3, 40, 900):
        values = np.abs(rng.normal(0, 3000, size)) if seed % 2 else np.minimum(np.arange(size) * 20.0, 5000)
        values[rng.random(size) < 0.1] = rng.choice([np.nan, np.inf, 0.0])
        index = np.cumsum(rng.choice([5.0, 5.0, 400.0], size))
        load = pd.Series(values, index=index)
        run, climbing = (loaded(flat(HELD, kind=kind), load, float(index[-1])) for kind in ("bounded", "unbounded"))
        for found in (judged(run, run), judged(climbing, run), judged(flat(HELD), run)):
            assert found.test.status in ("valid", "limited", "invalid")
            assert bool(found.test.reasons) == (found.test.status != "valid")
            assert all(reason.text for reason in found.test.reasons)


@pytest.mark.parametrize("step_s", [5.0, 15.0, 30.0, 60.0])
def test_users_are_lost_whatever_the_waves_did_just_before(step_s: float) -> None:
    """What the coordinator takes away by itself does not lead up to a loss: half of all losses fall into a fall."""
    elapsed = np.arange(0.0, 5000.0, step_s)
    users = np.minimum(4.0 * elapsed, 6000.0) - 60.0 * (1.0 + np.sin(2.0 * np.pi * elapsed / 240.0))
    for at_s in range(3000, 3480, 30):
        curve = pd.Series(np.where(elapsed >= at_s, 0.85, 1.0) * np.maximum(users, 0.0), elapsed)
        (fall,) = find_falls(curve, math.inf)
        assert fall.at_s == pytest.approx(at_s, abs=step_s + 5.0)
        assert fall.before > 5800


def test_a_restart_is_not_also_a_climb() -> None:
    """Users who come back after a restart at the start of the last 30 minutes are no slope of the equilibrium."""
    whole = unbounded(seed=1)
    users, window = sure(whole.view.users), sure(whole.view.steady.window)
    since = users.index.to_numpy() - window[0] - 30.0
    back = np.where(since < 0.0, 1.0, np.clip((since - 60.0) / 60.0, 0.0, 1.0))
    load = users * back
    estimate = supported_users(load, stop=whole.view.stop)
    assert estimate.slope_users_per_s > 0.4
    own = loaded(whole, load)
    found = judged(unbounded(seed=2), replace(own, view=replace(own.view, estimate=estimate)))
    assert codes(found) == {("restarted", "new")}
