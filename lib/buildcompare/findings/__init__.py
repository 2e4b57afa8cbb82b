"""What it means: results in, sentences out. Every sentence of the report is made here.

A finding is one sentence with its numbers, and the evidence that they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from buildcompare.findings.across import labels_in_several_tests, methods_with_handlers
from buildcompare.findings.error_rates import counted_errors, error_rates
from buildcompare.findings.finding import Labels, title
from buildcompare.findings.labels import labels_called, labels_in_one_build
from buildcompare.findings.metrics import at_equal_load, blind_spots, metrics, unjudgeable
from buildcompare.findings.recordings import counter_resets, coverage, left_out, named_twice, notes, servers, validity
from buildcompare.findings.shape import beginning, bumps_in_both, events, time_to_users, waves
from buildcompare.findings.traffic_mix import traffic_mix
from buildcompare.findings.unchanged import unchanged
from buildcompare.findings.users import limited_by, reported_against_estimated, supported_users
from buildcompare.results import Finding, TestResult
from buildcompare.results.codes import FindingKind, Severity

__all__ = ["above_the_fold", "find", "gravest_first", "headlines", "title"]
_SEVERITIES = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_FIRST = (FindingKind.SUPPORTED_USERS,)
"""Kinds of findings that come before everything but critical ones: what everybody asks is never folded away."""
_HISTORY = (
    FindingKind.SETUP_DIFFERENCES,
    FindingKind.LEVEL_DRIFT,
    FindingKind.PREVIOUS_NEW,
    FindingKind.BETWEEN_DATABASES,
)
"""Kinds that look back at earlier comparisons: setup differences first, and after this comparison's own warnings."""
_INFOS = ((FindingKind.UNCHANGED,), _HISTORY, (FindingKind.METRIC, FindingKind.BEGINNING))
"""Among the infos: how much is unchanged, what the past says of the supported users, what else was called, the rest."""
_HEADLINES = (*_FIRST, FindingKind.UNCHANGED, FindingKind.BETWEEN_DATABASES)
"""What a report in Markdown says too where it is quiet, as people do in theirs."""
_LAST = (FindingKind.BLIND_SPOTS, FindingKind.LABELS_IN_ONE_BUILD, FindingKind.RECORDING_NOTE)
"""Kinds that an analyst looks up: as infos they stand below the fold, however few lines there are. Blind spots stand in
the sentence beside a pass too."""
TOP = 10
"""Findings above the fold: what a release manager reads."""

_OF_ONE_TEST: tuple[Callable[[TestResult, Labels], Iterator[Finding]], ...] = (
    supported_users,
    unjudgeable,
    at_equal_load,
    limited_by,
    time_to_users,
    beginning,
    waves,
    events,
    reported_against_estimated,
    named_twice,
    validity,
    left_out,
    coverage,
    servers,
    counter_resets,
    traffic_mix,
    error_rates,
    labels_called,
    methods_with_handlers,
)
_ACROSS: tuple[Callable[[Sequence[TestResult], Labels], Iterator[Finding]], ...] = (
    unchanged,
    metrics,
    labels_in_several_tests,
    bumps_in_both,
    counted_errors,
    blind_spots,
    labels_in_one_build,
    notes,
)


def find(tests: Sequence[TestResult], labels: Labels) -> list[Finding]:
    """All findings about `tests`, the gravest first; `labels` are the names of the two builds."""
    found = [each for rule in _OF_ONE_TEST for test in tests for each in rule(test, labels)]
    found += [each for rule in _ACROSS for each in rule(tests, labels)]
    return gravest_first(found)


def gravest_first(findings: Sequence[Finding]) -> list[Finding]:
    """Critical findings, the supported users, then by severity; those of one rank keep their order."""
    return sorted(findings, key=_order)


def above_the_fold(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings that stand first, by severity alone, and the rest.

    Which ones these are is decided by their order: the supported users are among them, however much warns.
    """
    chosen = [each for each in findings if each.severity != Severity.INFO or each.kind not in _LAST][:TOP]
    first = sorted(chosen, key=lambda each: _SEVERITIES.index(each.severity))
    return first, [each for each in findings if each not in first]


def headlines(findings: Sequence[Finding]) -> list[Finding]:
    """What somebody has to know who reads nothing else: all that warns, and what everybody asks."""
    return [each for each in findings if each.severity != Severity.INFO or each.kind in _HEADLINES]


def _order(found: Finding) -> tuple[int, int]:
    grave = _SEVERITIES.index(found.severity)
    rank = 1 if found.kind in _FIRST and grave else 2 + grave if grave else 0
    if found.severity != Severity.INFO:
        return rank, int(found.kind in _HISTORY)
    place = next((i for i, kinds in enumerate(_INFOS) if found.kind in kinds), len(_INFOS))
    return rank, len(_INFOS) + 1 if found.kind in _LAST else place
