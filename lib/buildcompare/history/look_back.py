"""How does a comparison stand beside those before it? Drift, databases and setup, for each comparison of a chain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from buildcompare.history import drift as analysis
from buildcompare.history.error_counts import ErrorChange, ErrorCounts, FindErrorChanges
from buildcompare.history.ledger import Entry, LedgerBuild, LedgerTest
from buildcompare.history.setup import setup_differences
from buildcompare.results import (
    BetweenComparisons,
    DatabaseOrder,
    Drift,
    RepeatedMeasurements,
    SetupDifference,
    Side,
)
from buildcompare.stats.noise import Noise

SIDES: tuple[Side, Side] = ("base", "new")
Key = tuple[str, str, str]
"""Type, database, and the test's name where a comparison has several of that kind."""


@dataclass(frozen=True)
class Step:
    """One comparison of the chain and what the past says about it.

    Attributes
    ----------
    within
        By test name: its new build against its base.
    errors
        By test name: errors that changed as in no other comparison of the chain.
    """

    entry: Entry
    before: Entry | None
    setup_differences: Sequence[SetupDifference]
    drift: Sequence[Drift]
    within: Mapping[str, analysis.Change]
    errors: Mapping[str, ErrorChange]


@dataclass(frozen=True)
class LookBack:
    """A whole chain, looked at."""

    steps: Sequence[Step]
    between: Sequence[BetweenComparisons]
    repeats: RepeatedMeasurements | None


def look_back(chain: Sequence[Entry], noise: Noise, studies: Sequence[Entry] = ()) -> LookBack:
    """Look at each comparison of `chain`; what is usual is learned from all of it.

    Parameters
    ----------
    noise
        Of the supported users of one run.
    studies
        Only for their repeated measurements.
    """
    measure = analysis.MeasureChange(noise)
    rows: dict[str, list[Drift]] = {entry.name: [] for entry in chain}
    differences = {(before.name, now.name): setup_differences(before, now) for before, now in pairwise(chain)}
    by_name = {entry.name: entry for entry in chain}
    between = []
    for key in dict.fromkeys(key for entry in chain for key in _tests(entry)):
        having = [entry for entry in chain if key in _tests(entry)]
        drift = analysis.MeasureDrift(measure)([_levels(entry, _tests(entry)[key]) for entry in having])
        if drift.links:
            sd = None if drift.between_sd is None else _percent(drift.between_sd)
            between.append(
                BetweenComparisons.model_validate(
                    {"type": key[0], "db_engine": key[1] or None, "sd_percent": sd, "links": drift.same_version_links}
                )
            )
        for link in drift.links:
            before, now = by_name[link.before], by_name[link.comparison]
            pair = (before.name, now.name)
            if pair not in differences:
                differences[pair] = setup_differences(before, now)
            changed = [each.setting for each in differences[pair] if each.kind == "changed"]
            rows[now.name] += _drift_rows(link, now, before, _tests(now)[key], changed)
    _add_databases(chain, rows, measure)
    errors = _errors(chain)
    steps = []
    for i, entry in enumerate(chain):
        previous = chain[i - 1] if i else None
        found = differences[previous.name, entry.name] if previous else []
        steps.append(Step(entry, previous, found, rows[entry.name], _within(entry, measure), errors[entry.name]))
    return LookBack(steps, between, repeated_measurements([*chain, *studies]))


def changes_within(entry: Entry, noise: Noise) -> Mapping[str, analysis.Change]:
    """By test name, an entry's new build against its base: what can be said of a study too."""
    return _within(entry, analysis.MeasureChange(noise))


def repeated_measurements(entries: Sequence[Entry]) -> RepeatedMeasurements | None:
    """Run-to-run deviation from builds of exactly one version that were measured repeatedly on one recorded setup."""
    groups: dict[object, list[float]] = {}
    for entry in entries:
        for key, test in _tests(entry).items():
            for side in SIDES:
                version, users = _build(entry, side).version, _users(test, side)
                setup = (tuple(sorted(entry.setup.items())), tuple(sorted(entry.coordinator.items())))
                if version is not None and users is not None and getattr(test.runs, side) == 1 and entry.setup:
                    groups.setdefault((key, version, setup), []).append(users)
    found = analysis.MeasureRepeats()(list(groups.values()))
    if found is None:
        return None
    return RepeatedMeasurements(
        sd_percent=_percent(found.sd), ci_low=_percent(found.low), ci_high=_percent(found.high), df=found.df
    )


def _drift_rows(link: analysis.Link, now: Entry, before: Entry, test: LedgerTest, changed: list[str]) -> list[Drift]:
    made = []
    pairs: tuple[tuple[str, Side, analysis.Change | None], ...] = (
        ("same_version", "base", link.level),
        ("previous_new", "new", link.new),
    )
    for kind, side, change in pairs:
        if change is None:
            continue
        is_level = kind == "same_version"
        about = {
            "kind": kind,
            "comparison": now.name,
            "against": before.name,
            "side": side,
            "label": _build(now, side).title,
            "against_label": before.new.title,
            "same_version": link.same_version
            if is_level
            else now.new.minor is not None and now.new.minor == before.new.minor,
            "z": link.z if is_level else None,
            "jump": link.jump and is_level,
            "setup_changed": changed,
        }
        made.append(_row(test, change, about))
    return made


def _row(test: LedgerTest, change: analysis.Change, about: Mapping[str, object]) -> Drift:
    return Drift.model_validate(
        {
            "test": test.name,
            "type": test.type,
            "db_engine": test.db_engine,
            "before": change.against,
            "value": change.value,
            "delta_percent": change.percent,
            "ci_low": change.low,
            "ci_high": change.high,
            "p_value": change.p_value,
            "noise_source": change.noise_source,
            **about,
        }
    )


def _add_databases(chain: Sequence[Entry], rows: dict[str, list[Drift]], measure: analysis.MeasureChange) -> None:
    """Each pair of databases within each build: the later in the alphabet against the earlier."""
    orders: dict[tuple[str, str, str], list[DatabaseOrder]] = {}
    last: dict[tuple[str, str, str, str], float] = {}
    for entry in chain:
        for pair, tests in _database_pairs(entry):
            past = orders.setdefault(pair, [])
            percents: dict[str, float] = {}
            for side in SIDES:
                runs = (getattr(tests[0].runs, side), getattr(tests[1].runs, side))
                change = measure(_users(tests[0], side), _users(tests[1], side), runs)
                if change is None:
                    continue
                percents[side] = change.percent
                previous = last.get((*pair, "new"))
                flipped = previous is not None and previous * change.percent < 0
                label = _build(entry, side).title
                about = {
                    "kind": "between_databases",
                    "comparison": entry.name,
                    "against": tests[0].db_engine,
                    "side": side,
                    "label": label,
                    "against_label": label,
                    "same_version": True,
                    "flipped": flipped,
                    "earlier": [seen for each in past if flipped and (seen := _like(each, change.percent))],
                }
                rows[entry.name].append(_row(tests[1], change, about))
            past.append(DatabaseOrder(comparison=entry.name, **percents))
            last.update({(*pair, side): percent for side, percent in percents.items()})


def _like(order: DatabaseOrder, percent: float) -> DatabaseOrder | None:
    """Only the sides of an earlier comparison on which the databases stood in this order."""
    sides = {side: value for side in SIDES if (value := getattr(order, side)) is not None and value * percent > 0}
    return DatabaseOrder(comparison=order.comparison, **sides) if sides else None


def _database_pairs(entry: Entry) -> list[tuple[tuple[str, str, str], tuple[LedgerTest, LedgerTest]]]:
    kinds = Counter(test.type for test in entry.tests if test.db_engine)
    found: list[tuple[tuple[str, str, str], tuple[LedgerTest, LedgerTest]]] = []
    for kind in kinds:
        alike = sorted(
            (test for key, test in _tests(entry).items() if key[0] == kind and key[1] and not key[2]),
            key=lambda test: (test.db_engine or "").casefold(),
        )
        for one, other in combinations(alike, 2):
            key = (kind, str(one.db_engine).casefold(), str(other.db_engine).casefold())
            found.append((key, (one, other)))
    return found


def _within(entry: Entry, measure: analysis.MeasureChange) -> dict[str, analysis.Change]:
    changes = {
        test.name: measure(_users(test, "base"), _users(test, "new"), (test.runs.base, test.runs.new))
        for test in entry.tests
    }
    return {name: change for name, change in changes.items() if change is not None}


def _errors(chain: Sequence[Entry]) -> dict[str, dict[str, ErrorChange]]:
    """By comparison and test; in unbounded tests relative to the users that each build supports."""
    found: dict[str, dict[str, ErrorChange]] = {entry.name: {} for entry in chain}
    for key in dict.fromkeys(key for entry in chain for key in _tests(entry)):
        tests = {entry.name: _tests(entry)[key] for entry in chain if key in _tests(entry)}
        counts = [made for name, test in tests.items() if (made := _error_counts(name, test)) is not None]
        for each in FindErrorChanges()(counts):
            name = each.counts.comparison
            found[name][tests[name].name] = each
    return found


def _error_counts(comparison: str, test: LedgerTest) -> ErrorCounts | None:
    errors = test.errors
    if errors is None or errors.base is None or errors.new is None:
        return None
    if test.type == "bounded":
        return ErrorCounts(comparison, errors.base, errors.new)
    base, new = _users(test, "base"), _users(test, "new")
    return None if base is None or new is None else ErrorCounts(comparison, errors.base, errors.new, base, new)


def _tests(entry: Entry) -> dict[Key, LedgerTest]:
    count = Counter(test.key for test in entry.tests)
    return {(*test.key, test.name if count[test.key] > 1 else ""): test for test in entry.tests}


def _levels(entry: Entry, test: LedgerTest) -> analysis.Levels:
    return analysis.Levels(
        entry.name,
        entry.base.minor,
        entry.new.minor,
        _users(test, "base"),
        _users(test, "new"),
        test.runs.base,
        test.runs.new,
    )


def _users(test: LedgerTest, side: Side) -> float | None:
    users: float | None = None if test.supported_users is None else getattr(test.supported_users, side)
    return users


def _build(entry: Entry, side: Side) -> LedgerBuild:
    return entry.base if side == "base" else entry.new


def _percent(log_sd: float) -> float:
    return 100.0 * math.expm1(log_sd)
