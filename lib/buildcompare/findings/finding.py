"""Turn the outcome of a rule into a finding or suggestion."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic_core import to_jsonable_python

from buildcompare.results import Finding, Suggestion
from buildcompare.results.codes import FindingKind, Severity, SuggestionKind
from buildcompare.text.sentences import Names, say, say_with_detail

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True)
class Found:
    """Outcome of a rule, with every number of the finding's sentence in `evidence`.

    `test` defaults to the test that the rule examines. In results, `evidence` is plain JSON, in which NaN becomes null.
    """

    kind: FindingKind
    severity: Severity
    evidence: Mapping[str, object]
    test: str | None = None
    metric: str | None = None
    id: str | None = None
    beside: Mapping[str, object] = field(default_factory=dict)
    """Codes and names that the finding's sentence needs but `evidence` does not contain."""


def finding(found: Found, names: Names, test: str | None = None) -> Finding:
    """Make a finding with its sentence; `test` is the default for an outcome without a test."""
    test = found.test or test
    evidence = to_jsonable_python(found.evidence, inf_nan_mode="null")
    text, detail = sentence(found.kind, evidence, names, test, **found.beside)
    parts = (test, found.kind, found.metric, evidence.get("side"))
    return Finding(
        id=found.id or ".".join(str(part) for part in parts if part),
        severity=found.severity,
        kind=found.kind,
        test=test,
        metric=found.metric,
        text=text,
        detail=detail,
        evidence=evidence,
    )


def sentence(
    kind: FindingKind, evidence: Mapping[str, Any], names: Names, test: str | None = None, **beside: object
) -> tuple[str, str]:
    """Return sentence and detail of a finding; most sentences start with test titles if there are several tests."""
    tests, where = evidence.get("tests"), names.tests.get(test or "", "")
    if isinstance(tests, list):
        every = len(tests) == len(names.tests) > 1
        where = "Every test" if every else " and ".join(names.tests[each] for each in tests)
    text, detail = say_with_detail("findings", kind, evidence, names, **beside)
    is_named = where and len(names.tests) > 1 and kind != FindingKind.BLIND_SPOTS
    return f"{where}: {text}" if is_named else text, detail


def suggestion(
    kind: SuggestionKind, evidence: Mapping[str, object], names: Names, *, test: str | None = None, **beside: object
) -> Suggestion:
    """Make a suggestion of what to do next, and write its sentence."""
    plain = to_jsonable_python(evidence, inf_nan_mode="null")
    where = names.tests.get(test or "", "") if len(names.tests) > 1 else ""
    return Suggestion(kind=kind, test=test, text=say("suggestions", kind, plain, where, **beside), evidence=plain)


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group values by their keys, in the order of first appearance."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
