"""What shape has a run: early bumps, ramp, waves, plateau, shutdown, and when was each?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.load.bumps import Beginning, FindBumps
from buildcompare.load.curve import LoadCurve, PrepareLoad
from buildcompare.load.plateau import MeasurePlateau, Plateau
from buildcompare.load.ramp_up import MeasureRamp, Ramp
from buildcompare.load.steady_state import plateau_start
from buildcompare.load.stop import Stop
from buildcompare.load.waves import FindWaves, Waves

PhaseName = Literal["early_bumps", "ramp", "bend", "waves", "plateau", "shutdown"]


@dataclass(frozen=True)
class Phase:
    """A stretch of a run, elapsed seconds. `bend` is what lies between the linear ramp and the waves."""

    name: PhaseName
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Shape:
    """The shape of one run. Everything in the unit of its curve.

    Attributes
    ----------
    proxy
        Whether the curve only follows the users: heights are then not users, and the threshold of a turn is a guess
        from the level and the noise.
    lost
        User-seconds lost against the ideal ramp, up to the end of the linear ramp; None where the start was not seen.
    delay_s
        How much later than the ideal ramp the run was at the end of its linear ramp.
    phases
        In their order, without overlap, from the first sample to the last number.
    """

    curve: LoadCurve
    proxy: bool
    beginning: Beginning
    ramp: Ramp | None
    waves: Waves
    plateau: Plateau | None
    lost: float | None
    delay_s: float | None
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class MeasureShape:
    """Measure the shape of a run's load curve, each part by its own analysis.

    Parameters
    ----------
    prepare, bumps, ramp, waves, plateau
        The settings of the parts.
    """

    prepare: PrepareLoad = field(default_factory=PrepareLoad)
    bumps: FindBumps = field(default_factory=FindBumps)
    ramp: MeasureRamp = field(default_factory=MeasureRamp)
    waves: FindWaves = field(default_factory=FindWaves)
    plateau: MeasurePlateau = field(default_factory=MeasurePlateau)
    reached: float = 0.98
    """A bounded test has its plateau from where this part of its level is reached ..."""
    plateau_s: float = 360.0
    """... which it held for this long, as for the steady window."""

    def __call__(
        self,
        load: pd.Series,
        stop: Stop,
        *,
        bounded: bool = False,
        proxy: bool = False,
        per_user: float | None = None,
        ideal_slope: float | None = None,
    ) -> Shape | None:
        """Measure `load` (over elapsed seconds), whose run stopped at `stop`; None where it shows no load.

        Parameters
        ----------
        proxy
            Whether `load` only follows the users (goroutines).
        per_user
            What a user adds to a proxy, where it is known.
        ideal_slope
            What the coordinator would add per second without any alert, where it is known (users_inc per rest_s);
            default: the slope of the lasting ramp.
        """
        curve = self.prepare(load, stop.at_s, proxy=proxy, per_user=per_user)
        if curve is None:
            return None
        beginning = self.bumps(curve)
        ramp = self.ramp(curve, beginning.onset_s)
        onset = float(curve.elapsed[0]) if beginning.onset_s is None else beginning.onset_s
        if bounded:
            top_s = plateau_start(curve.elapsed, curve.values, self.reached, self.plateau_s, proxy=proxy)
            waves = Waves(None, None, (), (), None, None, None, None)
            plateau = None if top_s is None else self.plateau(curve, stop.at_s, top_s)
        else:
            top_s = None
            waves = self.waves(curve, onset, tested_from_s=None if ramp is None else ramp.end_s)
            plateau = self.plateau(curve, stop.at_s, None if ramp is None else ramp.end_s)
        lost, delay = self._lost(curve, beginning, ramp, ideal_slope)
        marks = self._marks(curve, beginning, ramp, waves, plateau, top_s)
        return Shape(curve, proxy, beginning, ramp, waves, plateau, lost, delay, _phases(curve, marks, stop))

    def _lost(
        self, curve: LoadCurve, beginning: Beginning, ramp: Ramp | None, ideal_slope: float | None
    ) -> tuple[float | None, float | None]:
        """Area between the ideal ramp from the first sample and the curve, and the delay at the ramp's end."""
        if ramp is None or beginning.onset_s is None:
            return None, None
        slope = ramp.slope if ideal_slope is None else ideal_slope
        elapsed, values = curve.between(float(curve.elapsed[0]), ramp.end_s)
        ideal = np.minimum(values[0] + slope * (elapsed - elapsed[0]), max(float(values[-1]), float(values[0])))
        ahead = ideal - values
        area = float(((ahead[1:] + ahead[:-1]) / 2.0 * np.diff(elapsed)).sum())
        return area, float(elapsed[-1] - elapsed[0] - (values[-1] - values[0]) / slope)

    def _marks(
        self,
        curve: LoadCurve,
        beginning: Beginning,
        ramp: Ramp | None,
        waves: Waves,
        plateau: Plateau | None,
        top_s: float | None,
    ) -> list[tuple[PhaseName, float]]:
        """Where each phase starts."""
        first = float(curve.elapsed[0])
        marks: list[tuple[PhaseName, float]] = []
        if beginning.bumps:
            marks.append(("early_bumps", first))
        if ramp is not None or top_s is not None:
            start = beginning.onset_s if beginning.bumps and beginning.onset_s is not None else first
            marks.append(("ramp", start))
        if top_s is not None:
            return [*marks, ("plateau", top_s)]
        if ramp is not None and ramp.complete:
            marks.append(("bend", ramp.end_s))
        if waves.claimed and waves.onset_s is not None:
            marks.append(("waves", waves.onset_s))
        if plateau is not None and plateau.settled:
            marks.append(("plateau", plateau.window[0]))
        return marks


def _phases(curve: LoadCurve, marks: list[tuple[PhaseName, float]], stop: Stop) -> tuple[Phase, ...]:
    """Each phase until a later one starts; one that starts no earlier than a later phase is left out."""
    ends = [start for _, start in marks[1:]] + [stop.at_s]
    found = []
    for i, (name, start) in enumerate(marks):
        end = min(ends[i:])
        if end > start:
            found.append(Phase(name, start, end))
    if stop.shutdown and stop.end_s > stop.at_s:
        found.append(Phase("shutdown", stop.at_s, stop.end_s))
    return tuple(found)
