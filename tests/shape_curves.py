"""Load curves whose shape is in the call, and those of simulated runs: what tests of shapes share."""

import math
from functools import cache

import numpy as np
import pandas as pd

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.load.curve import find_stop, prepare_load
from buildcompare.load.view import Shape, measure_shape
from loadsim import ShapeTruth, random_settings, shape_truth, simulate_run
from support import sure

CATALOGUE = read_catalogue("mattermost")
USERS, GOROUTINES = "number-of-connected-devices", "goroutines-in-use"


def path(*points: tuple[float, float], step_s: float = 5.0) -> pd.Series:
    times, users = zip(*points, strict=True)
    elapsed = np.arange(times[0], times[-1] + step_s / 2, step_s)
    return pd.Series(np.interp(elapsed, times, users), index=elapsed)


def prepared(curve: pd.Series, stop_s: float = math.inf) -> bc.LoadCurve:
    return sure(prepare_load(curve, stop_s))


def shape(curve: pd.Series, **options: object) -> Shape:
    return sure(measure_shape(curve, **options))  # type: ignore[arg-type]


def names(found: Shape) -> list[str]:
    return [phase.name for phase in found.phases]


BUMPY = ((0, 0), (20, 0), (110, 180), (200, 0), (300, 0), (1800, 6000))
"""One early bump of 180 users, and a ramp of 4 users/s from 300 s."""


def sawtooth(start_s: float, level: float, cycles: int, period_s: float = 200.0, fall: float = 80.0) -> pd.Series:
    points = [
        (start_s + period_s * (i + part), level + up) for i in range(cycles) for part, up in ((0, fall), (1 / 3, 0))
    ]
    return path(*points)


def hunting(cycles: int = 20, period_s: float = 200.0, fall: float = 80.0) -> pd.Series:
    waves = sawtooth(1820.0, 6000.0, cycles, period_s, fall)
    return pd.concat([path(*BUMPY, (1815, 6060)), waves + 0.1 * (waves.index.to_numpy() - 1820.0)])


def recorded(recording: bc.Recording, slug: str = USERS) -> pd.Series:
    return recording.curve(sure(recording.find(slug)))


@cache
def simulated(seed: int, run_seed: int | None = None, slug: str = USERS) -> tuple[Shape, ShapeTruth]:
    settings = random_settings(seed)
    run = simulate_run(settings, seed if run_seed is None else run_seed)
    curve = recorded(run.recording, slug)
    proxy = slug != USERS
    stop = sure(find_stop(curve, fastest_fall=None if proxy else 8.0))
    per_user = settings.server.levels.goroutines_per_user if proxy else None
    step = settings.coordinator.users_dec
    return shape(curve, stop=stop, proxy=proxy, per_user=per_user, step=step), shape_truth(run.truth)


RUNS = range(5000, 5040)
"""40 of the runs that no setting was chosen on; `benchmarks/shapes.py` plays 500."""
