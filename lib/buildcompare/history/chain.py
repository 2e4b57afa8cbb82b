"""Analyse a chain of comparisons, with the current results at its end: drift, databases, setup and error counts.

Each comparison measures the version that the one before called new once more, as its base. A difference between the two
is no change of the build: it is run-to-run noise, and whatever else changed between two batches of tests.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import named
from buildcompare.config.params import Comparison, Test
from buildcompare.history import dataset
from buildcompare.history.ledger import Entry, Ledger, LedgerAtLoad, LedgerBuild, LedgerTest, TestKey, ledger_of
from buildcompare.history.table import COORDINATOR_COLUMNS, SETUP_COLUMNS
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import TestResult
from buildcompare.results import history as schema
from buildcompare.results.codes import SIDES, DriftKind, NoHistory, Pair, SetupChange, Side, ValidityStatus
from buildcompare.stats.effects import Effect
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import Noise, RepeatedRuns, metric_noise, series_key
from buildcompare.stats.planning import percent
from buildcompare.text.numbers import db_name
from buildcompare.text.sentences import say

MAD_TO_SD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""
OUTLIER = 3.5
"""Modified z-score of an outlier (Iglewicz & Hoaglin 1993, "How to detect and handle outliers", ASQC)."""
LEAST_COUNT = 5  # a median over fewer comparisons says nothing
LEAST_ERROR_FACTOR = 1.5  # smaller changes of error counts are not reported: half as many again, or a third fewer
_EXPECTED = {title.casefold() for title in (*SETUP_COLUMNS.values(), *COORDINATOR_COLUMNS.values())}
"""A comparison that leaves one of these out hides what may explain a drift; other rows are at their writer's choice."""
UsersNoise = tuple[Noise | None, float]
"""Of the supported users: run-to-run noise (None: unknown), and the smallest change that matters, in percent."""
MOST_EARLIER = 20
"""Earlier comparisons in which two databases stood alike that are named; the others are counted."""
_COLUMNS = (
    "name", "position", "base", "new", "setup", "test", "type", "db_engine", "supported_users", "runs", "errors",
)  # fmt: skip
"""What a chain is analysed by."""
Integers = npt.NDArray[np.int64]
Past = tuple[schema.HistoryResult, list[schema.Drift], list[schema.SetupDifference]]
"""What the ledger says about a comparison."""


class Measured(NamedTuple):
    """One build in one test of a comparison; the test is found again in other comparisons by its `key`."""

    entry: Entry
    test: LedgerTest
    key: tuple[str, str, str]
    side: Side
    build: LedgerBuild
    users: float | None  # supported, the mean over so many `runs`
    runs: int

    def beside(self, before: Measured, kind: DriftKind, noise: Noise, **known: Any) -> list[tuple[float, schema.Drift]]:
        """The log ratio of the supported users and a row of it with what else is `known`; none without two levels."""
        change = measure_change(before.users, self.users, noise, Pair(before.runs, self.runs))
        if change is None:
            return []
        low, high = change.interval()
        known |= {"kind": kind, "comparison": self.entry.name, "test": self.test.name, "side": self.side}
        known |= {"label": self.build.title, "against_label": before.build.title, "ci_low": low, "ci_high": high}
        known |= {name: getattr(change, name) for name in ("delta_percent", "p_value", "noise_source")}
        known |= self.test.model_dump(include={"type", "db_engine"})
        return [(change.log_ratio, schema.Drift(before=before.users, value=self.users, **known))]


class ErrorChange(NamedTuple):
    """Error counts of one test that changed as in no other comparison."""

    test: LedgerTest
    delta_percent: float  # relative to the load
    usual_percent: float  # robust standard deviation over the chain
    comparisons: int  # how many that was learned from


@dataclass(frozen=True)
class Step:
    """One comparison of a ledger, compared with the one `before` it and with those that measured its versions.

    `changes` are those of the supported users in every test that measured them. A study has none `before` it.
    """

    entry: Entry
    before: str | None = None
    setup_differences: Sequence[schema.SetupDifference] = ()
    drift: Sequence[schema.Drift] = ()
    changes: Sequence[tuple[LedgerTest, Effect | None]] = ()
    errors: Sequence[ErrorChange] = ()

    @property
    def same_version(self) -> list[schema.Drift]:
        """The drift of one version since an earlier comparison, without what is compared beside it."""
        return [row for row in self.drift if _is_same_version(row)]

    @property
    def setup_changed(self) -> list[str]:
        """Settings that changed since the comparison before."""
        return _changed(self.setup_differences)


@dataclass(frozen=True)
class ChainAnalysis:
    """A chain, and then its studies, analysed: what is usual of all, and the `steps` that were asked for by name."""

    steps: Mapping[str, Step]
    noise: Noise | None
    between: Sequence[schema.BetweenComparisons]
    repeats: schema.RepeatedMeasurements | None
    comparisons: int
    studies: Sequence[str]
    databases: Sequence[str]
    """Of the unbounded tests, in the order of their appearance."""


class Order(NamedTuple):
    """How two databases stood in the comparisons of a chain that have both."""

    entries: Integers
    logs: FloatArray  # log ratios of the levels, shape (n, 2), NaN for none
    signs: npt.NDArray[np.int8]  # theirs, 0 for none
    known: Integers  # where there is one of the new builds


class Tests:
    """Every test of a ledger in columns, the chain in its order and then the studies; no object for each."""

    __test__ = False  # not a test class of pytest's

    def __init__(self, table: pa.Table) -> None:
        self.orders: dict[tuple[int, int], Order] = {}
        names, known = dataset.codes(table["name"])
        positions = dataset.numbers(table["position"])
        rank, studies = np.zeros(len(known)), sorted({known[each] for each in names[np.isnan(positions)]})
        rank[[known.index(name) for name in studies]] = range(len(studies))
        order = np.lexsort((rank[names], np.nan_to_num(positions, nan=np.inf)))
        self.table = table if np.array_equal(order, np.arange(order.size)) else table.take(pa.array(order))
        names = names[order]
        begins = np.diff(names, prepend=-1) != 0
        self.entry: Integers = np.cumsum(begins) - 1
        self.names: list[str] = [known[each] for each in names[begins]]
        self.starts = np.append(np.flatnonzero(begins), names.size)
        self.chain = len(self.names) - len(studies)  # entries before this one are of the chain
        self.users = self._positive("supported_users")
        self.runs = dataset.of_sides(self.table["runs"])
        self.any = ~np.isnan(dataset.of_sides(self.table["supported_users"])).all(axis=1)
        types, self._types = dataset.codes(self.table["type"])
        engines, self._engines = self._databases()
        tests, self._tests = dataset.codes(self.table["test"])
        width, most = len(self._engines) + 1, len(self._tests) + 1
        kind = types * width + engines + 1
        _, place, count = np.unique(self.entry * len(types) + kind, return_inverse=True, return_counts=True)
        ids = kind * most + np.where(count[place] > 1, tests + 1, 0)  # of several of a kind, each by its name
        _, first, keys = np.unique(ids, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))  # numbered in the order of those that name a key first
        self.key: Integers = order[keys]
        self.keys = [self._key_of(row, count[place[row]] > 1) for row in np.sort(first).tolist()]

    def _databases(self) -> tuple[Integers, list[str]]:
        places, known = dataset.codes(self.table["db_engine"])
        names = sorted({"", *(each.casefold() for each in known)})
        of = np.array([names.index(each.casefold()) for each in known] + [names.index("")])
        return of[places], names

    def _key_of(self, row: int, several: bool) -> tuple[str, str, str]:
        values = (self.table[name][row].as_py() for name in ("type", "db_engine", "test"))
        kind, db_engine, name = values
        return kind, (db_engine or "").casefold(), name if several else ""

    def _positive(self, column: str) -> FloatArray:
        values = dataset.of_sides(self.table[column])
        return np.where(values > 0, values, np.nan)

    @functools.cached_property
    def minor(self) -> Integers:
        """Major and minor version of both builds as numbers, -1 for none; shape (n, 2)."""
        texts = (pc.struct_field(self.table[side].combine_chunks(), "version") for side in SIDES)
        minors = [pc.replace_substring_regex(each, r"^(\d+\.\d+).*$", r"\1") for each in texts]
        places, _ = dataset.codes(pa.chunked_array([each.cast(pa.string()) for each in minors]))
        return places.reshape(2, -1).T

    @functools.cached_property
    def then(self) -> Integers:
        """For each test of the chain, where its base was measured before as the new build, -1 for nowhere.

        That is the last of its key whose new build is of its base's version, so that one that was recorded late, or
        belongs to an older line of releases, does not break the chain of the others; without any, the one before. A
        test without levels is skipped.
        """
        found = np.full(self.key.size, -1)
        rows = np.flatnonzero(self.any & (self.entry < self.chain))
        rows = rows[np.argsort(self.key[rows], kind="stable")]
        same = self.key[rows][1:] == self.key[rows][:-1]
        found[rows[1:][same]] = rows[:-1][same]
        versions = int(self.minor.max(initial=0)) + 1
        own = self.key * versions + self.minor[:, 0]
        news = np.flatnonzero(self.any & (self.entry < self.chain) & (self.users[:, 1] > 0) & (self.minor[:, 1] >= 0))
        ids = self.key[news] * versions + self.minor[news, 1]
        order = np.lexsort((news, ids))
        stride = self.key.size + 1
        searched = ids[order] * stride + news[order]
        asked = rows[self.minor[rows, 0] >= 0]
        at = np.searchsorted(searched, own[asked] * stride + asked) - 1
        hit = at >= 0
        hit[hit] = ids[order][at[hit]] == own[asked][hit]
        found[asked[hit]] = news[order][at[hit]]
        return found

    @functools.cached_property
    def usual(self) -> dict[int, list[float]]:
        """By key with links, how far the same version lies apart: absolute log ratios, in the chain's order."""
        linked = np.flatnonzero(self.then >= 0)
        then = self.then[linked]
        before, value = self.users[then, 1], self.users[linked, 0]
        minor = self.minor[linked, 0]
        known = (minor >= 0) & (minor == self.minor[then, 1]) & ~np.isnan(before) & ~np.isnan(value)
        found: dict[int, list[float]] = {key: [] for key in np.unique(self.key[linked]).tolist()}
        ratios = map(abs, map(math.log, (value[known] / before[known]).tolist()))
        for key, ratio in zip(self.key[linked][known].tolist(), ratios, strict=True):
            found[key].append(ratio)
        return found

    def rows(self, entry: int) -> range:
        """The tests of an entry."""
        return range(self.starts[entry], self.starts[entry + 1])

    @functools.cached_property
    def by_key(self) -> dict[int, Integers]:
        """By key, its tests in the chain."""
        rows = np.flatnonzero(self.entry < self.chain)
        rows = rows[np.argsort(self.key[rows], kind="stable")]
        keys, starts = np.unique(self.key[rows], return_index=True)
        return dict(zip(keys.tolist(), np.split(rows, starts[1:]), strict=True))

    def between_databases(self, one: int, two: int) -> Order:
        """How the key `two` stood to `one`; kept, as each comparison asks."""
        if (one, two) not in self.orders:
            first, second = self.by_key[one], self.by_key[two]
            both, a, b = np.intersect1d(self.entry[first], self.entry[second], True, return_indices=True)
            ratios = (self.users[second[b]] / self.users[first[a]]).ravel().tolist()
            logs = np.array([math.log(each) if each > 0 else math.nan for each in ratios]).reshape(-1, 2)
            signs = np.sign(np.nan_to_num(logs)).astype(np.int8)
            self.orders[one, two] = Order(both, logs, signs, np.flatnonzero(~np.isnan(logs[:, 1])))
        return self.orders[one, two]

    @functools.cached_property
    def errors(self) -> tuple[FloatArray, FloatArray, dict[int, tuple[float, int]]]:
        """Log ratio of error counts and its variance by chance (NaN for none), and by key the usual one of so many."""
        counts = self._positive("errors")
        unbounded = np.array([key[0] == "unbounded" for key in self.keys])[self.key]
        users = np.where(unbounded[:, None], self.users, 1.0)
        ratios = np.where(self.entry < self.chain, counts[:, 1] / counts[:, 0] * users[:, 0] / users[:, 1], np.nan)
        logs = np.array([math.log(each) if each > 0 else math.nan for each in ratios.tolist()])
        usual = {}
        for key, rows in self.by_key.items():
            sizes = np.abs(logs[rows][~np.isnan(logs[rows])])
            usual[key] = (MAD_TO_SD * float(np.median(sizes)) if sizes.size else math.nan, sizes.size)
        return logs, (1.0 / counts).sum(axis=1), usual

    def repeats(self) -> schema.RepeatedMeasurements | None:
        """Run to run, from builds that the ledger holds more than once in single runs on one recorded setup."""
        setups, texts = dataset.codes(self.table["setup"])
        said = [json.loads(text) for text in texts]
        alike: dict[str, int] = {}
        on = [
            alike.setdefault(json.dumps([each["setup"], each["coordinator"]], sort_keys=True), len(alike))
            if each["setup"]
            else -1
            for each in said
        ]
        setup = np.array(on, dtype=np.int64)[setups] if on else setups
        texts_of = [pc.struct_field(self.table[side].combine_chunks(), "version") for side in SIDES]
        version, _ = dataset.codes(pa.chunked_array(texts_of))
        version = version.reshape(2, -1).T
        usable = (self.users > 0) & (self.runs == 1) & (version >= 0) & (setup >= 0)[:, None]
        ids = (self.key[:, None] * (len(alike) + 1) + setup[:, None]) * (int(version.max(initial=0)) + 1) + version
        levels, ids = self.users[usable], ids[usable]
        _, first, group, count = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
        several = count[group] > 1
        order = np.argsort(first[group[several]], kind="stable")
        levels, sizes = levels[several][order], count[np.argsort(first)]
        return measure_repeats(levels, sizes[sizes > 1])


def analyse_chain(
    ledger: Ledger, noise: Noise | None, newest: int | None = None, named: Collection[str] = ()
) -> ChainAnalysis:
    """Analyse a ledger: what is usual is learned from all of it, and some of its comparisons are compared.

    These are so many of the `newest` (of the chain the last, of the studies the first; None: all) and those `named`.
    `noise` is of one run's supported users (None: unknown, and nothing is compared); studies serve for their own
    changes and repeated measurements only.
    """
    return _analysed(Tests(ledger.table(_COLUMNS)), noise, newest, named, ledger.read)


def _analysed(
    tests: Tests,
    noise: Noise | None,
    newest: int | None,
    named: Collection[str],
    read: Callable[[Collection[str]], Mapping[str, Entry]],
) -> ChainAnalysis:
    count = len(tests.names) if newest is None else newest
    shown = range(tests.chain - count, tests.chain + count)
    asked = [i for i, name in enumerate(tests.names) if i in shown or name in named]
    seen = [tests.keys[key] for key in dict.fromkeys(tests.key[tests.any & (tests.entry < tests.chain)].tolist())]
    known: dict[str, Any] = {
        "comparisons": tests.chain,
        "studies": tests.names[tests.chain :],
        "databases": list(dict.fromkeys(key[1] for key in seen)),
    }
    if noise is None:
        found = read([tests.names[i] for i in asked])
        held = [found[tests.names[i]] for i in asked]
        steps = {e.name: Step(e, changes=[(test, None) for test in e.tests if any(test.levels)]) for e in held}
        return ChainAnalysis(steps, None, (), None, **known)
    linked = {int(tests.then[row]) for i in asked for row in tests.rows(i) if tests.then[row] >= 0}
    before = {i - 1 for i in asked if 0 < i < tests.chain}
    needed = {*asked, *before, *(int(tests.entry[row]) for row in linked)}
    entries = read([tests.names[i] for i in sorted(needed)])
    usual = {key: _spread(ratios, noise) for key, ratios in tests.usual.items()}
    steps = {}
    for i in asked:
        now = entries[tests.names[i]]
        old = entries[tests.names[i - 1]] if i - 1 in before and i < tests.chain else None
        name, differences = (old.name, setup_differences(old, now)) if old else (None, [])
        drift: list[schema.Drift] = []
        errors: list[ErrorChange] = []
        if i < tests.chain:
            drift = [*_drift(tests, i, entries, usual, noise), *_databases(tests, i, entries, noise)]
            errors = _error_changes(tests, i, now)
        tested = (test for test in now.tests if any(test.levels))
        changes = [(test, measure_change(test.levels.base, test.levels.new, noise, test.runs)) for test in tested]
        steps[now.name] = Step(now, name, differences, drift, changes, errors)
    between = []
    for key in sorted(usual):
        test_type, db_engine, _ = tests.keys[key]
        about: dict[str, Any] = {"type": test_type, "db_engine": db_engine or None, "links": len(tests.usual[key])}
        sd = usual[key]
        between.append(schema.BetweenComparisons(**about, sd_percent=sd and 100.0 * math.expm1(sd)))
    return ChainAnalysis(steps, noise, between, tests.repeats(), **known)


def _spread(ratios: Sequence[float], noise: Noise) -> float | None:
    """How far the same version lies apart, never less than two single runs; None of too few pairs.

    A drift of the same version is a jump where its modified z-score exceeds 3.5: the log ratio over 1.4826 times the
    median absolute log ratio of the test (its center is zero, where the same version belongs). Of drawn chains without
    a jump, whose batches scatter by 8 %, 4 to 6 % have one by this rule, with 5 links or with 33
    (tests/history/test_drift.py).
    """
    return max(MAD_TO_SD * median(ratios), math.sqrt(2.0) * noise.sd) if len(ratios) >= LEAST_COUNT else None


def _measured(tests: Tests, row: int, entries: Mapping[str, Entry]) -> Pair[Measured]:
    """Both builds of a test."""
    i = int(tests.entry[row])
    entry, key = entries[tests.names[i]], tests.keys[tests.key[row]]
    test = entry.tests[row - int(tests.starts[i])]
    sides = (Measured(entry, test, key, s, entry.builds[s], test.levels[s], test.runs[s]) for s in SIDES)
    return Pair(*sides)


def _drift(
    tests: Tests, i: int, entries: Mapping[str, Entry], usual: Mapping[int, float | None], noise: Noise
) -> list[schema.Drift]:
    """Compare an entry with those that measured its bases before (see :attr:`Tests.then`).

    There are two rows for each linked test, `same_version` (this base with the previous new) and `previous_new` (this
    new with the previous new).
    """
    drift = []
    changed: dict[str, list[str]] = {}  # settings, by the comparison that they changed since
    for row in sorted(tests.rows(i), key=lambda row: int(tests.key[row])):
        if tests.then[row] < 0:
            continue
        then, now = (_measured(tests, int(each), entries) for each in (tests.then[row], row))
        sd, before = usual[int(tests.key[row])], then.new
        since = before.entry.name
        if since not in changed:
            changed[since] = _changed(setup_differences(before.entry, now.base.entry))
        for kind, each in zip((DriftKind.SAME_VERSION, DriftKind.PREVIOUS_NEW), now, strict=True):
            same = bool(each.build.minor) and each.build.minor == before.build.minor
            known = {"against": since, "same_version": same, "setup_changed": changed[since]}
            for ratio, found in each.beside(before, kind, noise, **known):
                z = {"z": ratio / sd, "jump": abs(ratio / sd) > OUTLIER} if sd and _is_same_version(found) else {}
                drift.append(found.model_copy(update=z))
    return drift


def _databases(tests: Tests, i: int, entries: Mapping[str, Entry], noise: Noise) -> list[schema.Drift]:
    """Compare each pair of databases within each build of an entry: the later in the alphabet with the earlier.

    Rows as those of drift, with `flipped`: whether they stand in another order than with the last new build before. An
    entry with several tests of one type and database is left out.
    """
    drift = []
    keyed = ((tests.keys[tests.key[row]], row) for row in tests.rows(i))
    alone = sorted((key, row) for key, row in keyed if key[1] and not key[2])
    for (key, one), (other_key, two) in itertools.combinations(alone, 2):
        if key[0] != other_key[0]:
            continue
        past = tests.between_databases(int(tests.key[one]), int(tests.key[two]))
        count = int(np.searchsorted(past.entries, i))
        newest = int(np.searchsorted(past.known, count)) - 1
        last = float(past.logs[past.known[newest], 1]) if newest >= 0 else 0.0
        for before, now in zip(*(_measured(tests, row, entries) for row in (one, two)), strict=True):
            known = {"against": before.test.db_engine, "same_version": True}
            for ratio, row in now.beside(before, DriftKind.BETWEEN_DATABASES, noise, **known):
                flipped: dict[str, Any] = {}
                if last * ratio < 0:
                    alike = past.signs[:count] == math.copysign(1.0, ratio)
                    rows = np.flatnonzero(alike[:, 0] | alike[:, 1])
                    earlier = [
                        schema.DatabaseOrder(
                            comparison=tests.names[past.entries[at]],
                            **{s: percent(past.logs[at, n]) for n, s in enumerate(SIDES) if alike[at, n]},
                        )
                        for at in rows[-MOST_EARLIER:].tolist()
                    ]
                    flipped = {"flipped": True, "earlier": earlier, "earlier_comparisons": rows.size}
                drift.append(row.model_copy(update=flipped))
    return drift


def _error_changes(tests: Tests, i: int, entry: Entry) -> list[ErrorChange]:
    """Find the tests of an entry whose error counts changed as they do in no other comparison of the chain.

    Counts of errors have no published run-to-run deviation, so each change is compared with those of all others: it is
    reported where it is more than 3.5 robust standard deviations (the chance of counting, Poisson, included) and half
    or more. The first rule alone calls too much: published counts have heavier tails than a normal distribution (9 of
    25 bounded MySQL tests lie beyond it). Counts of unbounded tests are taken relative to the supported users; a test
    without an error in one build is left out.
    """
    logs, chance, by_key = tests.errors
    found = []
    for test, row in zip(entry.tests, tests.rows(i), strict=True):
        ratio, (usual, count) = float(logs[row]), by_key[int(tests.key[row])]
        far = abs(ratio) > max(OUTLIER * math.sqrt(usual**2 + chance[row]), math.log(LEAST_ERROR_FACTOR))
        if far and count >= LEAST_COUNT:
            found.append(ErrorChange(test, 100.0 * math.expm1(ratio), 100.0 * math.expm1(usual), count))
    return found


def measure_change(before: float | None, value: float | None, noise: Noise, runs: Pair[int]) -> Effect | None:
    """Compare two levels, each the mean over some `runs`, by the noise of single runs; None without two levels.

    >>> noise = Noise(sd=0.018, df=math.inf, noise_source="catalogue")
    >>> change = measure_change(8638.0, 6537.0, noise, Pair(1, 1))
    >>> [round(each, 1) for each in (change.delta_percent, *change.interval())]
    [-24.3, -28.0, -20.5]
    """
    if before is None or value is None or not (0 < before < math.inf and 0 < value < math.inf):
        return None
    sd = noise.sd * math.sqrt(1 / runs.base + 1 / runs.new)
    return Effect(math.log(value / before), sd, noise.df, noise.sd, noise.noise_source)


def measure_repeats(levels: npt.ArrayLike, sizes: npt.ArrayLike) -> schema.RepeatedMeasurements | None:
    """Pool the variance of positive `levels`, groups of so many successive ones, with its chi-squared interval."""
    from scipy.special import gammaincinv

    sizes = np.asarray(sizes, dtype=np.int64)
    df = int((sizes - 1).sum())
    if df == 0:
        return None
    logs, starts = np.log(levels), np.cumsum(sizes) - sizes
    means = np.add.reduceat(logs, starts) / sizes
    squares = sum(np.add.reduceat((logs - np.repeat(means, sizes)) ** 2, starts).tolist())
    variances = (squares / each for each in (df, *(2.0 * gammaincinv(df / 2.0, [0.975, 0.025]))))
    sd_percent, ci_low, ci_high = (100.0 * math.expm1(math.sqrt(variance)) for variance in variances)
    return schema.RepeatedMeasurements(sd_percent=sd_percent, ci_low=ci_low, ci_high=ci_high, df=df)


def _is_same_version(row: schema.Drift) -> bool:
    return row.kind == DriftKind.SAME_VERSION and row.same_version


def _changed(differences: Iterable[schema.SetupDifference]) -> list[str]:
    return [each.setting for each in differences if each.kind == SetupChange.CHANGED]


def setup_differences(before: Entry, now: Entry) -> list[schema.SetupDifference]:
    """Every setting that changed from `before` to `now`, and every one that only one of them states.

    Settings are paired by name without regard to case and marks. One that only one comparison states is listed where
    both came from one source, or where any comparison should state it.
    """
    common = {test.key for test in before.tests} & {test.key for test in now.tests}
    old, new = settings(before, common), settings(now, common)
    found = []
    for key in dict.fromkeys((*new, *old)):
        (old_name, was), (name, is_now) = (side.get(key, ("", None)) for side in (old, new))
        if was is None or is_now is None:
            kind = SetupChange.NOT_RECORDED if before.source == now.source or key in _EXPECTED else None
        else:
            kind = SetupChange.CHANGED if differ(was, is_now) else None
        if kind:
            known = {"setting": name or old_name, "against": before.name, "before": was, "now": is_now}
            found.append(schema.SetupDifference.model_validate({**known, "kind": kind}))
    return sorted(found, key=lambda each: each.kind)


@functools.lru_cache(maxsize=4096)
def plain_text(markdown: str) -> str:
    """The words of one line of Markdown: links and marks gone."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"[`*_~\[\]\\]", "", without_links).split())


def settings(entry: Entry, common: Collection[TestKey]) -> Mapping[str, tuple[str, str]]:
    """Name and value by the normal form of the name; of tests, only those that both comparisons have (`common`)."""
    tests = [(*test.key, test.users) for test in entry.tests if test.key in common]
    return stated(entry.setup, entry.coordinator, entry.servers, tests)


def stated(
    setup: Mapping[str, str],
    coordinator: Mapping[str, float],
    servers: Sequence[str],
    tests: Iterable[tuple[str, str, int | None]],
) -> Mapping[str, tuple[str, str]]:
    """The same of an entry's fields; `tests` by type, database (in small letters) and users."""
    rows = {plain_text(name): plain_text(value) for name, value in setup.items()}
    for name, value in coordinator.items():
        rows[COORDINATOR_COLUMNS.get(name) or f"Alert threshold - {name.removeprefix('threshold_')}"] = f"{value:g}"
    for test_type, db_engine, users in tests:
        if users is not None:
            db = f" ({db_name(db_engine)})" if db_engine else ""
            name = f"Bounded - number of users{db}" if test_type == "bounded" else "Unbounded - MaxActiveUsers"
            rows.setdefault(name, str(users))
    if servers:
        rows["Metrics server"] = ", ".join(servers)
    return {_normal(name): (name, value) for name, value in rows.items()}


def differ(was: str, now: str) -> bool:
    """Whether two settings are more than two spellings."""
    return _normal(was) != _normal(now)


@functools.lru_cache(maxsize=4096)
def _normal(text: str) -> str:
    """What different spellings of one thing share."""
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text.casefold().split()))


def supported_users_noise(catalogue: Catalogue, groups: Sequence[RepeatedRuns] = ()) -> UsersNoise:
    """From a catalogue's load metric, and what repeated runs taught."""
    load = catalogue.load
    return (metric_noise(load, "unbounded", groups), load.margin_percent) if load else (None, 0.0)


def compare_to_ledger(
    ledger: Ledger, params: Comparison, tests: Sequence[TestResult], known: UsersNoise, *, simulated: bool
) -> Past:
    """Compare the results of `params` with the chain before its own entry, or the whole where it has none yet."""
    noise, margin_percent = known
    own = ledger.find(entry_of(params, position=1))
    chain, before = ds.field("position").is_valid() & (ds.field("simulated") == simulated), own and own.position
    chain = chain & (ds.field("position") < before) if before else chain
    if own is not None and own.kind == "study":
        chain = chain & (ds.field("position") < 0)  # a study is held against no comparison
    found = Tests(ledger.table([*_COLUMNS, "sha256"], chain | ds.field("position").is_null()))
    digests = found.table["sha256"].take(pa.array(found.starts[:-1])).to_pylist()
    count, studies = found.chain, len(found.names) - found.chain
    is_study, step = own is not None and own.kind == "study", Step(entry_of(params, position=1))
    if is_study or noise is None or not count:
        unknown = NoHistory.NO_NOISE if noise is None else NoHistory.NO_EARLIER
        learned: dict[str, Any] = {"before": None, "reason": NoHistory.STUDY if is_study else unknown}
    else:
        position = 1 + int(dataset.numbers(found.table["position"])[: found.starts[count]].max())
        entry = entry_of(params, tests, position=position, simulated=simulated)
        while entry.name in found.names:  # an earlier comparison may bear it
            entry = entry.model_copy(update={"name": f"{entry.name}.new"})
        current = ledger_of([entry])
        both = Tests(pa.concat_tables([found.table.select(_COLUMNS), current.table(_COLUMNS)]))
        past = _analysed(both, noise, 0, {entry.name}, lambda names: {**ledger.read(names), **current.loose})
        step = past.steps[entry.name]
        learned = {"before": step.before, "between": past.between, "repeats": past.repeats}
        learned |= {"run_sd_percent": 100.0 * math.expm1(noise.sd), "noise_source": noise.noise_source}
    history = schema.HistoryResult(
        ledger=params.history or "",
        comparisons=count,
        studies=studies,
        entries_sha256=hashlib.sha256("".join(digests).encode()).hexdigest(),
        margin_percent=margin_percent,
        **learned,
    )
    return history, [*step.drift], [*step.setup_differences]


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
