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
