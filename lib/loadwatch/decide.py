"""Decide from what a test has shown so far whether it should run on.

Every look compares the builds over equal stretches of time under load. What the rest of the test may still change is
bounded for all looks together (Lan, Simon & Halperin 1982, "Stochastically curtailed testing in long-term clinical
trials", Sequential Analysis 1). The noise between runs counts as in a report: no further minute of this run makes it
smaller. `benchmarks/watch.py` prints error rates, and why this bound is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from buildcompare.comparison.measure import Estimates, TestView, compare_test
from buildcompare.config.params import Run
from buildcompare.config.units import TIMES
from buildcompare.findings import verdict
from buildcompare.labels.noise import LabelNoise
from buildcompare.load.curve import samples
from buildcompare.load.ramps import shift
from buildcompare.load.view import RunView
from buildcompare.metrics.compare import judge_measured
from buildcompare.metrics.measurements import Measured
from buildcompare.recordings.recording import FloatArray, Recording
from buildcompare.results import ErrorRateResult, MetricResult, Validity
from buildcompare.results.base import Model, Number
from buildcompare.results.codes import SIDES, Better, Status, Verdict
from buildcompare.stats.effects import GATE, Effect, judge, measure_effect, measure_effects
from buildcompare.stats.levels import FEWEST, STRONGEST, mean_with_error
from buildcompare.stats.noise import RunLevel, metric_noise
from buildcompare.stats.planning import levels, percent, quantile
from buildcompare.text.sentences import say
from loadwatch.look import Fault, Look, Watched, cut, find_fault

WITHIN = 0.02  # probability, over all looks, that the test ends outside of the stated range
GRID = np.linspace(0.02, 0.98, 49)  # parts of a test at which levels are computed; other looks interpolate
LEAST_WINDOWS = 2.0  # minimum stretch, in shortest steady windows: the error of a shorter one is uncertain
BATCHES, AR_ERRORS, LEAST_EFFECTIVE = (8, 16), 0.5, 4.0
"""Numbers of batches, standard errors added to an AR(1) coefficient, and least effective samples of a bound:
chosen on simulated runs of other seeds than those that judge them."""
SETTLED_S, NOW_S = 1200.0, 600.0  # decide unbounded tests this long after their ramps, by the last `NOW_S`
LAG = 0.21
"""Largest log ratio by which an unbounded run catches up with the base from now to its end. Every second published
comparison set it (0.20 at most); in the others it is 0.10 at most, in identical runs 0.15."""


class Code(StrEnum):
    """Decision of one look."""

    RUNNING = "running"
    INVALID = "stop_invalid"
    REGRESSION = "stop_regression"
    ENOUGH = "stop_enough"
    FINISHED = "finished"


class Row(Model):
    """Estimate of one deciding metric: changes and widths in percent."""

    name: str
    slug: str
    change_percent: float
    ci_low: Number
    ci_high: Number
    """95 % interval from the noise between runs, as in a report of the recording so far."""
    end_low: Number
    end_high: Number
    """Bounds of the change at the end of the test, valid over all looks; null without a bound."""
    width_end: Number = None
    """Width of the 95 % interval at the end of the test; null if the test has ended."""


class Decision(Model):
    """Result of one look at a running test; the JSON of a webhook."""

    code: Code
    test: str
    labels: tuple[str, str]
    at_s: float
    """Seconds since the start of the run."""
    length_s: float
    """Planned length of the run."""
    window_s: float = 0.0
    """Seconds under load that were compared."""
    verdict: Verdict | None = None
    """The verdict of the test, if it is known."""
    rows: tuple[Row, ...] = ()
    shift_users: Number = None
    """Users that the new build's ramp is ahead, if that is significant."""
    fault: Fault | None = None
    notes: tuple[str, ...] = ()
    """Notes on clock differences and failed pulls."""

    @property
    def stops(self) -> bool:
        """Whether the test should end now."""
        return self.code not in (Code.RUNNING, Code.FINISHED)

    @property
    def saved_s(self) -> float:
        """Seconds of load that a stop saves."""
        return max(self.length_s - self.at_s, 0.0) if self.stops else 0.0

    @property
    def text(self) -> str:
        """The decision in words."""
        return say("watch", self.code, self)


def decide(watched: Watched, running: Recording, at_s: float) -> tuple[Decision, TestView | None]:
    """Look at a test `at_s` seconds after the start of its last run, of which `running` is recorded.

    Returns the decision, and the comparison behind it for figures; None before both builds are under load.
    """
    look = Look(watched, watched.view(cut(running, at_s)), at_s)
    ended = at_s >= watched.length_s or look.shut_down
    fault = None if ended else find_fault(look)
    made = Decision(code=Code.INVALID if fault else Code.RUNNING, test=watched.test.name, labels=watched.labels,
                    at_s=at_s, length_s=watched.length_s, fault=fault)  # fmt: skip
    if not (ended or fault or all(each.steady.window for each in (*watched.views.base, look.view))):
        return made, None
    compared = _compared(look, ended=ended, whole=ended or fault is not None or not look.bounded)
    start_s, end_s = look.view.steady.window or (0.0, 0.0)
    fields: dict[str, object] = {"window_s": end_s - start_s, "verdict": compared.result.verdict}
    if not fault and (ended or compared.estimates is None):
        felt = [(row, by, by.delta_percent) for row in compared.result.metrics if row.gate and (by := row.deciding)]
        rows = [Row(name=row.full_name, slug=row.slug, change_percent=delta, ci_low=by.ci_low, ci_high=by.ci_high,
                      end_low=delta, end_high=delta) for row, by, delta in felt if delta is not None]  # fmt: skip
        fields |= {"code": Code.FINISHED, "rows": tuple(rows)}
    elif not fault and compared.estimates:
        rows, best, worst = (_bounded if look.bounded else _unbounded)(watched, compared, compared.estimates)
        enough = Code.ENOUGH if best is not None and best == worst else Code.RUNNING
        code = Code.REGRESSION if best == Verdict.REGRESSION else enough
        fields |= {"code": code, "verdict": None if code == Code.RUNNING else best, "rows": tuple(rows)}
        ramps = None if look.bounded or not watched.shapes else look.view.shape
        moved = shift(watched.shapes[0], ramps) if ramps else None
        fields["shift_users"] = moved.users if moved and moved.significant else None
    return made.model_copy(update=fields), compared


def _compared(look: Look, *, ended: bool, whole: bool) -> TestView:
    """Compare what was recorded so far; with finished runs as a whole, or over stretches of the same length."""
    watched, test, (start, end) = look.watched, look.watched.test, look.view.steady.window or (0.0, 0.0)

    def recording(of: RunView) -> Recording:
        return of.recording if whole else cut(of.recording, (of.steady.window or (0.0, 0.0))[0] + end - start)

    runs = watched.views.map(lambda views: [*map(recording, views)])
    if not ended:  # the params' numbers are those of whole runs
        test = test.model_copy(update={side: [Run.model_construct()] * len(test.runs(side)) for side in SIDES})
    return compare_test(
        test,
        {"base": runs.base, "new": [*runs.new, look.view.recording]},
        watched.catalogue,
        coordinator=watched.coordinator,
        label_noise=LabelNoise((), watched.catalogue.label_tables),
        labels=watched.labels,
        **watched.settings,
    )


Bounds = tuple[list[Row], Verdict | None, Verdict | None]
"""Rows, and the verdicts after the best and after the worst possible rest of the test; None if unknown."""
OPEN: Bounds = ([], None, None)


def _row(name: str, slug: str, now: Effect, end: Effect, ends: tuple[Number, Number]) -> Row:
    (low, high), last = now.interval(), end.interval()
    return Row(name=name, slug=slug, change_percent=now.delta_percent, ci_low=low, ci_high=high,
                 end_low=ends[0], end_high=ends[1], width_end=last[1] - last[0])  # fmt: skip


def _bounded(watched: Watched, compared: TestView, estimates: Estimates) -> Bounds:
    """Bound the levels of a bounded test at its end.

    The mean of a part `f` of a window differs from that of the whole by a normal value of variance (1 - f) se^2.
    Standard errors are those of the report where the base has repeated runs.
    """
    running, rows = estimates.views.new[-1], list[Row]()
    start, end = running.steady.window or (0.0, 0.0)
    felt = {i: each for i, each in enumerate(estimates.metrics)
            if each.row.gate and each.effect and not watched.catalogue.find(each.metric_name).outcome}  # fmt: skip
    least, whole_s = LEAST_WINDOWS * running.shortest_s, max(watched.length_s - start, end - start)
    if end - start < least or not felt:
        return OPEN
    longer = {i: each.levels.map(lambda of: [replace(run, seconds=whole_s) for run in of]) for i, each in felt.items()}
    at_end = measure_effects(longer, {i: each.noise for i, each in felt.items()})
    part, best, worst = (end - start) / whole_s, [*estimates.metrics], [*estimates.metrics]
    standard = reach_of(part, least / whole_s) * math.sqrt(1.0 - part)
    for i, each in felt.items():
        effect, now = at_end[i], each.effect
        if effect is None or now is None:
            return OPEN
        errors = each.levels.map(lambda of: [run.se_log for run in of])  # runs scatter more than samples show
        if len(estimates.views.base) == 1:
            errors = estimates.views.map(lambda of: [_error(view, each.row) for view in of])  # noqa: B023  # called at once, in the same round of the loop
        reach = standard * math.hypot(*(error / len(of) for of in errors for error in of))
        is_bounded = math.isfinite(reach)  # without a bound, the change is no regression yet
        ends = (effect.log_ratio - reach, effect.log_ratio + reach) if is_bounded else (0.0, 0.0)
        range_ = (percent(ends[0]), percent(ends[1])) if is_bounded else (None, None)
        rows.append(_row(each.row.full_name, each.row.slug, now, effect, range_))
        lower, upper = (replace(each, effect=replace(effect, log_ratio=at)) for at in ends)
        best[i], worst[i] = (upper, lower) if each.row.better == Better.HIGHER else (lower, upper)
    for i, each in enumerate(estimates.metrics):
        outcome, effect = watched.catalogue.find(each.metric_name).outcome, each.effect
        if each.row.gate and outcome and effect:
            (low, high), seen = effect.interval(), effect.delta_percent
            rows.append(Row(name=each.row.full_name, slug=each.row.slug, change_percent=seen, ci_low=low, ci_high=high,
                            end_low=seen, end_high=seen))  # fmt: skip
            best[i] = replace(each, effect=_without_more_failures(effect, each.row, part, outcome))
    at_best = _verdict(compared, estimates, best)
    at_worst = _verdict(compared, estimates, worst, compared.result.errors)
    if any(row.end_high is None for row in rows):
        return rows, at_best if at_best == Verdict.REGRESSION else None, None
    return rows, at_best, at_worst


def _without_more_failures(now: Effect, row: MetricResult, part: float, outcome: str) -> Effect:
    """Effect at the end of a test if nothing fails after the `part` of it that has passed."""
    if outcome == "failures":
        return replace(now, log_ratio=now.log_ratio + math.log(part))
    whole = 100.0 if row.unit == "percent" or max(row.base or 0.0, row.new or 0.0) > 1.0 else 1.0
    share = max((row.new or 0.0) / whole, 1e-9)
    return replace(now, log_ratio=now.log_ratio + math.log((part * share + 1.0 - part) / share))


def _verdict(
    compared: TestView, estimates: Estimates, measured: Sequence[Measured], errors: Sequence[ErrorRateResult] = ()
) -> Verdict:
    """The verdict of a valid test with these levels and error rates."""
    rows = judge_measured(measured, estimates.test, compared.catalogue, looks=estimates.looks)
    judged = {"metrics": rows, "errors": [*errors], "supported_users": None, "validity": Validity(status="valid")}
    return verdict.of_test(compared.result.model_copy(update=judged))


def _error(view: RunView, row: MetricResult) -> float:
    """Careful standard error of the logarithm of a metric's level in the steady window so far."""
    if (series := view.recording.find(row.slug, row.labels)) is None or view.steady.window is None:
        return math.inf
    elapsed, values = view.recording.samples(series)
    values = values[(elapsed > view.steady.window[0]) & (elapsed <= view.steady.window[1])]
    positive = np.where(values > 0.0, values, np.nan)
    return error_of(np.log(positive) if series.unit in TIMES else positive / np.nanmean(positive))


def error_of(values: FloatArray) -> float:
    """Careful standard error of the mean of equidistant samples (NaN: a gap); infinite with few effective samples.

    The largest of that of a report, of batches of two lengths (Law & Kelton 1984, "Confidence intervals for steady-
    state simulations", Operations Research 32), and of an AR(1) whose coefficient is corrected for its bias and raised:
    each alone is too small where the correlation lasts long. It is widened by the quantiles of Student's t distribution
    with half of the effective samples.
    """
    finite = values[np.isfinite(values)]
    if finite.size < FEWEST or not finite.std() > 0.0:
        return math.inf
    centred, size = finite - finite.mean(), finite.size
    rho = float(centred[1:] @ centred[:-1]) / float(centred[:-1] @ centred[:-1])
    raised = rho + (1.0 + 3.0 * rho) / size + AR_ERRORS * math.sqrt(max(1.0 - rho**2, 0.0) / size)
    innovations = centred[1:] - rho * centred[:-1]
    errors = [mean_with_error(values)[1], float(innovations.std()) / (1.0 - min(raised, STRONGEST)) / math.sqrt(size)]
    parts = [np.array_split(finite, count) for count in BATCHES if size >= 2 * count]
    batches = [np.array([part.mean() for part in each]) for each in parts]
    error = max([*errors, *(float(each.std(ddof=1)) / math.sqrt(each.size) for each in batches)])
    effective = min(float(finite.var()) / error**2, size)
    wider = quantile(1.0 - WITHIN / 4.0, effective / 2.0) / quantile(1.0 - WITHIN / 4.0, math.inf)
    return error * wider if effective >= LEAST_EFFECTIVE else math.inf


def reach_of(part: float, first: float) -> float:
    """Bound on how far the mean of this part of a test may still move, in standard errors, for all looks from `first`.

    Backwards from the end, the mean is a Brownian motion in the remaining variance, 1 / part - 1. The error `WITHIN` is
    spent evenly over the remaining time (Lan & DeMets 1983, Biometrika 70).
    """
    grid = GRID[GRID >= min(first, 0.9)][::-1]  # noqa: SIM300  # `GRID` is an array, not a constant
    spent = levels(tuple((1.0 / each - 1.0, 1.0 - each) for each in grid.tolist()), _spending)
    return -quantile(float(np.interp(part, grid[::-1], spent[::-1])) / 2.0, math.inf)


def _spending(left: float) -> float:
    return WITHIN * left


def _unbounded(watched: Watched, _: TestView, estimates: Estimates) -> Bounds:
    """Bound the supported users of an unbounded test from above, once both curves have left their ramps."""
    load, views = watched.catalogue.load, [*estimates.views.base, estimates.views.new[-1]]
    now_s, now = min(each.stop.at_s if each.stop else 0.0 for each in views), list[RunLevel]()
    for each in views:
        line = each.shape.ramp if each.shape else None
        elapsed, users = samples(each.users, now_s) if each.users is not None else (np.zeros(0), np.zeros(0))
        recent = users[elapsed > now_s - NOW_S]
        if line is None or not line.complete or now_s - line.end_s < SETTLED_S or not recent.size:
            return OPEN
        now.append(RunLevel(float(recent.mean())))
    stated = any(run.supported_users or (each.estimate and each.estimate.estimated)
                 for run, each in zip(watched.test.base, estimates.views.base, strict=True))  # fmt: skip
    if load is None or watched.beside or not stated:
        return OPEN
    seen = measure_effect(now[:-1], now[-1:], metric_noise(load, "unbounded", estimates.groups, estimates.past))
    if seen is None:
        return OPEN
    end = replace(seen, log_ratio=seen.log_ratio + LAG)
    status = judge(end, load.margin_percent, Better.HIGHER, family=GATE, looks=estimates.looks).status
    row = _row(load.name, load.slug, seen, end, (None, end.delta_percent))
    return [row], Verdict.REGRESSION if status == Status.REGRESSION else None, None
