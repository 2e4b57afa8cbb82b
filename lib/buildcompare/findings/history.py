"""Make findings about earlier comparisons: changed setup, drift of one version's results, differences of databases."""

from collections.abc import Iterator, Mapping, Sequence

from buildcompare.findings.finding import Found, finding, grouped, suggestion
from buildcompare.results import Finding, Suggestion
from buildcompare.results.codes import DriftKind, FindingKind, Pair, SetupChange, Severity, SuggestionKind
from buildcompare.results.history import Drift, HistoryResult, SetupDifference
from buildcompare.text.sentences import Names

USUAL_Z = 2.0
"""Maximum |z| of a usual drift (1 of 20 drifts exceeds it). A drift with a larger or unknown z is a warning."""
NAMES = Names(Pair("base", "new"), {})
"""Placeholder names. Sentences about earlier comparisons take the names of builds and tests from the evidence."""


def find(
    history: HistoryResult, drift: Sequence[Drift], setup_differences: Sequence[SetupDifference]
) -> Iterator[Finding]:
    """Make findings about earlier comparisons. Changed settings come first, because they can explain other findings."""
    if history.before is None:
        evidence = {"ledger": history.ledger, "comparisons": history.comparisons}
        yield _of_the_past(FindingKind.NO_HISTORY, Severity.INFO, evidence, reason=history.reason)
        return
    levels = [row for row in drift if _is_drift(row, history.margin_percent)]
    severity = Severity.WARNING if any(_is_unusual(row) for row in levels) else Severity.INFO
    if any(row.kind == SetupChange.CHANGED for row in setup_differences):
        yield _of_the_past(FindingKind.SETUP_DIFFERENCES, severity, {"differences": setup_differences})
    for rows in grouped((row.against, row) for row in levels).values():
        evidence = {"rows": _dumped(rows), "between": history.between, "differences": setup_differences}
        yield _of_the_past(FindingKind.LEVEL_DRIFT, severity, evidence)
    tests = {row.test for row in levels}
    beside = [row for row in drift if row.kind == DriftKind.PREVIOUS_NEW and row.test in tests]
    if beside:
        yield _of_the_past(FindingKind.PREVIOUS_NEW, Severity.INFO, {"rows": _dumped(beside)})
    for against, bumps in grouped((row.against, row) for row in history.bumps).items():
        yield _of_the_past(FindingKind.BUMPS_CHANGED, Severity.INFO, {"against": against, "rows": bumps})
    between_databases = [row for row in drift if row.kind == DriftKind.BETWEEN_DATABASES]
    for pair in grouped(((row.against, row.test), row) for row in between_databases).values():
        flipped = [row for row in pair if row.flipped]
        if any(row.beyond_chance for row in flipped):  # the change is beyond chance in at least one build
            evidence = {"rows": pair, "earlier_comparisons": flipped[0].earlier_comparisons}
            yield _of_the_past(FindingKind.BETWEEN_DATABASES, Severity.INFO, evidence)


def former_setup(
    history: HistoryResult, drift: Sequence[Drift], setup_differences: Sequence[SetupDifference]
) -> Iterator[Suggestion]:
    """If settings changed, suggest using the former settings to repeat the test with the largest unusual drift."""
    changed = [row for row in setup_differences if row.kind == SetupChange.CHANGED]
    rows = [row for row in drift if _is_drift(row, history.margin_percent) and _is_unusual(row)]
    rows = [row for row in rows if changed and row.against == changed[0].against]
    if rows:
        worst = max(rows, key=lambda row: abs(row.delta_percent or 0.0))
        evidence = {"delta_percent": worst.delta_percent, "against": worst.against, "differences": changed}
        yield suggestion(SuggestionKind.FORMER_SETUP, evidence, NAMES, test=worst.test, row=worst)


def _is_drift(row: Drift, margin_percent: float) -> bool:
    large = abs(row.delta_percent or 0.0) > margin_percent
    return row.kind == DriftKind.SAME_VERSION and row.same_version and large and row.beyond_chance


def _is_unusual(row: Drift) -> bool:
    return row.z is None or row.jump or abs(row.z) > USUAL_Z


def _dumped(rows: Sequence[Drift]) -> list[dict[str, object]]:
    return [row.model_dump(exclude={"earlier", "earlier_comparisons"}) for row in rows]


def _of_the_past(kind: FindingKind, severity: Severity, evidence: Mapping[str, object], **beside: object) -> Finding:
    return finding(Found(kind, severity, evidence, id=f"history.{kind}", beside=beside), NAMES)
