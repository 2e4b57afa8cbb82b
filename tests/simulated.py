"""Simulated runs that several tests look at, each made once, and their curves."""

from functools import cache

import numpy as np
import numpy.typing as npt

from buildcompare.recordings.recording import Recording
from loadsim import Coordinator, RunSettings, SimulatedRun, simulate_run
from loadsim.bundled import BundledRun, bundled_runs

USERS = "number-of-connected-devices"
UNBOUNDED = RunSettings()
BOUNDED = RunSettings(type="bounded", coordinator=Coordinator(max_users=5000))


@cache
def run(settings: RunSettings = UNBOUNDED, seed: int = 1) -> SimulatedRun:
    return simulate_run(settings, seed)


@cache
def bundled(file: str) -> tuple[BundledRun, SimulatedRun]:
    found = next(each for each in bundled_runs() if each.file.as_posix() == f"{file}.parquet")
    return found, found.simulate()


def values(recording: Recording, slug: str = USERS) -> npt.NDArray[np.float64]:
    series = recording.find(slug)
    assert series is not None
    return series.values


def peaks(users: npt.NDArray[np.float64], fall: float = 40.0) -> list[float]:
    """Maxima from which users fall by `fall` or more before they rise by as much again."""
    found, high, low, rising = [], users[0], users[0], True
    for value in users:
        if rising:
            high = max(high, value)
            if high - value >= fall:
                found.append(float(high))
                low, rising = value, False
        else:
            low = min(low, value)
            if value - low >= fall:
                high, rising = value, True
    return found


def early(users: npt.NDArray[np.float64], until: float = 600.0) -> npt.NDArray[np.float64]:
    """The curve before it first reaches `until` users."""
    return users[: int(np.flatnonzero(users >= until)[0])]
