"""Events against curves whose truth is in the call, and the known events of published load tests."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

import buildcompare as bc
from buildcompare.findings import load
from buildcompare.metrics.compare_events import PlacedEvent, match_events
from buildcompare.results import Event, Results
from quiet import quiet

WINDOW = (600.0, 5400.0)
LEVEL = 200.0


def metric(seed: int = 0, *, sd: float = 0.02, memory_s: float = 60.0, step_s: float = 5.0) -> pd.Series:
    elapsed = np.arange(0.0, 5400.1, step_s)
    phi = math.exp(-step_s / memory_s)
    shocks = np.random.default_rng(seed).standard_normal(elapsed.size + 200) * math.sqrt(1 - phi**2)
    noise = lfilter([1.0], [1.0, -phi], shocks)[200:]
    return pd.Series(LEVEL * (1 + sd * noise), index=pd.Index(elapsed, name="elapsed_s"))


def between(curve: pd.Series, start: float, end: float, percent: float) -> pd.Series:
    inside = (curve.index > start) & (curve.index <= end)
    return curve * np.where(inside, 1 + percent / 100, 1.0)


def only(run: bc.RunEvents) -> Any:
    assert len(run.events) == 1, run.events
    return run.events[0]


@pytest.mark.parametrize("percent", [-20.0, 15.0])
@pytest.mark.parametrize("step_s", [5.0, 30.0, 60.0])
def test_a_step_is_one_level_event(percent: float, step_s: float) -> None:
    event = only(bc.find_events(between(metric(1, step_s=step_s), 3000.0, 9999.0, percent), WINDOW))
    assert (event.kind, event.at_s) == ("level", pytest.approx(3000.0, abs=60.0))
    assert event.span_s[0] <= 3000.0 <= event.span_s[1] + 60.0
    assert event.size_percent == pytest.approx(percent, abs=2.0)
    assert event.ci[0] < LEVEL * percent / 100 < event.ci[1]
    assert event.before == pytest.approx(LEVEL, rel=0.02)
    assert event.at_least_percent() == pytest.approx(abs(percent), abs=4.0)
    assert event.at_least_percent(3.0) < event.at_least_percent() < abs(event.size_percent or 0.0)


@pytest.mark.parametrize(("percent", "kind"), [(25.0, "spike"), (-25.0, "drop")])
@pytest.mark.parametrize("minutes", [2, 5, 15])
def test_what_comes_back_is_an_excursion(percent: float, kind: str, minutes: int) -> None:
    end = 2400.0 + 60.0 * minutes
    event = only(bc.find_events(between(metric(2), 2400.0, end, percent), WINDOW))
    assert (event.kind, event.span_s) == (kind, pytest.approx((2400.0, end), abs=61.0))
    assert event.span_s[0] <= event.at_s <= event.span_s[1]
    assert event.size_percent == pytest.approx(percent, abs=5.0)
    assert abs(event.extreme - event.before) >= abs(event.size)


@pytest.mark.parametrize(("length_s", "percent"), [(180.0, -100.0), (60.0, 400.0)])
@pytest.mark.parametrize("start", [2400.0, 2415.0, 2430.0, 2445.0])
def test_the_size_is_the_same_wherever_in_a_minute_it_begins(start: float, length_s: float, percent: float) -> None:
    event = only(bc.find_events(between(metric(2), start, start + length_s, percent), WINDOW))
    assert event.size_percent == pytest.approx(percent, rel=0.05)


def test_an_excursion_that_dies_away_slowly_is_one_event() -> None:
    curve = metric(3, sd=0.002)
    since = curve.index.to_numpy() - 1900.0
    curve = curve * (1 + 0.11 * np.exp(-np.maximum(since, 0) / 300) * np.clip(since / 90 + 1, 0, 1))
    event = only(bc.find_events(curve, WINDOW, smallest_percent=2.0))
    assert (event.kind, event.at_s) == ("spike", pytest.approx(1900.0, abs=30.0))
    assert event.extreme == pytest.approx(1.11 * LEVEL, rel=0.01)
    assert event.span_s[0] == pytest.approx(1810.0, abs=61.0)


def test_what_begins_at_the_very_end_or_what_the_ramp_leaves_behind_is_no_level() -> None:
    late = only(bc.find_events(between(metric(5), 5220.0, 9999.0, 30.0), WINDOW))
    assert (late.kind, late.span_s[1]) == ("spike", 5400.0)
    assert only(bc.find_events(between(metric(5), 5000.0, 9999.0, 30.0), WINDOW)).kind == "level"
    early = only(bc.find_events(between(metric(5), 0.0, 780.0, 30.0), WINDOW))
    assert (early.kind, early.span_s, early.before) == ("spike", (600.0, 780.0), pytest.approx(LEVEL, rel=0.02))
    assert only(bc.find_events(between(metric(5), 0.0, 1000.0, 30.0), WINDOW)).kind == "level"


def test_outside_the_window_and_in_too_few_samples_there_are_no_events() -> None:
    curve = between(between(metric(6), 0.0, 550.0, -90.0), 5000.0, 9999.0, -80.0)
    assert bc.find_events(curve, (600.0, 5000.0)).events == ()
    for few in (pd.Series(dtype=float), pd.Series([1.0, 2.0], index=[700.0, 705.0])):
        assert bc.find_events(few, WINDOW).events == ()


def test_small_events_are_left_out() -> None:
    curve = between(metric(7, sd=0.001), 3000.0, 9999.0, 1.0)
    assert only(bc.find_events(curve, WINDOW)).size_percent == pytest.approx(1.0, abs=0.1)
    assert bc.find_events(curve, WINDOW, smallest_percent=2.0).events == ()


def test_gaps_and_nan_are_no_events() -> None:
    curve = metric(8)
    curve[(curve.index > 2000) & (curve.index < 2600)] = math.nan
    curve = curve[(curve.index < 3000) | (curve.index > 3900)]
    run = bc.find_events(curve, WINDOW)
    assert run.events == ()
    assert run.times_s.size == 80 - 10 - 15
    step = only(bc.find_events(between(curve, 3000.0, 9999.0, 20.0), WINDOW))
    assert 3000 - 60 <= step.at_s <= 3905


def test_a_metric_around_zero_has_events_without_a_percentage() -> None:
    curve = metric(9) - LEVEL
    event = only(bc.find_events(curve + np.where(curve.index > 3000, -50.0, 0.0), WINDOW))
    assert (event.kind, event.size) == ("level", pytest.approx(-50.0, abs=3.0))
    assert event.ci[0] < -50.0 < event.ci[1]
    level = only(bc.find_events(curve * 0.0 + np.where(curve.index > 3000, 5.0, 0.0), WINDOW))
    assert (level.size, level.size_percent, level.at_least_percent()) == (5.0, None, 0.0)


AT = np.arange(1081)


@pytest.mark.parametrize("values", [
    np.full(1081, 1e308), np.where(AT % 2, 1e307, -1e307), np.geomspace(1e-300, 1e300, 1081),
    np.where(AT < 500, 0.0, 1e-310), np.where(AT % 3, math.inf, 5.0), np.eye(1, 1081, 500)[0] * 1e99,
    1e15 + np.random.default_rng(10).standard_normal(1081),
])  # fmt: skip
def test_numbers_at_the_ends_of_their_range_are_no_fault(values: np.ndarray) -> None:
    for event in bc.find_events(pd.Series(values, index=5.0 * np.arange(1081)), WINDOW).events:
        assert np.isfinite([event.size, *event.ci, event.before, event.extreme]).all()
        assert event.ci[0] <= event.size <= event.ci[1]
        assert WINDOW[0] <= event.span_s[0] <= event.span_s[1] <= WINDOW[1]


@pytest.mark.untraced
@pytest.mark.slow
def test_a_metric_that_goes_up_and_down_all_the_time_has_events_of_known_size() -> None:
    rng = np.random.default_rng(3)
    for _ in range(600):
        minutes, period = int(rng.integers(20, 90)), int(rng.integers(2, 12))
        busy = np.arange(minutes) % period < rng.integers(1, 8)
        values = np.where(busy, 10.0, 1.0) + rng.normal(0.0, 0.1, minutes)
        found = bc.find_events(pd.Series(values, np.arange(minutes) * 60.0 + 30.0), (0.0, minutes * 60.0))
        assert all(math.isfinite(event.size) and math.isfinite(event.before) for event in found.events)


def test_identical_runs_have_few_events() -> None:
    found = [
        bool(bc.find_events(metric(seed, memory_s=memory), WINDOW).events)
        for memory in (5.0, 60.0, 180.0)
        for seed in range(100, 170)
    ]
    assert np.mean(found) <= 0.10


MARGINS = {"heap": 10.0, "stack": 10.0, "routines": 5.0, "p99": 10.0}


def place(base: Mapping[str, pd.Series], new: Mapping[str, pd.Series]) -> tuple[PlacedEvent, ...]:
    runs = [{slug: bc.find_events(curve, WINDOW) for slug, curve in side.items()} for side in (base, new)]
    return match_events(runs[0], runs[1], MARGINS)


def test_the_same_movement_counts_even_where_it_is_no_event_by_itself() -> None:
    noisy = between(metric(42, sd=0.12, memory_s=300.0), 3000.0, 9999.0, 20.0)
    assert bc.find_events(noisy, WINDOW).events == ()
    (event,) = place({"heap": between(metric(43), 3000.0, 9999.0, 20.0)}, {"heap": noisy})
    assert event.matched


@pytest.mark.parametrize(("minutes", "matched"), [(5.5, True), (15.0, False)])
@pytest.mark.parametrize(("length_s", "percent"), [(9999.0, 20.0), (120.0, -40.0)], ids=["level", "drop"])
def test_six_minutes_apart_is_the_same_event(minutes: float, length_s: float, percent: float, *, matched: bool) -> None:
    one, other = (
        {"heap": between(metric(seed), start, start + length_s, percent)}
        for seed, start in ((40, 3000.0), (41, 3000.0 + 60.0 * minutes))
    )
    placed = place(one, other)
    assert [(each.build, each.matched) for each in placed] == [("base", matched), ("new", matched)]
    assert not (matched and any(each.warning for each in placed))


@pytest.mark.parametrize(("percent", "matched"), [(-40.0, True), (40.0, False)], ids=["drop", "spike"])
def test_a_drop_before_the_end_is_the_same_in_a_longer_run(percent: float, *, matched: bool) -> None:
    short = {"heap": bc.find_events(between(metric(40), 4200.0, 4320.0, percent), (600.0, 4500.0))}
    long = {"heap": bc.find_events(between(metric(41), 5100.0, 5220.0, percent), WINDOW)}
    assert {each.matched for each in match_events(short, long, MARGINS)} == {matched}


@pytest.mark.parametrize(
    "other",
    [
        between(metric(45), 4200.0, 9999.0, 20.0), between(metric(46), 3000.0, 9999.0, -20.0),
        between(metric(47), 3000.0, 9999.0, 7.0), between(metric(48), 2900.0, 3100.0, 60.0), metric(49),
    ],
    ids=["later", "opposite", "much smaller", "comes back", "nothing"],
)  # fmt: skip
def test_another_event_in_the_other_build_does_not_excuse_it(other: pd.Series) -> None:
    placed = place({"heap": between(metric(44), 3000.0, 9999.0, 20.0)}, {"heap": other})
    (event,) = [each for each in placed if each.build == "base"]
    assert (event.kind, event.matched, event.warning) == ("level", False, True)


def test_a_lone_spike_needs_a_witness_unless_it_is_out_of_all_proportion() -> None:
    quiet = {"p99": metric(50), "routines": metric(51)}
    alone = {**quiet, "p99": between(metric(52), 2400.0, 2520.0, 40.0)}
    assert [each.warning for each in place(quiet, alone)] == [False]
    together = {**alone, "routines": between(metric(53), 2450.0, 2600.0, 20.0)}
    placed = place(quiet, together)
    assert {each.metric: each.warning for each in placed} == {"p99": True, "routines": True}
    assert {each.group for each in placed} == {1}
    huge = {**quiet, "p99": between(metric(52), 2400.0, 2520.0, 150.0)}
    assert [each.warning for each in place(quiet, huge)] == [True]


def test_events_far_apart_and_of_two_builds_are_groups_by_time() -> None:
    quiet = {"heap": metric(60), "stack": metric(61)}
    base = {**quiet, "heap": between(metric(62), 4000.0, 9999.0, 20.0)}
    new = {
        "heap": between(metric(63), 2000.0, 9999.0, 30.0),
        "stack": between(between(metric(64), 2060.0, 9999.0, 30.0), 4000.0, 9999.0, 30.0),
    }
    placed = place(base, new)
    groups = [(each.group, each.build, each.metric) for each in placed]
    assert groups == [(1, "new", "heap"), (1, "new", "stack"), (2, "base", "heap"), (3, "new", "stack")]


def test_a_change_within_the_margin_is_no_warning_nor_is_one_that_may_be() -> None:
    quiet = {slug: metric(70 + i) for i, slug in enumerate(MARGINS)}
    for percent, warns in ((8.0, False), (10.5, False), (20.0, True)):
        new = {**quiet, "heap": between(metric(80, sd=0.02), 3000.0, 9999.0, percent)}
        assert [each.warning for each in place(quiet, new)] == [warns]


def test_a_metric_of_one_build_or_without_a_margin() -> None:
    step = between(metric(90), 3000.0, 9999.0, 40.0)
    (event,) = place({}, {"heap": step})
    assert (event.matched, event.warning) == (False, True)
    (event,) = place({}, {"unknown": step})
    assert (event.matched, event.warning) == (False, False)
    assert place({}, {}) == ()


def test_five_events_are_told_of_and_the_rest_in_one_line() -> None:
    def event(metric: str, group: int, percent: float) -> Event:
        at_s, size = 60.0 * group, {"size": percent, "size_percent": percent, "ci": None}
        where = {"metric": metric, "build": "new", "at_s": at_s, "span_s": (at_s, at_s + 60.0), "group": group}
        return Event.model_validate({**where, **size, "kind": "spike", "matched": False, "warning": True})

    small = [event("heap-in-use", group, 20.0 + group) for group in range(1, 8)]
    grave = [event(slug, 9, 30.0) for slug in ("p99-api-times", "avg-api-times", "cpu-utilization")]
    found = list(load.events(quiet().model_copy(update={"events": [*small, *grave]})))
    told = [each.evidence["group"] for each in found if each.kind == "event"]
    assert told == [4, 5, 6, 7, 9], "the largest, in order of time"
    assert {each.severity for each in found} == {"info"}, "identical runs have events too"
    assert {each.evidence.get("identical") for each in found} == {(2, 6), None}
    (more,) = [each for each in found if each.kind == "more_events"]
    assert more.evidence == {"groups": [1, 2, 3]}
    assert [each.kind for each in load.events(quiet().model_copy(update={"events": small[:5]}))] == ["event"] * 5


def of_bounded(results: Results, db: str, metric: str, build: str) -> tuple[Event, list[Event]]:
    (test,) = [each for each in results.tests if each.name == f"{db}_bounded"]
    (event,) = [each for each in test.events if (each.metric, each.build) == (metric, build) and each.warning]
    return event, [each for each in test.events if each.group == event.group]


def test_v9_1_goroutines_spiked_with_stack_and_p99_api(compared: Callable[[str], Results]) -> None:
    spike, group = of_bounded(compared("v9.1"), "mysql", "goroutines-in-use", "base")
    assert (spike.matched, spike.kind, spike.at_s / 60) == (False, "spike", pytest.approx(31.6, abs=1.0))
    assert spike.size_percent == pytest.approx(9.4, abs=0.5)  # its mean; the highest sample is 11 % up
    assert {each.metric for each in group} == {"goroutines-in-use", "p99-api-times", "stack-in-use"}


def test_v11_1_heap_stepped_up(compared: Callable[[str], Results]) -> None:
    step, _ = of_bounded(compared("v11.1"), "postgresql", "heap-in-use", "base")
    assert (step.matched, step.kind, step.at_s / 60) == (False, "level", pytest.approx(43.0, abs=1.0))
