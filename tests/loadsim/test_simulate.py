"""The simulator keeps the coordinator's rule, and the shapes of real curves emerge from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loadsim import (
    Coordinator,
    NoiseModel,
    ServerModel,
    Thresholds,
)
from loadsim.coordinator import FeedbackLoop, Trend
from simulated import BOUNDED, STEPS_OF_A_FALL, UNBOUNDED, early, peaks, run, values

# ---- The rule -------------------------------------------------------------------------------------------------------


def test_users_change_no_faster_than_the_rule_allows() -> None:
    truth = run().truth
    rule = UNBOUNDED.coordinator
    times, changes = (np.array(column) for column in zip(*truth.actions, strict=True))
    assert set(changes) == {rule.users_inc, -rule.users_dec}
    assert truth.first_alert_s is not None
    after = times[times >= truth.first_alert_s]
    assert np.diff(after).min() > rule.rest_s
    assert np.diff(times).min() == pytest.approx(rule.evaluate_every_s)  # before the first alert there is no rest


def test_without_alerts_the_ramp_is_straight_to_the_target() -> None:
    """8 users every 2 s: 4 users per second."""
    found = run(BOUNDED)
    assert found.truth.first_alert_s is None
    assert found.truth.supported_users is None
    assert [change for _, change in found.truth.actions] == [8] * 625
    assert found.truth.actions[-1][0] == 624 * 2.0
    users = values(found.recording)
    assert np.polyfit(np.arange(20, 240) * 5, users[20:240], 1)[0] == pytest.approx(4.0, abs=0.01)
    assert set(users[280:1080]) == {5000.0}


@pytest.mark.parametrize(("every_s", "slope"), [(2.0, 2.0), (1.9, 8 / 3.8), (1.0, 8 / 3), (2.15, 8 / 2.15)])
def test_after_the_first_alert_the_coordinator_rests(every_s: float, slope: float) -> None:
    """The published ramps: 2.1 users/s in v10.4, 2.7 in v11.1, 3.7 in v10.1."""
    loop = FeedbackLoop(Coordinator(evaluate_every_s=every_s))
    loop.evaluate(0.0, True)
    seen = [(i * every_s, loop.active) for i in range(1, 1000) if not loop.evaluate(i * every_s, False)]
    assert np.polyfit(*zip(*seen, strict=True), 1)[0] == pytest.approx(slope, rel=0.01)


def test_an_alert_takes_users_away_and_defers_the_next_increment() -> None:
    loop = FeedbackLoop(Coordinator(evaluate_every_s=1.0))
    for second in range(5):
        loop.evaluate(float(second), False)
    assert loop.active == 40
    loop.evaluate(5.0, True)  # 1 s after an action: still resting
    assert loop.active == 40
    loop.evaluate(7.0, True)
    assert loop.active == 32
    for second in (8, 9):
        loop.evaluate(float(second), False)
    assert loop.active == 32
    loop.evaluate(10.0, False)
    assert loop.active == 40


def test_users_stay_between_zero_and_the_ceiling() -> None:
    loop = FeedbackLoop(Coordinator(max_users=20))
    for i in range(10):
        loop.evaluate(i * 2.0, False)
    assert loop.active == 20
    for i in range(10, 40):
        loop.evaluate(i * 2.0, True)
    assert loop.active == 0


def test_a_ceiling_below_the_capacity_is_the_answer() -> None:
    """A cold start alerts, then nothing does; the last of the ramp is still in the window when its slope is small."""
    truth = run(replace(UNBOUNDED, coordinator=Coordinator(max_users=3000))).truth
    assert truth.supported_users == pytest.approx(3000, rel=0.03)
    assert truth.limited_by is None


def test_the_stop_rule_holds_at_the_stop_and_not_before() -> None:
    truth = run().truth
    rule = UNBOUNDED.coordinator
    at = np.arange(0, truth.decided_s + 1e-9, rule.evaluate_every_s)
    times, changes = (np.array(column) for column in zip(*truth.actions, strict=True))
    active = np.concatenate(([0.0], np.cumsum(changes)))[np.searchsorted(times, at, side="left")]
    assert truth.first_alert_s is not None

    def slope(i: int) -> float:
        window = (at >= at[i] - rule.window_s) & (at <= at[i]) & (at >= truth.first_alert_s)
        return float(np.polyfit(at[window] - at[i], active[window], 1)[0])

    assert truth.decided_s >= truth.first_alert_s + rule.window_s
    assert abs(slope(-1)) < rule.slope_limit
    earliest = int(np.flatnonzero(at > truth.first_alert_s + rule.window_s)[0])
    assert all(abs(slope(i)) >= rule.slope_limit for i in range(earliest, at.size - 1, 20))
    last = (at >= at[-1] - rule.window_s) & (at >= truth.first_alert_s)
    assert truth.supported_users == pytest.approx(active[last].mean(), rel=1e-12)


def test_the_trend_is_least_squares() -> None:
    rng = np.random.default_rng(4)
    trend, x, y = Trend(50.0), np.cumsum(rng.uniform(0.5, 3.0, 200)), rng.normal(1000.0, 30.0, 200)
    for i in range(200):
        trend.add(x[i], y[i])
        seen = (x[: i + 1] >= x[i] - 50.0).nonzero()[0]
        assert trend.whole == (seen[0] > 0)
        if i > 5:
            assert trend.slope == pytest.approx(np.polyfit(x[seen], y[seen], 1)[0], rel=1e-6, abs=1e-9)
            assert trend.mean == pytest.approx(y[seen].mean())


def test_a_time_limit_ends_a_run_without_an_answer() -> None:
    truth = run(replace(UNBOUNDED, time_limit_s=2400.0)).truth
    assert (truth.decided_s, truth.supported_users) == (2400.0, None)


# ---- What emerges ---------------------------------------------------------------------------------------------------


def test_a_cold_start_makes_an_early_bump() -> None:
    """As published for v9.2 to v10.4: up to about 200 users at 75 s, back, and a ramp from about 200 s on."""
    users = values(run().recording)
    assert len(peaks(early(users))) == 1
    assert 150 <= users[:30].max() <= 260
    assert 60 <= 5 * int(users[:30].argmax()) <= 100
    assert users[30:60].min() < 0.6 * users[:30].max()
    assert run().truth.first_alert_s == pytest.approx(UNBOUNDED.coordinator.quiet_s, abs=15)
    assert run().truth.cold_start_s > 60


def test_warm_caches_make_none() -> None:
    warm = run(replace(UNBOUNDED, server=ServerModel(cold_gain=0.0)))
    assert peaks(early(values(warm.recording))) == []
    assert warm.truth.cold_start_s == 0
    assert warm.truth.first_alert_s is not None
    assert warm.truth.first_alert_s > 2 * run().truth.first_alert_s  # type: ignore[operator]  # it has one


def test_slower_warming_makes_more_bumps_and_a_later_ramp() -> None:
    slow = run(replace(UNBOUNDED, server=ServerModel(cold_gain=1.8, cold_requests=120_000.0)))
    users, usual = values(slow.recording), values(run().recording)
    assert len(peaks(early(users))) >= 2
    assert early(users).size > early(usual).size + 40
    assert usual[400] - users[400] > 500
    assert slow.truth.cold_start_s > run().truth.cold_start_s


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_waves_emerge_after_the_ramp(seed: int) -> None:
    """Published: falls of 40 to 120 users, a period of 145 to 250 s."""
    found = run(UNBOUNDED, seed)
    users = values(found.recording)[: int(found.truth.decided_s / 5)]
    late = users[-480:]
    tops = peaks(late)
    assert len(tops) >= 5
    assert 110 <= 2400 / len(tops) <= 260
    deepest = np.max(np.maximum.accumulate(late) - late)
    assert STEPS_OF_A_FALL * 8 <= deepest <= 250


def test_the_ramp_bends_to_a_plateau() -> None:
    found = run()
    users = values(found.recording)[: int(found.truth.decided_s / 5)]
    slopes = [np.polyfit(np.arange(200) * 5, users[i : i + 200], 1)[0] for i in (100, users.size - 200)]
    assert slopes[0] == pytest.approx(2.0, abs=0.1)
    assert abs(slopes[1]) < 0.2


def test_more_capacity_supports_more_users_in_proportion() -> None:
    quiet = replace(UNBOUNDED, noise=NoiseModel(capacity_sd=0.0))
    found = [
        run(replace(quiet, server=ServerModel(capacity_users=c))).truth.supported_users for c in (7000, 8500, 10_500)
    ]
    assert all(each is not None for each in found)
    assert found[0] < found[1] < found[2]  # type: ignore[operator]  # checked above
    for users, capacity in zip(found, (7000, 8500, 10_500), strict=True):
        assert 0.7 < users / capacity < 0.95  # type: ignore[operator]


def test_a_run_that_carries_fewer_users_takes_no_more_cpu_for_each() -> None:
    """In Mattermost's ceiling tests, users vary by 1.9 % and CPU at equal users by 0.9 %."""
    unlike = replace(BOUNDED, noise=NoiseModel(capacity_sd=0.05, level_scale=0.0, sample_scale=0.0))
    runs = [run(unlike, seed) for seed in (1, 2, 3)]
    assert np.ptp([each.truth.capacity_users for each in runs]) > 0.03 * runs[0].truth.capacity_users
    cpu = [values(each.recording, "cpu-utilization")[600:].mean() for each in runs]
    np.testing.assert_allclose(cpu, cpu[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("server", "limit"),
    [
        (ServerModel(), "client_avg"),
        (
            ServerModel(cpu_at_capacity_percent=90.0, client_avg_at_capacity_s=0.05, error_percent_at_capacity=0.001),
            "app_cpu",
        ),
        (ServerModel(client_p99_ratio=40.0), "client_p99"),
        (ServerModel(error_percent_at_capacity=0.1), "client_errors"),
    ],
)
def test_the_truth_names_what_limited_the_run(server: ServerModel, limit: str) -> None:
    truth = run(replace(UNBOUNDED, server=server)).truth
    assert truth.limited_by == limit
    assert truth.alerts[limit] == max(truth.alerts.values())


def test_an_alert_that_is_off_never_fires() -> None:
    off = Thresholds(client_avg_s=None)
    truth = run(replace(UNBOUNDED, coordinator=Coordinator(thresholds=off))).truth
    assert "client_avg" not in truth.alerts
