"""Make findings from results by rules, order them for a report, and suggest next steps.

A finding has a kind, a severity and its numbers as evidence; its sentence is a macro of text/sentences/findings.j2.
A new kind of finding needs a code in `results.codes`, a rule that :func:`find` calls, a rank below, and a sentence.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from buildcompare.config.catalogue import Catalogue
from buildcompare.findings import labels as of_labels
from buildcompare.findings import load, metrics, recordings
from buildcompare.findings.finding import Found, finding, suggestion
from buildcompare.results import Finding, InputProvenance, Suggestion, TestPlan, TestResult
from buildcompare.results.codes import (
    FindingKind,
    ReasonCode,
    Severity,
    Status,
    SuggestionKind,
    ValidityCode,
    ValidityStatus,
    Verdict,
)
from buildcompare.text.sentences import MOST_MOVERS, Names

TOP = 5
"""Maximum number of findings that are always visible. The page shows the others only when a reader unfolds them."""
MOST_SUGGESTIONS = 3  # maximum number of suggested next steps

FIRST, QUIET, PAST, CHANGES, OTHERS, FOLDED = range(6)
_KINDS = {
    FIRST: (FindingKind.SUPPORTED_USERS,),
    QUIET: (FindingKind.LOOKS, FindingKind.SESSIONS, FindingKind.UNCHANGED),
    PAST: (
        FindingKind.SETUP_DIFFERENCES, FindingKind.LEVEL_DRIFT, FindingKind.PREVIOUS_NEW,
        FindingKind.BETWEEN_DATABASES, FindingKind.BUMPS_CHANGED,
    ),
    CHANGES: (
        FindingKind.METRIC, FindingKind.SINGLE_RUNS, FindingKind.BEGINNING, FindingKind.PROFILES,
        FindingKind.LABELS_BEYOND_NOISE, FindingKind.LABEL_CHANGED,
    ),
    FOLDED: (  # a summary or a table shows similar numbers
        FindingKind.ASSUMED, FindingKind.BLIND_SPOTS, FindingKind.LABELS, FindingKind.COUNTED_ERRORS,
        FindingKind.LABELS_IN_ONE_BUILD, FindingKind.RECORDING_NOTE, FindingKind.MORE_EVENTS,
    ),
}  # fmt: skip
RANKS = {kind: rank for rank, kinds in _KINDS.items() for kind in kinds}
"""Kind of finding -> rank, for :func:`gravest_first`; other kinds have the rank `OTHERS`. Findings with severity info
and rank `FOLDED` are hidden until a reader unfolds them."""
HYGIENE = (
    FindingKind.GAPS, FindingKind.MISSING_METRICS, FindingKind.EMPTY_METRICS, FindingKind.METRICS_NOWHERE,
    FindingKind.COUNTER_RESETS, FindingKind.SERVER_VERSIONS, FindingKind.RECORDING_NOTE,
)  # fmt: skip
"""Kinds of findings about recordings. The `TOP` places that are always visible go to findings of other kinds first."""
HEADLINES = (
    FindingKind.SUPPORTED_USERS, FindingKind.UNCHANGED, FindingKind.BETWEEN_DATABASES, FindingKind.LOOKS,
    FindingKind.SESSIONS,
)  # fmt: skip
"""Kinds of findings that a Markdown report shows whatever their severity."""
# fmt: off
_OF_ONE_TEST: tuple[Callable[[TestResult], Iterator[Found]], ...] = (
    load.supported_users, metrics.unjudgeable, metrics.single_runs, metrics.sessions, metrics.drifts,
    load.time_to_users, load.beginning, load.waves, load.events, load.limited_by, load.reported_against_estimated,
    recordings.validity, recordings.left_out, recordings.coverage, recordings.servers, recordings.counter_resets,
    metrics.traffic_mix, metrics.error_rates, of_labels.labels_changed, of_labels.methods_with_handlers,
    of_labels.frames, of_labels.label_changed,
)
_ACROSS_TESTS: tuple[Callable[[Sequence[TestResult]], Iterator[Found]], ...] = (
    recordings.looks, metrics.unchanged, of_labels.beyond_noise, metrics.metrics, of_labels.labels_in_several_tests,
    load.bumps_in_both, metrics.counted_errors, metrics.blind_spots, of_labels.labels_in_one_build, recordings.notes,
)
# fmt: on
"""Rules for one test (`_OF_ONE_TEST`) and for all tests together. Findings that sort equally keep this order."""


def find(
    tests: Sequence[TestResult],
    labels: tuple[str, str],
    inputs: Sequence[InputProvenance] = (),
    catalogue: Catalogue | None = None,
    of_the_past: Iterable[Finding] = (),
) -> list[Finding]:
    """Return findings about `tests` and those `of_the_past`, gravest first; with a `catalogue`, also about inputs."""
    names = Names.of(labels, tests)
    findings = [finding(each, names, test.name) for rule in _OF_ONE_TEST for test in tests for each in rule(test)]
    findings += [finding(each, names) for rule in _ACROSS_TESTS for each in rule(tests)]
    if catalogue is not None:
        rules = (recordings.users, recordings.unrecognised, recordings.assumed)
        findings += [finding(each, names) for rule in rules for each in rule(tests, inputs, catalogue)]
    return gravest_first([*findings, *of_the_past])


def gravest_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sort: changed labels (unless info), critical findings, supported users, warnings, regressions, others by rank."""
    return sorted(findings, key=_order)


def above_the_fold(findings: Sequence[Finding], stated: Collection[str] = ()) -> tuple[list[Finding], list[Finding]]:
    """Split sorted findings into at most `TOP` that the page shows at first (above the fold), and all others.

    Findings about the recordings (`HYGIENE`) are chosen last. Of the findings about an invalid test, only the validity
    finding can be above the fold. Findings in the report's opening (ids in `stated`) are never above the fold.
    """
    invalid = [each for each in findings if each.kind == FindingKind.VALIDITY and each.severity == Severity.CRITICAL]
    tests = {each.test for each in invalid if each.test}
    void = [each for each in findings if each.test in tests and each not in invalid]
    hidden = {each.id for each in void} | {*stated}
    unfolded = [each for each in findings if not _is_folded(each) and each.id not in hidden]
    chosen = sorted(unfolded, key=lambda each: each.kind in HYGIENE)[:TOP]
    first = sorted(chosen, key=lambda each: list(Severity).index(each.severity))
    return first, [each for each in findings if each not in first]


def _is_folded(found: Finding) -> bool:
    """Test whether kind or evidence keeps a finding below the fold; this applies only to findings of severity info."""
    if found.severity != Severity.INFO:
        return False
    status = found.evidence.get("status")
    unsure = found.kind == FindingKind.METRIC and status == Status.INCONCLUSIVE
    as_before = found.kind == FindingKind.SUPPORTED_USERS and status in (Status.EQUIVALENT, Status.NOT_WORSE)
    counted = found.kind == FindingKind.UNCHANGED and bool(found.evidence.get("differ"))  # changes have own findings
    return unsure or as_before or counted or RANKS.get(found.kind) == FOLDED


def headlines(findings: Sequence[Finding]) -> list[Finding]:
    """Select critical findings, warnings, and all findings of the kinds that a Markdown report always shows."""
    return [each for each in findings if each.severity != Severity.INFO or each.kind in HEADLINES]


def _order(found: Finding) -> tuple[int, int]:
    rank = RANKS.get(found.kind, OTHERS)
    if found.kind == FindingKind.LABEL_CHANGED and found.severity != Severity.INFO:
        return 0, -1
    if found.severity == Severity.CRITICAL:
        return 0, int(rank == PAST)
    if rank == FIRST:
        return 1, 0
    if rank == CHANGES and Status.REGRESSION in (found.evidence.get("status"), found.evidence.get("shift_status")):
        return 2, 2
    return (2, int(rank == PAST)) if found.severity == Severity.WARNING else (3, rank)


def suggest(
    tests: Sequence[TestResult],
    labels: tuple[str, str] = ("base", "new"),
    of_the_past: Iterable[Suggestion] = (),
    plans: Sequence[TestPlan] = (),
) -> list[Suggestion]:
    """Suggest at most three next steps: repeat tests, find a cause, use the former setup, add runs, look at a label.

    If a test regressed, its cause comes first. Tests with inconclusive rows in `plans` get no suggestion to add runs.
    """
    names, planned = Names.of(labels, tests), {plan.test for plan in plans if plan.undecided}
    here = [*_settle([test for test in tests if test.name not in planned], names), *_label(tests, names)]
    reruns, causes = [*_rerun(tests, names)], [*_cause(tests, names)]
    urgent = any(test.verdict == Verdict.REGRESSION for test in tests)
    return [*(causes + reruns if urgent else reruns + causes), *of_the_past, *here][:MOST_SUGGESTIONS]


def _rerun(tests: Sequence[TestResult], names: Names) -> Iterator[Suggestion]:
    """Suggest repeating a test that is invalid, has limits outside `USUAL_LIMITS`, or lacks a gate metric's noise."""
    for status in (ValidityStatus.INVALID, ValidityStatus.LIMITED, ValidityStatus.VALID):
        for test in (each for each in tests if each.validity.status == status):
            codes = {*test.validity.codes}
            reasons = {row.reason.code for row in test.metrics if row.gate and row.reason}
            single = codes <= {ValidityCode.LOAD_UNKNOWN} and ReasonCode.NO_NOISE in reasons
            if single or not (status == ValidityStatus.VALID or recordings.only_usual_limits(test)):
                unknown = test.type != "benchmark" and all(run.load_curve is None for of in test.runs for run in of)
                evidence = {"status": status, "codes": sorted(codes), "load_unknown": unknown, "single_runs": single}
                yield suggestion(SuggestionKind.RERUN, evidence, names, test=test.name)


def _cause(tests: Sequence[TestResult], names: Names) -> Iterator[Suggestion]:
    """Suggest finding the cause of the largest regression or, if no test regressed, looking at a slower label."""
    rows: list[tuple[float, str, dict[str, object]]] = []
    for test in (each for each in tests if each.verdict != Verdict.INVALID):
        beside = [(each.name, each.judged) for each in test.metrics if not each.gate and each.better != "neutral"]
        worse = [(name, row.delta_percent) for name, row in beside if row.status == Status.REGRESSION]
        failures = [(row.name, row) for row in metrics.risen(test)]
        fails = next((row.most.label for _, row in failures if row.most), None)
        movers = sorted(worse, key=lambda each: -math.inf if each[1] is None else -abs(each[1]))[:MOST_MOVERS]
        slower = [(row.label, row.delta_percent) for row in of_labels.labels_beyond_noise([test]) if row.added_share]
        changed = (each.evidence for each in of_labels.label_changed(test) if each.severity != Severity.INFO)
        regressed = test.verdict == Verdict.REGRESSION
        likely = [row for row in of_labels.most_moved(test.labels) if regressed and (row.ci_low or 0.0) > 0.0]
        named = slower + [(each["label"], each["delta_percent"]) for each in changed]
        label = next(iter(named + [(row.label, row.delta_percent) for row in likely]), None)
        shares = {name: share for (name, _), (_, share) in of_labels.costs([test], "new").items()}
        alone = max(shares, key=shares.__getitem__, default="")
        first = (alone, None) if shares.get(alone, 0.0) >= of_labels.LEAST_NEW else label
        decided = [(name, row) for name, row, _ in metrics.gate_rows(test) if row and row.status == Status.REGRESSION]
        for name, row in (decided or failures) * regressed:
            evidence: dict[str, object] = {"name": name, "delta_percent": row.delta_percent, "movers": movers}
            rows.append((abs(row.delta_percent or 0.0), test.name, evidence | {"label": first, "fails": fails}))
        if label and not regressed:
            rows.append((0.0, test.name, {"name": None, "delta_percent": label[1], "movers": [], "label": label}))
    for _, name, evidence in sorted(rows, key=lambda each: -each[0])[:1]:
        yield suggestion(SuggestionKind.FIND_CAUSE, evidence, names, test=name)


def _settle(tests: Sequence[TestResult], names: Names) -> Iterator[Suggestion]:
    """Suggest runs for the undecided row that most probably got worse; gate metrics and supported users come first."""
    rows: list[tuple[bool, float, str, dict[str, object]]] = []
    for test in (each for each in tests if each.validity.status != ValidityStatus.INVALID):
        fields = {"slug", "name", "margin_percent"}
        decided = [(each.deciding, each.gate, each.model_dump(include=fields)) for each in test.metrics]
        if users := test.supported_users:
            decided.append((users, True, {"name": "supported users", "margin_percent": users.band_percent}))
        for row, gate, named in decided:
            if row and row.required_runs and row.leans_worse and row.status != Status.REGRESSION:
                numbers = {"required_runs", "required_runs_show_percent", "delta_percent"}
                evidence = {**named, **row.model_dump(include=numbers), "unit": "session" if test.sessions else "run"}
                rows.append((not gate, row.p_worse_one_sided or 0.0, test.name, evidence))
    for _, _, name, evidence in sorted(rows, key=lambda each: each[:2])[:1]:  # suggest runs for one metric only
        yield suggestion(SuggestionKind.SETTLE, evidence, names, test=name)


def _label(tests: Sequence[TestResult], names: Names) -> Iterator[Suggestion]:
    """Suggest looking at the label that most surely got slower, if it changed significantly in at least two tests."""
    for agreed in of_labels.agreeing_labels({test.name: test.labels for test in tests})[:1]:
        marked = {test: row.delta_percent for test, row in agreed.rows.items() if row.status.changed}
        if agreed.marked > 1:
            largest = next(iter(marked.values()))
            evidence = {**agreed.label, "marked": agreed.marked, "largest_percent": largest, "tests": marked}
            yield suggestion(SuggestionKind.LOOK_AT_LABEL, evidence, names)
