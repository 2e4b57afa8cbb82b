"""What do these results suggest to do next? Suggestions are never mixed with what the analyst wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from buildcompare.config.errors import plural
from buildcompare.findings.across import slower_in_several
from buildcompare.findings.finding import title
from buildcompare.findings.recordings import USUAL_LIMITS
from buildcompare.findings.verdict import LEANING
from buildcompare.results import MetricResult, Suggestion, SupportedUsersResult, TestResult
from buildcompare.results.codes import Status, SuggestionKind, ValidityStatus
from buildcompare.text.numbers import change, percent

MOST = 3


def suggest(tests: Sequence[TestResult], of_the_past: Iterable[Suggestion] = ()) -> list[Suggestion]:
    """At most `MOST` suggestions: tests that cannot be judged, drift to explain, what leans worse, then labels."""
    found = [*_rerun(tests), *of_the_past, *_settle(tests), *_label(tests)]
    return found[:MOST]


def _rerun(tests: Sequence[TestResult]) -> Iterator[Suggestion]:
    """Tests that are not valid, the invalid ones first; a limit that says something of the users only is none."""
    for status in (ValidityStatus.INVALID, ValidityStatus.LIMITED):
        for test in tests:
            found = test.validity
            if found.status == status and not (status == ValidityStatus.LIMITED and set(found.codes) <= USUAL_LIMITS):
                why = "is no valid test" if status == ValidityStatus.INVALID else "is limited"
                text = f"Run {title(test)} again: it {why}."
                if all(run.load_curve is None for run in (*test.runs.base, *test.runs.new)):
                    why = "no metric holds or follows them, so its load is unknown"
                    text = f"Record the connected users in {title(test)}: {why}."
                evidence = {"status": status, "codes": found.codes}
                yield Suggestion(kind=SuggestionKind.RERUN, test=test.name, text=text, evidence=evidence)


def _settle(tests: Sequence[TestResult]) -> Iterator[Suggestion]:
    """What leans worse in a valid test without being sure, where some number of runs would tell; gates first."""
    rows: list[tuple[bool, float, TestResult, str, MetricResult | SupportedUsersResult, float]] = []
    for test in tests:
        if test.validity.status == ValidityStatus.INVALID:
            continue
        for metric in test.metrics:
            leaning = metric.effective_p_worse
            if leaning is not None and leaning < LEANING and metric.effective_status != Status.REGRESSION:
                rows.append((not metric.gate, leaning, test, metric.name, metric, metric.margin_percent))
        users = test.supported_users
        if users is None or users.p_worse_one_sided is None or users.band_percent is None:
            continue
        if users.p_worse_one_sided < LEANING and users.status != Status.REGRESSION:
            rows.append((False, users.p_worse_one_sided, test, "supported users", users, users.band_percent))
    for _, _, test, name, row, margin in sorted(rows, key=lambda each: each[:2]):
        if row.required_runs is None:
            continue
        delta = row.effective_delta_percent if isinstance(row, MetricResult) else row.delta_percent
        text = (
            f"Settle {name} in {title(test)} ({change(delta)}): "
            f"{plural(row.required_runs, 'run')} of each build would show a change of {percent(margin)}."
        )
        evidence = {
            **row.model_dump(include={"slug", "required_runs"}),
            "delta_percent": delta,
            "margin_percent": margin,
        }
        yield Suggestion(kind=SuggestionKind.SETTLE, test=test.name, text=text, evidence=evidence)


def _label(tests: Sequence[TestResult]) -> Iterator[Suggestion]:
    """The label that the most tests call slower."""
    for agreed in slower_in_several(tests)[:1]:
        if agreed.marked < 2 or not isinstance(agreed.label, tuple):
            continue
        group, label, stat = agreed.label
        rows = [row for row in agreed.rows if row.marked]
        text = (
            f"Look at {label}: {agreed.marked} tests call its {stat} slower, by up to {change(rows[0].delta_percent)}."
        )
        evidence = {
            "group": group,
            "label": label,
            "stat": stat,
            "marked": agreed.marked,
            "tests": {row.test: row.delta_percent for row in rows},
        }
        yield Suggestion(kind=SuggestionKind.LOOK_AT_LABEL, test=None, text=text, evidence=evidence)
