"""Read what a comparison is made from: params, catalogue, recordings, profiles, calibration."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from buildcompare.calibration.file import Calibration, read_calibration
from buildcompare.config.assumed import assumed_metric, open_catalogue, recognised, with_assumed
from buildcompare.config.catalogue import Catalogue, Operation, read_catalogue
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Comparison, Reported, Run, check_params, read_params
from buildcompare.config.project import resolve
from buildcompare.profiles.stacks import Profile, read_profile
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import ENDING, Slot, is_kept, read_run, shown
from buildcompare.results.codes import SIDES, Pair, Side

P = TypeVar("P", bound=Reported)
Builds = dict[Side, list[Recording]]
Tests = Sequence[Sequence[Recording]]  # for each test, the runs of both builds
BUNDLED = "params/v10.4.0-rc1.yaml"
"""Params file that a notebook without parameters reads."""


def parameters(params_file: str | None = None, **given: Any) -> Comparison:
    """Read the parameters of a notebook: a params file, or its keys as papermill fills them in.

    Parameters
    ----------
    params_file
        The path of a params file, which is read if no key is given. The default is the path in the environment
        variable ``PARAMS`` (set by ``make lab PARAMS=...``), or else the bundled comparison.
    **given
        The keys of a params file, such as ``base`` and ``tests``; None counts as not given.

    Returns
    -------
    Comparison
        The checked parameters, for :func:`compare`.

    Raises
    ------
    InputError
        If a key is missing, unknown or wrong; the message names file and key.

    Examples
    --------
    >>> parameters("params/v10.4.0-rc1.yaml", name=None).base.label
    'v10.3.0'
    """
    return parameters_of(params_file or os.environ.get("PARAMS") or BUNDLED, given, read_params, check_params)


def parameters_of(file: str, given: dict[str, Any], read: Callable[[Path], P], check: Callable[[Any], P]) -> P:
    """Check the `given` keys, which must include a name; if all are None, read `file` instead."""
    given = {key: value for key, value in given.items() if value is not None}
    if not given:
        return read(resolve(file))
    params = check(given)
    if params.name is None:
        expected = "`name: NAME` in the params file (a notebook cannot see the name of the file)"
        raise InputError(file=None, key="name", expected=expected, found="none")
    return params


def catalogue_of(params: Comparison, catalogue: Catalogue | None = None) -> Catalogue:
    """Return `catalogue`, else the one that `params` name, else all merged; settings in `params` override it."""
    if catalogue is None and params.metrics is None:
        return open_catalogue().with_operations(params.operations)
    try:
        catalogue = read_catalogue(catalogue or params.metrics or "")
    except InputError as error:
        raise params.fault_at(("metrics",), error) from None
    catalogue = catalogue.with_operations(params.operations, assumed_metric)
    try:
        return catalogue.with_margins(params.margins)
    except InputError as error:
        fault = InputError(file=None, key=None, expected=error.expected, found=error.found)
        raise params.fault_at(("margins", str(error.key).removeprefix("margins.")), fault) from None


def fitted(params: Comparison, tests: Tests, catalogue: Catalogue | None = None) -> tuple[Comparison, Catalogue]:
    """Return parameters and catalogue; if no catalogue is stated, merge all that fit and name them in `params`."""
    if catalogue is None and params.metrics is None:
        listed, name, _ = _fitting(tests, params.operations)
        params, catalogue = params.model_copy(update={"metrics": name}), with_assumed(listed, _units(*tests))
    return params, catalogue_of(params, catalogue)


def pull_recordings(params: Comparison, *, refresh: bool = False, quiet: bool = False) -> None:
    """Pull runs from their server if they are not in the cache; with `refresh`, pull cached runs again too."""
    catalogue = catalogue_of(params)
    pulled = [(slot, run) for slot, run in runs_of(params) if run.is_pulled]
    missing = [(slot, run) for slot, run in pulled if refresh or not is_kept(slot, run, params.source, catalogue)]
    for slot, run in shown(missing, quiet=quiet):
        _read(params, catalogue, slot, run, refresh=refresh)


def read_recordings(params: Comparison, *, refresh: bool = False) -> dict[str, dict[Side, list[Recording]]]:
    """Read all runs, by test and build. Runs on a server are pulled once and cached; `refresh` pulls them again."""
    pull_recordings(params, refresh=refresh)
    catalogue, runs = catalogue_of(params), [*runs_of(params)]
    found = [_read(params, catalogue, *each) for each in runs]
    if params.metrics is None:
        tests = [[found[i] for i, (slot, _) in enumerate(runs) if slot.test == test.name] for test in params.tests]
        listed, _, alike = _fitting(tests, params.operations)
        found = found if alike else [_read(params, listed, *each) for each in runs]
        named, _ = fitted(params, tests)  # this checks the margins; the calibration is checked next
        if named.calibration is not None:
            calibration_of(named, named.calibration)
    recordings: dict[str, dict[Side, list[Recording]]] = {test.name: {"base": [], "new": []} for test in params.tests}
    for (slot, _), recording in zip(runs, found, strict=True):
        recordings[slot.test][slot.build].append(recording)
    return recordings


def runs_of(params: Comparison) -> Iterator[tuple[Slot, Run]]:
    """Yield every run of the comparison with its slot: the test, the build and the number of the run."""
    for test in params.tests:
        for side in SIDES:
            for number, run in enumerate(test.runs(side), start=1):
                yield Slot(params.name or "", test.name, side, number), run


def _read(params: Comparison, catalogue: Catalogue, slot: Slot, run: Run, *, refresh: bool = False) -> Recording:
    """Read a run; errors name the place of the run in the params."""
    try:
        recording = read_run(run, params.source, catalogue, slot, refresh=refresh)
        return recording if run.session is None else replace(recording, session=run.session)
    except (InputError, SourceError) as error:
        test = [each.name for each in params.tests].index(slot.test)
        if not run.is_pulled and isinstance(error, InputError):
            location = ("tests", test, slot.build, slot.run - 1, *run.place_of(error))
            raise params.fault_at(location, error) from None
        place = f"tests[{test}].{slot.build}[{slot.run - 1}] ({slot.test}, {slot.build}, run {slot.run})"
        raise error.within(place) from None


def read_profiles(params: Comparison) -> dict[str, Pair[list[Profile]] | None]:
    """Read the profiles of each test; None for a test without profiles."""

    def read(number: int, side: Side) -> list[Profile]:
        profiles = []
        for i, path in enumerate(getattr(params.tests[number].profiles, side)):
            try:
                profiles.append(read_profile(path))
            except InputError as error:
                raise params.fault_at(("tests", number, "profiles", side, i), error) from None
        return profiles

    return {
        test.name: Pair(read(number, "base"), read(number, "new")) if test.profiles else None
        for number, test in enumerate(params.tests)
    }


def calibration_of(params: Comparison, file: str) -> Calibration:
    """Read the calibration `file`, which `params` name."""
    try:
        return read_calibration(file, params.metrics)
    except InputError as error:
        raise params.fault_at(("calibration",), error) from None


def with_catalogue(
    read: Callable[[Catalogue], Builds], catalogue: str | None, inline: Mapping[str, Operation]
) -> tuple[Builds, Catalogue, str]:
    """Read the runs of both builds with the named catalogue; without a name, with one that fits the runs' metrics.

    Returns the runs, the catalogue, and the name of the catalogue (empty if no catalogue fits).
    """
    if catalogue is not None:
        named = read_catalogue(catalogue).with_operations(inline, assumed_metric)
        return read(named), named, catalogue
    runs = read(open_catalogue().with_operations(inline))
    listed, name, alike = _fitting([[*runs["base"], *runs["new"]]], inline)
    runs = runs if alike else read(listed)
    return runs, with_assumed(listed, _units(runs["base"], runs["new"])), name


def _fitting(tests: Tests, inline: Mapping[str, Operation]) -> tuple[Catalogue, str, bool]:
    """Merge catalogues that fit; return the result, its name, and whether all catalogues would give equal metrics."""
    every, units = open_catalogue().with_operations(inline), [_units(runs) for runs in tests]
    names = sorted({name for each in units if (name := recognised(metric for metric in each if metric not in inline))})
    listed = open_catalogue(names).with_operations(inline)
    return listed, ", ".join(names), all(listed.find(name) == every.find(name) for each in units for name in each)


def _units(*tests: Iterable[Recording]) -> dict[str, str]:
    """Map the name of each series and measurement of the runs to its unit."""
    units: dict[str, str] = {}
    for run in itertools.chain(*tests):
        units |= {each.name: each.unit for each in run.graphs()} | {each.name: each.unit for each in run.measurements}
    return units


def build_names(
    stated: tuple[str | None, str | None], inputs: Sequence[Sequence[object]], runs: Builds
) -> tuple[str, str]:
    """Name both builds: as stated, else by their recordings, else by file or folder, else ``base`` and ``new``."""
    names: list[str] = [*SIDES]
    for i, (build, side) in enumerate(zip(inputs, SIDES, strict=True)):
        recorded = {str(run.provenance.get("label") or "") for run in runs[side]}
        if len(recorded) == 1 and all(recorded):
            names[i] = recorded.pop()
        elif len(build) == 1 and isinstance(build[0], (str, os.PathLike)):
            names[i] = ENDING.sub("", Path(build[0]).resolve().name) or side
    base, new = names if names[0] != names[1] else [*SIDES]
    return stated[0] or base, stated[1] or new
