"""Is the test fit to be judged, and which part of it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.sides import SIDES, Views
from buildcompare.load.supported_users import SupportedUsers
from buildcompare.load.view import RunView
from buildcompare.results import Side, Validity
from buildcompare.results.base import Reason
from buildcompare.results.codes import ReasonCode
from buildcompare.text.validity import said
from buildcompare.validity.facts import facts_of
from buildcompare.validity.reasons import TestVerdict, Verdict
from buildcompare.validity.rules import JudgeValidity

SHORTEST_S = 300.0
"""A steady window that is cut shorter than this is none (see analysis.steady_state)."""
Estimates = Mapping[Side, Sequence[SupportedUsers | None]]


@dataclass(frozen=True)
class Fitness:
    """The verdict on a test and its runs, and what is left of them to be judged."""

    verdict: TestVerdict
    views: Views
    estimates: Estimates

    def of_run(self, side: Side, number: int) -> Validity:
        """The validity of one run."""
        return _validity(self.verdict.runs[side][number], several=False)

    def of_test(self) -> Validity:
        """The validity of the test."""
        return _validity(self.verdict.test, several=any(len(self.views[side]) > 1 for side in SIDES))


def judge_fitness(
    test: Test, views: Views, estimates: Estimates, catalogue: Catalogue, coordinator: Coordinator
) -> Fitness:
    """Judge `test`; runs are cut to where they were fit, and lost users void what an unbounded one supports."""
    facts = {
        side: [
            facts_of(view, estimate, test, run, catalogue, coordinator)
            for view, estimate, run in zip(views[side], estimates[side], test.runs(side), strict=True)
        ]
        for side in SIDES
    }
    verdict = JudgeValidity()(facts["base"], facts["new"])
    left: dict[Side, list[RunView]] = {side: [] for side in SIDES}
    supported: dict[Side, list[SupportedUsers | None]] = {side: [] for side in SIDES}
    for side in SIDES:
        for view, estimate, run in zip(views[side], estimates[side], verdict.runs[side], strict=True):
            left[side].append(_cut(view, run.valid_until_s))
            why = run.voids_supported_users
            supported[side].append(estimate if estimate is None or why is None else SupportedUsers(None, None, why))
    return Fitness(verdict, left, supported)


def _cut(view: RunView, until_s: float | None) -> RunView:
    """The view with its steady window up to `until_s`."""
    window = view.steady.window
    if until_s is None or window is None or until_s >= window[1]:
        return view
    if until_s - window[0] < SHORTEST_S:
        reason = Reason(code=ReasonCode.UNFIT_EARLY, minutes=max(until_s - window[0], 0.0) / 60)
        return replace(view, steady=replace(view.steady, window=None, method="none", reason=reason))
    return replace(view, steady=replace(view.steady, window=(window[0], until_s)))


def _validity(verdict: Verdict, *, several: bool) -> Validity:
    return Validity(
        status=verdict.status,
        valid_until_s=verdict.valid_until_s,
        codes=[reason.code for reason in verdict.reasons],
        reasons=[said(reason, several=several) for reason in verdict.reasons],
        numbers=[dict(reason.numbers) for reason in verdict.reasons],
    )
