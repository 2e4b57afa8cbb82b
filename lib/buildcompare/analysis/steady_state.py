"""Over which window may two runs be compared? Where the load no longer changes by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from buildcompare.analysis.stop import Stop
from buildcompare.recording import FloatArray

Method = Literal["target_reached", "last_30_minutes", "mser5", "none"]


@dataclass(frozen=True)
class SteadyState:
    """The steady window of one run, in elapsed seconds; None where there is none, and why."""

    window: tuple[float, float] | None
    method: Method
    reason: str | None = None


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

    def bounded(self, load: pd.Series, stop: Stop) -> SteadyState:
        """From the plateau's start to `stop`; `load` in users (or a proxy) over elapsed seconds."""
        curve = load[np.isfinite(load.to_numpy()) & (load.index <= stop.at_s)]
        level = float(np.median(curve[curve.index >= stop.at_s / 2].to_numpy())) if len(curve) else 0.0
        reached = curve.index[curve.to_numpy() >= self.plateau * level]
        if not level > 0 or reached.empty:
            return SteadyState(None, "none", "the load curve never rises")
        return self._checked(float(reached[0]) + self.settle_s, stop.at_s, "target_reached")

    def unbounded(self, stop: Stop, first_s: float) -> SteadyState:
        """The last 30 minutes before `stop`, of a run recorded from `first_s` on."""
        start = max(stop.at_s - self.unbounded_s, first_s + self.settle_s)
        return self._checked(start, stop.at_s, "last_30_minutes")

    def without_load(self, curve: pd.Series) -> SteadyState:
        """MSER-5 on `curve`: means of 5, cut where the standard error of the rest is smallest."""
        finite = curve[np.isfinite(curve.to_numpy())]
        batches = finite.to_numpy(dtype=np.float64)[: finite.size // 5 * 5].reshape(-1, 5).mean(axis=1)
        if batches.size < 10:
            return SteadyState(None, "none", "too few samples")
        cut = _mser_cut(batches)
        if cut >= batches.size // 2 - 1:
            return SteadyState(None, "none", "no steady state: the level still moves in the second half")
        return self._checked(float(finite.index[5 * cut]), float(finite.index[-1]), "mser5")

    def _checked(self, start: float, end: float, method: Method) -> SteadyState:
        if end - start < self.shortest_s:
            return SteadyState(None, "none", f"only {max(end - start, 0) / 60:.0f} minutes of steady load")
        return SteadyState((start, end), method)


def _mser_cut(batches: FloatArray) -> int:
    """Number of leading batches to drop, searched within the first half."""
    size = batches.size
    reverse = batches[::-1]
    counts = np.arange(1, size + 1)
    sums, squares = np.cumsum(reverse), np.cumsum(reverse**2)
    variances = np.maximum(squares / counts - (sums / counts) ** 2, 0.0)
    scores = (variances / counts)[::-1]  # scores[d]: squared standard error after dropping d batches
    return int(np.argmin(scores[: size // 2]))
