"""Findings about label tables: slower labels, labels that several tests agree on, labels of one build only."""

from collections.abc import Iterator, Sequence

from buildcompare.findings.finding import Found, grouped
from buildcompare.labels.tables import agreeing_labels, most_moved, times_slower, unexplained_labels
from buildcompare.results import LabelResult, TestResult
from buildcompare.results.codes import SIDES, FindingKind, Severity, Side, Status, ValidityStatus
from buildcompare.stats.effects import LABEL_ALPHA
from buildcompare.stats.planning import ALPHA
from buildcompare.text.sentences import MOST_LABELS

RARE = 0.01
"""A warning needs fewer agreeing labels than this by chance. It is strict because tests are counted as independent,
while a label that is noisier than its level says (StatusStore.SaveOrUpdate) is so in all of them."""
API, STORE = "api", "store"
"""The label tables of handlers and of the methods that they call."""
MOST = 3
"""Labels of one table, or frames of a profile, that are named as those that moved most."""
LEAST_POINTS = 1.0
"""A frame of a profile is named where its share grew by so many points: less would save no more if it were undone."""


def beyond_noise(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Labels several times slower, which no noise explains; the verdict names them too."""
    judged = {test.name: test.labels for test in tests if test.validity.status != ValidityStatus.INVALID}
    found = []
    for rows in unexplained_labels(judged):
        test, row = next(iter(rows.items()))
        fields = {"group", "label", "stat", "base", "new", "delta_percent", "calls"}
        others = {each: other.delta_percent for each, other in rows.items() if each != test}
        found.append({**row.model_dump(include=fields), "times": times_slower(row), "test": test, "others": others})
    if found:
        evidence = {"labels": found, "not_named": max(len(found) - MOST_LABELS, 0)}
        yield Found(FindingKind.LABELS_BEYOND_NOISE, Severity.WARNING, evidence)


def labels_changed(test: TestResult) -> Iterator[Found]:
    """What moved most, and how many label rows changed, beside how many do so by chance."""
    judged = [row for row in test.labels if row.p_value is not None]
    slower = [row for row in judged if row.status == Status.REGRESSION]
    faster = [row for row in judged if row.status == Status.IMPROVEMENT]
    groups = grouped((row.group, row) for row in test.labels).values()
    moved = [row for rows in groups for row in most_moved(rows)[:MOST]]
    if slower or faster or moved:
        fields = {"group", "label", "stat", "base", "new", "delta_percent", "calls", "time_share"}
        evidence = {
            "slower": len(slower),
            "faster": len(faster),
            "judged": len(judged),
            "expected": LABEL_ALPHA * len(judged),
            "surviving": sum(row.p_adjusted is not None and row.p_adjusted < ALPHA for row in (*slower, *faster)),
            "moved_most": [row.model_dump(include=fields) for row in moved],
        }
        yield Found(FindingKind.LABELS, Severity.INFO, evidence)


def frames(test: TestResult) -> Iterator[Found]:
    """The frames of profiles that grew most: beyond noise where it is known, else by `LEAST_POINTS`."""
    if test.profiles is None:
        return
    known = sum(test.profiles.runs) > 2  # else there is one of each build
    grown = {
        name: [
            row.model_dump(exclude={"p_adjusted"})
            for row in rows
            if row.points >= LEAST_POINTS and (not known or (row.p_adjusted or 0.0) < ALPHA)
        ][:MOST]
        for name, rows in (("own", test.profiles.own), ("total", test.profiles.total))
    }
    yield Found(FindingKind.PROFILES, Severity.INFO, {**grown, "noise_known": known})


def labels_in_one_build(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Tables and labels that one build has; tests that agree on the labels share a finding."""
    for test in tests:
        for group in sorted({row.group for row in test.labels}):
            only_in = {row.only_in for row in test.labels if row.group == group}
            if len(only_in) == 1 and (side := only_in.pop()) is not None:
                lacking: Side = "new" if side == "base" else "base"
                evidence: dict[str, object] = {"group": group, "side": lacking}
                yield Found(FindingKind.NO_LABEL_TABLE, Severity.WARNING, evidence, test=test.name)
    alone = grouped(((side, _only_in(test, side)), test.name) for side in SIDES for test in tests)
    for (side, labels), having in alone.items():
        if labels:
            evidence = {"side": side, "labels": labels, "tests": having}
            yield Found(FindingKind.LABELS_IN_ONE_BUILD, Severity.INFO, evidence, test=having[0])


def _only_in(test: TestResult, side: Side) -> tuple[str, ...]:
    """Labels that only this build has, of the tables that both have."""
    paired = {row.group for row in test.labels if row.only_in is None}
    rows = (row for row in test.labels if row.only_in == side and row.group in paired)
    return tuple(sorted({f"{row.label} ({row.group})" for row in rows}))


def labels_in_several_tests(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Labels that are slower in one test, and slower or leaning in others."""
    agreed = agreeing_labels({test.name: test.labels for test in tests})
    if not agreed:
        return
    rare = agreed[0].marked > 1 and agreed[0].expected < RARE
    found = []
    for each in agreed:
        in_tests = {
            test: {"delta_percent": row.delta_percent, "marked": row.status.changed} for test, row in each.rows.items()
        }
        found.append({**each.label, "marked": each.marked, "expected": each.expected, "tests": in_tests})
    evidence = {"labels": found, "not_named": max(len(agreed) - MOST_LABELS, 0)}
    yield Found(FindingKind.LABELS_IN_SEVERAL_TESTS, Severity.WARNING if rare else Severity.INFO, evidence)


def methods_with_handlers(test: TestResult) -> Iterator[Found]:
    """API handlers and database methods that are slower together, after adjusting for their whole tables."""
    slower = [row for row in test.labels if row.status == Status.REGRESSION and row.stat == "avg"]
    surely = _largest_first(row for row in slower if (row.p_adjusted or 0.0) < ALPHA)
    handlers, methods = ([row for row in surely if row.group == group] for group in (API, STORE))
    if handlers and methods:
        evidence = {
            "handlers": {row.label: row.delta_percent for row in handlers},
            "methods": {row.label: row.delta_percent for row in methods},
            "not_named": [max(len(rows) - MOST_LABELS, 0) for rows in (handlers, methods)],
        }
        yield Found(FindingKind.METHODS_WITH_HANDLERS, Severity.INFO, evidence)


def _largest_first(rows: Iterator[LabelResult]) -> list[LabelResult]:
    return sorted(rows, key=lambda row: -(row.delta_percent or 0.0))
