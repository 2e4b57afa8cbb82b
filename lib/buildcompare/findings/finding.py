"""What a rule found, and the finding or suggestion that it becomes."""

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from buildcompare.results import Finding, Suggestion
from buildcompare.results.codes import FindingKind, Severity, SuggestionKind
from buildcompare.text.findings import Names, advice, sentence

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class Found:
    """What a rule found; `evidence` holds every number of its sentence, `test` defaults to that of the rule."""

    kind: FindingKind
    severity: Severity
    evidence: Mapping[str, object]
    test: str | None = None
    metric: str | None = None
    id: str | None = None


def finding(found: Found, names: Names, test: str | None = None) -> Finding:
    """The finding with its sentence, about `test` if the rule named none."""
    test = found.test or test
    evidence = _as_json(found.evidence)
    parts = (test, found.kind, found.metric, evidence.get("side"))
    return Finding(
        id=found.id or ".".join(str(part) for part in parts if part),
        severity=found.severity,
        kind=found.kind,
        test=test,
        metric=found.metric,
        text=sentence(found.kind, evidence, names, test),
        evidence=evidence,
    )


def suggestion(
    kind: SuggestionKind, evidence: Mapping[str, object], names: Names, *, test: str | None = None
) -> Suggestion:
    """A suggestion with its sentence."""
    held = _as_json(evidence)
    return Suggestion(kind=kind, test=test, text=advice(kind, held, names, test), evidence=held)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Values by their keys, in the order of the first of each key."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _as_json(evidence: Mapping[str, object]) -> dict[str, Any]:
    """The evidence as it will be read again: plain strings, no NaN."""
    held: dict[str, Any] = json.loads(json.dumps(evidence), parse_constant=lambda _: None)
    return held
