"""The entry of a comparison: what the ledger keeps of its params and its results, and where it stands."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from buildcompare.config.errors import named
from buildcompare.config.params import Comparison, Test
from buildcompare.history.ledger import Entry, Ledger, LedgerAtLoad, LedgerBuild, LedgerTest
from buildcompare.results import TestResult
from buildcompare.results.codes import Pair, ValidityStatus
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import series_key
from buildcompare.text.sentences import say


def entry_of(params: Comparison, tests: Sequence[TestResult] = (), *, position: int | None, **known: Any) -> Entry:
    """The ledger's entry of a comparison, at `position` in the chain (None: a study).

    Without the results of its `tests` it says which builds and tests are to be compared. `known` are further fields.
    """
    steps = params.coordinator
    runs = [run for test in tests for run in (*test.runs.base, *test.runs.new)]
    servers = {f"{run.server.kind} {run.server.version}".strip()[:200] for run in runs if run.server}
    return Entry(
        name=params.name or "comparison",  # without a name it is never recorded
        kind="study" if position is None else "monthly",
        position=position,
        base=LedgerBuild.of(params.base.label),
        new=LedgerBuild.of(params.new.label),
        tests=[_test(asked, result) for asked, result in itertools.zip_longest(params.tests, tests)],
        setup=dict(params.setup),
        coordinator=steps.model_dump(exclude={"thresholds"})
        | {f"threshold_{k}": v for k, v in steps.thresholds.items()},
        servers=sorted(servers - {""}),
        source="report",
        **known,
    )


def _test(asked: Test, result: TestResult | None) -> LedgerTest:
    if result is None:
        return LedgerTest.model_validate(asked.model_dump(include={"name", "type", "db_engine"}))
    counts = Pair.of(lambda side: [run.errors for run in asked.runs(side)])
    errors = counts.map(lambda each: None if None in each else mean_of_runs(each))
    return ledger_test(result, errors=None if errors == Pair(None, None) else errors)


def ledger_test(result: TestResult, **known: Any) -> LedgerTest:
    """What a ledger keeps of the results of a test; `known` are further fields."""
    users = Pair.of(lambda side: getattr(result.supported_users, side, None) or None)
    known |= {name: getattr(result, name) for name in ("name", "type", "db_engine", "users")}
    known |= {"runs": Pair(len(result.runs.base), len(result.runs.new))}
    known |= {"supported_users": users if any(users) else None}
    known |= _levels(result) if result.validity.status != ValidityStatus.INVALID else {}
    return LedgerTest.model_validate(known)


def _levels(result: TestResult) -> dict[str, Any]:
    """What the noise between runs is learned from in later comparisons."""
    runs = result.runs
    levels = {series_key(row.slug, row.labels): row.levels for row in result.metrics}
    levels = {key: each for key, each in levels.items() if min((*each.base, *each.new), default=0.0) > 0}
    rows = {row.slug: row.load_adjusted for row in result.metrics if row.load_adjusted}
    return {
        "levels_of_runs": levels,
        "within_se_log": {series_key(r.slug, r.labels): r.within_se_log for r in result.metrics if r.within_se_log},
        "misread": sorted({row.slug for row in result.metrics if row.reading_error_percent}),
        "at_load": {slug: row.model_dump(include={*LedgerAtLoad.model_fields}) for slug, row in rows.items()},
        "windows_s": runs.map(lambda side: [run.window[1] - run.window[0] for run in side if run.window]),
        "samples": [run.samples_sha256 for side in runs for run in side if run.samples_sha256],
    }


def place_in_words(ledger: Ledger, name: str) -> str:
    """Where the comparison `name` stands; with a word where one that stands before it has a later version."""
    chain = sorted((each for each in ledger.book.names.values() if each.position), key=lambda each: each.position or 0)
    numbers = {each.name: _version(each.new[1]) for each in chain}
    before = list(itertools.takewhile(lambda each: each != name, numbers)) if name in numbers else None
    later = [each for each in before or () if numbers[name] and numbers[each] > numbers[name]]
    return say("history", "recorded", named(ledger.folder), name, before, len(numbers), later)


def _version(version: str | None) -> list[int]:
    """Major and minor number."""
    return [int(part) for part in (version or "").partition("-")[0].split(".")[:2] if part]
