"""What is there to say of the supported users?"""

from __future__ import annotations

from collections.abc import Iterator

from buildcompare.findings.finding import Labels, finding, title
from buildcompare.findings.judged import judged
from buildcompare.results import Finding, TestResult
from buildcompare.results.codes import SIDES, FindingKind, Severity, Status
from buildcompare.text.explanations import by_chance_percent
from buildcompare.text.numbers import change, percent
from buildcompare.text.reasons import NO_ESTIMATE_WORDS

REPORTED_TOLERANCE_PERCENT = 1.0
"""Reported and estimated supported users agree within 0.5 % on published runs; beyond twice that, say so."""


def supported_users(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Both builds' figures and what follows, or why they cannot be compared."""
    users = test.supported_users
    if users is None:
        return
    severity = Severity.INFO
    if users.delta_percent is not None:
        text = (
            f"{title(test)}: {labels[1]} supports {users.new:,.0f} users against {users.base:,.0f} of {labels[0]}, "
            f"{judged(users.delta_percent, users)}"
        )
        severity = Severity.CRITICAL if users.status == Status.REGRESSION else Severity.INFO
    else:
        missing: list[str] = []
        for side, label in zip(SIDES, labels, strict=True):
            if getattr(users, side) is None:
                at_least = users.at_least[side]
                reason = users.reason[side]
                words = NO_ESTIMATE_WORDS[reason] if reason else "there is no estimate"
                missing.append(f"{label}: {words}" + (f", at least {at_least:,.0f}" if at_least is not None else ""))
        text = f"{title(test)}: the supported users cannot be compared ({'; '.join(missing)})"
        if users.ci_low is not None:
            ruled_out = f"a loss of more than {percent(-users.ci_low)}" if users.ci_low < 0 else "a loss"
            text += f"; {ruled_out} can be ruled out"
        text += "."
    keys = {"base", "new", "delta_percent", "ci_low", "ci_high", "status", "band_percent", "at_least", "reason"}
    evidence = {
        **users.model_dump(include=keys),
        "by_chance_percent": by_chance_percent(users),
        "ruled_out_percent": None if users.ci_low is None else -users.ci_low,
    }
    yield finding(test, FindingKind.SUPPORTED_USERS, severity, text, evidence)


def reported_against_estimated(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """A curve that gives another figure than the load-test tool reported."""
    users = test.supported_users
    if users is None:
        return
    for side, label in (("base", labels[0]), ("new", labels[1])):
        reported, estimated = getattr(users.reported, side), getattr(users.estimated, side)
        if reported is None or estimated is None:
            continue
        apart = (estimated / reported - 1.0) * 100.0
        if abs(apart) > REPORTED_TOLERANCE_PERCENT:
            text = (
                f"{title(test)}: the curve of {label} gives {estimated:,.0f} supported users, the load-test tool "
                f"reported {reported:,.0f} ({change(apart)}): curve and report may belong to different runs."
            )
            evidence = {"side": side, "reported": reported, "estimated": estimated, "percent": apart}
            yield finding(test, FindingKind.REPORTED_AGAINST_ESTIMATED, Severity.WARNING, text, evidence)


def limited_by(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Which threshold limited each build."""
    limits = test.limited_by
    if limits is None:
        return
    named = [f"{label} by {words}" for label, words in zip(labels, (limits.base, limits.new), strict=True) if words]
    yield finding(
        test, FindingKind.LIMITED_BY, Severity.INFO, f"{title(test)}: limited {'; '.join(named)}.", limits.model_dump()
    )
