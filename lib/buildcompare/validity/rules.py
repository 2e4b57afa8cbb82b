"""Judge the validity of runs and tests; each rule is a function that yields reasons with codes.

The rules keep faulty measurements from counting as regressions. `benchmarks/validity.py` prints how often rules apply.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test, version_in
from buildcompare.load import curve as curves
from buildcompare.load.curve import HELD, Fall, SteadyState, find_falls, samples, sustained
from buildcompare.load.users import CEILING, COVERED, SILENT_S, STEEP
from buildcompare.load.view import RATES, RunView, Views, request_rate
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import Estimate, Validity, ValidityReason
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, NoEstimate, Pair, ReasonCode, Side, ValidityCode, ValidityStatus, numbered
from buildcompare.stats.levels import HARDLY_COVERED, MINUTE_S
from buildcompare.text.sentences import say

LEAVING_S = 10.0  # A lasting loss this shortly before a shutdown is part of the shutdown: k6 removes users one by one
APART = 0.05  # Maximum relative difference of loads (published: 0.001) or recordings' ends; maximum share of overlap
NOT_HELD, HARDLY_HELD = 0.05, 0.25
"""Limits on the fraction of a bounded run's plateau in which the load is below `HELD` times the highest lasting load.
Above `NOT_HELD`, a run is limited; above `HARDLY_HELD`, invalid. Published: 0, and 0.22 with a failed load agent."""
REPORTED = 0.02
"""Maximum relative difference between a curve's mean and the reported supported users. Published runs reach 0.0044."""
CLIMBING = 1 / 3
"""An unbounded run ended during its ramp if the slopes of its last 5 and of its last 30 minutes both exceed `STEEP` and
this fraction of the ramp's slope. Complete runs reach a fraction of 0.27. At least 67 of 68 shortened curves are
detected (benchmarks/validity.py)."""
LONGEST_AVERAGE_S, LONGEST_PERCENTILE_S = 5.0, 60.0
"""Longest plausible average and percentile duration; longer ones are probably in ms. Published averages reach 0.3 s."""
END_OF_BUCKETS, BEYOND_BUCKETS = 0.9, 1.05
"""Factors on the upper bound of a histogram's last bucket. A percentile above the first product may be too low, because
the buckets end. A percentile above the second product has a wrong unit; errors of reading a plot are below 5 %."""
THOUSANDS = 300.0  # A level this many times the other build's has another unit. Published tests reach a ratio of 3.8
_AVERAGE, _PERCENTILE = re.compile(r"(avg|average|mean)\b"), re.compile(r"p\d+\b")
USUAL = 2.0  # An outage lasts longer than this multiple of the run's fourth-longest pause between requests
SHORTER = 0.7  # Minimum length of a bounded run's steady window, divided by the other build's median; published: 0.99

Reasons = Iterator[ValidityReason]


@dataclass(frozen=True)
class RunInTest:
    """One run with everything that decides its validity."""

    view: RunView
    test: Test
    catalogue: Catalogue
    coordinator: Coordinator
    labels: Pair[str] = field(default_factory=lambda: Pair(*SIDES))  # labels of both builds in the params

    @cached_property
    def under_load(self) -> tuple[FloatArray, FloatArray]:
        """Elapsed seconds and finite values of the load until the load test stops, shape (n,) each."""
        load, stop = self.view.load, self.view.stop
        return samples(pd.Series(dtype=float) if load is None else load, stop.at_s if stop else math.inf)

    @cached_property
    def failed(self) -> bool:
        """Whether no request succeeded at any time; False if successes were not recorded."""
        rows: list[Any] = [*self.view.recording.graphs(), *self.view.recording.measurements]
        good = {name for name in {row.name for row in rows} if self.catalogue.find(name).outcome == "successes"}
        return {value for row in rows if row.name in good for value in row.values[np.isfinite(row.values)]} == {0.0}

    def sustained(self, seconds: float) -> float:
        """Return the highest load that the run held or exceeded for `seconds` in total."""
        return sustained(*self.under_load, seconds)

    @cached_property
    def levels(self) -> dict[str, float]:
        """Level of each metric in the steady window, by slug, without the load and without levels of zero or less."""
        series = (self.view.recording.find(metric.slug) for metric in self.catalogue.metrics if not metric.load)
        levels = {each.metric: self.view.level(each) for each in series if each}
        return {slug: level.value for slug, level in levels.items() if level and level.value and level.value > 0.0}

    @cached_property
    def climb(self) -> tuple[float, float] | None:
        """Slope of the load at the end and over the ramp, per second; None if the run did not end during its ramp."""
        shape, reported = self.view.shape, self.view.run.supported_users
        if self.test.type == "bounded" or shape is None or shape.ramp is None:
            return None
        if shape.stop.shutdown or reported is not None:  # a run with a shutdown or a result is complete
            return None
        stop_s, line = shape.stop.at_s, shape.ramp
        since_s = [stop_s - curves.WINDOW_S, max(stop_s - curves.SHORTEST_S, line.start_s)]
        parts = [shape.curve.between(start_s, stop_s) for start_s in since_s if start_s >= line.start_s]
        slope = min(float(np.polyfit(*part, 1)[0]) if part[0].size > 1 else 0.0 for part in parts)
        least = max(CLIMBING * line.slope, STEEP / curves.USERS_INC * shape.curve.step)
        return (slope, line.slope) if slope > least else None

    @cached_property
    def covered(self) -> dict[str, float]:
        """Fraction of the steady window that has samples, by metric; the maximum if a metric has several series."""
        parts: dict[str, float] = {}
        for series in self.view.recording.graphs() if self.view.steady.window else ():
            part = self.view.recording.coverage(series, self.view.steady.window).fraction
            parts[series.metric] = max(parts.get(series.metric, 0.0), part)
        return {metric.slug: parts[metric.slug] for metric in self.catalogue.metrics if metric.slug in parts}


def judge_validity(
    test: Test, views: Views, catalogue: Catalogue, coordinator: Coordinator, labels: Pair[str]
) -> tuple[Validity, Views]:
    """Return the validity of `test`, and its runs with windows cut to valid parts and without unreliable estimates."""
    both, alone = judge_runs(views.map(lambda of: [RunInTest(v, test, catalogue, coordinator, labels) for v in of]))
    views = Pair.of(lambda side: [*map(_judged, views[side], alone[side])])
    return both, _alike_long(views) if ValidityCode.WINDOW_SHORTER in both.codes else views


def _alike_long(views: Views) -> Views:
    """Make windows start equally long after the load was reached, and limit them to one length: metrics may drift."""
    latest_s = max(view.rate_s for runs in views for view in runs)

    def usable(view: RunView) -> tuple[float, float]:
        start, end = view.steady.window or (0.0, 0.0)
        return start + latest_s - view.rate_s, end

    def cut(view: RunView) -> RunView:
        start, end = usable(view)
        kept = (start, min(end, start + length_s))
        kept_s = kept[1] - kept[0]
        return view if kept_s < view.shortest_s else replace(view, steady=replace(view.steady, window=kept))

    length_s = min(max(end - start for start, end in map(usable, runs)) for runs in views)
    return views.map(lambda runs: [*map(cut, runs)])


def _judged(view: RunView, validity: Validity) -> RunView:
    steady, estimate, until_s = view.steady, view.estimate, validity.valid_until_s
    if steady.window:
        start = max(steady.window[0], validity.valid_from_s or 0.0)
        end = steady.window[1] if until_s is None else min(steady.window[1], until_s)
        if end - start < view.shortest_s and (start, end) != steady.window:
            steady = SteadyState(reason=Reason(code=ReasonCode.UNFIT_EARLY, minutes=max(end - start, 0.0) / 60))
        else:
            steady = replace(steady, window=(start, end))
    void = {reason.code for reason in validity.reasons if voids(reason)}
    if estimate and void:
        why = NoEstimate.USERS_LOST if ValidityCode.USERS_LOST in void else NoEstimate.INTERRUPTED
        estimate = Estimate(estimated=None, at_least=None, reason=why)
    return replace(view, validity=validity, steady=steady, estimate=estimate)


def judge_runs(runs: Pair[list[RunInTest]]) -> tuple[Validity, Pair[list[Validity]]]:
    """Judge each run alone, then runs against each other; return the validity of the test, and of each run alone."""
    of_one_run = (_recorded, _falls, _target, _last_30_minutes, _coverage, _counters_restarted)
    between_runs = (_other_runs, _loads_differ, _window_shorter, _series_missing, _windows_overlap, _same_recording,
                    _another_build, _units, _none_succeeded)  # fmt: skip
    alone: Pair[list[list[ValidityReason]]] = Pair([], [])
    for side, i, run in numbered(runs):
        alone[side].append([_with_sentence(each, side=side, run=i) for rule in of_one_run for each in rule(run)])
    _with_outages(runs, alone)
    between = [_with_sentence(reason) for rule in between_runs for reason in rule(runs)]
    every = [reason for of_side in alone for of_run in of_side for reason in of_run]
    return _validity([*every, *between]), alone.map(lambda of_side: [*map(_validity, of_side)])


def _validity(reasons: Sequence[ValidityReason]) -> Validity:
    last = ValidityCode.LOAD_UNKNOWN  # this reason is last, because the first sentence of a report states it anyway
    reasons = sorted(reasons, key=lambda reason: (reason.status != ValidityStatus.INVALID, reason.code == last))
    status = reasons[0].status if reasons else ValidityStatus.VALID
    until = [reason.until_s for reason in reasons if reason.until_s is not None]
    begins = [reason.from_s for reason in reasons if reason.from_s is not None]
    limits = (max(begins, default=None), min(until, default=None)) if status == ValidityStatus.LIMITED else (None, None)
    return Validity(status=status, valid_from_s=limits[0], valid_until_s=limits[1], reasons=reasons)


def _with_outages(runs: Pair[list[RunInTest]], alone: Pair[list[list[ValidityReason]]]) -> None:
    """If all new runs and no base run have restarts or request pauses, report them in `alone` as `all_restarted`."""
    found: Pair[list[list[ValidityReason]]] = Pair([], [])
    for side, i, run in numbered(runs):
        restarts = [each for each in alone[side][i - 1] if each.code == ValidityCode.RESTARTED]
        rate, stop = request_rate(run.view.recording, run.catalogue), run.view.stop
        if rate is not None and stop and run.view.users is not None and run.test.type == "bounded" and not restarts:
            reasons = _grouped(run, _pauses(rate, stop.at_s), rate=True)
            restarts = [_with_sentence(each, side=side, run=i) for each in reasons]
        found[side].append(restarts)
    if all(found.new) and not any(found.base):
        for of_run, new in zip(alone.new, found.new, strict=True):
            marked = [each.model_copy(update={"numbers": {**each.numbers, "all_restarted": 1.0}}) for each in new]
            of_run[:] = [*marked, *(each for each in of_run if each.code != ValidityCode.RESTARTED)]


def _with_sentence(reason: ValidityReason, **place: Any) -> ValidityReason:
    """Return the reason with its sentence, side and run."""
    return reason.model_copy(update={"text": say("validity", reason.code, reason.numbers, reason), **place})


def _reason(
    code: ValidityCode, numbers: dict[str, float] | None = None, *, invalid: bool = False, **more: Any
) -> ValidityReason:
    status = ValidityStatus.INVALID if invalid else ValidityStatus.LIMITED
    return ValidityReason(code=code, status=status, numbers=numbers or {}, **more)


# ---- One run --------------------------------------------------------------------------------------------------------


def _recorded(run: RunInTest) -> Reasons:
    view, recording = run.view, run.view.recording
    if view.steady.window is None and view.steady.reason:
        yield _reason(ValidityCode.NO_STEADY_WINDOW, because=view.steady.reason)
    users = recording.total(run.catalogue.load.slug) if view.users is None and run.catalogue.load else None
    if users and np.isfinite(users.values).any() and not np.nan_to_num(users.values).any():
        yield _reason(ValidityCode.NO_USERS)
    elif view.load is None and run.test.type == "bounded":
        yield _reason(ValidityCode.LOAD_UNKNOWN)
    silent_s = recording.duration_s - view.stop.end_s if view.stop and recording.stop_known else 0.0
    if silent_s > SILENT_S and (view.users is None or run.test.type != "unbounded"):  # else, `GAPS` reports the silence
        yield _reason(ValidityCode.SILENT_END, {"seconds": silent_s})
    samples_of = map(recording.samples, recording.graphs())
    first = [float(elapsed[finite][0]) for elapsed, values in samples_of if (finite := np.isfinite(values)).any()]
    if (late_s := min(first, default=0.0)) > SILENT_S:
        yield _reason(ValidityCode.SILENT_START, {"seconds": late_s})


def _falls(run: RunInTest) -> Reasons:
    view, bounded = run.view, run.test.type == "bounded"
    if view.load is None or view.stop is None:
        return
    allowed = 0.0 if bounded else run.coordinator.fastest_fall
    # If users were not recorded, the load is a proxy that varies by itself: a fall must leave less than `IDLE` of it.
    hardly_any = curves.IDLE if view.users is None else curves.HARDLY_ANY
    leaving_s = view.stop.at_s - LEAVING_S if view.stop.shutdown else math.inf
    found = find_falls(view.load, view.stop.at_s, fastest_fall=allowed, hardly_any=hardly_any)
    every = [fall for fall in found if fall.at_s < leaving_s or fall.back_s is not None]
    every = [fall for fall in every if view.users is not None or fall.kind == "restart"]
    rate = view.load_slug is not None and run.catalogue.find(view.load_slug).unit in RATES  # a rate is 0 in a pause
    falls = _pauses(view.load, view.stop.at_s) if rate else _lost(run, every) if bounded else every
    yield from _grouped(run, falls, rate=rate)


def _grouped(run: RunInTest, falls: Sequence[Fall], *, rate: bool) -> Reasons:
    """Report the falls of the load, or of a `rate` of requests; falls of one kind share a reason."""
    stretch = _longest_stretch(run, falls) if falls else (0.0, 0.0)
    reasons = [_fall(run, fall, stretch, rate=rate) for fall in falls]
    for code in dict.fromkeys(reason.code for reason in reasons):
        same = [reason for reason in reasons if reason.code == code]
        worst = max(same, key=lambda reason: (reason.status == ValidityStatus.INVALID, voids(reason)))
        yield worst.model_copy(update={"numbers": {**worst.numbers, "times": float(len(same))}})


def _pauses(rate: pd.Series, stop_s: float) -> list[Fall]:
    """Find unusually long pauses of requests: several samples in a row at or below `IDLE` times the usual rate."""
    elapsed, values = samples(rate, stop_s)
    usual = np.median(values[values > 0.0]) if (values > 0.0).any() else math.inf
    up = np.flatnonzero(values > curves.IDLE * usual)
    low, lasting = np.diff(up) - 1, np.diff(elapsed[up])
    most_s = max(curves.AT_ONCE_S, USUAL * float(np.sort(lasting[low > 0])[:-3].max(initial=0.0)))
    found = np.flatnonzero((low > 1) & (lasting > most_s))
    spans = [(a, b, values[a + 1 : b].min()) for a, b in zip(up[found], up[found + 1], strict=True)]
    return [Fall("restart", *map(float, (elapsed[a], values[a], least, elapsed[b]))) for a, b, least in spans]


def voids(reason: ValidityReason) -> bool:
    """Test whether `reason` says that users were missing in the last 30 minutes, which prevents an estimate."""
    return "in_last_minutes" in reason.numbers or "still_missing" in reason.numbers


def _lost(run: RunInTest, falls: Sequence[Fall]) -> list[Fall]:
    """Select losses that leave fewer users than `HELD` times the planned or the sustained load, whichever is higher."""
    load = max(run.test.users or 0.0, run.sustained(run.view.shortest_s))
    return [fall for fall in falls if fall.after < HELD * load]


def _longest_stretch(run: RunInTest, falls: Sequence[Fall]) -> tuple[float, float]:
    """Find the longest part of the steady window that has all users and settled rates, and ends before any restart."""
    start, end = run.view.steady.window or (falls[0].at_s, falls[0].at_s)
    gone = [(fall.at_s, fall.back_s or math.inf, start if fall.kind == "restart" else None) for fall in falls]
    begins = [start, *(back + run.view.rate_s for _, back, _ in gone if start < back < end)]
    ends = [[at for at, back, since in gone if back > (begin if since is None else since)] for begin in begins]
    stretches = [(begin, min(ats, default=end)) for begin, ats in zip(begins, ends, strict=True)]
    return max(stretches, key=lambda stretch: stretch[1] - stretch[0])


def _fall(run: RunInTest, fall: Fall, stretch: tuple[float, float], *, rate: bool) -> ValidityReason:
    numbers = {"at_s": fall.at_s, "before": fall.before, "after": fall.after}
    numbers |= {"rate": 1.0} if rate else {} if run.view.users is not None else {"stand_in": 1.0}
    numbers |= {} if fall.back_s is None else {"back_s": fall.back_s}
    code, lost = ValidityCode.USERS_LOST, fall.before - fall.after
    if fall.kind == "restart":
        code = ValidityCode.RESTARTED
    elif lost > 0.0:  # say, one in 11 users is lost: one of 11 load agents may have failed
        numbers |= {"lost_percent": 100.0 * lost / fall.before, "one_in": fall.before / lost}
    start = run.view.steady.window[0] if run.view.steady.window else fall.at_s
    missing = fall.back_s is None or fall.back_s > start  # users are missing after the steady window begins
    if run.test.type == "bounded" and missing:
        whole = run.view.steady.window or (stretch[0], math.inf)
        begins, until = (None if at == edge else at for at, edge in zip(stretch, whole, strict=True))
        return _reason(
            code, numbers, invalid=stretch[1] - stretch[0] < run.view.shortest_s, from_s=begins, until_s=until
        )
    if run.test.type == "unbounded" and fall.at_s > start:  # the load falls in the last 30 minutes
        return _reason(code, {**numbers, "in_last_minutes": 1.0}, until_s=fall.at_s)
    if run.test.type == "unbounded" and missing:
        numbers["still_missing"] = 1.0
    return _reason(code, numbers)


def _target(run: RunInTest) -> Reasons:
    if run.test.type != "bounded" or run.view.load is None or run.view.users is None or run.view.stop is None:
        return
    # The load must last `shortest_s`. Without a steady window, one minute is enough, because the run may be short.
    top = run.sustained(run.view.shortest_s if run.view.steady.window else MINUTE_S)
    if run.test.users is not None and not top >= HELD * run.test.users:
        yield _reason(ValidityCode.TARGET_NOT_REACHED, {"reached": top, "target": run.test.users}, invalid=True)
    elapsed, users = run.under_load
    up = np.flatnonzero(users >= HELD * top)
    if up.size == 0:
        return
    falls = _lost(run, find_falls(run.view.load, run.view.stop.at_s, fastest_fall=0.0))
    until = min((fall.at_s for fall in falls), default=run.view.stop.at_s)
    plateau = users[(elapsed >= elapsed[up[0]]) & (elapsed <= until)]
    below = float(np.mean(plateau < HELD * top)) if plateau.size else 0.0
    if below > NOT_HELD:
        numbers = {"below": below, "users": top, "held": HELD}
        yield _reason(ValidityCode.TARGET_NOT_HELD, numbers, invalid=below > HARDLY_HELD)


def _last_30_minutes(run: RunInTest) -> Reasons:
    estimate, ceiling = run.view.estimate, run.test.users
    if run.test.type == "bounded" or estimate is None:
        return
    if run.climb is not None and run.view.stop is not None:
        numbers = {"at_s": run.view.stop.at_s, "slope": run.climb[0], "ramp_slope": run.climb[1]}
        yield _reason(ValidityCode.CUT_IN_RAMP, numbers, invalid=True)
        return
    mean = estimate.estimated if estimate.estimated is not None else estimate.at_least
    if estimate.reason == NoEstimate.CEILING_REACHED and ceiling is not None and mean is not None:
        yield _reason(ValidityCode.CEILING_REACHED, {"users": mean, "ceiling": ceiling})
    slope = estimate.slope_users_per_s
    why = str(estimate.reason)
    if why == "interrupted" and slope is not None and abs(slope) > STEEP:
        why = "still_climbing" if slope > 0 else "still_falling"
    faults = ["may_be_cut", "too_short", "gaps"]
    if not any("in_last_minutes" in fall.numbers for fall in _falls(run)):  # the slope is not due to lost users
        faults += ["still_climbing", "still_falling"]
    if why in faults:
        yield _reason(ValidityCode(why), {} if slope is None else {"slope_users_per_s": slope})


def _coverage(run: RunInTest) -> Reasons:
    parts = run.covered
    if not parts:
        return
    if max(parts.values()) < HARDLY_COVERED:
        numbers = {"covered": max(parts.values()), "metrics": len(parts)}
        yield _reason(ValidityCode.LITTLE_COVERAGE, numbers, invalid=True)
        return
    gaps = {slug: part for slug, part in parts.items() if 0.0 < part < COVERED}  # if 0, the metric is missing
    if gaps:
        worst = min(gaps, key=gaps.__getitem__)
        numbers = {"covered": gaps[worst], "metrics": len(gaps), "others": len(gaps) - 1}
        yield _reason(ValidityCode.LITTLE_COVERAGE, numbers, metric=worst)


def _counters_restarted(run: RunInTest) -> Reasons:
    resets = run.view.recording.provenance.get("counter_resets")
    if isinstance(resets, Mapping) and (times := max(map(int, resets.values()), default=0)):
        yield _reason(ValidityCode.COUNTERS_RESTARTED, {"times": times})


# ---- Runs beside each other -----------------------------------------------------------------------------------------


def _none_succeeded(runs: Pair[list[RunInTest]]) -> Reasons:
    """Report failed runs. If all new runs and no base run of a load test failed, this is a regression: report none."""
    regressed = all(run.failed for run in runs.new) and not any(run.failed for run in runs.base)
    for side, i, run in numbered(runs):
        if run.failed and (run.test.type == "benchmark" or not regressed):
            yield _reason(ValidityCode.NONE_SUCCEEDED, invalid=True, side=side, run=i)


def _loads_differ(runs: Pair[list[RunInTest]]) -> Reasons:
    bounded = runs.map(lambda of: [run for run in of if run.test.type == "bounded" and run.view.users is not None])
    steady = bounded.map(lambda of: [run for run in of if run.view.steady.window])
    if not all(steady):
        return
    base, new = (float(np.mean([run.sustained(run.view.shortest_s) for run in of])) for of in steady)
    if not (base > 0 and new > 0 and abs(math.log(new / base)) <= math.log1p(APART)):
        yield _reason(ValidityCode.LOADS_DIFFER, {"base": base, "new": new}, invalid=True)


def _other_runs(runs: Pair[list[RunInTest]]) -> Reasons:
    """Report runs whose curve contradicts the reported users: limited if all curves are similarly low, else invalid.

    At the user ceiling, curve and report may differ more, because users who log in again raise the curve by up to 3 %.
    """
    every = {(side, i): _above_report(run) for side, i, run in numbered(runs)}
    differ = [each for each in every.values() if each is not None]
    alike = len(differ) == len(every) and max(differ) < 0.0 and max(differ) - min(differ) <= REPORTED
    for side, i, run in numbered(runs):
        change, reported, estimate = every[side, i], run.view.run.supported_users, run.view.estimate
        capped = estimate and estimate.reason == NoEstimate.CEILING_REACHED
        if change and reported and abs(change) > (1.0 - CEILING if capped else REPORTED):
            numbers = {"curve": reported * (1.0 + change), "reported": reported, "change": change}
            yield _reason(ValidityCode.OTHER_RUNS, numbers, side=side, run=i, invalid=not alike)


def _above_report(run: RunInTest) -> float | None:
    """Return (estimated / reported users) - 1; None if unknown, or if it is low because the load still rose."""
    estimate, reported = run.view.estimate, run.view.run.supported_users
    mean = estimate.at_least if estimate and estimate.estimated is None else estimate and estimate.estimated
    if not estimate or not mean or not reported:
        return None
    return None if estimate.reason == NoEstimate.STILL_CLIMBING and mean < reported else mean / reported - 1.0


def _window_shorter(runs: Pair[list[RunInTest]]) -> Reasons:
    windows = runs.map(lambda of: [run.view.steady.window for run in of if run.test.type == "bounded"])
    for side, other in zip(SIDES, reversed(SIDES), strict=True):
        theirs = [window for window in windows[other] if window] or [(0.0, 0.0)]
        their_end, span_s = float(np.median([w[1] for w in theirs])), float(np.median([w[1] - w[0] for w in theirs]))
        early = [_ended_before(run, (1.0 - APART) * their_end) for run in runs[side]]
        for i, window in enumerate(windows[side], start=1):
            if window and window[1] - window[0] < SHORTER * span_s:
                stop, numbers = runs[side][i - 1].view.stop, {"seconds": window[1] - window[0], "other_seconds": span_s}
                if stop and stop.shutdown and min(span_s - numbers["seconds"], stop.end_s - stop.at_s) > span_s / 2.0:
                    numbers["at_s"] = stop.at_s
                    yield _reason(ValidityCode.LOAD_ENDED, numbers, invalid=True, side=side, run=i)
                else:
                    numbers |= {"all_ended_early": 1.0} if all(early) else {}
                    yield _reason(ValidityCode.WINDOW_SHORTER, numbers, side=side, run=i)


def _ended_before(run: RunInTest, end_s: float) -> bool:
    """Test if a recording ends before `end_s`; False if the params state its end and the load lasted until then."""
    window_end, until_s = (run.view.steady.window or (0.0, math.inf))[1], run.view.recording.duration_s
    return until_s < end_s and not (run.view.run.end and until_s - window_end <= run.view.rate_s)


def _series_missing(runs: Pair[list[RunInTest]]) -> Reasons:
    there = runs.map(lambda of: {slug for run in of for slug, part in run.covered.items() if part})
    for side, other in zip(SIDES, reversed(SIDES), strict=True):
        if any(run.view.steady.window for run in runs[side]):  # `covered` is measured in this window
            for slug in sorted(there[other] - there[side]):
                yield _reason(ValidityCode.SERIES_MISSING, metric=slug, side=side)


def _windows_overlap(runs: Pair[list[RunInTest]]) -> Reasons:
    """Report runs on one server that overlap in time; an overlap above `APART` times the shorter run is invalid."""
    seen: list[tuple[object, tuple[float, float]]] = []
    for side, i, run in numbered(runs):
        server, window = run.view.recording.provenance.get("url"), run.view.recording.window
        if not run.view.run.is_pulled or not isinstance(server, str):
            continue
        both = [
            (min(window[1], end) - max(window[0], start), end - start) for url, (start, end) in seen if url == server
        ]
        if (seconds := max(both, default=(0.0, 0.0))[0]) > 0.0:
            far = any(shared > APART * min(other_s, window[1] - window[0]) for shared, other_s in both)
            yield _reason(ValidityCode.WINDOWS_OVERLAP, {"seconds": seconds}, side=side, run=i, invalid=far)
        seen.append((server, window))


def _same_recording(runs: Pair[list[RunInTest]]) -> Reasons:
    """Report runs with equal samples; most likely the params name one file twice."""
    seen: dict[str, Side] = {}
    for side, i, run in numbered(runs):
        samples = run.view.recording.samples_sha256
        if samples in seen and run.view.recording.graphs():
            numbers = {"of_one_build": float(seen[samples] == side)}
            yield _reason(ValidityCode.SAME_RECORDING, numbers, side=side, run=i, invalid=True)
        seen.setdefault(samples, side)


def _another_build(runs: Pair[list[RunInTest]]) -> Reasons:
    """Report recordings that state another build than the params. Differences in case and punctuation do not count."""
    every = [(run, side, i, str(run.view.recording.provenance.get("label") or "")) for side, i, run in numbered(runs)]
    typed = any(_plain(run.labels[side]) == _plain(label) for run, side, _, label in every)
    for run, side, i, label in every:
        ours, theirs = run.labels[side], run.labels["new" if side == "base" else "base"]
        versions = (version_in(label, whole=False), version_in(ours, whole=False))
        if not label or _plain(label) == _plain(ours):
            continue
        if None not in versions and _plain(label) != _plain(theirs):
            differs = not _one_version(*map(str, versions))
        else:  # a version is unknown, or the label is the other build's name: compare names
            named = typed and ours != side  # the params name this build, and a recording has a label of the params
            differs = _plain(label) == _plain(theirs) or (named and _plain(ours) not in _plain(label))
        if differs:
            file, code = run.view.run.file, ValidityCode.ANOTHER_BUILD
            yield _reason(code, invalid=True, file=file, side=side, run=i, labels=(label, ours))


def _plain(label: str) -> str:
    """Return a label in lower case without punctuation and leading v; ``V10.4.0 RC1`` then equals ``v10.4.0-rc1``."""
    return re.sub(r"[^\w]|_", "", label.casefold()).removeprefix("v")


def _one_version(one: str, other: str) -> bool:
    """Test if versions can be the same: ``10.4`` and ``10.4.0-rc1`` can, ``10.4.0-rc1`` and ``10.4.0-rc2`` cannot."""
    (numbers, _, before), (others, _, other_before) = one.partition("-"), other.partition("-")
    same = all(int(a) == int(b) for a, b in zip(numbers.split("."), others.split("."), strict=False))
    return same and (not before or not other_before or _plain(before) == _plain(other_before))


def _units(runs: Pair[list[RunInTest]]) -> Reasons:
    """Report levels whose unit is implausible; long durations count only if those of the other build are also long."""
    for side, i, run in numbered(runs):
        tops = {table.average: table.top_bucket or math.inf for table in run.catalogue.label_tables}
        for slug, value in run.levels.items():
            metric, average = run.catalogue.find(slug), _AVERAGE.match(slug)
            times, percentile = metric.unit == "seconds", _PERCENTILE.match(slug)
            others = [each.levels for each in runs["new" if side == "base" else "base"] if not each.failed]
            theirs = [levels[slug] for levels in others if slug in levels]
            most = max(theirs, default=math.inf)
            p99 = run.levels.get(_AVERAGE.sub("p99", slug), math.inf) if average else math.inf
            longest = LONGEST_AVERAGE_S if average else LONGEST_PERCENTILE_S
            top = tops.get(slug if average else _PERCENTILE.sub("avg", slug), math.inf)
            least = max((per * run.levels.get(of, 0.0) for of, per in metric.least_per.items()), default=0.0)
            faults = [
                (value < least, {"least": least}),
                (bool(metric.unit) and metric.outcome is None and value >= THOUSANDS * most, {"times": value / most}),
                (metric.outcome == "successes" and 0.5 <= most < 1.01 < value / 25.0, {"times": value / most}),
                (times and p99 < min(value, END_OF_BUCKETS * top), {"p99": p99}),
                (times and not average and value > BEYOND_BUCKETS * top, {"top": top}),
                (times and min([value, *theirs]) > longest and (average or percentile), {"longest": longest}),
            ]
            if numbers := next((numbers for found, numbers in faults if found), None):
                code, numbers, file = ValidityCode.UNLIKELY_UNIT, {"value": value, **numbers}, run.view.run.file
                yield _reason(code, numbers, invalid=True, side=side, run=i, metric=slug, unit=metric.unit, file=file)
                break  # one reason per run is enough
