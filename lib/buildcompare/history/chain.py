"""Analyse a chain of comparisons: drift, databases, setup and error counts.

The base of a comparison is usually the version that the previous comparison measured as its new build. A difference
between these two measurements of one version is drift. Its cause is run-to-run noise or a change of the setup.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import gammaincinv

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison
from buildcompare.history.ledger import ChainEntry, ChainTest, Entry, Ledger, LedgerTest, entry_of
from buildcompare.history.setup import changed_settings, setup_differences
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import TestResult
from buildcompare.results.codes import SIDES, DriftKind, NoHistory, Pair, Side
from buildcompare.results.history import (
    BetweenComparisons,
    BumpsChanged,
    DatabaseOrder,
    Drift,
    HistoryResult,
    RepeatedMeasurements,
    SetupDifference,
)
from buildcompare.stats.changepoints import robust_sd
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import Noise, RepeatedRuns, metric_noise
from buildcompare.stats.planning import percent

OUTLIER = 3.5
"""Minimum modified z-score of an outlier (Iglewicz & Hoaglin 1993, "How to detect and handle outliers", ASQC)."""
LEAST_COUNT = 5  # minimum number of comparisons for a median
LEAST_ERROR_FACTOR = 1.5  # minimum factor of a reported change of error counts
MOST_EARLIER = 20  # maximum number of listed earlier comparisons with the same order of databases
UsersNoise = tuple[Noise | None, float]
"""Run-to-run noise of supported users (None: unknown), and their smallest change that matters, in percent."""
Past = tuple[HistoryResult, list[Drift], list[SetupDifference]]
"""Results of a comparison against its ledger: history, drifts, setup differences."""


class ErrorChange(NamedTuple):
    """An unusually large change of the error count of one test."""

    test: LedgerTest
    delta_percent: float  # change of the error count; in unbounded tests, relative to the change of the supported users
    usual_percent: float  # robust SD of this test's changes over all comparisons that have a position in the ledger
    comparisons: int  # number of comparisons with error counts of this test


@dataclass(frozen=True)
class Step:
    """One comparison in a ledger, and its differences from earlier ones; `before` names the previous comparison.

    `changes` lists tests with supported users of at least one build, and the change from base to new (None if unknown).
    """

    entry: Entry
    before: str | None = None
    setup_differences: Sequence[SetupDifference] = ()
    drift: Sequence[Drift] = ()
    changes: Sequence[tuple[LedgerTest, Effect | None]] = ()
    errors: Sequence[ErrorChange] = ()
    bumps: Sequence[BumpsChanged] = ()

    @property
    def same_version(self) -> list[Drift]:
        """Differences in supported users between two measurements of the same version."""
        return [row for row in self.drift if row.kind == DriftKind.SAME_VERSION and row.same_version]

    @property
    def setup_changed(self) -> list[str]:
        """Settings that changed since the previous comparison."""
        return changed_settings(self.setup_differences)


FIGURES = ["users_base", "users_new", "errors_base", "errors_new"]


@dataclass(frozen=True, eq=False)
class Chain:
    """Comparisons of a ledger: first the chain of successive comparisons, then studies (separate comparisons).

    `noise` is the run-to-run noise of the supported users; without it nothing is compared.
    """

    entries: Sequence[ChainEntry]
    noise: Noise | None

    @functools.cached_property
    def length(self) -> int:
        """Number of comparisons in the chain."""
        return sum(entry.position is not None for entry in self.entries)

    @functools.cached_property
    def pairs(self) -> list[tuple[ChainEntry, ChainTest]]:
        """Each test with its comparison, in the order of the rows of `tests`."""
        return [(entry, test) for entry in self.entries for test in entry.tests]

    @functools.cached_property
    def tests(self) -> pd.DataFrame:
        """One row for each test.

        `place` is the index of the comparison. Supported users and errors are NaN if unknown or zero. Tests of one type
        and database have the same `key`; names must agree too if the database is unknown or a comparison has several.
        """
        rows = [
            (place, *test.key, test.name, *minors, *test.levels, *(test.errors or (None, None)))
            for place, entry in enumerate(self.entries)
            for minors in [[build.minor for build in entry.builds]]
            for test in entry.tests
        ]
        columns = ["place", "type", "db_engine", "test", "minor_base", "minor_new", *FIGURES]
        tests = pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(FIGURES, np.float64))
        tests[FIGURES] = tests[FIGURES].where(tests[FIGURES] > 0)
        several = tests.duplicated(["place", "type", "db_engine"], keep=False)
        name = tests["test"].where(several | tests["db_engine"].eq(""), "")
        return tests.assign(key=tests.assign(name=name).groupby(["type", "db_engine", "name"], sort=False).ngroup())

    @functools.cached_property
    def _log_users(self) -> FloatArray:
        """Logarithm of the supported users, shape (comparisons, keys of tests, builds); NaN if unknown."""
        logs = np.full((len(self.entries), int(self.tests["key"].max()) + 1, 2), np.nan)
        logs[self.tests["place"], self.tests["key"]] = np.log(self.tests[FIGURES[:2]])
        return logs

    @functools.cached_property
    def _earlier(self) -> npt.NDArray[np.int64]:
        """For each row of `tests`, the row of the earlier test to compare with; -1 if there is none.

        Both tests have the same `key`. The earlier test is the last whose new build has the version of this row's base.
        If there is no such test, it is the last test with known supported users.
        """
        earlier = np.full(len(self.tests), -1)
        same_version: dict[tuple[int, str], int] = {}
        last: dict[int, int] = {}
        columns = ["minor_base", "minor_new", "users_base", "users_new", "key"]
        chain = self.tests.loc[self.tests["place"] < self.length, columns].dropna(how="all", subset=columns[2:4])
        for row, base, new, _, users, key in chain.itertuples(name=None):
            earlier[row] = same_version.get((key, base), last.get(key, -1))
            last[key] = row
            if isinstance(new, str) and users > 0:
                same_version[key, new] = row
        return earlier

    @functools.cached_property
    def usual(self) -> dict[int, tuple[int, float]]:
        """Number and standard deviation of the drifts of comparable tests, by their `key` in `tests`.

        A drift is the log ratio of supported users between two tests of one version. The standard deviation is 1.4826
        times the median absolute drift, but at least that of a difference of two runs. With fewer than `LEAST_COUNT`
        drifts, it is NaN. A drift is a jump if its modified z-score (drift / deviation) exceeds 3.5. Of
        simulated chains (5 or 33 drifts, scatter 8 %), 4 to 6 % have a false jump (tests/history/test_drift.py).
        """
        assert self.noise is not None
        rows = np.flatnonzero(self._earlier >= 0)
        now, before = self.tests.iloc[rows], self.tests.iloc[self._earlier[rows]].set_axis(rows)
        same = now["minor_base"].eq(before["minor_new"]) & now["minor_base"].notna()
        ratios = (now["users_base"] / before["users_new"]).where(same).map(math.log).abs().groupby(now["key"])
        links = ratios.count()
        sd = ratios.apply(lambda each: robust_sd(each.dropna())).clip(lower=math.sqrt(2.0) * self.noise.sd)
        usual = sd.where(links >= LEAST_COUNT)
        return dict(zip(links.index.tolist(), zip(links.tolist(), usual.tolist(), strict=True), strict=True))

    @functools.cached_property
    def between(self) -> list[BetweenComparisons]:
        """Rows of results.json: number and standard deviation of drifts (see `usual`) per group of comparable tests."""
        first = self.tests.groupby("key")[["type", "db_engine"]].first()
        return [
            BetweenComparisons(
                type=first.loc[key, "type"],
                db_engine=first.loc[key, "db_engine"] or None,
                links=links,
                sd_percent=None if math.isnan(sd) else percent(sd),
            )
            for key, (links, sd) in self.usual.items()
        ]

    @property
    def repeats(self) -> RepeatedMeasurements | None:
        """Run-to-run deviation, from builds that were measured more than once on the same recorded setup."""
        builds = defaultdict[tuple[object, ...], list[float]](list)
        setups = defaultdict[object, int](itertools.count().__next__)  # setup -> its number, which is a faster key
        keys = iter(self.tests["key"].tolist())
        for entry in self.entries:
            setup = setups[frozenset(entry.setup.items()), frozenset(entry.coordinator.items())]
            versions = [build.version for build in entry.builds]
            for test, key in zip(entry.tests, keys, strict=False):
                for version, level, runs in zip(versions, test.supported_users or (), test.runs, strict=False):
                    if entry.setup and version and level and runs == 1:
                        builds[key, setup, version].append(level)
        return measure_repeats(builds.values())

    @functools.cached_property
    def errors(self) -> FloatArray:
        """One row per test: log ratio of errors and its Poisson variance; robust SD and number of ratios per `key`."""
        tests = self.tests
        load = (tests["users_new"] / tests["users_base"]).where(tests["type"] == "unbounded", 1.0)
        logs = np.log(tests["errors_new"] / tests["errors_base"] / load).where(tests["place"] < self.length)
        sizes = logs.abs().groupby(tests["key"])
        usual = sizes.apply(lambda each: robust_sd(each.dropna())).to_numpy()[tests["key"]]
        chance = 1.0 / tests["errors_base"] + 1.0 / tests["errors_new"]
        return np.stack([logs, chance, usual, sizes.transform("count")], axis=1)

    def step(self, place: int, entry: Entry) -> Step:
        """Analyse one comparison (`entry`, at index `place`) against the comparisons before it."""
        tests = [test for test in entry.tests if any(test.levels)]
        changes = [(test, measure_change(test.levels, self.noise, test.runs)) for test in tests]
        if self.noise is None or place >= self.length:
            return Step(entry, changes=changes)
        before = self.entries[place - 1] if place else None
        differences = setup_differences(before, entry) if before else ()
        drift, errors = [*self._drift(place), *self._databases(place)], self._error_changes(place, entry)
        bumps = [*self._bumps(place)]
        return Step(entry, before.name if before else None, differences, drift, changes, errors, bumps)

    def _rows(self, place: int) -> range:
        return range(*self.tests["place"].searchsorted([place, place + 1]))

    def _row(self, kind: DriftKind, rows: Pair[int], sides: Pair[Side], against: str) -> Drift | None:
        """Compare the supported users of two rows of `tests`, the second with the first; None if a level is unknown."""
        (old_entry, old), (entry, test) = (self.pairs[row] for row in rows)
        before, value = old.levels[sides.base], test.levels[sides.new]
        change = measure_change(Pair(before, value), self.noise, Pair(old.runs[sides.base], test.runs[sides.new]))
        if change is None:
            return None
        low, high = change.interval()
        earlier, build = old_entry.builds[sides.base], entry.builds[sides.new]
        return Drift(
            kind=kind,
            comparison=entry.name,
            against=against,
            test=test.name,
            type=test.type,
            db_engine=test.db_engine,
            side=sides.new,
            label=build.title,
            against_label=earlier.title,
            before=before,
            value=value,
            delta_percent=change.delta_percent,
            ci_low=low,
            ci_high=high,
            p_value=change.p_value,
            noise_source=change.noise_source,
            same_version=bool(build.minor) and build.minor == earlier.minor,
        )

    def _drift(self, place: int) -> Iterator[Drift]:
        """Compare both builds of each test with the new build of the linked earlier test (see `_earlier`)."""
        for key, row in sorted((int(self.tests["key"][row]), row) for row in self._rows(place)):
            before = int(self._earlier[row])
            if before < 0:
                continue
            earlier, _ = self.pairs[before]
            changed = changed_settings(setup_differences(earlier, self.entries[place]))
            _, sd = self.usual[key]
            for kind, side in zip((DriftKind.SAME_VERSION, DriftKind.PREVIOUS_NEW), SIDES, strict=True):
                drift = self._row(kind, Pair(before, row), Pair("new", side), earlier.name)
                if drift is not None:
                    more: dict[str, object] = {"setup_changed": changed}
                    if kind == DriftKind.SAME_VERSION and drift.same_version and sd > 0:
                        z = math.log((drift.value or 1.0) / (drift.before or 1.0)) / sd
                        more |= {"z": z, "jump": abs(z) > OUTLIER}
                    yield drift.model_copy(update=more)

    def _bumps(self, place: int) -> Iterator[BumpsChanged]:
        """Yield tests in which early bumps (rises before the ramp) newly appeared in, or vanished from, both builds."""
        for row in self._rows(place):
            earlier, old = self.pairs[max(int(self._earlier[row]), 0)]
            here, there = self.pairs[row][1].early_bumps, old.early_bumps
            if self._earlier[row] < 0 or here is None or there is None:
                continue
            if min(max(there), max(here)) == 0 < max(min(there), min(here)):
                changed = changed_settings(setup_differences(earlier, self.entries[place]))
                test = self.pairs[row][1].name
                yield BumpsChanged(test=test, against=earlier.name, before=there, now=here, setup_changed=changed)

    def _databases(self, place: int) -> Iterator[Drift]:
        """Compare supported users between databases, pairwise and per build; the alphabetically first is the reference.

        A drift is `flipped` if the order of databases is opposite to the last known order of earlier new builds.
        If a comparison has several tests of the same type and database, these tests are left out.
        """
        tests = {row: self.pairs[row][1] for row in self._rows(place)}
        several = Counter(test.key for test in tests.values())
        alone = sorted((*test.key, row) for row, test in tests.items() if test.db_engine and several[test.key] == 1)
        for (kind, _, first), (other, _, second) in itertools.combinations(alone, 2):
            if kind != other:
                continue
            logs = np.subtract(*(self._log_users[:place, self.tests["key"][row]] for row in (second, first)))
            new = logs[~np.isnan(logs[:, 1]), 1]
            for side in SIDES:
                against = str(tests[first].db_engine)
                drift = self._row(DriftKind.BETWEEN_DATABASES, Pair(first, second), Pair(side, side), against)
                if drift is not None:
                    order = np.sign((drift.value or 0.0) - (drift.before or 0.0))
                    more: dict[str, object] = {"same_version": True}
                    if new.size and new[-1] * order < 0:
                        more |= self._earlier_orders(np.where(np.sign(logs) == order, logs, np.nan))
                    yield drift.model_copy(update=more)

    def _earlier_orders(self, logs: FloatArray) -> dict[str, object]:
        """Return fields of a flipped drift; `logs` is NaN for earlier comparisons without the present order."""
        places, earlier = np.flatnonzero(~np.isnan(logs).all(axis=1)), []
        for place in places[-MOST_EARLIER:]:
            percents = {side: percent(log) for side, log in zip(SIDES, logs[place], strict=True) if not math.isnan(log)}
            earlier.append(DatabaseOrder(comparison=self.entries[place].name, **percents))
        return {"flipped": True, "earlier": earlier, "earlier_comparisons": places.size}

    def _error_changes(self, place: int, entry: Entry) -> list[ErrorChange]:
        """List the tests whose error counts changed unusually much from base to new.

        Counts of errors have no published run-to-run deviation, so each change is compared with the changes in the
        whole chain. A change is reported if it exceeds 3.5 robust standard deviations (including Poisson noise of the
        counts) and a factor of 1.5. The factor is needed because published counts have heavier tails than a normal
        distribution: 9 of 25 bounded MySQL tests exceed 3.5 standard deviations. Counts of unbounded tests are relative
        to the supported users. A test is left out if a build has no errors.
        """
        changes = []
        for row, test in zip(self._rows(place), entry.tests, strict=True):
            log, chance, usual, count = self.errors[row].tolist()
            least = max(OUTLIER * math.sqrt(usual**2 + chance), math.log(LEAST_ERROR_FACTOR))
            if abs(log) > least and count >= LEAST_COUNT:
                changes.append(ErrorChange(test, percent(log), percent(usual), int(count)))
        return changes


def measure_change(levels: Pair[float | None], noise: Noise | None, runs: Pair[int]) -> Effect | None:
    """Compare two mean levels over `runs` runs; None if a level or the `noise` of one run is unknown.

    >>> noise = Noise(sd=0.018, df=math.inf, noise_source="catalogue")
    >>> change = measure_change(Pair(8638.0, 6537.0), noise, Pair(1, 1))
    >>> [round(each, 1) for each in (change.delta_percent, *change.interval())]
    [-24.3, -28.0, -20.5]
    """
    if noise is None or not levels.base or not levels.new:
        return None
    sd = noise.sd * math.sqrt(1 / runs.base + 1 / runs.new)
    return Effect(math.log(levels.new / levels.base), sd, noise.df, noise.sd, noise.noise_source)


def measure_repeats(builds: Iterable[Sequence[float]]) -> RepeatedMeasurements | None:
    """Return the pooled SD of repeated levels with its 95 % interval (chi-squared); None if no build has two levels."""
    logs = [[math.log(level) for level in levels] for levels in builds]
    if not (df := sum(map(len, logs)) - len(logs)):
        return None
    squares = sum((log - mean) ** 2 for each in logs for mean in [sum(each) / len(each)] for log in each)
    variances = (squares / each for each in (df, *(2.0 * gammaincinv(df / 2.0, [0.975, 0.025]))))
    sd_percent, ci_low, ci_high = (percent(math.sqrt(variance)) for variance in variances)
    return RepeatedMeasurements(sd_percent=sd_percent, ci_low=ci_low, ci_high=ci_high, df=df)


def supported_users_noise(catalogue: Catalogue, groups: Sequence[RepeatedRuns] = ()) -> UsersNoise:
    """Return the noise of supported users (from the catalogue and repeated runs) and their margin in percent."""
    load = catalogue.load
    return (metric_noise(load, "unbounded", groups), load.margin_percent) if load else (None, 0.0)


def compare_to_ledger(
    ledger: Ledger, params: Comparison, tests: Sequence[TestResult], users: UsersNoise, *, simulated: bool
) -> Past:
    """Compare `tests` with earlier comparisons in the ledger; return the history, drifts, and differences of setup."""
    noise, margin_percent = users
    recorded = ledger.find(entry_of(params, position=1))
    is_study = recorded is not None and recorded.kind == "study"
    before = (recorded and recorded.position) or ledger.next_position
    studies = [each for each in ledger.listed if each.position is None]
    chain = [each for each in ledger.listed if each.simulated == simulated and (each.position or before) < before]
    chain = [] if is_study else chain
    digests = "".join(ledger.sha256[each.name] for each in (*chain, *studies))
    history = HistoryResult(
        ledger=params.history or "",
        comparisons=len(chain),
        studies=len(studies),
        entries_sha256=hashlib.sha256(digests.encode()).hexdigest(),
        before=None,
        margin_percent=margin_percent,
    )
    if is_study or noise is None or not chain:
        unknown = NoHistory.NO_NOISE if noise is None else NoHistory.NO_EARLIER
        return history.model_copy(update={"reason": NoHistory.STUDY if is_study else unknown}), [], []
    entry = entry_of(params, tests, position=before, simulated=simulated)
    past = Chain([*chain, entry, *studies], noise)
    step = past.step(len(chain), entry)
    learned: dict[str, object] = {"before": step.before, "between": past.between, "repeats": past.repeats}
    learned |= {"bumps": [*step.bumps], "run_sd_percent": percent(noise.sd), "noise_source": noise.noise_source}
    return history.model_copy(update=learned), [*step.drift], [*step.setup_differences]
