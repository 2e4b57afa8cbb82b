"""What does a report say first: the verdict with what made it, and what these tests could not have seen?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from buildcompare.findings.finding import title
from buildcompare.findings.metrics import blind_spots_in_words
from buildcompare.findings.verdict import Cause, Kind, causes
from buildcompare.results import MetricResult, Results, TestResult
from buildcompare.results.codes import Severity, SuggestionKind, Verdict
from buildcompare.text.numbers import VERDICT_WORDS, change, counted, listed, percent

MOST_NAMED = 2
"""Metrics in a title: it is read at a glance, and the findings below name all of them."""
USERS = "supported users"

Row = tuple[TestResult, Cause]


@dataclass(frozen=True)
class Opening:
    """The first two sentences of a report: ``Regression in Bounded MySQL: P99 API times +33.4 %``, and what it means.

    Every number is one of a test's rows; a finding below says more about each.
    """

    title: str
    sentence: str


def opening(results: Results) -> Opening:
    """The verdict of `results` with the rows that made it; of a pass, how much could have been seen."""
    valid = [test for test in results.tests if test.verdict != Verdict.INVALID]
    rows = [(test, cause) for test in valid for cause in causes(test.metrics, test.supported_users)]
    worse = [row for row in rows if row[1].kind == "regression"]
    words = VERDICT_WORDS[results.verdict]
    if results.verdict == Verdict.REGRESSION:
        meaning = "Users feel this; it is more than chance and more than the margin that matters."
        return Opening(_headed(words, worse, results.tests), meaning)
    if results.verdict == Verdict.INVALID:
        invalid = [title(test) for test in results.tests if test.verdict == Verdict.INVALID]
        unfit = "It is" if len(invalid) == 1 else "They are"
        others = f" What could be judged got worse: {_named(worse)}." if worse else ""
        return Opening(f"{words}: {listed(invalid, most=MOST_NAMED)}", f"{unfit} not fit to be judged.{others}")
    if results.verdict == Verdict.INCONCLUSIVE:
        settle = any(each.kind == SuggestionKind.SETTLE for each in results.suggestions)
        meaning = " ".join([*_open(rows), *(["Below stands what would settle it."] if settle else [])])
        return Opening(_headed(words, [row for row in rows if row[1].row is not None], results.tests), meaning)
    warnings = sum(each.severity == Severity.WARNING for each in results.findings)
    look = f", with {counted(warnings, 'thing')} to look at" if warnings else ""
    return Opening(words + look, _seen(results.tests))


def _seen(tests: Sequence[TestResult]) -> str:
    """What "pass" rests on: how large a change had to be to be seen, and what was not judged at all."""
    text = "No metric that users feel got worse, as far as these tests can show."
    coarse = blind_spots_in_words(tests)
    if coarse:
        text += f" Smaller changes than these could go unseen: {coarse}."
    judged = {metric.name for test in tests for metric in test.metrics if metric.gate and metric.p_value is not None}
    gates = dict.fromkeys(metric.name for test in tests for metric in test.metrics if metric.gate)
    unjudged = [name for name in gates if name not in judged]
    return f"{text} Not judged: {listed(unjudged)}." if unjudged else text


def _open(rows: Sequence[Row]) -> Iterator[str]:
    """Why nothing can be told, a sentence for each kind of reason."""
    for kind, start in _STARTS.items():
        those = [(test, cause) for test, cause in rows if cause.kind == kind]
        if those:
            told = [f"{title(test)}{_figure(cause)}" for test, cause in those]
            yield f"{start} ({listed(list(dict.fromkeys(told)))})."


_STARTS: dict[Kind, str] = {
    "leaning": "May have got worse, not surely by more than chance",
    "loss_not_excluded": "How many users are supported is too uncertain to exclude a loss of twice the margin",
    "unjudgeable": "What users feel is there in one build only, or was zero in one",
    "nothing_judged": "Nothing that users feel could be judged",
}


def _figure(cause: Cause) -> str:
    """What belongs to a reason beside its test."""
    if cause.kind == "loss_not_excluded":
        low = cause.row.ci_low if cause.row else None
        return f": a loss of up to {percent(-low)}" if low is not None and low < 0 else ": no interval"
    return f": {_name(cause)}" if cause.row else ""


def _headed(words: str, rows: Sequence[Row], tests: Sequence[TestResult]) -> str:
    """A title of `words` and `rows`; one test that has all of them is named once, and not where there is no other."""
    named = {test.name: title(test) for test, _ in rows}
    if not named:
        return words
    if len(named) > 1:
        return f"{words}: {_named(rows)}"
    where = f" in {named[rows[0][0].name]}" if len(tests) > 1 else ""
    return f"{words}{where}: {_named(rows, alone=True)}"


def _named(rows: Sequence[Row], *, alone: bool = False) -> str:
    """Metrics with their figure, the supported users first, then what moved most; `alone`: without their tests."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(_name(row[1]), []).append(row)
    ordered = sorted(by_name.items(), key=lambda item: (item[0] != USERS, -max(map(_size, item[1]))))
    return listed([_moved(name, those, alone=alone) for name, those in ordered], most=MOST_NAMED)


def _moved(name: str, rows: Sequence[Row], *, alone: bool) -> str:
    test, cause = max(rows, key=_size)
    tests = {test.name for test, _ in rows}
    where = "" if alone else f" in {title(test)}" if len(tests) == 1 else f" in {len(tests)} tests"
    if cause.delta_percent is None:
        return f"{name}{where}"
    mix = isinstance(cause.row, MetricResult) and cause.row.traffic_mix is not None and cause.row.traffic_mix.counts
    largest = "up to " if len(tests) > 1 else ""
    return f"{name} {largest}{change(cause.delta_percent)}{' at unchanged traffic mix' if mix else ''}{where}"


def _name(cause: Cause) -> str:
    if not isinstance(cause.row, MetricResult):
        return USERS
    labels = cause.row.labels.values()
    return f"{cause.row.name} ({', '.join(labels)})" if labels else cause.row.name


def _size(row: Row) -> float:
    return abs(row[1].delta_percent or 0.0)
