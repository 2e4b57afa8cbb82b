"""What does the ledger say about the comparison at hand? Its place, its drift, and its own entry."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison, Test
from buildcompare.history.ledger import BothCounts as LedgerCounts
from buildcompare.history.ledger import BothRuns as LedgerRuns
from buildcompare.history.ledger import BothUsers as LedgerUsers
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, LedgerTest, version_in
from buildcompare.history.look_back import look_back
from buildcompare.results import Drift, HistoryResult, Results, SetupDifference, TestResult
from buildcompare.results.codes import SIDES
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import Noise, RepeatedRuns, metric_noise

REPORT = "report"
"""The source of an entry that a report wrote."""
UNNAMED = "comparison"
"""What a comparison without a name is called here; it is never recorded."""


@dataclass(frozen=True)
class SupportedUsersNoise:
    """What is known of the supported users: run-to-run noise (None: nothing), and the smallest change that matters."""

    noise: Noise | None
    margin_percent: float

    @classmethod
    def of(cls, catalogue: Catalogue, groups: Sequence[RepeatedRuns] = ()) -> SupportedUsersNoise:
        """From a catalogue's load metric, and what repeated runs taught."""
        load = catalogue.load
        if load is None or load.margin_percent is None:
            return cls(None, 0.0)
        return cls(metric_noise(load, "unbounded", groups), load.margin_percent)


@dataclass(frozen=True)
class HeldAgainst:
    """A comparison beside the ledger."""

    history: HistoryResult
    drift: Sequence[Drift]
    setup_differences: Sequence[SetupDifference]


def hold_against(
    ledger: Ledger, params: Comparison, tests: Sequence[TestResult], noise: SupportedUsersNoise, *, simulated: bool
) -> HeldAgainst:
    """Hold a comparison against all that the ledger has from before it.

    Before it is what stands before its own entry, or the whole chain where it is not recorded yet.
    """
    entry = _entry(params, tests, position=1, simulated=simulated)
    own = ledger.find(entry)
    alike = [each for each in ledger.before(own) if each.simulated == simulated]
    reason = None
    if own is not None and own.kind == "study":
        reason = "it is recorded as a study, which stays out of the chain"
    elif noise.noise is None:
        reason = "how far two runs of one build lie apart is not known"
    elif not alike:
        reason = "no earlier comparison of its kind is recorded"
    about = {
        "ledger": params.history or "",
        "comparisons": len(alike),
        "studies": len(ledger.studies),
        "entries_sha256": _hash([*alike, *ledger.studies]),
        "before": alike[-1].name if alike and reason is None else None,
        "reason": reason,
        "margin_percent": noise.margin_percent,
    }
    if noise.noise is None or reason is not None:
        return HeldAgainst(HistoryResult.model_validate(about), [], [])
    found = look_back([*alike, _renamed(entry, alike)], noise.noise, ledger.studies)
    about |= {
        "run_sd_percent": 100.0 * math.expm1(noise.noise.sd),
        "noise_source": noise.noise.noise_source,
        "between": found.between,
        "repeats": found.repeats,
    }
    step = found.steps[-1]
    return HeldAgainst(HistoryResult.model_validate(about), step.drift, step.setup_differences)


def entry_of(params: Comparison, results: Results, ledger: Ledger, *, study: bool = False) -> Entry:
    """The ledger's entry for a report: its own place if it has one, else the next."""
    last = max((entry.position or 0 for entry in ledger.chain), default=0)
    return _entry(
        params,
        results.tests,
        position=None if study else last + 1,
        simulated=results.simulated,
    ).model_copy(update={"verdict": results.verdict})


def to_be(params: Comparison, *, study: bool) -> Entry:
    """The entry of a comparison that has no results yet: its name, builds and tests."""
    tests = [LedgerTest(name=each.name, type=each.type, db_engine=each.db_engine) for each in params.tests]
    return Entry(
        name=params.name or UNNAMED,
        kind="study" if study else "monthly",
        position=None if study else 1,
        base=LedgerBuild(label=params.base.label, version=version_in(params.base.label)),
        new=LedgerBuild(label=params.new.label, version=version_in(params.new.label)),
        tests=tests,
        source=REPORT,
    )


def place_in_words(ledger: Ledger, name: str) -> str:
    """Where the comparison `name` stands; with a word where one that stands before it has a later version."""
    chain = [entry.name for entry in ledger.chain]
    if name not in chain:
        return f"Recorded in {ledger.folder}: {name}, a study outside the chain."
    at = chain.index(name)
    words = f"Recorded in {ledger.folder}: {name}, {at + 1} of {len(chain)} in the chain."
    number = _number(ledger.chain[at])
    later = [entry.name for entry in ledger.chain[:at] if number and _number(entry) > number]
    if not later:
        return words
    return f"{words} It stands after {later[-1]}, of a later version: comparisons stand as they were first recorded."


def _number(entry: Entry) -> list[int]:
    return [int(part) for part in (entry.new.minor or "").split(".") if part]


def _entry(params: Comparison, tests: Sequence[TestResult], *, position: int | None, simulated: bool) -> Entry:
    coordinator = {
        "users_inc": float(params.coordinator.users_inc),
        "users_dec": float(params.coordinator.users_dec),
        "rest_s": params.coordinator.rest_s,
    }
    thresholds = {f"threshold_{name}": value for name, value in params.coordinator.thresholds.items()}
    return Entry(
        name=params.name or UNNAMED,
        kind="study" if position is None else "monthly",
        position=position,
        base=LedgerBuild(label=params.base.label, version=version_in(params.base.label)),
        new=LedgerBuild(label=params.new.label, version=version_in(params.new.label)),
        simulated=simulated,
        tests=[_test(test, asked) for test, asked in zip(tests, params.tests, strict=True)],
        setup=dict(params.setup),
        coordinator={**coordinator, **thresholds},
        servers=_servers(tests),
        source=REPORT,
    )


def _test(test: TestResult, asked: Test) -> LedgerTest:
    users = test.supported_users
    base, new = (_positive(users.base), _positive(users.new)) if users is not None else (None, None)
    counted = {side: [run.errors for run in asked.runs(side)] for side in SIDES}
    errors = {side: None if None in counts else mean_of_runs(counts) for side, counts in counted.items()}
    return LedgerTest(
        name=test.name,
        type=test.type,
        db_engine=test.db_engine,
        users=test.users,
        supported_users=LedgerUsers(base=base, new=new) if base or new else None,
        runs=LedgerRuns(base=len(test.runs.base), new=len(test.runs.new)),
        errors=None if errors["base"] is None and errors["new"] is None else LedgerCounts(**errors),
    )


def _hash(entries: Sequence[Entry]) -> str:
    text = json.dumps([entry.model_dump(mode="json") for entry in entries], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _positive(users: float | None) -> float | None:
    """No users at all are no level that anything could be compared with."""
    return users if users is not None and users > 0 else None


def _servers(tests: Sequence[TestResult]) -> list[str]:
    runs = [run for test in tests for run in (*test.runs.base, *test.runs.new)]
    return sorted({f"{run.server.kind} {run.server.version}".strip()[:200] for run in runs if run.server} - {""})


def _renamed(entry: Entry, chain: Sequence[Entry]) -> Entry:
    """`entry` at the chain's end, under a name that no earlier comparison bears."""
    names = {each.name for each in chain}
    name = entry.name
    while name in names:
        name = f"{name}.new"
    return entry.model_copy(update={"name": name, "position": (chain[-1].position or 0) + 1})
