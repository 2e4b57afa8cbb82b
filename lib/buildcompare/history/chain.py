"""Analyse a chain of comparisons, with the current results at its end: drift, databases, setup and error counts.

Each comparison measures the version that the one before called new once more, as its base. A difference between the two
is no change of the build: it is run-to-run noise, and whatever else changed between two batches of tests.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Comparison, Test
from buildcompare.history.ledger import Entry, Ledger, LedgerAtLoad, LedgerBuild, LedgerTest, TestKey
from buildcompare.history.table import COORDINATOR_COLUMNS, SETUP_COLUMNS
from buildcompare.results import TestResult
from buildcompare.results import history as schema
from buildcompare.results.codes import SIDES, DriftKind, NoHistory, Pair, SetupChange, Side, ValidityStatus
from buildcompare.stats.effects import Effect
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.noise import Noise, PastChange, PastChanges, RepeatedRuns, metric_noise, series_key, slug_of
from buildcompare.text.numbers import db_name
from buildcompare.text.sentences import say

MAD_TO_SD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""
NOT_OF_NOISE = {SETUP_COLUMNS["load_test_version"], "Metrics server"}
"""Settings that a new version of changes nothing about how far two runs lie apart."""
OUTLIER = 3.5
"""Modified z-score of an outlier (Iglewicz & Hoaglin 1993, "How to detect and handle outliers", ASQC)."""
LEAST_COUNT = 5  # a median over fewer comparisons says nothing
LEAST_ERROR_FACTOR = 1.5  # smaller changes of error counts are not reported: half as many again, or a third fewer
_EXPECTED = {title.casefold() for title in (*SETUP_COLUMNS.values(), *COORDINATOR_COLUMNS.values())}
"""A comparison that leaves one of these out hides what may explain a drift; other rows are at their writer's choice."""
UsersNoise = tuple[Noise | None, float]
"""Of the supported users: run-to-run noise (None: unknown), and the smallest change that matters, in percent."""
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
    """A whole chain, and then its studies, analysed: the step of each by its name, and what is usual."""

    steps: Mapping[str, Step]
    noise: Noise
    between: Sequence[schema.BetweenComparisons]
    repeats: schema.RepeatedMeasurements | None


def analyse_chain(chain: Sequence[Entry], noise: Noise, studies: Sequence[Entry] = ()) -> ChainAnalysis:
    """Analyse each comparison of `chain`, monthly entries in their order; what is usual is learned from all of it.

    `noise` is of one run's supported users; `studies` serve for their own changes and repeated measurements only.
    """
    tests = measured(chain)
    drift, between = measure_drift(tests, noise)
    drift, errors = [*drift, *compare_databases(tests, noise)], find_error_changes(tests)
    steps = {}
    for before, now in (*zip((None, *chain), chain, strict=False), *((None, study) for study in studies)):
        name, differences = (before.name, setup_differences(before, now)) if before else (None, [])
        rows = [row for row in drift if row.comparison == now.name]
        tested = (test for test in now.tests if any(test.levels))
        changes = [(test, measure_change(test.levels.base, test.levels.new, noise, test.runs)) for test in tested]
        steps[now.name] = Step(now, name, differences, rows, changes, errors[now.name])
    repeated: dict[object, list[float]] = defaultdict(list)
    for each in itertools.chain.from_iterable((*tests, *measured(studies))):
        if each.entry.setup and each.build.version and each.users and each.runs == 1:
            setup = json.dumps([each.entry.setup, each.entry.coordinator], sort_keys=True)
            repeated[each.key, each.build.version, setup].append(each.users)
    return ChainAnalysis(steps, noise, between, measure_repeats(repeated.values()))


def measured(entries: Iterable[Entry]) -> list[Pair[Measured]]:
    """Every test of `entries`; where several have one type and database, the name is part of their key."""
    found = []
    for entry in entries:
        several = Counter(test.key for test in entry.tests)
        for test in entry.tests:
            at = (*test.key, test.name if several[test.key] > 1 else "")
            sides = (Measured(entry, test, at, s, entry.builds[s], test.levels[s], test.runs[s]) for s in SIDES)
            found.append(Pair(*sides))
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


def measure_drift(
    tests: Iterable[Pair[Measured]], noise: Noise
) -> tuple[list[schema.Drift], list[schema.BetweenComparisons]]:
    """Compare each comparison of a chain with the one that measured its base before.

    That is, test by test, the last comparison whose new build is of its base's version, so that one that was recorded
    late, or belongs to an older line of releases, does not break the chain of the others; without any, it is the one
    before. A comparison without levels is skipped.

    A drift of the same version is a jump where its modified z-score exceeds 3.5: the log ratio over 1.4826 times the
    median absolute log ratio of the test (its center is zero, where the same version belongs), which is never taken for
    less than the noise of two single runs. Of drawn chains without a jump, whose batches scatter by 8 %, 4 to 6 % have
    one by this rule, with 5 links or with 33 (tests/history/test_drift.py).

    There are two rows for each linked test, `same_version` (this base with the previous new) and `previous_new` (this
    new with the previous new), test by test; and by test, how far the same version lies apart.
    """
    previous: dict[object, Measured] = {}
    of_version: dict[object, Measured] = {}
    links: dict[tuple[str, str, str], list[tuple[Measured, Pair[Measured]]]] = {}
    for now in tests:
        (base, new), key = now, now.base.key
        links.setdefault(key, [])  # in the order of those that name a test first, whether or not they have levels
        if any(base.test.levels):
            if key in previous:
                links[key].append((of_version.get((key, base.build.minor), previous[key]), now))
            previous[key] = new
            if new.users and new.build.minor:
                of_version[key, new.build.minor] = new
    drift, between = [], []
    for (test_type, db_engine, _), linked in links.items():
        found = []
        for then, now in linked:
            changed = _changed(setup_differences(then.entry, now.base.entry))
            for kind, each in zip((DriftKind.SAME_VERSION, DriftKind.PREVIOUS_NEW), now, strict=True):
                same = bool(each.build.minor) and each.build.minor == then.build.minor
                known = {"against": then.entry.name, "same_version": same, "setup_changed": changed}
                found += each.beside(then, kind, noise, **known)
        ratios = [abs(ratio) for ratio, row in found if _is_same_version(row)]
        sd = max(MAD_TO_SD * median(ratios), math.sqrt(2.0) * noise.sd) if len(ratios) >= LEAST_COUNT else None
        for ratio, row in found:
            z = {"z": ratio / sd, "jump": abs(ratio / sd) > OUTLIER} if sd and _is_same_version(row) else {}
            drift.append(row.model_copy(update=z))
        if linked:
            about: dict[str, Any] = {"type": test_type, "db_engine": db_engine or None, "links": len(ratios)}
            between.append(schema.BetweenComparisons(**about, sd_percent=sd and 100.0 * math.expm1(sd)))
    return drift, between


def compare_databases(tests: Iterable[Pair[Measured]], noise: Noise) -> list[schema.Drift]:
    """Compare each pair of databases within each build: the later in the alphabet with the earlier.

    Rows as those of :func:`measure_drift`, with `flipped`: whether they stand in another order than with the last new
    build before. A comparison with several tests of one type and database is left out.
    """
    drift = []
    pasts: dict[object, list[tuple[str, dict[Side, float]]]] = defaultdict(list)  # by pair, the changes by comparison
    for name, group in itertools.groupby(tests, lambda each: each.base.entry.name):
        alone = [each for each in group if each.base.key[1] and not each.base.key[2]]
        for other, own in itertools.combinations(sorted(alone, key=lambda each: each.base.key), 2):
            if other.base.test.type != own.base.test.type:
                continue
            past, sizes = pasts[other.base.key, own.base.key], {}
            last = next((changes["new"] for _, changes in reversed(past) if "new" in changes), 0.0)
            for one, two in zip(other, own, strict=True):
                known = {"against": one.test.db_engine, "same_version": True}
                for ratio, row in two.beside(one, DriftKind.BETWEEN_DATABASES, noise, **known):
                    sizes[two.side] = row.delta_percent or 0.0
                    alike = ((at, {k: size for k, size in was.items() if size * ratio > 0}) for at, was in past)
                    earlier = [schema.DatabaseOrder(comparison=at, **sides) for at, sides in alike if sides]
                    flipped = {"flipped": True, "earlier": earlier} if last * ratio < 0 else {}
                    drift.append(row.model_copy(update=flipped))
            past.append((name, sizes))
    return drift


def find_error_changes(tests: Iterable[Pair[Measured]]) -> Mapping[str, list[ErrorChange]]:
    """Find the comparisons whose error counts changed as they do in no other comparison of the chain.

    Counts of errors have no published run-to-run deviation, so each change is compared with those of all others: it is
    reported where it is more than 3.5 robust standard deviations (the chance of counting, Poisson, included) and half
    or more. The first rule alone calls too much: published counts have heavier tails than a normal distribution (9 of
    25 bounded MySQL tests lie beyond it). Counts of unbounded tests are taken relative to the supported users; a test
    without an error in one build is left out.
    """
    rows = []
    sizes: dict[object, list[float]] = defaultdict(list)
    for entry, test, key, *_ in (each.base for each in tests):
        users = test.levels if test.type == "unbounded" else Pair(1.0, 1.0)
        if test.errors and test.errors.base and test.errors.new and users.base and users.new:
            ratio = math.log(test.errors.new / test.errors.base * users.base / users.new)
            rows.append((entry.name, test, sizes[key], ratio, 1 / test.errors.base + 1 / test.errors.new))
            sizes[key].append(abs(ratio))
    found = defaultdict(list)
    for name, test, alike, ratio, chance in rows:
        usual = MAD_TO_SD * median(alike)
        far = abs(ratio) > max(OUTLIER * math.sqrt(usual**2 + chance), math.log(LEAST_ERROR_FACTOR))
        if far and len(alike) >= LEAST_COUNT:
            found[name].append(ErrorChange(test, 100.0 * math.expm1(ratio), 100.0 * math.expm1(usual), len(alike)))
    return found


def measure_repeats(groups: Iterable[Sequence[float]]) -> schema.RepeatedMeasurements | None:
    """Pool the variance of positive levels within `groups`, with its chi-squared interval."""
    from scipy import stats

    logs = [np.log(group) for group in groups]
    df = sum(group.size - 1 for group in logs)
    if df == 0:
        return None
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in logs)
    variances = (squares / each for each in (df, *stats.chi2.ppf([0.975, 0.025], df)))
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
    old, new = _settings(before, common), _settings(now, common)
    found = []
    for key in dict.fromkeys((*new, *old)):
        (old_name, was), (name, is_now) = (side.get(key, ("", None)) for side in (old, new))
        if was is None or is_now is None:
            kind = SetupChange.NOT_RECORDED if before.source == now.source or key in _EXPECTED else None
        else:
            kind = SetupChange.CHANGED if _normal(was) != _normal(is_now) else None
        if kind:
            known = {"setting": name or old_name, "against": before.name, "before": was, "now": is_now}
            found.append(schema.SetupDifference.model_validate({**known, "kind": kind}))
    return sorted(found, key=lambda each: each.kind)


def plain_text(markdown: str) -> str:
    """The words of one line of Markdown: links and marks gone."""
    without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"[`*_~\[\]\\]", "", without_links).split())


def _settings(entry: Entry, common: Collection[TestKey]) -> Mapping[str, tuple[str, str]]:
    """Name and value by the normal form of the name; of tests, only those that both comparisons have (`common`)."""
    rows = {plain_text(name): plain_text(value) for name, value in entry.setup.items()}
    for name, value in entry.coordinator.items():
        rows[COORDINATOR_COLUMNS.get(name) or f"Alert threshold - {name.removeprefix('threshold_')}"] = f"{value:g}"
    for test in entry.tests:
        if test.users is not None and test.key in common:
            db = f" ({db_name(test.db_engine)})" if test.db_engine else ""
            name = f"Bounded - number of users{db}" if test.type == "bounded" else "Unbounded - MaxActiveUsers"
            rows.setdefault(name, str(test.users))
    if entry.servers:
        rows["Metrics server"] = ", ".join(entry.servers)
    return {_normal(name): (name, value) for name, value in rows.items()}


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
    entry = entry_of(params, tests, position=1, simulated=simulated)
    own = ledger.find(entry)
    before = own.position or 0 if own else math.inf
    alike = [each for each in ledger.chain if (each.position or 0) < before and each.simulated == simulated]
    read = [each.model_dump(mode="json") for each in (*alike, *ledger.studies)]
    is_study, step = own is not None and own.kind == "study", Step(entry)
    if is_study or noise is None or not alike:
        unknown = NoHistory.NO_NOISE if noise is None else NoHistory.NO_EARLIER
        learned: dict[str, Any] = {"before": None, "reason": NoHistory.STUDY if is_study else unknown}
    else:
        while entry.name in {each.name for each in alike}:  # an earlier comparison may bear it
            entry = entry.model_copy(update={"name": f"{entry.name}.new"})
        found = analyse_chain([*alike, entry], noise, ledger.studies)
        step = found.steps[entry.name]
        learned = {"before": step.before, "between": found.between, "repeats": found.repeats}
        learned |= {"run_sd_percent": 100.0 * math.expm1(noise.sd), "noise_source": noise.noise_source}
    history = schema.HistoryResult(
        ledger=params.history or "",
        comparisons=len(alike),
        studies=len(ledger.studies),
        entries_sha256=hashlib.sha256(json.dumps(read, sort_keys=True, ensure_ascii=False).encode()).hexdigest(),
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


def past_changes(
    ledger: Ledger, params: Comparison, samples: Collection[str], catalogue: Catalogue, *, simulated: bool
) -> PastChanges:
    """How far the builds of the other comparisons of `ledger` lay apart, each in every metric of every test.

    Left out are the comparison of `params` itself, and tests that share a run with it (by `samples`).
    """
    now, load = entry_of(params, position=1), catalogue.load
    found: dict[tuple[str, str], list[PastChange]] = defaultdict(list)
    others = (each for each in ledger.entries if each.simulated == simulated and not each.is_same_comparison(now))
    for entry in others:
        changed = {*_changed(setup_differences(entry, now))} - NOT_OF_NOISE
        about: dict[str, Any] = {"comparison": entry.name, "same_setup": not changed}
        for test in (each for each in entry.tests if not {*each.samples} & {*samples}):
            runs = (test.runs.base, test.runs.new)
            base_users, new_users = test.levels
            if load and base_users and new_users:
                ratio = math.log(new_users / base_users)
                found[test.type, load.slug].append(PastChange(log_ratio=ratio, runs=runs, **about))
            seconds = [length for side in test.windows_s for length in side]
            window_s = sum(seconds) / len(seconds) if seconds else math.nan
            for key, (base, new) in test.levels_of_runs.items():
                if base and new and not (load and slug_of(key) == load.slug):
                    ratio, counts = math.log(mean(new) / mean(base)), (len(base), len(new))
                    misread = slug_of(key) in test.misread
                    one_run = test.within_se_log.get(key, math.nan) / math.sqrt(1 / len(base) + 1 / len(new))
                    known = about | {"seconds": window_s, "within": one_run, "misread": misread}
                    change = PastChange(log_ratio=ratio, runs=counts, **known)
                    found[test.type, slug_of(key)].append(change)
            for slug, seen in test.at_load.items():
                ratio, misread = math.log(seen.new / seen.base), slug in test.misread
                change = PastChange(log_ratio=ratio, runs=runs, se_log=seen.within_se_log, misread=misread, **about)
                found["equal_load", slug].append(change)
    return found


def place_in_words(ledger: Ledger, name: str) -> str:
    """Where the comparison `name` stands; with a word where one that stands before it has a later version."""
    numbers = {e.name: [int(part) for part in (e.new.minor or "").split(".") if part] for e in ledger.chain}
    before = list(itertools.takewhile(lambda each: each != name, numbers)) if name in numbers else None
    later = [each for each in before or () if numbers[name] and numbers[each] > numbers[name]]
    return say("history", "recorded", ledger.folder, name, before, len(numbers), later)


def _test(asked: Test, result: TestResult | None) -> LedgerTest:
    known: dict[str, Any] = asked.model_dump(include={"name", "type", "db_engine"})
    if result is not None:
        users = Pair.of(lambda side: getattr(result.supported_users, side, None) or None)
        counts = Pair.of(lambda side: [run.errors for run in asked.runs(side)])
        errors = counts.map(lambda each: None if None in each else mean_of_runs(each))
        known["users"], known["runs"] = result.users, Pair(len(result.runs.base), len(result.runs.new))
        known["supported_users"] = users if any(users) else None
        known["errors"] = None if errors == Pair(None, None) else errors
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
