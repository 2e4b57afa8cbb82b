"""What is said: findings, suggestions, setup?"""

from __future__ import annotations

from typing import Any

from buildcompare.results.base import Model
from buildcompare.results.codes import FindingKind, Severity, SuggestionKind


class Finding(Model):
    """One sentence of the report with what it rests on."""

    id: str
    severity: Severity
    kind: FindingKind
    test: str | None
    metric: str | None
    text: str
    evidence: dict[str, Any]


class Suggestion(Model):
    """Something that these tests suggest to do; never the analyst's own action item."""

    kind: SuggestionKind
    test: str | None
    text: str
    evidence: dict[str, Any]


class SetupRow(Model):
    """One row of the setup table; both are Markdown."""

    setting: str
    value: str
