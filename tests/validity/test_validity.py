"""Is a test valid? Faults put into simulated runs, windows and curves made by hand, and published tests."""

import csv
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
import validity_cases
from buildcompare.config.params import Run, Source
from buildcompare.load.curve import find_falls
from buildcompare.load.view import view_run
from buildcompare.recordings.recording import Series
from buildcompare.recordings.sources import record
from buildcompare.results import Estimate
from buildcompare.results.codes import Pair, ValidityCode
from buildcompare.validity.rules import RunInTest, judge_runs, judge_validity, voids
from curves import CATALOGUE
from loadsim import Coordinator, Gap, Injection, LostAgent, NanStretch, Restart, RunSettings, Truncation, simulate_run
from quiet import compared
from support import sure
from validity_cases import HELD, bounded, changed, codes, flat, in_test, judged, loaded, recorded, scaled, unbounded


@pytest.mark.parametrize("seed", range(3))
def test_runs_without_a_fault_are_valid(seed: int) -> None:
    assert judged(bounded(seed=seed), bounded(seed=seed + 50)).test.status == "valid"
    found = judged(unbounded(seed=seed), unbounded(seed=seed + 50))
    assert (found.test.status, found.test.reasons, found.test.valid_until_s) == ("valid", [], None)


@pytest.mark.parametrize("at_s", [2000.0, 3000.0, 4500.0])
def test_a_lost_agent_limits_a_bounded_run_to_what_lies_before(at_s: float) -> None:
    found = judged(bounded(seed=1), bounded(LostAgent(at_s)))
    assert codes(found) == {("users_lost", "new")}
    assert [found.test.status, *(runs[0].status for runs in found.runs)] == ["limited", "valid", "limited"]
    assert found.test.valid_until_s == pytest.approx(at_s, abs=10)
    numbers = found.test.reasons[0].numbers
    assert (numbers["before"], numbers["after"]) == (5000, pytest.approx(4545, abs=20))


@pytest.mark.parametrize(
    ("run", "faults", "code", "status"),
    [
        (bounded, [Restart(900.0)], "restarted", "limited"),  # during the ramp: the plateau is whole
        (bounded, [Restart(1450.0)], "restarted", "invalid"),  # before anything was steady
        (bounded, [Truncation(4000.0)], "window_shorter", "limited"),
        (unbounded, [Truncation(4500.0)], "still_climbing", "limited"),
        (bounded, [Gap(1500.0, 3500.0), Gap(3600.0, 5200.0)], "little_coverage", "invalid"),
        (bounded, [LostAgent(900.0)], "users_lost target_not_reached loads_differ", "invalid"),  # it did another test
    ],
)
def test_faults_of_a_whole_run(run: Callable[..., RunInTest], faults: list[Injection], code: str, status: str) -> None:
    found = judged(run(seed=1), run(*faults))
    expected = {(each, None if each == "loads_differ" else "new") for each in code.split()}
    assert (codes(found), found.test.status, found.test.valid_until_s) == (expected, status, None)


@pytest.mark.parametrize("run", [bounded, unbounded])
def test_a_restart_is_told_from_a_lost_agent(run: Callable[..., RunInTest]) -> None:
    found = judged(run(seed=1), run(Restart(3000.0)))
    assert codes(found) == {("restarted", "new")}
    numbers = found.test.reasons[0].numbers
    assert (numbers["at_s"], numbers["after"]) == (pytest.approx(3000, abs=10), 0)
    assert 3030 < numbers["back_s"] < 3120


def test_users_lost_in_the_last_30_minutes_void_the_supported_users() -> None:
    late = judged(unbounded(seed=1), unbounded(Restart(4000.0)))
    assert any(map(voids, late.runs["new"][0].reasons))
    early = judged(unbounded(seed=1), unbounded(Restart(2500.0)))
    assert early.test.status == "limited"
    assert not any(map(voids, early.runs["new"][0].reasons))


def test_users_who_were_not_back_for_the_last_30_minutes_void_the_supported_users() -> None:
    """A tenth of the users goes with a load agent; nothing says that the build would not have carried them."""
    whole = unbounded(seed=1)
    users, window = sure(whole.view.users), sure(whole.view.steady.window)
    lost = loaded(whole, users.where(users.index < window[0] - 300.0, 0.9 * users))
    found = judged(unbounded(seed=2), lost).runs["new"][0]
    assert found.codes == ["users_lost"]
    assert voids(found.reasons[0])
    assert not any(map(voids, judged(unbounded(seed=2), whole).runs["new"][0].reasons))


def test_gaps_and_missing_series_are_named() -> None:
    gaps = judged(bounded(seed=1), bounded(NanStretch(2000.0, 4000.0, "cpu-utilization")))
    assert [(r.code, r.metric) for r in gaps.test.reasons] == [("little_coverage", "cpu-utilization")]
    assert gaps.test.reasons[0].numbers["covered"] == pytest.approx(0.51, abs=0.02)
    missing = judged(bounded(NanStretch(0.0, 9000.0, "rps"), seed=1), bounded())
    assert [(r.code, r.metric, r.side) for r in missing.test.reasons] == [("series_missing", "rps", "base")]
    both = judged(bounded(NanStretch(0.0, 9000.0, "rps"), seed=1), bounded(NanStretch(0.0, 9000.0, "rps")))
    assert both.test.status == "valid"
    everything = judged(bounded(seed=1), bounded(Gap(3000.0, 4000.0)))
    assert [r.numbers["metrics"] for r in everything.test.reasons] == [10]


def test_at_the_ceiling_the_users_are_at_least() -> None:
    found = judged(unbounded(seed=1, ceiling=5000), unbounded(ceiling=5000))
    assert codes(found) == {("ceiling_reached", "base"), ("ceiling_reached", "new")}
    run = simulate_run(RunSettings(coordinator=Coordinator(max_users=5000), time_limit_s=9000.0), 2).recording
    view = view_run(run, "unbounded", CATALOGUE)
    estimate = bc.supported_users(view.users, stop=view.stop, ceiling=5000)
    assert (estimate.estimated, estimate.reason) == (None, "ceiling_reached")
    assert 4900 <= (estimate.at_least or 0) <= 5000
    free = bc.supported_users(view.users, stop=view.stop)
    assert free.estimated == estimate.at_least


def test_a_run_cut_as_it_arrives_is_limited_and_its_load_is_not_said_to_be_missed() -> None:
    found = judged(bounded(), bounded(Truncation(1500.0)))
    assert (codes(found), found.test.status) == ({("no_steady_window", "new")}, "limited")
    (reason,) = found.test.reasons
    because = sure(reason.because)
    assert (because.code, round(because.minutes or 0.0)) == ("short", 3)


def test_agents_lost_one_by_one_leave_what_was_before_them() -> None:
    lost = bounded(*(LostAgent(at_s) for at_s in (2400.0, 3300.0, 4200.0)))
    windows = [sure(run.view.steady.window) for run in (lost, bounded())]
    assert windows[0][0] == pytest.approx(windows[1][0], abs=10.0)
    found = judged(bounded(), lost)
    assert (codes(found), found.test.valid_until_s) == ({("users_lost", "new")}, pytest.approx(2400.0, abs=15.0))


def test_every_rule_is_in_the_docs(project: Path) -> None:
    cells = re.findall(r"^\| (`.*?) \|", (project / "docs/validity.md").read_text(), re.M)
    assert sorted(re.findall(r"`(\w+)`", "".join(cells))) == sorted(ValidityCode)


def published(real: Path, release: str, test: str) -> validity_cases.JudgedRuns:
    db, kind = test.split("_")
    with (real / "comparisons" / "history.csv").open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if (r["release"], r["db"], r["test_type"]) == (release, db, kind)]
    limit = rows[0]["users"] if kind == "bounded" else rows[0]["max_active_users"]
    found = []
    for side in ("base", "new"):
        reported = rows[0][f"su_{side}"]
        run = Run(
            recording=str(real / "comparisons" / release / test / f"{side}.csv.gz"),
            supported_users=int(float(reported)) if reported else None,
        )
        recording = record(run, Source(kind="recorded"), CATALOGUE)
        found.append(in_test(recording, kind, int(float(limit)), run))  # type: ignore[arg-type]
    return judged(*found)


def test_v8_0_is_invalid_since_its_curves_belong_to_other_runs(real: Path) -> None:
    mysql = published(real, "v8.0", "mysql_unbounded")
    assert (mysql.test.status, codes(mysql)) == ("invalid", {("other_runs", "base"), ("other_runs", "new")})
    assert [round(r.numbers["curve"]) for r in mysql.test.reasons] == [13_781, 9391]
    assert [r.numbers["reported"] for r in mysql.test.reasons] == [15_459, 19_913]
    assert ("other_runs", "base") in codes(published(real, "v8.0", "postgresql_unbounded"))
    assert codes(published(real, "v8.0", "postgresql_bounded")) == {
        ("target_not_reached", "new"),
        ("loads_differ", None),
    }


def test_v9_2_is_limited_until_its_agent_is_lost(real: Path) -> None:
    found = published(real, "v9.2", "mysql_bounded")
    assert (found.test.status, codes(found)) == ("limited", {("users_lost", "new")})
    assert found.test.valid_until_s == pytest.approx(75 * 60, abs=30)
    numbers = found.test.reasons[0].numbers
    assert (round(numbers["before"]), round(numbers["after"])) == (5003, 4546)


def test_identical_runs_are_valid(real: Path) -> None:
    for pair, kind in (
        (("v1-1.1-1", "v1-1.1-2"), "unbounded"),
        (("v1-1.3-1", "v1-1.3-2"), "unbounded"),
        (("v2-L110-1", "v2-L110-2"), "unbounded"),
        (("v1-0.1-1", "v1-0.1-2"), "bounded"),
    ):
        reports = (Run(report=str(real / f"ceiling/{run}.out.gz")) for run in pair)
        recordings = (record(run, Source(kind="ltctl"), CATALOGUE) for run in reports)
        found = judged(*(in_test(each, kind, None) for each in recordings))  # type: ignore[arg-type]
        assert (found.test.status, found.test.reasons) == ("valid", [])


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
    twice = judge_runs(Pair([run, run], [other]))[0]
    assert [(r.code, r.side, r.run) for r in twice.reasons] == [("same_recording", "base", 2)]
    assert "another of the same build" in twice.reasons[0].text
    assert judged(run, other).test.status == "valid"
    assert judge_runs(Pair([run, other], [bounded(seed=4), bounded(seed=5)]))[0].status == "valid"
    labels_only = in_test(bc.Recording((), (0.0, 10.0), stop_known=True), "bounded", None)
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
        ("avg-store-times", (1e5, 1e5), "longest", "where a server takes less than"),  # without percentiles
    ],
)
def test_levels_in_another_unit(metric: str, factors: tuple[float, float], number: str, said: str) -> None:
    lacking, runs = "p99-store-times" if number == "longest" else None, []
    for seed, factor in zip((2, 3), factors, strict=True):
        run = changed(scaled(recorded(seed=seed), metric, factor), lambda s: None if s.metric == lacking else s)
        runs.append(in_test(run, "bounded", 5000, Run(recording=f"{seed}.csv")))
    found = judged(*runs).test
    assert found.status == "invalid"
    assert {(reason.code, reason.metric) for reason in found.reasons} == {("unlikely_unit", metric)}
    assert all(factors[reason.side == "new"] != 1.0 for reason in found.reasons)
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
    (reason,) = judge_runs(Pair([in_test(recording, "unbounded", None)], []))[1].base[0].reasons
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
    assert set(judge_runs(Pair([own], []))[0].codes) == {"no_steady_window"}


def test_windows_may_not_overlap_on_one_server() -> None:
    first = flat(HELD, window=(1000.0, 6000.0), clock="http://a")
    assert codes(judged(first, flat(HELD, window=(5900.0, 9900.0), clock="http://a"))) == {("windows_overlap", "new")}
    statuses = [
        judged(first, flat(HELD, window=(at, 9900.0), clock="http://a")).test.status for at in (6e3, 5.9e3, 5e3)
    ]
    assert statuses == ["valid", "limited", "invalid"]
    assert judged(first, flat(HELD, window=(1000.0, 6000.0), clock="http://b")).test.status == "valid"
    nowhere = flat(HELD, window=(1000.0, 6000.0))
    assert judged(nowhere, nowhere).test.status == "valid"
    twice = judge_runs(Pair([first, first], [flat(HELD, window=(9000.0, 9900.0), clock="http://a")]))
    assert [(r.code, r.side, r.run) for r in twice[0].reasons] == [("windows_overlap", "base", 2)]


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
    alike = "as far below the reported supported users as the other build's" in found.reasons[0].text
    assert alike == (status == "limited")


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
    elapsed = np.arange(0.0, 5000.0, step_s)
    users = np.minimum(4.0 * elapsed, 6000.0) - 60.0 * (1.0 + np.sin(2.0 * np.pi * elapsed / 240.0))
    for at_s in range(3000, 3480, 30):
        curve = pd.Series(np.where(elapsed >= at_s, 0.85, 1.0) * np.maximum(users, 0.0), elapsed)
        (fall,) = find_falls(curve, math.inf)
        assert fall.at_s == pytest.approx(at_s, abs=step_s + 5.0)
        assert fall.before > 5800


@pytest.mark.parametrize(("part", "returns"), [(0.1, False), (0.1, True), (0.3, True), (0.5, True)])
def test_users_are_lost_early_on_the_ramp(part: float, returns: bool) -> None:
    elapsed = np.arange(0.0, 4000.0, 5.0)
    lost = np.maximum(part * 2400.0 - returns * 20.0 * np.maximum(elapsed - 630.0, 0.0), 0.0)
    users = np.minimum(4.0 * elapsed, 7000.0) - (elapsed >= 600.0) * lost
    (fall,) = find_falls(pd.Series(users + np.random.default_rng(5).normal(0.0, 5.0, users.size), elapsed))
    size = pytest.approx(part * 2400.0 - 30.0, abs=30.0)  # 20 users join between samples
    assert (fall.at_s, fall.before - fall.after) == (pytest.approx(595.0, abs=10.0), size)


def test_a_restart_is_not_also_a_climb() -> None:
    whole = unbounded(seed=1)
    users, window = sure(whole.view.users), sure(whole.view.steady.window)
    since = users.index.to_numpy() - window[0] - 30.0
    back = np.where(since < 0.0, 1.0, np.clip((since - 60.0) / 60.0, 0.0, 1.0))
    load = users * back
    estimate = bc.supported_users(load, stop=whole.view.stop)
    assert estimate.slope_users_per_s > 0.4
    own = loaded(whole, load)
    found = judged(unbounded(seed=2), replace(own, view=replace(own.view, estimate=estimate)))
    assert codes(found) == {("restarted", "new")}
