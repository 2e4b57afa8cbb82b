"""Reasons in words: why a row was not judged, why a run has no window or estimate, what limited a build."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from buildcompare.config.catalogue import Alert
from buildcompare.results import LimitedBy, ValidityReason
from buildcompare.results.codes import NoEstimate, NoHistory, Reason, ReasonCode, Side
from buildcompare.text.numbers import quantity

_WORDS = {
    ReasonCode.NO_NOISE: "run-to-run noise is not known",
    ReasonCode.FEW_RUNS: "no calibration, and too few repeated runs to estimate noise",
    ReasonCode.SET_BY_TEST: "fixed by the test; see Validity",
    ReasonCode.NOT_POSITIVE: "a level that is not above zero has no ratio",
    ReasonCode.ZERO_BASE: "the base level is zero",
    ReasonCode.NO_ERROR_NOISE: "run-to-run noise of error rates is not known",
    ReasonCode.NONE_FAILED: "none failed in either build",
    ReasonCode.LOAD_UNKNOWN: "neither users nor a metric that follows them was recorded, so the load is not known",
    ReasonCode.NO_SAMPLES: "no samples",
    ReasonCode.FEW_SAMPLES: "too few samples",
    ReasonCode.NEVER_RISES: "the load curve never rises",
    ReasonCode.STILL_MOVES: "no steady state: the level still moves in the second half",
}
_OF_A_BUILD = {
    ReasonCode.DIGITISED: "read off a plot in {}, where noisy lines hide each other and are biased by some percent",
    ReasonCode.NOT_RECORDED: "not recorded in {}",
    ReasonCode.NO_NUMBER: "no number in the steady window of {}",
    ReasonCode.ERRORS_NOT_STATED: "not stated for every run of {}",
    ReasonCode.USERS_UNKNOWN: "the users of {} are not known over the whole run",
    ReasonCode.ONLY_IN: "only {} has this label",
    ReasonCode.NEVER_CALLED: "never called in {}",
    ReasonCode.BEYOND_LAST_BUCKET: "beyond the histogram's last bucket in {}",
    ReasonCode.TOO_SHORT_TO_MEASURE: "too short to be measured in {}",
}
NO_HISTORY_WORDS = {
    NoHistory.STUDY: "it is recorded as a study, which stays out of the chain",
    NoHistory.NO_NOISE: _WORDS[ReasonCode.NO_NOISE],
    NoHistory.NO_EARLIER: "no earlier comparison of its kind is recorded",
    NoHistory.FIRST: "it is the first of the chain",
}
"""Why a comparison was not compared with earlier ones."""
_NEITHER = (ReasonCode.NOT_RECORDED, ReasonCode.NO_NUMBER, ReasonCode.NEVER_CALLED)

NO_ESTIMATE_WORDS = {
    NoEstimate.NO_USERS_CURVE: "there is no curve of connected users",
    NoEstimate.TOO_SHORT: "the curve is shorter than the 30 minutes that count",
    NoEstimate.GAPS: "the last 30 minutes have gaps",
    NoEstimate.INTERRUPTED: "in the last 30 minutes the users fell to less than half and came back",
    NoEstimate.USERS_LOST: "users were lost suddenly, so what the build carries with all of them was not seen",
    NoEstimate.STILL_FALLING: "over its last 30 minutes the users fell faster than the stop rule allows",
    NoEstimate.STILL_CLIMBING: "over its last 30 minutes the users still rose faster than the stop rule allows",
    NoEstimate.CEILING_REACHED: "the test added no more users: its ceiling was reached",
    NoEstimate.MAY_BE_CUT: "the curve ends with the base's and shows no stop, so it may have been cut",
}
"""Why a curve gives no figure for the supported users."""
VERDICT_RULE = (
    "invalid if any test is invalid; regression if the supported users or any gate metric regresses in a valid test; "
    "inconclusive if one of them leans worse (beyond its margin, adjusted one-sided p below 0.1), if the supported "
    "users cannot exclude a loss of twice their margin, if a gate metric has no number in one build or rises from "
    "zero, or if nothing that users feel could be judged; else pass; "
    "an average that a changed traffic mix moved counts as at unchanged mix"
)
"""Gate metrics are those that users feel: API times, supported users, errors. The others only warn."""


def reason_words(reason: Reason) -> str:
    """A reason as a clause without a full stop."""
    code = reason.code
    if code in _OF_A_BUILD:
        both = "either build" if code in _NEITHER else "both builds"
        return _OF_A_BUILD[code].format(f"the {reason.build} build" if reason.build else both)
    if code is ReasonCode.NO_STEADY_WINDOW:
        because = Reason(code=reason.because, minutes=reason.minutes) if reason.because else None
        why = f": {reason_words(because)}" if because else ""
        return f"no steady window in the {reason.build} build{why}"
    if code is ReasonCode.SHORT:
        return f"only {reason.minutes or 0.0:.0f} minutes of steady load"
    if code is ReasonCode.UNFIT_EARLY:
        return f"only {reason.minutes or 0.0:.0f} minutes of steady load before the run was no longer valid"
    return _WORDS[code]


def validity_words(
    reasons: Iterable[ValidityReason], labels: tuple[str, str] = ("base", "new"), *, several: bool = False
) -> list[str]:
    """Each reason with the run that it is about; `several`: a build has several runs."""
    words = []
    for reason in reasons:
        label = labels[0 if reason.side == "base" else 1]
        run = f"{label} run {reason.run}" if several and reason.run is not None else label
        words.append(f"{run}: {reason.text}" if reason.side else reason.text)
    return words


def limited_words(limits: LimitedBy, build: Side, alerts: Sequence[Alert]) -> str:
    """A phrase for one build: what limited it, how often that alerted, what alerted first, and what was near."""
    known = {alert.slug: alert for alert in alerts}
    by, first = limits.limiting(build), limits.first(build)
    words = "no alert in the steady window"
    if by is not None:
        words = f"{known[by.alert].name} (at or above {quantity(by.threshold, known[by.alert].unit)} in "
        words += f"{by.share_steady:.0%} of the steady window; {by.times} times in all)"
    if first is not None and first.first_s is not None:
        same = by is not None and first.alert == by.alert
        words += ", first at" if same else f"; first to alert: {known[first.alert].name}, at"
        words += f" {first.first_s / 60:.0f} min"
    others = [use for use in limits.near(build) if by is None or use.alert != by.alert]
    near = [f"{known[use.alert].name} ({use.nearness:.0%})" for use in others]
    return words + (f"; near its limit: {', '.join(near)}" if near else "")
