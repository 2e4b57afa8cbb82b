"""Findings about the past of a comparison: setup, drift and databases, with what may explain a drift above it."""

from collections.abc import Iterator, Sequence
from typing import Any

from buildcompare.findings.finding import grouped
from buildcompare.results import Finding, Suggestion
from buildcompare.results.codes import DriftKind, FindingKind, SetupChange, Severity, SuggestionKind
from buildcompare.results.history import Drift, HistoryResult, SetupDifference
from buildcompare.text import history as text

USUAL_Z = 2.0
"""Drift within two standard deviations of the usual drift is reported as info."""


def find(
    history: HistoryResult, drift: Sequence[Drift], setup_differences: Sequence[SetupDifference]
) -> Iterator[Finding]:
    """All findings about the past of one comparison, the setup first."""
    if history.before is None:
        known = {"ledger": history.ledger, "comparisons": history.comparisons}
        yield _finding(FindingKind.NO_HISTORY, Severity.INFO, text.no_history(history.reason), known)
        return
    levels = [row for row in drift if _is_drift(row, history.margin_percent)]
    severity = Severity.WARNING if any(_is_unusual(row) for row in levels) else Severity.INFO
    differences = [row.model_dump() for row in setup_differences]
    if any(row.kind == SetupChange.CHANGED for row in setup_differences):
        words = text.setup_compared(setup_differences, setup_differences[0].against)
        yield _finding(FindingKind.SETUP_DIFFERENCES, severity, words, {"differences": differences})
    for rows in grouped((row.against, row) for row in levels).values():
        between = [each.model_dump() for each in history.between]
        evidence = {"rows": _dumped(rows), "between": between, "differences": differences}
        yield _finding(FindingKind.LEVEL_DRIFT, severity, text.level_drift(rows, history.between), evidence)
    tests = {row.test for row in levels}
    beside = [row for row in drift if row.kind == DriftKind.PREVIOUS_NEW and row.test in tests]
    if beside:
        words = text.previous_new(beside)
        yield _finding(FindingKind.PREVIOUS_NEW, Severity.INFO, words, {"rows": _dumped(beside)})
    between_databases = [row for row in drift if row.kind == DriftKind.BETWEEN_DATABASES]
    for pair in grouped(((row.against, row.test), row) for row in between_databases).values():
        flipped = [row for row in pair if row.flipped]
        if any(row.beyond_chance for row in flipped):  # in one build at least
            earlier = flipped[0].earlier
            words = text.between_databases(pair, earlier, fewer=(flipped[0].delta_percent or 0.0) < 0)
            seen = {"rows": [row.model_dump() for row in pair], "earlier_comparisons": len(earlier)}
            yield _finding(FindingKind.BETWEEN_DATABASES, Severity.INFO, words, seen)


def former_setup(
    history: HistoryResult, drift: Sequence[Drift], setup_differences: Sequence[SetupDifference]
) -> Iterator[Suggestion]:
    """Suggest to repeat one test on the former setup: that of the largest unusual drift."""
    changed = [row for row in setup_differences if row.kind == SetupChange.CHANGED]
    rows = [row for row in drift if _is_drift(row, history.margin_percent) and _is_unusual(row)]
    rows = [row for row in rows if changed and row.against == changed[0].against]
    if rows:
        worst = max(rows, key=lambda row: abs(row.delta_percent or 0.0))
        evidence: dict[str, Any] = {"delta_percent": worst.delta_percent, "against": worst.against}
        evidence["differences"] = [row.model_dump() for row in changed]
        words = text.former_setup(worst, changed)
        yield Suggestion(kind=SuggestionKind.FORMER_SETUP, test=worst.test, text=words, evidence=evidence)


def _is_drift(row: Drift, margin_percent: float) -> bool:
    large = abs(row.delta_percent or 0.0) > margin_percent
    return row.kind == DriftKind.SAME_VERSION and row.same_version and large and row.beyond_chance


def _is_unusual(row: Drift) -> bool:
    return row.z is None or row.jump or abs(row.z) > USUAL_Z


def _dumped(rows: Sequence[Drift]) -> list[dict[str, object]]:
    return [row.model_dump(exclude={"earlier"}) for row in rows]


def _finding(kind: FindingKind, severity: Severity, words: str, evidence: dict[str, Any]) -> Finding:
    about = {"severity": severity, "kind": kind, "test": None, "metric": None, "text": words, "evidence": evidence}
    return Finding.model_validate({"id": f"history.{kind}", **about})
