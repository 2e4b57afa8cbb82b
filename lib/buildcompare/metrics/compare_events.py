"""Compare the events of two builds: match them between builds, group simultaneous ones, and select warnings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scipy.special import ndtri

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Test
from buildcompare.load.view import RunView, Views
from buildcompare.metrics.events import LONGEST_EXCURSION_S, MetricEvent, RunEvents, find_events, search_window
from buildcompare.results import Event
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.stats.changepoints import CALIBRATION_RUNS, penalty_factor
from buildcompare.stats.levels import SHOWS_S
from buildcompare.stats.noise import RepeatedRuns
from buildcompare.stats.planning import ALPHA

SMALLEST_SHARE = 0.2  # events smaller than this multiple of the metric's margin are omitted
SAME_S = 360.0
"""Maximum seconds between matching events of two runs: start times of server jobs vary by minutes. Drops also match by
the time to the end of the run; otherwise, 1 of 37 pairs of identical unbounded runs has two false warnings."""
ALIKE = 0.5  # minimum ratio between the sizes of matching events
LONE = 6.0
"""Minimum size, in margins, at which a spike or drop is a warning even if no other metric shows it. Identical runs of
published Mattermost tests have spikes of 6 margins in p99 store times (+60 %) and drops of 6 margins in CPU (-31 %)."""

EVENT = [name for name in Event.model_fields if name != "phase"]


@dataclass(frozen=True)
class PlacedEvent(MetricEvent):
    """An event of one metric in one build, its group, and whether the other build has the event too."""

    metric: str
    build: Side
    matched: bool  # True if the other build has the event too
    group: int = 0  # number of the event's group (simultaneous events of a build), from 1 in order of time
    warning: bool = False  # True if only one build has the event, and it is large enough (see `match_events`)


def search_events(
    test: Test, views: Views, catalogue: Catalogue, identical: Sequence[RepeatedRuns] = ()
) -> Pair[list[dict[str, RunEvents]]]:
    """Find the events of any size in the steady window of every run; return them by build, run and metric slug."""

    def events_of(view: RunView) -> dict[str, RunEvents]:
        if (window := search_window(view.steady.window, test.type)) is None:
            return {}
        runs = [run for group in identical if group.type == test.type for run in group.runs]  # runs of this test type
        events: dict[str, RunEvents] = {}
        for metric in catalogue.metrics:
            if series := view.recording.total(metric.slug):
                penalties = tuple(each for run in runs if (each := run.no_change.get(metric.slug, 0.0)) > 0)
                factor = penalty_factor(penalties) if len(penalties) >= CALIBRATION_RUNS else None
                events[metric.slug] = find_events(view.recording.curve(series), window, factor=factor)
        return events

    return views.map(lambda runs: [events_of(view) for view in runs])


def compare_events(searched: Pair[list[dict[str, RunEvents]]], catalogue: Catalogue) -> list[Event]:
    """Compare the events of two builds run by run; events below `SMALLEST_SHARE` of a metric's margin are omitted."""
    events: list[Event] = []
    margins = {metric.slug: metric.margin_percent for metric in catalogue.metrics}
    for number, pair in enumerate(itertools.zip_longest(*searched)):
        base, new = (
            {slug: each.beyond(SMALLEST_SHARE * margins[slug]) for slug, each in (run or {}).items()} for run in pair
        )
        groups = max((event.group or 0 for event in events), default=0)
        for event in match_events(base, new, margins):
            both = event.warning and None not in pair
            fields = vars(event) | {"run": number + 1, "group": groups + event.group, "warning": both}
            events.append(Event.model_validate({name: fields[name] for name in EVENT}))
    return events


def match_events(
    base: Mapping[str, RunEvents], new: Mapping[str, RunEvents], margins: Mapping[str, float]
) -> tuple[PlacedEvent, ...]:
    """Match the events of two runs, group them, and select warnings; the result is ordered by group and time.

    Events of the test itself (the ramp's end, a job at a fixed time) show in both builds at about the same elapsed
    time. An event is a warning if the other build does not show it, and if its 95 % interval (adjusted for the number
    of series) lies beyond the margin of the metric. A spike or drop must also show in a second metric, or exceed `LONE`
    times the margin. Runs and margins (percent) are given by slug; a metric without a margin has no warnings.
    """
    pairs = zip(SIDES, (base, new), (new, base), strict=True)
    events = [
        PlacedEvent(**vars(event), metric=slug, build=build, matched=_matched(slug, event, here, other))
        for build, here, other in pairs
        for slug, run in here.items()
        for event in run.events
    ]
    # Half-width, in standard errors, of an interval that holds for all series at once (Sidak 1967).
    z = float(ndtri(0.5 + 0.5 * (1.0 - ALPHA) ** (1.0 / max(len(base) + len(new), 1))))
    placed = []
    for number, group in enumerate(_together(events), 1):
        for each in group:
            witnessed = each.kind == "level" or any(other.metric != each.metric for other in group)
            least = margins.get(each.metric, math.inf) * (1.0 if witnessed else LONE)
            placed.append(replace(each, group=number, warning=not each.matched and each.at_least_percent(z) >= least))
    return tuple(placed)


def _together(events: Sequence[PlacedEvent]) -> list[list[PlacedEvent]]:
    """Group events of one build that start within `SHOWS_S`, matched and unmatched ones separately; sort by time."""
    groups: list[list[PlacedEvent]] = []
    for each in sorted(events, key=lambda each: (each.build, each.matched, each.start_s, each.metric)):
        first = groups[-1][0] if groups else None
        alike = first is not None and (first.build, first.matched) == (each.build, each.matched)
        if first is None or not alike or each.start_s > first.start_s + SHOWS_S:
            groups.append([])
        groups[-1].append(each)
    return sorted(groups, key=lambda group: (group[0].start_s, group[0].build))


def _matched(slug: str, event: MetricEvent, here: Mapping[str, RunEvents], other: Mapping[str, RunEvents]) -> bool:
    if slug not in other:
        return False
    shorter_s = other[slug].end_s - here[slug].end_s
    for each in other[slug].events:
        small, large = sorted((abs(event.size), abs(each.size)))
        near = _near(event, each) or (event.kind == "drop" and _near(event, each, shorter_s))
        if event.kind == each.kind and event.size * each.size > 0 and near and small >= ALIKE * large:
            return True
    contrast, there = _contrast(event, here[slug]), _contrast(event, other[slug])
    return contrast != 0.0 and there / contrast >= ALIKE


def _near(one: MetricEvent, other: MetricEvent, later_s: float = 0.0) -> bool:
    """True if `other` lies within `SAME_S` of `one` after `one` is moved by `later_s` seconds."""
    since, until, at = (each + later_s for each in (*one.span_s, one.at_s))
    low, high = other.span_s
    return since - SAME_S <= other.at_s <= until + SAME_S or low - SAME_S <= at <= high + SAME_S


def _contrast(event: MetricEvent, run: RunEvents) -> float:
    """Mean of `run` during `event` minus mean around the event; for a level shift: after minus before. NaN: unknown."""
    begin, end = event.start_s, event.at_s if event.kind == "level" else event.span_s[1]
    first, last = max(event.around_s[0], begin - LONGEST_EXCURSION_S), min(event.around_s[1], end + LONGEST_EXCURSION_S)
    if event.kind == "level":
        return run.mean(end, last) - run.mean(first, begin)
    outside = (run.times_s >= first) & (run.times_s < last) & ((run.times_s < begin) | (run.times_s >= end))
    around = run.averages[outside]
    return run.mean(begin, end) - float(around.mean()) if around.size else float("nan")
