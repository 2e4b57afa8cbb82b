"""Reasons and conclusions in words: why a row was not judged, what limited a build, how certain a change is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from buildcompare.config.catalogue import Alert
from buildcompare.results import LimitedBy, MetricResult, SupportedUsersResult, ValidityReason
from buildcompare.results.codes import Better, NoEstimate, NoHistory, Reason, ReasonCode, Side, Status
from buildcompare.text.numbers import change, percent, quantity, ranged, status_words

Row = MetricResult | SupportedUsersResult
_FOUND = (Status.REGRESSION, Status.IMPROVEMENT)
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
    "invalid if any test is invalid; regression if the supported users or any gate metric regresses in a valid test "
    "(a bounded test's metrics count over the steady window, an unbounded one's at equal load: at its own load each "
    "build is as slow as the load-test coordinator lets it become); "
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


def by_chance_percent(row: Row) -> float | None:
    """How far two comparisons of unchanged builds differ in 19 of 20 cases, in percent; None if unknown."""
    if row.ci_high is None or row.delta_percent is None or not row.delta_percent > -100.0:
        return None  # of a metric that is as good as gone there is no ratio
    return ((1.0 + row.ci_high / 100.0) / (1.0 + row.delta_percent / 100.0) - 1.0) * 100.0


def conclusion(row: Mapping[str, Any], better: str) -> str:
    """The change of `row`, a finding's evidence, with its interval, and what follows."""
    delta, low, high, status = row["delta_percent"], row["ci_low"], row["ci_high"], row["status"]
    margin = row["margin_percent"] if "margin_percent" in row else row["band_percent"]
    if low is None:
        return f"{change(delta)}: run-to-run noise is not known here, so this may be chance"
    if status in _FOUND:
        words = f"{status_words(status, better)}, more than chance and more than the margin of {percent(margin)}"
    elif status in (Status.EQUIVALENT, Status.NOT_WORSE):
        words = status_words(status, better, margin, low, high, row.get("no_worse_than_percent"))
    elif low <= 0.0 <= (high or 0.0):
        words = f"cannot be told from chance, which moves this by up to {percent(row['by_chance_percent'])}"
    else:
        words = _undecided(delta, margin)
    return f"{ranged(delta, low, high)}: {words}"


def explain(row: Row) -> str:
    """Two sentences for readers without statistics: what chance does to this number, and what follows."""
    chance, delta, low, high = by_chance_percent(row), row.delta_percent, row.ci_low, row.ci_high
    margin = row.margin_percent if isinstance(row, MetricResult) else row.band_percent
    if chance is None or delta is None:
        reason = row.reason if isinstance(row, MetricResult) else None
        if delta is None:
            return f"Not judged: {reason_words(reason) if reason else 'one of the builds has no figure'}."
        reason = reason or Reason(code=ReasonCode.NO_NOISE)
        learn = " `calibrate` estimates it from repeated runs." if reason.code is ReasonCode.NO_NOISE else ""
        return f"Not judged: {reason_words(reason)}.{learn}"
    same = f"Two comparisons of unchanged builds differ by up to {percent(chance)} here in 19 of 20 cases"
    moved = ranged(delta, low, high)
    if row.status in _FOUND:
        return f"{same}. The change of {moved} is more than that, and more than the margin of {percent(margin)}."
    if row.status == Status.EQUIVALENT:
        rare = f"{moved} or nearer to zero would be seen in fewer than one of 20 comparisons"
        return f"{same}. If the true change were {percent(margin)}, the margin, {rare}."
    if row.status == Status.NOT_WORSE:
        bound = percent(row.no_worse_than_percent)
        return f"{same}; {moved} may be no change or a better one. It excludes that this is worse by more than {bound}."
    seen = f"A rise below {percent(row.min_detectable_percent)} would rarely be significant here"
    runs = "one run" if row.required_runs == 1 else f"{row.required_runs} runs"
    settled = f"{runs} of each build would show a change of {percent(margin)}"
    if row.required_runs is None:
        settled = f"fewer than 100 runs of each build would not show a change of {percent(margin)}"
    why = " may be chance or real" if (low or 0.0) <= 0.0 <= (high or 0.0) else f": {_undecided(delta, margin)}"
    return f"{same}; {ranged(delta, low, high, '')}{why}. {seen}; {settled}."


def _undecided(delta: float, margin: float | None) -> str:
    if margin is not None and abs(delta) <= margin:
        return f"differs, but not surely by more than the margin of {percent(margin)}"
    return "significant alone, not after adjusting for all metrics"


def at_load_words(row: Mapping[str, Any], better: Better | str, margin: float) -> str:
    """The status at equal load; where the interval beside it seems to contradict it, with what decided."""
    status, low, high = row["status"], row["ci_low"], row["ci_high"]
    words = status_words(status, better, margin, low, high, row["no_worse_than_percent"])
    apart = low is not None and high is not None and not low <= 0.0 <= high
    if status == Status.INCONCLUSIVE and apart and abs(row["delta_percent"] or 0.0) <= margin:
        return f"{words}: differs, but not surely by more than {percent(margin)}"
    return words
