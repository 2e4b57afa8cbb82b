"""The verdict of a test and of a comparison, by the rule that reports print beside it, and how a report begins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from buildcompare.findings.metrics import detectable, leans, lost
from buildcompare.results import MetricResult, Results, SupportedUsersResult, TestResult, Validity
from buildcompare.results.codes import CauseKind, Severity, Status, SuggestionKind, ValidityStatus, Verdict
from buildcompare.text import findings as words
from buildcompare.text.findings import title
from buildcompare.text.numbers import VERDICT_WORDS, counted, listed


def of_test(
    metrics: Sequence[MetricResult], supported_users: SupportedUsersResult | None, validity: Validity
) -> Verdict:
    """The verdict of one test."""
    if validity.status == ValidityStatus.INVALID:
        return Verdict.INVALID
    found = causes(metrics, supported_users)
    if any(cause.kind == CauseKind.REGRESSION for cause in found):
        return Verdict.REGRESSION
    return Verdict.INCONCLUSIVE if found else Verdict.PASS


def of_comparison(tests: Sequence[TestResult]) -> Verdict:
    """The verdict of the whole comparison: the worst of its tests."""
    verdicts = {test.verdict for test in tests}
    worst: tuple[Verdict, ...] = (Verdict.INVALID, Verdict.REGRESSION, Verdict.INCONCLUSIVE)
    return next((verdict for verdict in worst if verdict in verdicts), Verdict.PASS)


def causes(
    metrics: Sequence[MetricResult], supported_users: SupportedUsersResult | None, test: str = ""
) -> list[words.Cause]:
    """Everything that keeps a valid test from passing, with the test's title."""
    rows: list[MetricResult | SupportedUsersResult] = [metric for metric in metrics if metric.gate]
    rows = [*([supported_users] if supported_users else []), *rows]
    found = [words.Cause.of(kind, test, row) for row in rows for kind in _kinds(row)]
    if not any(_judged(row) for row in rows):
        found.append(words.Cause(CauseKind.NOTHING_JUDGED, test))
    return sorted(found, key=lambda cause: list(CauseKind).index(cause.kind))


def _judged(row: MetricResult | SupportedUsersResult) -> bool:
    deciding = row.deciding if isinstance(row, MetricResult) else row
    return deciding is not None and deciding.p_value is not None


def _kinds(row: MetricResult | SupportedUsersResult) -> Iterator[CauseKind]:
    deciding = row.deciding if isinstance(row, MetricResult) else row
    if deciding and deciding.status == Status.REGRESSION:
        yield CauseKind.REGRESSION
    elif deciding and leans(deciding.p_worse_one_sided):
        yield CauseKind.LEANING
    if isinstance(row, MetricResult):
        if lost(row):
            yield CauseKind.UNJUDGEABLE
    elif row.ci_low is None or row.band_percent is None or not row.ci_low > -2.0 * row.band_percent:
        yield CauseKind.LOSS_NOT_EXCLUDED  # of twice the margin


@dataclass(frozen=True)
class Opening:
    """A title such as ``Regression in Bounded MySQL: P99 API times +33.4 %``, and a sentence on what it means."""

    title: str
    sentence: str


def opening(results: Results) -> Opening:
    """The verdict of `results` with the rows that made it; of a pass, how small a change would have been seen."""
    tests, verdict = results.tests, VERDICT_WORDS[results.verdict]
    valid = [test for test in tests if test.verdict != Verdict.INVALID]
    found = [cause for test in valid for cause in causes(test.metrics, test.supported_users, title(test))]
    worse = [each for each in found if each.kind == CauseKind.REGRESSION]
    if results.verdict == Verdict.REGRESSION:
        return Opening(words.headed(verdict, worse, len(tests)), words.REGRESSED)
    if results.verdict == Verdict.INVALID:
        invalid = [title(test) for test in tests if test.verdict == Verdict.INVALID]
        heading = f"{verdict}: {listed(invalid, most=words.MOST_NAMED)}"
        return Opening(heading, words.invalid_words(len(invalid), worse))
    if results.verdict == Verdict.INCONCLUSIVE:
        settle = any(each.kind == SuggestionKind.SETTLE for each in results.suggestions)
        why = [*words.undecided_words(found), *([words.SETTLED_BELOW] if settle else [])]
        about = [each for each in found if each.name]
        return Opening(words.headed(verdict, about, len(tests)), " ".join(why))
    warnings = sum(each.severity == Severity.WARNING for each in results.findings)
    look = f", with {counted(warnings, 'thing')} to look at" if warnings else ""
    gates = [metric for test in tests for metric in test.metrics if metric.gate]
    judged = {metric.name for metric in gates if _judged(metric)}
    not_judged = [name for name in dict.fromkeys(metric.name for metric in gates) if name not in judged]
    return Opening(verdict + look, words.passed_words(detectable(tests), not_judged))
