"""Estimate the supported users of a run by the load-test tool's own definition, and find what limited them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Alert, Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.curve import STOP_STEPS, TOLERANCE, USERS_INC, WINDOW_S, Stop, find_stop, samples
from buildcompare.load.view import RunView, Views
from buildcompare.results import AlertResult, Estimate, LimitedBy, SupportedUsersResult
from buildcompare.results.codes import SIDES, Better, NoEstimate, Pair, Side, Status
from buildcompare.stats.effects import judge, measure_effect
from buildcompare.stats.levels import delta_percent, mean_of_runs
from buildcompare.stats.noise import PastChanges, RepeatedRuns, RunLevel, metric_noise
from buildcompare.stats.planning import Looks
from buildcompare.text.sentences import say

STOP_SLOPE = STOP_STEPS * USERS_INC
MIN_COVERAGE = 0.9  # Part of the last 30 minutes that must have samples: published runs have 0.99 and more
INTERRUPTED = 0.5  # Fewer users than this part of the median in the last 30 minutes: a fault (published: 0.93 and more)
CEILING = 0.98  # Above this part of the ceiling it stopped the test: the waves keep the mean below it
LONGEST_SILENCE_S = 120.0  # A run that is known to have gone on for longer than this after the last number has a gap
CUT_TOLERANCE_S = 60.0  # Curves of two builds that end this close together, no stop seen, may be cut to one length


def supported_users(
    users: pd.Series | None,
    *,
    stop: Stop | None = None,
    may_be_cut: bool = False,
    known_end_s: float | None = None,
    ceiling: int | None = None,
) -> Estimate:
    """The mean of the connected users over the last 30 minutes under load, where that is what the build supports.

    A curve whose stop was seen has met the load-test tool's stop rule by the tool's own count, so it is called climbing
    only well beyond it; a curve that may have been cut is not estimated at all.

    Parameters
    ----------
    users
        Connected users of an unbounded test over elapsed seconds.
    stop
        When the load stopped; default: :func:`buildcompare.load.curve.find_stop`.
    may_be_cut
        Whether the curve may have been cut before its run stopped.
    known_end_s
        When the run is known to have been stopped; None where the curve merely ends.
    ceiling
        The highest number of users that the test would have added; None where it is not known.

    Returns
    -------
    Estimate
        `estimated`, or the `reason` why there is none, and `at_least` where the build supports at least as many.

    Examples
    --------
    >>> elapsed = np.arange(0.0, 5400.0, 5.0)
    >>> supported_users(pd.Series(np.minimum(3.0 * elapsed, 7000.0), index=elapsed)).estimated
    7000.0
    >>> supported_users(pd.Series(elapsed, index=elapsed)).reason.value
    'still_climbing'
    """
    stop = find_stop(users) if stop is None and users is not None else stop
    if users is None or stop is None:
        return Estimate(estimated=None, at_least=None, reason=NoEstimate.NO_USERS_CURVE)
    start = stop.at_s - WINDOW_S
    index = users.index.to_numpy(dtype=np.float64)
    step = float(np.median(np.diff(index))) if index.size > 1 else 0.0
    elapsed, values = samples(users[index > start], stop.at_s)
    if index[0] > start + step or values.size < 2:
        return Estimate(estimated=None, at_least=None, reason=NoEstimate.TOO_SHORT)
    slope = float(np.polyfit(elapsed - elapsed[0], values, 1)[0])
    mean = float(values.mean())
    silence = 0.0 if known_end_s is None else known_end_s - stop.end_s
    limit = TOLERANCE * STOP_SLOPE
    reason, at_least = None, None
    if values.size * step < MIN_COVERAGE * WINDOW_S or silence > LONGEST_SILENCE_S:
        reason = NoEstimate.GAPS
    elif values.min() < INTERRUPTED * np.median(values):
        reason = NoEstimate.INTERRUPTED
    elif ceiling is not None and mean >= CEILING * ceiling:
        reason, at_least = NoEstimate.CEILING_REACHED, mean
    elif slope > (STOP_SLOPE if may_be_cut else limit):
        reason, at_least = NoEstimate.STILL_CLIMBING, mean
    elif may_be_cut:
        reason = NoEstimate.MAY_BE_CUT
    elif slope < -limit:
        reason = NoEstimate.STILL_FALLING
    estimated, window = None if reason else mean, (start, stop.at_s)
    return Estimate(estimated=estimated, at_least=at_least, reason=reason, slope_users_per_s=slope, window=window)


def with_estimates(test: Test, views: Views) -> Views:
    """The views with what each run of an unbounded test supports, by its curve."""
    if test.type != "unbounded":
        return views
    base_ends = [view.stop.end_s for view in views.base if view.stop]

    def estimated(side: Side, view: RunView) -> RunView:
        stop, known = view.stop, view.recording.stop_known
        # It shows no shutdown, and ends where a base's curve ends.
        cut = stop and not stop.shutdown and any(abs(stop.end_s - end) <= CUT_TOLERANCE_S for end in base_ends)
        found = supported_users(
            view.users,
            stop=stop,
            may_be_cut=bool(side == "new" and not known and cut),
            known_end_s=view.recording.duration_s if known else None,
            ceiling=test.users,
        )
        return replace(view, estimate=found)

    return Pair.of(lambda side: [estimated(side, view) for view in views[side]])


def compare_supported_users(
    test: Test,
    views: Views,
    catalogue: Catalogue,
    groups: Sequence[RepeatedRuns] = (),
    past: PastChanges | None = None,
    looks: Looks | None = None,
) -> SupportedUsersResult:
    """The supported users of both builds, by the estimates of each run, or as reported where that is known of all."""
    known = views.map(lambda runs: [view.estimate for view in runs if view.estimate])
    curves = known.map(lambda runs: [run.estimated for run in runs])
    reports: Pair[list[float | None]] = Pair.of(lambda side: [run.supported_users for run in test.runs(side)])
    reported = reports.map(lambda values: None if None in values else mean_of_runs(values))
    estimated = curves.map(mean_of_runs)
    without = Pair.of(lambda side: known[side] if estimated[side] is None else [])  # else a run without one is left out
    at_least = without.map(lambda runs: mean_of_runs([run.at_least for run in runs]))
    by_curve = None in tuple(reported) and None not in tuple(estimated)
    chosen = Pair.of(lambda side: curves[side] if by_curve or reported[side] is None else reports[side])
    levels = chosen.map(lambda values: [RunLevel(float(users)) for users in values if users is not None])
    best = chosen.map(mean_of_runs)
    delta = delta_percent(best.base, best.new)
    load = catalogue.load
    noise = metric_noise(load, "unbounded", groups, past) if load else None
    band = load.margin_percent if load else None
    effect = measure_effect(levels.base, levels.new, noise) if noise and delta is not None else None
    judged: dict[str, Any] = {"status": Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE}
    if effect and band:
        judged = judge(effect, band, Better.HIGHER, looks=looks).deciding_row()
    elif delta is None and noise and best.base and at_least.new:  # it may be more, so only the low end is known
        bound = measure_effect(levels.base, [RunLevel(at_least.new)], noise)
        judged |= {"ci_low": bound.interval()[0] if bound else None}
    return SupportedUsersResult(
        base=best.base,
        new=best.new,
        delta_percent=delta,
        band_percent=band,
        reported=reported,
        estimated=estimated,
        at_least=at_least,
        reason=without.map(lambda runs: next((run.reason for run in runs), None)),
        **judged,
    )


QUIET_S = 60.0  # The coordinator does not alert in the first seconds of a test (`MinIntervalSec`)
PERCENTILE = 95.0  # What counts as having been near: above it are single samples


def limited_by(test: Test, views: Views, catalogue: Catalogue, coordinator: Coordinator) -> LimitedBy | None:
    """What limited each build of an unbounded test; None where no alert's query was recorded.

    An alert takes users away, so the threshold that is crossed while the load hunts around its level is what keeps it
    there. The one that was crossed first may be another: caches are cold when a test begins.
    """
    if test.type != "unbounded":
        return None
    alerts, thresholds = {alert.slug: alert for alert in catalogue.alerts}, coordinator.thresholds
    found = [use for side in SIDES for use in alerts_of_build(catalogue.alerts, thresholds, views[side], side)]
    limits = LimitedBy(alerts=found)
    words: dict[str, str] = {use.build: say("reasons", "limited_by", limits, use.build, alerts) for use in found}
    return limits.model_copy(update=words) if found else None


def alerts_of_build(
    alerts: Sequence[Alert], thresholds: Mapping[str, float], runs: Sequence[RunView], build: Side
) -> list[AlertResult]:
    """What each alert did in the runs of a build; `thresholds` go before the catalogue's."""
    found = []
    for alert in alerts:
        threshold = thresholds.get(alert.slug, alert.threshold)
        first, times, shares, nearness = [], 0, [], []
        for view in runs:
            asked = [s for s in view.recording.series if s.role == "alert" and s.metric == alert.slug]
            if view.stop is None or not asked:
                continue
            answers = pd.concat([view.recording.curve(s) for s in asked]).groupby(level=0).max()  # the highest of all
            answers = answers[np.isfinite(answers.to_numpy())].loc[QUIET_S : view.stop.at_s]
            if answers.empty:
                continue
            fired = answers >= threshold
            first += [float(second) for second in answers.index[fired][:1]]
            times += int((fired & ~fired.shift(fill_value=False)).sum())
            start, end = view.steady.window or (math.inf, -math.inf)
            inside = answers[(answers.index > start) & (answers.index <= end)]
            shares.append(float((inside >= threshold).mean()) if len(inside) else 0.0)
            if len(inside) and threshold > 0:
                nearness.append(float(np.percentile(inside, PERCENTILE)) / threshold)
        if shares:
            result = AlertResult(
                build=build,
                alert=alert.slug,
                threshold=threshold,
                first_s=min(first, default=None),
                times=times,
                share_steady=math.fsum(shares) / len(shares),
                nearness=mean_of_runs(nearness),
            )
            found.append(result)
    return found
