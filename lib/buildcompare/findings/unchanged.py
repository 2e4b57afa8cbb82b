"""How much of what was measured did not change? One sentence for the bounded tests, one for the unbounded ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildcompare.config.errors import plural
from buildcompare.findings.finding import Labels, finding, title
from buildcompare.results import Finding, MetricResult, TestResult
from buildcompare.results.codes import FindingKind, ReasonCode, Severity, Status, ValidityStatus
from buildcompare.text.numbers import change, listed

Row = tuple[TestResult, MetricResult]

MOST_NAMED = 4


def unchanged(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """What differs by more than chance among all that could be judged, and how far the rest moved at most.

    "Nothing differs" is a claim: how many metrics are the same within their margins, and how many could not be judged,
    stands beside it.
    """
    for kind in ("bounded", "unbounded"):
        alike = [test for test in tests if test.type == kind and test.validity.status != ValidityStatus.INVALID]
        rows = [(test, metric) for test in alike for metric in test.metrics]
        judged = [row for row in rows if row[1].p_value is not None]
        if judged:
            yield _sentence(kind, alike, rows, judged)


def _sentence(kind: str, tests: Sequence[TestResult], rows: Sequence[Row], judged: Sequence[Row]) -> Finding:
    differ = [row for row in judged if row[1].effective_status in (Status.REGRESSION, Status.IMPROVEMENT)]
    same = [row for row in judged if row[1].effective_status == Status.EQUIVALENT]
    undecided = sorted((row for row in judged if row not in differ and row not in same), key=_size, reverse=True)
    where = " and ".join(title(test) for test in tests)
    judged_words = plural(len(judged), "metric") + (" of both tests" if len(tests) == 2 else "")
    if differ:
        told = listed([_named(row, tests) for row in sorted(differ, key=_size, reverse=True)], most=MOST_NAMED)
        verb = "differs" if len(differ) == 1 else "differ"
        text = f"{where}: of {judged_words} that could be judged {len(differ)} {verb} by more than chance: {told}"
    else:
        among = f"any of the {judged_words}" if len(judged) > 1 else "the one metric"
        text = f"{where}: no difference beyond chance in {among} that could be judged"
    if same:
        verb = "are the same within their margins" if len(same) > 1 else "is the same within its margin"
        text += f"; {len(same)} of them {verb}"
    if undecided:
        test, metric = undecided[0]
        text += (
            f"; {'the others' if same or differ else 'they'} cannot be told from chance among so many, at most "
            f"{change(metric.effective_delta_percent)} ({metric.name}{_where(test, tests)})"
        )
    aside = [
        row
        for row in rows
        if row[1].p_value is None and (row[1].reason is None or row[1].reason.code is not ReasonCode.SET_BY_TEST)
    ]
    if aside:
        names = list(dict.fromkeys(metric.name for _, metric in aside))
        text += f". Not judged: {listed(names, most=MOST_NAMED)}"
    evidence = {
        "tests": [test.name for test in tests],
        "judged": len(judged),
        "differ": [_evidence(row) for row in differ],
        "same": [_key(row) for row in same],
        "undecided": [_key(row) for row in undecided],
        "largest_undecided": _evidence(undecided[0]) if undecided else None,
        "not_judged": [_key(row) for row in aside],
        "not_named": [
            max(len(differ) - MOST_NAMED, 0),
            max(len({metric.name for _, metric in aside}) - MOST_NAMED, 0),
        ],
    }
    found = finding(tests[0], FindingKind.UNCHANGED, Severity.INFO, text + ".", evidence)
    return found.model_copy(update={"id": f"unchanged.{kind}", "test": tests[0].name if len(tests) == 1 else None})


def _size(row: Row) -> float:
    return abs(row[1].effective_delta_percent or 0.0)


def _named(row: Row, tests: Sequence[TestResult]) -> str:
    return f"{row[1].name} {change(row[1].effective_delta_percent)}{_where(row[0], tests)}"


def _where(test: TestResult, tests: Sequence[TestResult]) -> str:
    return f" in {title(test)}" if len(tests) > 1 else ""


def _key(row: Row) -> str:
    """Where the row stands in results.json."""
    return f"{row[0].name} {row[1].slug}"


def _evidence(row: Row) -> dict[str, object]:
    test, metric = row
    keys = {"slug", "ci_low", "ci_high", "margin_percent"}
    return {"test": test.name, **metric.model_dump(include=keys), "delta_percent": metric.effective_delta_percent}
