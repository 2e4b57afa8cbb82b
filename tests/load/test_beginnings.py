"""Where does the lasting ramp begin, after how many bumps, and how steep and how far behind is it?"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from buildcompare.load.phases import Beginning, bumps, ramp
from buildcompare.load.view import Shift, shift
from buildcompare.results.users import Bump
from shape_curves import BUMPY, names, path, prepared, sawtooth, shape
from support import sure


def test_an_early_bump_has_its_peak_depth_and_times() -> None:
    found = bumps(prepared(path(*BUMPY)))
    assert [*found.bumps] == [Bump(start_s=0.0, peak_s=110.0, end_s=200.0, peak_users=180.0, depth_users=180.0)]
    assert (found.bump_seconds, found.onset_s) == (200.0, 300.0)


@pytest.mark.parametrize(
    ("points", "count", "onset_s"),
    [
        (((0, 0), (30, 0), (1530, 6000), (4000, 6000)), 0, 30.0),
        (((0, 0), (150, 600), (200, 500), (1700, 6500), (4000, 6500)), 1, 200.0),
        (((0, 0), (500, 2000), (550, 1900), (1700, 6500), (4000, 6500)), 0, 0.0),
        (((0, 0), (500, 2000), (1000, 100), (2700, 6500), (4000, 6500)), 1, 1000.0),
        (((0, 800), (80, 1000), (120, 900), (1500, 7000), (4000, 7000)), 0, None),
        (((0, 800), (80, 1000), (320, 40), (2000, 7000), (4000, 7000)), 1, 320.0),
        (((0, 152), (50, 60), (80, 60), (1580, 6060), (4000, 6060)), 0, 80.0),  # v8.0: users of the run before
    ],
    ids=[
        "straight",
        "early",
        "far up",
        "far up, to the bottom",
        "opens in mid ramp",
        "opens, falls deep",
        "falls first",
    ],
)
def test_a_fall_is_an_early_bump_by_where_it_is(
    points: Sequence[tuple[float, float]], count: int, onset_s: float | None
) -> None:
    found = bumps(prepared(path(*points)))
    assert (len(found.bumps), found.onset_s) == (count, onset_s)


def test_a_recording_that_opens_in_mid_ramp_has_no_onset() -> None:
    found = shape(path((0, 2000), (1000, 6000), (4000, 6000)))
    assert (found.beginning.onset_s, found.lost, shift(found, found)) == (None, None, None)
    assert sure(found.ramp).slope == pytest.approx(4.0, rel=1e-3)


@pytest.mark.parametrize(("slope", "step_s"), [(1.0, 1.0), (1.0, 5.0), (2.0, 5.0), (4.0, 15.0)])
def test_a_slow_climb_in_mid_ramp_has_no_onset_either(slope: float, step_s: float) -> None:
    """Several samples lie within a step of the first one, and the second may lie below it."""
    rng = np.random.default_rng(8)
    climb = path((0, 600), (3000 / slope, 3600), (3000 / slope + 3000, 3600), step_s=step_s)
    climb += rng.normal(0.0, 2.0, len(climb))
    assert bumps(prepared(climb)).onset_s is None
    rest = pd.concat([path((0, 600), (60 - step_s, 600), step_s=step_s), climb.set_axis(climb.index + 60.0)])
    assert bumps(prepared(rest)).onset_s == pytest.approx(60.0, abs=max(10.0, step_s))


def test_a_hole_that_may_hide_a_bump_hides_the_onset() -> None:
    whole = path((0, 0), (75, 180), (200, 0), (2200, 4000), (4000, 4000))
    assert shape(whole).beginning.onset_s == pytest.approx(200, abs=10)
    hole = whole[(whole.index < 60) | (whole.index > 300)]
    assert shape(hole).beginning == Beginning((), None)
    later = whole[(whole.index < 900) | (whole.index > 1200)]  # far up the ramp there is no early bump
    assert shape(later).beginning == shape(whole).beginning
    short = whole[(whole.index < 150) | (whole.index > 210)]
    assert shape(short).beginning.onset_s is not None


def test_the_slope_of_the_ramp_and_its_end() -> None:
    found = sure(ramp(prepared(path((0, 0), (30, 0), (1530, 6000), (5000, 6000))), onset_s=30.0))
    assert (found.slope, found.end_s) == (pytest.approx(4.0, rel=1e-6), pytest.approx(1530.0, abs=10.0))
    assert (found.kink_s, found.complete) == (None, True)


@pytest.mark.parametrize(("after", "is_kink"), [(2.0, True), (8 / 6, True), (0.1, False), (3.9, False)])
def test_a_kink_is_where_the_slope_falls_to_a_part_of_it(after: float, is_kink: bool) -> None:
    curve = prepared(path((0, 0), (1000, 4000), (3000, 4000 + 2000 * after), (4000, 9000)))
    found = sure(ramp(curve, onset_s=0.0))
    assert found.kink_s == (pytest.approx(1000.0, abs=25.0) if is_kink else None)
    assert not is_kink or found.slope == pytest.approx(4.0, rel=1e-3)


def test_a_ramp_that_never_ends_is_not_complete() -> None:
    found = shape(path((0, 0), (3000, 6000)))
    assert (sure(found.ramp).complete, names(found), found.plateau) == (False, ["ramp"], None)


def test_time_lost_against_the_ideal_ramp() -> None:
    """A delay of 100 s at 4 users/s over a ramp to 4000 users: 400 users behind for 900 s, and two triangles."""
    found = shape(path((0, 0), (100, 0), (1100, 4000), (5000, 4000)), ideal_slope=4.0)
    assert found.lost == pytest.approx(4000.0 * 100.0, rel=0.03)


def shifted(by_s: float, sd_s: float | None = None, df: float = math.inf) -> Shift:
    base = shape(path((0, 0), (100, 0), (2100, 8000), (6000, 8000)))
    new = shape(path((0, 0), (100 + by_s, 0), (2100 + by_s, 8000), (6000, 8000)))
    return sure(shift(base, new, sd_s=sd_s, df=df))


def test_the_shift_is_the_gap_and_the_delay() -> None:
    found = shifted(400.0)
    assert (found.users, found.seconds) == (pytest.approx(-1600.0, abs=1.0), pytest.approx(400.0, abs=1.0))
    assert (found.window[0], found.significant) == (500.0, True)
    assert found.users_ci[0] < -1600 < found.users_ci[1] < 0
    assert shifted(-60.0).users == pytest.approx(240.0, abs=1.0)


def test_a_delay_is_significant_though_the_ramps_bend() -> None:
    """Where one build has begun to rest and the other not, the same delay is another number of users."""
    bent = pd.concat([path((0, 0), (900, 3600), (2300, 6400)), sawtooth(2305.0, 6320.0, 18)])
    later = pd.concat([path((0, 0), (395, 0)), bent.set_axis(bent.index + 400.0)])
    found = sure(shift(shape(bent), shape(later)))
    assert (found.seconds, found.significant) == (pytest.approx(400.0, abs=5.0), True)
    assert found.users_ci[1] < 0


def test_run_to_run_variation_decides_what_is_significant() -> None:
    calm, wild, guessed = (shifted(400.0, sd, df) for sd, df in ((50.0, math.inf), (250.0, math.inf), (90.0, 1)))
    assert (shifted(400.0).noise_source, calm.noise_source) == ("simulated", "runs")
    assert [each.significant for each in (calm, wild, guessed)] == [True, False, False]  # two runs say little
    assert wild.users_ci[1] - wild.users == pytest.approx(4.0 * 1.96 * math.sqrt(2) * 250.0, rel=0.01)


def test_a_gap_that_opens_later_is_no_shift() -> None:
    base, new = (shape(path((0, 0), (top_s, 8000), (6000, 8000))) for top_s in (2000, 4000))
    assert not sure(shift(base, new)).significant
