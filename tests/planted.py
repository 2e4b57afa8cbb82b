"""Faults that are planted into a valid bounded run, for tests and benchmarks of the watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from buildcompare.recordings.recording import FloatArray, Recording, Series

LOAD, RPS = "number-of-connected-devices", "rps"
Change = Callable[[Series, FloatArray], FloatArray | None]


def changed(run: Recording, change: Change) -> Recording:
    rows = [(each, change(each, each.times - run.window[0])) for each in run.series]
    return replace(run, series=tuple(replace(each, values=values) for each, values in rows if values is not None))


def scaled(run: Recording, factor: float, since_s: float, *slugs: str) -> Recording:
    return changed(
        run, lambda s, t: np.where((t >= since_s) & (not slugs or s.metric in slugs), factor, 1.0) * s.values
    )


def stalled(run: Recording, at_s: float) -> Recording:
    def flat(series: Series, elapsed: FloatArray) -> FloatArray:
        reached = float(np.interp(at_s, elapsed, series.values))
        return np.where(elapsed >= at_s, reached, series.values) if series.metric == LOAD else series.values

    return changed(run, flat)


def with_errors(run: Recording, per_s: float, since_s: float) -> Recording:
    like = next(each for each in run.series if each.metric == RPS)
    values = np.where(like.times - run.window[0] >= since_s, per_s, 0.0)
    return replace(
        run,
        series=(
            *run.series,
            replace(like, metric="errors", name="Errors", unit="errors/s", values=values, role="error"),
        ),
    )


def labelled(run: Recording, label: str) -> Recording:
    return replace(run, provenance={**run.provenance, "label": label})


def faults(
    ramp_s: float, held_s: float, begun_s: float = 0.0
) -> dict[str, tuple[float, Callable[[Recording], Recording]]]:
    return {
        "one agent of eleven lost": (held_s, lambda run: scaled(run, 10 / 11, held_s, LOAD)),
        "an agent lost on the ramp": (ramp_s, lambda run: scaled(run, 0.8, ramp_s, LOAD)),
        "all agents lost": (held_s, lambda run: scaled(run, 0.0, held_s, LOAD)),
        "a ramp that stalls": (ramp_s, lambda run: stalled(run, ramp_s)),
        "a ramp that does not begin": (begun_s, lambda run: scaled(run, 0.0, 0.0, LOAD)),
        "another build's label": (0.0, lambda run: labelled(run, "v8.8.0")),
        "errors from minute 5": (300.0, lambda run: with_errors(run, 5.0, 300.0)),
        "errors under load": (held_s, lambda run: with_errors(run, 20.0, held_s)),
        "milliseconds for seconds": (0.0, lambda run: scaled(run, 1000.0, 0.0, "avg-api-times", "p99-api-times")),
        "no more samples": (held_s, lambda run: scaled(run, np.nan, held_s)),
        "another script": (ramp_s, lambda run: scaled(run, 0.4, ramp_s, RPS)),
        "too many users": (held_s, lambda run: scaled(run, 1.2, held_s, LOAD)),
    }
