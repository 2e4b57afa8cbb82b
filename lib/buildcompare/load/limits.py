"""What limited a build? Which of the coordinator's thresholds was crossed first, how often, and what was near its own.

An alert takes users away, so the threshold that is crossed while the load hunts around its level is what keeps it
there. The one that was crossed first may be another: caches are cold when a test begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Alert
from buildcompare.recordings.recording import FloatArray, Recording


@dataclass(frozen=True)
class AlertUse:
    """One alert in one run.

    Attributes
    ----------
    first_s
        Elapsed seconds at which it was first at its threshold; None where it never was.
    times
        How often it came to its threshold from below.
    share, share_steady
        The part of the samples at or above the threshold, of all under load and of those in the steady window.
    nearness
        What the query answered in the steady window (its 95th percentile) as a part of the threshold; NaN where it
        answered nothing.
    """

    alert: Alert
    threshold: float
    first_s: float | None
    times: int
    share: float
    share_steady: float
    nearness: float


@dataclass(frozen=True)
class Limits:
    """What the alerts say of one run, or of the runs of a build: `alerts` in the catalogue's order."""

    alerts: tuple[AlertUse, ...]

    @property
    def first(self) -> AlertUse | None:
        """The alert that was at its threshold first."""
        fired = [use for use in self.alerts if use.first_s is not None]
        return min(fired, key=lambda use: use.first_s or 0.0, default=None)

    @property
    def limited_by(self) -> AlertUse | None:
        """The alert that was at its threshold most often in the steady window; None where none was."""
        use = max(self.alerts, key=lambda use: use.share_steady, default=None)
        return use if use is not None and use.share_steady > 0.0 else None

    @property
    def near(self) -> tuple[AlertUse, ...]:
        """The alerts whose queries came near their thresholds in the steady window, nearest first."""
        near = [use for use in self.alerts if use.nearness >= NEAR]
        return tuple(sorted(near, key=lambda use: -use.nearness))


NEAR = 0.8
"""At this part of its threshold a query is near it: one more step of load, and it would be what limits."""


@dataclass(frozen=True)
class FindLimits:
    """Find what limited a run, from its alert series.

    Parameters
    ----------
    thresholds
        By alert, what the comparison states in place of the catalogue's threshold.
    quiet_s
        The coordinator does not alert in the first seconds of a test (`MinIntervalSec`).
    percentile
        What counts as having been near: above it are single samples.
    """

    alerts: Sequence[Alert]
    thresholds: Mapping[str, float]
    quiet_s: float = 60.0
    percentile: float = 95.0

    def __call__(self, recording: Recording, stop_s: float, steady: tuple[float, float] | None) -> Limits | None:
        """The use of each alert up to `stop_s`; None for a recording without alert series."""
        found = []
        for alert in self.alerts:
            elapsed, values = _answers(recording, alert.slug)
            loaded = (elapsed >= self.quiet_s) & (elapsed <= stop_s) & np.isfinite(values)
            if loaded.any():
                found.append(self._use(alert, elapsed[loaded], values[loaded], steady))
        return Limits(tuple(found)) if found else None

    def of_build(self, runs: Sequence[Limits | None]) -> Limits | None:
        """The runs of one build as one: means of the shares, the earliest first time; None without any."""
        known = [limits for limits in runs if limits is not None]
        uses = [[use for limits in known for use in limits.alerts if use.alert.slug == a.slug] for a in self.alerts]
        return Limits(tuple(_mean(same) for same in uses if same)) if known else None

    def _use(
        self, alert: Alert, elapsed: FloatArray, values: FloatArray, steady: tuple[float, float] | None
    ) -> AlertUse:
        threshold = self.thresholds.get(alert.slug, alert.threshold)
        fired = values >= threshold
        inside = (elapsed > steady[0]) & (elapsed <= steady[1]) if steady else np.zeros(elapsed.size, dtype=bool)
        near = math.nan
        if inside.any() and threshold > 0:
            near = float(np.percentile(values[inside], self.percentile)) / threshold
        return AlertUse(
            alert=alert,
            threshold=threshold,
            first_s=float(elapsed[int(np.argmax(fired))]) if fired.any() else None,
            times=int(fired[0]) + int(np.count_nonzero(fired[1:] & ~fired[:-1])),
            share=float(fired.mean()),
            share_steady=float(fired[inside].mean()) if inside.any() else 0.0,
            nearness=near,
        )


def _answers(recording: Recording, slug: str) -> tuple[FloatArray, FloatArray]:
    """What a query answered over elapsed seconds; the highest answer where it has several series."""
    curves = [recording.curve(each) for each in recording.series if each.role == "alert" and each.metric == slug]
    if not curves:
        return np.empty(0), np.empty(0)
    highest = pd.concat(curves).groupby(level=0).max()
    return highest.index.to_numpy(dtype=np.float64), highest.to_numpy(dtype=np.float64)


def _mean(uses: Sequence[AlertUse]) -> AlertUse:
    firsts = [use.first_s for use in uses if use.first_s is not None]
    nearness = [use.nearness for use in uses if math.isfinite(use.nearness)]
    return AlertUse(
        alert=uses[0].alert,
        threshold=uses[0].threshold,
        first_s=min(firsts, default=None),
        times=sum(use.times for use in uses),
        share=math.fsum(use.share for use in uses) / len(uses),
        share_steady=math.fsum(use.share_steady for use in uses) / len(uses),
        nearness=math.fsum(nearness) / len(nearness) if nearness else math.nan,
    )
