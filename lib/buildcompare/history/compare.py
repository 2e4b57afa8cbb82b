"""Compare the current results with the ledger, and make their entry for it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison, Test
from buildcompare.history.chain import analyse_chain
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, LedgerTest
from buildcompare.results import TestResult
from buildcompare.results.codes import NoHistory, Pair
from buildcompare.results.history import Drift, HistoryResult, SetupDifference
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import Noise, RepeatedRuns, metric_noise

UsersNoise = tuple[Noise | None, float]
"""Of the supported users: run-to-run noise (None: unknown), and the smallest change that matters, in percent."""
Past = tuple[HistoryResult, list[Drift], list[SetupDifference]]  # what the ledger says about a comparison


def supported_users_noise(catalogue: Catalogue, groups: Sequence[RepeatedRuns] = ()) -> UsersNoise:
    """From a catalogue's load metric, and what repeated runs taught."""
    load = catalogue.load
    if load is None or load.margin_percent is None:
        return None, 0.0
    return metric_noise(load, "unbounded", groups), load.margin_percent


def compare_to_ledger(
    ledger: Ledger, params: Comparison, tests: Sequence[TestResult], known: UsersNoise, *, simulated: bool
) -> Past:
    """Compare the results of `params` with the chain before its own entry, or the whole where it has none yet."""
    noise, margin_percent = known
    entry = entry_of(params, tests, position=1, simulated=simulated)
    own = ledger.find(entry)
    before = own.position or 0 if own else math.inf
    alike = [each for each in ledger.chain if (each.position or 0) < before and each.simulated == simulated]
    reason = None
    if own is not None and own.kind == "study":
        reason = NoHistory.STUDY
    elif noise is None:
        reason = NoHistory.NO_NOISE
    elif not alike:
        reason = NoHistory.NO_EARLIER
    read = [each.model_dump(mode="json") for each in (*alike, *ledger.studies)]
    history = HistoryResult(
        ledger=params.history or "",
        comparisons=len(alike),
        studies=len(ledger.studies),
        entries_sha256=hashlib.sha256(json.dumps(read, sort_keys=True, ensure_ascii=False).encode()).hexdigest(),
        before=alike[-1].name if reason is None else None,
        reason=reason,
        margin_percent=margin_percent,
    )
    if noise is None or reason is not None:
        return history, [], []
    name = entry.name
    while name in {each.name for each in alike}:  # an earlier comparison may bear it
        name += ".new"
    found = analyse_chain([*alike, entry.model_copy(update={"name": name})], noise, ledger.studies)
    taught = {"run_sd_percent": 100.0 * math.expm1(noise.sd), "noise_source": noise.noise_source}
    history = history.model_copy(update={**taught, "between": found.between, "repeats": found.repeats})
    own_step = found.steps[name]
    return history, list(own_step.drift), list(own_step.setup_differences)


def entry_of(params: Comparison, tests: Sequence[TestResult] = (), *, position: int | None, **known: Any) -> Entry:
    """The ledger's entry of a comparison, at `position` in the chain (None: a study).

    Without the results of its `tests` it says which builds and tests are to be compared. `known` are further fields.
    """
    steps = params.coordinator
    coordinator = {"users_inc": float(steps.users_inc), "users_dec": float(steps.users_dec), "rest_s": steps.rest_s}
    runs = [run for test in tests for run in (*test.runs.base, *test.runs.new)]
    servers = {f"{run.server.kind} {run.server.version}".strip()[:200] for run in runs if run.server}
    results: Sequence[TestResult | None] = tests or [None] * len(params.tests)
    return Entry(
        name=params.name or "comparison",  # without a name it is never recorded
        kind="study" if position is None else "monthly",
        position=position,
        base=LedgerBuild.of(params.base.label),
        new=LedgerBuild.of(params.new.label),
        tests=[_test(asked, result) for asked, result in zip(params.tests, results, strict=True)],
        setup=dict(params.setup),
        coordinator={**coordinator, **{f"threshold_{name}": value for name, value in steps.thresholds.items()}},
        servers=sorted(servers - {""}),
        source="report",
        **known,
    )


def place_in_words(ledger: Ledger, name: str) -> str:
    """Where the comparison `name` stands; with a word where one that stands before it has a later version."""
    chain = [entry.name for entry in ledger.chain]
    if name not in chain:
        return f"Recorded in {ledger.folder}: {name}, a study outside the chain."
    at = chain.index(name)
    words = f"Recorded in {ledger.folder}: {name}, {at + 1} of {len(chain)} in the chain."
    numbers = [[int(part) for part in (entry.new.minor or "").split(".") if part] for entry in ledger.chain]
    later = [chain[i] for i in range(at) if numbers[at] and numbers[i] > numbers[at]]
    if not later:
        return words
    return f"{words} It stands after {later[-1]}, of a later version: comparisons stand as they were first recorded."


def _test(asked: Test, result: TestResult | None) -> LedgerTest:
    known: dict[str, Any] = {"name": asked.name, "type": asked.type, "db_engine": asked.db_engine}
    if result is not None:
        levels = result.supported_users
        users = [level if level and level > 0 else None for level in (levels.base, levels.new)] if levels else []
        counts = Pair.of(lambda side: [run.errors for run in asked.runs(side)])
        errors = counts.map(lambda each: None if None in each else mean_of_runs(each))
        known["users"] = result.users
        known["supported_users"] = Pair(*users) if any(users) else None
        known["runs"] = Pair(len(result.runs.base), len(result.runs.new))
        known["errors"] = None if errors == Pair(None, None) else errors
    return LedgerTest.model_validate(known)
