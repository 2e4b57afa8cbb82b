"""What is said: findings, suggestions, setup?"""

from __future__ import annotations

from typing import Any, Literal

from buildcompare.results.base import Model


class Finding(Model):
    """One sentence of the report with what it rests on."""

    id: str
    severity: Literal["critical", "warning", "info"]
    kind: str
    test: str | None
    metric: str | None
    text: str
    evidence: dict[str, Any]


class Suggestion(Model):
    """Something that these tests suggest to do; never the analyst's own action item."""

    kind: Literal["rerun", "former_setup", "settle", "look_at_label"]
    test: str | None
    text: str
    evidence: dict[str, Any]


class SetupRow(Model):
    """One row of the setup table; both are Markdown."""

    setting: str
    value: str
