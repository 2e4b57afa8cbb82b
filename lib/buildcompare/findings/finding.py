"""How a finding is put together: a test by its name, a sentence, and the evidence for it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from buildcompare.results import Finding, TestResult
from buildcompare.results.codes import FindingKind, Severity
from buildcompare.text.numbers import db_name

Labels = tuple[str, str]
"""The names of the base and of the new build."""


def title(test: TestResult) -> str:
    """A test by type and database: ``Unbounded Postgres``."""
    words = f"{test.type.capitalize()} {db_name(test.db_engine)}".strip()
    return words if test.name == f"{test.db_engine}_{test.type}" else f"{words} ({test.name})"


def finding(
    test: TestResult,
    kind: FindingKind,
    severity: Severity,
    text: str,
    evidence: Mapping[str, object],
    *,
    metric: str | None = None,
) -> Finding:
    """A finding about `test`; `evidence` holds every number of its text."""
    identity = ".".join(str(part) for part in (test.name, kind, metric, evidence.get("side")) if part)
    return Finding.model_validate(
        {
            "id": identity,
            "severity": severity,
            "kind": kind,
            "test": test.name,
            "metric": metric,
            "text": text,
            "evidence": json.loads(json.dumps(evidence), parse_constant=lambda _: None),  # as it will be read again
        }
    )
