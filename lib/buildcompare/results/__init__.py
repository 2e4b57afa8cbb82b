"""The schema of results.json: the one summary that every report format is rendered from.

Fields are only ever added; a change of meaning raises `schema_version`. Everything that differs between two
runs of the same inputs stands under `provenance.run` and nowhere else. Times without a zone are elapsed
seconds from the start of their run; percentages are in percent.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field

from buildcompare.results.base import Label, Model, Number, Reason, Window
from buildcompare.results.codes import FindingKind, Pair, Severity, Side, Status, SuggestionKind, TestType, Verdict
from buildcompare.results.history import (
    BetweenComparisons,
    DatabaseOrder,
    Drift,
    HistoryResult,
    RepeatedMeasurements,
    SetupDifference,
)
from buildcompare.results.load import AlertResult, LimitedBy, LoadAdjustedResult, MixMover, TrafficMixResult
from buildcompare.results.rows import ErrorRateResult, Event, LabelResult, MetricResult
from buildcompare.results.runs import Estimate, RunResult, Runs, SeriesCoverage, ServerResult, Validity, ValidityReason
from buildcompare.results.users import Bump, Phase, RampUp, RampUps, SupportedUsersResult, WithinRuns

__all__ = [
    "AlertResult", "BetweenComparisons", "Bump", "DatabaseOrder", "Drift", "ErrorRateResult", "Estimate", "Event",
    "Finding", "GrafanaLink", "HistoryResult", "InputProvenance", "Label", "LabelResult", "LimitedBy",
    "LoadAdjustedResult", "MetricResult", "MixMover", "Number", "Pair", "Phase", "Provenance", "RampUp", "RampUps",
    "Reason", "RepeatedMeasurements", "Results", "RunResult", "Runs", "SeriesCoverage", "ServerResult",
    "SetupDifference", "SetupRow", "Side", "Status", "Suggestion", "SupportedUsersResult", "TestResult",
    "TrafficMixResult", "Validity", "ValidityReason", "Verdict", "Window", "WithinRuns", "dumps", "json_schema",
]  # fmt: skip


class TestResult(Model):
    """One test of the comparison."""

    __test__ = False  # not a test class of pytest's

    name: str
    type: TestType
    db_engine: str | None
    users: int | None
    verdict: Verdict
    limited_by: LimitedBy | None = None
    runs: Runs
    supported_users: SupportedUsersResult | None
    ramp_up: RampUps
    metrics: list[MetricResult]
    errors: list[ErrorRateResult] = Field(default_factory=list)
    labels: list[LabelResult]
    events: list[Event]
    validity: Validity


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
    """Something to do next; never the analyst's own action item."""

    kind: SuggestionKind
    test: str | None
    text: str
    evidence: dict[str, Any]


class SetupRow(Model):
    """One row of the setup table; both are Markdown."""

    setting: str
    value: str


class GrafanaLink(Model):
    """A link to a dashboard."""

    title: str
    url: str


class InputProvenance(Model):
    """One file that a run was read from."""

    test: str
    build: Side
    run: int
    kind: str
    path: str
    sha256: str
    bytes: int


class Provenance(Model):
    """Where all of it comes from. Only `run` differs between two runs of the same inputs."""

    params_sha256: str
    catalogue: str
    inputs: list[InputProvenance]
    run: dict[str, Any] = Field(default_factory=dict)


class Results(Model):
    """The whole of results.json."""

    schema_version: Literal[2] = 2
    comparison: str
    base: Label
    new: Label
    complete: Literal[True] = True
    simulated: bool
    verdict: Verdict
    verdict_rule: str
    setup: list[SetupRow]
    setup_differences: list[SetupDifference] = Field(default_factory=list)
    """Against the previous comparison of the chain."""
    drift: list[Drift] = Field(default_factory=list)
    history: HistoryResult | None = None
    comments: list[str]
    action_items: list[str]
    action_items_title: str
    grafana: list[GrafanaLink]
    self_check: dict[str, Any] | None = None
    tests: list[TestResult]
    findings: list[Finding]
    suggestions: list[Suggestion] = Field(default_factory=list)
    provenance: Provenance


def dumps(results: Results) -> str:
    """`results` as the text of results.json."""
    return json.dumps(results.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of results.json."""
    schema = Results.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
