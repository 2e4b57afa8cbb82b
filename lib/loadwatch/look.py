"""Look at a running test: its finished runs, its samples so far, and faults that make it worthless.

The rules of faults are those of `buildcompare.validity`, on the samples so far. Few are certain at first: users may
come back, a ramp may go on, samples may be late. The others become certain after `CERTAIN` windows of rates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.curve import HELD, SteadyState, find_falls, samples
from buildcompare.load.view import RunView, Shape, view_run
from buildcompare.metrics.failures import attempts_name
from buildcompare.recordings.recording import FloatArray, Recording, Series
from buildcompare.results import ValidityReason
from buildcompare.results.base import Model
from buildcompare.results.codes import SIDES, Better, Pair, ValidityCode, ValidityStatus
from buildcompare.stats.levels import minute_means
from buildcompare.text.sentences import say
from buildcompare.validity.rules import APART, RunInTest, judge_runs

CERTAIN = 4.0  # rate windows before a fault is certain: four minutes by default
STALLED = 0.1  # a ramp stalls if it climbs less than this part of the base's climb in the same time
LOADED = 0.1  # part of the load from which units can be told
SCRIPT = 1.5  # ratio of requests per user; releases differ by 1.1 at most
ERRORS, ERROR_SHARE = 10.0, 1e-3  # errors that end a test: multiple of the base's worst minute, part of the requests
AT_ONCE = {ValidityCode.ANOTHER_BUILD, ValidityCode.UNLIKELY_UNIT}


@dataclass(frozen=True)
class Watched:
    """A test whose last run of the new build is still running, with its finished runs and noise."""

    test: Test
    catalogue: Catalogue
    base: Sequence[Recording]
    length_s: float
    before: Sequence[Recording] = ()  # finished runs of the new build
    coordinator: Coordinator = field(default_factory=Coordinator)
    labels: tuple[str, str] = SIDES
    settings: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of :func:`compare_test`: noise between runs, and planned runs."""
    beside: bool = False
    """Whether the last run of the base goes on too."""

    def view(self, recording: Recording) -> RunView:
        """View a run for this test, with only its deciding series and its error rates."""
        slugs = {metric.slug for metric in deciding_metrics(self.catalogue)}
        kept = (s for s in recording.series if s.role == "error" or (s.role == "graph" and s.metric in slugs))
        deciding = replace(recording, series=tuple(kept), label_summaries=())
        return view_run(deciding, self.test.type, self.catalogue, self.coordinator)

    @cached_property
    def views(self) -> Pair[list[RunView]]:
        """The other runs of both builds."""
        return Pair([*map(self.view, self.base)], [*map(self.view, self.before)])

    @cached_property
    def load(self) -> float:
        """Load of a test: the stated users of a bounded one; otherwise the median level of the finished base runs."""
        levels = [each.plateau_users for each in self.views.base if each.plateau_users]
        stated = self.test.users if self.test.type == "bounded" else None
        return float(stated or np.median(levels or [0.0]))

    @cached_property
    def shapes(self) -> list[Shape]:
        """Shapes of the base's runs."""
        return [each.shape for each in self.views.base if each.shape]

    @cached_property
    def slope(self) -> float:
        """Users per second on the base's ramp; 0 if unknown."""
        return next((each.ramp.slope for each in self.shapes if each.ramp and not each.proxy), 0.0)

    @cached_property
    def ramp(self) -> tuple[float, float]:
        """Start and end of the base's ramp, in seconds since its start; of several runs the last."""
        ends = [each.ramp.end_s for each in self.shapes if each.ramp]
        return max((each.beginning.onset_s or 0.0 for each in self.shapes), default=0.0), max(ends, default=0.0)


@dataclass(frozen=True)
class Look:
    """A running test at one time; the clock `at_s` goes on even without new samples."""

    watched: Watched
    view: RunView
    at_s: float

    @property
    def since_s(self) -> float:
        """Latest start of a fault that is certain now, in seconds since the start of the run."""
        return self.at_s - CERTAIN * self.view.rate_s

    @property
    def bounded(self) -> bool:
        """Whether the load is stated."""
        return self.watched.test.type == "bounded"

    @property
    def shut_down(self) -> bool:
        """Whether the coordinator of an unbounded test ended its load long ago, after the base's ramp."""
        stop = None if self.bounded else self.view.stop
        return stop is not None and stop.shutdown and self.since_s >= stop.at_s >= self.watched.ramp[1]

    def recent(self, series: Series) -> FloatArray:
        """Means of the last `CERTAIN` windows of rates; NaN at a gap."""
        of_run, width_s = self.view.recording.samples(series), self.view.rate_s
        return minute_means(*of_run, start_s=self.since_s, count=int(CERTAIN), width_s=width_s, closed="right")


def cut(recording: Recording, at_s: float) -> Recording:
    """The recording as it was `at_s` seconds after its start; values of labels over the whole run are not known."""
    end = min(recording.window[0] + at_s, recording.window[1])
    sizes = [int(np.searchsorted(each.times, end, "right")) for each in recording.series]
    series = tuple(replace(each, times=each.times[:size], values=each.values[:size])
                   for each, size in zip(recording.series, sizes, strict=True))  # fmt: skip
    ended = recording.stop_known and at_s >= recording.duration_s
    return replace(recording, series=series, window=(recording.window[0], end), stop_known=ended, label_summaries=())


def deciding_metrics(catalogue: Catalogue) -> list[Metric]:
    """Metrics for decisions and faults: load, gates, failures, requests, and those that show a wrong unit."""
    proxies = catalogue.proxies()
    return [
        m for m in catalogue.metrics
        if m.load or m.gate or m.outcome or m.least_per or m in proxies or m.unit.endswith("/s")
    ]  # fmt: skip


# ---- Faults ---------------------------------------------------------------------------------------------------------


class Fault(Model):
    """A fault that ends a test."""

    code: str
    """A code of `validity`, or `errors_began` or `another_script`."""
    since_s: float
    """Seconds since the start of the run; the fault is certain at the time of the decision."""
    text: str


Faults = Iterator[Fault]


def find_fault(look: Look) -> Fault | None:
    """Find the first certain fault of a run."""
    rules = (_at_once, _silent, _lost, _target, _errors, _another_script)
    used = rules if look.since_s >= 0.0 else rules[:1]
    return next(itertools.chain.from_iterable(rule(look) for rule in used), None)


def _fault(code: ValidityCode, since_s: float, **numbers: float) -> Fault:
    """A fault in the words of `validity`."""
    reason = ValidityReason(code=code, status=ValidityStatus.INVALID, numbers=numbers)
    return Fault(code=code, since_s=since_s, text=say("validity", code, numbers, reason))


def _at_once(look: Look) -> Faults:
    """Check labels and units of the run, and whether a finished base is valid."""
    watched, view, load = look.watched, look.view, look.watched.load
    last = view.load.dropna().to_numpy()[-5:] if view.load is not None else np.array([load])
    loaded = look.since_s >= 0.0 and last.size and float(np.median(last)) >= LOADED * load
    recent = SteadyState((look.since_s, look.at_s)) if loaded else SteadyState()
    of_test = watched.test, watched.catalogue, watched.coordinator, Pair(*watched.labels)
    base = [RunInTest(each, *of_test) for each in watched.views.base]
    for reason in judge_runs(Pair(base[: len(base) - watched.beside], []))[0].reasons:
        if reason.status == ValidityStatus.INVALID:
            yield Fault(code=reason.code, since_s=0.0, text=say("watch", "of_base", reason.text))
    for reason in judge_runs(Pair(base, [RunInTest(replace(view, steady=recent), *of_test)]))[0].reasons:
        if reason.code in AT_ONCE and reason.side == "new":
            yield Fault(code=reason.code, since_s=0.0, text=reason.text)


def _silent(look: Look) -> Faults:
    recording = look.view.recording
    times = [each.times[np.isfinite(each.values)] - recording.window[0] for each in recording.series]
    last = max((float(each.max(initial=0.0)) for each in times), default=0.0)
    if last < look.since_s:
        yield _fault(ValidityCode.SILENT_END, last, seconds=look.at_s - last)


def _lost(look: Look) -> Faults:
    if (users := look.view.users) is None:
        return
    load, now = look.watched.load, float(users.dropna().iloc[-1])
    for fall in find_falls(users, fastest_fall=0.0 if look.bounded else look.watched.coordinator.fastest_fall):
        climbed = look.watched.slope * (look.at_s - fall.at_s)  # by a ramp that goes on
        due = min(max(load, fall.before), fall.before + climbed)
        missing = now < min(due - (fall.before - fall.after) / 2.0, HELD * load)
        early = fall.at_s < look.watched.ramp[1]  # a bump of an unbounded test, from which the ramp starts again
        lost = missing if look.bounded else fall.back_s is None and not early
        if fall.kind == "lost" and lost and fall.at_s <= look.since_s:
            numbers = {"at_s": fall.at_s, "before": fall.before, "after": fall.after, "times": 1.0}
            yield _fault(ValidityCode.USERS_LOST, fall.at_s, **numbers)


def _target(look: Look) -> Faults:
    """A ramp that does not begin or stands still below the load of a bounded test, and users beyond it."""
    watched, view, load, since_s = look.watched, look.view, look.watched.load, look.since_s
    series = view.recording.total(watched.catalogue.load.slug) if watched.catalogue.load else None
    if not look.bounded or series is None or not load > 0.0:
        return
    elapsed, users = samples(view.recording.curve(series))
    before, now = (users[(elapsed > at - view.rate_s) & (elapsed <= at)] for at in (since_s, look.at_s))
    recent = users[elapsed > since_s]
    if recent.size and recent.min() > (1.0 + APART) * load:
        yield _fault(ValidityCode.LOADS_DIFFER, since_s, base=load, new=float(np.median(recent)))
    if since_s >= watched.ramp[0] and now.size and (reached := float(users.max())) < HELD * load:
        climbed = float(np.median(now) - (np.median(before) if before.size else 0.0))
        if climbed < STALLED * watched.slope * (look.at_s - since_s):
            yield _fault(ValidityCode.TARGET_NOT_REACHED, since_s, reached=reached, target=load)


def _errors(look: Look) -> Faults:
    recording, named = look.view.recording, attempts_name([look.view.recording])
    requests = recording.total(named[0]) if named else None
    for series in recording.series:
        if series.role != "error" and look.watched.catalogue.find(series.name).outcome != "failures":
            continue
        enough = ERROR_SHARE * look.recent(requests) if requests and series.unit.endswith("/s") else 0.0
        usual = max((_worst(each, series) for each in look.watched.views.base), default=0.0)
        if ((rates := look.recent(series)) > np.maximum(ERRORS * usual, enough)).all():
            text = say("watch", "errors_began", series.name, float(rates.mean()), usual, series.unit)
            yield Fault(code="errors_began", since_s=look.since_s, text=text)


def _worst(view: RunView, like: Series) -> float:
    """The worst minute of an error rate in a run; 0 without samples."""
    same = [each for each in view.recording.series if (each.metric, each.role) == (like.metric, like.role)]
    means = [minute_means(*view.recording.samples(each), width_s=view.rate_s) for each in same]
    return max((float(np.nanmax(each)) for each in means if np.isfinite(each).any()), default=0.0)


def _another_script(look: Look) -> Faults:
    """Requests per user that differ from the base's at the same time, while at least half of the load is there."""
    named, per_user = attempts_name([look.view.recording]), []
    if not look.bounded or named is None or look.watched.catalogue.find(named[0]).better != Better.NEUTRAL:
        return
    for each in (replace(look, view=view) for view in (*look.watched.views.base, look.view)):
        users, requests = (slug and each.view.recording.total(slug) for slug in (each.view.load_slug, named[0]))
        if each.view.users is None or not users or not requests:
            return
        connected = each.recent(users)
        enough = connected >= max(look.watched.load / 2.0, 1.0)
        per_user.append(np.where(enough, each.recent(requests) / np.maximum(connected, 1.0), np.nan))
    ratio = per_user[-1] / np.mean(per_user[:-1], axis=0)
    if (ratio > SCRIPT).all() or (ratio < 1.0 / SCRIPT).all():
        text = say("watch", "another_script", float(np.median(ratio)), named[1])
        yield Fault(code="another_script", since_s=look.since_s, text=text)
