"""Learn how far runs of one build lie apart, and how often a comparison is wrong because of it."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from buildcompare.calibration.file import (
    METHOD,
    Calibration,
    KeptGroup,
    KeptRun,
    check_writable,
    read_spec,
    write_calibration,
)
from buildcompare.calibration.self_check import self_check
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.labels.tables import label_levels, with_calls
from buildcompare.load.view import RunView, run_level, view_run
from buildcompare.metrics.equal_load import loaded_by_proxy, loaded_run
from buildcompare.metrics.events import no_change, search_window
from buildcompare.metrics.judge_equal_load import measure_noise_at_load
from buildcompare.recordings.cache import Slot, read_run
from buildcompare.results.codes import TestType
from buildcompare.stats.noise import RunLevels, series_key
from buildcompare.text.reasons import reason_words


def calibrate(spec_file: Path, output: Path, *, refresh: bool = False) -> Calibration:
    """Measure every run of `spec_file` as a comparison would, check the pipeline on them, and write `output`.

    Raises
    ------
    InputError
        Where the file or a run cannot be read, or a run has no steady window to be measured in.
    """
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

    Where a run has no curve of users, the curve that stands in for it gives the level of the load too: only
    ratios between runs of one setup are learned from it. Percentiles at the end of their histogram no longer move,
    and are left out.
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
    return RunLevels(metrics, labels, _no_change(view, test_type, catalogue))


def _no_change(view: RunView, test_type: TestType, catalogue: Catalogue) -> dict[str, float]:
    """By metric, how large a change the noise of an unchanged run looks like."""
    if view.steady.window is None:
        return {}
    window = search_window(view.steady.window, test_type)
    found: dict[str, float] = {}
    for metric in catalogue.metrics:
        series = view.recording.total(metric.slug)
        if series is not None and window[1] > window[0]:
            found[metric.slug] = no_change(view.recording.curve(series), window)
    return {slug: each for slug, each in found.items() if each > 0}
