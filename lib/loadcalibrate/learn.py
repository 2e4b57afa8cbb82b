"""Learn the noise between runs of one build, write it to a file, and check it on pairs of these runs."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from buildcompare.calibration.file import METHOD, Calibration, KeptGroup, KeptRun, beside_runs
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import FileName, Named, Run, Source
from buildcompare.config.project import write_files, writing
from buildcompare.config.yaml import Strict, Traced, checked, read_yaml
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.labels.tables import CALLS, label_levels
from buildcompare.load.view import RunView, run_level, view_run
from buildcompare.metrics.equal_load import loaded_run
from buildcompare.metrics.events import averages_in, search_window
from buildcompare.metrics.judge_at_load import measure_noise_at_load
from buildcompare.recordings.sources import Slot, read_run
from buildcompare.results.codes import NoiseSource, TestType
from buildcompare.stats import noise
from buildcompare.stats.effects import TestedEffect, judge_labels, judge_metrics, judge_users, measure_effect
from buildcompare.stats.levels import FEWEST
from buildcompare.text.sentences import say
from loadcalibrate.penalty import no_change_of


class GroupSpec(Strict):
    """Runs of one build on one setup."""

    name: FileName
    type: Literal["bounded", "unbounded"]
    runs: list[Run] = Field(min_length=2)


class CalibrationSpec(Traced):
    """Groups of repeated runs, as the file for `calibrate` lists them."""

    metrics: str = Field(default="mattermost", min_length=1)
    source: Source
    groups: Named[GroupSpec]


def calibrate(spec_file: Path, output: Path, *, refresh: bool = False) -> Calibration:
    """Measure every run of `spec_file`, check the noise on pairs of runs, and write the calibration to `output`."""
    spec = checked(CalibrationSpec, read_yaml(spec_file))
    if output.is_dir():
        raise InputError(file=output, key="--output", expected="the name of a file", found="a folder")
    with writing(output, "--output", "a file that can be written"):
        output.parent.mkdir(parents=True, exist_ok=True)  # a faulty folder fails here, before the long work
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
            view = view_run(recording, group.type, catalogue, repeated=group.type == "bounded")
            file = run.file or spec_file
            if view.steady.window is None:
                reason = say("reasons", "reason_words", view.steady.reason) if view.steady.reason else "none"
                raise InputError(file=file, key=where, expected="a run with a steady window", found=reason)
            runs.append(KeptRun.of(recording, run_levels(view, group.type, catalogue)))
            for each in runs[-1].ids:
                if (before := places.setdefault(each, where)) != where:
                    raise InputError(file=file, key=where, expected="each run once", found=f"the run of {before}")
            over_load = loaded_run(view, catalogue, by_proxy=True)
            if over_load is not None and group.type == "unbounded":
                loaded.append(over_load)
        at_load = {slug: astuple(each) for slug, each in measure_noise_at_load(loaded).items()}
        groups.append(KeptGroup(name=group.name, type=group.type, runs=runs, at_load=at_load))
    calibration = Calibration(method=METHOD, metrics=spec.metrics, groups=groups)
    calibration = calibration.model_copy(update={"self_check": self_check(calibration.repeated_runs(), catalogue)})
    text = calibration.model_dump_json().replace('{"inputs"', '\n{"inputs"') + "\n"
    with writing(output, "--output", "a file that can be written"):
        write_files({output: text})
    return calibration


def run_levels(view: RunView, test_type: TestType, catalogue: Catalogue) -> noise.RunLevels:
    """Measure a run for a calibration: means of metrics, values of labels, and penalties of the change-point search.

    A metric's penalty is the lowest at which the search finds no change point. If users were not recorded, a metric
    that follows the users is used instead. Percentiles in a histogram's last bucket can be too low, and are left out.
    """
    metrics = {}
    for series in view.recording.graphs():
        level = view.level(series)
        if catalogue.find(series.name).known and level is not None and level.value is not None:
            metrics[noise.series_key(series.metric, series.labels)] = run_level(level)
    load = catalogue.load
    if load is not None and load.slug not in metrics and view.load_slug in metrics:
        metrics[load.slug] = metrics[str(view.load_slug)]
    labels = _with_calls(label_levels(view.recording, view.steady.window))
    tops = labels["group"].map({table.group: table.top_bucket for table in catalogue.label_tables}).astype(float)
    labels = labels[~(labels["stat"].str.startswith("p") & (labels["value"] >= tops))]
    window = search_window(view.steady.window, test_type)
    totals = {metric.slug: view.recording.total(metric.slug) for metric in catalogue.metrics if window}
    curves = {slug: view.recording.curve(each) for slug, each in totals.items() if each is not None}
    searched = {slug: averages_in(curve, window).values for slug, curve in curves.items() if window}
    changes = {slug: no_change_of(values) for slug, values in searched.items() if values.size >= FEWEST}
    return noise.RunLevels(metrics, labels, {slug: change for slug, change in changes.items() if change > 0})


def _with_calls(levels: pd.DataFrame) -> pd.DataFrame:
    """Select the finite values of one run's :func:`label_levels`, with the calls in a separate column."""
    counted = levels["stat"].eq(CALLS)
    calls = levels[counted].rename(columns={"value": CALLS}).drop(columns="stat")
    values: pd.DataFrame = levels[~counted & np.isfinite(levels["value"])]
    return values.merge(calls, how="left", on=["group", "label"])


# ---- The self-check -------------------------------------------------------------------------------------------------

INJECTED = (5.0, 10.0, 20.0, 50.0, 100.0)  # Percent by which one run of a pair is scaled
COLUMNS = ("group", "pair", "key", "log_ratio", "called", "covering", *INJECTED)
"""`pair`: number of the pair of runs in its group. `called`: True if a change is reported. `covering`: True if the 95 %
interval includes zero. Columns named by a number in `INJECTED`: True if an increase of that percentage is detected."""


def self_check(groups: Sequence[noise.RepeatedRuns], catalogue: Catalogue) -> dict[str, Any] | None:
    """Judge each pair of runs of a group by the noise of the other groups, and count the outcomes.

    Each pair is judged as if it were two builds, then again with an injected increase of one metric or label. For
    metrics and for labels, the result counts all judgements (`rows`), false changes (`called`), 95 % intervals that
    include zero (`covering`) and detected increases by percentage (`found`). With fewer than two groups, return None.
    """
    if len(groups) < 2:
        return None
    metrics, labels = check_metrics(groups, catalogue), check_labels(groups)
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


def check_metrics(groups: Sequence[noise.RepeatedRuns], catalogue: Catalogue) -> pd.DataFrame:
    """Judge the metrics of each pair of runs; return one row per pair and metric with the columns `COLUMNS`."""
    rows = []
    for group in groups:
        others = [each for each in groups if each is not group]
        find = beside_runs(catalogue, others).find
        metrics = {key: find(noise.slug_of(key)) for run in group.runs for key in run.metrics}
        # Leave out the load in bounded tests (the test sets it) and metrics without noise learned from `others`.
        judged_here = {k: m for k, m in metrics.items() if group.type == "unbounded" or not m.load}
        noises = {key: noise.metric_noise(metric, group.type, others) for key, metric in judged_here.items()}
        learned = {key: each for key, each in noises.items() if each and each.noise_source == NoiseSource.CALIBRATION}
        for number, (first, second) in enumerate(itertools.combinations(group.runs, 2)):
            keys = sorted({*learned} & {*first.metrics} & {*second.metrics})
            plain = {key: measure_effect([first.metrics[key]], [second.metrics[key]], learned[key]) for key in keys}
            for key, effect in plain.items():
                judged = []
                for percent in (0.0, *INJECTED):
                    scaled = effect and replace(effect, log_ratio=effect.log_ratio + math.log1p(percent / 100.0))
                    if metrics[key].load:  # judge the load like supported users, apart from the other metrics
                        judged.append(judge_users(scaled, metrics[key].margin_percent) if scaled else None)
                        continue
                    together = {k: scaled if k == key else each for k, each in plain.items() if not metrics[k].load}
                    tested = judge_metrics([(metrics[k], each) for k, each in together.items()])
                    judged.append(tested[list(together).index(key)])
                rows += _checked(group, number, key, judged)
    return pd.DataFrame(rows, columns=COLUMNS)


def check_labels(groups: Sequence[noise.RepeatedRuns]) -> pd.DataFrame:
    """Judge the labels of each pair of runs; return one row per pair and label with the columns `COLUMNS`."""
    rows = []
    for group in groups:
        learned, pairs = LabelNoise([each for each in groups if each is not group]), label_pairs(group)
        for number, (_, pair) in enumerate(pairs.groupby("pair")):
            effects = learned.effects(pair.rename(columns={"first": "base", "second": "new"}))["effect"]
            tables = pair["group"] + " " + pair["stat"]
            judged = []
            for percent in (0.0, *INJECTED):
                more = math.log1p(percent / 100.0)
                scaled = [effect and replace(effect, log_ratio=effect.log_ratio + more) for effect in effects]
                judged.append(judge_labels([*zip(tables, scaled, strict=True)]))
            for key, *each in zip(tables + " " + pair["label"], *judged, strict=True):
                rows += _checked(group, number, key, each)
    return pd.DataFrame(rows, columns=COLUMNS)


def _checked(
    group: noise.RepeatedRuns, pair: int, key: str, judged: Sequence[TestedEffect | None]
) -> list[tuple[Any, ...]]:
    """Return a list of one row (`COLUMNS`) for a metric or label of two runs; empty if their difference is unknown."""
    if (plain := judged[0]) is None:
        return []
    low, high = plain.effect.interval()
    detected = [bool(each and each.status.changed and each.effect.log_ratio > 0) for each in judged[1:]]
    return [(group.name, pair, key, plain.effect.log_ratio, plain.status.changed, low <= 0.0 <= high, *detected)]
