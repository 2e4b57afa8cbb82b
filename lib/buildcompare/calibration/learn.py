"""Learn how far runs of one build lie apart, and how often the comparison is wrong because of it."""

from __future__ import annotations

from pathlib import Path

from buildcompare.calibration.file import (
    METHOD,
    Calibration,
    KeptGroup,
    as_json,
    check_writable,
    kept_at_load,
    kept_run,
    read_spec,
    write_calibration,
)
from buildcompare.calibration.self_check import SelfCheck
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.load.view import ViewRun
from buildcompare.metrics.compare_at_load import loaded_by_proxy, loaded_run
from buildcompare.metrics.load_noise import MeasureNoiseAtLoad
from buildcompare.recordings.sources import read_run
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
    view_run = ViewRun(catalogue)
    groups = []
    places: dict[str, str] = {}
    for position, group in enumerate(spec.groups):
        runs, loaded = [], []
        for number, run in enumerate(group.runs, start=1):
            place = (f"calibration-{spec_file.stem}", group.name, "base", number)
            try:
                recording = read_run(run, spec.source, catalogue, place, refresh=refresh)
            except InputError as error:
                raise spec.fault_at(("groups", position, "runs", number - 1, *run.place_of(error)), error) from None
            view = view_run(recording, group.type)
            if view.steady.window is None:
                raise InputError(
                    file=run.file or spec_file,
                    key=f"groups.{group.name}.runs[{number - 1}]",
                    expected="a run with a steady window",
                    found=reason_words(view.steady.reason) if view.steady.reason else "none",
                )
            runs.append(kept_run(recording, view_run.levels(view, group.type)))
            loaded.append(loaded_run(view, catalogue) or loaded_by_proxy(view, catalogue))
            where = f"groups.{group.name}.runs[{number - 1}]"
            for each in runs[-1].ids:
                if (before := places.setdefault(each, where)) != where:
                    raise InputError(
                        file=run.file or spec_file, key=where, expected="another run", found=f"that of {before}"
                    )
        known = [run for run in loaded if run is not None] if group.type == "unbounded" else []
        at_load = kept_at_load(MeasureNoiseAtLoad()(known))
        groups.append(KeptGroup(name=group.name, type=group.type, runs=runs, at_load=at_load))
    calibration = Calibration(method=METHOD, metrics=spec.metrics, groups=groups)
    checked = as_json(SelfCheck(catalogue.find)(calibration.repeated_runs()))
    calibration = calibration.model_copy(update={"self_check": checked})
    write_calibration(calibration, output)
    return calibration
