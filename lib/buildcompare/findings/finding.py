"""What a rule found, and the finding or suggestion that it becomes."""

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from buildcompare.results import Finding, Suggestion
from buildcompare.results.codes import FindingKind, Severity, SuggestionKind
from buildcompare.text.sentences import DETAIL, Names, say

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
    beside: Mapping[str, object] = field(default_factory=dict)
    """What the sentence says beside its evidence: codes and names that results.json holds elsewhere."""


def finding(found: Found, names: Names, test: str | None = None) -> Finding:
    """The finding with its sentence, about `test` if the rule named none."""
    test = found.test or test
    evidence = _as_json(found.evidence)
    text, _, detail = sentence(found.kind, evidence, names, test, **found.beside).partition(DETAIL)
    parts = (test, found.kind, found.metric, evidence.get("side"))
    return Finding(
        id=found.id or ".".join(str(part) for part in parts if part),
        severity=found.severity,
        kind=found.kind,
        test=test,
        metric=found.metric,
        text=text.strip(),
        detail=detail.strip(),
        evidence=evidence,
    )


def sentence(
    kind: FindingKind, evidence: Mapping[str, Any], names: Names, test: str | None = None, **beside: object
) -> str:
    """The sentence of a finding, with the tests that it is about; every number in it is in `evidence`.

    What it rests on follows after `DETAIL`.
    """
    tests, where = evidence.get("tests"), names.tests.get(test or "", "")
    if isinstance(tests, list):
        every = len(tests) == len(names.tests) > 1
        where = "Every test" if every else " and ".join(names.tests[each] for each in tests)
    text = say("findings", kind, evidence, names, **beside)
    return f"{where}: {text}" if where and kind != FindingKind.BLIND_SPOTS else text  # that is about all tests


def suggestion(
    kind: SuggestionKind, evidence: Mapping[str, object], names: Names, *, test: str | None = None, **beside: object
) -> Suggestion:
    """A suggestion with its sentence."""
    held = _as_json(evidence)
    text = say("suggestions", kind, held, names.tests.get(test or "", ""), **beside)
    return Suggestion(kind=kind, test=test, text=text, evidence=held)


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
