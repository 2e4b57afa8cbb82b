"""Over which window may two runs be compared? Where the load no longer changes by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.load.stop import Stop
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.base import Reason
from buildcompare.results.codes import ReasonCode

Method = Literal["target_reached", "last_30_minutes", "mser5", "none"]


@dataclass(frozen=True)
class SteadyState:
    """The steady window of one run, in elapsed seconds; None where there is none, and why."""

    window: tuple[float, float] | None
    method: Method
    reason: Reason | None = None


@dataclass(frozen=True)
class FindSteadyState:
    """Find the steady window of a run from its load curve.

    Bounded tests: from where the load has reached its plateau to the stop. Unbounded tests: the last 30
    minutes before the stop, over which the load-test tool counts the supported users. Without a load curve:
    MSER-5 (White 1997) on a curve that follows the load.

    Parameters
    ----------
    settle_s
        Added after the plateau is reached: metrics are rates over one minute, so their first minute there
        still holds samples of the ramp.
    """

    plateau: float = 0.98
    """The plateau is reached at this part of its level."""
    settle_s: float = 60.0
    unbounded_s: float = 1800.0
    shortest_s: float = 300.0
    """A shorter window is none: it would hold five independent samples of a one-minute rate."""

    def bounded(self, load: pd.Series, stop: Stop, *, proxy: bool = False) -> SteadyState:
        """From the plateau's start to `stop`; `load` in users (or a `proxy`) over elapsed seconds."""
        curve = load[np.isfinite(load.to_numpy()) & (load.index <= stop.at_s)]
        elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
        reached = plateau_start(elapsed, values, self.plateau, self.shortest_s + self.settle_s, proxy=proxy)
        if reached is None:
            return SteadyState(None, "none", Reason(code=ReasonCode.NEVER_RISES))
        return self._checked(reached + self.settle_s, stop.at_s, "target_reached")

    def unbounded(self, stop: Stop, first_s: float) -> SteadyState:
        """The last 30 minutes before `stop`, of a run recorded from `first_s` on."""
        start = max(stop.at_s - self.unbounded_s, first_s + self.settle_s)
        return self._checked(start, stop.at_s, "last_30_minutes")

    def without_load(self, curve: pd.Series) -> SteadyState:
        """MSER-5 on `curve`: means of 5, cut where the standard error of the rest is smallest."""
        finite = curve[np.isfinite(curve.to_numpy())]
        batches = finite.to_numpy(dtype=np.float64)[: finite.size // 5 * 5].reshape(-1, 5).mean(axis=1)
        if batches.size < 10:
            return SteadyState(None, "none", Reason(code=ReasonCode.FEW_SAMPLES))
        cut = _mser_cut(batches)
        if cut >= batches.size // 2 - 1:
            return SteadyState(None, "none", Reason(code=ReasonCode.STILL_MOVES))
        return self._checked(float(finite.index[5 * cut]), float(finite.index[-1]), "mser5")

    def _checked(self, start: float, end: float, method: Method) -> SteadyState:
        if end - start < self.shortest_s:
            return SteadyState(None, "none", Reason(code=ReasonCode.SHORT, minutes=max(end - start, 0) / 60))
        return SteadyState((start, end), method)


def plateau_start(
    elapsed: FloatArray, values: FloatArray, part: float, shortest_s: float, *, proxy: bool = False
) -> float | None:
    """When a bounded run's load first stood at this part of its plateau; None where it never rises.

    The plateau is what the load was at or above for `shortest_s` in all, whatever it lost later: the median of a run
    that loses agents one by one lies on its ramp. A run that ends as it arrives has no plateau of that length; its
    start is where the last minute's level was reached. What stands in for the users also rises by itself for a while,
    which is no plateau: of a proxy the median of the second half must do.

    Parameters
    ----------
    elapsed, values
        Finite samples under load, elapsed seconds and the curve's unit, shape (n,).
    """
    level = sustained(elapsed, values, shortest_s)
    if not level > 0:
        return None
    if proxy:
        level = float(np.median(values[elapsed >= elapsed[-1] / 2]))
    arrived = float(np.median(values[elapsed >= elapsed[-1] - ARRIVAL_S]))
    if elapsed[int(np.argmax(values >= part * arrived))] > elapsed[-1] - shortest_s:
        level = max(level, arrived)
    return float(elapsed[int(np.argmax(values >= part * level))])


ARRIVAL_S = 60.0
"""What a load must have lasted, to be told from a spike."""


def sustained(elapsed: FloatArray, values: FloatArray, seconds: float) -> float:
    """The highest load that a run was at or above for this long in all; of a shorter run its lowest, of none 0."""
    if values.size < 2:
        return 0.0
    ordered = np.sort(values)
    count = max(round(seconds / float(np.median(np.diff(elapsed)))), 1)
    return float(ordered[-min(count, ordered.size)])


def _mser_cut(batches: FloatArray) -> int:
    """Number of leading batches to drop, searched within the first half."""
    size = batches.size
    reverse = batches[::-1]
    counts = np.arange(1, size + 1)
    sums, squares = np.cumsum(reverse), np.cumsum(reverse**2)
    variances = np.maximum(squares / counts - (sums / counts) ** 2, 0.0)
    scores = (variances / counts)[::-1]  # scores[d]: squared standard error after dropping d batches
    return int(np.argmin(scores[: size // 2]))
