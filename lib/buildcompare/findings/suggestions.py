"""Suggest what to do next; never mixed with what the analyst wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from buildcompare.findings.finding import suggestion
from buildcompare.findings.labels import named, slower_in_several
from buildcompare.findings.recordings import only_usual_limits
from buildcompare.findings.verdict import LEANING
from buildcompare.results import Suggestion, TestResult
from buildcompare.results.codes import Status, SuggestionKind, ValidityStatus
from buildcompare.text.findings import Names

MOST = 3


def suggest(
    tests: Sequence[TestResult], labels: tuple[str, str] = ("base", "new"), of_the_past: Iterable[Suggestion] = ()
) -> list[Suggestion]:
    """At most `MOST` suggestions: tests that cannot be judged, drift to explain, what leans worse, then labels."""
    names = Names.of(labels, tests)
    found = [*_rerun(tests, names), *of_the_past, *_settle(tests, names), *_label(tests, names)]
    return found[:MOST]


def _rerun(tests: Sequence[TestResult], names: Names) -> Iterator[Suggestion]:
    """Tests that are not valid, the invalid ones first."""
    for status in (ValidityStatus.INVALID, ValidityStatus.LIMITED):
        for test in tests:
            if test.validity.status == status and not only_usual_limits(test):
                unknown = all(run.load_curve is None for run in (*test.runs.base, *test.runs.new))
                evidence = {"status": status, "codes": test.validity.codes, "load_unknown": unknown}
                yield suggestion(SuggestionKind.RERUN, evidence, names, test=test.name)


def _settle(tests: Sequence[TestResult], names: Names) -> Iterator[Suggestion]:
    """What leans worse in a valid test, where some number of runs would settle it; gates first."""
    rows: list[tuple[bool, float, str, dict[str, object]]] = []
    for test in tests:
        if test.validity.status == ValidityStatus.INVALID:
            continue
        for metric in test.metrics:
            leaning = metric.effective_p_worse
            if leaning is not None and leaning < LEANING and metric.effective_status != Status.REGRESSION:
                evidence = metric.model_dump(include={"slug", "name", "required_runs", "margin_percent"})
                evidence["delta_percent"] = metric.effective_delta_percent
                rows.append((not metric.gate, leaning, test.name, evidence))
        users = test.supported_users
        if users is None or users.p_worse_one_sided is None or users.band_percent is None:
            continue
        if users.p_worse_one_sided < LEANING and users.status != Status.REGRESSION:
            evidence = users.model_dump(include={"required_runs", "delta_percent"})
            evidence |= {"name": "supported users", "margin_percent": users.band_percent}
            rows.append((False, users.p_worse_one_sided, test.name, evidence))
    for _, _, name, evidence in sorted(rows, key=lambda each: each[:2]):
        if evidence["required_runs"] is not None:
            yield suggestion(SuggestionKind.SETTLE, evidence, names, test=name)


def _label(tests: Sequence[TestResult], names: Names) -> Iterator[Suggestion]:
    """The label that is slower in the most tests."""
    for agreed in slower_in_several(tests)[:1]:
        marked = {row.test: row.delta_percent for row in agreed.rows if row.marked}
        if agreed.marked > 1:
            largest = next(iter(marked.values()))
            evidence = {**named(agreed), "marked": agreed.marked, "largest_percent": largest, "tests": marked}
            yield suggestion(SuggestionKind.LOOK_AT_LABEL, evidence, names)
