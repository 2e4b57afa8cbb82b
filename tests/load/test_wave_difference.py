"""Do the waves of two builds differ?"""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from buildcompare.load.phases import PERIOD_DF, PERIOD_SD, Waves, compare_waves
from buildcompare.recordings.recording import Recording
from curves import kinds, recording
from quiet import compared
from shape_curves import BUMPY, hunting, path, shape
from support import sure


def test_waves_of_two_builds_are_compared_by_what_runs_of_one_build_differ_by() -> None:
    base, faster = shape(hunting()).waves, shape(hunting(30, 120.0, 160.0)).waves
    period, amplitude = map(sure, compare_waves(base, faster))
    assert (period.value, period.excludes_zero) == (pytest.approx(-80.0, abs=5.0), True)
    assert (amplitude.value, amplitude.excludes_zero) == (pytest.approx(80.0, abs=8.0), True)
    assert faster.onset_s == pytest.approx(base.onset_s, abs=5.0)
    assert faster.onset_users == pytest.approx((base.onset_users or 0.0) + 80.0, abs=5.0)
    a_quarter, _ = compare_waves(base, shape(hunting(30, 150.0, 120.0)).waves)
    assert not sure(a_quarter).excludes_zero, "thirty even cycles each are still one run each"
    same, _ = compare_waves(base, base)
    assert not sure(same).excludes_zero
    few, _ = compare_waves(base, shape(hunting(6)).waves)
    assert few is None
    assert compare_waves(base, shape(path(*BUMPY, (6000, 6000))).waves) == (None, None)


def wavy(period_s: float, fall: float, seed: int) -> Recording:
    """Users that hunt with uneven cycles."""
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
    """With more or steadier cycles it does not shrink."""
    found = [compare_waves(waves_of([150.0] * count), waves_of([180.0] * count))[0] for count in (8, 80)]
    half = stats.t(PERIOD_DF).ppf(0.975) * PERIOD_SD * np.sqrt(2.0)
    for each in map(sure, found):
        bounds = 1.0 + np.array([each.ci_low, each.ci_high]) / 150.0
        assert np.log(bounds) == pytest.approx(np.log(180.0 / 150.0) + np.array([-half, half]))
    assert compare_waves(waves_of([150.0] * 7), waves_of([150.0] * 80)) == (None, None)


def waves_of(cycles: Sequence[float] | np.ndarray) -> Waves:
    period = float(np.median(cycles))
    return Waves(1800.0, 6000.0, (), tuple(float(each) for each in cycles), period, 80.0, 0.9, None)
