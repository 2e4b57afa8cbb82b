"""The simulator keeps the coordinator's rule, and the shapes of real curves emerge from it."""

from dataclasses import replace

import numpy as np
import pytest

from loadsim import Coordinator, NoiseModel
from loadsim.coordinator import FeedbackLoop
from simulated import BOUNDED, UNBOUNDED, run, values


def test_users_change_no_faster_than_the_rule_allows() -> None:
    truth = run().truth
    rule = UNBOUNDED.coordinator
    times, changes = (np.array(column) for column in zip(*truth.actions, strict=True))
    assert set(changes) == {rule.users_inc, -rule.users_dec}
    assert truth.first_alert_s is not None
    after = times[times >= truth.first_alert_s]
    assert np.diff(after).min() > rule.rest_s
    assert np.diff(times).min() == pytest.approx(rule.evaluate_every_s)  # before the first alert there is no rest


@pytest.mark.parametrize(("every_s", "slope"), [(2.0, 2.0), (1.9, 8 / 3.8), (1.0, 8 / 3), (2.15, 8 / 2.15)])
def test_after_the_first_alert_the_coordinator_rests(every_s: float, slope: float) -> None:
    """The published ramps: 2.1 users/s in v10.4, 2.7 in v11.1, 3.7 in v10.1."""
    loop = FeedbackLoop(Coordinator(evaluate_every_s=every_s))
    loop.evaluate(0.0, True)
    seen = [(i * every_s, loop.active) for i in range(1, 1000) if not loop.evaluate(i * every_s, False)]
    assert np.polyfit(*zip(*seen, strict=True), 1)[0] == pytest.approx(slope, rel=0.01)


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

    def slope(i: int) -> float:
        window = (at >= at[i] - rule.window_s) & (at <= at[i]) & (at >= truth.first_alert_s)
        return float(np.polyfit(at[window] - at[i], active[window], 1)[0])

    assert truth.decided_s >= truth.first_alert_s + rule.window_s
    assert abs(slope(-1)) < rule.slope_limit
    earliest = int(np.flatnonzero(at > truth.first_alert_s + rule.window_s)[0])
    assert all(abs(slope(i)) >= rule.slope_limit for i in range(earliest, at.size - 1, 20))
    last = (at >= at[-1] - rule.window_s) & (at >= truth.first_alert_s)
    assert truth.supported_users == pytest.approx(active[last].mean(), rel=1e-12)


def test_a_time_limit_ends_a_run_without_an_answer() -> None:
    truth = run(replace(UNBOUNDED, time_limit_s=2400.0)).truth
    assert (truth.decided_s, truth.supported_users) == (2400.0, None)


def test_a_run_that_carries_fewer_users_takes_no_more_cpu_for_each() -> None:
    """In Mattermost's ceiling tests, users vary by 1.9 % and CPU at equal users by 0.9 %."""
    unlike = replace(BOUNDED, noise=NoiseModel(capacity_sd=0.05, level_scale=0.0, sample_scale=0.0))
    runs = [run(unlike, seed) for seed in (1, 2, 3)]
    assert np.ptp([each.truth.capacity_users for each in runs]) > 0.03 * runs[0].truth.capacity_users
    cpu = [values(each.recording, "cpu-utilization")[600:].mean() for each in runs]
    np.testing.assert_allclose(cpu, cpu[0], rtol=1e-3)
