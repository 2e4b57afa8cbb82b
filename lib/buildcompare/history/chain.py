"""Analyse a chain of comparisons, with the current results at its end: drift, databases, setup and error counts.

Each comparison measures the version that the one before called new once more, as its base. A difference between the two
is no change of the build: it is run-to-run noise, and whatever else changed between two batches of tests.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison
from buildcompare.history import dataset
from buildcompare.history.columns import MAD_TO_SD, Tests
from buildcompare.history.entry import entry_of
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, LedgerTest, ledger_of
from buildcompare.history.setup import changed_settings, setup_differences
from buildcompare.results import TestResult
from buildcompare.results import history as schema
from buildcompare.results.codes import SIDES, DriftKind, NoHistory, Pair, Side
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import Noise, RepeatedRuns, metric_noise
from buildcompare.stats.planning import percent

OUTLIER = 3.5
"""Modified z-score of an outlier (Iglewicz & Hoaglin 1993, "How to detect and handle outliers", ASQC)."""
LEAST_COUNT = 5  # a median over fewer comparisons says nothing
LEAST_ERROR_FACTOR = 1.5  # smaller changes of error counts are not reported: half as many again, or a third fewer
UsersNoise = tuple[Noise | None, float]
"""Of the supported users: run-to-run noise (None: unknown), and the smallest change that matters, in percent."""
MOST_EARLIER = 20
"""Earlier comparisons in which two databases stood alike that are named; the others are counted."""
_COLUMNS = (
    "name", "position", "base", "new", "setup", "test", "type", "db_engine", "supported_users", "runs", "errors",
)  # fmt: skip
"""What a chain is analysed by."""
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
        return changed_settings(self.setup_differences)


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
    return ChainAnalysis(steps, noise, between, measure_repeats(*tests.repeats()), **known)


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
            changed[since] = changed_settings(setup_differences(before.entry, now.base.entry))
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
