"""Build findings and suggestions from a kind and its evidence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from buildcompare.results import Finding, Suggestion
from buildcompare.results.codes import FindingKind, Severity, SuggestionKind
from buildcompare.text.findings import Names, advice, sentence


def finding(
    kind: FindingKind,
    severity: Severity,
    evidence: Mapping[str, object],
    names: Names,
    *,
    test: str | None = None,
    metric: str | None = None,
    id: str | None = None,  # noqa: A002 - the field's name
) -> Finding:
    """A finding of `kind`; its text is made from `evidence`, which holds every number of it."""
    held = _as_json(evidence)
    return Finding(
        id=id or ".".join(str(part) for part in (test, kind, metric, evidence.get("side")) if part),
        severity=severity,
        kind=kind,
        test=test,
        metric=metric,
        text=sentence(kind, held, names, test),
        evidence=held,
    )


def suggestion(
    kind: SuggestionKind, evidence: Mapping[str, object], names: Names, *, test: str | None = None
) -> Suggestion:
    """A suggestion of `kind`."""
    held = _as_json(evidence)
    return Suggestion(kind=kind, test=test, text=advice(kind, held, names, test), evidence=held)


def _as_json(evidence: Mapping[str, object]) -> dict[str, Any]:
    """The evidence as it will be read again: plain strings, no NaN."""
    held: dict[str, Any] = json.loads(json.dumps(evidence), parse_constant=lambda _: None)
    return held
