"""What does it mean beside the past? Sentences about setup, drift and databases, each with its numbers.

What changed in the setup stands before every drift that it may explain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from buildcompare.config.errors import plural
from buildcompare.results import DatabaseOrder, Drift, Finding, HistoryResult, SetupDifference, Suggestion
from buildcompare.results.codes import FindingKind, Severity, SuggestionKind
from buildcompare.text.numbers import change, db_name, interval, listed, percent, significant

USUAL_Z = 2.0
"""A drift within two standard deviations of what comparisons usually lie apart is told, and warns of nothing."""


def find(
    history: HistoryResult | None, drift: Sequence[Drift], setup_differences: Sequence[SetupDifference]
) -> list[Finding]:
    """All findings about the past of one comparison, the setup first."""
    if history is None:
        return []
    if history.before is None:
        text = f"This comparison is not held against earlier ones: {history.reason}."
        return [
            _finding(
                FindingKind.NO_HISTORY,
                Severity.INFO,
                text,
                {"ledger": history.ledger, "comparisons": history.comparisons},
            )
        ]
    levels = [row for row in drift if row.kind == "same_version" and _is_drift(row, history.margin_percent)]
    severity = Severity.WARNING if any(_is_unusual(row) for row in levels) else Severity.INFO
    return [
        *_setup(setup_differences, severity),
        *_level(levels, severity, history, setup_differences),
        *_previous_new([row for row in drift if row.kind == "previous_new"], levels),
        *_databases([row for row in drift if row.kind == "between_databases"]),
    ]


def former_setup(
    history: HistoryResult | None, drift: Sequence[Drift], setup_differences: Sequence[SetupDifference]
) -> Iterator[Suggestion]:
    """The one test whose repetition on the former setup would tell most: that of the largest unusual drift."""
    changed = [row for row in setup_differences if row.kind == "changed"]
    if history is None or not changed:
        return
    rows = [row for row in drift if row.kind == "same_version" and row.against == changed[0].against]
    rows = [row for row in rows if _is_drift(row, history.margin_percent) and _is_unusual(row)]
    if rows:
        worst = max(rows, key=lambda row: abs(row.delta_percent or 0.0))
        text = (
            f"Repeat {worst.type.capitalize()} {_where(worst)} of {worst.label} on the setup of {worst.against} "
            f"({listed([f'{row.setting} {row.before}' for row in changed])}): it would tell whether the drift of "
            f"{change(worst.delta_percent)} comes from the setup."
        )
        evidence = {
            "delta_percent": worst.delta_percent,
            "against": worst.against,
            "differences": [row.model_dump() for row in changed],
        }
        yield Suggestion(kind=SuggestionKind.FORMER_SETUP, test=worst.test, text=text, evidence=evidence)


def setup_words(differences: Sequence[SetupDifference]) -> str:
    """Setup differences in words: ``Load-test version v1.23.0 → v1.24.0``, or that none is recorded."""
    changed = [f"{row.setting} {row.before} → {row.now}" for row in differences if row.kind == "changed"]
    unknown = [row.setting for row in differences if row.kind == "not_recorded"]
    words = "; ".join(changed) if changed else "none recorded"
    return f"{words} (not recorded in both: {listed(unknown)})" if unknown else words


def _setup(differences: Sequence[SetupDifference], severity: Severity) -> Iterator[Finding]:
    if any(row.kind == "changed" for row in differences):
        text = f"Setup, compared with {differences[0].against}: {setup_words(differences)}."
        evidence = {"differences": [row.model_dump() for row in differences]}
        yield _finding(FindingKind.SETUP_DIFFERENCES, severity, text, evidence)


def _level(
    rows: Sequence[Drift], severity: Severity, history: HistoryResult, differences: Sequence[SetupDifference]
) -> Iterator[Finding]:
    """The same version at another level than in the comparison before."""
    for against in dict.fromkeys(row.against for row in rows):
        same = [row for row in rows if row.against == against]
        first = same[0]
        told = "; ".join(_moved(row) for row in same)
        keys = {(row.type, (row.db_engine or "").casefold()) for row in same}
        usual = [
            f"{percent(each.sd_percent)} on {db_name(each.db_engine) or each.type} ({plural(each.links, 'pair')})"
            for each in history.between
            if each.sd_percent is not None and (each.type, each.db_engine or "") in keys
        ]
        jump = "The level jumped" if any(row.jump for row in same) else "The level moved"
        setup = (
            f"the setup changed too ({listed(first.setup_changed)})"
            if first.setup_changed
            else "no setup difference is recorded"
        )
        text = (
            f"{jump}: {first.label} against {first.against_label} in {against}: {told}. Both are builds of one "
            f"version, so the build hardly explains it; {setup}."
        )
        if usual:
            text += f" Between comparisons the same version moves with a standard deviation of {listed(usual)}."
        evidence = {
            "rows": [row.model_dump(exclude={"earlier"}) for row in same],
            "between": [each.model_dump() for each in history.between],
            "differences": [row.model_dump() for row in differences],
        }
        yield _finding(FindingKind.LEVEL_DRIFT, severity, text, evidence)


def _previous_new(rows: Sequence[Drift], levels: Sequence[Drift]) -> Iterator[Finding]:
    """New against the previous new: a figure that is easily taken for the drift, and is not."""
    about = [row for row in rows if any(row.test == level.test for level in levels)]
    if about:
        told = ", ".join(f"{_where(row)} {change(row.delta_percent)}" for row in about)
        text = (
            f"{about[0].label} against {about[0].against_label} in {about[0].against}: {told}; this holds that drift "
            "and the change of the build together."
        )
        evidence = {"rows": [row.model_dump(exclude={"earlier"}) for row in about]}
        yield _finding(FindingKind.PREVIOUS_NEW, Severity.INFO, text, evidence)


def _databases(rows: Sequence[Drift]) -> Iterator[Finding]:
    """The databases changed places, beyond chance in one build at least."""
    for against in dict.fromkeys(row.against for row in rows):
        pair = [row for row in rows if row.against == against]
        flipped = [row for row in pair if row.flipped]
        if not any(_beyond_chance(row) for row in flipped):
            continue
        below = (flipped[0].delta_percent or 0.0) < 0
        told = ", ".join(
            f"{change(row.delta_percent)} with {row.label} (95 % interval {interval(row.ci_low, row.ci_high)})"
            for row in pair
        )
        where = f"{db_name(pair[0].db_engine)} supports {'fewer' if below else 'more'} users than {db_name(against)}"
        text = f"{where}, unlike in the comparison before: {told}. {_seen_before(flipped[0].earlier)}"
        evidence = {"rows": [row.model_dump() for row in pair], "earlier_comparisons": len(flipped[0].earlier)}
        yield _finding(FindingKind.BETWEEN_DATABASES, Severity.INFO, text, evidence)


def _seen_before(earlier: Sequence[DatabaseOrder]) -> str:
    if not earlier:
        return "The ledger has no earlier comparison in which that was so."
    if len(earlier) > 4:
        return f"That was so in {plural(len(earlier), 'earlier comparison')}, last in {earlier[-1].comparison}."
    told = [f"{each.comparison} ({_sides(each)})" for each in earlier]
    return f"That was so before in {listed(told)}."


def _sides(order: DatabaseOrder) -> str:
    sides = (("base", order.base), ("new", order.new))
    return ", ".join(f"{side} {change(value)}" for side, value in sides if value is not None)


def _moved(row: Drift) -> str:
    users = f"{row.value:,.0f} users against {row.before:,.0f}"
    size = f", {significant(abs(row.z), 2)} standard deviations" if row.jump and row.z is not None else ""
    return (
        f"{_where(row)} {change(row.delta_percent)} ({users}; 95 % interval {interval(row.ci_low, row.ci_high)}{size})"
    )


def _where(row: Drift) -> str:
    return db_name(row.db_engine) or row.test


def _is_drift(row: Drift, margin_percent: float) -> bool:
    return row.same_version and abs(row.delta_percent or 0.0) > margin_percent and _beyond_chance(row)


def _is_unusual(row: Drift) -> bool:
    return row.z is None or row.jump or abs(row.z) > USUAL_Z


def _beyond_chance(row: Drift) -> bool:
    return (row.ci_low or 0.0) > 0 or (row.ci_high or 0.0) < 0


def _finding(kind: FindingKind, severity: Severity, text: str, evidence: Mapping[str, object]) -> Finding:
    return Finding.model_validate(
        {
            "id": f"history.{kind}",
            "severity": severity,
            "kind": kind,
            "test": None,
            "metric": None,
            "text": text,
            "evidence": dict(evidence),
        }
    )
