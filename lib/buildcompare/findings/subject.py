"""Find the test, metric or label that a finding is about, so that a notebook can show its numbers."""

import shlex
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from buildcompare.results import Finding, TestResult
from buildcompare.results.codes import FindingKind as Kind
from buildcompare.results.codes import Window
from buildcompare.stats.noise import series_key

OF_THE_LOAD = (
    Kind.SUPPORTED_USERS, Kind.REPORTED_AGAINST_ESTIMATED, Kind.LIMITED_BY, Kind.RUN_LEFT_OUT, Kind.USERS_IN_PARAMS,
    Kind.BEGINNING, Kind.BUMPS_CHANGED, Kind.BUMPS_IN_BOTH, Kind.TIME_TO_USERS, Kind.WAVES, Kind.VALIDITY,
    Kind.LEVEL_DRIFT, Kind.PREVIOUS_NEW, Kind.BETWEEN_DATABASES,
)  # fmt: skip
"""Kinds of findings about the metric that records the load, such as connected users."""
OF_A_TABLE = (
    Kind.LABELS, Kind.LABEL_CHANGED, Kind.LABELS_BEYOND_NOISE, Kind.LABELS_IN_SEVERAL_TESTS,
    Kind.LABELS_IN_ONE_BUILD, Kind.NO_LABEL_TABLE, Kind.METHODS_WITH_HANDLERS,
)  # fmt: skip
"""Kinds of findings about labels (API handlers, database methods)."""


@dataclass(frozen=True)
class Subject:
    """What a finding is about: a test, and a metric (its :func:`series_key`) or a label (group, label, statistic)."""

    test: str | None = None
    metric: str | None = None
    label: tuple[str, str, str] | None = None


def subject(finding: Finding, tests: Sequence[TestResult]) -> Subject:
    """Return what `finding` is about: the first match if it names several tests, metrics or labels."""
    kind, evidence = finding.kind, finding.evidence
    named = _first(evidence, {"group", "label"} if kind in OF_A_TABLE else {"slug"})
    places = (evidence.get("tests"), named.get("tests"), evidence if kind == Kind.COUNTED_ERRORS else None)
    listed = (name for place in places for name in place or ())
    about = finding.test or _first(evidence, {"test"}).get("test") or next(listed, None)
    test = next((each for each in tests if each.name == about), None)
    if test is None:
        return Subject()
    if kind in OF_A_TABLE:
        if kind == Kind.METHODS_WITH_HANDLERS:
            named = {"group": "api", "label": next(iter(evidence["handlers"])), "stat": "avg"}
        wanted = [(key, named[key]) for key in ("group", "label", "stat") if key in named]
        labels = (row for row in test.labels if all(getattr(row, key) == value for key, value in wanted))
        label = next(labels, None)
        return Subject(test.name, label=(label.group, label.label, label.stat) if label else None)
    slug = finding.metric or named.get("slug")
    if kind in OF_THE_LOAD:
        slug = min((run.load_curve for run in (*test.runs.base, *test.runs.new) if run.load_curve), default=None)
    elif kind == Kind.EVENT:
        slug = evidence["events"][0]["metric"]
    elif kind == Kind.MORE_EVENTS:
        slug = next((each.metric for each in test.events if each.group == evidence["groups"][0]), None)
    elif kind == Kind.BLIND_SPOTS:
        slug = next((each.slug for each in test.metrics if each.gate), None)
    rows = [row for row in test.metrics if row.slug == slug]
    moved = evidence.get("delta_percent")
    same = [row for row in rows if moved in (row.delta_percent, row.judged.delta_percent)]
    row = next(iter([*same, *rows]), None)
    return Subject(test.name, metric=series_key(row.slug, row.labels) if row else None)


def lab_command(
    file: str,
    test: str | None,
    metric: str | None,
    label: Sequence[str] | None,
    windows: Iterable[Window | None] = (None, None),
) -> str:
    """Return the shell command that opens a notebook on one metric or label, in the `windows` of base and new."""
    base, new = (f"{span[0]:.0f}-{span[1]:.0f}" if span else "" for span in windows)
    chosen = {"NOTEBOOK": "investigate", "PARAMS": file, "TEST": test, "METRIC": metric}
    chosen |= {"LABEL": " ".join(label) if label else None, "WINDOW": base if base == new else f"{base}/{new}"}
    named = {key: value.replace("$", "$$") for key, value in chosen.items() if value}  # make reads $$ as $
    return " ".join(["make lab", *(f"{key}={shlex.quote(value)}" for key, value in named.items())])


def _first(evidence: object, keys: Set[str]) -> Mapping[str, Any]:
    """Search nested `evidence` from outside to inside for a mapping with one of `keys`; return {} without a match."""
    if isinstance(evidence, Mapping) and keys & evidence.keys():
        return evidence
    parts = evidence.values() if isinstance(evidence, Mapping) else evidence if isinstance(evidence, list) else ()
    return next((named for part in parts if (named := _first(part, keys))), {})
