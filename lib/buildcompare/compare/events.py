"""What happened at one time in one metric, and only in one build?"""

from __future__ import annotations

from dataclasses import dataclass

from buildcompare.analysis.events import AFTER_RAMP_S, FindEvents, RunEvents
from buildcompare.analysis.match_events import MatchEvents
from buildcompare.compare.sides import SIDES, Views
from buildcompare.metrics import Catalogue
from buildcompare.params import Test
from buildcompare.results import Event
from buildcompare.run_view import RunView

SMALLEST_SHARE = 0.2
"""Events below this part of the metric's margin are of no interest to anybody."""


@dataclass(frozen=True)
class CompareEvents:
    """The events of the steady windows. Repeated runs are paired in their order; a run left over has no partner."""

    catalogue: Catalogue

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
                    warning=placed.warning and number < min(len(views[side]) for side in SIDES),
                )
                for placed in MatchEvents()(found["base"], found["new"], margins)
            ]
        return events

    def _of_run(self, test: Test, view: RunView) -> dict[str, RunEvents]:
        if view.steady.window is None:
            return {}
        start, end = view.steady.window
        inside = (start + AFTER_RAMP_S, end) if test.type == "bounded" else (start, end)
        found: dict[str, RunEvents] = {}
        for metric in self.catalogue.metrics:
            series = view.recording.total(metric.slug)
            if series is not None and inside[1] > inside[0]:
                smallest = SMALLEST_SHARE * metric.margin_percent
                found[metric.slug] = FindEvents()(view.recording.curve(series), inside, smallest_percent=smallest)
        return found
