"""Find what limited a build: which of the coordinator's thresholds were crossed, how often, and which were near.

An alert takes users away, so the threshold that is crossed while the load hunts around its level is what keeps it
there. The one that was crossed first may be another: caches are cold when a test begins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Alert, Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.view import Views
from buildcompare.recordings.recording import Recording
from buildcompare.results.codes import SIDES, Side
from buildcompare.results.load import AlertResult, LimitedBy
from buildcompare.text.reasons import limited_words

QUIET_S = 60.0  # The coordinator does not alert in the first seconds of a test (`MinIntervalSec`)
PERCENTILE = 95.0  # What counts as having been near: above it are single samples


def limited_by(test: Test, views: Views, catalogue: Catalogue, coordinator: Coordinator) -> LimitedBy | None:
    """What limited each build of an unbounded test; None where no alert's query was recorded."""
    if test.type != "unbounded":
        return None
    found: list[AlertResult] = []
    for side in SIDES:
        runs = [
            alerts_of_run(catalogue.alerts, coordinator.thresholds, view.recording, view.stop.at_s, view.steady.window)
            for view in views[side]
            if view.stop is not None
        ]
        found += alerts_of_build(catalogue.alerts, runs, side)
    limits = LimitedBy(alerts=found)
    words: dict[str, str] = {use.build: limited_words(limits, use.build, catalogue.alerts) for use in found}
    return limits.model_copy(update=words) if found else None


def alerts_of_run(
    alerts: Sequence[Alert],
    thresholds: Mapping[str, float],
    recording: Recording,
    stop_s: float,
    steady: tuple[float, float] | None,
) -> list[AlertResult]:
    """What each alert did in one run up to `stop_s`, in the order of `alerts`; none without alert series.

    Parameters
    ----------
    thresholds
        By alert, what the comparison states in place of the catalogue's threshold.
    """
    found = []
    for alert in alerts:
        curves = [recording.curve(s) for s in recording.series if s.role == "alert" and s.metric == alert.slug]
        if not curves:
            continue
        answers = pd.concat(curves).groupby(level=0).max()  # the highest of several series
        answers = answers[(answers.index >= QUIET_S) & (answers.index <= stop_s) & np.isfinite(answers.to_numpy())]
        if not answers.empty:
            found.append(_use(alert.slug, thresholds.get(alert.slug, alert.threshold), answers, steady))
    return found


def _use(slug: str, threshold: float, answers: pd.Series, steady: tuple[float, float] | None) -> AlertResult:
    fired = answers.to_numpy() >= threshold
    start, end = steady or (math.inf, -math.inf)
    inside = np.asarray((answers.index > start) & (answers.index <= end))
    near = inside.any() and threshold > 0
    return AlertResult(
        build="base",
        alert=slug,
        threshold=threshold,
        first_s=float(answers.index[int(np.argmax(fired))]) if fired.any() else None,
        times=int(fired[0]) + int(np.count_nonzero(fired[1:] & ~fired[:-1])),
        share_steady=float(fired[inside].mean()) if inside.any() else 0.0,
        nearness=float(np.percentile(answers.to_numpy()[inside], PERCENTILE)) / threshold if near else None,
    )


def alerts_of_build(alerts: Sequence[Alert], runs: Sequence[Sequence[AlertResult]], build: Side) -> list[AlertResult]:
    """The runs of one build as one: means of the shares, the earliest first time, times in all."""
    by_alert = [[use for run in runs for use in run if use.alert == alert.slug] for alert in alerts]
    return [_mean(uses, build) for uses in by_alert if uses]


def _mean(uses: Sequence[AlertResult], build: Side) -> AlertResult:
    nearness = [use.nearness for use in uses if use.nearness is not None]
    return uses[0].model_copy(
        update={
            "build": build,
            "first_s": min((use.first_s for use in uses if use.first_s is not None), default=None),
            "times": sum(use.times for use in uses),
            "share_steady": math.fsum(use.share_steady for use in uses) / len(uses),
            "nearness": math.fsum(nearness) / len(nearness) if nearness else None,
        }
    )
