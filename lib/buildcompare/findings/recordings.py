"""What is wrong with the recordings: no window, gaps, missing metrics, servers that differ?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildcompare.config.errors import plural
from buildcompare.findings.finding import Labels, finding, title
from buildcompare.results import Finding, RunResult, TestResult
from buildcompare.results.codes import FindingKind, Severity, ValidityStatus
from buildcompare.text.numbers import listed, minutes
from buildcompare.text.reasons import NO_ESTIMATE_WORDS, validity_words

USUAL_LIMITS = {"may_be_cut", "still_climbing", "ceiling_reached"}
"""Limits that say something of the supported users only, and stand beside them anyway."""
MIN_COVERAGE = 0.98
"""Below this part of the expected samples a series' gaps are worth a sentence."""


def validity(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Why a test is not fit to be judged, or only in part."""
    found = test.validity
    if found.status == ValidityStatus.VALID:
        return
    named = validity_words(found.reasons, labels, several=test.runs.several)
    usual = found.status == ValidityStatus.LIMITED and set(found.codes) <= USUAL_LIMITS
    start = "is no valid test" if found.status == ValidityStatus.INVALID else "is limited"
    text = f"{title(test)} {start}: {'; '.join(named)}."
    severity = (
        Severity.CRITICAL if found.status == ValidityStatus.INVALID else Severity.INFO if usual else Severity.WARNING
    )
    yield finding(test, FindingKind.VALIDITY, severity, text, found.model_dump())


def left_out(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Runs that do not count for the supported users of their build."""
    for side, label in (("base", labels[0]), ("new", labels[1])):
        estimates = [run.estimated_supported_users for run in getattr(test.runs, side)]
        for i, estimate in enumerate(estimates):
            if estimate and estimate.reason and any(other and other.estimated is not None for other in estimates):
                why = NO_ESTIMATE_WORDS[estimate.reason]
                text = f"{title(test)}: run {i + 1} of {label} is left out of its supported users: {why}."
                yield finding(test, FindingKind.RUN_LEFT_OUT, Severity.WARNING, text, {"side": side, "run": i + 1})


def coverage(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Metrics that a run lacks, and gaps in those that it has; what no run has was not asked for, and is no warning."""
    every = [run for runs in (test.runs.base, test.runs.new) for run in runs]
    nowhere = set.intersection(*(set(run.missing) for run in every)) if every else set()
    if nowhere:
        slugs = sorted(nowhere)
        text = f"{title(test)}: no run has {plural(len(slugs), 'metric')} of the catalogue: {listed(slugs)}."
        yield finding(test, FindingKind.METRICS_NOWHERE, Severity.INFO, text, {"slugs": slugs})
    for side, label in (("base", labels[0]), ("new", labels[1])):
        runs: list[RunResult] = getattr(test.runs, side)
        for i, run in enumerate(runs):
            who = label if len(runs) == 1 else f"run {i + 1} of {label}"
            empty = [c.slug for c in run.coverage if c.finite == 0]
            gaps = [c for c in run.coverage if 0 < c.finite < MIN_COVERAGE * c.expected]
            missing = [slug for slug in run.missing if slug not in nowhere]
            if missing:
                text = f"{title(test)}: {who} lacks {plural(len(missing), 'metric')}: {listed(missing)}."
                evidence: dict[str, object] = {"side": side, "run": i + 1, "slugs": missing}
                yield finding(test, FindingKind.MISSING_METRICS, Severity.WARNING, text, evidence)
            if empty:
                text = f"{title(test)}: {who} has no number at all in {listed(empty)}."
                yield finding(
                    test,
                    FindingKind.EMPTY_METRICS,
                    Severity.WARNING,
                    text,
                    {"side": side, "run": i + 1, "slugs": empty},
                )
            if gaps:
                worst = min(gaps, key=lambda c: c.finite / c.expected)
                text = (
                    f"{title(test)}: {who} has gaps in {plural(len(gaps), 'metric')}, at worst {worst.slug} with "
                    f"{100 * worst.finite / worst.expected:.0f} % of its samples "
                    f"(longest gap {minutes(worst.longest_gap_s)})."
                )
                evidence = {
                    "side": side,
                    "run": i + 1,
                    "slugs": [c.slug for c in gaps],
                    "worst": worst.model_dump(),
                    "worst_percent": 100 * worst.finite / worst.expected,
                }
                yield finding(test, FindingKind.GAPS, Severity.WARNING, text, evidence)


def servers(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Servers of different kinds or versions: the same samples give different rates on them."""
    named = {
        side: sorted({f"{run.server.kind} {run.server.version}".strip() for run in runs if run.server})
        for side, runs in (("base", test.runs.base), ("new", test.runs.new))
    }
    if all(named.values()) and (named["base"] != named["new"] or len(named["base"]) > 1):
        text = (
            f"{title(test)}: {labels[0]} was recorded by {listed(named['base'])}, {labels[1]} by "
            f"{listed(named['new'])}; servers compute rates differently, so a part of every change may be theirs."
        )
        yield finding(test, FindingKind.SERVER_VERSIONS, Severity.WARNING, text, named)


def counter_resets(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Counters that started again in a run: something was restarted."""
    for side, label in (("base", labels[0]), ("new", labels[1])):
        runs: list[RunResult] = getattr(test.runs, side)
        for i, run in enumerate(runs):
            resets = {name: n for name, n in (run.server.counter_resets if run.server else {}).items() if n}
            if resets:
                who = label if len(runs) == 1 else f"run {i + 1} of {label}"
                text = (
                    f"{title(test)}: {who} restarted during the run: {plural(len(resets), 'counter')} began again at "
                    f"zero ({listed(sorted(resets))})."
                )
                yield finding(
                    test,
                    FindingKind.COUNTER_RESETS,
                    Severity.WARNING,
                    text,
                    {"side": side, "run": i + 1, "resets": resets},
                )


def named_twice(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """A run that stands in two places: most likely a path that was copied, and then nothing was compared."""
    places: dict[str, list[str]] = {}
    for side, label in zip(("base", "new"), labels, strict=True):
        for i, run in enumerate(getattr(test.runs, side), start=1):
            places.setdefault(run.samples_sha256, []).append(f"run {i} of {label}")
    for samples, named in places.items():
        if samples and len(named) > 1:
            text = (
                f"{title(test)}: {' and '.join(named)} are the same recording, to the last sample: was one named twice?"
            )
            yield finding(
                test, FindingKind.NAMED_TWICE, Severity.WARNING, text, {"samples_sha256": samples, "runs": named}
            )


def notes(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """What a recording says of itself; the tests that agree on it are named together."""
    noted: dict[str, list[TestResult]] = {}
    for test in tests:
        for note in sorted({note for side in (test.runs.base, test.runs.new) for run in side for note in run.notes}):
            noted.setdefault(note, []).append(test)
    for note, having in noted.items():
        where = "Every test" if len(having) == len(tests) > 1 else ", ".join(title(test) for test in having)
        evidence = {"note": note, "tests": [test.name for test in having]}
        yield finding(having[0], FindingKind.RECORDING_NOTE, Severity.INFO, f"{where}: {note.rstrip('.')}.", evidence)
