"""When does a run stop, and when is it steady? Curves whose truth is in the call."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildcompare.load.curve import Stop, find_stop, mser_window, steady_window
from curves import curve
from support import sure, users_curve


@pytest.mark.parametrize("samples", [1, 3, 6, 12, 30])
def test_a_shutdown_is_found_where_it_starts(samples: int) -> None:
    stop = find_stop(curve(users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=samples)))
    assert stop == Stop(at_s=5400.0, end_s=5400.0 + 5 * samples, shutdown=True)


@pytest.mark.parametrize("lost_per_s", [0.2, 0.4, 0.6])
@pytest.mark.parametrize("noise", [0.0, 8.0])
def test_a_slow_decline_is_no_part_of_the_shutdown(lost_per_s: float, noise: float) -> None:
    elapsed = np.arange(0.0, 9000.0, 5.0)
    users = np.minimum(4.0 * elapsed, 5000.0 - lost_per_s * (elapsed - 1250.0))
    users += np.random.default_rng(1).normal(0.0, noise, users.size) - 30.0 * np.maximum(elapsed - 8820.0, 0.0)
    stop = sure(find_stop(pd.Series(np.maximum(users, 0.0), index=elapsed)))
    assert (stop.at_s, stop.shutdown) == (pytest.approx(8820.0, abs=5.0), True)


@pytest.mark.parametrize(
    ("load", "after", "at_s"),
    [
        (np.full(1000, 10_000.0), [9680.0, 9212.0, 5000.0], 4995.0),  # a slow start of the fall
        (users_curve(150, ramp_s=600, hold_s=1200), [0.0] * 110, 1800.0),  # zeros long after the stop
        (users_curve(7000, ramp_s=3000, hold_s=2400), 7000 - 20.0 * np.arange(1, 10), None),  # of the coordinator
        (np.full(900, 5003.0), [4546.0] * 180, None),  # v9.2: one of eleven agents was lost at 75 of 90 minutes
    ],
)
def test_what_is_a_shutdown_and_what_is_not(load: np.ndarray, after: Sequence[float], at_s: float | None) -> None:
    values = np.concatenate([load, after])
    stop = sure(find_stop(curve(values)))
    assert (stop.at_s, stop.shutdown) == ((values.size - 1) * 5.0 if at_s is None else at_s, at_s is not None)


def test_no_numbers_have_no_stop() -> None:
    assert find_stop(curve([math.nan] * 10)) is None
    assert find_stop(curve([0.0] * 10)) == Stop(45.0, 45.0, shutdown=False)


@pytest.mark.parametrize("values", [[-100.0] * 15, [-3.0, -2.0, 1.0, -5.0], [math.inf, -7.0, math.nan, -6.0]])
def test_a_curve_mostly_below_zero_shows_no_shutdown(values: list[float]) -> None:
    last = 5.0 * max(i for i, value in enumerate(values) if math.isfinite(value))
    assert find_stop(curve(values)) == Stop(last, last, shutdown=False)


NUMBERS = st.one_of(st.floats(), st.floats(-10, 10), st.sampled_from([0.0, -1.0, 100.0, 1e308, -1e308]))


@given(st.lists(NUMBERS, max_size=40), st.sampled_from([4.0, None]))
def test_any_curve_has_a_stop_within_it_or_none(values: list[float], fall: float | None) -> None:
    stop = find_stop(curve(values), fastest_fall=fall)
    finite = [5.0 * i for i, value in enumerate(values) if math.isfinite(value)]
    assert (stop is None) == (not finite)
    if stop is not None:
        assert stop.at_s in finite
        assert stop.at_s <= stop.end_s == finite[-1]
        assert stop.shutdown or stop.at_s == stop.end_s


def test_bounded_is_steady_from_the_plateau_to_the_stop() -> None:
    steady = steady_window(curve(users_curve(5000, ramp_s=1200, hold_s=4200, shutdown=4)), "bounded")
    assert steady.method == "target_reached"
    assert steady.window == (pytest.approx(0.98 * 1200 + 60, abs=5), 5400.0)


@pytest.mark.parametrize("lost", [0.1, 0.4, 0.9])
def test_what_is_lost_late_does_not_move_the_beginning_of_a_plateau(lost: float) -> None:
    values = users_curve(5000, ramp_s=1200, hold_s=4200)
    for at in (480, 660, 840):  # samples: the median of the second half lies far below the plateau
        values[at:] *= 1.0 - lost / 3.0
    load = curve(values)
    steady = steady_window(load, "bounded", stop=Stop(5400.0, 5400.0, shutdown=False))
    assert steady.window == (pytest.approx(0.98 * 1200 + 60, abs=5), 5400.0)


@pytest.mark.parametrize("hold_s", [0.0, 120.0, 260.0])
def test_a_run_that_ends_as_it_arrives_has_no_steady_window(hold_s: float) -> None:
    load = curve(users_curve(5000, ramp_s=1200, hold_s=hold_s))
    steady = steady_window(load, "bounded", stop=Stop(1200.0 + hold_s, 1200.0 + hold_s, shutdown=False))
    assert (steady.window, sure(steady.reason).code) == (None, "short")


def test_unbounded_is_judged_over_the_last_30_minutes() -> None:
    load = curve(users_curve(5000, ramp_s=1200, hold_s=4800, shutdown=6))
    steady = steady_window(load, "unbounded", stop=Stop(6000.0, 6030.0, shutdown=True))
    assert steady.window == (4200.0, 6000.0)
    short = steady_window(load, "unbounded", stop=Stop(200.0, 200.0, shutdown=False))
    assert (short.window, sure(short.reason).code) == (None, "short")


def test_mser_finds_the_end_of_a_ramp() -> None:
    """White (1997): the cut that minimises the standard error; 1080 samples after a ramp of 360."""
    rng = np.random.default_rng(11)
    noise = np.zeros(1440)
    for i in range(1, noise.size):
        noise[i] = 0.9 * noise[i - 1] + rng.normal(0, math.sqrt(1 - 0.81))
    level = 20 * np.minimum(np.arange(1440) / 360, 1.0)
    steady = mser_window(curve(level + noise))
    assert sure(steady.window)[0] == pytest.approx(360 * 5, abs=300)
    assert mser_window(curve(np.arange(1440.0))).window is None
    assert mser_window(curve([1.0] * 20)).window is None


def test_a_run_of_a_minute_is_steady_where_rates_are_over_seconds() -> None:
    """pgbench: all clients are there from the second second on, and gone after a minute."""
    users = pd.Series([0.0, *[8.0] * 60], index=np.arange(61.0))
    assert steady_window(users, "bounded", rate_s=5.0).window == (6.0, 60.0)
    assert steady_window(users, "bounded").window is None
    assert steady_window(users[:30], "bounded", rate_s=5.0).window is None, "shorter than five times the rates"
