"""Validity: faults that are put into simulated runs, windows and curves made by hand, and the published tests."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import pytest

from buildcompare.analysis.load_faults import FindFalls
from buildcompare.analysis.stop import Stop
from buildcompare.analysis.supported_users import EstimateSupportedUsers, SupportedUsers
from buildcompare.analysis.validity import JudgeValidity
from buildcompare.analysis.validity_reasons import Code, Covered, Reason, RunFacts, TestVerdict
from buildcompare.compare import CompareTest
from buildcompare.metrics import read_catalogue
from buildcompare.params import Coordinator as Rule
from buildcompare.params import Run, Source, Test
from buildcompare.recording import Recording
from buildcompare.run_view import ViewRun
from buildcompare.simulate import (
    Coordinator,
    Gap,
    Injection,
    LostAgent,
    NanStretch,
    Restart,
    RunSettings,
    Truncation,
    simulate_run,
)
from buildcompare.sources import record
from buildcompare.validity_facts import facts_of
from buildcompare.wording_validity import said

CATALOGUE = read_catalogue("mattermost")
Kind = Literal["bounded", "unbounded"]


def facts(recording: Recording, kind: Kind, users: int | None, run: Run | None = None) -> RunFacts:
    own = run or Run(recording="any.parquet")
    test = Test.model_validate({"name": "t", "type": kind, "users": users, "base": [own], "new": [own]})
    view = ViewRun(CATALOGUE, Rule())(recording, kind)
    known_end = recording.duration_s if recording.stop_known else None
    estimate = (
        EstimateSupportedUsers()(view.users, view.stop, may_be_cut=False, known_end_s=known_end, ceiling=users)
        if kind == "unbounded"
        else None
    )
    return facts_of(view, estimate, test, own, CATALOGUE, Rule())


def bounded(*injections: Injection, seed: int = 2, users: int = 5000) -> RunFacts:
    settings = RunSettings(type="bounded", coordinator=Coordinator(max_users=users), injections=injections)
    return facts(simulate_run(settings, seed).recording, "bounded", users)


def unbounded(*injections: Injection, seed: int = 2, ceiling: int = 20_000) -> RunFacts:
    rule = Coordinator(max_users=ceiling)
    settings = RunSettings(coordinator=rule, injections=injections, time_limit_s=9000.0)
    return facts(simulate_run(settings, seed).recording, "unbounded", ceiling)


def judged(base: RunFacts, new: RunFacts) -> TestVerdict:
    return JudgeValidity()([base], [new])


def codes(verdict: TestVerdict) -> set[tuple[str, str | None]]:
    return {(reason.code, reason.side) for reason in verdict.test.reasons}


# ---- Faults in simulated runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_runs_without_a_fault_are_valid(seed: int) -> None:
    assert judged(bounded(seed=seed), bounded(seed=seed + 50)).test.status == "valid"
    found = judged(unbounded(seed=seed), unbounded(seed=seed + 50))
    assert (found.test.status, found.test.reasons, found.test.valid_until_s) == ("valid", (), None)


@pytest.mark.parametrize("at_s", [2000.0, 3000.0, 4500.0])
def test_a_lost_agent_limits_a_bounded_run_to_what_lies_before(at_s: float) -> None:
    found = judged(bounded(seed=1), bounded(LostAgent(at_s)))
    assert codes(found) == {("users_lost", "new")}
    assert (found.test.status, found.runs["new"][0].status, found.runs["base"][0].status) == (
        "limited",
        "limited",
        "valid",
    )
    assert found.test.valid_until_s == pytest.approx(at_s, abs=10)
    numbers = found.test.reasons[0].numbers
    assert (numbers["before"], numbers["after"]) == (5000, pytest.approx(4545, abs=20))


def test_a_run_that_lost_its_agent_at_once_did_another_test() -> None:
    found = judged(bounded(seed=1), bounded(LostAgent(900.0)))
    assert found.test.status == "invalid"
    assert {("target_not_reached", "new"), ("loads_differ", None)} <= codes(found)
    assert found.test.valid_until_s is None


@pytest.mark.parametrize("run", [bounded, unbounded])
def test_a_restart_is_told_from_a_lost_agent(run: Callable[..., RunFacts]) -> None:
    found = judged(run(seed=1), run(Restart(3000.0)))
    assert codes(found) == {("restarted", "new")}
    numbers = found.test.reasons[0].numbers
    assert numbers["at_s"] == pytest.approx(3000, abs=10)
    assert numbers["after"] == 0
    assert 3030 < numbers["back_s"] < 3120


def test_a_restart_during_the_ramp_limits_but_leaves_the_plateau() -> None:
    found = judged(bounded(seed=1), bounded(Restart(900.0)))
    assert codes(found) == {("restarted", "new")}
    assert (found.test.status, found.test.valid_until_s) == ("limited", None)


def test_a_fault_before_anything_was_steady_leaves_nothing_to_judge() -> None:
    found = judged(bounded(seed=1), bounded(Restart(1450.0)))
    assert found.test.status == "invalid"


def test_users_lost_in_the_last_30_minutes_void_the_supported_users() -> None:
    late = judged(unbounded(seed=1), unbounded(Restart(4000.0)))
    assert late.runs["new"][0].voids_supported_users
    early = judged(unbounded(seed=1), unbounded(Restart(2500.0)))
    assert early.test.status == "limited"
    assert not early.runs["new"][0].voids_supported_users


def test_users_who_were_not_back_for_the_last_30_minutes_void_the_supported_users() -> None:
    """A tenth of the users goes with a load agent; nothing says that the build would not have carried them."""
    whole = unbounded(seed=1)
    assert whole.load is not None
    assert whole.stop is not None
    assert whole.steady is not None
    at_s = whole.steady[0] - 300.0
    lost = replace(whole, load=whole.load.where(whole.load.index < at_s, 0.9 * whole.load))
    found = judged(unbounded(seed=2), lost).runs["new"][0]
    assert [reason.code for reason in found.reasons] == ["users_lost"]
    assert found.voids_supported_users == "users_lost"
    assert judged(unbounded(seed=2), whole).runs["new"][0].voids_supported_users is None


def test_cut_runs_are_limited() -> None:
    assert codes(judged(bounded(seed=1), bounded(Truncation(2600.0)))) == {("window_shorter", "new")}
    assert codes(judged(unbounded(seed=1), unbounded(Truncation(2500.0)))) == {("still_climbing", "new")}


def test_gaps_and_missing_series_are_named() -> None:
    gaps = judged(bounded(seed=1), bounded(NanStretch(2000.0, 4000.0, "cpu-utilization")))
    assert [(r.code, r.text) for r in gaps.test.reasons] == [("little_coverage", "cpu-utilization")]
    assert gaps.test.reasons[0].numbers["covered"] == pytest.approx(0.51, abs=0.02)
    missing = judged(bounded(NanStretch(0.0, 9000.0, "rps"), seed=1), bounded())
    assert [(r.code, r.text, r.side) for r in missing.test.reasons] == [("series_missing", "rps", "base")]
    both = judged(bounded(NanStretch(0.0, 9000.0, "rps"), seed=1), bounded(NanStretch(0.0, 9000.0, "rps")))
    assert both.test.status == "valid"
    everything = judged(bounded(seed=1), bounded(Gap(3000.0, 4000.0)))
    assert [r.numbers["metrics"] for r in everything.test.reasons] == [10]


def test_hardly_any_samples_leave_nothing_to_judge() -> None:
    found = judged(bounded(seed=1), bounded(Gap(1500.0, 3500.0), Gap(3600.0, 5200.0)))
    assert ("little_coverage", "new") in codes(found)
    assert found.test.status == "invalid"


def test_at_the_ceiling_the_users_are_at_least() -> None:
    found = judged(unbounded(seed=1, ceiling=5000), unbounded(ceiling=5000))
    assert codes(found) == {("ceiling_reached", "base"), ("ceiling_reached", "new")}
    run = simulate_run(RunSettings(coordinator=Coordinator(max_users=5000), time_limit_s=9000.0), 2).recording
    view = ViewRun(CATALOGUE)(run, "unbounded")
    estimate = EstimateSupportedUsers()(view.users, view.stop, may_be_cut=False, ceiling=5000)
    assert (estimate.estimated, estimate.reason) == (None, "ceiling_reached")
    assert 4900 <= (estimate.at_least or 0) <= 5000
    free = EstimateSupportedUsers()(view.users, view.stop, may_be_cut=False)
    assert free.estimated == estimate.at_least


def test_a_run_cut_as_it_arrives_is_limited_and_its_load_is_not_said_to_be_missed() -> None:
    verdict = judged(bounded(), bounded(Truncation(1500.0)))
    assert codes(verdict) == {("no_steady_window", "new")}
    assert verdict.test.status == "limited"
    (reason,) = verdict.test.reasons
    assert said(reason) == "new: no steady window: only 3 minutes of steady load"


def test_agents_lost_one_by_one_leave_what_was_before_them() -> None:
    lost = bounded(*(LostAgent(at_s) for at_s in (2400.0, 3300.0, 4200.0)))
    assert lost.steady is not None
    assert lost.steady[0] == pytest.approx(bounded().steady[0], abs=10.0)  # type: ignore[index]
    verdict = judged(bounded(), lost)
    assert codes(verdict) == {("users_lost", "new")}
    assert verdict.test.valid_until_s == pytest.approx(2400.0, abs=15.0)


# ---- Made by hand ---------------------------------------------------------------------------------------------------


def flat(curve: Sequence[float] | np.ndarray, **more: Any) -> RunFacts:
    values = np.array(curve, dtype=float)
    load = pd.Series(values, index=np.arange(values.size) * 5.0)
    end = float(load.index[-1])
    own: dict[str, Any] = {
        "kind": "bounded",
        "load": load,
        "users": True,
        "stop": Stop(end, end, shutdown=False),
        "steady": (900.0, end),
        "target": 5000,
        "coverage": {"m": Covered(1.0)},
        **more,
    }
    return RunFacts(**own)


HELD = np.concatenate([np.linspace(0, 5000, 160), np.full(840, 5000.0)])


def test_a_load_that_sags_is_not_held() -> None:
    sags = HELD.copy()
    sags[400:520] = 5000 - 300 * np.sin(np.linspace(0, np.pi, 120))
    found = judged(flat(HELD), flat(sags))
    assert codes(found) == {("target_not_held", "new")}
    assert found.test.status == "limited"
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
    assert codes(found) == {("loads_differ", None)}
    assert found.test.status == "invalid"
    assert judged(flat(HELD, target=None), flat(0.97 * HELD, target=None)).test.status == "valid"


def without(recording: Recording, *slugs: str) -> Recording:
    return replace(recording, series=tuple(s for s in recording.series if s.metric not in slugs))


USERS, PROXY = "number-of-connected-devices", "goroutines-in-use"


def test_users_that_are_zero_all_through_are_no_valid_test() -> None:
    run = simulate_run(RunSettings(type="bounded", coordinator=Coordinator(max_users=5000)), 2).recording
    silent = tuple(replace(s, values=0.0 * s.values) if s.metric == USERS else s for s in run.series)
    found = judged(bounded(), facts(replace(run, series=silent), "bounded", 5000))
    assert codes(found) == {("no_users", "new")}
    assert found.test.status == "limited"
    assert said(found.test.reasons[0]) == "new: its connected users are zero from beginning to end"
    assert judged(bounded(), facts(without(run, USERS), "bounded", 5000)).runs["new"][0].status == "valid"


def test_a_bounded_run_that_falls_silent_before_its_stop_is_limited() -> None:
    run = simulate_run(RunSettings(type="bounded", coordinator=Coordinator(max_users=5000)), 2).recording
    end = run.window[0] + 4500.0
    series = tuple(
        replace(s, times=s.times[s.times <= end], values=s.values[s.times <= end])
        for s in run.series
        if s.role == "graph"
    )
    found = judged(bounded(), facts(replace(run, series=series), "bounded", 5000))
    assert codes(found) == {("silent_end", "new")}
    assert said(found.test.reasons[0]) == "new: nothing of its load was recorded in the last 16 min before its stop"


def test_a_window_that_begins_before_the_data_is_said_with_its_minutes() -> None:
    """The ramp of such a run begins late by as much, which a reader would take for the build's own."""
    run = simulate_run(RunSettings(type="bounded", coordinator=Coordinator(max_users=5000)), 2).recording
    start, end = run.window
    assert judged(bounded(), facts(replace(run, window=(start - 100.0, end)), "bounded", 5000)).test.reasons == ()
    found = judged(bounded(), facts(replace(run, window=(start - 720.0, end)), "bounded", 5000))
    assert codes(found) == {("silent_start", "new")}
    assert found.test.status == "limited"
    assert said(found.test.reasons[0]) == (
        "new: its window begins 12 min before its first number, and elapsed time counts from the window's start"
    )


def test_metrics_that_begin_after_others_are_no_window_that_begins_too_early() -> None:
    """Users come when the agents have started; the server is measured before."""
    run = simulate_run(RunSettings(type="bounded", coordinator=Coordinator(max_users=5000)), 2).recording
    late = run.window[0] + 720.0
    users = tuple(
        replace(s, times=s.times[s.times >= late], values=s.values[s.times >= late]) if s.metric == USERS else s
        for s in run.series
    )
    assert ("silent_start", "new") not in codes(judged(bounded(), facts(replace(run, series=users), "bounded", 5000)))


def test_a_restart_on_a_curve_that_stands_in_counts_no_users() -> None:
    run = unbounded(Restart(4000.0))
    assert judged(run, run).test.status == "limited"
    recording = without(simulate_run(RunSettings(injections=(Restart(4000.0),)), 2).recording, USERS)
    (reason,) = JudgeValidity()([facts(recording, "unbounded", None)], []).runs["base"][0].reasons
    assert reason.code == "restarted"
    assert "on the curve that stands in for them before" in said(reason)
    assert "users before" not in said(reason)


def test_what_follows_a_restart_in_the_last_30_minutes_is_not_compared() -> None:
    rule = Coordinator(max_users=20_000)
    runs = [
        simulate_run(RunSettings(coordinator=rule, injections=injections), 2).recording
        for injections in ((), (Restart(5500.0),))
    ]
    run = Run(recording="any.parquet")
    test = Test.model_validate({"name": "t", "type": "unbounded", "users": 20_000, "base": [run], "new": [run]})
    result = CompareTest(CATALOGUE)(test, {"base": runs[:1], "new": runs[1:]})
    window = result.runs.new[0].window
    assert window is not None
    assert window[1] == result.validity.valid_until_s == pytest.approx(5500.0, abs=10.0)
    assert not [metric.slug for metric in result.metrics if metric.status == "regression"]


def test_an_unbounded_test_without_a_load_has_no_steady_window() -> None:
    recording = without(simulate_run(RunSettings(), 2).recording, USERS, PROXY)
    own = facts(recording, "unbounded", None)
    assert own.steady is None
    assert {reason.code for reason in JudgeValidity()([own], []).test.reasons} == {"no_steady_window"}


def test_windows_may_not_overlap_on_one_server() -> None:
    first = flat(HELD, window=(1000.0, 6000.0), clock="http://a")
    assert codes(judged(first, flat(HELD, window=(5900.0, 9900.0), clock="http://a"))) == {("windows_overlap", "new")}
    assert judged(first, flat(HELD, window=(6000.0, 9900.0), clock="http://a")).test.status == "valid"
    assert judged(first, flat(HELD, window=(1000.0, 6000.0), clock="http://b")).test.status == "valid"
    assert judged(replace(first, clock=None), replace(first, clock=None)).test.status == "valid"
    twice = JudgeValidity()([first, first], [flat(HELD, window=(9000.0, 9900.0), clock="http://a")])
    assert [(r.code, r.side, r.run) for r in twice.test.reasons] == [("windows_overlap", "base", 1)]


def test_counters_that_started_again_are_said() -> None:
    found = judged(flat(HELD), flat(HELD, resets=2))
    assert [(r.code, r.numbers["times"]) for r in found.test.reasons] == [("counters_restarted", 2)]


@pytest.mark.parametrize(
    ("estimate", "reported", "status"),
    [
        (SupportedUsers(7000.0, None, None), 7030, "valid"),
        (SupportedUsers(7000.0, None, None), 7200, "invalid"),
        (SupportedUsers(None, 7000.0, "still_climbing", 0.5), 7400, "limited"),
        (SupportedUsers(None, 7000.0, "still_climbing", 0.5), 6700, "invalid"),
        (SupportedUsers(None, None, "no_users_curve"), 6700, "valid"),
        (SupportedUsers(None, None, "interrupted", 0.05), 6700, "valid"),
        (SupportedUsers(None, None, "may_be_cut", 0.15), 6700, "limited"),
    ],
)
def test_a_curve_is_held_against_the_reported_users(estimate: SupportedUsers, reported: int, status: str) -> None:
    run = flat(HELD, kind="unbounded", target=None, estimate=estimate, reported=reported)
    assert judged(flat(HELD, kind="unbounded", target=None), run).test.status == status


def test_a_missed_scrape_and_the_coordinator_itself_lose_nobody() -> None:
    curve = pd.Series(HELD, index=np.arange(HELD.size) * 5.0)
    curve.iloc[500] = 0.0
    curve.iloc[700] = np.nan
    assert FindFalls(fastest_fall=0.0)(curve.drop(curve.index[600:640]), 5000.0) == ()
    curve.iloc[500:506] = 0.0
    fall = FindFalls(fastest_fall=0.0)(curve, 5000.0)[0]
    assert (fall.kind, fall.at_s, fall.before, fall.after) == ("restart", 499 * 5.0, 5000.0, 0.0)
    hunting = 7000 + 60 * np.sin(np.arange(800) / 5.0)
    assert FindFalls()(pd.Series(hunting, index=np.arange(800) * 5.0), 4000.0) == ()
    bumps = np.concatenate([200 * np.abs(np.sin(np.arange(60) / 10.0)), hunting])
    assert FindFalls()(pd.Series(bumps, index=np.arange(bumps.size) * 5.0), 4000.0) == ()


def test_goroutines_may_fall_but_not_to_nothing() -> None:
    spikes = np.full(1000, 15_000.0)
    spikes[300:400] = 22_000.0
    spikes[500:520] = 7000.0
    run = flat(spikes, users=False)
    assert judged(run, run).test.status == "valid"
    spikes[500:520] = 300.0
    assert codes(judged(run, flat(spikes, users=False))) == {("restarted", "new")}


def test_every_reason_has_words() -> None:
    names = (
        "at_s before after back_s times reached target below users held base new ceiling slope_users_per_s covered "
        "metrics others seconds other_seconds reported curve change"
    )
    numbers = dict.fromkeys(names.split(" "), 120.0)
    for code in get_args(Code):
        words = said(Reason(code, "limited", numbers, "rps", "new", 1), several=True)
        assert words.startswith("new run 2: ")
        assert not words.endswith(".")
        assert "{" not in words


def test_words_say_the_numbers() -> None:
    found = judged(bounded(seed=1), bounded(LostAgent(4500.0)))
    assert said(found.test.reasons[0]) == (
        "new: users were lost at once at 75 min: 5,000 users before, 4,545 after (9.1 % lost, one "
        "user in 11); what lies before is fit to be judged"
    )


# ---- The published tests --------------------------------------------------------------------------------------------


def published(real: Path, release: str, test: str) -> TestVerdict:
    """The verdict on a published test, with what its report and its configuration state."""
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
        found.append(facts(recording, kind, int(float(limit)), run))  # type: ignore[arg-type]
    return judged(*found)


def test_v8_0_is_invalid_since_its_curves_belong_to_other_runs(real: Path) -> None:
    mysql = published(real, "v8.0", "mysql_unbounded")
    assert mysql.test.status == "invalid"
    assert codes(mysql) == {("other_runs", "base"), ("other_runs", "new")}
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


@pytest.mark.parametrize(
    ("release", "test"),
    [("v11.1", "postgresql_bounded"), ("v11.1", "postgresql_unbounded"), ("v9.6", "mysql_unbounded")],
)
def test_seeds_are_valid(real: Path, release: str, test: str) -> None:
    assert published(real, release, test).test.status == "valid"


def test_identical_runs_are_valid(real: Path) -> None:
    """Two users' curves, two of the smallest machine with its goroutines, and two bounded ones."""
    for pair, kind in (
        (("v1-1.1-1", "v1-1.1-2"), "unbounded"),
        (("v1-1.3-1", "v1-1.3-2"), "unbounded"),
        (("v2-L110-1", "v2-L110-2"), "unbounded"),
        (("v1-0.1-1", "v1-0.1-2"), "bounded"),
    ):
        runs = [
            facts(record(Run(report=str(real / f"ceiling/{run}.out.gz")), Source(kind="ltctl"), CATALOGUE), kind, None)  # type: ignore[arg-type]
            for run in pair
        ]
        found = judged(*runs)
        assert (found.test.status, found.test.reasons) == ("valid", ())


@pytest.mark.parametrize("seed", range(20))
def test_any_curve_is_judged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for size in (1, 2, 3, 40, 900):
        values = np.abs(rng.normal(0, 3000, size)) if seed % 2 else np.minimum(np.arange(size) * 20.0, 5000)
        values[rng.random(size) < 0.1] = rng.choice([np.nan, np.inf, 0.0])
        index = np.cumsum(rng.choice([5.0, 5.0, 400.0], size))
        load = pd.Series(values, index=index)
        run = flat(HELD, load=load, stop=Stop(float(index[-1]), float(index[-1]), shutdown=False))
        for found in (judged(run, run), judged(replace(run, kind="unbounded"), run), judged(flat(HELD), run)):
            assert found.test.status in ("valid", "limited", "invalid")
            assert bool(found.test.reasons) == (found.test.status != "valid")
            assert all(said(reason) for reason in found.test.reasons)


def test_a_curve_below_zero_is_no_load_and_no_fault() -> None:
    rng = np.random.default_rng(9)
    for size in (3, 12, 400):
        for load in (np.full(size, -5.0), -np.linspace(0.0, 5000.0, size), rng.normal(0.0, 1000.0, size)):
            curve = pd.Series(load, np.arange(size) * 5.0)
            for fall in FindFalls()(curve, math.inf):
                assert fall.before > 0
            assert FindFalls()(-curve.abs(), math.inf) == ()


@pytest.mark.parametrize("step_s", [5.0, 15.0, 30.0, 60.0])
def test_users_are_lost_whatever_the_waves_did_just_before(step_s: float) -> None:
    """What the coordinator takes away by itself does not lead up to a loss: half of all losses fall into a fall."""
    elapsed = np.arange(0.0, 5000.0, step_s)
    users = np.minimum(4.0 * elapsed, 6000.0) - 60.0 * (1.0 + np.sin(2.0 * np.pi * elapsed / 240.0))
    for at_s in range(3000, 3480, 30):
        curve = pd.Series(np.where(elapsed >= at_s, 0.85, 1.0) * np.maximum(users, 0.0), elapsed)
        (fall,) = FindFalls()(curve, math.inf)
        assert fall.at_s == pytest.approx(at_s, abs=step_s + 5.0)
        assert fall.before > 5800


def test_a_restart_is_not_also_a_climb() -> None:
    """Users who come back after a restart at the start of the last 30 minutes are no slope of the equilibrium."""
    whole = unbounded(seed=1)
    assert whole.steady is not None
    assert whole.load is not None
    since = whole.load.index.to_numpy() - whole.steady[0] - 30.0
    back = np.where(since < 0.0, 1.0, np.clip((since - 60.0) / 60.0, 0.0, 1.0))
    load = whole.load * back
    estimate = EstimateSupportedUsers()(load, whole.stop, may_be_cut=False)
    assert estimate.slope_users_per_s is not None
    assert estimate.slope_users_per_s > 0.4
    found = judged(unbounded(seed=2), replace(whole, load=load, estimate=estimate))
    assert codes(found) == {("restarted", "new")}
