"""Each analysis against curves whose truth is in the call, and against published figures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildcompare import findings
from buildcompare.analysis.labels import CompareLabels
from buildcompare.analysis.levels import MeasureLevel, delta_percent, mean_of_runs
from buildcompare.analysis.ramp_up import TimeToUsers
from buildcompare.analysis.steady_state import FindSteadyState
from buildcompare.analysis.stop import FindStop, Stop
from buildcompare.analysis.supported_users import EstimateSupportedUsers
from buildcompare.compare import CompareTest
from buildcompare.explanations import explain
from buildcompare.metrics import read_catalogue
from buildcompare.params import Run, Source, Test
from buildcompare.recording import LabelSummary, Recording, Series
from buildcompare.results import TestResult
from buildcompare.sources import record
from support import test_folders, users_curve

CATALOGUE = read_catalogue("mattermost")


def curve(values: Sequence[float] | np.ndarray, step_s: float = 5.0) -> pd.Series:
    values = np.asarray(values, dtype=float)
    return pd.Series(values, index=pd.Index(np.arange(values.size) * step_s, name="elapsed_s"))


# ---- The stop -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 3, 6, 12, 30])
def test_a_shutdown_is_found_where_it_starts(samples: int) -> None:
    stop = FindStop()(curve(users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=samples)))
    assert stop == Stop(at_s=5400.0, end_s=5400.0 + 5 * samples, shutdown=True)


@pytest.mark.parametrize("lost_per_s", [0.2, 0.4, 0.6])
@pytest.mark.parametrize("noise", [0.0, 8.0])
def test_a_slow_decline_is_no_part_of_the_shutdown(lost_per_s: float, noise: float) -> None:
    elapsed = np.arange(0.0, 9000.0, 5.0)
    users = np.minimum(4.0 * elapsed, 5000.0 - lost_per_s * (elapsed - 1250.0))
    users += np.random.default_rng(1).normal(0.0, noise, users.size) - 30.0 * np.maximum(elapsed - 8820.0, 0.0)
    stop = FindStop()(pd.Series(np.maximum(users, 0.0), index=elapsed))
    assert stop is not None
    assert stop.shutdown
    assert stop.at_s == pytest.approx(8820.0, abs=5.0)


def test_a_slow_start_of_the_fall_belongs_to_the_shutdown() -> None:
    values = np.concatenate([np.full(1000, 10_000.0), [9680.0, 9212.0, 5000.0]])
    stop = FindStop()(curve(values))
    assert stop is not None
    assert stop.at_s == 999 * 5.0


def test_zeros_long_after_the_stop_are_shutdown_too() -> None:
    values = np.concatenate([users_curve(150, ramp_s=600, hold_s=1200), np.zeros(110)])
    stop = FindStop()(curve(values))
    assert stop is not None
    assert (stop.at_s, stop.shutdown) == (1800.0, True)


def test_what_the_coordinator_does_is_no_shutdown() -> None:
    falling = np.concatenate([users_curve(7000, ramp_s=3000, hold_s=2400), 7000 - 20.0 * np.arange(1, 10)])
    stop = FindStop()(curve(falling))
    assert stop is not None
    assert (stop.at_s, stop.shutdown) == ((falling.size - 1) * 5.0, False)


def test_a_lost_agent_is_no_shutdown() -> None:
    """v9.2: 5003 users, 4546 after one of eleven agents was lost at 75 of 90 minutes."""
    values = np.concatenate([np.full(900, 5003.0), np.full(180, 4546.0)])
    stop = FindStop()(curve(values))
    assert stop is not None
    assert (stop.at_s, stop.shutdown) == (1079 * 5.0, False)


def test_no_numbers_have_no_stop() -> None:
    assert FindStop()(curve([math.nan] * 10)) is None
    zeros = FindStop()(curve([0.0] * 10))
    assert zeros == Stop(45.0, 45.0, shutdown=False)


@pytest.mark.parametrize("values", [[-100.0] * 15, [-3.0, -2.0, 1.0, -5.0], [math.inf, -7.0, math.nan, -6.0]])
def test_a_curve_mostly_below_zero_shows_no_shutdown(values: list[float]) -> None:
    last = 5.0 * max(i for i, value in enumerate(values) if math.isfinite(value))
    assert FindStop()(curve(values)) == Stop(last, last, shutdown=False)


@given(
    st.lists(
        st.one_of(st.floats(), st.floats(-10, 10), st.sampled_from([0.0, -1.0, 100.0, 1e308, -1e308])), max_size=40
    ),
    st.sampled_from([4.0, None]),
)
def test_any_curve_has_a_stop_within_it_or_none(values: list[float], fall: float | None) -> None:
    stop = FindStop(fastest_fall=fall)(curve(values))
    finite = [5.0 * i for i, value in enumerate(values) if math.isfinite(value)]
    assert (stop is None) == (not finite)
    if stop is not None:
        assert stop.at_s in finite
        assert stop.at_s <= stop.end_s == finite[-1]
        assert stop.shutdown or stop.at_s == stop.end_s


# ---- The steady window ----------------------------------------------------------------------------------------------


def test_bounded_is_steady_from_the_plateau_to_the_stop() -> None:
    load = curve(users_curve(5000, ramp_s=1200, hold_s=4200, shutdown=4))
    stop = FindStop()(load)
    assert stop is not None
    steady = FindSteadyState().bounded(load, stop)
    assert steady.method == "target_reached"
    assert steady.window == (pytest.approx(0.98 * 1200 + 60, abs=5), 5400.0)


@pytest.mark.parametrize("lost", [0.1, 0.4, 0.9])
def test_what_is_lost_late_does_not_move_the_beginning_of_a_plateau(lost: float) -> None:
    values = users_curve(5000, ramp_s=1200, hold_s=4200)
    for at in (480, 660, 840):  # samples: the median of the second half lies far below the plateau
        values[at:] *= 1.0 - lost / 3.0
    load = curve(values)
    steady = FindSteadyState().bounded(load, Stop(5400.0, 5400.0, shutdown=False))
    assert steady.window == (pytest.approx(0.98 * 1200 + 60, abs=5), 5400.0)


def test_a_stand_in_that_rises_for_some_minutes_has_its_plateau_before() -> None:
    values = users_curve(15_000, ramp_s=1200, hold_s=4200)
    values[600:700] *= 1.3
    steady = FindSteadyState().bounded(curve(values), Stop(5400.0, 5400.0, shutdown=False), proxy=True)
    assert steady.window == (pytest.approx(0.98 * 1200 + 60, abs=5), 5400.0)


@pytest.mark.parametrize("hold_s", [0.0, 120.0, 260.0])
def test_a_run_that_ends_as_it_arrives_has_no_steady_window(hold_s: float) -> None:
    load = curve(users_curve(5000, ramp_s=1200, hold_s=hold_s))
    steady = FindSteadyState().bounded(load, Stop(1200.0 + hold_s, 1200.0 + hold_s, shutdown=False))
    assert steady.window is None
    assert steady.reason is not None
    assert "minutes of steady load" in steady.reason


def test_unbounded_is_judged_over_the_last_30_minutes() -> None:
    steady = FindSteadyState().unbounded(Stop(6000.0, 6030.0, shutdown=True), 0.0)
    assert steady.window == (4200.0, 6000.0)
    short = FindSteadyState().unbounded(Stop(200.0, 200.0, shutdown=False), 0.0)
    assert short.window is None
    assert short.reason is not None


def test_mser_finds_the_end_of_a_ramp() -> None:
    """White (1997): the cut that minimises the standard error; 1080 samples after a ramp of 360."""
    rng = np.random.default_rng(11)
    noise = np.zeros(1440)
    for i in range(1, noise.size):
        noise[i] = 0.9 * noise[i - 1] + rng.normal(0, math.sqrt(1 - 0.81))
    level = 20 * np.minimum(np.arange(1440) / 360, 1.0)
    steady = FindSteadyState().without_load(curve(level + noise))
    assert steady.window is not None
    assert steady.window[0] == pytest.approx(360 * 5, abs=300)
    assert FindSteadyState().without_load(curve(np.arange(1440.0))).window is None
    assert FindSteadyState().without_load(curve([1.0] * 20)).window is None


# ---- The supported users --------------------------------------------------------------------------------------------


def estimate(values: np.ndarray, *, cut: bool = False) -> Any:
    users = curve(values)
    return EstimateSupportedUsers()(users, FindStop()(users), may_be_cut=cut)


def test_supported_users_are_the_mean_of_the_last_30_minutes() -> None:
    assert estimate(users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=9)).estimated == pytest.approx(7000)
    climbing = estimate(np.arange(0.0, 5400, 5.0))
    assert (climbing.estimated, climbing.reason) == (None, "still_climbing")
    assert climbing.at_least == pytest.approx(5395 - 900, abs=5)
    assert climbing.slope_users_per_s == pytest.approx(1.0)


def test_a_curve_that_may_be_cut_is_not_estimated() -> None:
    flat = estimate(users_curve(7000, ramp_s=3000, hold_s=2400), cut=True)
    assert (flat.estimated, flat.at_least, flat.reason) == (None, None, "may_be_cut")
    slow = np.concatenate([users_curve(7000, ramp_s=3000, hold_s=600), 7000 + 0.25 * 5 * np.arange(400)])
    assert estimate(slow, cut=True).reason == "still_climbing"
    assert estimate(slow, cut=False).estimated is not None
    faster = np.concatenate([users_curve(7000, ramp_s=3000, hold_s=600), 7000 + 0.45 * 5 * np.arange(400)])
    assert estimate(faster, cut=False).reason == "still_climbing"
    assert estimate(np.concatenate([faster, [4000.0, 100.0]]), cut=False).reason == "still_climbing"
    assert estimate(slow[::-1] + 1000).reason in ("still_falling", "interrupted")


def test_a_run_that_was_disturbed_at_the_end_is_not_estimated() -> None:
    falling = np.concatenate([users_curve(7000, ramp_s=3000, hold_s=600), 7000 - 0.45 * 5 * np.arange(400)])
    assert estimate(falling).reason == "still_falling"
    away = users_curve(7000, ramp_s=3000, hold_s=2400)
    away[-200:-160] = 0.0
    assert estimate(away).reason == "interrupted"
    silent = curve(np.concatenate([users_curve(7000, ramp_s=3000, hold_s=2400), np.full(600, np.nan)]))
    stop = FindStop()(silent)
    assert EstimateSupportedUsers()(silent, stop, may_be_cut=False, known_end_s=8400.0).reason == "gaps"


def test_users_of_several_instances_are_summed() -> None:
    users = users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=9)
    whole = recording(number_of_connected_devices=users)
    (one,) = whole.series
    halves = tuple(replace(one, values=users / 2, labels={"instance": name}) for name in "ab")
    run = Run(recording="x")
    test = Test(name="x", type="unbounded", base=[run], new=[run])
    result = CompareTest(CATALOGUE)(test, {"base": [whole], "new": [replace(whole, series=halves)]})
    assert result.supported_users is not None
    assert result.supported_users.estimated.new == result.supported_users.estimated.base


def test_a_run_without_an_estimate_is_left_out_and_said_so() -> None:
    good = recording(number_of_connected_devices=users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=9))
    climbing = recording(number_of_connected_devices=np.arange(0.0, 5400, 5.0))
    run = Run(recording="x", supported_users=6900)
    silent = Run(recording="x")
    test = Test(name="x", type="unbounded", base=[run, silent], new=[run])
    result = CompareTest(CATALOGUE)(test, {"base": [good, climbing], "new": [good]})
    users = result.supported_users
    assert users is not None
    assert (users.reported.base, users.reported.new) == (None, 6900)
    assert users.estimated.base == pytest.approx(7000)
    assert (users.at_least.base, users.reason.base) == (None, None)
    assert "run 2 of v1 is left out" in kinds(result)["run_left_out"]


def test_a_window_of_the_analyst_says_nothing_about_the_stop(real: Path) -> None:
    """A cut curve stays a cut curve when its own first and last sample are named."""
    folder = real / "comparisons/v10.5/postgresql_unbounded"
    runs: dict[str, list[Run]] = {"base": [Run(recording=str(folder / "base.csv.gz"))]}
    named = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T02:10:40Z"}
    runs["new"] = [Run.model_validate({"recording": str(folder / "new.csv.gz"), **named})]
    test = Test.model_validate({"name": "x", "type": "unbounded", **runs})
    recordings = {s: [record(run, Source(kind="recorded"), CATALOGUE) for run in runs[s]] for s in runs}
    users = CompareTest(CATALOGUE)(test, recordings).supported_users  # type: ignore[arg-type]
    assert users is not None
    assert (users.estimated.new, users.reason.new) == (None, "still_climbing")


def test_too_little_is_not_estimated() -> None:
    assert estimate(users_curve(500, ramp_s=300, hold_s=900)).reason == "too_short"
    holes = users_curve(500, ramp_s=300, hold_s=2400)
    holes[-200:-50] = np.nan
    assert estimate(holes).reason == "gaps"
    assert EstimateSupportedUsers()(None, None, may_be_cut=False).reason == "no_users_curve"


def published(real: Path) -> pd.DataFrame:
    return pd.read_csv(real / "comparisons/history.csv")


def reported(history: pd.DataFrame, folder: Path, side: str) -> float:
    release, run = folder.parent.name, None
    if "-run" in release:
        release, run = release.rsplit("-", 1)
    rows = history[(history["release"] == release) & (history["test_type"] == "unbounded")]
    rows = rows[rows["db"] == folder.name.split("_")[0]]
    rows = rows if run is None else rows[rows["run"] == run]
    assert len(rows) == 1
    return float(rows[f"su_{side}"].iloc[0])


def compared(folder: Path) -> TestResult:
    db, kind = folder.name.split("_")
    runs = {s: [Run(recording=str(folder / f"{s}.csv.gz"))] for s in ("base", "new")}
    test = Test.model_validate({"name": folder.name, "type": kind, "db_engine": db, **runs})
    recordings = {s: [record(run, Source(kind="recorded"), CATALOGUE) for run in runs[s]] for s in runs}
    return CompareTest(CATALOGUE)(test, recordings)  # type: ignore[arg-type]


def test_every_whole_published_curve_gives_the_published_figure(real: Path) -> None:
    """v8.0 is left out: its graphs belong to other runs than its table, its makers say so."""
    history = published(real)
    errors, cut = [], []
    for folder in test_folders(real):
        if not folder.name.endswith("unbounded") or folder.parent.name == "v8.0":
            continue
        users = compared(folder).supported_users
        assert users is not None
        for side in ("base", "new"):
            value, truth = getattr(users.estimated, side), reported(history, folder, side)
            if value is not None:
                errors.append(100 * (value / truth - 1))
                continue
            assert side == "new"
            cut.append(folder)
            at_least = getattr(users.at_least, side)
            assert getattr(users.reason, side) in ("may_be_cut", "still_climbing")
            assert at_least is None or at_least < 1.005 * truth
    assert len(errors) == 45  # every whole curve, no other
    assert max(map(abs, errors)) <= 0.5
    assert np.median(np.abs(errors)) <= 0.25
    assert len(cut) == 19


@pytest.mark.parametrize(
    ("run", "truth"),
    [("v1-1.3-1", 25000), ("v1-1.3-2", 25000), ("v1-1.3-3", 25000), ("v1-2.1.b-1", 70000)],
)
def test_ceiling_runs_give_the_published_figure(real: Path, run: str, truth: int) -> None:
    recording = record(Run(report=str(real / f"ceiling/{run}.out.gz")), Source(kind="ltctl"), CATALOGUE)
    series = recording.find("number-of-connected-devices")
    assert series is not None
    users = recording.curve(series)
    found = EstimateSupportedUsers()(users, FindStop()(users), may_be_cut=False).estimated
    assert found == pytest.approx(truth, rel=0.015)


def test_without_a_users_curve_the_window_follows_the_goroutines(real: Path) -> None:
    run = Run(report=str(real / "ceiling/v2-XL220-1.out.gz"))
    recording = record(run, Source(kind="ltctl"), CATALOGUE)
    test = Test(name="x", type="unbounded", base=[run], new=[run])
    result = CompareTest(CATALOGUE)(test, {"base": [recording], "new": [recording]})
    assert result.supported_users is not None
    assert result.supported_users.reason.base == "no_users_curve"
    assert result.supported_users.status == "not_comparable"
    assert result.runs.base[0].load_curve == "goroutines-in-use"
    assert result.runs.base[0].window_method == "last_30_minutes"


# ---- Levels and labels ----------------------------------------------------------------------------------------------


def test_a_level_leaves_out_what_is_no_number_and_counts_it() -> None:
    values = np.array([1.0, math.nan, 3.0, math.inf, 5.0])
    level = MeasureLevel()(curve(values), (-5.0, 20.0))
    assert (level.value, level.mean, level.samples, level.missing) == (3.0, 3.0, 3, 2)
    assert MeasureLevel()(curve(values * math.nan), (0.0, 20.0)).value is None


def test_the_level_of_times_is_their_geometric_mean() -> None:
    level = MeasureLevel(geometric=True)(curve(np.array([0.01, 0.0, 0.04, 0.02])), (-5.0, 15.0))
    assert level.value == pytest.approx(0.02)
    assert level.mean == pytest.approx(0.07 / 3)
    assert (level.samples, level.missing) == (3, 1)  # a time of zero was not measured


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_a_change_is_of_unrounded_values(base: float, new: float) -> None:
    delta = delta_percent(base, new)
    assert delta is not None
    assert base * (1 + delta / 100) == pytest.approx(new, rel=1e-6)


def test_a_change_needs_two_values() -> None:
    assert delta_percent(None, 1.0) is None
    assert delta_percent(1.0, None) is None
    assert delta_percent(0.0, 1.0) is None
    assert delta_percent(0.0100, 0.0115) == pytest.approx(15.0)  # the peer prints +20 %
    assert mean_of_runs([1.0, None, 3.0]) == 2.0
    assert mean_of_runs([None]) is None


def labels_of(**values: float) -> list[LabelSummary]:
    return [LabelSummary("api", *key.split("__"), value) for key, value in values.items()]


def test_labels_are_paired_by_name_and_none_is_dropped() -> None:
    base = labels_of(gone__avg=0.5, kept__avg=0.01, kept__p99=3.0, never__avg=math.nan, zero__avg=0.0, top__p99=10.0)
    new = labels_of(came__avg=0.7, kept__avg=0.0115, kept__p99=10.0, never__avg=1.0, zero__avg=0.001, top__p99=10.0)
    rows = {(d.label, d.stat): d for d in CompareLabels(CATALOGUE)([base], [new])}
    assert len(rows) == 7
    assert (rows["gone", "avg"].only_in, rows["gone", "avg"].delta_percent) == ("base", None)
    assert (rows["came", "avg"].only_in, rows["came", "avg"].new) == ("new", 0.7)
    assert rows["kept", "avg"].delta_percent == pytest.approx(15.0)
    assert rows["kept", "p99"].at_least == (False, True)
    assert rows["kept", "p99"].delta_percent is None
    assert rows["top", "p99"].at_least == (True, True)
    assert rows["never", "avg"].reason == "never called in the base build"
    assert rows["zero", "avg"].delta_percent is None
    assert not [d for d in rows.values() if d.delta_percent == -100.0]


def test_an_average_beyond_the_last_bucket_is_a_value() -> None:
    """Averages come from sums, not from the histogram: 30 s is 30 s."""
    row = CompareLabels(CATALOGUE)([labels_of(slow__avg=30.0)], [labels_of(slow__avg=33.0)])[0]
    assert row.at_least == (False, False)
    assert row.delta_percent == pytest.approx(10.0)


def test_repeated_runs_are_averaged() -> None:
    row = CompareLabels(CATALOGUE)([labels_of(a__avg=1.0), labels_of(a__avg=3.0)], [labels_of(a__avg=4.0)])[0]
    assert (row.base, row.new, row.delta_percent) == (2.0, 4.0, pytest.approx(100.0))


def test_the_time_to_users() -> None:
    users = curve(users_curve(1000, ramp_s=1000, hold_s=100))
    marks = TimeToUsers().marks([1000.0, 1100.0])
    assert marks == [200, 400, 600, 800, 1000]
    assert TimeToUsers()(users, marks)[400] == 400.0
    assert TimeToUsers()(users, [5000]) == {5000: None}
    assert TimeToUsers()(curve([500.0, 600.0]), [100]) == {100: None}  # the window opened in mid-ramp
    assert TimeToUsers().marks([]) == []
    gone = users.copy()
    gone[(gone.index > 350) & (gone.index < 650)] = math.nan  # nobody saw when 400 and 600 were reached
    assert TimeToUsers()(gone, marks) == {200: 200.0, 400: None, 600: None, 800: 800.0, 1000: 1000.0}
    assert TimeToUsers()(gone.dropna(), marks) == TimeToUsers()(gone, marks)


# ---- One test -------------------------------------------------------------------------------------------------------


def recording(**metrics: np.ndarray) -> Recording:
    series = []
    for name, values in metrics.items():
        metric = CATALOGUE.find(name.replace("_", "-"))
        series.append(Series(metric.slug, metric.name, metric.unit, np.arange(values.size) * 5.0, values))
    return Recording(tuple(series), (0.0, max(s.times[-1] for s in series)), stop_known=True)


def test_missing_metrics_nan_and_gaps_are_said() -> None:
    users = users_curve(1000, ramp_s=600, hold_s=3000)
    base = recording(number_of_connected_devices=users, rps=np.full(users.size, 5.0), my_own=np.ones(users.size))
    new = recording(number_of_connected_devices=users, rps=np.full(users.size, math.nan))
    run = Run(recording="x")
    test = Test(name="x", type="bounded", base=[run], new=[run])
    result = CompareTest(CATALOGUE)(test, {"base": [base], "new": [new]})
    metrics = {metric.slug: metric for metric in result.metrics}
    assert metrics["rps"].reason == "no number in the steady window of the new build"
    assert metrics["my-own"].reason == "not recorded in the new build"
    assert metrics["my-own"].better == "context"
    assert {metric.status for metric in result.metrics} == {"inconclusive", "not_comparable"}
    assert "avg-api-times" in result.runs.base[0].missing
    coverage = {c.slug: c for c in result.runs.new[0].coverage}
    assert (coverage["rps"].present, coverage["rps"].finite) == (users.size, 0)
    assert result.verdict == "inconclusive"


def test_a_window_that_opens_in_mid_ramp_does_not_know_the_time_to_users() -> None:
    users = users_curve(6000, ramp_s=3000, hold_s=3000)
    base, late = (recording(number_of_connected_devices=u, rps=u / 10.0) for u in (users, users[240:]))
    run = Run(recording="x")
    test = Test(name="x", type="unbounded", base=[run], new=[run])
    result = CompareTest(CATALOGUE)(test, {"base": [base], "new": [late]})
    assert result.ramp_up.base.time_to["4000"] == 2000.0
    assert set(result.ramp_up.new.time_to.values()) == {None}
    assert not [f for f in findings.find([result], ("a", "b")) if f.kind == "time_to_users"]


@pytest.mark.parametrize("factor", [1e-18, 1e18])
def test_a_metric_that_all_but_vanishes_breaks_no_report(factor: float) -> None:
    users = users_curve(5000, ramp_s=600, hold_s=3000)
    heap = 1e9 * np.exp(0.01 * np.random.default_rng(1).normal(size=users.size))
    both = [recording(number_of_connected_devices=users, heap_in_use=heap * k) for k in (1.0, factor)]
    run = Run(recording="x")
    test = Test(name="x", type="bounded", base=[run], new=[run])
    result = CompareTest(CATALOGUE)(test, {"base": both[:1], "new": both[1:]})
    row = next(metric for metric in result.metrics if metric.slug == "heap-in-use")
    assert row.delta_percent == pytest.approx(100.0 * (factor - 1.0))
    assert any("Heap In Use" in f.text for f in findings.find([result], ("a", "b")))
    assert explain(row)


def test_runs_of_one_build_are_averaged() -> None:
    users = users_curve(1000, ramp_s=600, hold_s=3000)
    runs = [recording(number_of_connected_devices=users, rps=np.full(users.size, v)) for v in (4.0, 6.0, 11.0)]
    run = Run(recording="x")
    test = Test(name="x", type="bounded", base=[run, run], new=[run])
    result = CompareTest(CATALOGUE)(test, {"base": runs[:2], "new": runs[2:]})
    rps = next(metric for metric in result.metrics if metric.slug == "rps")
    assert (rps.base, rps.new, rps.delta_percent) == (5.0, 11.0, pytest.approx(120.0))
    assert len(result.runs.base) == 2


# ---- Findings -------------------------------------------------------------------------------------------------------


def kinds(result: TestResult) -> dict[str, str]:
    return {finding.kind: finding.text for finding in findings.find([result], ("v1", "v2"))}


def test_curve_and_report_of_different_runs_are_noticed(real: Path) -> None:
    """v8.0: its makers say that graphs and table belong to different runs."""
    folder = real / "comparisons/v8.0/mysql_unbounded"
    run = {s: [{"recording": str(folder / f"{s}.csv.gz"), "supported_users": n}] for s, n in V8.items()}
    test = Test.model_validate({"name": "mysql_unbounded", "type": "unbounded", "db_engine": "mysql", **run})
    recordings = {s: [record(r, Source(kind="recorded"), CATALOGUE) for r in test.runs(s)] for s in V8}  # type: ignore[arg-type]
    text = kinds(CompareTest(CATALOGUE)(test, recordings))["reported_against_estimated"]  # type: ignore[arg-type]
    assert re.search(r"9,3\d\d supported users, the load-test tool reported 19,913 \(−52\.\d %\)", text)


V8 = {"base": 15459, "new": 19913}


def test_what_is_missing_is_said_with_its_size() -> None:
    users = users_curve(1000, ramp_s=600, hold_s=3000)
    holes = np.ones(users.size)
    holes[300:400] = np.nan
    base = recording(number_of_connected_devices=users, rps=holes)
    new = recording(number_of_connected_devices=users * 0, rps=np.full(users.size, math.nan))
    run = Run(recording="x")
    test = Test(name="mysql_bounded", type="bounded", db_engine="mysql", base=[run], new=[run])
    said = kinds(CompareTest(CATALOGUE)(test, {"base": [base], "new": [new]}))
    assert said["empty_metrics"] == "Bounded MySQL: v2 has no number at all in rps."
    gaps = "Bounded MySQL: v1 has gaps in 1 metric, at worst rps with 86 % of its samples (longest gap 8.4 min)."
    assert said["gaps"] == gaps
    assert said["metrics_nowhere"].startswith("Bounded MySQL: no run has 8 metrics of the catalogue: avg-api-times,")
    whole = recording(number_of_connected_devices=users, rps=holes, heap_in_use=holes)
    one = kinds(CompareTest(CATALOGUE)(test, {"base": [whole], "new": [base]}))
    assert one["missing_metrics"] == "Bounded MySQL: v2 lacks 1 metric: heap-in-use."
    short = recording(number_of_connected_devices=users[100:160], rps=holes[:60])
    said = kinds(CompareTest(CATALOGUE)(test, {"base": [base], "new": [short]}))
    assert said["validity"].startswith("Bounded MySQL is")
    assert "v2: no steady window: only 2 minutes of steady load" in said["validity"]
