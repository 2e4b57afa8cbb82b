"""Judge the validity of a test and cut its runs to the part that may be judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.sides import Views
from buildcompare.load.supported_users import SupportedUsers
from buildcompare.load.view import RunView
from buildcompare.results import Pair, Reason, Side, Validity
from buildcompare.results.codes import ReasonCode, ValidityCode
from buildcompare.validity.facts import run_facts
from buildcompare.validity.rules import SHORTEST_S, TestValidity, judge_facts, voids

Estimates = Mapping[Side, Sequence[SupportedUsers | None]]


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
    cut: dict[Side, list[RunView]] = {}
    supported: dict[Side, list[SupportedUsers | None]] = {}
    for side, runs in validity.runs.items():
        cut[side] = [_cut(view, run.valid_until_s) for view, run in zip(views[side], runs, strict=True)]
        supported[side] = [_void(users, run) for users, run in zip(estimates[side], runs, strict=True)]
    return validity, cut, supported


def _cut(view: RunView, until_s: float | None) -> RunView:
    """The view with its steady window up to `until_s`."""
    window = view.steady.window
    if until_s is None or window is None or until_s >= window[1]:
        return view
    if until_s - window[0] < SHORTEST_S:
        reason = Reason(code=ReasonCode.UNFIT_EARLY, minutes=max(until_s - window[0], 0.0) / 60)
        return replace(view, steady=replace(view.steady, window=None, method="none", reason=reason))
    return replace(view, steady=replace(view.steady, window=(window[0], until_s)))


def _void(estimate: SupportedUsers | None, validity: Validity) -> SupportedUsers | None:
    codes = {reason.code for reason in validity.reasons if voids(reason)}
    if estimate is None or not codes:
        return estimate
    return SupportedUsers(None, None, "users_lost" if ValidityCode.USERS_LOST in codes else "interrupted")
