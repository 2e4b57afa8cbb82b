"""Decide from what a test has shown so far whether it should run on.

Every look compares the builds over equal stretches of time under load. What the rest of the test may still change is
bounded for all looks together (Lan, Simon & Halperin 1982, "Stochastically curtailed testing in long-term clinical
trials", Sequential Analysis 1). The noise between runs counts as in a report: no further minute of this run makes it
smaller. `benchmarks/watch.py` prints error rates, and why this bound is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from buildcompare.comparison.measure import Estimates, TestView, compare_test
from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator, Run, Test
from buildcompare.findings import verdict
from buildcompare.labels.noise import LabelNoise
from buildcompare.load.curve import WINDOW_S, samples
from buildcompare.load.view import RunView, shift, view_run
from buildcompare.metrics.compare import judge_measured
from buildcompare.metrics.measurements import Measured
from buildcompare.recordings.recording import FloatArray, Recording, Series
from buildcompare.results import Validity
from buildcompare.results.base import Model, Number
from buildcompare.results.codes import SIDES, Better, Pair, Status, ValidityStatus, Verdict
from buildcompare.stats.effects import GATE, Effect, judge, measure_effect, measure_effects
from buildcompare.stats.noise import Contrasts, RepeatedRuns, RunLevel, metric_noise
from buildcompare.stats.planning import levels, percent, quantile
from buildcompare.text.sentences import say
from loadwatch.faults import Fault, find_fault, lasting_s, ramp_end

WITHIN = 0.02  # probability, over all looks, that the test ends outside of the stated range
GRID = np.linspace(0.02, 0.98, 49)  # parts of a test at which levels are computed; other looks interpolate
LEAST_WINDOWS = 2.0  # minimum stretch, in shortest steady windows: the error of a shorter one is uncertain
SLOPE_S, NOW_S = 1200.0, 600.0  # last stretches of an unbounded curve, for its slope and for its level
GROWTH, ROOM, LAG = 2.5, 0.04, 0.13
"""An unbounded curve ends at most at its level now times 1 + `ROOM` + `GROWTH` times its relative climb in 30 minutes,
and at most `LAG` (log) nearer to the base than at the same time. The published
comparisons of the development half chose these, so rates measured on them are too good."""


class Code(StrEnum):
    """Decision of one look."""

    RUNNING = "running"
    INVALID = "stop_invalid"
    REGRESSION = "stop_regression"
    ENOUGH = "stop_enough"
    FINISHED = "finished"


class Known(Model):
    """Estimate of one deciding metric: changes and widths in percent."""

    name: str
    slug: str
    change_percent: float
    ci_low: Number
    ci_high: Number
    """95 % interval from the noise between runs, as in a report of the recording so far."""
    end_low: Number
    end_high: Number
    """The change at the end of the test, over all looks; null for a side without a bound."""
    width_now: Number = None
    width_end: Number = None
    """Width of the 95 % interval now and at the end of the test."""


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
    rows: tuple[Known, ...] = ()
    shift_users: Number = None
    """Users that the new build's ramp is ahead, if that is significant."""
    fault: Fault | None = None
    notes: tuple[str, ...] = ()
    """Notes on clock differences and failed pulls."""

    @property
    def stops(self) -> bool:
        """Whether the test should end now."""
        return self.code in (Code.INVALID, Code.REGRESSION, Code.ENOUGH)

    @property
    def saved_s(self) -> float:
        """Seconds of load that a stop saves."""
        return max(self.length_s - self.at_s, 0.0) if self.stops else 0.0

    @property
    def text(self) -> str:
        """The decision in words."""
        return say("watch", self.code, self)


@dataclass(frozen=True)
class Watched:
    """A test whose last run of the new build is still running, with its finished runs and noise."""

    test: Test
    catalogue: Catalogue
    base: Sequence[Recording]
    start_s: float
    """Start of the run, in seconds since 1970."""
    length_s: float
    before: Sequence[Recording] = ()  # finished runs of the new build
    coordinator: Coordinator = field(default_factory=Coordinator)
    labels: tuple[str, str] = SIDES
    groups: Sequence[RepeatedRuns] = ()
    past: Contrasts | None = None
    planned_runs: int | None = None

    def view(self, recording: Recording) -> RunView:
        """View a run for this test."""
        return view_run(recording, self.test.type, self.catalogue, self.coordinator)

    @cached_property
    def finished(self) -> Pair[list[RunView]]:
        """The finished runs of both builds."""
        return Pair(*([self.view(deciding(run, self.catalogue)) for run in runs] for runs in (self.base, self.before)))


def cut(recording: Recording, at_s: float) -> Recording:
    """The recording as it was so many seconds after its start; values of labels over the whole run are not known."""
    end = min(recording.window[0] + at_s, recording.window[1])

    def until(each: Series) -> Series:
        size = int(np.searchsorted(each.times, end, "right"))
        return replace(each, times=each.times[:size], values=each.values[:size])

    known = recording.stop_known and at_s >= recording.duration_s
    series, window = tuple(map(until, recording.series)), (recording.window[0], end)
    return replace(recording, series=series, window=window, stop_known=known, label_summaries=())


def deciding_metrics(catalogue: Catalogue) -> list[Metric]:
    """Metrics that decisions and faults rest on: load, what users feel, failures, requests, and what shows units."""
    proxies = catalogue.proxies()
    used = (
        m.load or m.gate or m.outcome or m.least_per or m in proxies or m.unit.endswith("/s") for m in catalogue.metrics
    )
    return [metric for metric, is_used in zip(catalogue.metrics, used, strict=True) if is_used]


def deciding(recording: Recording, catalogue: Catalogue) -> Recording:
    """The recording with the series of :func:`deciding_metrics` and of error rates alone."""
    slugs = {metric.slug for metric in deciding_metrics(catalogue)}
    kept = (s for s in recording.series if s.role == "error" or (s.role == "graph" and s.metric in slugs))
    return replace(recording, series=tuple(kept), label_summaries=())


def decide(watched: Watched, running: Recording, at_s: float) -> tuple[Decision, TestView | None]:
    """Look at a test `at_s` seconds after the start of its last run, of which `running` is recorded.

    Returns the decision, and the comparison behind it for figures; None before both builds are under load.
    """
    view = watched.view(cut(deciding(running, watched.catalogue), at_s))
    made = Decision(
        code=Code.RUNNING, test=watched.test.name, labels=watched.labels, at_s=at_s, length_s=watched.length_s
    )
    gone = (
        view.stop is not None and view.stop.shutdown and at_s - lasting_s(view) >= view.stop.at_s >= ramp_end(watched)
    )
    ended = at_s >= watched.length_s or (gone and watched.test.type == "unbounded")  # the coordinator ended it
    if not ended and (fault := find_fault(watched, view, at_s)):
        compared = _compared(watched, view, whole=True)
        found = {"code": Code.INVALID, "verdict": compared.result.verdict, "fault": fault}
        return made.model_copy(update=found), compared
    if not ended and not all(each.steady.window for each in (*watched.finished.base, view)):
        return made, None
    compared = _compared(watched, view, whole=ended or watched.test.type == "unbounded")
    seen = {"window_s": view.steady.window[1] - view.steady.window[0] if view.steady.window else 0.0}
    if ended or compared.estimates is None:
        found = {"code": Code.FINISHED, "verdict": compared.result.verdict, "rows": tuple(_rows_at_end(compared))}
        return made.model_copy(update=seen | found), compared
    bound = _bounded if watched.test.type == "bounded" else _unbounded
    rows, best, worst = bound(watched, compared, compared.estimates)
    enough = Code.ENOUGH if best is not None and best == worst else Code.RUNNING
    code = Code.REGRESSION if best == Verdict.REGRESSION else enough
    found = {"code": code, "verdict": None if code == Code.RUNNING else best, "rows": tuple(rows)}
    return made.model_copy(update=seen | found | {"shift_users": _shift(watched, view)}), compared


def _compared(watched: Watched, view: RunView, *, whole: bool) -> TestView:
    """Compare what was recorded so far; with finished runs as a whole, or over stretches of the same length."""
    runs = watched.finished.map(lambda views: [each.recording for each in views])
    test, start, end = watched.test, *(view.steady.window or (0.0, 0.0))
    if not whole:
        stretches = watched.finished.map(
            lambda of: [(each.steady.window or (0.0, 0.0))[0] + end - start for each in of]
        )
        runs = Pair.of(lambda side: [*map(cut, runs[side], stretches[side])])
        test = test.model_copy(update={"base": [Run.model_construct() for _ in test.base]})
    last = test.new[-1] if view.recording.stop_known else Run.model_construct()
    return compare_test(
        test.model_copy(update={"new": [*test.new[:-1], last]}),
        {"base": runs.base, "new": [*runs.new, view.recording]},
        watched.catalogue,
        coordinator=watched.coordinator,
        groups=watched.groups,
        past=watched.past,
        label_noise=LabelNoise((), watched.catalogue.label_tables),
        labels=watched.labels,
        planned_runs=watched.planned_runs,
    )


def _rows_at_end(compared: TestView) -> list[Known]:
    """Rows of a finished test's report for the metrics that users feel."""
    felt = [(row.full_name, row.slug, row.deciding) for row in compared.result.metrics if row.gate]
    names = "change_percent", "ci_low", "ci_high", "end_low", "end_high"
    return [
        Known(name=name, slug=slug, **dict(zip(names, (delta, row.ci_low, row.ci_high, delta, delta), strict=True)))
        for name, slug, row in felt
        if row is not None and (delta := row.delta_percent) is not None
    ]


Bounds = tuple[list[Known], Verdict | None, Verdict | None]
"""Rows, and the verdicts if the rest of the test is as good, and as bad, as possible; None if unknown."""


def _bounded(watched: Watched, compared: TestView, found: Estimates) -> Bounds:
    """Bound the levels of a bounded test at its end.

    The mean of a part `f` of a window differs from that of the whole by a normal value of variance (1 - f) se^2.
    """
    running, rows = found.views.new[-1], list[Known]()
    least, (start, end) = LEAST_WINDOWS * running.shortest_s, running.steady.window or (0.0, 0.0)
    if end - start < least:
        return rows, None, None
    whole_s = max(watched.length_s - start, end - start)
    part, best, worst = (end - start) / whole_s, [*found.metrics], [*found.metrics]
    felt = {i: each for i, each in enumerate(found.metrics) if each.row.gate and each.effect is not None}
    longer = {i: each.levels.map(lambda of: [replace(run, seconds=whole_s) for run in of]) for i, each in felt.items()}
    at_end = measure_effects(longer, {i: each.noise for i, each in felt.items()})
    for i, each in felt.items():
        effect, error = at_end[i], math.hypot(*(run.se_log / len(runs) for runs in each.levels for run in runs))
        if watched.catalogue.find(each.metric_name).outcome or effect is None or each.effect is None:
            continue  # counts of failures have no lasting level
        if not math.isfinite(error):
            return rows, None, None
        reach = reach_of(part, least / whole_s) * error * math.sqrt(1.0 - part)
        ends = effect.log_ratio - reach, effect.log_ratio + reach
        lower, upper = (replace(each, effect=replace(effect, log_ratio=end)) for end in ends)
        best[i], worst[i] = (upper, lower) if each.row.better == Better.HIGHER else (lower, upper)
        rows.append(_known(each.row.full_name, each.row.slug, each.effect, effect, ends))
    if not rows:
        return rows, None, None
    return rows, _verdict(compared, found, best), _verdict(compared, found, worst, errors=True)


def _verdict(compared: TestView, found: Estimates, measured: Sequence[Measured], *, errors: bool = False) -> Verdict:
    """The verdict of a valid test with these levels; with the errors so far, or as if there were none."""
    rows = judge_measured(measured, found.test, compared.catalogue, looks=found.looks)
    valid = Validity(status=ValidityStatus.VALID)
    return verdict.of_test(rows, None, valid, compared.result.errors if errors else ())


def _known(name: str, slug: str, now: Effect, end: Effect, ends: tuple[float, float]) -> Known:
    (low, high), last, bounds = now.interval(), end.interval(), [percent(each) for each in ends]
    ranges = {"ci_low": low, "ci_high": high, "end_low": bounds[0], "end_high": bounds[1]}
    widths = {"width_now": high - low, "width_end": last[1] - last[0]}
    return Known(name=name, slug=slug, change_percent=now.delta_percent, **ranges, **widths)


def reach_of(part: float, first: float, df: float = math.inf) -> float:
    """Bound on how far the mean of this part of a test may still move, in standard errors, for all looks from `first`.

    Backwards from the end, the mean is a Brownian motion in the remaining variance, 1 / part - 1. The error `WITHIN` is
    spent evenly over the remaining time (Lan & DeMets 1983, Biometrika 70). It holds in published runs (2 of 160
    bounds fail), with `df` of half the effective samples also in simulated ones of strong autocorrelation.
    """
    grid = GRID[GRID >= min(first, 0.9)][::-1]  # noqa: SIM300
    spent = levels(tuple((1.0 / each - 1.0, 1.0 - each) for each in grid.tolist()), _spending)
    return -quantile(float(np.interp(part, grid[::-1], spent[::-1])) / 2.0, df)


def _spending(left: float) -> float:
    return WITHIN * left


def _unbounded(watched: Watched, _: TestView, found: Estimates) -> Bounds:
    """Bound the supported users of an unbounded test from above, once both curves have left their ramps."""
    load, base = watched.catalogue.load, found.views.base
    views, level = [found.views.new[-1], *base], list[float]()
    if load is None or any(each.users is None or not each.stop for each in views):
        return [], None, None
    now_s = min(each.stop.at_s for each in views if each.stop)
    for each in views:
        line, (elapsed, values) = each.shape.ramp if each.shape else None, _last(each, now_s)
        if line is None or not line.complete or now_s - line.end_s < SLOPE_S or not elapsed.size:
            return [], None, None
        level.append(float(values[elapsed > now_s - NOW_S].mean()))
    elapsed, values = _last(views[0], now_s)
    climb = max(float(np.polyfit(elapsed, values, 1)[0]), 0.0) * WINDOW_S / level[0]
    counts = [(each.estimate and each.estimate.estimated) or run.supported_users
              for run, each in zip(watched.test.base, base, strict=True)]  # fmt: skip
    noise = metric_noise(load, "unbounded", watched.groups, watched.past)
    known = [RunLevel(float(count)) for count in counts if count]
    if not known:
        return [], None, None
    like_base = math.exp(np.mean(np.log([run.level for run in known]))) * level[0] / float(np.mean(level[1:]))
    most = min(level[0] * (1.0 + ROOM + GROWTH * climb), like_base * math.exp(LAG))
    now, end = (measure_effect(known, [RunLevel(each)], noise) for each in (level[0], most))
    if now is None or end is None:
        return [], None, None
    status = judge(end, load.margin_percent, Better.HIGHER, family=GATE, looks=found.looks).status
    row = _known(load.name, load.slug, now, end, (end.log_ratio, end.log_ratio)).model_copy(update={"end_low": None})
    return [row], Verdict.REGRESSION if status == Status.REGRESSION else None, None


def _last(view: RunView, now_s: float) -> tuple[FloatArray, FloatArray]:
    """The last stretch of the users before `now_s`."""
    assert view.users is not None
    elapsed, values = samples(view.users, now_s)
    return elapsed[elapsed > now_s - SLOPE_S], values[elapsed > now_s - SLOPE_S]


def _shift(watched: Watched, view: RunView) -> float | None:
    base = watched.finished.base[0].shape
    moved = shift(base, view.shape) if base and view.shape and watched.test.type == "unbounded" else None
    return moved.users if moved and moved.significant else None
