"""Judge the validity of a test and cut its runs to the part that may be judged."""

from __future__ import annotations

from dataclasses import replace

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.users import Estimates
from buildcompare.load.view import RunView, Views
from buildcompare.load.windows import SHORTEST_S
from buildcompare.results import Estimate, Pair, Reason, Validity
from buildcompare.results.codes import NoEstimate, ReasonCode, ValidityCode
from buildcompare.validity.facts import run_facts
from buildcompare.validity.rules import TestValidity, judge_facts, voids


def judge_validity(
    test: Test, views: Views, estimates: Estimates, catalogue: Catalogue, coordinator: Coordinator
) -> tuple[TestValidity, Views, Estimates]:
    """Judge the runs of `test`.

    Returns
    -------
    The validity; the views, cut to where each run is valid; the estimates, without those that lost users void.
    """
    facts = Pair.of(
        lambda side: [
            run_facts(view, estimate, test, run, catalogue, coordinator)
            for view, estimate, run in zip(views[side], estimates[side], test.runs(side), strict=True)
        ]
    )
    validity = judge_facts(facts)
    runs = validity.runs
    cut = Pair.of(lambda side: [_cut(v, run.valid_until_s) for v, run in zip(views[side], runs[side], strict=True)])
    left = Pair.of(lambda side: [_void(users, run) for users, run in zip(estimates[side], runs[side], strict=True)])
    return validity, cut, left


def _cut(view: RunView, until_s: float | None) -> RunView:
    """The view with its steady window up to `until_s`."""
    window = view.steady.window
    if until_s is None or window is None or until_s >= window[1]:
        return view
    if until_s - window[0] < SHORTEST_S:
        reason = Reason(code=ReasonCode.UNFIT_EARLY, minutes=max(until_s - window[0], 0.0) / 60)
        return replace(view, steady=replace(view.steady, window=None, method="none", reason=reason))
    return replace(view, steady=replace(view.steady, window=(window[0], until_s)))


def _void(estimate: Estimate | None, validity: Validity) -> Estimate | None:
    codes = {reason.code for reason in validity.reasons if voids(reason)}
    if estimate is None or not codes:
        return estimate
    why = NoEstimate.USERS_LOST if ValidityCode.USERS_LOST in codes else NoEstimate.INTERRUPTED
    return Estimate(estimated=None, at_least=None, reason=why)
