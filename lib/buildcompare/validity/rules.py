"""Rules that limit or invalidate a test: each is a function with its codes and their sentences.

A fault of the measurement is no regression of the build.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.load.curve import ARRIVAL_S, HARDLY_ANY, SHORTEST_S, Fall, find_falls, sustained
from buildcompare.load.users import Estimates
from buildcompare.load.view import RunView, Views
from buildcompare.results import Estimate, Validity, ValidityReason
from buildcompare.results.codes import SIDES, NoEstimate, Pair, Reason, ReasonCode, Side, ValidityCode, ValidityStatus
from buildcompare.text.numbers import fill
from buildcompare.text.reasons import reason_words
from buildcompare.validity.facts import RunFacts, run_facts

REACHED = 0.97
"""A bounded run that never held this part of its target did another test: published ones end at 1.0005 of it."""
APART = 0.05
"""Bounded runs whose loads differ by more than this were not the same test."""
HELD = 0.97
"""Below this part of its load a bounded run does not hold it."""
NOT_HELD, HARDLY_HELD = 0.05, 0.25
"""Parts of the time below `HELD` from which a bounded run is limited and invalid."""
PROXY_HARDLY_ANY = 0.1
"""A proxy of the users shows a restart only below this part of its level."""
CEILING = 0.98
"""An unbounded run that ends above this part of its ceiling was stopped by it; waves keep the mean below it."""
STEEP = 0.4
"""Users per second, twice mattermost-load-test-ng's stop rule: a curve that moves this fast was not interrupted, but
has no level yet."""
REPORTED = 0.02
"""The mean of a published curve is within 0.44 % of the supported users that its run reported (45 curves): further
apart, they are of different runs."""
COVERED, HARDLY_COVERED = 0.9, 0.5
"""Parts of the samples below which a metric is named, and below which (in every metric) nothing can be judged."""
SILENT_S = 120.0
"""Longest stretch without samples before a known stop or after the start: twice what an alert query looks back."""
SHORTER = 0.5
"""Bounded runs with less than this part of the other build's steady window were cut."""

Reasons = Iterator[ValidityReason]


@dataclass(frozen=True)
class TestValidity:
    """The validity of a test and of each of its runs."""

    __test__ = False  # not a test class of pytest's

    test: Validity
    runs: Pair[tuple[Validity, ...]]


def judge_validity(
    test: Test, views: Views, estimates: Estimates, catalogue: Catalogue, coordinator: Coordinator
) -> tuple[TestValidity, Views, Estimates]:
    """Judge the runs of `test`; give the views cut to where they are valid, and the estimates without void ones."""
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


def judge_facts(facts: Pair[list[RunFacts]]) -> TestValidity:
    """Judge the runs of one test, alone and beside each other."""
    reasons = [
        reason.model_copy(update={"side": side, "run": i})
        for side, runs in facts.items()
        for i, run in enumerate(runs, start=1)
        for rule in _OF_ONE_RUN
        for reason in rule(run)
    ]
    between = [reason for rule in _BETWEEN_RUNS for reason in rule(facts)]
    return TestValidity(
        _validity([*reasons, *between]),
        Pair.of(
            lambda side: tuple(
                _validity([reason for reason in reasons if (reason.side, reason.run) == (side, i)])
                for i in range(1, len(facts[side]) + 1)
            )
        ),
    )


def _validity(reasons: Sequence[ValidityReason]) -> Validity:
    invalid = any(reason.status == ValidityStatus.INVALID for reason in reasons)
    status = ValidityStatus.INVALID if invalid else ValidityStatus.LIMITED if reasons else ValidityStatus.VALID
    until = [reason.until_s for reason in reasons if reason.until_s is not None]
    limit = min(until) if until and status == ValidityStatus.LIMITED else None
    return Validity(status=status, valid_until_s=limit, reasons=list(reasons))


def _limited(code: ValidityCode, says: str, numbers: dict[str, float] | None = None, **more: Any) -> ValidityReason:
    """A reason that limits; `says` is filled with `numbers` and the further fields of the reason."""
    text = fill(says, {**more, **(numbers or {})})
    return ValidityReason(code=code, status=ValidityStatus.LIMITED, text=text, numbers=dict(numbers or {}), **more)


def _invalid(code: ValidityCode, says: str, numbers: dict[str, float]) -> ValidityReason:
    return _limited(code, says, numbers).model_copy(update={"status": ValidityStatus.INVALID})


# ---- One run --------------------------------------------------------------------------------------------------------


def _recorded(facts: RunFacts) -> Reasons:
    if facts.steady is None and facts.no_steady:
        says = f"no steady window: {reason_words(facts.no_steady)}"
        yield _limited(ValidityCode.NO_STEADY_WINDOW, says, because=facts.no_steady)
    if facts.no_users:
        yield _limited(ValidityCode.NO_USERS, "its connected users are zero from beginning to end")
    gaps_say_it = facts.users and facts.kind == "unbounded"
    if facts.silent_s > SILENT_S and not gaps_say_it:
        says = "its load has no samples in the last {seconds:min} before its stop"
        yield _limited(ValidityCode.SILENT_END, says, {"seconds": facts.silent_s})
    if facts.late_s > SILENT_S:
        says = "its window starts {seconds:min} before its first sample; elapsed time counts from the window's start"
        yield _limited(ValidityCode.SILENT_START, says, {"seconds": facts.late_s})


def _falls(facts: RunFacts) -> Reasons:
    if facts.load is None or facts.stop is None:
        return
    allowed = 0.0 if facts.kind == "bounded" else facts.fastest_fall
    # Goroutines come and go by themselves, and a server without users has some hundred left.
    hardly_any = HARDLY_ANY if facts.users else PROXY_HARDLY_ANY
    found = find_falls(facts.load, facts.stop.at_s, fastest_fall=allowed, hardly_any=hardly_any)
    falls = [fall for fall in found if facts.users or fall.kind == "restart"]
    reasons = [_fall(facts, fall) for fall in (_lost(facts, falls) if facts.kind == "bounded" else falls)]
    for code in dict.fromkeys(reason.code for reason in reasons):
        same = [reason for reason in reasons if reason.code == code]
        worst = max(same, key=lambda reason: (reason.status == ValidityStatus.INVALID, voids(reason)))
        numbers = {**worst.numbers, "times": float(len(same))}
        counted = worst.model_copy(update={"numbers": numbers})
        yield counted.model_copy(update={"text": _fall_words(counted)})


def _fall_words(reason: ValidityReason) -> str:
    n = reason.numbers
    what = "users were lost suddenly" if reason.code == ValidityCode.USERS_LOST else "nearly all users disconnected"
    unit = "on the proxy curve" if "stand_in" in n else "users"
    text = f"{what} at {{at_s:min}}: {{before:,.0f}} {unit} before, {{after:,.0f}} after"
    text += " ({lost_percent:.1f} % lost, one user in {one_in:.0f})" if "one_in" in n else ""
    text += ", back at {back_s:min}" if "back_s" in n else ""
    text += " ({times:.0f} times in all)" if (n["times"] or 0) > 1 else ""
    text += "; judged up to there" if reason.until_s is not None and reason.status == ValidityStatus.LIMITED else ""
    return fill(text, n)


def voids(reason: ValidityReason) -> bool:
    """Whether users were lost within the last 30 minutes, or not yet back when these began."""
    return "in_last_minutes" in reason.numbers or "still_missing" in reason.numbers


def _lost(facts: RunFacts, falls: Sequence[Fall]) -> list[Fall]:
    """The falls of a bounded run, without those of users in excess of its load."""
    load = max(facts.target or 0.0, _sustained(facts, SHORTEST_S))
    return [fall for fall in falls if fall.after < HELD * load]


def _fall(facts: RunFacts, fall: Fall) -> ValidityReason:
    numbers: dict[str, float | None] = {"at_s": fall.at_s, "before": fall.before, "after": fall.after}
    if not facts.users:
        numbers["stand_in"] = 1.0
    if fall.back_s is not None:
        numbers["back_s"] = fall.back_s
    code = ValidityCode.RESTARTED if fall.kind == "restart" else ValidityCode.USERS_LOST
    if fall.kind != "restart" and fall.after < fall.before:  # a load agent of eleven takes one user in 11 with it
        lost = fall.before - fall.after
        numbers |= {"lost_percent": 100.0 * lost / fall.before, "one_in": fall.before / lost}
    start = facts.steady[0] if facts.steady else fall.at_s
    until: float | None = None
    status = ValidityStatus.LIMITED
    if facts.kind == "bounded":
        back_before_the_window = fall.back_s is not None and fall.back_s <= start
        until = None if back_before_the_window else fall.at_s
        if not back_before_the_window and fall.at_s - start < SHORTEST_S:
            status = ValidityStatus.INVALID
    elif fall.at_s > start:  # the last 30 minutes
        until = fall.at_s
        numbers["in_last_minutes"] = 1.0
    elif fall.back_s is None or fall.back_s > start:  # the last 30 minutes began without them
        numbers["still_missing"] = 1.0
    return ValidityReason(code=code, status=status, numbers=numbers, until_s=until)


def _target(facts: RunFacts) -> Reasons:
    if facts.kind != "bounded" or facts.load is None or not facts.users or facts.stop is None:
        return
    top = _sustained(facts, SHORTEST_S)
    if facts.steady is None and _sustained(facts, ARRIVAL_S) > top:  # cut on arrival: there is no steady window
        top = _sustained(facts, ARRIVAL_S)
    if facts.target is not None and not top >= REACHED * facts.target:
        says = "the load was never reached: {reached:,.0f} users of {target:,.0f}"
        yield _invalid(ValidityCode.TARGET_NOT_REACHED, says, {"reached": top, "target": facts.target})
    users = facts.under_load
    up = np.flatnonzero(users.to_numpy() >= HELD * top)
    if up.size == 0:
        return
    falls = _lost(facts, find_falls(users, facts.stop.at_s, fastest_fall=0.0))
    until = min((fall.at_s for fall in falls), default=facts.stop.at_s)
    plateau = users[(users.index >= users.index[up[0]]) & (users.index <= until)]
    below = float(np.mean(plateau.to_numpy() < HELD * top)) if len(plateau) else 0.0
    if below > NOT_HELD:
        make = _invalid if below > HARDLY_HELD else _limited
        says = "the load was not held: below {held:.0%} of {users:,.0f} users for {below:.0%} of the time"
        yield make(ValidityCode.TARGET_NOT_HELD, says, {"below": below, "users": top, "held": HELD})


def _equilibrium(facts: RunFacts) -> Reasons:
    estimate = facts.estimate
    if facts.kind == "bounded" or estimate is None:
        return
    mean = _carried(facts)
    if facts.target is not None and mean is not None and mean >= CEILING * facts.target:
        says = "the ceiling of users was reached ({users:,.0f} of {ceiling:,.0f}): the build supports at least as many"
        yield _limited(ValidityCode.CEILING_REACHED, says, {"users": mean, "ceiling": facts.target})
    slope = estimate.slope_users_per_s
    why = str(estimate.reason)
    if why == "interrupted" and slope is not None and abs(slope) > STEEP:
        why = "still_climbing" if slope > 0 else "still_falling"
    if why in ("still_climbing", "still_falling") and any("in_last_minutes" in fall.numbers for fall in _falls(facts)):
        return  # who was lost in these minutes, or came back, makes the slope
    moved = f"by {abs(slope or 0.0):.2f} per second over the last 30 minutes"
    sentences = {
        "still_climbing": f"no equilibrium: the users still rose {moved}",
        "still_falling": f"no equilibrium: the users still fell {moved}",
        "may_be_cut": "the curve ends with the base's and shows no stop, so it may have been cut",
        "too_short": "the run is shorter than the 30 minutes that count",
        "gaps": "the last 30 minutes have gaps",
    }
    if why in sentences:  # the others are no faults of the run
        yield _limited(ValidityCode(why), sentences[why], {} if slope is None else {"slope_users_per_s": slope})


def _other_runs(facts: RunFacts) -> Reasons:
    mean, reported = _carried(facts), facts.reported
    if facts.kind == "bounded" or facts.estimate is None or mean is None or reported is None:
        return
    change = mean / reported - 1.0
    at_least = facts.estimate.estimated is None
    if (mean > (1.0 + REPORTED) * reported) if at_least else (abs(change) > REPORTED):
        says = "curve and reported supported users are of different runs: {curve:,.0f} users against {reported:,.0f}"
        numbers = {"curve": mean, "reported": reported, "change": change}
        yield _invalid(ValidityCode.OTHER_RUNS, says + " ({change:+.1%})", numbers)


def _carried(facts: RunFacts) -> float | None:
    """The users over the last 30 minutes, as an estimate or as a lower bound."""
    estimate = facts.estimate
    if estimate is None:
        return None
    return estimate.estimated if estimate.estimated is not None else estimate.at_least


def _coverage(facts: RunFacts) -> Reasons:
    known = {slug: part for slug, part in facts.coverage.items() if part is not None}
    if not known or facts.steady is None:
        return
    if max(known.values()) < HARDLY_COVERED:
        says = "every metric lacks more than half of its samples in the steady window (at most {covered:.0%} are there)"
        yield _invalid(ValidityCode.LITTLE_COVERAGE, says, {"covered": max(known.values()), "metrics": len(known)})
        return
    gaps = {slug: part for slug, part in known.items() if 0.0 < part < COVERED}  # without a number it is missing
    if gaps:
        worst = min(gaps, key=gaps.__getitem__)
        numbers = {"covered": gaps[worst], "metrics": len(gaps), "others": len(gaps) - 1}
        says = "{metric}: only {covered:.0%} of the samples in the steady window are there"
        says += "; {others:.0f} other metrics lack samples too" if len(gaps) > 1 else ""
        yield _limited(ValidityCode.LITTLE_COVERAGE, says, numbers, metric=worst)


def _counters_restarted(facts: RunFacts) -> Reasons:
    if facts.resets:
        says = "counters of the server restarted inside the window, {times:.0f} times"
        yield _limited(ValidityCode.COUNTERS_RESTARTED, says, {"times": facts.resets})


def _sustained(facts: RunFacts, seconds: float) -> float:
    """The highest load that the run was at or above for this long in all."""
    users = facts.under_load
    return sustained(users.index.to_numpy(dtype=np.float64), users.to_numpy(dtype=np.float64), seconds)


# ---- Runs beside each other -----------------------------------------------------------------------------------------


def _loads_differ(facts: Pair[list[RunFacts]]) -> Reasons:
    bounded = facts.map(lambda runs: [run for run in runs if run.kind == "bounded" and run.users and run.steady])
    if not all(bounded):
        return
    base, new = (float(np.mean([_sustained(run, SHORTEST_S) for run in runs])) for runs in bounded)
    if not (base > 0 and new > 0 and abs(math.log(new / base)) <= math.log1p(APART)):
        says = "the builds were under different loads: {base:,.0f} and {new:,.0f} users"
        yield _invalid(ValidityCode.LOADS_DIFFER, says, {"base": base, "new": new})


def _window_shorter(facts: Pair[list[RunFacts]]) -> Reasons:
    windows = facts.map(lambda runs: [run.steady for run in runs if run.kind == "bounded"])
    for side in SIDES:
        theirs = float(np.median([w[1] - w[0] for w in windows[_other(side)] if w] or [0.0]))
        for i, own in enumerate(windows[side], start=1):
            if own and own[1] - own[0] < SHORTER * theirs:
                numbers = {"seconds": own[1] - own[0], "other_seconds": theirs}
                says = "its steady window is short: {seconds:min} against {other_seconds:min} of the other build"
                yield _limited(ValidityCode.WINDOW_SHORTER, says, numbers, side=side, run=i)


def _series_missing(facts: Pair[list[RunFacts]]) -> Reasons:
    there = facts.map(lambda runs: {slug for run in runs for slug, part in run.coverage.items() if part})
    for side in SIDES:
        if any(run.steady for run in facts[side]):  # else there is no steady window to cover
            for slug in sorted(there[_other(side)] - there[side]):
                says = "{metric} was not recorded; the other build has it"
                yield _limited(ValidityCode.SERIES_MISSING, says, metric=slug, side=side)


def _windows_overlap(facts: Pair[list[RunFacts]]) -> Reasons:
    runs = [(side, i, run) for side, of_side in facts.items() for i, run in enumerate(of_side, start=1) if run.clock]
    for k, (side, i, run) in enumerate(runs):
        for _, _, earlier in runs[:k]:
            both = min(run.window[1], earlier.window[1]) - max(run.window[0], earlier.window[0])
            if run.clock == earlier.clock and both > 0:
                says = "its window overlaps another run's on the same server by {seconds:min}: both measured the same"
                found = _invalid(ValidityCode.WINDOWS_OVERLAP, says, {"seconds": both})
                yield found.model_copy(update={"side": side, "run": i})
                break


def _other(side: Side) -> Side:
    return "new" if side == "base" else "base"


# fmt: off
_OF_ONE_RUN: tuple[Callable[[RunFacts], Reasons], ...] = (
    _recorded, _falls, _target, _equilibrium, _other_runs, _coverage, _counters_restarted,
)
_BETWEEN_RUNS: tuple[Callable[[Pair[list[RunFacts]]], Reasons], ...] = (
    _loads_differ, _window_shorter, _series_missing, _windows_overlap,
)
