"""How the reasons of a validity are said."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from buildcompare.validity.reasons import Code, Reason

Say = Callable[[Reason], str]


def said(reason: Reason, *, several: bool = False) -> str:
    """`reason` as a sentence without its full stop, with the run that it is about (`several`: of several runs)."""
    words = _WORDS[reason.code](reason)
    if reason.side is None:
        return words
    return (
        f"{reason.side} run {reason.run + 1}: {words}"
        if several and reason.run is not None
        else f"{reason.side}: {words}"
    )


def _users(value: float) -> str:
    return f"{value:,.0f} users"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def _fall(what: str) -> Say:
    def words(reason: Reason) -> str:
        n = reason.numbers
        unit = " on the curve that stands in for them" if "stand_in" in n else " users"
        text = f"{what} at {_minutes(n['at_s'])}: {n['before']:,.0f}{unit} before, {n['after']:,.0f} after"
        if "one_in" in n:
            text += f" ({n['lost_percent']:.1f} % lost, one user in {n['one_in']:.0f})"
        if "back_s" in n:
            text += f", as many again at {_minutes(n['back_s'])}"
        if n["times"] > 1:
            text += f" ({n['times']:.0f} times in all)"
        judged = reason.until_s is not None and reason.severity == "limited"
        return f"{text}; what lies before is fit to be judged" if judged else text

    return words


def _coverage(reason: Reason) -> str:
    covered = f"{reason.numbers['covered']:.0%}"
    if not reason.text:
        return f"every metric misses more than half of its samples in the steady window ({covered} at most are there)"
    others = reason.numbers["others"]
    more = f", and too few of {others:.0f} other metrics" if others else ""
    return f"{reason.text}: only {covered} of the samples in the steady window are there{more}"


_WORDS: Mapping[Code, Say] = {
    "target_not_reached": lambda r: (
        f"the load was never reached: {_users(r.numbers['reached'])} of {r.numbers['target']:,.0f}"
    ),
    "target_not_held": lambda r: (
        f"the load was not held: for {r.numbers['below']:.0%} of the time less than {r.numbers['held']:.0%} of "
        f"{_users(r.numbers['users'])}"
    ),
    "loads_differ": lambda r: (
        f"the builds were not under the same load: {_users(r.numbers['base'])} and {r.numbers['new']:,.0f}"
    ),
    "users_lost": _fall("users were lost at once"),
    "restarted": _fall("nearly all users were thrown out"),
    "counters_restarted": lambda r: (
        f"counters of the server started again inside the window, {r.numbers['times']:.0f} times"
    ),
    "ceiling_reached": lambda r: (
        f"the users' ceiling was reached ({_users(r.numbers['users'])} of {r.numbers['ceiling']:,.0f}), so the build "
        "supports at least as many"
    ),
    "still_climbing": lambda r: _slope(r, "rose"),
    "still_falling": lambda r: _slope(r, "fell"),
    "may_be_cut": lambda r: "the curve ends with the base's and shows no stop, so it may have been cut",
    "too_short": lambda r: "the run is shorter than the 30 minutes that count",
    "gaps": lambda r: "the last 30 minutes have gaps",
    "no_users": lambda r: "its connected users are zero from beginning to end",
    "silent_end": lambda r: (
        f"nothing of its load was recorded in the last {_minutes(r.numbers['seconds'])} before its stop"
    ),
    "silent_start": lambda r: (
        f"its window begins {_minutes(r.numbers['seconds'])} before its first number, and elapsed time counts from the "
        "window's start"
    ),
    "no_steady_window": lambda r: f"no steady window: {r.text}",
    "window_shorter": lambda r: (
        f"its steady window is cut short: {_minutes(r.numbers['seconds'])} against "
        f"{_minutes(r.numbers['other_seconds'])} of the other build"
    ),
    "little_coverage": _coverage,
    "series_missing": lambda r: f"{r.text} was not recorded, which the other build has",
    "windows_overlap": lambda r: (
        f"its window overlaps that of another run on the same server by {_minutes(r.numbers['seconds'])}, so both "
        "measured the same thing"
    ),
    "other_runs": lambda r: (
        f"the curve is of another run than the reported supported users: {_users(r.numbers['curve'])} against "
        f"{r.numbers['reported']:,.0f} ({r.numbers['change']:+.1%})"
    ),
}


def _slope(reason: Reason, verb: str) -> str:
    slope = abs(reason.numbers.get("slope_users_per_s", 0.0))
    return f"no equilibrium: over the last 30 minutes the users still {verb} by {slope:.2f} a second"
