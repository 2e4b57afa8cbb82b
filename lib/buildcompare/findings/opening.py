"""The first two sentences of a report: the verdict with the rows that made it, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from buildcompare.findings.metrics import detectable
from buildcompare.findings.verdict import Cause, causes
from buildcompare.results import MetricResult, Results, TestResult
from buildcompare.results.codes import CauseKind, Severity, SuggestionKind, Verdict
from buildcompare.text.findings import detectable_words, title
from buildcompare.text.numbers import VERDICT_WORDS, change, counted, listed, percent

MOST_NAMED = 2
"""Metrics in a title: it is read at a glance, and the findings below name all of them."""
USERS = "supported users"
_STARTS = {
    CauseKind.LEANING: "May have got worse, but not surely by more than chance",
    CauseKind.LOSS_NOT_EXCLUDED: "The supported users are too uncertain to exclude a loss of twice the margin",
    CauseKind.UNJUDGEABLE: "Users feel it, but one build has no number or is zero",
    CauseKind.NOTHING_JUDGED: "Nothing that users feel could be judged",
}


@dataclass(frozen=True)
class Figure:
    """A row that made the verdict, with the title of its test."""

    kind: CauseKind
    test: str
    name: str | None = None
    """Of the metric, or `USERS`; None where the cause is about no single row."""
    delta_percent: float | None = None
    at_unchanged_mix: bool = False
    loss_percent: float | None = None
    """The largest loss of users that the interval does not exclude."""

    @property
    def size(self) -> float:
        """The size of the change."""
        return abs(self.delta_percent or 0.0)


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
        means = "Users feel this; it is more than chance and more than the margin."
        return Opening(headed(verdict, worse, len(tests)), means)
    if results.verdict == Verdict.INVALID:
        heading = f"{verdict}: {listed(invalid, most=MOST_NAMED)}"
        others = f" What could be judged got worse: {named(worse)}." if worse else ""
        return Opening(heading, f"{'It' if len(invalid) == 1 else 'They'} cannot be judged.{others}")
    if results.verdict == Verdict.INCONCLUSIVE:
        settle = any(each.kind == SuggestionKind.SETTLE for each in results.suggestions)
        why = [*undecided_words(figures), *(["See below what would settle it."] if settle else [])]
        about = [each for each in figures if each.name]
        return Opening(headed(verdict, about, len(tests)), " ".join(why))
    warnings = sum(each.severity == Severity.WARNING for each in results.findings)
    look = f", with {counted(warnings, 'thing')} to look at" if warnings else ""
    gates = [metric for test in tests for metric in test.metrics if metric.gate]
    judged = {metric.name for metric in gates if metric.p_value is not None}
    not_judged = [name for name in dict.fromkeys(metric.name for metric in gates) if name not in judged]
    return Opening(verdict + look, passed_words(detectable(tests), not_judged))


def _figure(test: TestResult, cause: Cause) -> Figure:
    row = cause.row
    if row is None:
        return Figure(cause.kind, title(test))
    if not isinstance(row, MetricResult):
        loss = None if row.ci_low is None else -row.ci_low
        return Figure(cause.kind, title(test), USERS, cause.delta_percent, loss_percent=loss)
    labels = ", ".join(row.labels.values())
    name = f"{row.name} ({labels})" if labels else row.name
    mix = row.traffic_mix is not None and row.traffic_mix.counts
    return Figure(cause.kind, title(test), name, cause.delta_percent, at_unchanged_mix=mix)


def headed(words: str, figures: Sequence[Figure], tests: int) -> str:
    """A title; one test that has all figures is named once, and not where there is no other."""
    titles = {each.test for each in figures}
    if not titles:
        return words
    where = f" in {figures[0].test}" if tests > 1 and len(titles) == 1 else ""
    return f"{words}{where}: {named(figures, alone=len(titles) == 1)}"


def named(figures: Sequence[Figure], *, alone: bool = False) -> str:
    """Metrics with their change, the supported users first, then what moved most; `alone`: without their tests."""
    by_name: dict[str, list[Figure]] = {}
    for each in figures:
        by_name.setdefault(each.name or USERS, []).append(each)
    ordered = sorted(by_name.items(), key=lambda item: (item[0] != USERS, -max(each.size for each in item[1])))
    words = []
    for name, those in ordered:
        largest = max(those, key=lambda each: each.size)
        tests = {each.test for each in those}
        where = "" if alone else f" in {largest.test}" if len(tests) == 1 else f" in {len(tests)} tests"
        mix = " at unchanged traffic mix" if largest.at_unchanged_mix else ""
        size = f" {'up to ' if len(tests) > 1 else ''}{change(largest.delta_percent)}{mix}"
        words.append(name + (size if largest.delta_percent is not None else "") + where)
    return listed(words, most=MOST_NAMED)


def undecided_words(figures: Sequence[Figure]) -> Iterator[str]:
    """Why nothing can be concluded, a sentence for each kind of cause."""
    for kind, start in _STARTS.items():
        where = []
        for each in (each for each in figures if each.kind == kind):
            cause = each.name
            if kind == CauseKind.LOSS_NOT_EXCLUDED:
                loss = each.loss_percent or 0.0
                cause = f"a loss of up to {percent(loss)}" if loss > 0 else "no interval"
            where.append(f"{each.test}: {cause}" if cause else each.test)
        if where:
            yield f"{start} ({listed(list(dict.fromkeys(where)))})."


def passed_words(detectable: Mapping[str, Sequence[float]], not_judged: Sequence[str]) -> str:
    """What a pass rests on: how small a change could have been missed, and what was not judged at all."""
    text = "No metric that users feel got worse, as far as these tests can show."
    if detectable:
        text += f" Smaller changes could go unseen: {detectable_words(detectable)}."
    return f"{text} Not judged: {listed(not_judged)}." if not_judged else text
