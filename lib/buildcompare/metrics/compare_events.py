"""What happened at one time in one metric, and only in one build?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Test
from buildcompare.load.sides import SIDES, Views
from buildcompare.load.view import RunView
from buildcompare.metrics.events import FindEvents, RunEvents, search_window
from buildcompare.metrics.match_events import MatchEvents, PlacedEvent
from buildcompare.results import Event
from buildcompare.stats.change_penalty import CalibratedPenalty, DetectChanges
from buildcompare.stats.noise import RepeatedRuns

SMALLEST_SHARE = 0.2
"""Events below this part of the metric's margin are of no interest to anybody."""


FOLLOWS = 1.5
"""A level that moves with the load by up to this many times the load's own change follows it: costs grow faster than
users (simulated servers: by the power 1.2), and what was measured of both is noisy."""


@dataclass(frozen=True)
class CompareEvents:
    """The events of the steady windows. Repeated runs are paired in their order; a run left over has no partner."""

    catalogue: Catalogue
    identical: Sequence[RepeatedRuns] = ()
    """Repeated runs, from which the penalties of changes are learned where there are enough of them."""

    def __call__(self, test: Test, views: Views) -> list[Event]:
        """Every event of every run, matched with the run of the same number of the other build."""
        events: list[Event] = []
        for number in range(max(len(views[side]) for side in SIDES)):
            found = {s: self._of_run(test, views[s][number]) if number < len(views[s]) else {} for s in SIDES}
            margins = {m.slug: m.margin_percent for m in self.catalogue.metrics}
            groups = max((event.group or 0 for event in events), default=0)
            events += [
                Event(
                    metric=placed.metric,
                    build=placed.build,
                    run=number + 1,
                    kind=placed.event.kind,
                    at_s=placed.event.at_s,
                    span_s=placed.event.span_s,
                    size=placed.event.size,
                    size_percent=placed.event.size_percent,
                    ci=placed.event.ci,
                    group=groups + placed.group,
                    matched=placed.matched,
                    warning=placed.warning
                    and number < min(len(views[side]) for side in SIDES)
                    and not (test.type == "unbounded" and _follows_load(placed, views[placed.build][number])),
                )
                for placed in MatchEvents()(found["base"], found["new"], margins)
            ]
        return events

    def _of_run(self, test: Test, view: RunView) -> dict[str, RunEvents]:
        if view.steady.window is None:
            return {}
        inside = search_window(view.steady.window, test.type)
        found: dict[str, RunEvents] = {}
        for metric in self.catalogue.metrics:
            series = view.recording.total(metric.slug)
            if series is not None and inside[1] > inside[0]:
                smallest = SMALLEST_SHARE * metric.margin_percent
                find = FindEvents(detect=DetectChanges(calibration=self._penalty(metric.slug, test)))
                found[metric.slug] = find(view.recording.curve(series), inside, smallest_percent=smallest)
        return found

    def _penalty(self, slug: str, test: Test) -> CalibratedPenalty | None:
        """Learned from runs of the same type of test, whose windows are about as long; None with too few of them."""
        runs = [run for group in self.identical if group.type == test.type for run in group.runs]
        known = tuple(each for run in runs if (each := run.no_change.get(slug, 0.0)) > 0)
        return CalibratedPenalty(known) if len(known) >= CalibratedPenalty.MIN_RUNS else None


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
