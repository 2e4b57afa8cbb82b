"""The shape of a run against curves whose shape is in the call, simulated runs with their truth, and published runs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from buildcompare.analysis.bumps import Beginning, FindBumps
from buildcompare.analysis.load import LoadCurve, PrepareLoad
from buildcompare.analysis.phases import MeasureShape, Shape
from buildcompare.analysis.plateau import MeasurePlateau
from buildcompare.analysis.ramp_up import MeasureRamp
from buildcompare.analysis.shift import DelayNoise, MeasureShift, Shift
from buildcompare.analysis.slopes import slope_interval
from buildcompare.analysis.stop import FindStop, Stop
from buildcompare.analysis.turning_points import falls
from buildcompare.analysis.wave_difference import CompareWaves
from buildcompare.analysis.waves import FindWaves, RedNoiseTest
from buildcompare.metrics import read_catalogue
from buildcompare.params import Run, Source
from buildcompare.simulate import Restart, simulate_run
from buildcompare.simulate.drawn import drawn_settings
from buildcompare.simulate.shape import ShapeTruth, shape_truth, shift_truth
from buildcompare.sources import record
from support import test_folders

CATALOGUE = read_catalogue("mattermost")
USERS, GOROUTINES = "number-of-connected-devices", "goroutines-in-use"


def path(*points: tuple[float, float], step_s: float = 5.0) -> pd.Series:
    """Straight lines through (elapsed seconds, users)."""
    times, users = zip(*points, strict=True)
    elapsed = np.arange(times[0], times[-1] + step_s / 2, step_s)
    return pd.Series(np.interp(elapsed, times, users), index=elapsed)


def prepared(curve: pd.Series, stop_s: float = math.inf) -> LoadCurve:
    load = PrepareLoad()(curve, stop_s)
    assert load is not None
    return load


def shape(curve: pd.Series, **options: object) -> Shape:
    stop = FindStop()(curve)
    assert stop is not None
    found = MeasureShape()(curve, stop, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def names(found: Shape) -> list[str]:
    return [phase.name for phase in found.phases]


BUMPY = ((0, 0), (20, 0), (110, 180), (200, 0), (300, 0), (1800, 6000))
"""One early bump of 180 users, and a ramp of 4 users/s from 300 s."""


def sawtooth(start_s: float, level: float, cycles: int, period_s: float = 200.0, fall: float = 80.0) -> pd.Series:
    """Waves that fall in a third of their period, around a level."""
    points = [
        (start_s + period_s * (i + part), level + up) for i in range(cycles) for part, up in ((0, fall), (1 / 3, 0))
    ]
    return path(*points)


def hunting(cycles: int = 20, period_s: float = 200.0, fall: float = 80.0) -> pd.Series:
    """A bumpy beginning, the ramp, then waves that slowly climb."""
    waves = sawtooth(1820.0, 6000.0, cycles, period_s, fall)
    return pd.concat([path(*BUMPY, (1815, 6060)), waves + 0.1 * (waves.index.to_numpy() - 1820.0)])


# ---- Turning points and the prepared curve --------------------------------------------------------------------------


def test_falls_are_counted_from_the_least_on() -> None:
    curve = path((0, 0), (100, 100), (140, 61), (200, 150), (250, 100), (300, 200))
    found = falls(curve.index.to_numpy(), curve.to_numpy(), 40.0)
    assert [(f.rise_s, f.peak_s, f.trough_s, f.depth) for f in found] == [(0.0, 200.0, 250.0, 50.0)]
    assert [f.depth for f in falls(curve.index.to_numpy(), curve.to_numpy(), 39.0)] == [39.0, 50.0]
    assert falls(np.empty(0), np.empty(0), 1.0) == []


def test_a_small_rise_does_not_part_a_fall() -> None:
    curve = path((0, 0), (100, 200), (150, 100), (160, 130), (200, 20), (300, 300))
    assert [f.depth for f in falls(curve.index.to_numpy(), curve.to_numpy(), 40.0)] == [180.0]


def test_noise_is_estimated_and_raises_the_threshold() -> None:
    rng = np.random.default_rng(1)
    curve = path((0, 0), (1000, 4000), (4000, 4000))
    assert prepared(curve).fall(5.0) == 40.0
    noisy = prepared(curve + rng.normal(0.0, 20.0, len(curve)))
    assert noisy.noise == pytest.approx(20.0, rel=0.15)
    assert noisy.fall(5.0) == pytest.approx(120.0, rel=0.15)


def test_what_carries_no_load_has_no_shape() -> None:
    rng = np.random.default_rng(2)
    assert PrepareLoad()(path((0, 0), (1000, 0)), math.inf) is None
    assert PrepareLoad()(path((0, 0), (1000, 79)), math.inf) is None
    assert PrepareLoad()(path((0, math.nan), (1000, math.nan)), math.inf) is None
    idle = pd.Series(20_000 + rng.normal(0, 40, 1400), np.arange(1400) * 5.0)
    assert PrepareLoad()(idle, math.inf, proxy=True) is None
    assert MeasureShape()(path((0, 0), (1000, 0)), Stop(1000.0, 1000.0, shutdown=False)) is None


def test_a_restart_is_a_reset_and_no_shape() -> None:
    curve = path((0, 0), (1500, 6000), (3000, 6000), (3005, 0), (3025, 0), (3085, 6000), (6000, 6000))
    found = shape(curve)
    assert found.curve.resets == ((3000.0, 3085.0),)
    assert found.beginning.bumps == ()
    assert found.waves.onset_s is None
    assert found.plateau is not None
    assert found.plateau.level == pytest.approx(6000.0)


def test_the_end_of_an_early_bump_is_no_reset() -> None:
    assert prepared(path((0, 0), (110, 180), (130, 0), (300, 0), (1800, 6000))).resets == ()


@pytest.mark.parametrize("step_s", [5.0, 15.0, 30.0])
def test_what_the_coordinator_takes_away_is_no_reset_in_a_small_test(step_s: float) -> None:
    """Half of 400 users within 30 s is no more than the coordinator's own pace, and above a tenth of 2600."""
    found = shape(path((0, 0), (100, 400), (150, 0), (240, 0), (890, 2600), (4000, 2600), step_s=step_s))
    assert found.curve.resets == ()
    assert len(found.beginning.bumps) == 1
    assert found.beginning.onset_s == 240.0
    assert found.ramp is not None
    assert found.ramp.slope == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("step_s", [5.0, 15.0, 30.0, 60.0])
def test_a_reset_ends_before_the_ramp_that_goes_on(step_s: float) -> None:
    """Whatever the step, who reconnects is told from whom the coordinator adds, by their pace."""
    curve = path((0, 0), (600, 2400), (601, 0), (700, 0), (740, 2400), (1880, 6960), (5000, 6960), step_s=step_s)
    ((start_s, end_s),) = shape(curve).curve.resets
    assert start_s == 600.0
    assert end_s <= 740.0 + step_s


def test_a_simulated_restart_leaves_the_beginning_alone() -> None:
    settings = drawn_settings(5)
    plain, disturbed = (simulate_run(replace(settings, injections=faults), 5) for faults in ((), (Restart(2500.0),)))
    one, other = (shape(recorded(run.recording)) for run in (plain, disturbed))
    assert len(other.curve.resets) == 1
    assert other.curve.resets[0][0] == pytest.approx(2500.0, abs=10.0)
    assert one.curve.resets == ()
    assert one.beginning == other.beginning


# ---- Early bumps and the onset --------------------------------------------------------------------------------------


def test_an_early_bump_has_its_peak_depth_and_times() -> None:
    found = FindBumps()(prepared(path(*BUMPY)))
    (bump,) = found.bumps
    assert (bump.peak_s, bump.peak, bump.depth) == (110.0, 180.0, 180.0)
    assert bump.end_s == 200.0
    assert found.bump_seconds == bump.duration_s == 200.0
    assert found.onset_s == 300.0


def test_a_straight_ramp_has_no_bumps() -> None:
    found = FindBumps()(prepared(path((0, 0), (30, 0), (1530, 6000), (4000, 6000))))
    assert (found.bumps, found.onset_s, found.bump_seconds) == ((), 30.0, 0)


def test_a_fall_far_up_the_ramp_is_no_early_bump() -> None:
    early = FindBumps()(prepared(path((0, 0), (150, 600), (200, 500), (1700, 6500), (4000, 6500))))
    assert len(early.bumps) == 1
    high = FindBumps()(prepared(path((0, 0), (500, 2000), (550, 1900), (1700, 6500), (4000, 6500))))
    assert (high.bumps, high.onset_s) == ((), 0.0)
    again = FindBumps()(prepared(path((0, 0), (500, 2000), (1000, 100), (2700, 6500), (4000, 6500))))
    assert (len(again.bumps), again.onset_s) == (1, 1000.0)


def test_a_recording_that_opens_in_mid_ramp_has_no_onset() -> None:
    found = shape(path((0, 2000), (1000, 6000), (4000, 6000)))
    assert found.beginning.onset_s is None
    assert found.ramp is not None
    assert found.ramp.slope == pytest.approx(4.0, rel=1e-3)
    assert (found.lost, found.delay_s) == (None, None)
    assert MeasureShift()(found, found) is None


@pytest.mark.parametrize(("slope", "step_s"), [(1.0, 1.0), (1.0, 5.0), (2.0, 5.0), (4.0, 15.0)])
def test_a_slow_climb_in_mid_ramp_has_no_onset_either(slope: float, step_s: float) -> None:
    """Several samples lie within a step of the first one, and the second may lie below it."""
    rng = np.random.default_rng(8)
    climb = path((0, 600), (3000 / slope, 3600), (3000 / slope + 3000, 3600), step_s=step_s)
    climb += rng.normal(0.0, 2.0, len(climb))
    assert FindBumps()(prepared(climb)).onset_s is None
    rest = pd.concat([path((0, 600), (60 - step_s, 600), step_s=step_s), climb.set_axis(climb.index + 60.0)])
    assert FindBumps()(prepared(rest)).onset_s == pytest.approx(60.0, abs=max(10.0, step_s))


def test_a_hole_that_may_hide_a_bump_hides_the_onset() -> None:
    whole = path((0, 0), (75, 180), (200, 0), (2200, 4000), (4000, 4000))
    assert shape(whole).beginning.onset_s == pytest.approx(200, abs=10)
    hole = whole[(whole.index < 60) | (whole.index > 300)]
    assert shape(hole).beginning == Beginning((), None)
    later = whole[(whole.index < 900) | (whole.index > 1200)]  # far up the ramp there is no early bump
    assert shape(later).beginning == shape(whole).beginning
    short = whole[(whole.index < 150) | (whole.index > 210)]
    assert shape(short).beginning.onset_s is not None


def test_in_mid_ramp_only_a_fall_to_the_bottom_is_an_early_bump() -> None:
    slight = FindBumps()(prepared(path((0, 800), (80, 1000), (120, 900), (1500, 7000), (4000, 7000))))
    assert (slight.bumps, slight.onset_s) == ((), None)
    deep = FindBumps()(prepared(path((0, 800), (80, 1000), (320, 40), (2000, 7000), (4000, 7000))))
    assert (len(deep.bumps), deep.onset_s) == (1, 320.0)


def test_a_curve_that_falls_from_its_first_sample_has_no_bump_there() -> None:
    """v8.0: 152 users in the first sample, left over from the run before."""
    found = FindBumps()(prepared(path((0, 152), (50, 60), (80, 60), (1580, 6060), (4000, 6060))))
    assert (found.bumps, found.onset_s) == ((), 80.0)


# ---- The ramp -------------------------------------------------------------------------------------------------------


def test_the_slope_of_the_ramp_and_its_end() -> None:
    load = prepared(path((0, 0), (30, 0), (1530, 6000), (5000, 6000)))
    ramp = MeasureRamp()(load, 30.0)
    assert ramp is not None
    assert ramp.slope == pytest.approx(4.0, rel=1e-6)
    assert ramp.end_s == pytest.approx(1530.0, abs=10.0)
    assert ramp.kink_s is None
    assert ramp.complete


@pytest.mark.parametrize(("after", "is_kink"), [(2.0, True), (8 / 6, True), (0.1, False), (3.9, False)])
def test_a_kink_is_where_the_slope_falls_to_a_part_of_it(after: float, is_kink: bool) -> None:
    ramp = MeasureRamp()(prepared(path((0, 0), (1000, 4000), (3000, 4000 + 2000 * after), (4000, 9000))), 0.0)
    assert ramp is not None
    if is_kink:
        assert ramp.kink_s == pytest.approx(1000.0, abs=25.0)
        assert ramp.slope_after == pytest.approx(after, rel=0.02)
        assert ramp.slope == pytest.approx(4.0, rel=1e-3)
    else:
        assert ramp.kink_s is None


def test_a_ramp_that_never_ends_is_not_complete() -> None:
    found = shape(path((0, 0), (3000, 6000)))
    assert found.ramp is not None
    assert not found.ramp.complete
    assert names(found) == ["ramp"]
    assert found.plateau is None


def test_the_interval_of_a_slope_covers_it() -> None:
    """Nominal 95 %, on AR(1) residuals whose memory is a third of a block."""
    rng = np.random.default_rng(3)
    elapsed = np.arange(0.0, 3000.0, 5.0)
    hits = 0
    for _ in range(300):
        noise = lfilter([1.0], [1.0, -0.6], rng.normal(0.0, 10.0, elapsed.size + 100))[100:]
        _, (low, high) = slope_interval(elapsed, 2.0 * elapsed + noise, 60.0)
        hits += low <= 2.0 <= high
    assert hits / 300 >= 0.91
    assert slope_interval(elapsed[:8], elapsed[:8], 60.0)[1] == (-math.inf, math.inf)


def test_time_lost_against_the_ideal_ramp() -> None:
    """A delay of 100 s at 4 users/s over a ramp to 4000 users: 400 users behind for 900 s, and two triangles."""
    found = shape(path((0, 0), (100, 0), (1100, 4000), (5000, 4000)), ideal_slope=4.0)
    assert found.delay_s == pytest.approx(100.0, abs=1.0)
    assert found.lost == pytest.approx(4000.0 * 100.0, rel=0.03)


# ---- Waves ----------------------------------------------------------------------------------------------------------


def test_waves_have_onset_period_and_amplitude() -> None:
    found = shape(hunting())
    waves = found.waves
    assert waves.claimed
    assert waves.onset_s == pytest.approx(1820.0, abs=5.0)
    assert waves.onset_users == pytest.approx(6080.0, abs=5.0)
    assert waves.period_s == pytest.approx(200.0, abs=5.0)
    assert waves.amplitude == pytest.approx(75.0, abs=5.0)
    assert waves.regularity == pytest.approx(1.0, abs=0.05)
    assert waves.test is not None
    assert waves.test.period_s == pytest.approx(200.0, rel=0.1)
    assert waves.test.share > 0.7
    assert names(found) == ["early_bumps", "ramp", "waves", "plateau"]


def test_two_falls_or_falls_far_apart_are_no_waves() -> None:
    two = pd.concat([path(*BUMPY, (1815, 6060)), sawtooth(1820.0, 6000.0, 2), path((2300, 6100), (6000, 6100))])
    assert shape(two).waves.onset_s is None
    rare = pd.concat([path(*BUMPY, (1815, 6060)), sawtooth(1820.0, 6000.0, 6, 700.0)])
    assert shape(rare).waves.onset_s is None


@pytest.mark.parametrize(("ramp_s", "onset_s"), [(1600.0, 2600.0), (800.0, 400.0)])
def test_what_the_beginning_leaves_on_the_ramp_is_no_wave_yet(ramp_s: float, onset_s: float) -> None:
    climbing = ((0, 0), (400, 1600), (430, 1550), (550, 1900), (580, 1850), (700, 2200), (730, 2150))
    later = 730.0 + ramp_s
    waves = sawtooth(later + 270.0, 5000.0, 20)
    found = shape(pd.concat([path(*climbing, (later + 265.0, 5080)), waves]))
    assert found.waves.onset_s == pytest.approx(onset_s, abs=5.0)


def test_falls_under_five_steps_are_no_waves() -> None:
    assert shape(hunting(fall=39.0)).waves.onset_s is None
    assert shape(hunting(fall=60.0)).waves.onset_s is not None
    larger = MeasureShape(prepare=PrepareLoad(step=16.0))
    found = larger(hunting(fall=60.0), Stop(5600.0, 5600.0, shutdown=False))
    assert found is not None
    assert found.waves.onset_s is None


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_red_noise_is_not_called_an_oscillation(phi: float) -> None:
    rng = np.random.default_rng(4)
    test, samples, runs = RedNoiseTest(), 720, 200
    claims = 0
    for _ in range(runs):
        noise = lfilter([1.0], [1.0, -phi], rng.normal(size=samples + 300))[300:]
        found = test(np.arange(samples) * 5.0, noise, 5.0)
        claims += found is not None and found.p_value <= 0.05
    assert claims / runs <= 0.07


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_a_bend_in_red_noise_is_no_wave(phi: float) -> None:
    """A ramp with a kink and a creep towards the equilibrium: the trend leaves its bends, and they are no waves."""
    rng = np.random.default_rng(6)
    ramp = path((0, 0), (1200, 4800), (2200, 6800))
    creep = pd.Series(0.0, np.arange(2205.0, 6000.0, 5.0))
    creep += 7600.0 - 800.0 * np.exp(-(creep.index.to_numpy() - 2200.0) / 900.0)
    users = pd.concat([ramp, creep])
    claims, runs = 0, 100
    for _ in range(runs):
        noise = lfilter([1.0], [1.0, -phi], rng.normal(size=len(users) + 300))[300:] * math.sqrt(1 - phi**2)
        claims += shape(users + 15.0 * noise).waves.claimed
    assert claims / runs <= 0.07


def test_an_overtone_is_not_taken_for_the_period() -> None:
    """Three waves of 200 s: too few for a period of theirs, and no period of a minute, however noisy the curve."""
    rng = np.random.default_rng(7)
    clean = pd.concat([path((0, 0), (1815, 7260)), sawtooth(1820.0, 6860.0, 4, 200.0, 400.0)])
    found = [shape(clean + rng.normal(0.0, 5.0, len(clean))).waves for _ in range(40)]
    assert all(waves.onset_s is not None for waves in found)
    assert {waves.period_s for waves in found if waves.period_s and abs(waves.period_s / 200.0 - 1.0) > 0.1} == set()


def test_an_oscillation_in_red_noise_is_found() -> None:
    """What the size above is worth: half the variance in an oscillation of 180 s, phi .9."""
    rng = np.random.default_rng(5)
    elapsed = np.arange(720) * 5.0
    found = 0
    for _ in range(50):
        noise = lfilter([1.0], [1.0, -0.9], rng.normal(size=1020))[300:] * math.sqrt(1 - 0.81)
        result = RedNoiseTest()(elapsed, noise + math.sqrt(2.0) * np.sin(2 * np.pi * elapsed / 180.0), 5.0)
        assert result is not None
        found += result.p_value <= 0.05 and abs(result.period_s / 180.0 - 1.0) < 0.1
    assert found >= 48


def test_too_little_and_constant_curves_are_not_tested() -> None:
    elapsed = np.arange(400) * 5.0
    assert RedNoiseTest()(elapsed[:50], np.sin(elapsed[:50]), 5.0) is None
    assert RedNoiseTest()(elapsed, np.full(400, 7000.0), 5.0) is None


def test_waves_of_two_builds_are_compared_cycle_by_cycle() -> None:
    base, faster = shape(hunting()).waves, shape(hunting(30, 150.0, 120.0)).waves
    difference = CompareWaves()(base, faster)
    assert difference is not None
    assert difference.period_s is not None
    assert difference.amplitude is not None
    assert difference.period_s.value == pytest.approx(-50.0, abs=5.0)
    assert difference.period_s.excludes_zero
    assert difference.amplitude.value == pytest.approx(40.0, abs=8.0)
    assert difference.amplitude.excludes_zero
    assert (difference.onset_s, difference.onset_users) == (pytest.approx(0.0, abs=5.0), pytest.approx(40.0, abs=5.0))
    same = CompareWaves()(base, base)
    assert same is not None
    assert same.period_s is not None
    assert not same.period_s.excludes_zero
    few = CompareWaves()(base, shape(hunting(6)).waves)
    assert few is not None
    assert few.period_s is None
    assert CompareWaves()(base, shape(path(*BUMPY, (6000, 6000))).waves) is None


def test_waves_of_identical_simulated_runs_are_seldom_called_different() -> None:
    called = []
    for seed in range(5000, 5025):
        sides = [simulated(seed, 100_000 + 2 * seed + i)[0] for i in range(2)]
        assert sides[0] is not None
        assert sides[1] is not None
        difference = CompareWaves()(sides[0].waves, sides[1].waves)
        if difference is not None and difference.period_s is not None and difference.amplitude is not None:
            called += [difference.period_s.excludes_zero, difference.amplitude.excludes_zero]
    assert len(called) >= 40
    assert np.mean(called) <= 0.1


# ---- The plateau ----------------------------------------------------------------------------------------------------


def test_the_plateau_and_what_another_stop_would_change() -> None:
    load = prepared(path((0, 0), (1500, 6000), (8000, 6650)))
    plateau = MeasurePlateau()(load, 8000.0, 1500.0)
    assert plateau is not None
    assert plateau.window == (6200.0, 8000.0)
    assert plateau.level == pytest.approx(6560.0, abs=1.0)
    assert plateau.drift == pytest.approx(0.1, rel=1e-6)
    assert plateau.per_minute == pytest.approx(6.0, rel=1e-6)
    assert plateau.settled is True
    assert plateau.settled_s is not None
    assert 3000.0 <= plateau.settled_s <= 3300.0
    _, before = load.between(plateau.settled_s - 1800.0, plateau.settled_s)
    assert plateau.earliest_level == pytest.approx(before.mean())
    assert abs(np.polyfit(np.arange(before.size) * 5.0, before, 1)[0]) < 0.2


def test_a_curve_that_still_climbs_has_not_settled() -> None:
    load = prepared(path((0, 0), (1500, 6000), (8000, 9250)))
    plateau = MeasurePlateau()(load, 8000.0, 1500.0)
    assert plateau is not None
    assert (plateau.settled, plateau.settled_s, plateau.earliest_level) == (False, None, None)
    short = MeasurePlateau()(load, 2200.0, 1500.0)
    assert short is not None
    assert short.settled is None
    assert MeasurePlateau()(load, 1700.0, 1500.0) is None


# ---- Phases ---------------------------------------------------------------------------------------------------------


def test_a_bounded_run_has_ramp_plateau_and_shutdown() -> None:
    found = shape(path((0, 0), (1250, 5000), (5400, 5000), (5420, 0)), bounded=True)
    assert names(found) == ["ramp", "plateau", "shutdown"]
    assert found.phases[1].start_s == pytest.approx(1225.0, abs=5.0)
    assert found.phases[1].end_s == found.phases[2].start_s == 5400.0
    assert not found.waves.claimed


def test_phases_follow_each_other_without_overlap() -> None:
    for seed in range(12):
        found, _ = simulated(seed)
        assert found is not None
        for one, other in pairwise(found.phases):
            assert one.start_s < one.end_s <= other.start_s


def test_missing_samples_do_not_change_the_shape() -> None:
    whole = hunting()
    holes = whole.copy()
    rng = np.random.default_rng(6)
    holes[rng.uniform(size=len(holes)) < 0.1] = math.nan
    one, other = shape(whole), shape(holes)
    assert len(one.beginning.bumps) == len(other.beginning.bumps)
    assert one.ramp is not None
    assert other.ramp is not None
    assert other.ramp.slope == pytest.approx(one.ramp.slope, rel=0.01)
    assert other.waves.onset_s == pytest.approx(one.waves.onset_s, abs=20.0)
    assert other.waves.period_s == pytest.approx(one.waves.period_s, rel=0.03)


@pytest.mark.parametrize("step_s", [1.0, 10.0, 15.0, 30.0])
def test_the_sampling_step_does_not_change_the_shape(step_s: float) -> None:
    whole = hunting()
    elapsed = np.arange(0.0, whole.index[-1], step_s)
    other = shape(pd.Series(np.interp(elapsed, whole.index, whole), index=elapsed))
    assert len(other.beginning.bumps) == 1
    # The last sample within a step of 8 users of the trough: 2 s into a ramp of 4 users/s.
    assert other.beginning.onset_s == pytest.approx(300.0, abs=max(step_s, 2.0))
    assert other.ramp is not None
    assert other.ramp.slope == pytest.approx(4.0, rel=0.02)
    assert other.waves.claimed
    assert other.waves.onset_s == pytest.approx(1820.0, abs=2 * step_s)
    assert other.waves.period_s == pytest.approx(200.0, rel=0.05)
    creep = 0.1 * 200.0 / 3.0  # how much the level climbs during a fall
    assert other.waves.amplitude is None or other.waves.amplitude == pytest.approx(80.0 - creep, rel=0.1)
    assert (other.waves.amplitude is None) == (step_s > 25.0)  # peaks lie between samples


def test_waves_are_seen_in_a_sample_a_minute_and_their_height_is_not() -> None:
    whole = hunting(cycles=15, period_s=232.0, fall=400.0)
    elapsed = np.arange(0.0, whole.index[-1], 60.0)
    waves = shape(pd.Series(np.interp(elapsed, whole.index, whole), index=elapsed)).waves
    assert waves.claimed
    assert waves.onset_s == pytest.approx(1820.0, abs=60.0)
    assert waves.period_s == pytest.approx(232.0, rel=0.05)
    assert waves.amplitude is None


def test_waves_too_fast_for_the_samples_have_no_period() -> None:
    """Of 100 s in a sample a minute, every fifth sample is alike: it looks like 150 s."""
    elapsed = np.arange(0.0, 7000.0, 60.0)
    fast = np.where(elapsed > 1900.0, 200.0 * np.cos(2.0 * np.pi * elapsed / 103.0), 0.0)
    waves = shape(pd.Series(np.minimum(4.0 * elapsed, 7600.0) + fast, index=elapsed)).waves
    assert waves.onset_s is not None
    assert waves.period_s is None
    assert waves.amplitude is None


def test_uneven_cycles_of_few_samples_have_their_median_for_a_period() -> None:
    """Half of the distances are short and half are long: none is like their median."""
    elapsed = np.arange(0.0, 6000.0, 30.0)
    users = np.minimum(4.0 * elapsed, 7600.0)
    users[70 : 70 + 14 * 6 : 14] = users[73 : 73 + 14 * 5 : 14] = 8000.0
    waves = shape(pd.Series(users, index=elapsed)).waves
    assert sorted(waves.cycles) == [90.0] * 5 + [330.0] * 5
    assert waves.period_s == 210.0
    assert waves.regularity == pytest.approx(0.0, abs=0.2)


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
        stop = FindStop()(curve)
        for options in ({}, {"bounded": True}, {"proxy": True}):
            found = None if stop is None else MeasureShape()(curve, stop, **options)  # type: ignore[arg-type]
            if found is not None:
                MeasureShift()(before, found)
                assert all(a.end_s <= b.start_s for a, b in pairwise(found.phases))
                assert all(phase.start_s < phase.end_s for phase in found.phases)


# ---- The shift ------------------------------------------------------------------------------------------------------


def shifted(by_s: float, run_to_run: DelayNoise | None = None) -> Shift:
    base = shape(path((0, 0), (100, 0), (2100, 8000), (6000, 8000)))
    new = shape(path((0, 0), (100 + by_s, 0), (2100 + by_s, 8000), (6000, 8000)))
    shift = MeasureShift()(base, new, run_to_run)
    assert shift is not None
    return shift


def test_the_shift_is_the_gap_and_the_delay() -> None:
    shift = shifted(400.0)
    assert shift.users == pytest.approx(-1600.0, abs=1.0)
    assert shift.seconds == pytest.approx(400.0, abs=1.0)
    assert shift.window[0] == 500.0
    assert shift.drift == pytest.approx(0.0, abs=1e-6)
    assert shift.significant
    assert shift.users_ci[0] < -1600 < shift.users_ci[1] < 0
    back = shifted(-60.0)
    assert back.users == pytest.approx(240.0, abs=1.0)


def test_a_delay_is_significant_though_the_ramps_bend() -> None:
    """Where one build has begun to rest and the other not, the same delay is another number of users."""
    bent = pd.concat([path((0, 0), (900, 3600), (2300, 6400)), sawtooth(2305.0, 6320.0, 18)])
    later = pd.concat([path((0, 0), (395, 0)), bent.set_axis(bent.index + 400.0)])
    shift = MeasureShift()(shape(bent), shape(later))
    assert shift is not None
    assert shift.seconds == pytest.approx(400.0, abs=5.0)
    assert shift.significant
    assert shift.users_ci[1] < 0


def test_run_to_run_variation_decides_what_is_significant() -> None:
    assert shifted(400.0).prior == "simulated"
    calm, wild, guessed = (
        shifted(400.0, DelayNoise(sd, df)) for sd, df in ((50.0, math.inf), (250.0, math.inf), (90.0, 1))
    )
    assert calm.prior == "runs"
    assert calm.significant
    assert not wild.significant
    assert not guessed.significant  # two runs say little about variation
    assert wild.seconds_ci[1] - wild.seconds == pytest.approx(1.96 * math.sqrt(2) * 250.0, rel=0.01)


def test_a_gap_that_opens_later_is_no_shift() -> None:
    base = shape(path((0, 0), (2000, 8000), (6000, 8000)))
    new = shape(path((0, 0), (4000, 8000), (6000, 8000)))
    shift = MeasureShift()(base, new)
    assert shift is not None
    assert shift.drift == pytest.approx(-2.0, rel=0.01)
    assert not shift.significant


# ---- Simulated runs -------------------------------------------------------------------------------------------------


def recorded(recording: object, slug: str = USERS) -> pd.Series:
    series = recording.find(slug)  # type: ignore[attr-defined]
    assert series is not None
    curve: pd.Series = recording.curve(series)  # type: ignore[attr-defined]
    return curve


@cache
def simulated(seed: int, run_seed: int | None = None, slug: str = USERS) -> tuple[Shape | None, ShapeTruth]:
    settings = drawn_settings(seed)
    run = simulate_run(settings, seed if run_seed is None else run_seed)
    curve = recorded(run.recording, slug)
    proxy = slug != USERS
    stop = FindStop(fastest_fall=None if proxy else 8.0)(curve)
    assert stop is not None
    per_user = settings.server.levels.goroutines_per_user if proxy else None
    measure = MeasureShape(prepare=PrepareLoad(step=settings.coordinator.users_dec))
    return measure(curve, stop, proxy=proxy, per_user=per_user), shape_truth(run.truth)


RUNS = range(5000, 5040)
"""40 of the runs that no setting was chosen on; `benchmarks/shapes.py` plays 500."""


def test_simulated_shapes_are_what_really_happened() -> None:
    right: dict[str, list[bool]] = {name: [] for name in ("onset", "bumps", "slope", "waves", "period", "amplitude")}
    for seed in RUNS:
        found, truth = simulated(seed)
        assert found is not None
        waves, ramp, onset = found.waves, found.ramp, found.beginning.onset_s
        right["onset"].append(onset is not None and abs(onset - truth.onset_s) <= 20.0)
        right["bumps"].append(len(found.beginning.bumps) == truth.early_bumps)
        if ramp is not None and math.isfinite(ramp.slope_ci[0]):
            true = truth.slope_at((ramp.start_s + ramp.end_s) / 2)
            right["slope"].append(ramp.slope == pytest.approx(true, rel=0.05))
        if truth.wave_onset_s is not None and truth.wave_period_s is not None:
            right["waves"].append(waves.onset_s is not None and abs(waves.onset_s - truth.wave_onset_s) <= 200.0)
            right["period"].append(waves.period_s == pytest.approx(truth.wave_period_s, rel=0.1))
            right["amplitude"].append(waves.amplitude == pytest.approx(truth.wave_amplitude_users, rel=0.1))
    for name, found_right in right.items():
        assert len(found_right) >= 34, name
        assert np.mean(found_right) >= 0.95, (name, found_right)


def test_the_shift_of_simulated_runs_is_true_and_chance_is_not_significant() -> None:
    significant, right = [], []
    for seed in range(5000, 5025):
        sides = [simulated(seed, 100_000 + 2 * seed + i) for i in range(2)]
        shapes = [found for found, _ in sides if found is not None]
        assert len(shapes) == 2
        shift = MeasureShift()(*shapes)
        true = shift_truth(*(truth for _, truth in sides))
        if shift is not None and true is not None:
            significant.append(shift.significant)
            right.append(abs(shift.users - true) <= max(20.0, 0.05 * abs(true)))
    assert len(right) >= 20
    assert np.mean(right) >= 0.95
    assert sum(significant) <= 1


def test_a_kink_is_at_the_first_alert() -> None:
    """Expected where the first alert comes late enough to see the faster ramp before it."""
    expected, errors, ratios = [], [], []
    for seed in range(5000, 5080):
        found, truth = simulated(seed)
        assert found is not None
        if found.ramp is None:
            continue
        if found.ramp.kink_s is not None:
            errors.append(found.ramp.kink_s - truth.first_alert_s)
            # Measured over what really happened after it: alerts on the way make it less than the rule's pace.
            seconds = np.arange(int(found.ramp.kink_s) + 45, int(found.ramp.kink_s) + 45 + 240)
            true = np.polyfit(seconds, truth.connected[seconds], 1)[0]
            after = found.ramp.slope_after
            assert after is not None
            ratios.append(after / true)
            assert after <= 1.02 * truth.slopes[1]
        if truth.first_alert_s > found.ramp.start_s + 60.0 and truth.slopes[0] > 1.2 * truth.slopes[1]:
            expected.append(found.ramp.kink_s is not None)
    assert len(errors) >= 8
    assert np.abs(errors).max() <= 30.0
    assert np.median(np.abs(np.array(ratios) - 1.0)) <= 0.05
    assert np.mean(expected) >= 0.8


def test_goroutines_tell_the_beginning_and_the_ramp() -> None:
    bumps, slopes = [], []
    for seed in range(5000, 5020):
        found, truth = simulated(seed, None, GOROUTINES)
        assert found is not None
        bumps.append(abs(len(found.beginning.bumps) - truth.early_bumps) <= 1)
        if found.ramp is not None and math.isfinite(found.ramp.slope_ci[0]):
            true = 3.01 * truth.slope_at((found.ramp.start_s + found.ramp.end_s) / 2)
            slopes.append(found.ramp.slope == pytest.approx(true, rel=0.05))
    assert np.mean(bumps) >= 0.85
    assert np.mean(slopes) >= 0.9


# ---- Published runs -------------------------------------------------------------------------------------------------


@cache
def published(folder: Path, side: str) -> Shape:
    recording = record(Run(recording=str(folder / f"{side}.csv.gz")), Source(kind="recorded"), CATALOGUE)
    return shape(recorded(recording))


@pytest.mark.parametrize(
    ("db", "side", "bumps", "onset", "waves"),
    [
        ("postgresql", "base", (1, 1), 210, 2720),
        ("postgresql", "new", (2, 4), 1090, 4045),
        ("mysql", "base", (1, 1), 250, 2915),
        ("mysql", "new", (2, 4), 905, 3440),
    ],
)
def test_the_shapes_of_v10_4(real: Path, db: str, side: str, bumps: tuple[int, int], onset: int, waves: int) -> None:
    found = published(real / f"comparisons/v10.4/{db}_unbounded", side)
    assert bumps[0] <= len(found.beginning.bumps) <= bumps[1]
    assert found.beginning.onset_s == pytest.approx(onset, abs=90.0)
    assert found.waves.onset_s == pytest.approx(waves, abs=180.0)
    assert found.waves.claimed
    assert found.ramp is not None
    assert found.ramp.slope == pytest.approx(2.1, rel=0.08)


@pytest.mark.parametrize(("db", "behind"), [("postgresql", -1600), ("mysql", -900)])
def test_the_shift_of_v10_4(real: Path, db: str, behind: int) -> None:
    folder = real / f"comparisons/v10.4/{db}_unbounded"
    shift = MeasureShift()(published(folder, "base"), published(folder, "new"))
    assert shift is not None
    assert shift.users == pytest.approx(behind, rel=0.1)
    assert shift.users_ci[0] < behind < shift.users_ci[1]
    assert shift.significant


def test_the_early_bump_came_with_a_data_set_and_went_with_it(real: Path) -> None:
    bumpy = ("v9.2", "v9.5", "v9.6", "v9.8", "v9.10", "v10.1", "v10.4")
    there, elsewhere = [], []
    for folder in test_folders(real):
        if folder.name.endswith("unbounded"):
            for side in ("base", "new"):
                bumps = published(folder, side).beginning.bumps
                (there if folder.parent.name in bumpy else elsewhere).append(bool(bumps))
    assert len(there) == 28
    assert sum(there) >= 26
    assert len(elsewhere) == 40
    assert sum(elsewhere) == 0


@pytest.mark.parametrize(("config", "last_part", "period"), [("1.1", 1.0, (145, 180)), ("1.3", 1 / 3, (110, 170))])
@pytest.mark.parametrize("replicate", [1, 2, 3])
def test_the_waves_of_the_ceiling_runs(
    real: Path, config: str, last_part: float, period: tuple[int, int], replicate: int
) -> None:
    recording = record(
        Run(report=str(real / f"ceiling/v1-{config}-{replicate}.out.gz")), Source(kind="ltctl"), CATALOGUE
    )
    curve = recorded(recording)
    stop = FindStop()(curve)
    assert stop is not None
    found = shape(curve).waves
    part = prepared(curve, stop.at_s)
    waves = FindWaves()(part, max(found.onset_s or 0.0, (1.0 - last_part) * stop.at_s))
    assert waves.period_s is not None
    assert period[0] <= waves.period_s <= period[1]


def test_identical_published_runs_show_no_significant_shift(real: Path) -> None:
    """Three runs of each configuration in which nothing changed; v2 by its goroutines."""
    runs = pd.read_csv(real / "ceiling/runs.csv").query("test_type == 'unbounded'")
    significant = []
    for _, group in runs.groupby(["suite", "config"]):
        shapes = []
        for file in group["file"]:
            if (real / "ceiling" / file).stat().st_size < 100:  # one was published empty
                continue
            recording = record(Run(report=str(real / "ceiling" / file)), Source(kind="ltctl"), CATALOGUE)
            users = recording.find(USERS)
            proxy = users is None
            curve = recorded(recording, GOROUTINES if proxy else USERS)
            stop = FindStop(fastest_fall=None if proxy else 4.0)(curve)
            assert stop is not None
            shapes.append(MeasureShape()(curve, stop, proxy=proxy, per_user=3.08 if proxy else None))
        for i, one in enumerate(shapes):
            for other in shapes[i + 1 :]:
                shift = MeasureShift()(one, other) if one is not None and other is not None else None
                if shift is not None:
                    significant.append(shift.significant)
    assert len(significant) >= 20
    assert sum(significant) <= 1
