"""What is a load curve, which phases follow each other whatever its samples miss, and what does another stop change?"""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from buildcompare.load.curve import Stop, find_stop, prepare_load
from buildcompare.load.view import measure_plateau, measure_shape, shift
from shape_curves import hunting, names, path, prepared, shape, simulated
from support import sure


def test_the_plateau_and_what_another_stop_would_change() -> None:
    load = prepared(path((0, 0), (1500, 6000), (8000, 6650)))
    plateau = sure(measure_plateau(load, 8000.0, 1500.0))
    assert (plateau.window, plateau.settled) == ((6200.0, 8000.0), True)
    assert (plateau.level, plateau.drift) == (pytest.approx(6560.0, abs=1.0), pytest.approx(0.1, rel=1e-6))
    settled_s = sure(plateau.settled_s)
    assert 3000.0 <= settled_s <= 3300.0
    _, before = load.between(settled_s - 1800.0, settled_s)
    assert plateau.earliest_level == pytest.approx(before.mean())
    assert abs(np.polyfit(np.arange(before.size) * 5.0, before, 1)[0]) < 0.2


def test_a_curve_that_still_climbs_has_not_settled() -> None:
    load = prepared(path((0, 0), (1500, 6000), (8000, 9250)))
    plateau = sure(measure_plateau(load, 8000.0, 1500.0))
    assert (plateau.settled, plateau.settled_s, plateau.earliest_level) == (False, None, None)
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
                shift(before, found)
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
    """Half of 400 users within 30 s is no more than the coordinator's own pace, and above a tenth of 2600."""
    assert prepared(path((0, 0), (110, 180), (130, 0), (300, 0), (1800, 6000))).resets == ()
    found = shape(path((0, 0), (100, 400), (150, 0), (240, 0), (890, 2600), (4000, 2600), step_s=step_s))
    assert (found.curve.resets, len(found.beginning.bumps), found.beginning.onset_s) == ((), 1, 240.0)
    assert sure(found.ramp).slope == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize("step_s", [5.0, 15.0, 30.0, 60.0])
def test_a_reset_ends_before_the_ramp_that_goes_on(step_s: float) -> None:
    """Whatever the step, who reconnects is told from whom the coordinator adds, by their pace."""
    curve = path((0, 0), (600, 2400), (601, 0), (700, 0), (740, 2400), (1880, 6960), (5000, 6960), step_s=step_s)
    ((start_s, end_s),) = shape(curve).curve.resets
    assert start_s == 600.0
    assert end_s <= 740.0 + step_s
