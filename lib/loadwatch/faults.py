"""Find faults that make a test worthless while it runs, each with the time at which it is certain.

The rules are those of `buildcompare.validity`, on what is there so far. Few of them hold at once: users may come back,
a ramp may go on, samples may be late. Those are certain once they have lasted `CERTAIN` times the window of rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from buildcompare.load.curve import SteadyState, find_falls, samples
from buildcompare.load.view import RunView
from buildcompare.metrics.failures import attempts_name
from buildcompare.recordings.recording import FloatArray, Series
from buildcompare.results import ValidityReason
from buildcompare.results.base import Model
from buildcompare.results.codes import Better, Pair, ValidityCode, ValidityStatus
from buildcompare.stats.levels import minute_means
from buildcompare.text.sentences import say
from buildcompare.validity.rules import APART, HELD, RunInTest, judge_runs

if TYPE_CHECKING:
    from loadwatch.decide import Watched

CERTAIN = 4.0  # rate windows before a fault is certain: four minutes by default
STALLED = 0.1  # a ramp stalls if it climbs less than this part of the base's climb in the same time
LOADED = 0.1  # part of the load above which units can be checked
SCRIPT = 1.5  # ratio of requests per user; releases differ by 1.1 at most
ERRORS, ERROR_SHARE = 10.0, 1e-3  # least multiple of the base's worst minute, and part of the requests
AT_ONCE = {ValidityCode.ANOTHER_BUILD, ValidityCode.UNLIKELY_UNIT}


class Fault(Model):
    """A fault that ends a test; times in seconds since the start of the run."""

    code: str
    """A code of `validity`, or `errors_began` or `another_script`."""
    since_s: float
    certain_s: float
    text: str


def lasting_s(view: RunView) -> float:
    """Seconds after which a fault is certain."""
    return CERTAIN * view.rate_s


def find_fault(watched: Watched, view: RunView, at_s: float) -> Fault | None:
    """Find the first certain fault of a run; at `at_s` the clock goes on even where samples do not."""
    lasted, load = lasting_s(view), load_of(watched)
    faults = _at_once(watched, view, at_s, load)
    if (found := next(faults, None)) or at_s < lasted:
        return found
    return next((fault for rule in RULES for fault in rule(watched, view, at_s, load)), None)


def load_of(watched: Watched) -> float:
    """Load of a test: the stated users of a bounded one; otherwise the median level of the finished base runs."""
    levels = [each.plateau_users for each in watched.finished.base if each.plateau_users]
    stated = watched.test.users if watched.test.type == "bounded" else None
    return float(stated or (np.median(levels) if levels else 0.0))


def _fault(code: ValidityCode, since_s: float, certain_s: float, numbers: dict[str, float]) -> Fault:
    reason = ValidityReason(code=code, status=ValidityStatus.INVALID, numbers=numbers)
    return Fault(code=code, since_s=since_s, certain_s=certain_s, text=say("validity", code, numbers, reason))


def _at_once(watched: Watched, view: RunView, at_s: float, load: float) -> Iterator[Fault]:
    """Check labels and units of the run, and whether the base is valid."""
    last = view.load.dropna().to_numpy()[-5:] if view.load is not None else np.array([load])
    loaded = at_s >= lasting_s(view) and last.size and float(np.median(last)) >= LOADED * load
    recent = SteadyState((max(at_s - lasting_s(view), 0.0), at_s)) if loaded else SteadyState()

    def in_test(each: RunView, steady: SteadyState) -> RunInTest:
        labels = Pair(*watched.labels)
        return RunInTest(replace(each, steady=steady), watched.test, watched.catalogue, watched.coordinator, labels)

    alone = judge_runs(Pair([in_test(each, each.steady) for each in watched.finished.base], []))
    beside = judge_runs(Pair([in_test(each, recent) for each in watched.finished.base], [in_test(view, recent)]))
    reasons = [each for each in alone.test.reasons if each.status == ValidityStatus.INVALID]
    reasons += [each for each in beside.test.reasons if each.code in AT_ONCE and each.side == "new"]
    for reason in reasons:
        text = say("watch", "of_base", reason.text) if reason.side == "base" else reason.text
        yield Fault(code=reason.code, since_s=0.0, certain_s=at_s, text=text)


def _silent(_: Watched, view: RunView, at_s: float, __: float) -> Iterator[Fault]:
    ends = [each.times[np.isfinite(each.values)][-1:] - view.recording.window[0] for each in view.recording.series]
    last = max((float(end[0]) for end in ends if end.size), default=0.0)
    if at_s - last > lasting_s(view):
        yield _fault(ValidityCode.SILENT_END, last, at_s, {"seconds": at_s - last})


def _lost(watched: Watched, view: RunView, at_s: float, load: float) -> Iterator[Fault]:
    bounded, slope = watched.test.type == "bounded", _slope(watched)
    allowed = 0.0 if bounded else watched.coordinator.fastest_fall
    for fall in find_falls(view.users, fastest_fall=allowed) if view.users is not None else ():
        lasted, now = at_s - fall.at_s, float(view.users.dropna().iloc[-1]) if view.users is not None else 0.0
        due = min(max(load, fall.before), fall.before + slope * lasted)  # users of a ramp that continues
        lost = now < min(due - (fall.before - fall.after) / 2.0, HELD * load) if bounded else fall.back_s is None
        early = not bounded and fall.at_s < ramp_end(watched)  # an early bump, from which the ramp starts again
        if fall.kind == "lost" and lost and not early and lasted >= lasting_s(view):
            numbers = {"at_s": fall.at_s, "before": fall.before, "after": fall.after, "times": 1.0}
            yield _fault(ValidityCode.USERS_LOST, fall.at_s, at_s, numbers)


def _slope(watched: Watched) -> float:
    """Users per second on the base's ramp; 0 if unknown."""
    shapes = [each.shape for each in watched.finished.base if each.shape and not each.shape.proxy]
    return shapes[0].ramp.slope if shapes and shapes[0].ramp else 0.0


def ramp_end(watched: Watched) -> float:
    """End of the base's linear ramp, in seconds since its start; 0 if unknown."""
    ends = [each.shape.ramp.end_s for each in watched.finished.base if each.shape and each.shape.ramp]
    return max(ends, default=0.0)


def _target(watched: Watched, view: RunView, at_s: float, load: float) -> Iterator[Fault]:
    """A ramp that stands still below the load of a bounded test, and users beyond it."""
    series = view.recording.total(watched.catalogue.load.slug) if watched.catalogue.load else None
    if watched.test.type != "bounded" or series is None or not load > 0.0:
        return
    lasted, (elapsed, users) = lasting_s(view), samples(view.recording.curve(series))
    recent = users[elapsed > at_s - lasted]
    if recent.size and recent.min() > (1.0 + APART) * load:
        numbers = {"base": load, "new": float(np.median(recent))}
        yield _fault(ValidityCode.LOADS_DIFFER, at_s - lasted, at_s, numbers)
    begun = max((each.shape.beginning.onset_s or 0.0 for each in watched.finished.base if each.shape), default=0.0)
    if at_s < begun + 2.0 * lasted or not users.size or users.max() >= HELD * load:
        return
    width = lasted / CERTAIN
    before, now = (users[(elapsed > at - width) & (elapsed <= at)] for at in (at_s - lasted, at_s))
    climbed = float(np.median(now) - np.median(before)) if now.size and before.size else math.inf
    if climbed < STALLED * _slope(watched) * lasted:
        numbers = {"reached": float(users.max()), "target": load}
        yield _fault(ValidityCode.TARGET_NOT_REACHED, at_s - lasted, at_s, numbers)


def _errors(watched: Watched, view: RunView, at_s: float, _: float) -> Iterator[Fault]:
    named, recording = attempts_name(view.recording), view.recording
    requests = recording.total(named[0]) if named else None
    for series in recording.series:
        if series.role != "error" and watched.catalogue.find(series.name).outcome != "failures":
            continue
        rates = _recent(view, series, at_s)
        counted = requests is not None and series.unit.endswith("/s")
        enough = ERROR_SHARE * _recent(view, requests, at_s) if requests and counted else np.zeros(rates.size)
        usual = max((_worst(each, series) for each in watched.finished.base), default=0.0)
        if (rates > np.maximum(ERRORS * usual, enough)).all():
            since_s = at_s - lasting_s(view)
            text = say("watch", "errors_began", series.name, float(rates.mean()), usual, series.unit)
            yield Fault(code="errors_began", since_s=since_s, certain_s=at_s, text=text)


def _another_script(watched: Watched, view: RunView, at_s: float, load: float) -> Iterator[Fault]:
    named = attempts_name(view.recording)
    if watched.test.type != "bounded" or named is None or watched.catalogue.find(named[0]).better != Better.NEUTRAL:
        return
    *bases, new = (_per_user(each, named[0], at_s, load) for each in (*watched.finished.base, view))
    ratio = new / np.mean(bases, axis=0)
    if (ratio > SCRIPT).all() or (ratio < 1.0 / SCRIPT).all():
        text = say("watch", "another_script", float(np.median(ratio)), named[1])
        yield Fault(code="another_script", since_s=at_s - lasting_s(view), certain_s=at_s, text=text)


RULES = (_silent, _lost, _target, _errors, _another_script)


def _recent(view: RunView, series: Series, at_s: float) -> FloatArray:
    """Means of the last `CERTAIN` windows of rates; NaN at a gap."""
    width, elapsed = view.rate_s, view.recording.samples(series)
    return minute_means(*elapsed, start_s=at_s - CERTAIN * width, count=int(CERTAIN), width_s=width, closed="right")


def _worst(view: RunView, like: Series) -> float:
    """The worst minute of an error rate in a run; 0 without samples."""
    same = [each for each in view.recording.series if (each.metric, each.role) == (like.metric, like.role)]
    means = [minute_means(*view.recording.samples(each), width_s=view.rate_s) for each in same]
    return max((float(np.nanmax(each)) for each in means if np.isfinite(each).any()), default=0.0)


def _per_user(view: RunView, slug: str, at_s: float, load: float) -> FloatArray:
    """Requests of a user in the last windows of rates; NaN below half of the load."""
    users = view.recording.total(view.load_slug) if view.users is not None and view.load_slug else None
    if users is None or (requests := view.recording.total(slug)) is None:
        return np.full(int(CERTAIN), np.nan)
    connected = _recent(view, users, at_s)
    per_user = _recent(view, requests, at_s) / np.maximum(connected, 1.0)
    return np.asarray(np.where(connected >= max(load / 2.0, 1.0), per_user, np.nan))
