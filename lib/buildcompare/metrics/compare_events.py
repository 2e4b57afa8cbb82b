"""Compare the events of two builds: what is in one build only, what belongs together, what is worth a warning."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Test
from buildcompare.load.view import RunView, Views
from buildcompare.metrics.events import MetricEvent, RunEvents, find_events, search_window
from buildcompare.results import Event
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.stats.changepoints import CalibratedPenalty
from buildcompare.stats.noise import RepeatedRuns

SMALLEST_SHARE = 0.2  # events below this part of the metric's margin are left out
FOLLOWS = 1.5
"""A level that moves with the load by up to this many times the load's change follows it: costs grow faster than users
(simulated servers: by the power 1.2)."""
TOGETHER_S = 120.0
"""Events of one build that start within this time are one: averages of one minute, of rates over one minute."""
SAME_S = 180.0
"""As far apart may the builds show the same event: a minute more, for runs whose start was stamped by hand."""
ALIKE = 0.5  # an event of the other build counts as the same with at least this part of the size
ERROR = 0.05  # of a warning where nothing happened, for all series of the test together
LONE = 6.0
"""Margins that a spike or drop must surely exceed to warn where no other metric moves with it. Identical runs have lone
excursions of 6 margins (p99 store times +60 %, CPU -31 %) in Mattermost's published ceiling tests."""
NEARBY_S = 1200.0  # how far before and after an event the other run is looked at: as long as an excursion may last

Group = list[tuple[str, MetricEvent]]


@dataclass(frozen=True)
class PlacedEvent:
    """An event of one metric of one build, and how it relates to the rest of the test."""

    metric: str
    build: Side
    event: MetricEvent
    matched: bool  # whether the other build shows it too
    group: int  # the same for events of one build that happened together; numbered by time, from 1
    warning: bool  # whether it is in one build only and surely larger than the metric's margin


def compare_events(
    test: Test, views: Views, catalogue: Catalogue, identical: Sequence[RepeatedRuns] = ()
) -> list[Event]:
    """Events of the steady windows, matched with the run of the same number of the other build, if there is one."""
    events: list[Event] = []
    margins = {metric.slug: metric.margin_percent for metric in catalogue.metrics}
    for number, pair in enumerate(itertools.zip_longest(*views)):
        base, new = (_of_run(test, view, catalogue, identical) if view else {} for view in pair)
        groups = max((event.group or 0 for event in events), default=0)
        for placed in match_events(base, new, margins):
            event, view = placed.event, views[placed.build][number]
            follows = test.type == "unbounded" and _follows_load(placed, view)
            warns = placed.warning and all(pair) and not follows
            row = {**vars(event), **vars(placed), "run": number + 1, "group": groups + placed.group, "warning": warns}
            events.append(Event(**{name: value for name, value in row.items() if name in Event.model_fields}))
    return events


def _of_run(test: Test, view: RunView, catalogue: Catalogue, identical: Sequence[RepeatedRuns]) -> dict[str, RunEvents]:
    if view.steady.window is None:
        return {}
    inside = search_window(view.steady.window, test.type)
    runs = [run for group in identical if group.type == test.type for run in group.runs]  # their windows are as long
    found: dict[str, RunEvents] = {}
    for metric in catalogue.metrics:
        series = view.recording.total(metric.slug)
        if series is not None and inside[1] > inside[0]:
            known = tuple(each for run in runs if (each := run.no_change.get(metric.slug, 0.0)) > 0)
            calibration = CalibratedPenalty(known) if len(known) >= CalibratedPenalty.MIN_RUNS else None
            smallest = SMALLEST_SHARE * metric.margin_percent
            curve = view.recording.curve(series)
            found[metric.slug] = find_events(curve, inside, smallest_percent=smallest, calibration=calibration)
    return found


def _follows_load(placed: PlacedEvent, view: RunView) -> bool:
    """Whether a level changed as the users did, which in an unbounded test climb for as long as they can."""
    event = placed.event
    if event.kind != "level" or event.size_percent is None or view.load is None or placed.metric == view.load_slug:
        return False
    load = view.load[np.isfinite(view.load.to_numpy())]
    before = load[(load.index > event.around_s[0]) & (load.index <= event.at_s)]
    after = load[(load.index > event.at_s) & (load.index <= event.around_s[1])]
    if before.empty or after.empty or not before.mean() > 0:
        return False
    moved = 100.0 * (float(after.mean()) / float(before.mean()) - 1.0)
    return moved * event.size_percent > 0 and abs(event.size_percent) <= FOLLOWS * abs(moved)


def match_events(
    base: Mapping[str, RunEvents], new: Mapping[str, RunEvents], margins: Mapping[str, float]
) -> tuple[PlacedEvent, ...]:
    """Pair the events of two runs of one test, group them, and pick those worth a warning, in order of group and time.

    What belongs to the test (the ramp's end, a job at a fixed time) is in both builds at about the same elapsed time:
    it is no finding. A warning needs an event that the other build does not show, and whose size is beyond the
    metric's margin even at the near end of its interval, with an error of 5 % for all series of the test together. A
    spike or drop must be witnessed by another metric, or be out of all proportion: one minute of one metric alone is
    what identical runs show every day. By slug; a metric without a margin (percent) never warns.
    """
    groups: list[tuple[Side, bool, Group]] = []
    runs = Pair(base, new)
    for build in SIDES:
        mine, other = runs[build], base if build == "new" else new
        found = [(slug, event) for slug, run in mine.items() for event in run.events]
        for matched in (False, True):
            part = [each for each in found if _matched(*each, mine, other) is matched]
            groups.extend((build, matched, group) for group in _grouped(part))
    groups.sort(key=lambda group: (group[2][0][1].start_s, group[0]))
    # Standard errors of an interval that holds for all series at once (Sidak 1967).
    z = float(ndtri(0.5 + 0.5 * (1.0 - ERROR) ** (1.0 / max(len(base) + len(new), 1))))
    placed = []
    for number, (build, matched, group) in enumerate(groups, 1):
        for slug, event in group:
            witnessed = event.kind == "level" or any(other != slug for other, _ in group)
            least = margins.get(slug, math.inf) * (1.0 if witnessed else LONE)
            warning = not matched and event.at_least_percent(z) >= least
            placed.append(PlacedEvent(slug, build, event, matched, number, warning))
    return tuple(placed)


def _grouped(events: Group) -> list[Group]:
    groups: list[Group] = []
    for slug, event in sorted(events, key=lambda each: (each[1].start_s, each[0])):
        if not groups or event.start_s > groups[-1][0][1].start_s + TOGETHER_S:
            groups.append([])
        groups[-1].append((slug, event))
    return groups


def _matched(slug: str, event: MetricEvent, mine: Mapping[str, RunEvents], other: Mapping[str, RunEvents]) -> bool:
    if slug not in other:
        return False
    for each in other[slug].events:
        small, large = sorted((abs(event.size), abs(each.size)))
        near = any(a.span_s[0] - SAME_S <= b.at_s <= a.span_s[1] + SAME_S for a, b in ((event, each), (each, event)))
        if event.kind == each.kind and event.size * each.size > 0 and near and small >= ALIKE * large:
            return True
    own, there = _contrast(event, mine[slug]), _contrast(event, other[slug])
    return own != 0.0 and there / own >= ALIKE


def _contrast(event: MetricEvent, run: RunEvents) -> float:
    """What an event changed, as means over the same times in any run; NaN where one of them has no numbers."""
    begin, end = event.start_s, event.at_s if event.kind == "level" else event.span_s[1]
    first, last = max(event.around_s[0], begin - NEARBY_S), min(event.around_s[1], end + NEARBY_S)
    if event.kind == "level":
        return run.mean(end, last) - run.mean(first, begin)
    outside = (run.times_s >= first) & (run.times_s < last) & ((run.times_s < begin) | (run.times_s >= end))
    around = run.averages[outside]
    return run.mean(begin, end) - float(around.mean()) if around.size else float("nan")
