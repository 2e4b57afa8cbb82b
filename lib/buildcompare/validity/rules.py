"""May a run be judged at all, and up to when? A test that measured something else is no regression.

Every reason is a code with its numbers; sentences are made of them in :mod:`buildcompare.text.validity`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from buildcompare.load.steady_state import ARRIVAL_S, sustained
from buildcompare.load.supported_users import Reason as NoEstimate
from buildcompare.results.codes import ValidityStatus
from buildcompare.validity.falls import Fall, FindFalls
from buildcompare.validity.reasons import Code, Reason, RunFacts, Side, TestVerdict, Verdict

_OTHER: Mapping[Side, Side] = {"base": "new", "new": "base"}
_EQUILIBRIUM: Mapping[NoEstimate, Code] = {
    "still_climbing": "still_climbing",
    "still_falling": "still_falling",
    "may_be_cut": "may_be_cut",
    "too_short": "too_short",
    "gaps": "gaps",
}
"""Why a curve gives no supported users, where that is a fault of the run and not of what was recorded of it."""


@dataclass(frozen=True)
class JudgeValidity:
    """Judge the runs of one test, alone and beside each other.

    Parameters
    ----------
    reached
        A bounded run that never held this part of its target did another test: published ones end at 1.0005 of it.
    apart
        Bounded runs whose loads differ by more than this were not the same test.
    held, not_held, hardly_held
        Below `held` of its load a bounded run does not hold it: for more than the part `not_held` of the time it is
        limited, for more than `hardly_held` invalid.
    proxy_hardly_any
        A curve that stands in for the users shows a restart only below this part of its level.
    ceiling
        An unbounded run that ends above this part of the ceiling was stopped by it: the waves of the feedback loop
        keep a mean from being the ceiling itself.
    steep
        Users per second: a curve that moves this fast through half of its level within 30 minutes was not interrupted
        there, but has no level yet (twice mattermost-load-test-ng's stop rule).
    reported
        The mean of a whole published curve is within 0.44 % of the supported users that its run reported
        (45 curves): with more than this between them they are not of one run.
    covered, hardly_covered
        A metric with less than `covered` of its samples is named; with less than `hardly_covered` in every metric
        there is nothing to judge.
    shortest_s
        With less than this before a fault nothing can be judged (five samples of a one-minute rate).
    silent_s
        After this long without a number of the load, before the known stop of a run, its end was not seen: an alert
        query looks back one minute, twice. After as long without any number, the window begins before the run.
    shorter
        Bounded runs with less than this part of the other build's steady window were cut.
    """

    reached: float = 0.97
    apart: float = 0.05
    held: float = 0.97
    not_held: float = 0.05
    hardly_held: float = 0.25
    proxy_hardly_any: float = 0.1
    ceiling: float = 0.98
    steep: float = 0.4
    reported: float = 0.02
    covered: float = 0.9
    hardly_covered: float = 0.5
    shortest_s: float = 300.0
    silent_s: float = 120.0
    shorter: float = 0.5

    def __call__(self, base: Sequence[RunFacts], new: Sequence[RunFacts]) -> TestVerdict:
        """The verdicts on the test and on each run."""
        sides: dict[Side, Sequence[RunFacts]] = {"base": base, "new": new}
        reasons = [
            replace(r, side=side, run=i)
            for side, runs in sides.items()
            for i, facts in enumerate(runs)
            for r in self._run(facts)
        ]
        both = [*self._loads(sides), *self._lengths(sides), *self._missing(sides), *self._overlaps(sides)]
        own: dict[Side, tuple[Verdict, ...]] = {
            side: tuple(_verdict([r for r in reasons if (r.side, r.run) == (side, i)]) for i in range(len(runs)))
            for side, runs in sides.items()
        }
        return TestVerdict(_verdict([*reasons, *both]), own)

    # ---- One run ------------------------------------------------------------------------------------------------

    def _run(self, facts: RunFacts) -> Iterator[Reason]:
        if facts.steady is None and facts.no_steady:
            yield Reason("no_steady_window", ValidityStatus.LIMITED, text=facts.no_steady)
        if facts.no_users:
            yield Reason("no_users", ValidityStatus.LIMITED)
        if facts.silent_s > self.silent_s and not (facts.users and facts.kind == "unbounded"):  # "gaps", says that
            yield Reason("silent_end", ValidityStatus.LIMITED, {"seconds": facts.silent_s})
        if facts.late_s > self.silent_s:
            yield Reason("silent_start", ValidityStatus.LIMITED, {"seconds": facts.late_s})
        falls = list(self._falls(facts))
        yield from falls
        if facts.kind == "bounded":
            yield from self._target(facts)
        else:
            yield from self._equilibrium(facts, broken=any("in_last_minutes" in fall.numbers for fall in falls))
        yield from self._coverage(facts)
        if facts.resets:
            yield Reason("counters_restarted", ValidityStatus.LIMITED, {"times": facts.resets})

    def _falls(self, facts: RunFacts) -> Iterator[Reason]:
        if facts.load is None or facts.stop is None:
            return
        allowed = 0.0 if facts.kind == "bounded" else facts.fastest_fall
        find = FindFalls(fastest_fall=allowed)
        if not facts.users:  # goroutines come and go by themselves, and a server without users has some hundred left
            find = replace(find, hardly_any=self.proxy_hardly_any)
        falls = [f for f in find(facts.load, facts.stop.at_s) if facts.users or f.kind == "restart"]
        if facts.kind == "bounded":
            falls = self._lost(facts, falls)
        reasons = [self._fall(facts, fall) for fall in falls]
        for code in dict.fromkeys(reason.code for reason in reasons):
            same = [reason for reason in reasons if reason.code == code]
            worst = max(
                same, key=lambda reason: (reason.severity == ValidityStatus.INVALID, reason.voids_supported_users)
            )
            yield replace(worst, numbers={**worst.numbers, "times": len(same)})

    def _lost(self, facts: RunFacts, falls: Sequence[Fall]) -> list[Fall]:
        """The falls of a bounded run but those of users in excess of its load: who came on top and went is not lost."""
        load = max(facts.target or 0.0, _sustained(facts, self.shortest_s))
        return [fall for fall in falls if fall.after < self.held * load]

    def _fall(self, facts: RunFacts, fall: Fall) -> Reason:
        numbers = {"at_s": fall.at_s, "before": fall.before, "after": fall.after}
        if not facts.users:
            numbers["stand_in"] = 1.0
        if fall.back_s is not None:
            numbers["back_s"] = fall.back_s
        code: Code = "restarted" if fall.kind == "restart" else "users_lost"
        if code == "users_lost" and fall.after < fall.before:  # a load agent of eleven takes one user in 11 with it
            lost = fall.before - fall.after
            numbers |= {"lost_percent": 100.0 * lost / fall.before, "one_in": fall.before / lost}
        start = facts.steady[0] if facts.steady else fall.at_s
        if facts.kind == "bounded":
            left = fall.at_s - start
            before_the_window = fall.back_s is not None and fall.back_s <= start
            severity = (
                ValidityStatus.LIMITED if before_the_window or left >= self.shortest_s else ValidityStatus.INVALID
            )
            return Reason(code, severity, numbers, until_s=None if before_the_window else fall.at_s)
        if fall.at_s > start:  # the last 30 minutes
            return Reason(code, ValidityStatus.LIMITED, {**numbers, "in_last_minutes": 1.0}, until_s=fall.at_s)
        if fall.back_s is None or fall.back_s > start:  # the last 30 minutes began without them
            numbers["still_missing"] = 1.0
        return Reason(code, ValidityStatus.LIMITED, numbers)

    def _target(self, facts: RunFacts) -> Iterator[Reason]:
        if facts.load is None or not facts.users or facts.stop is None:
            return
        top = _sustained(facts, self.shortest_s)
        ended_early = facts.steady is None and _sustained(facts, ARRIVAL_S) > top  # cut as it arrived: said already
        if ended_early:
            top = _sustained(facts, ARRIVAL_S)
        if facts.target is not None and not top >= self.reached * facts.target:
            yield Reason("target_not_reached", ValidityStatus.INVALID, {"reached": top, "target": facts.target})
        users = _under_load(facts)
        values = users.to_numpy()
        up = np.flatnonzero(values >= self.held * top)
        if up.size == 0:
            return
        falls = self._lost(facts, FindFalls(fastest_fall=0.0)(users, facts.stop.at_s))
        until = min((fall.at_s for fall in falls), default=facts.stop.at_s)
        plateau = users[(users.index >= users.index[up[0]]) & (users.index <= until)]
        below = float(np.mean(plateau.to_numpy() < self.held * top)) if len(plateau) else 0.0
        if below > self.not_held:
            severity = ValidityStatus.INVALID if below > self.hardly_held else ValidityStatus.LIMITED
            yield Reason("target_not_held", severity, {"below": below, "users": top, "held": self.held})

    def _equilibrium(self, facts: RunFacts, *, broken: bool) -> Iterator[Reason]:
        estimate = facts.estimate
        if estimate is None:
            return
        mean = estimate.estimated if estimate.estimated is not None else estimate.at_least
        if facts.target is not None and mean is not None and mean >= self.ceiling * facts.target:
            yield Reason("ceiling_reached", ValidityStatus.LIMITED, {"users": mean, "ceiling": facts.target})
        slope = estimate.slope_users_per_s
        why = estimate.reason
        if why == "interrupted" and slope is not None and abs(slope) > self.steep:
            why = "still_climbing" if slope > 0 else "still_falling"
        if broken and why in ("still_climbing", "still_falling"):
            why = None  # who went away in these minutes, or came back, makes the slope: that is said already
        if why is not None and why in _EQUILIBRIUM:
            yield Reason(
                _EQUILIBRIUM[why], ValidityStatus.LIMITED, {} if slope is None else {"slope_users_per_s": slope}
            )
        if facts.reported is None:
            return
        if estimate.estimated is not None and abs(estimate.estimated / facts.reported - 1.0) > self.reported:
            yield _other_run(estimate.estimated, facts.reported)
        elif estimate.estimated is None and mean is not None and mean > (1.0 + self.reported) * facts.reported:
            yield _other_run(mean, facts.reported)  # what it carried at least

    def _coverage(self, facts: RunFacts) -> Iterator[Reason]:
        known = {slug: c.fraction for slug, c in facts.coverage.items() if c.fraction is not None}
        if not known or facts.steady is None:
            return
        poor = {slug: fraction for slug, fraction in known.items() if fraction < self.covered}
        if max(known.values()) < self.hardly_covered:
            yield Reason(
                "little_coverage", ValidityStatus.INVALID, {"covered": max(known.values()), "metrics": len(known)}
            )
            return
        gaps = {slug: fraction for slug, fraction in poor.items() if fraction > 0.0}  # without a number it is missing
        if gaps:
            worst = min(gaps, key=gaps.__getitem__)
            yield Reason(
                "little_coverage",
                ValidityStatus.LIMITED,
                {"covered": gaps[worst], "metrics": len(gaps), "others": len(gaps) - 1},
                worst,
            )

    # ---- Runs beside each other ---------------------------------------------------------------------------------

    def _loads(self, sides: Mapping[Side, Sequence[RunFacts]]) -> Iterator[Reason]:
        bounded = {s: [f for f in runs if f.kind == "bounded" and f.users and f.steady] for s, runs in sides.items()}
        tops = {side: [_sustained(facts, self.shortest_s) for facts in runs] for side, runs in bounded.items()}
        if not all(tops.values()):
            return
        base, new = (float(np.mean(tops[side])) for side in ("base", "new"))
        if not (base > 0 and new > 0 and abs(math.log(new / base)) <= math.log1p(self.apart)):
            yield Reason("loads_differ", ValidityStatus.INVALID, {"base": base, "new": new})

    def _lengths(self, sides: Mapping[Side, Sequence[RunFacts]]) -> Iterator[Reason]:
        for side, other in _OTHER.items():
            theirs = [f.steady[1] - f.steady[0] for f in sides[other] if f.kind == "bounded" and f.steady]
            for i, facts in enumerate(sides[side]):
                if facts.kind != "bounded" or facts.steady is None or not theirs:
                    continue
                own = facts.steady[1] - facts.steady[0]
                if own < self.shorter * float(np.median(theirs)):
                    numbers = {"seconds": own, "other_seconds": float(np.median(theirs))}
                    yield Reason("window_shorter", ValidityStatus.LIMITED, numbers, side=side, run=i)

    def _missing(self, sides: Mapping[Side, Sequence[RunFacts]]) -> Iterator[Reason]:
        slugs = sorted({slug for runs in sides.values() for facts in runs for slug in facts.coverage})
        there = {
            side: {slug for slug in slugs if any(_there(facts, slug) for facts in runs)} for side, runs in sides.items()
        }
        for side, other in _OTHER.items():
            if not any(facts.steady for facts in sides[side]):
                continue  # said already
            for slug in slugs:
                if slug in there[other] and slug not in there[side]:
                    yield Reason("series_missing", ValidityStatus.LIMITED, text=slug, side=side)

    def _overlaps(self, sides: Mapping[Side, Sequence[RunFacts]]) -> Iterator[Reason]:
        runs = [(side, i, facts) for side in sides for i, facts in enumerate(sides[side]) if facts.clock is not None]
        for k, (side, i, facts) in enumerate(runs):
            for _, _, earlier in runs[:k]:
                both = min(facts.window[1], earlier.window[1]) - max(facts.window[0], earlier.window[0])
                if facts.clock == earlier.clock and both > 0:
                    yield Reason("windows_overlap", ValidityStatus.INVALID, {"seconds": both}, side=side, run=i)
                    break


def _verdict(reasons: Sequence[Reason]) -> Verdict:
    severities = {reason.severity for reason in reasons}
    status = (
        ValidityStatus.INVALID
        if ValidityStatus.INVALID in severities
        else ValidityStatus.LIMITED
        if reasons
        else ValidityStatus.VALID
    )
    untils = [reason.until_s for reason in reasons if reason.until_s is not None]
    return Verdict(status, min(untils) if untils and status == ValidityStatus.LIMITED else None, tuple(reasons))


def _there(facts: RunFacts, slug: str) -> bool:
    covered = facts.coverage.get(slug)
    return covered is not None and covered.fraction is not None and covered.fraction > 0.0


def _under_load(facts: RunFacts) -> pd.Series:
    if facts.load is None:
        return pd.Series(dtype=float)
    end = facts.stop.at_s if facts.stop else math.inf
    users: pd.Series = facts.load[np.isfinite(facts.load.to_numpy()) & (facts.load.index <= end)]
    return users


def _other_run(curve: float, reported: float) -> Reason:
    return Reason(
        "other_runs", ValidityStatus.INVALID, {"curve": curve, "reported": reported, "change": curve / reported - 1.0}
    )


def _sustained(facts: RunFacts, seconds: float) -> float:
    """The highest load that the run was at or above for this long in all."""
    users = _under_load(facts)
    return sustained(users.index.to_numpy(dtype=np.float64), users.to_numpy(dtype=np.float64), seconds)
