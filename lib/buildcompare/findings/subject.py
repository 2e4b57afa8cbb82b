"""Find the test, metric or label of a finding, which a notebook opens to show its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buildcompare.results import Finding, TestResult
from buildcompare.results.codes import FindingKind as Kind
from buildcompare.stats.noise import series_key

OF_THE_LOAD = (
    Kind.SUPPORTED_USERS, Kind.REPORTED_AGAINST_ESTIMATED, Kind.LIMITED_BY, Kind.RUN_LEFT_OUT, Kind.USERS_IN_PARAMS,
    Kind.BEGINNING, Kind.BUMPS_IN_BOTH, Kind.TIME_TO_USERS, Kind.WAVES, Kind.VALIDITY, Kind.LEVEL_DRIFT,
    Kind.PREVIOUS_NEW, Kind.BETWEEN_DATABASES,
)  # fmt: skip
"""Kinds of findings about the curve of connected users and numbers derived from it."""
OF_A_TABLE = (
    Kind.LABELS, Kind.LABELS_BEYOND_NOISE, Kind.LABELS_IN_SEVERAL_TESTS, Kind.LABELS_IN_ONE_BUILD,
    Kind.NO_LABEL_TABLE, Kind.METHODS_WITH_HANDLERS,
)  # fmt: skip
"""Kinds of findings about labels."""


@dataclass(frozen=True)
class Subject:
    """Test, and metric (by its :func:`series_key`) or label, of a finding; None if it has none."""

    test: str | None = None
    metric: str | None = None
    label: tuple[str, str, str] | None = None


def subject(finding: Finding, tests: Sequence[TestResult]) -> Subject:
    """Return the subject of `finding`, the first if there are several."""
    evidence = finding.evidence
    named = _named(finding.kind, evidence)
    about = finding.test or named.get("test") or next(iter(evidence.get("tests", ())), None)
    test = next((each for each in tests if each.name == about), None)
    if test is None:
        return Subject()
    if finding.kind in OF_A_TABLE:
        keys = ("group", "label", "stat")
        wanted = {key: named[key] for key in keys if key in named}
        labels = ((row.group, row.label, row.stat) for row in test.labels)
        label = next((each for each in labels if wanted.items() <= dict(zip(keys, each, strict=True)).items()), None)
        return Subject(test.name, label=label)
    slug = named.get("slug", finding.metric)
    if finding.kind in OF_THE_LOAD:
        slug = min((run.load_curve for run in (*test.runs.base, *test.runs.new) if run.load_curve), default=None)
    elif finding.kind == Kind.MORE_EVENTS:
        slug = next((each.metric for each in test.events if each.group == evidence["groups"][0]), None)
    elif finding.kind == Kind.BLIND_SPOTS:
        slug = next((each.slug for each in test.metrics if each.gate), None)
    rows = [row for row in test.metrics if row.slug == slug]
    moved = evidence.get("delta_percent")
    own = [row for row in rows if moved in (row.delta_percent, row.judged.delta_percent)]
    row = next(iter([*own, *rows]), None)
    return Subject(test.name, metric=series_key(row.slug, row.labels) if row else None)


def _named(kind: Kind, evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Find the first test, metric or label in the evidence."""
    match kind:
        case Kind.EVENT:
            return {"slug": evidence["events"][0]["metric"]}
        case Kind.GAPS:
            return {"slug": evidence["worst"]["slug"]}
        case Kind.UNCHANGED:
            rows = (*evidence["differ"], evidence["largest_undecided"], *evidence["same_rows"])
            return next((row for row in rows if row), {})
        case Kind.COUNTED_ERRORS:
            return {"test": next(iter(evidence))}
        case Kind.LEVEL_DRIFT | Kind.PREVIOUS_NEW | Kind.BETWEEN_DATABASES:
            return {"test": evidence["rows"][0]["test"]}
        case Kind.LABELS:
            return dict(next(iter(evidence["moved_most"]), {}))
        case Kind.LABELS_BEYOND_NOISE:
            return dict(evidence["labels"][0])
        case Kind.LABELS_IN_SEVERAL_TESTS:
            return {**evidence["labels"][0], "test": next(iter(evidence["labels"][0]["tests"]))}
        case Kind.LABELS_IN_ONE_BUILD:
            return dict(evidence["rows"][0])
        case Kind.NO_LABEL_TABLE:
            return {"group": evidence["group"]}
        case Kind.METHODS_WITH_HANDLERS:
            return {"group": "api", "label": next(iter(evidence["handlers"])), "stat": "avg"}
    return {}
