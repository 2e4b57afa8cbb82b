"""Learn how far runs of one build lie apart, and how often a comparison is wrong because of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from buildcompare.calibration.file import (
    METHOD,
    Calibration,
    KeptGroup,
    KeptRun,
    check_writable,
    read_spec,
    write_calibration,
)
from buildcompare.config.catalogue import Catalogue, Metric, read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.labels.tables import label_levels, with_calls
from buildcompare.load.view import RunView, run_level, view_run
from buildcompare.metrics.equal_load import loaded_by_proxy, loaded_run
from buildcompare.metrics.events import no_change, search_window
from buildcompare.metrics.judge_equal_load import measure_noise_at_load
from buildcompare.recordings.cache import Slot, read_run
from buildcompare.results.codes import NoiseSource, Status, TestType
from buildcompare.stats.effects import Effect, TestedEffect, judge_labels, judge_metrics, measure_effect
from buildcompare.stats.noise import RepeatedRuns, RunLevels, metric_noise, series_key, slug_of
from buildcompare.text.reasons import reason_words


def calibrate(spec_file: Path, output: Path, *, refresh: bool = False) -> Calibration:
    """Measure every run of `spec_file` as a comparison would, check the pipeline on them, and write `output`."""
    spec = read_spec(spec_file)
    check_writable(output)
    try:
        catalogue = read_catalogue(spec.metrics)
    except InputError as error:
        raise spec.fault_at(("metrics",), error) from None
    groups = []
    places: dict[str, str] = {}
    for position, group in enumerate(spec.groups):
        runs, loaded = [], []
        for number, run in enumerate(group.runs, start=1):
            slot = Slot(f"calibration-{spec_file.stem}", group.name, "base", number)
            where = f"groups.{group.name}.runs[{number - 1}]"
            try:
                recording = read_run(run, spec.source, catalogue, slot, refresh=refresh)
            except InputError as error:
                raise spec.fault_at(("groups", position, "runs", number - 1, *run.place_of(error)), error) from None
            view = view_run(recording, group.type, catalogue)
            file = run.file or spec_file
            if view.steady.window is None:
                reason = reason_words(view.steady.reason) if view.steady.reason else "none"
                raise InputError(file=file, key=where, expected="a run with a steady window", found=reason)
            runs.append(KeptRun.of(recording, run_levels(view, group.type, catalogue)))
            for each in runs[-1].ids:
                if (before := places.setdefault(each, where)) != where:
                    raise InputError(file=file, key=where, expected="another run", found=f"that of {before}")
            over_load = loaded_run(view, catalogue) or loaded_by_proxy(view, catalogue)
            if over_load is not None and group.type == "unbounded":
                loaded.append(over_load)
        at_load = {slug: astuple(each) for slug, each in measure_noise_at_load(loaded).items()}
        groups.append(KeptGroup(name=group.name, type=group.type, runs=runs, at_load=at_load))
    calibration = Calibration(method=METHOD, metrics=spec.metrics, groups=groups)
    checked = self_check(calibration.repeated_runs(), catalogue.find)
    calibration = calibration.model_copy(update={"self_check": checked})
    write_calibration(calibration, output)
    return calibration


def run_levels(view: RunView, test_type: TestType, catalogue: Catalogue) -> RunLevels:
    """All that a calibration learns from a run: levels of known metrics in the steady window, labels, and events.

    Without a curve of users, the curve that stands in for it gives the level of the load: only ratios between runs of
    one setup are learned from it. Percentiles at the end of their histogram no longer move, and are left out.
    """
    metrics = {}
    for series in view.recording.graphs():
        level = view.level(series)
        if catalogue.find(series.name).known and level is not None and level.value is not None:
            metrics[series_key(series.metric, series.labels)] = run_level(level)
    load = catalogue.load
    if load is not None and load.slug not in metrics and view.load_slug in metrics:
        metrics[load.slug] = metrics[str(view.load_slug)]
    labels = with_calls(label_levels(view.recording, view.steady.window))
    tops = labels["group"].map({table.group: table.top_bucket for table in catalogue.label_tables}).astype(float)
    labels = labels[~(labels["stat"].str.startswith("p") & (labels["value"] >= tops))]
    window = search_window(view.steady.window, test_type) if view.steady.window else (0.0, 0.0)
    totals = {metric.slug: view.recording.total(metric.slug) for metric in catalogue.metrics if window[1] > window[0]}
    changes = {slug: no_change(view.recording.curve(each), window) for slug, each in totals.items() if each is not None}
    return RunLevels(metrics, labels, {slug: change for slug, change in changes.items() if change > 0})


# ---- The self-check -------------------------------------------------------------------------------------------------

INJECTED = (5.0, 10.0, 20.0, 50.0)  # Percent by which one run of a pair is scaled
COLUMNS = ("group", "pair", "key", "log_ratio", "called", "covering", *INJECTED)
"""Number of the pair in its group, whether it is called changed, its 95 % interval holds zero, the change was found."""
Find = Callable[[str], Metric]  # The catalogue's metric of a slug


def self_check(groups: Sequence[RepeatedRuns], find: Find) -> dict[str, Any] | None:
    """Judge every pair of runs of a group as if it were two builds, by the noise of the other groups; None without any.

    Then one run of it is scaled, one metric or label at a time, to see how often the change is found. Counts, so that
    a reader sees how much a rate is worth: of the metrics and labels of all pairs the `rows`, those `called` changed
    (false alarms), the 95 % intervals `covering` zero, and by injected percentage those `found` in its direction.
    """
    if len(groups) < 2:
        return None
    metrics, labels = check_metrics(groups, find), check_labels(groups)
    return {
        "groups": len(groups),
        "pairs": sum(math.comb(len(group.runs), 2) for group in groups),
        "pairs_called": int(metrics.groupby(["group", "pair"])["called"].any().sum()),
        **{
            name: {
                "rows": len(rows),
                "called": int(rows["called"].sum()),
                "covering": int(rows["covering"].sum()),
                "found": {f"{percent:g}": int(rows[percent].sum()) for percent in INJECTED},
            }
            for name, rows in (("metrics", metrics), ("labels", labels))
        },
    }


def check_metrics(groups: Sequence[RepeatedRuns], find: Find) -> pd.DataFrame:
    """The metrics of each identical pair, judged: one row each with the columns `COLUMNS`."""
    rows = []
    for group in groups:
        others = [each for each in groups if each is not group]
        metrics = {key: find(slug_of(key)) for run in group.runs for key in run.metrics}
        # The load is set and not judged; the catalogue's noise has no place in a check of this calibration.
        noises = {key: metric_noise(metric, group.type, others) for key, metric in metrics.items() if not metric.load}
        known = {key: each for key, each in noises.items() if each and each.noise_source == NoiseSource.CALIBRATION}
        for number, (first, second) in enumerate(itertools.combinations(group.runs, 2)):
            keys = sorted({*known} & {*first.metrics} & {*second.metrics})

            def effect(key: str, percent: float, first: RunLevels = first, second: RunLevels = second) -> Effect | None:
                scaled = replace(second.metrics[key], level=second.metrics[key].level * (1.0 + percent / 100.0))
                return measure_effect([first.metrics[key]], [scaled], known[key])  # noqa: B023 - called in this round

            plain = {key: effect(key, 0.0) for key in keys}
            for i, key in enumerate(keys):
                scaled = [{**plain, key: effect(key, percent)} for percent in (0.0, *INJECTED)]
                judged = [judge_metrics([(metrics[k], each[k]) for k in keys])[i] for each in scaled]
                rows += _checked(group, number, key, judged)
    return pd.DataFrame(rows, columns=COLUMNS)


def check_labels(groups: Sequence[RepeatedRuns]) -> pd.DataFrame:
    """The labels of all identical pairs, judged; columns as :func:`check_metrics` has them."""
    rows = []
    for group in groups:
        noise = LabelNoise([each for each in groups if each is not group])
        if noise.tails is None:
            continue
        df, scale = noise.tails
        pairs = label_pairs(group)
        pairs = pairs.assign(sd=scale * noise.predicted(pairs)).dropna(subset="sd")
        tables = pairs["group"] + " " + pairs["stat"]
        judged = []
        for percent in (0.0, *INJECTED):
            ratios = np.log(pairs["second"] / pairs["first"]) + math.log1p(percent / 100.0)
            effects = [
                Effect(ratio, math.sqrt(2.0) * sd, df, sd, NoiseSource.CALIBRATION)
                for ratio, sd in zip(ratios, pairs["sd"], strict=True)
            ]
            judged.append(judge_labels([*zip(tables, effects, strict=True)]))
        for number, key, *each in zip(pairs["pair"], tables + " " + pairs["label"], *judged, strict=True):
            rows += _checked(group, number, key, each)
    return pd.DataFrame(rows, columns=COLUMNS)


def _checked(group: RepeatedRuns, pair: int, key: str, judged: Sequence[TestedEffect | None]) -> list[tuple[Any, ...]]:
    """One row of what was judged as measured and with each injected change; none where nothing was."""
    called = [each is not None and each.status in (Status.REGRESSION, Status.IMPROVEMENT) for each in judged]
    found = [hit and each is not None and each.effect.log_ratio > 0 for hit, each in zip(called, judged, strict=True)]
    if (plain := judged[0]) is None:
        return []
    low, high = plain.effect.interval()
    return [(group.name, pair, key, plain.effect.log_ratio, called[0], low <= 0.0 <= high, *found[1:])]
