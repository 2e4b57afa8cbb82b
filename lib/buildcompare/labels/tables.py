"""Measure label tables of runs (API handlers, database methods), compare two builds, find agreement of tests."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

import numpy as np
import pandas as pd
from scipy import special

from buildcompare.config.catalogue import Catalogue
from buildcompare.labels.noise import LabelNoise
from buildcompare.load.view import Views
from buildcompare.recordings.recording import FloatArray, Recording, Series
from buildcompare.results import LEANING, LabelResult
from buildcompare.results.base import Number, Reason
from buildcompare.results.codes import SIDES, NoiseSource, Pair, ReasonCode, Side, Status
from buildcompare.stats.effects import TestedEffect, judge_labels
from buildcompare.stats.levels import delta_percent
from buildcompare.stats.noise import LABEL_KEY, label_frame

CALLS = "calls"  # Statistic for the number of calls of a label in the window
_Key: TypeAlias = tuple[str, str, str]  # The columns of `LABEL_KEY`
LabelRows: TypeAlias = list[tuple[str, str, str, float]]
"""Rows of group, label, statistic and value: seconds, or a number for `CALLS`, which has no row if unknown."""


@dataclass(frozen=True, eq=False)
class LabelTables:
    """Label tables of all runs of a test, and the noise of their rows."""

    runs: Pair[list[LabelRows]]
    steady: bool  # If True, over steady windows, else summaries of whole runs
    noise: LabelNoise
    whole: Pair[list[LabelRows]] | None  # Summaries of whole runs, beside steady tables


def label_tables(views: Views, label_noise: LabelNoise) -> LabelTables:
    """Measure the labels of all runs over steady windows, else over whole runs."""
    seen = [*views.base, *views.new]
    steady = all(view.steady.window and any(each.role == "label" for each in view.recording.series) for view in seen)
    whole = not steady and all(view.recording.label_summaries for view in seen)
    runs = views.map(lambda of: [label_levels(each.recording, None if whole else each.steady.window) for each in of])
    beside = views.map(lambda of: [label_levels(each.recording, None) for each in of]) if steady else None
    return LabelTables(runs, steady, label_noise, beside)


def label_levels(recording: Recording, window: tuple[float, float] | None) -> LabelRows:
    """Measure the labels of one run over `window` (elapsed seconds), else take the source's own summaries.

    An average is weighted with the calls of each point. A percentile comes from the buckets of all points; without
    buckets it is the median of the points' percentiles.
    """
    series = {(each.metric, each.name, each.stat): each for each in recording.series if each.role == "label"}
    if not series or window is None:
        return [(each.group, each.label, each.stat, each.value) for each in recording.label_summaries]

    def inside(each: Series) -> tuple[FloatArray, FloatArray]:
        first, end = np.searchsorted(each.times - recording.window[0], window, side="right")
        return each.times[first:end], each.values[first:end]

    buckets: dict[tuple[str, str], dict[float, float]] = {}
    for each in recording.series:
        if each.role == "bucket" and "le" in each.labels:
            counts, bound = buckets.setdefault((each.metric, each.name), {}), float(each.labels["le"])
            _, values = inside(each)
            counts[bound] = counts.get(bound, 0.0) + float(values[np.isfinite(values)].sum())
    rows: LabelRows = []
    for (group, label, stat), each in series.items():
        times, values = inside(each)
        finite, value = values[np.isfinite(values)], np.nan
        if stat == CALLS:
            value = finite.mean() * (window[1] - window[0]) if finite.size else 0.0
        elif stat == "avg":
            calls = series.get((group, label, CALLS))
            value = _weighted_mean(times, values, *(inside(calls) if calls else (times, np.ones_like(values))))
        elif (group, label) in buckets:
            bounds, counted = np.array(sorted(buckets[group, label].items())).T
            value = histogram_quantile(float(stat[1:]) / 100.0, bounds, counted)
        elif finite.size:
            value = np.median(finite)
        rows.append((group, label, stat, float(value)))
    return rows


def with_calls(levels: LabelRows) -> pd.DataFrame:
    """Convert one run's :func:`label_levels` to a frame of finite values, with the calls in a separate column."""
    rows = label_frame(levels)
    counted = rows["stat"].eq(CALLS)
    calls = rows[counted].rename(columns={"value": CALLS}).drop(columns="stat")
    values: pd.DataFrame = rows[~counted & np.isfinite(rows["value"])]
    return values.merge(calls, how="left", on=["group", "label"])


def histogram_quantile(quantile: float, bounds: FloatArray, counts: FloatArray) -> float:
    """Compute a quantile of a histogram of cumulative buckets, linear inside a bucket, as Prometheus does.

    A quantile in the last, unbounded bucket gives the last finite bound, which is a lower bound.

    `bounds` increase to infinity, `counts` are cumulative; shape (n,). Counts that fall by rounding are raised to the
    count before. NaN without any count. The error is up to a bucket's width, see
    https://prometheus.io/docs/practices/histograms/.
    """
    if bounds.size < 2 or not np.isposinf(bounds[-1]):
        return float("nan")
    counts = np.maximum.accumulate(counts)
    if not counts[-1] > 0:
        return float("nan")
    rank = quantile * counts[-1]
    index = int(np.searchsorted(counts, rank))
    if index >= bounds.size - 1:
        return float(bounds[-2])
    if index == 0 and bounds[0] <= 0:
        return float(bounds[0])
    low, before = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    return float(low + (bounds[index] - low) * (rank - before) / (counts[index] - before))


def label_table(
    base: pd.DataFrame, new: pd.DataFrame, *, top_buckets: Mapping[str, float | None] | None = None
) -> pd.DataFrame:
    """Pair the labels of two builds by name, without dropping or rounding anything.

    Parameters
    ----------
    base, new
        One row per run, label and statistic, columns group, label, stat (such as ``avg``, ``p99``), value (seconds);
        runs are averaged. The value of the statistic ``calls`` is a number.
    top_buckets
        Last finite bound of the server's histogram by group; a percentile at or above it is a lower bound.

    Returns
    -------
    DataFrame
        Sorted by group, label, stat, with the columns base, new (mean over the runs), delta_percent, only_in (the
        only build with the label), base_at_least, new_at_least (whether the value is a lower bound), reason (a
        :class:`~buildcompare.results.codes.ReasonCode` if there is no delta_percent), reason_build (the build with
        that reason; missing for both), base_calls and new_calls.

    Raises
    ------
    ValueError
        If a frame lacks a column.

    Examples
    --------
    >>> base = pd.DataFrame({"group": "api", "label": ["getPost", "login"], "stat": "avg", "value": [0.010, 0.2]})
    >>> new = pd.DataFrame({"group": "api", "label": ["getPost"], "stat": "avg", "value": [0.012]})
    >>> label_table(base, new)[["label", "base", "new", "delta_percent", "only_in"]].round(3)
         label  base    new  delta_percent only_in
    0  getPost  0.01  0.012           20.0     NaN
    1    login  0.20    NaN            NaN    base
    """
    for side, frame in (("base", base), ("new", new)):
        expect_columns(side, frame, (*LABEL_KEY, "value"))
    runs = ([[*zip(*(each[name].tolist() for name in (*LABEL_KEY, "value")), strict=True)]] for each in (base, new))
    rows = [
        [*row.key, *row.values, *row.at_least, *row.calls, row.delta_percent, row.only_in, row.reason, row.reason_build]
        for row in pair_labels(*runs, top_buckets=top_buckets)
    ]
    sides = [f"{side}{what}" for what in ("", "_at_least", "_calls") for side in SIDES]
    numbers, texts = [*sides[:2], *sides[4:], "delta_percent"], ["only_in", "reason", "reason_build"]
    table = pd.DataFrame(rows, columns=[*LABEL_KEY, *sides, "delta_percent", *texts])
    return table.astype({**dict.fromkeys([*LABEL_KEY, *texts], "str"), **dict.fromkeys(numbers, "float")})


@dataclass(frozen=True)
class PairedLabel:
    """One statistic of one label in both builds; None if a build lacks it."""

    group: str
    label: str
    stat: str
    values: Pair[Number]
    """Mean over the runs, in seconds."""
    calls: Pair[Number]
    at_least: Pair[bool]
    """Whether the value is a lower bound."""
    delta_percent: float | None
    reason: ReasonCode | None
    """Why there is no `delta_percent`."""
    reason_build: Side | None
    """Build with that reason; None for both."""

    @property
    def key(self) -> _Key:
        """Values of the columns `LABEL_KEY`."""
        return self.group, self.label, self.stat

    @property
    def only_in(self) -> Side | None:
        """Only build with the label; None if both have it."""
        return self.reason_build if self.reason == ReasonCode.ONLY_IN else None


def pair_labels(
    base: Sequence[LabelRows], new: Sequence[LabelRows], *, top_buckets: Mapping[str, float | None] | None = None
) -> list[PairedLabel]:
    """Pair the levels of all runs to the rows of :func:`label_table`."""
    known = Pair(_means(base, top_buckets or {}), _means(new, top_buckets or {}))
    return [_paired(key, known) for key in sorted({*known.base, *known.new}) if key[2] != CALLS]


def _paired(key: _Key, known: Pair[dict[_Key, tuple[float | None, bool]]]) -> PairedLabel:
    absent, found = known.map(lambda of: key not in of), known.map(lambda of: of.get(key, (None, False)))
    values, at_least = found.map(lambda each: each[0]), found.map(lambda each: each[1])
    reason: ReasonCode | None = None
    build: Side | None = None
    for code, holds in (  # by build; the last code that holds counts
        # A time of zero is below the source's resolution, so it gives no ratio.
        (ReasonCode.TOO_SHORT_TO_MEASURE, values.map(lambda value: value == 0)),
        (ReasonCode.BEYOND_LAST_BUCKET, at_least),
        (ReasonCode.NEVER_CALLED, values.map(lambda value: value is None)),
        (ReasonCode.ONLY_IN, Pair(absent.new, absent.base)),
    ):
        if any(holds):
            reason, build = code, None if all(holds) else "base" if holds.base else "new"
    calls = known.map(lambda of: of.get((*key[:2], CALLS), (None, False))[0])
    delta = delta_percent(*values) if reason is None else None
    return PairedLabel(*key, values, calls, at_least, delta, reason, build)


def _means(runs: Sequence[LabelRows], tops: Mapping[str, float | None]) -> dict[_Key, tuple[float | None, bool]]:
    """Average the finite values of each label and statistic, and flag those with a lower bound among them."""
    values: dict[_Key, list[float]] = {}
    for group, label, stat, value in itertools.chain(*runs):
        values.setdefault((group, label, stat), []).append(float(value))
    found = {}
    for key, all_of in values.items():
        top = tops.get(key[0]) if key[2].startswith("p") else None
        finite = [value for value in all_of if math.isfinite(value)]
        found[key] = fmean(finite) if finite else None, top is not None and any(value >= top for value in all_of)
    return found


def compare_label_tables(tables: LabelTables, catalogue: Catalogue) -> list[LabelResult]:
    """Pair the labels of a test by name and judge them."""
    return [row for row, _ in judge_label_tables(tables, catalogue)]


def judge_label_tables(tables: LabelTables, catalogue: Catalogue) -> list[tuple[LabelResult, TestedEffect | None]]:
    """Judge paired labels, row by row."""
    tops = {table.group: table.top_bucket for table in catalogue.label_tables}
    rows = pair_labels(*tables.runs, top_buckets=tops)
    values = [row.values if row.delta_percent is not None else Pair(None, None) for row in rows]
    columns = {side: np.array([value[side] for value in values], dtype=np.float64) for side in SIDES}
    calls = np.array([math.fsum(each or 0.0 for each in row.calls) for row in rows])
    comparable = pd.DataFrame([row.key for row in rows], columns=LABEL_KEY).assign(**columns, calls=calls)
    runs = len(tables.runs.base), len(tables.runs.new)
    effects = tables.noise.effects(comparable, runs, _repeats(tables.runs) if min(runs) > 1 else None)
    judged = judge_labels([*zip((f"{row.group} {row.stat}" for row in rows), effects["effect"], strict=True)])
    moved, shares = 100.0 * np.expm1(effects["shared"]), Pair.of(lambda side: _time_shares(rows, side))
    whole = {row.key: row.delta_percent for row in pair_labels(*tables.whole, top_buckets=tops)} if tables.whole else {}
    results = [
        _result(row, tested, shared, shares, whole, tables)
        for row, tested, shared in zip(rows, judged, moved, strict=True)
    ]
    return [*zip(results, judged, strict=True)]


def _repeats(runs: Pair[list[LabelRows]]) -> pd.DataFrame:
    """Convert the levels of all runs to a frame with one column for each key, and the build as index."""
    levels = [
        {(group, label, stat): value for group, label, stat, value in run} for side in SIDES for run in runs[side]
    ]
    keys = pd.MultiIndex.from_tuples(dict.fromkeys(key for run in levels for key in run), names=LABEL_KEY)
    values = [[run.get(key, math.nan) for key in keys] for run in levels]
    return pd.DataFrame(values, [side for side in SIDES for _ in runs[side]], keys, dtype=np.float64)


def _time_shares(rows: Iterable[PairedLabel], side: Side) -> dict[tuple[str, str], float]:
    """Compute each label's share of its group's total time, by group and label."""
    spent = {
        row.key[:2]: value * calls
        for row in rows
        if row.stat == "avg" and (value := row.values[side]) is not None and (calls := row.calls[side]) is not None
    }
    total = {
        group: math.fsum(each for key, each in spent.items() if key[0] == group) for group in {k[0] for k in spent}
    }
    return {key: each / total[key[0]] for key, each in spent.items() if total[key[0]] > 0}


def _result(
    row: PairedLabel,
    judged: TestedEffect | None,
    shared_percent: float,
    time_shares: Pair[dict[tuple[str, str], float]],
    whole_run_percent: Mapping[_Key, float | None],
    tables: LabelTables,
) -> LabelResult:
    shares: Pair[Number] = time_shares.map(lambda of: of.get(row.key[:2]))
    unjudged = Status.NOT_COMPARABLE if row.delta_percent is None else Status.INCONCLUSIVE
    why = row.reason or (None if judged else ReasonCode.NO_NOISE)
    return LabelResult(
        **dict(zip(LABEL_KEY, row.key, strict=True)),
        base=row.values.base,
        new=row.values.new,
        delta_percent=row.delta_percent,
        only_in=row.only_in,
        **(judged.row() if judged else {"status": unjudged}),
        shared_percent=shared_percent if judged else None,
        noise_source=judged.effect.noise_source if judged else NoiseSource.NONE,
        p_adjusted=judged.p_adjusted if judged else None,
        calls=row.calls if row.calls != Pair(None, None) else None,
        time_share=shares if shares != Pair(None, None) else None,
        whole_run_percent=whole_run_percent.get(row.key),
        window="steady" if tables.steady else "whole_run",
        at_least=row.at_least,
        reason=Reason(code=why, build=row.reason_build) if why else None,
    )


def expect_columns(name: str, frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise a ValueError if `frame`, which is called `name`, lacks one of `columns`."""
    if missing := [column for column in columns if column not in frame]:
        raise ValueError(f"{name}: expected the columns {', '.join(columns)}, found no {', '.join(missing)}")


def _weighted_mean(times: FloatArray, values: FloatArray, at: FloatArray, weights: FloatArray) -> float:
    """Average `values` at `times`, weighted with `weights` at `at`."""
    if not np.array_equal(times, at):
        _, first, second = np.intersect1d(times, at, assume_unique=True, return_indices=True)
        values, weights = values[first], weights[second]
    known = np.isfinite(values) & np.isfinite(weights) & (weights > 0)
    return float(np.average(values[known], weights=weights[known])) if known.any() else float("nan")


def most_moved(rows: Iterable[LabelResult]) -> list[LabelResult]:
    """Sort changed averages by the time that they add or save, then by p-value; without calls by p-value only."""

    def moved(row: LabelResult) -> tuple[float, float, float]:
        p_value = 1.0 if row.p_value is None else row.p_value
        return -abs(_added_seconds(row) or 0.0), p_value, -abs(math.log(times_slower(row) or 1.0))

    return sorted((row for row in rows if row.stat == "avg" and row.delta_percent), key=moved)


def times_slower(row: LabelResult) -> float:
    """Return the ratio of new to base beyond the shared change of the table, at least that if new has a lower bound.

    0 if unknown.
    """
    if not row.base or row.new is None or row.at_least.base or row.only_in:
        return 0.0
    return row.new / row.base / (1.0 + (row.shared_percent or 0.0) / 100.0)


def added_share(row: LabelResult) -> float | None:
    """Return the time that an average adds to all calls of its table, as a part of the base's; None without calls."""
    added, share = _added_seconds(row), row.time_share.base if row.time_share else None
    if added is None or not share or not row.calls or not row.calls.base or not row.base:
        return None
    return added * share / (row.calls.base * row.base)


def _added_seconds(row: LabelResult) -> float | None:
    """Return the seconds that the change beyond the table's adds, at the mean number of calls of both builds."""
    calls = [each for each in row.calls or () if each is not None]
    if not calls or row.base is None or row.new is None:
        return None
    return fmean(calls) * (row.new - row.base * (1.0 + (row.shared_percent or 0.0) / 100.0))


SEVERAL_TIMES = 3.0  # Least ratio of new to base, chosen as a round number
LEAST_ADDED = 0.02  # Least added time, as a part of the time of all calls of the table; rare calls add less
UNLIKELY = 0.05  # Largest adjusted p-value of a label without recorded calls
FAR = 6.0
"""Least ratio of the 99th percentile to the average without recorded calls: few calls make them alike. Set on published
releases, where it leaves one of 12 that name a label, and one of 7 with base and new swapped."""


def slower_labels(tables: Mapping[str, Iterable[LabelResult]]) -> list[tuple[str, LabelResult, LabelResult | None]]:
    """Find averages that became several times slower: test, average, and 99th percentile; the costliest first.

    An average counts if it is marked (or its noise is unknown) and adds at least `LEAST_ADDED`. Without recorded calls
    its change must be unlikely, its percentile several times slower too, and `FAR`. `tables` are the rows of each test.
    """
    found = []
    for test, rows in tables.items():
        by_key = {(row.group, row.label, row.stat): row for row in rows}
        for row in by_key.values():
            judged_slower = row.status == Status.REGRESSION or row.p_value is None
            if row.stat != "avg" or times_slower(row) < SEVERAL_TIMES or not judged_slower:
                continue
            p99, added = by_key.get((row.group, row.label, "p99")), added_share(row)
            unlikely = row.p_adjusted is not None and row.p_adjusted < UNLIKELY
            if added is not None and added >= LEAST_ADDED:
                found.append((-added, test, row, p99))
            elif (
                added is None and unlikely and p99 is not None and times_slower(p99) >= SEVERAL_TIMES and _far(p99, row)
            ):
                found.append((row.p_adjusted or 0.0, test, row, p99))
    return [labels for _, *labels in sorted(found, key=lambda each: each[0])]  # type: ignore[misc]


def _far(p99: LabelResult, avg: LabelResult) -> bool:
    return (p99.base or 0.0) >= FAR * (avg.base or 0.0) and (p99.new or 0.0) >= FAR * (avg.new or 0.0)


# ---- Several tests --------------------------------------------------------------------------------------------------

ALPHA = 0.01  # Error rate of marks in one direction, half of the label tables' rate
LEAST_PERCENT = 5.0  # Least change of a leaning row, half of the label tables' margin
MOST_EXPECTED = 1.0  # Agreements are left out if chance makes as many or more


@dataclass(frozen=True)
class Agreement:
    """A label that became slower in several tests."""

    label: Mapping[str, str]  # The columns of `LABEL_KEY`
    rows: Mapping[str, LabelResult]  # By test, marked or leaning rows only, the largest change first
    marked: int  # Number of tests that mark the label
    expected: float  # Number of labels that agree as much by chance


def agreeing_labels(tables: Mapping[str, Iterable[LabelResult]]) -> list[Agreement]:
    """Find labels that at least one test marks as slower and others mark or lean towards, the surest first.

    Chance marks single rows of long tables, but rarely the same label in two independent tests; `expected` counts how
    many labels. `tables` are the rows of each test.
    """

    def chance(marked: int, slower: int, tests: int) -> float:  # probability of these counts without a change
        both = ((n, special.bdtrc(marked - 1, n, ALPHA / LEANING)) for n in range(slower, tests + 1))
        lean = LEANING, 1.0 - LEANING
        return float(sum(math.comb(tests, n) * lean[0] ** n * lean[1] ** (tests - n) * enough for n, enough in both))

    labels: dict[tuple[str, str, str], dict[str, LabelResult]] = {}
    for test, row in ((test, row) for test, rows in tables.items() for row in rows if row.p_value is not None):
        labels.setdefault((row.group, row.label, row.stat), {})[test] = row
    found, tests = [], Counter(map(len, labels.values()))
    for label, judged in sorted(labels.items()):
        slower = {test: row for test, row in judged.items() if _is_slower(row)}
        marked = sum(row.status.changed for row in slower.values())
        if marked and len(slower) > 1:
            expected = math.fsum(times * chance(marked, len(slower), count) for count, times in tests.items())
            if expected < MOST_EXPECTED:
                rows = dict(sorted(slower.items(), key=lambda each: -(each[1].delta_percent or 0.0)))
                found.append(Agreement(dict(zip(LABEL_KEY, label, strict=True)), rows, marked, expected))
    return sorted(found, key=lambda each: (each.expected, -fmean(row.delta_percent or 0 for row in each.rows.values())))


def _is_slower(row: LabelResult) -> bool:
    """Test whether a judged row is marked as slower or leans that way."""
    delta, p_value = row.delta_percent or 0.0, (row.p_value or 0.0) / 2.0
    return delta > 0 and (row.status.changed or (delta >= LEAST_PERCENT and p_value < LEANING))
