"""Make the ledger's entry of a comparison from its params and results."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from buildcompare.config.errors import named
from buildcompare.config.params import Comparison, Test
from buildcompare.history.ledger import Counts, Entry, Ledger, LedgerAtLoad, LedgerBuild, LedgerTest
from buildcompare.results import TestResult
from buildcompare.results.codes import Pair, ValidityStatus, Verdict
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import series_key
from buildcompare.text.sentences import say


def entry_of(
    params: Comparison,
    tests: Sequence[TestResult] = (),
    *,
    position: int | None,
    simulated: bool = False,
    verdict: Verdict | None = None,
) -> Entry:
    """The ledger's entry of a comparison at `position` in the chain (None: a study).

    Without the results of its `tests` it names the builds and tests to be compared.
    """
    steps = params.coordinator
    runs = [run for test in tests for run in (*test.runs.base, *test.runs.new)]
    servers = {f"{run.server.kind} {run.server.version}".strip()[:200] for run in runs if run.server}
    return Entry(
        name=params.name or "comparison",  # an unnamed one is never recorded
        kind="study" if position is None else "monthly",
        position=position,
        base=LedgerBuild.of(params.base.label),
        new=LedgerBuild.of(params.new.label),
        verdict=verdict,
        simulated=simulated,
        tests=[_test(test, result) for test, result in itertools.zip_longest(params.tests, tests)],
        setup=dict(params.setup),
        coordinator=steps.model_dump(exclude={"thresholds"})
        | {f"threshold_{name}": value for name, value in steps.thresholds.items()},
        servers=sorted(servers - {""}),
        source="report",
    )


def _test(test: Test, result: TestResult | None) -> LedgerTest:
    if result is None:
        return LedgerTest(name=test.name, type=test.type, db_engine=test.db_engine)
    counts = Pair.of(lambda side: [run.errors for run in test.runs(side)])
    errors = counts.map(lambda each: None if None in each else mean_of_runs(each))
    return ledger_test(result, errors=None if errors == Pair(None, None) else errors)


def ledger_test(result: TestResult, errors: Counts | None = None) -> LedgerTest:
    """What a ledger keeps of the results of a test; metrics only of a valid one."""
    users = Pair.of(lambda side: getattr(result.supported_users, side, None) or None)
    runs, rows = result.runs, result.metrics if result.validity.status != ValidityStatus.INVALID else []
    levels = {series_key(row.slug, row.labels): row.levels for row in rows}
    at_load = {row.slug: row.load_adjusted for row in rows if row.load_adjusted}
    windows = runs.map(lambda side: [run.window[1] - run.window[0] for run in side if rows and run.window])
    samples = [run.samples_sha256 for side in runs for run in side if rows and run.samples_sha256]
    kept: Mapping[str, object] = {
        "name": result.name,
        "type": result.type,
        "db_engine": result.db_engine,
        "users": result.users,
        "supported_users": users if any(users) else None,
        "runs": runs.map(len),
        "errors": errors,
        "levels_of_runs": {key: each for key, each in levels.items() if min((*each.base, *each.new), default=0.0) > 0},
        "within_se_log": {series_key(row.slug, row.labels): row.within_se_log for row in rows if row.within_se_log},
        "at_load": {slug: row.model_dump(include={*LedgerAtLoad.model_fields}) for slug, row in at_load.items()},
        "misread": sorted({row.slug for row in rows if row.reading_error_percent}),
        "windows_s": windows,
        "samples": samples,
    }
    return LedgerTest.model_validate(kept)


def place_in_words(ledger: Ledger, name: str) -> str:
    """Where the comparison `name` stands, and whether an earlier one has a later version."""
    numbers = {entry.name: _version(entry.new.minor) for entry in ledger.chain}
    before = list(itertools.takewhile(lambda each: each != name, numbers)) if name in numbers else None
    later = [each for each in before or () if numbers[name] and numbers[each] > numbers[name]]
    return say("history", "recorded", named(ledger.folder), name, before, len(numbers), later)


def _version(minor: str | None) -> list[int]:
    return [int(part) for part in (minor or "").split(".") if part]
