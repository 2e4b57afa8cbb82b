"""Estimate the supported users as the load-test tool defines them, and find the alerts that limited their number."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Alert, Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.curve import HARDLY_ANY, STOP_STEPS, TOLERANCE, USERS_INC, WINDOW_S, Stop, find_stop, samples
from buildcompare.load.view import RunView, Views
from buildcompare.results import AlertResult, Estimate, LimitedBy, SupportedUsersResult
from buildcompare.results.codes import SIDES, NoEstimate, Pair, Side, Status
from buildcompare.stats.effects import judge_users, measure_effect
from buildcompare.stats.levels import delta_percent, mean_of_runs
from buildcompare.stats.noise import Contrasts, RepeatedRuns, RunLevel, metric_noise
from buildcompare.stats.planning import Looks
from buildcompare.text.sentences import say

STOP_SLOPE = STOP_STEPS * USERS_INC
STEEP = TOLERANCE * STOP_SLOPE  # users per second; a curve with a steeper slope has not reached its plateau
COVERED = 0.9  # minimum share of the window that samples must cover (published runs cover at least 0.99)
CEILING = 0.95  # a run at this share of the user ceiling is limited by it; limited runs have 0.967, others at most 0.87
SILENT_S = 120.0  # maximum time without samples at a run's start or end: twice the range of an alert query
CUT_TOLERANCE_S = 60.0  # maximum seconds between the ends of two curves that may have been cut to the same length
CUT_SLOPE = 1.15
"""Maximum slope at the end of a complete curve, divided by `STOP_SLOPE`. A base curve with a steeper end was possibly
cut (recorded only for a part of its run) if the new curve ends at the same time. Published curves without a shutdown
have ratios of 0.98 to 1.12 if they are complete, and of at least 1.19 if they lack more than 1 % of their users."""
UNSAMPLED = (NoEstimate.NO_USERS_CURVE, NoEstimate.TOO_SHORT, NoEstimate.GAPS, NoEstimate.MAY_BE_CUT)
LEVEL = 0.5
"""A curve that may have been cut gives an estimate only if its final slope is at most `LEVEL` * `STOP_SLOPE`: such a
flat curve would hardly rise further. Published curves that were cut end with slopes of 1.0 to 2.5 * `STOP_SLOPE`."""


def supported_users(
    users: pd.Series | None,
    *,
    stop: Stop | None = None,
    may_be_cut: bool = False,
    known_end_s: float | None = None,
    ceiling: int | None = None,
) -> Estimate:
    """Estimate the supported users: the mean of the connected users over the last 30 minutes under load.

    The load-test tool ends a run when active users climb more slowly than `STOP_SLOPE`. An estimate needs a slope of at
    most `TOLERANCE` times `STOP_SLOPE`, or `LEVEL` times `STOP_SLOPE` if the curve may end before its run.

    Parameters
    ----------
    users
        Connected users of an unbounded test over elapsed seconds.
    stop
        End of the load; default: :func:`buildcompare.load.curve.find_stop`.
    may_be_cut
        True if the curve may have been cut before its run stopped.
    known_end_s
        End of the run in elapsed seconds, as the source states it; None if the source states no end.
    ceiling
        Highest number of users that the test would add; None if unknown.

    Returns
    -------
    Estimate
        `estimated`, or None with a `reason`; `at_least` is a lower bound if the curve climbs or meets the ceiling.

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
    reason, at_least = None, None
    if values.size * step < COVERED * WINDOW_S or silence > SILENT_S:
        reason = NoEstimate.GAPS
    elif values.min() < HARDLY_ANY * np.median(values):  # in published runs, the ratio is at least 0.93
        reason = NoEstimate.INTERRUPTED
    elif ceiling is not None and mean >= CEILING * ceiling:
        reason, at_least = NoEstimate.CEILING_REACHED, mean
    elif slope > (STOP_SLOPE if may_be_cut else STEEP):
        reason, at_least = NoEstimate.STILL_CLIMBING, mean
    elif may_be_cut and slope > LEVEL * STOP_SLOPE:
        reason = NoEstimate.MAY_BE_CUT
    elif slope < -STEEP:
        reason = NoEstimate.STILL_FALLING
    estimated, window = None if reason else mean, (start, stop.at_s)
    return Estimate(estimated=estimated, at_least=at_least, reason=reason, slope_users_per_s=slope, window=window)


def with_estimates(test: Test, views: Views) -> Views:
    """Add an estimate of the supported users to each run of an unbounded test; leave other tests unchanged."""
    if test.type != "unbounded":
        return views
    ends = views.map(lambda runs: [view.stop.end_s for view in runs if view.stop])

    def estimated(side: Side, view: RunView) -> RunView:
        stop, stop_known = view.stop, view.recording.stop_known
        other = ends.new if side == "base" else ends.base
        seen = stop_known or stop is None or stop.shutdown
        may_be_cut = not seen and stop is not None and any(abs(stop.end_s - end) <= CUT_TOLERANCE_S for end in other)
        known_end_s = view.recording.duration_s if stop_known else None
        estimate = supported_users(view.users, stop=stop, known_end_s=known_end_s, ceiling=test.users)
        # Published plots end where the base's curve ends. The new curve may be cut, and the base's if it still climbs.
        if may_be_cut and (side == "new" or (estimate.slope_users_per_s or 0.0) > CUT_SLOPE * STOP_SLOPE):
            estimate = supported_users(view.users, stop=stop, may_be_cut=True, ceiling=test.users)
        return replace(view, estimate=estimate)

    return Pair.of(lambda side: [estimated(side, view) for view in views[side]])


def _estimate_of_build(runs: Sequence[Estimate]) -> Estimate:
    """Average a build's estimates; the result is a lower bound if a run has only that, and None if a run has neither.

    Runs that may lack samples of the last 30 minutes (`UNSAMPLED`), and lower bounds below all estimates, do not count.
    """
    lowest = min((run.estimated for run in runs if run.estimated is not None), default=0.0)
    sampled = [run for run in runs if run.reason not in UNSAMPLED and (run.at_least is None or run.at_least >= lowest)]
    reason = next((run.reason for run in sampled or runs if run.reason), None)
    values = [run.at_least if run.estimated is None else run.estimated for run in sampled]
    mean = None if None in values else mean_of_runs(values, geometric=True)
    return Estimate(estimated=None if reason else mean, at_least=mean if reason else None, reason=reason)


def compare_supported_users(
    test: Test,
    views: Views,
    catalogue: Catalogue,
    groups: Sequence[RepeatedRuns] = (),
    past: Contrasts | None = None,
    looks: Looks | None = None,
) -> SupportedUsersResult:
    """Compare the supported users of builds, as reported or else estimated; runs at the ceiling give lower bounds."""
    estimates = views.map(lambda runs: [view.estimate for view in runs if view.estimate])
    of_build = estimates.map(_estimate_of_build)
    reports: Pair[list[float | None]] = Pair.of(lambda side: [run.supported_users for run in test.runs(side)])
    reported = reports.map(lambda values: None if None in values else mean_of_runs(values, geometric=True))
    estimated = of_build.map(lambda build: build.estimated)
    capped = estimates.map(lambda runs: any(run.reason == NoEstimate.CEILING_REACHED for run in runs))
    at_least = Pair.of(lambda side: (capped[side] and reported[side]) or of_build[side].at_least)
    by_curve = None in tuple(reported) and None not in tuple(estimated)
    curves = Pair.of(lambda side: [] if estimated[side] is None else [run.estimated for run in estimates[side]])
    stated = Pair.of(lambda side: [] if capped[side] else reports[side])
    chosen = Pair.of(lambda side: curves[side] if by_curve or reported[side] is None else stated[side])
    levels = chosen.map(lambda values: [RunLevel(float(users)) for users in values if users is not None])
    best = chosen.map(lambda values: mean_of_runs(values, geometric=True))
    delta = delta_percent(best.base, best.new)
    load = catalogue.load
    noise = metric_noise(load, "unbounded", groups, past) if load else None
    band = load.margin_percent if load else None
    effect = measure_effect(levels.base, levels.new, noise) if noise and delta is not None else None
    tested, ci_low = judge_users(effect, band, looks) if effect and band else None, None
    if delta is None and noise and best.base and at_least.new:  # new has only a lower bound, so only `ci_low` is set
        bound = measure_effect(levels.base, [RunLevel(at_least.new)], noise)
        ci_low = bound.interval()[0] if bound else None
    elif delta is None and noise and band and best.new and (least := at_least.base):  # base supports more than `least`
        bound = measure_effect([RunLevel(least)], levels.new, noise)
        if bound and (worse := judge_users(bound, band, looks)).status == Status.REGRESSION:
            best, delta, tested = Pair(least, best.new), delta_percent(least, best.new), worse
    row = SupportedUsersResult(
        base=best.base, new=best.new, delta_percent=delta, band_percent=band, reported=reported, estimated=estimated,
        at_least=at_least, reason=of_build.map(lambda build: build.reason), ci_low=ci_low,
        status=Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE,
    )  # fmt: skip
    return tested.filled(row) if tested else row


QUIET_S = 60.0  # the coordinator ignores alerts during this time after a test's start (its setting `MinIntervalSec`)
PERCENTILE = 95.0  # `nearness` is this percentile of value / threshold; higher percentiles depend on single samples


def limited_by(test: Test, views: Views, catalogue: Catalogue, coordinator: Coordinator) -> LimitedBy | None:
    """Find the alerts that limited each build of an unbounded test; None if no alert query was recorded.

    The coordinator removes users after each alert, so an alert that fires repeatedly in the steady window limits the
    load. The first alert of a run can be a different alert, because caches are cold at the start.
    """
    if test.type != "unbounded":
        return None
    alerts, thresholds = {alert.slug: alert for alert in catalogue.alerts}, coordinator.thresholds
    uses = [use for side in SIDES for use in alerts_of_build(catalogue.alerts, thresholds, views[side], side)]
    limits = LimitedBy(alerts=uses)
    words: dict[str, str] = {use.build: say("reasons", "limited_by", limits, use.build, alerts) for use in uses}
    return limits.model_copy(update=words) if uses else None


def alerts_of_build(
    alerts: Sequence[Alert], thresholds: Mapping[str, float], runs: Sequence[RunView], build: Side
) -> list[AlertResult]:
    """Summarise each alert over the runs of a build; `thresholds`, by slug, override those of the catalogue."""
    results = []
    for alert in alerts:
        threshold = thresholds.get(alert.slug, alert.threshold)
        first, times, shares, nearness = [], 0, [], []
        for view in runs:
            queries = [s for s in view.recording.series if s.role == "alert" and s.metric == alert.slug]
            if view.stop is None or not queries:
                continue
            answers = pd.concat([view.recording.curve(s) for s in queries]).groupby(level=0).max()
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
            fields = {"build": build, "alert": alert.slug, "name": alert.name, "threshold": threshold, "times": times}
            of_runs = {"share_steady": math.fsum(shares) / len(shares), "nearness": mean_of_runs(nearness)}
            results.append(AlertResult(**fields, **of_runs, first_s=min(first, default=None)))
    return results
