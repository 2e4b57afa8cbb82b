"""Autocorrelated noise of known strength and memory."""

from __future__ import annotations

import math

import numpy as np

from buildcompare.recordings.recording import FloatArray


def ar1(rng: np.random.Generator, size: int, sd: float, time_s: float, step_s: float = 1.0) -> FloatArray:
    """A stationary AR(1) series: mean 0, standard deviation `sd`, correlation ``exp(-lag / time_s)``."""
    phi = math.exp(-step_s / time_s)
    shocks = rng.standard_normal(size) * sd
    shocks[1:] *= math.sqrt(1.0 - phi**2)
    value, values = 0.0, []
    for shock in shocks.tolist():
        value = phi * value + shock
        values.append(value)
    return np.array(values)
