"""What is a load curve before its shape is measured? Falls, noise, restarts, and what carries no load."""

import math

import numpy as np
import pandas as pd
import pytest

from buildcompare.load.curve import Stop, prepare_load
from buildcompare.load.view import measure_shape
from shape_curves import path, prepared, shape
from support import sure


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
