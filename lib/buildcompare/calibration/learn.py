"""Learn how far runs of one build lie apart, keep it in a file, and see how often it makes a comparison wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import FileName, Named, Run, Source
from buildcompare.config.project import read_text, resolve, write_files, writing
from buildcompare.config.yaml import Strict, Traced, checked, read_yaml
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.labels.tables import label_levels, with_calls
from buildcompare.load.view import RunView, run_level, view_run
from buildcompare.metrics.equal_load import learned_at_load, loaded_run, measure_noise_at_load
from buildcompare.metrics.events import no_change, search_window
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import Slot, read_run
from buildcompare.results.codes import Better, NoiseSource, TestType
from buildcompare.stats import noise
from buildcompare.stats.effects import TestedEffect, judge, judge_labels, judge_metrics, measure_effect
from buildcompare.text.sentences import say

METHOD = 8  # Raised with every change of how runs are measured or judged: a self-check of another is not shown
DIGITS = 7  # Significant digits of the levels in the file; run-to-run noise is no smaller than a part in a thousand
MAX_BYTES = 100_000_000


class GroupSpec(Strict):
    """Runs of one build on one setup."""

    name: FileName
    type: Literal["bounded", "unbounded"]
    runs: list[Run] = Field(min_length=2)


class CalibrationSpec(Traced):
    """The file that `calibrate` reads: which runs are repetitions of each other."""

    metrics: str = Field(default="mattermost", min_length=1)
    source: Source
    groups: Named[GroupSpec]


Short = Annotated[float, AfterValidator(lambda value: float(f"{value:.{DIGITS}g}"))]
Known = Annotated[Short, BeforeValidator(lambda value: math.nan if value is None else value)]
"""NaN, which JSON has as null: unknown."""
AtLoad = tuple[Annotated[Short, Field(ge=0)], Annotated[Short, Field(ge=0)], Annotated[float, Field(gt=0)]]


class KeptRun(Strict):
    """One run: what it was read from, and its levels."""

    inputs: list[str]  # Paths, as the user wrote them, or the window of a pulled run
    ids: list[str]  # SHA-256 of each input, by which a run is known again
    metrics: dict[str, tuple[Short, Known, Known]]
    """By slug (see stats.noise.series_key): level, its standard error (log scale) and the seconds it covers."""
    labels: dict[str, dict[str, dict[str, tuple[Short, Known]]]]
    """By group, statistic and label: value, and how often it was called."""
    no_change: dict[str, Short] = Field(default_factory=dict)  # By metric, its no-change penalty (see metrics.events)

    @classmethod
    def of(cls, recording: Recording, levels: noise.RunLevels) -> KeptRun:
        """A run as the file keeps it."""
        labels: dict[str, dict[str, dict[str, tuple[float, float]]]] = {}
        for group, label, stat, value, calls in levels.labels.itertuples(index=False, name=None):
            labels.setdefault(group, {}).setdefault(stat, {})[label] = (value, calls)
        return cls(
            inputs=[str(file["path"]) for file in recording.provenance.get("files", ())],
            ids=ids_of(recording),
            metrics={key: astuple(level) for key, level in levels.metrics.items()},
            labels=labels,
            no_change=dict(levels.no_change),
        )

    def levels(self) -> noise.RunLevels:
        """The run as the analyses take it."""
        tables = ((group, stat, table) for group, stats in self.labels.items() for stat, table in stats.items())
        labels = [(group, label, stat, *value) for group, stat, table in tables for label, value in table.items()]
        metrics = {key: noise.RunLevel(*each) for key, each in self.metrics.items()}
        return noise.RunLevels(metrics, noise.label_frame(labels, ["value", "calls"]), self.no_change)


class KeptGroup(Strict):
    """Runs of one build on one setup, measured."""

    name: str
    type: Literal["bounded", "unbounded"]
    runs: list[KeptRun]
    at_load: dict[str, AtLoad] = Field(default_factory=dict)
    """By metric: variance of log values, its part within runs, degrees of freedom; of unbounded runs since method 4."""


class Calibration(Strict):
    """A calibration file."""

    schema_version: Literal[1] = 1
    method: int
    metrics: str  # The catalogue that the metrics' slugs are of
    groups: list[KeptGroup]
    self_check: dict[str, Any] | None = None

    def repeated_runs(self) -> list[noise.RepeatedRuns]:
        """The groups as the analyses take them."""
        found = []
        for group in self.groups:
            at_load = {slug: noise.NoiseAtEqualLoad(*each) for slug, each in group.at_load.items()}
            found.append(noise.RepeatedRuns(group.name, group.type, [run.levels() for run in group.runs], at_load))
        return found


def read_calibration(file: str, catalogue_name: str) -> Calibration:
    """Read a calibration for a comparison that uses the catalogue `catalogue_name`."""
    key, expected = "calibration", "a file that `python -m buildcompare calibrate` made"
    text = read_text(resolve(file), expected, key=key, max_bytes=MAX_BYTES)
    try:
        calibration = Calibration.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"]) or key
        raise InputError(file=file, key=key, expected=expected, found=fault["msg"].casefold()) from None
    if (found := calibration.metrics) != catalogue_name:
        expected = f"a calibration for the catalogue {catalogue_name}"
        raise InputError(file=file, key="metrics", expected=expected, found=f"one for {found}")
    return calibration


def groups_without(
    calibration: Calibration, recordings: Iterable[Recording]
) -> tuple[list[noise.RepeatedRuns], dict[str, Any]]:
    """The groups that hold none of `recordings`, for no run may be judged by itself; and the self-check, as shown."""
    compared = {each for recording in recordings for each in ids_of(recording)}
    left_out = [group.name for group in calibration.groups if any(compared & {*run.ids} for run in group.runs)]
    kept = [group for group in calibration.groups if group.name not in left_out]
    same = calibration.method == METHOD
    shown = {"calibration": [group.name for group in kept], "left_out": left_out, "same_method": same}
    shown |= (calibration.self_check or {}) if same else {}
    return calibration.model_copy(update={"groups": kept}).repeated_runs(), shown


def beside_runs(catalogue: Catalogue, groups: Sequence[noise.RepeatedRuns]) -> Catalogue:
    """`catalogue` with its noise as it counts beside repeated runs of a laboratory, which may be a noisier one.

    What runs of one laboratory taught holds there; of another it is one guess. How much noisier that one is shows in
    all metrics together (:func:`~buildcompare.stats.noise.laboratory_ratio`), which a few runs can tell.
    """
    kinds: dict[noise.Kind, Callable[[str], noise.Noise | None]] = {
        "bounded": lambda slug: noise.learned_noise(slug, "bounded", groups),
        "unbounded": lambda slug: noise.learned_noise(slug, "unbounded", groups),
        "equal_load": lambda slug: learned_at_load(slug, groups),
    }
    ratios = {}
    for kind, learned in kinds.items():
        pairs = ((learned(metric.slug), noise.catalogue_noise(metric, kind)) for metric in catalogue.metrics)
        if known := [(own, stated) for own, stated in pairs if own is not None and stated is not None]:
            ratios[kind] = noise.laboratory_ratio(known)
    metrics = tuple(
        metric.model_copy(update={"run_sd_percent": noise.in_laboratory(metric.run_sd_percent, ratios)})
        for metric in catalogue.metrics
    )
    return catalogue.model_copy(update={"metrics": metrics})


def ids_of(recording: Recording) -> list[str]:
    """What a run is known by: hashes of its samples, of its first file, and of what a server was asked."""
    hashes = [str(file["sha256"]) for file in recording.provenance.get("files", ())[:1]]
    request = recording.provenance.get("request")
    return [recording.samples_sha256, *hashes, *([str(request)] if request else [])]


def calibrate(spec_file: Path, output: Path, *, refresh: bool = False) -> Calibration:
    """Measure every run of `spec_file` as a comparison would, check the pipeline on them, and write `output`."""
    spec = checked(CalibrationSpec, read_yaml(spec_file))
    if output.is_dir():
        raise InputError(file=output, key="--output", expected="the name of a file", found="a folder")
    with writing(output, "--output", "a file that can be written"):
        output.parent.mkdir(parents=True, exist_ok=True)  # before the long work whose result shall stand there
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
                reason = say("reasons", "reason_words", view.steady.reason) if view.steady.reason else "none"
                raise InputError(file=file, key=where, expected="a run with a steady window", found=reason)
            runs.append(KeptRun.of(recording, run_levels(view, group.type, catalogue)))
            for each in runs[-1].ids:
                if (before := places.setdefault(each, where)) != where:
                    raise InputError(file=file, key=where, expected="another run", found=f"that of {before}")
            over_load = loaded_run(view, catalogue, by_proxy=True)
            if over_load is not None and group.type == "unbounded":
                loaded.append(over_load)
        at_load = {slug: astuple(each) for slug, each in measure_noise_at_load(loaded).items()}
        groups.append(KeptGroup(name=group.name, type=group.type, runs=runs, at_load=at_load))
    calibration = Calibration(method=METHOD, metrics=spec.metrics, groups=groups)
    found = self_check(calibration.repeated_runs(), catalogue)
    calibration = calibration.model_copy(update={"self_check": found})
    text = calibration.model_dump_json().replace('{"inputs"', '\n{"inputs"') + "\n"
    with writing(output, "--output", "a file that can be written"):
        write_files({output: text})
    return calibration


def run_levels(view: RunView, test_type: TestType, catalogue: Catalogue) -> noise.RunLevels:
    """All that a calibration learns from a run: levels of known metrics in the steady window, labels, and events.

    Without a curve of users, the curve that stands in for it gives the level of the load: only ratios between runs of
    one setup are learned from it. Percentiles at the end of their histogram no longer move, and are left out.
    """
    metrics = {}
    for series in view.recording.graphs():
        level = view.level(series)
        if catalogue.find(series.name).known and level is not None and level.value is not None:
            metrics[noise.series_key(series.metric, series.labels)] = run_level(level)
    load = catalogue.load
    if load is not None and load.slug not in metrics and view.load_slug in metrics:
        metrics[load.slug] = metrics[str(view.load_slug)]
    labels = with_calls(label_levels(view.recording, view.steady.window))
    tops = labels["group"].map({table.group: table.top_bucket for table in catalogue.label_tables}).astype(float)
    labels = labels[~(labels["stat"].str.startswith("p") & (labels["value"] >= tops))]
    window = search_window(view.steady.window, test_type)
    totals = {metric.slug: view.recording.total(metric.slug) for metric in catalogue.metrics if window}
    curves = {slug: view.recording.curve(each) for slug, each in totals.items() if each is not None}
    changes = {slug: no_change(curve, window) for slug, curve in curves.items() if window}
    return noise.RunLevels(metrics, labels, {slug: change for slug, change in changes.items() if change > 0})


# ---- The self-check -------------------------------------------------------------------------------------------------

INJECTED = (5.0, 10.0, 20.0, 50.0, 100.0)  # Percent by which one run of a pair is scaled
COLUMNS = ("group", "pair", "key", "log_ratio", "called", "covering", *INJECTED)
"""Number of the pair in its group, whether it is called changed, its 95 % interval holds zero, the change was found."""


def self_check(groups: Sequence[noise.RepeatedRuns], catalogue: Catalogue) -> dict[str, Any] | None:
    """Judge every pair of runs of a group as if it were two builds, by the noise of the other groups; None without any.

    Then one run of it is scaled, one metric or label at a time, to see how often the change is found. Counts, so that
    a reader sees how much a rate is worth: of the metrics and labels of all pairs the `rows`, those `called` changed
    (false alarms), the 95 % intervals `covering` zero, and by injected percentage those `found` in its direction.
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
    """The metrics of each identical pair, judged: one row each with the columns `COLUMNS`.

    Of unbounded runs the load is one of them, judged as supported users are.
    """
    rows = []
    for group in groups:
        others = [each for each in groups if each is not group]
        find = beside_runs(catalogue, others).find
        metrics = {key: find(noise.slug_of(key)) for run in group.runs for key in run.metrics}
        # A bounded test sets its load. The catalogue's noise has no place in a check of this calibration.
        judged_here = {k: m for k, m in metrics.items() if group.type == "unbounded" or not m.load}
        noises = {key: noise.metric_noise(metric, group.type, others) for key, metric in judged_here.items()}
        known = {key: each for key, each in noises.items() if each and each.noise_source == NoiseSource.CALIBRATION}
        for number, (first, second) in enumerate(itertools.combinations(group.runs, 2)):
            keys = sorted({*known} & {*first.metrics} & {*second.metrics})
            plain = {key: measure_effect([first.metrics[key]], [second.metrics[key]], known[key]) for key in keys}
            for key, own in plain.items():
                judged = []
                for percent in (0.0, *INJECTED):
                    scaled = own and replace(own, log_ratio=own.log_ratio + math.log1p(percent / 100.0))
                    if metrics[key].load:  # at most so many users stay connected: what the build supports
                        judged.append(judge(scaled, metrics[key].margin_percent, Better.HIGHER) if scaled else None)
                        continue
                    together = {k: scaled if k == key else each for k, each in plain.items() if not metrics[k].load}
                    found = judge_metrics([(metrics[k], each) for k, each in together.items()])
                    judged.append(found[list(together).index(key)])
                rows += _checked(group, number, key, judged)
    return pd.DataFrame(rows, columns=COLUMNS)


def check_labels(groups: Sequence[noise.RepeatedRuns]) -> pd.DataFrame:
    """The labels of all identical pairs, judged; columns as :func:`check_metrics` has them."""
    rows = []
    for group in groups:
        learned, pairs = LabelNoise([each for each in groups if each is not group]), label_pairs(group)
        for number, (_, pair) in enumerate(pairs.groupby("pair")):
            found = learned.effects(pair.rename(columns={"first": "base", "second": "new"}))["effect"]
            tables = pair["group"] + " " + pair["stat"]
            judged = []
            for percent in (0.0, *INJECTED):
                more = math.log1p(percent / 100.0)
                scaled = [own and replace(own, log_ratio=own.log_ratio + more) for own in found]
                judged.append(judge_labels([*zip(tables, scaled, strict=True)]))
            for key, *each in zip(tables + " " + pair["label"], *judged, strict=True):
                rows += _checked(group, number, key, each)
    return pd.DataFrame(rows, columns=COLUMNS)


def _checked(
    group: noise.RepeatedRuns, pair: int, key: str, judged: Sequence[TestedEffect | None]
) -> list[tuple[Any, ...]]:
    """One row of what was judged as measured and with each injected change; none where nothing was."""
    if (plain := judged[0]) is None:
        return []
    low, high = plain.effect.interval()
    found = [bool(each and each.status.changed and each.effect.log_ratio > 0) for each in judged[1:]]
    return [(group.name, pair, key, plain.effect.log_ratio, plain.status.changed, low <= 0.0 <= high, *found)]
