"""The first two sentences of a report: the verdict with the rows that made it, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from buildcompare.findings.metrics import detectable
from buildcompare.findings.verdict import Cause, causes
from buildcompare.results import MetricResult, Results, TestResult
from buildcompare.results.codes import CauseKind, Severity, SuggestionKind, Verdict
from buildcompare.text import opening as words
from buildcompare.text.findings import title
from buildcompare.text.numbers import VERDICT_WORDS, counted, listed


@dataclass(frozen=True)
class Opening:
    """A title such as ``Regression in Bounded MySQL: P99 API times +33.4 %``, and a sentence on what it means."""

    title: str
    sentence: str


def opening(results: Results) -> Opening:
    """The verdict of `results` with the rows that made it; of a pass, how small a change would have been seen."""
    tests, verdict = results.tests, VERDICT_WORDS[results.verdict]
    invalid = [title(test) for test in tests if test.verdict == Verdict.INVALID]
    figures = [
        _figure(test, cause)
        for test in tests
        if test.verdict != Verdict.INVALID
        for cause in causes(test.metrics, test.supported_users)
    ]
    worse = [each for each in figures if each.kind == CauseKind.REGRESSION]
    if results.verdict == Verdict.REGRESSION:
        return Opening(words.headed(verdict, worse, len(tests)), words.REGRESSED)
    if results.verdict == Verdict.INVALID:
        heading = f"{verdict}: {listed(invalid, most=words.MOST_NAMED)}"
        return Opening(heading, words.invalid_words(len(invalid), worse))
    if results.verdict == Verdict.INCONCLUSIVE:
        settle = any(each.kind == SuggestionKind.SETTLE for each in results.suggestions)
        why = [*words.undecided_words(figures), *([words.SETTLED_BELOW] if settle else [])]
        about = [each for each in figures if each.name]
        return Opening(words.headed(verdict, about, len(tests)), " ".join(why))
    warnings = sum(each.severity == Severity.WARNING for each in results.findings)
    look = f", with {counted(warnings, 'thing')} to look at" if warnings else ""
    gates = [metric for test in tests for metric in test.metrics if metric.gate]
    judged = {metric.name for metric in gates if metric.p_value is not None}
    not_judged = [name for name in dict.fromkeys(metric.name for metric in gates) if name not in judged]
    return Opening(verdict + look, words.passed_words(detectable(tests), not_judged))


def _figure(test: TestResult, cause: Cause) -> words.Figure:
    row = cause.row
    if row is None:
        return words.Figure(cause.kind, title(test))
    if not isinstance(row, MetricResult):
        loss = None if row.ci_low is None else -row.ci_low
        return words.Figure(cause.kind, title(test), words.USERS, cause.delta_percent, loss_percent=loss)
    labels = ", ".join(row.labels.values())
    name = f"{row.name} ({labels})" if labels else row.name
    mix = row.traffic_mix is not None and row.traffic_mix.counts
    return words.Figure(cause.kind, title(test), name, cause.delta_percent, at_unchanged_mix=mix)
