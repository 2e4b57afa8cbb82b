"""Where do waves begin, how long and how high are they, what is only red noise, and do two builds' waves differ?"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.signal import lfilter

import buildcompare as bc
from buildcompare.load.curve import Stop
from buildcompare.load.phases import PERIOD_DF, PERIOD_SD, compare_waves, red_noise_test
from curves import kinds, recording
from quiet import compared
from shape_curves import BUMPY, hunting, names, path, sawtooth, shape
from support import sure


def test_waves_have_onset_period_and_amplitude() -> None:
    found = shape(hunting())
    waves = found.waves
    assert waves.claimed
    assert (waves.onset_s, waves.onset_users) == (pytest.approx(1820.0, abs=5.0), pytest.approx(6080.0, abs=5.0))
    assert (waves.period_s, waves.amplitude) == (pytest.approx(200.0, abs=5.0), pytest.approx(75.0, abs=5.0))
    assert waves.regularity == pytest.approx(1.0, abs=0.05)
    test = sure(waves.test)
    assert test.period_s == pytest.approx(200.0, rel=0.1)
    assert test.share > 0.7
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
    found = shape(pd.concat([path(*climbing, (later + 265.0, 5080)), sawtooth(later + 270.0, 5000.0, 20)]))
    assert found.waves.onset_s == pytest.approx(onset_s, abs=5.0)


def test_falls_under_five_steps_are_no_waves() -> None:
    assert shape(hunting(fall=39.0)).waves.onset_s is None
    assert shape(hunting(fall=60.0)).waves.onset_s is not None
    stop = Stop(5600.0, 5600.0, shutdown=False)
    assert shape(hunting(fall=60.0), stop=stop, step=16.0).waves.onset_s is None


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_a_bend_in_red_noise_is_no_wave(phi: float) -> None:
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
    """Half the variance in an oscillation of 180 s, phi .9."""
    rng = np.random.default_rng(5)
    elapsed = np.arange(720) * 5.0
    found = 0
    for _ in range(50):
        noise = lfilter([1.0], [1.0, -0.9], rng.normal(size=1020))[300:] * math.sqrt(1 - 0.81)
        result = sure(red_noise_test(elapsed, noise + math.sqrt(2.0) * np.sin(2 * np.pi * elapsed / 180.0), 5.0))
        found += result.p_value <= 0.05 and abs(result.period_s / 180.0 - 1.0) < 0.1
    assert found >= 48


def test_waves_are_seen_in_a_sample_a_minute_and_their_height_is_not() -> None:
    whole = hunting(cycles=15, period_s=232.0, fall=400.0)
    elapsed = np.arange(0.0, whole.index[-1], 60.0)
    waves = shape(pd.Series(np.interp(elapsed, whole.index, whole), index=elapsed)).waves
    assert waves.claimed
    assert (waves.onset_s, waves.period_s) == (pytest.approx(1820.0, abs=60.0), pytest.approx(232.0, rel=0.05))
    assert waves.amplitude is None


def test_waves_too_fast_for_the_samples_have_no_period() -> None:
    """Of 100 s in a sample a minute, every fifth sample is alike: it looks like 150 s."""
    elapsed = np.arange(0.0, 7000.0, 60.0)
    fast = np.where(elapsed > 1900.0, 200.0 * np.cos(2.0 * np.pi * elapsed / 103.0), 0.0)
    waves = shape(pd.Series(np.minimum(4.0 * elapsed, 7600.0) + fast, index=elapsed)).waves
    assert waves.onset_s is not None
    assert (waves.period_s, waves.amplitude) == (None, None)


def test_uneven_cycles_of_few_samples_have_their_median_for_a_period() -> None:
    """Half of the distances are short and half are long: none is like their median."""
    elapsed = np.arange(0.0, 6000.0, 30.0)
    users = np.minimum(4.0 * elapsed, 7600.0)
    users[70 : 70 + 14 * 6 : 14] = users[73 : 73 + 14 * 5 : 14] = 8000.0
    waves = shape(pd.Series(users, index=elapsed)).waves
    assert (sorted(waves.cycles), waves.period_s) == ([90.0] * 5 + [330.0] * 5, 210.0)
    assert waves.regularity == pytest.approx(0.0, abs=0.2)


def test_waves_of_two_builds_are_compared_by_what_runs_of_one_build_differ_by() -> None:
    base = shape(hunting()).waves
    period, amplitude = map(sure, compare_waves(base, shape(hunting(30, 120.0, 160.0)).waves))
    assert (period.value, period.excludes_zero) == (pytest.approx(-80.0, abs=5.0), True)
    assert (amplitude.value, amplitude.excludes_zero) == (pytest.approx(80.0, abs=8.0), True)
    a_quarter, _ = compare_waves(base, shape(hunting(30, 150.0, 120.0)).waves)
    assert not sure(a_quarter).excludes_zero, "thirty even cycles each are still one run each"
    assert compare_waves(base, shape(path(*BUMPY, (6000, 6000))).waves) == (None, None)


def wavy(period_s: float, fall: float, seed: int) -> bc.Recording:
    rng = np.random.default_rng(seed)
    times, users, at = [0.0, 20.0, 1820.0], [0.0, 0.0, 6000.0], 1820.0
    for _ in range(25):
        cycle = period_s * rng.uniform(0.8, 1.2)
        times += [at + cycle / 3, at + cycle]
        users += [6000.0 - fall * rng.uniform(0.8, 1.2), 6000.0 + fall * rng.uniform(0.0, 0.2)]
        at += cycle
    return recording(number_of_connected_devices=np.interp(np.arange(0.0, at, 5.0), times, users))


def test_a_report_tells_waves_of_another_pace_with_their_interval() -> None:
    result = compared(wavy(170.0, 80.0, 1), wavy(280.0, 80.0, 2), type="unbounded")
    period = sure(result.ramp_up.wave_period_s)
    assert period.value == pytest.approx(110.0, abs=12.0)
    assert 0 < period.ci_low < period.value < period.ci_high
    found = kinds(result)["waves"]
    assert (found["differ"], found["wave_period_s"]) == (["wave_period_s"], period.model_dump())
    back = kinds(compared(wavy(280.0, 80.0, 2), wavy(170.0, 80.0, 1), type="unbounded"))["waves"]
    assert (back["differ"], back["wave_period_s"]["value"]) == (["wave_period_s"], pytest.approx(-period.value))
    alike = compared(wavy(190.0, 80.0, 3), wavy(190.0, 80.0, 4), type="unbounded")
    assert alike.ramp_up.wave_period_s is not None
    assert "waves" not in kinds(alike)


def test_an_interval_is_of_the_variation_between_runs() -> None:
    found = [compare_waves(waves_of([150.0] * count), waves_of([180.0] * count))[0] for count in (8, 80)]
    half = stats.t(PERIOD_DF).ppf(0.975) * PERIOD_SD * np.sqrt(2.0)
    for each in map(sure, found):
        bounds = 1.0 + np.array([each.ci_low, each.ci_high]) / 150.0
        assert np.log(bounds) == pytest.approx(np.log(180.0 / 150.0) + np.array([-half, half]))
    assert compare_waves(waves_of([150.0] * 7), waves_of([150.0] * 80)) == (None, None)


def waves_of(cycles: Sequence[float] | np.ndarray) -> bc.Waves:
    period = float(np.median(cycles))
    return bc.Waves(1800.0, 6000.0, (), tuple(float(each) for each in cycles), period, 80.0, 0.9, None)
