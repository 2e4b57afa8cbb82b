"""Which events happened in one build only, which belong together, and which are worth a warning?"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scipy.stats import norm

from buildcompare.metrics.event_measures import MetricEvent
from buildcompare.metrics.events import RunEvents

Build = Literal["base", "new"]
Group = list[tuple[str, MetricEvent]]


@dataclass(frozen=True)
class PlacedEvent:
    """An event of one metric of one build, and what the rest of the test says about it.

    Attributes
    ----------
    matched
        Whether the other build shows it too.
    group
        The same number for events of one build that happened together; numbered by time, from 1.
    warning
        Whether it is in one build only and surely larger than the metric's margin.
    """

    metric: str
    build: Build
    event: MetricEvent
    matched: bool
    group: int
    warning: bool


@dataclass(frozen=True)
class MatchEvents:
    """Pair the events of two runs of one test, group them, and pick those worth a warning.

    What belongs to the test (the ramp's end, a job at a fixed time) is in both builds at about the same elapsed time:
    it is no finding. A warning needs an event that the other build does not show, and whose size is beyond the
    metric's margin even at the near end of its interval, with an error of 5 % for all series of the test together. A
    spike or drop must be witnessed by another metric, or be out of all proportion: one minute of one metric alone is
    what identical runs show every day.
    """

    together_s: float = 120.0
    """Events of one build that start within this time are one: averages of one minute, of rates over one minute."""
    same_s: float = 180.0
    """As far apart may the builds show the same event: a minute more, for runs whose start was stamped by hand."""
    alike: float = 0.5
    """An event of the other build counts as the same with at least this part of the size."""
    error: float = 0.05
    lone: float = 6.0
    """Margins that a spike or drop must surely exceed to warn where no other metric moves with it. Identical runs have
    lone excursions of 6 margins (p99 store times +60 %, CPU -31 %) in Mattermost's published ceiling tests."""

    def __call__(
        self, base: Mapping[str, RunEvents], new: Mapping[str, RunEvents], margins: Mapping[str, float]
    ) -> tuple[PlacedEvent, ...]:
        """Place the events of each metric (by slug); `margins` in percent. In the order of groups and time.

        A metric without a margin never warns. An event of a metric that the other build lacks is unmatched.
        """
        sides: tuple[tuple[Build, Mapping[str, RunEvents], Mapping[str, RunEvents]], ...] = (
            ("base", base, new),
            ("new", new, base),
        )
        groups: list[tuple[Build, bool, Group]] = []
        for build, mine, other in sides:
            found = [(slug, event) for slug, run in mine.items() for event in run.events]
            for matched in (False, True):
                part = [each for each in found if self._matched(*each, mine, other) is matched]
                groups.extend((build, matched, group) for group in self._grouped(part))
        surely = functools.partial(self._warns, margins=margins, z=self._z(len(base) + len(new)))
        groups.sort(key=lambda group: (_start_s(group[2][0][1]), group[0]))
        return tuple(
            PlacedEvent(slug, build, event, matched, number, warning=not matched and surely(slug, event, group))
            for number, (build, matched, group) in enumerate(groups, 1)
            for slug, event in group
        )

    def _grouped(self, events: Group) -> list[Group]:
        groups: list[Group] = []
        for slug, event in sorted(events, key=lambda each: (_start_s(each[1]), each[0])):
            if not groups or _start_s(event) > _start_s(groups[-1][0][1]) + self.together_s:
                groups.append([])
            groups[-1].append((slug, event))
        return groups

    def _warns(self, slug: str, event: MetricEvent, group: Group, margins: Mapping[str, float], z: float) -> bool:
        if slug not in margins:
            return False
        witnessed = event.kind == "level" or any(other != slug for other, _ in group)
        return event.at_least_percent(z) >= margins[slug] * (1.0 if witnessed else self.lone)

    def _z(self, series: int) -> float:
        """Standard errors of an interval that holds for `series` series at once (Sidak 1967)."""
        return float(norm.ppf(0.5 + 0.5 * (1.0 - self.error) ** (1.0 / max(series, 1))))

    def _matched(
        self, slug: str, event: MetricEvent, mine: Mapping[str, RunEvents], other: Mapping[str, RunEvents]
    ) -> bool:
        if slug not in other:
            return False
        if any(self._same(event, each) for each in other[slug].events):
            return True
        own, there = _contrast(event, mine[slug]), _contrast(event, other[slug])
        return own != 0.0 and there / own >= self.alike

    def _same(self, one: MetricEvent, other: MetricEvent) -> bool:
        small, large = sorted((abs(one.size), abs(other.size)))
        near = (
            one.span_s[0] - self.same_s <= other.at_s <= one.span_s[1] + self.same_s
            or other.span_s[0] - self.same_s <= one.at_s <= other.span_s[1] + self.same_s
        )
        return one.kind == other.kind and one.size * other.size > 0 and near and small >= self.alike * large


NEARBY_S = 1200.0
"""How far before and after an event the other run is looked at: as long as an excursion may last."""


def _contrast(event: MetricEvent, run: RunEvents) -> float:
    """What an event changed, as means over the same times in any run; NaN where one of them has no numbers."""
    begin, end = (event.at_s, event.at_s) if event.kind == "level" else event.span_s
    first, last = max(event.around_s[0], begin - NEARBY_S), min(event.around_s[1], end + NEARBY_S)
    if event.kind == "level":
        return run.mean(end, last) - run.mean(first, begin)
    outside = (run.times_s >= first) & (run.times_s < last) & ((run.times_s < begin) | (run.times_s >= end))
    around = run.averages[outside]
    return run.mean(begin, end) - float(around.mean()) if around.size else float("nan")


def _start_s(event: MetricEvent) -> float:
    return event.at_s if event.kind == "level" else event.span_s[0]
