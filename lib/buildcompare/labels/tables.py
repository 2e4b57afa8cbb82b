"""Measure label tables (API handlers, database methods), and compare those of two builds."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue
from buildcompare.labels.noise import LabelNoise
from buildcompare.load.view import Views
from buildcompare.recordings.recording import FloatArray, Recording, Series
from buildcompare.results import LabelResult
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, Pair, ReasonCode, Status
from buildcompare.stats.effects import LABEL_MARGIN_PERCENT, TestedEffect, judge_labels
from buildcompare.stats.noise import LABEL_KEY, label_frame

CALLS = "calls"  # Name of the statistic that is the number of calls of a label in the window
LEAST_OWN = LABEL_MARGIN_PERCENT / 2.0  # Minimum change (percent) of a changed label, including the shared change
OTHERS = "(other "  # Start of the name under which a source counts its rarest labels together
LEAST_ADDED = 0.02  # A label matters if it takes, or its change adds, at least this part of its table's total time


@dataclass(frozen=True, eq=False)
class LabelTables:
    """Label tables of all runs of a test, and the noise of their rows."""

    runs: Pair[list[pd.DataFrame]]  # Rows of :func:`label_levels`
    steady: bool  # True if all of `runs` are measured over steady windows
    noise: LabelNoise
    whole: Pair[list[pd.DataFrame]] | None  # Summaries of whole runs; None if `steady` is False


def label_tables(views: Views, label_noise: LabelNoise) -> LabelTables:
    """Measure labels over steady windows, or over whole runs if any lacks a window or series and all have summaries."""
    seen = [*views.base, *views.new]
    steady = all(view.steady.window and any(each.role == "label" for each in view.recording.series) for view in seen)
    whole = not steady and all(view.recording.label_summaries for view in seen)
    runs = views.map(lambda of: [label_levels(each.recording, None if whole else each.steady.window) for each in of])
    beside = views.map(lambda of: [label_levels(each.recording, None) for each in of]) if steady else None
    return LabelTables(runs, steady, label_noise, beside)


def label_levels(recording: Recording, window: tuple[float, float] | None) -> pd.DataFrame:
    """Measure the labels of one run over `window` (elapsed seconds); without window or series, return summaries.

    Columns: group, label, stat, value. Values are in seconds, but the value of `CALLS` is the number of calls.

    Averages of the samples in the window are weighted by calls. A percentile is computed from the histogram buckets,
    summed over the window; without buckets, it is the median of the percentiles in the window.
    """
    series = {(each.metric, each.name, each.stat): each for each in recording.series if each.role == "label"}
    if not series or window is None:
        return label_frame([(each.group, each.label, each.stat, each.value) for each in recording.label_summaries])

    def inside(each: Series) -> tuple[FloatArray, FloatArray]:
        first, end = np.searchsorted(each.times - recording.window[0], window, side="right")
        return each.times[first:end], each.values[first:end]

    buckets: dict[tuple[str, str], dict[float, float]] = {}
    for each in recording.series:
        if each.role == "bucket" and "le" in each.labels:
            counts, bound = buckets.setdefault((each.metric, each.name), {}), float(each.labels["le"])
            _, values = inside(each)
            counts[bound] = counts.get(bound, 0.0) + float(values[np.isfinite(values)].sum())
    rows = []
    for (group, label, stat), each in series.items():
        times, values = inside(each)
        finite, value = values[np.isfinite(values)], np.nan
        if stat == CALLS:
            value = _called(times[np.isfinite(values)], finite, window[1] - window[0]) if finite.size else 0.0
        elif stat == "avg":
            calls = series.get((group, label, CALLS))
            value = _weighted_mean(times, values, *(inside(calls) if calls else (times, np.ones_like(values))))
        elif (group, label) in buckets:
            bounds, counted = np.array(sorted(buckets[group, label].items())).T
            value = histogram_quantile(float(stat[1:]) / 100.0, bounds, counted)
        elif finite.size:
            value = np.median(finite)
        rows.append((group, label, stat, float(value)))
    return label_frame(rows)


def _called(times: FloatArray, rates: FloatArray, seconds: float) -> float:
    """Return the number of calls in a window of `seconds`; `rates` (at `times`) may start late in it or end early."""
    step = float(np.median(np.diff(times))) if times.size > 1 else seconds
    called_s = float(times[-1] - times[0]) + step
    return float(rates.mean()) * (called_s if called_s < seconds - 2.0 * step else seconds)


def histogram_quantile(quantile: float, bounds: FloatArray, counts: FloatArray) -> float:
    """Compute a quantile of a histogram with cumulative buckets by linear interpolation, as Prometheus does.

    A quantile in the last, unbounded bucket gives the last finite bound, which is a lower bound.

    `bounds` increase to infinity, `counts` are cumulative; shape (n,). A count that is lower than the count before, due
    to rounding, is raised to it. The result is NaN if all counts are 0. The error is up to a bucket's width, see
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
        runs are averaged. The value of the statistic ``calls`` is the number of calls.
    top_buckets
        Last finite bound of the server's histogram by group; a percentile at or above it is a lower bound.

    Returns
    -------
    DataFrame
        Sorted by group, label, stat, with the columns base, new (mean over the runs), delta_percent, only_in (the
        only build with the label), base_at_least, new_at_least (whether the value is a lower bound), reason (a
        :class:`~buildcompare.results.codes.ReasonCode` if there is no delta_percent), reason_build (the build
        that the reason concerns; missing if it concerns both), base_calls and new_calls.

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
    sides = [_means(frame, top_buckets or {}) for frame in (base, new)]
    keys = sides[0].index.union(sides[1].index)
    keys = keys[keys.get_level_values("stat") != CALLS]
    values, at_least = (np.array([side[name].reindex(keys) for side in sides]) for name in ("value", "at_least"))
    absent = np.array([~keys.isin(side.index) for side in sides])
    pooled = [{group for group, label, _ in side.index if label.startswith(OTHERS)} for side in sides]
    faults = {  # fault -> flags of the rows with this fault in base and in new; a row's first fault is its reason
        ReasonCode.AMONG_OTHERS: absent & [keys.get_level_values("group").isin(groups) for groups in pooled],
        ReasonCode.ONLY_IN: absent[::-1],
        ReasonCode.NEVER_CALLED: np.isnan(values),
        ReasonCode.BEYOND_LAST_BUCKET: at_least == True,  # noqa: E712  # a missing value counts as no bound
        # A time of zero is below the source's resolution, so it gives no ratio.
        ReasonCode.TOO_SHORT_TO_MEASURE: values == 0,
    }
    holds_in_any = [holds.any(axis=0) for holds in faults.values()]
    builds = [np.select([holds.all(axis=0), holds[0]], ["", "base"], "new") for holds in faults.values()]
    reason, build = np.select(holds_in_any, [*faults], ""), np.select(holds_in_any, builds, "")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        delta = (values[1] / values[0] - 1.0) * 100.0
    table = keys.to_frame(index=False).assign(base=values[0], new=values[1])
    of_calls = pd.MultiIndex.from_arrays([table["group"], table["label"], [CALLS] * len(table)], names=LABEL_KEY)
    for name, means in zip(SIDES, sides, strict=True):
        table[f"{name}_at_least"] = means["at_least"].reindex(keys, fill_value=False).to_numpy()
        table[f"{name}_calls"] = means["value"].reindex(of_calls).to_numpy()
    table["delta_percent"] = np.where((reason == "") & np.isfinite(delta), delta, np.nan)
    texts = {"only_in": np.where(reason == ReasonCode.ONLY_IN, build, ""), "reason": reason, "reason_build": build}
    return table.assign(**{name: pd.Series(each, dtype="str").where(each != "") for name, each in texts.items()})


def _means(frame: pd.DataFrame, tops: Mapping[str, float | None]) -> pd.DataFrame:
    """Average the finite values of each label and statistic; flag an average if a value in it is a lower bound."""
    top = frame["group"].map(tops).astype(float).where(frame["stat"].str.startswith("p"))
    values = frame["value"].astype(float)
    levels = frame[LABEL_KEY].assign(value=values.where(np.isfinite(values)), at_least=values >= top)
    return levels.groupby(LABEL_KEY).agg({"value": "mean", "at_least": "any"})


def judge_label_tables(tables: LabelTables, catalogue: Catalogue) -> list[tuple[LabelResult, TestedEffect | None]]:
    """Pair the labels of a test by name and judge them."""
    tops, runs = {table.group: table.top_bucket for table in catalogue.label_tables}, [*map(len, tables.runs)]
    table = label_table(*map(pd.concat, tables.runs), top_buckets=tops)
    calls = table["base_calls"].fillna(0.0) + table["new_calls"].fillna(0.0)
    comparable = table[[*LABEL_KEY, *SIDES]].assign(calls=calls)
    comparable.loc[table["delta_percent"].isna(), [*SIDES]] = np.nan
    effects = tables.noise.effects(comparable, (runs[0], runs[1]), _repeats(tables.runs) if min(runs) > 1 else None)
    judged = judge_labels([*zip(table["group"] + " " + table["stat"], effects["effect"], strict=True)])
    for i, (each, delta) in enumerate(zip(judged, table["delta_percent"], strict=True)):
        if each and each.status.changed and math.copysign(delta, delta * each.effect.log_ratio) < LEAST_OWN:
            judged[i] = replace(each, status=Status.INCONCLUSIVE)  # its own change is small; the other labels changed
    table["shared_percent"] = 100.0 * np.expm1(effects["shared"])
    for side in SIDES:
        spent = (table[side] * table[f"{side}_calls"]).where(table["stat"] == "avg")
        part = spent / spent.groupby(table["group"]).transform("sum")
        table[f"{side}_share"] = part.groupby([table["group"], table["label"]]).transform("max")
    table["whole_run_percent"] = np.nan
    if tables.whole:
        whole = label_table(*map(pd.concat, tables.whole), top_buckets=tops).set_index(LABEL_KEY)["delta_percent"]
        table["whole_run_percent"] = whole.reindex(pd.MultiIndex.from_frame(table[LABEL_KEY])).to_numpy()
    rows = [{k: None if v != v else v for k, v in row.items()} for row in table.to_dict("records")]
    results = [_result(row, tested, steady=tables.steady) for row, tested in zip(rows, judged, strict=True)]
    return [*zip(results, judged, strict=True)]


def _repeats(runs: Pair[list[pd.DataFrame]]) -> pd.DataFrame:
    """Convert the levels of all runs to a frame with a row per run (index: build) and a column per key."""
    levels = [run.groupby(LABEL_KEY)["value"].mean() for side in SIDES for run in runs[side]]
    return pd.concat(levels, axis=1, keys=[side for side in SIDES for _ in runs[side]]).T


def _result(row: Mapping[Hashable, Any], tested: TestedEffect | None, *, steady: bool) -> LabelResult:
    calls, shares, at_least = (Pair(row[f"base_{what}"], row[f"new_{what}"]) for what in ("calls", "share", "at_least"))
    unjudged = Status.NOT_COMPARABLE if row["delta_percent"] is None else Status.INCONCLUSIVE
    why = row["reason"] or (None if tested else ReasonCode.NO_NOISE)
    result = LabelResult(
        **{name: row[name] for name in (*LABEL_KEY, *SIDES, "delta_percent", "only_in", "whole_run_percent")},
        status=unjudged,
        shared_percent=row["shared_percent"] if tested else None, at_least=at_least,
        calls=calls if calls != Pair(None, None) else None, time_share=shares if shares != Pair(None, None) else None,
        window="steady" if steady else "whole_run",
        reason=Reason(code=why, build=row["reason_build"]) if why else None,
    )  # fmt: skip
    return tested.filled(result) if tested else result


def expect_columns(name: str, frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Raise a ValueError if `frame`, which is called `name`, lacks one of `columns`."""
    if missing := [column for column in columns if column not in frame]:
        raise ValueError(f"{name}: expected the columns {', '.join(columns)}, found no {', '.join(missing)}")


def _weighted_mean(times: FloatArray, values: FloatArray, at: FloatArray, weights: FloatArray) -> float:
    """Average `values` (sampled at `times`) with `weights` (sampled at `at`), over the samples that both have."""
    if not np.array_equal(times, at):
        _, first, second = np.intersect1d(times, at, assume_unique=True, return_indices=True)
        values, weights = values[first], weights[second]
    usable = np.isfinite(values) & np.isfinite(weights) & (weights > 0)
    return float(np.average(values[usable], weights=weights[usable])) if usable.any() else float("nan")
