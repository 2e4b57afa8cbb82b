"""What is a load curve, where does its ramp begin, which phases follow, and what does another stop change?"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.load.curve import Stop, find_stop, prepare_load
from buildcompare.load.view import measure_plateau, measure_shape
from shape_curves import BUMPY, hunting, names, path, prepared, sawtooth, shape, simulated
from support import sure


def test_the_plateau_and_what_another_stop_would_change() -> None:
    load = prepared(path((0, 0), (1500, 6000), (8000, 6650)))
    plateau = sure(measure_plateau(load, 8000.0, 1500.0))
    assert (plateau.window, plateau.settled) == ((6200.0, 8000.0), True)
    assert (plateau.level, plateau.drift) == (pytest.approx(6560.0, abs=1.0), pytest.approx(0.1, rel=1e-6))
    windows = (load.between(end_s - 1800.0, end_s) for end_s in np.arange(3000.0, 3305.0, 5.0))
    before = next(users for elapsed, users in windows if abs(np.polyfit(elapsed, users, 1)[0]) < 0.2)
    assert (plateau.earliest_level, before.size) == (pytest.approx(before.mean()), 361)


def test_a_curve_that_still_climbs_has_not_settled() -> None:
    load = prepared(path((0, 0), (1500, 6000), (8000, 9250)))
    plateau = sure(measure_plateau(load, 8000.0, 1500.0))
    assert (plateau.settled, plateau.earliest_level) == (False, None)
    assert sure(measure_plateau(load, 2200.0, 1500.0)).settled is None
    assert measure_plateau(load, 1700.0, 1500.0) is None


def test_a_bounded_run_has_ramp_plateau_and_shutdown() -> None:
    found = shape(path((0, 0), (1250, 5000), (5400, 5000), (5420, 0)), bounded=True)
    assert names(found) == ["ramp", "plateau", "shutdown"]
    assert found.phases[1].start_s == pytest.approx(1225.0, abs=5.0)
    assert found.phases[1].end_s == found.phases[2].start_s == 5400.0
    assert not found.waves.claimed


def test_phases_follow_each_other_without_overlap() -> None:
    for seed in range(4):
        for one, other in pairwise(simulated(seed)[0].phases):
            assert one.start_s < one.end_s <= other.start_s


@pytest.mark.parametrize("step_s", [1.0, 10.0, 15.0, 30.0])
def test_the_sampling_step_does_not_change_the_shape(step_s: float) -> None:
    whole = hunting()
    elapsed = np.arange(0.0, whole.index[-1], step_s)
    other = shape(pd.Series(np.interp(elapsed, whole.index, whole), index=elapsed))
    assert len(other.beginning.bumps) == 1
    # The last sample within a step of 8 users of the trough: 2 s into a ramp of 4 users/s.
    assert other.beginning.onset_s == pytest.approx(300.0, abs=max(step_s, 2.0))
    assert sure(other.ramp).slope == pytest.approx(4.0, rel=0.02)
    assert other.waves.claimed
    assert other.waves.onset_s == pytest.approx(1820.0, abs=2 * step_s)
    assert other.waves.period_s == pytest.approx(200.0, rel=0.05)
    creep = 0.1 * 200.0 / 3.0  # how much the level climbs during a fall
    assert other.waves.amplitude is None or other.waves.amplitude == pytest.approx(80.0 - creep, rel=0.1)
    assert (other.waves.amplitude is None) == (step_s > 25.0)  # peaks lie between samples


@pytest.mark.slow
def test_whatever_the_curve_phases_are_in_order_and_nothing_breaks() -> None:
    rng = np.random.default_rng(7)
    before = shape(hunting())
    for i in range(240):
        size = int(rng.integers(1, 900))
        values = (
            np.abs(np.cumsum(rng.normal(0.0, rng.choice([1.0, 30.0, 300.0]), size))),
            np.abs(rng.normal(0.0, 100.0, size)),
            np.repeat(rng.integers(0, 10_000, size // 50 + 1), 50)[:size].astype(float),
            np.where(rng.uniform(size=size) < 0.5, math.nan, np.linspace(0.0, 5000.0, size)),
            np.full(size, rng.choice([0.0, 5000.0, math.nan, math.inf])),
            np.minimum(np.arange(size) * 20.0, 5000.0) * rng.integers(0, 2, size),
        )[i % 6]
        curve = pd.Series(values, index=np.arange(size) * float(rng.choice([1, 5, 15, 60])))
        stop = find_stop(curve)
        for options in ({}, {"bounded": True}, {"proxy": True}):
            found = None if stop is None else measure_shape(curve, stop, **options)  # type: ignore[arg-type]
            if found is not None:
                bc.shift(before, found)
                assert all(a.end_s <= b.start_s for a, b in pairwise(found.phases))
                assert all(phase.start_s < phase.end_s for phase in found.phases)


def test_what_carries_no_load_has_no_shape() -> None:
    rng = np.random.default_rng(2)
    assert prepare_load(path((0, 0), (1000, 0)), math.inf) is None
    assert prepare_load(path((0, 0), (1000, 79)), math.inf) is None
    assert prepare_load(path((0, math.nan), (1000, math.nan)), math.inf) is None
    idle = pd.Series(20_000 + rng.normal(0, 40, 1400), np.arange(1400) * 5.0)
    assert prepare_load(idle, math.inf, proxy=True) is None
    assert measure_shape(path((0, 0), (1000, 0)), Stop(1000.0, 1000.0, shutdown=False)) is None


def test_a_restart_is_a_reset_and_no_shape() -> None:
    curve = path((0, 0), (1500, 6000), (3000, 6000), (3005, 0), (3025, 0), (3085, 6000), (6000, 6000))
    found = shape(curve)
    assert (found.curve.resets, found.beginning.bumps, found.waves.onset_s) == (((3000.0, 3085.0),), (), None)
    assert sure(found.plateau).level == pytest.approx(6000.0)


@pytest.mark.parametrize("step_s", [5.0, 15.0, 30.0])
def test_what_the_coordinator_takes_away_is_no_reset(step_s: float) -> None:
    assert prepared(path((0, 0), (110, 180), (130, 0), (300, 0), (1800, 6000))).resets == ()
    found = shape(path((0, 0), (100, 400), (150, 0), (240, 0), (890, 2600), (4000, 2600), step_s=step_s))
    assert (found.curve.resets, len(found.beginning.bumps), found.beginning.onset_s) == ((), 1, 240.0)
    assert sure(found.ramp).slope == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("step_s", [5.0, 15.0, 30.0, 60.0])
def test_a_reset_ends_before_the_ramp_that_goes_on(step_s: float) -> None:
    curve = path((0, 0), (600, 2400), (601, 0), (700, 0), (740, 2400), (1880, 6960), (5000, 6960), step_s=step_s)
    ((start_s, end_s),) = shape(curve).curve.resets
    assert start_s == 600.0
    assert end_s <= 740.0 + step_s


def test_an_early_bump_has_its_peak_depth_and_times() -> None:
    found = bc.bumps(prepared(path(*BUMPY)))
    bump = {"start_s": 0.0, "peak_s": 110.0, "end_s": 200.0, "peak_users": 180.0, "depth_users": 180.0}
    assert ([dict(each) for each in found.bumps], found.onset_s) == ([bump], 300.0)


FALLS: dict[str, tuple[Sequence[tuple[float, float]], int, float | None]] = {
    "straight": (((0, 0), (30, 0), (1530, 6000), (4000, 6000)), 0, 30.0),
    "early": (((0, 0), (150, 600), (200, 500), (1700, 6500), (4000, 6500)), 1, 200.0),
    "far up": (((0, 0), (500, 2000), (550, 1900), (1700, 6500), (4000, 6500)), 0, 0.0),
    "far up, to the bottom": (((0, 0), (500, 2000), (1000, 100), (2700, 6500), (4000, 6500)), 1, 1000.0),
    "opens in mid ramp": (((0, 800), (80, 1000), (120, 900), (1500, 7000), (4000, 7000)), 0, None),
    "opens, falls deep": (((0, 800), (80, 1000), (320, 40), (2000, 7000), (4000, 7000)), 1, 320.0),
    "falls first (v8.0: users of the run before)": (((0, 152), (50, 60), (80, 60), (1580, 6060), (4000, 6060)), 0, 80),
}
"""By name the users, how many early bumps they have, and where the lasting ramp begins."""


@pytest.mark.parametrize("name", FALLS)
def test_a_fall_is_an_early_bump_by_where_it_is(name: str) -> None:
    points, count, onset_s = FALLS[name]
    found = bc.bumps(prepared(path(*points)))
    assert (len(found.bumps), found.onset_s) == (count, onset_s)


def test_a_recording_that_opens_in_mid_ramp_has_no_onset() -> None:
    found = shape(path((0, 2000), (1000, 6000), (4000, 6000)))
    assert (found.beginning.onset_s, found.lost, bc.shift(found, found)) == (None, None, None)
    assert sure(found.ramp).slope == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize(("slope", "step_s"), [(1.0, 1.0), (1.0, 5.0), (2.0, 5.0), (4.0, 15.0)])
def test_a_slow_climb_in_mid_ramp_has_no_onset_either(slope: float, step_s: float) -> None:
    rng = np.random.default_rng(8)
    climb = path((0, 600), (3000 / slope, 3600), (3000 / slope + 3000, 3600), step_s=step_s)
    climb += rng.normal(0.0, 2.0, len(climb))
    assert bc.bumps(prepared(climb)).onset_s is None
    rest = pd.concat([path((0, 600), (60 - step_s, 600), step_s=step_s), climb.set_axis(climb.index + 60.0)])
    assert bc.bumps(prepared(rest)).onset_s == pytest.approx(60.0, abs=max(10.0, step_s))


def test_a_hole_that_may_hide_a_bump_hides_the_onset() -> None:
    whole = path((0, 0), (75, 180), (200, 0), (2200, 4000), (4000, 4000))
    assert shape(whole).beginning.onset_s == pytest.approx(200, abs=10)
    assert shape(whole[(whole.index < 60) | (whole.index > 300)]).beginning == bc.Beginning((), None)
    later = whole[(whole.index < 900) | (whole.index > 1200)]  # far up the ramp there is no early bump
    assert shape(later).beginning == shape(whole).beginning
    assert shape(whole[(whole.index < 150) | (whole.index > 210)]).beginning.onset_s is not None


def test_the_slope_of_the_ramp_and_its_end_if_it_ends() -> None:
    found = sure(bc.ramp(prepared(path((0, 0), (30, 0), (1530, 6000), (5000, 6000))), onset_s=30.0))
    assert (found.slope, found.end_s) == (pytest.approx(4.0, rel=1e-6), pytest.approx(1530.0, abs=10.0))
    assert (found.kink_s, found.complete) == (None, True)
    endless = shape(path((0, 0), (3000, 6000)))
    assert (sure(endless.ramp).complete, names(endless), endless.plateau) == (False, ["ramp"], None)


@pytest.mark.parametrize(("after", "is_kink"), [(2.0, True), (8 / 6, True), (0.1, False), (3.9, False)])
def test_a_kink_is_where_the_slope_falls_to_a_part_of_it(after: float, is_kink: bool) -> None:
    curve = prepared(path((0, 0), (1000, 4000), (3000, 4000 + 2000 * after), (4000, 9000)))
    found = sure(bc.ramp(curve, onset_s=0.0))
    assert found.kink_s == (pytest.approx(1000.0, abs=25.0) if is_kink else None)
    assert not is_kink or found.slope == pytest.approx(4.0, rel=1e-3)


def test_time_lost_against_the_ideal_ramp() -> None:
    """A delay of 100 s at 4 users/s over a ramp to 4000 users: 400 users behind for 900 s, and two triangles."""
    found = shape(path((0, 0), (100, 0), (1100, 4000), (5000, 4000)), ideal_slope=4.0)
    assert found.lost == pytest.approx(4000.0 * 100.0, rel=0.03)


def shifted(by_s: float, sd_s: float | None = None, df: float = math.inf) -> bc.Shift:
    base = shape(path((0, 0), (100, 0), (2100, 8000), (6000, 8000)))
    new = shape(path((0, 0), (100 + by_s, 0), (2100 + by_s, 8000), (6000, 8000)))
    return sure(bc.shift(base, new, sd_s=sd_s, df=df))


def test_the_shift_is_the_gap_and_the_delay() -> None:
    found = shifted(400.0)
    assert (found.users, found.seconds) == (pytest.approx(-1600.0, abs=1.0), pytest.approx(400.0, abs=1.0))
    assert (found.window[0], found.significant) == (500.0, True)
    assert found.users_ci[0] < -1600 < found.users_ci[1] < 0
    assert shifted(-60.0).users == pytest.approx(240.0, abs=1.0)


def test_a_delay_is_significant_though_the_ramps_bend() -> None:
    bent = pd.concat([path((0, 0), (900, 3600), (2300, 6400)), sawtooth(2305.0, 6320.0, 18)])
    later = pd.concat([path((0, 0), (395, 0)), bent.set_axis(bent.index + 400.0)])
    found = sure(bc.shift(shape(bent), shape(later)))
    assert (found.seconds, found.significant) == (pytest.approx(400.0, abs=5.0), True)
    assert found.users_ci[1] < 0


def test_run_to_run_variation_decides_what_is_significant() -> None:
    calm, wild, guessed = (shifted(400.0, sd, df) for sd, df in ((50.0, math.inf), (250.0, math.inf), (90.0, 1)))
    assert (shifted(400.0).noise_source, calm.noise_source) == ("simulated", "runs")
    assert [each.significant for each in (calm, wild, guessed)] == [True, False, False]  # two runs say little
    assert wild.users_ci[1] - wild.users == pytest.approx(4.0 * 1.96 * math.sqrt(2) * 250.0, rel=0.01)


def test_users_added_in_steps_have_no_slope_and_no_shift() -> None:
    times = np.arange(0.0, 7000.0, 5.0)
    one, other = (shape(pd.Series(np.minimum(np.floor(times / s) * 500, 7000), times)) for s in (300, 200))
    assert (one.ramp, other.ramp, bc.shift(one, other)) == (None, None, None)


def test_a_gap_that_opens_later_is_no_shift() -> None:
    base, new = (shape(path((0, 0), (top_s, 8000), (6000, 8000))) for top_s in (2000, 4000))
    assert not sure(bc.shift(base, new)).significant
