"""A whole comparison: parameters in, recordings read, every test compared, findings drawn."""

import datetime as dt
import functools
import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from buildcompare import findings
from buildcompare import results as schema
from buildcompare.calibration.learn import Calibration, beside_runs, groups_without, read_calibration
from buildcompare.comparison import artefacts
from buildcompare.comparison.plan import plan_tests
from buildcompare.config.catalogue import Catalogue, read_catalogue
from buildcompare.config.errors import InputError, SourceError
from buildcompare.config.params import Comparison, Coordinator, Run, Test, check_params, read_params
from buildcompare.config.project import commit, resolve, root
from buildcompare.findings import history as findings_history
from buildcompare.findings import verdict
from buildcompare.history.chain import Past, compare_to_ledger, supported_users_noise
from buildcompare.history.entry import entry_of
from buildcompare.history.ledger import Entry, locked, read_ledger, record
from buildcompare.history.past import past_changes
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.tables import LabelTables, compare_label_tables, label_tables
from buildcompare.labels.traffic_mix import TrafficMix, split_averages
from buildcompare.load.users import compare_supported_users, limited_by, with_estimates
from buildcompare.load.view import RunView, Views, compare_ramps, view_run, with_ramp_ups
from buildcompare.metrics.compare import compare_counted_errors, compare_error_rates, judge_measured, measure_metrics
from buildcompare.metrics.equal_load import MeasuredAtLoad, MetricAtLoad, measure_at_load
from buildcompare.metrics.events import Found, compare_events, search_events
from buildcompare.metrics.measurements import Measured, compare_distributions, measure_measurements
from buildcompare.profiles.compare import compare_profiles
from buildcompare.profiles.stacks import Profile, read_profile
from buildcompare.recordings.recording import Recording, utc
from buildcompare.recordings.sources import Slot, is_kept, read_run, shown
from buildcompare.results.base import Label
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.stats.noise import PastChanges, RepeatedRuns
from buildcompare.stats.planning import Looks
from buildcompare.stats.pooling import pool_metrics
from buildcompare.text.sentences import say
from buildcompare.validity.rules import judge_validity

BUNDLED = "params/v10.4.0-rc1.yaml"
"""What a notebook opens when nobody said what to compare."""

TestRecordings = Mapping[Side, Sequence[Recording]]


@dataclass(frozen=True)
class Evidence:
    """What the runs of a test were judged by: what to judge other windows of them by, too."""

    test: Test
    views: Views
    groups: Sequence[RepeatedRuns]
    past: PastChanges | None
    looks: Looks
    label_noise: LabelNoise


@dataclass(frozen=True)
class Estimates:
    """What was measured of a test: all that the margins change nothing about."""

    evidence: Evidence
    recordings: TestRecordings
    labels: Pair[str]
    profiles: Pair[list[Profile]] | None
    known: Mapping[str, Any]
    """The fields of its result that are not judged."""
    metrics: Sequence[Measured]
    splits: Mapping[str, tuple[str, TrafficMix]]
    at_load: MeasuredAtLoad
    events: Pair[list[Found]]


@dataclass(frozen=True)
class TestView:
    """One test with what it was measured on and what came out: what a figure needs."""

    __test__ = False  # not a test class of pytest's

    result: schema.TestResult
    recordings: TestRecordings
    catalogue: Catalogue
    labels: Pair[str]
    at_load: Mapping[str, MetricAtLoad]
    """By slug, each metric over the connected users; empty in a bounded test."""
    estimates: Estimates | None = None
    profiles: Pair[list[Profile]] | None = None


@dataclass(frozen=True)
class Analysis:
    """A comparison that was read and analysed."""

    params: Comparison
    catalogue: Catalogue
    recordings: Mapping[str, TestRecordings]
    results: schema.Results
    compared: Mapping[str, TestView]
    """By the test's name."""

    def tests(self) -> list[TestView]:
        """Every test with its recordings, in the order of the params."""
        return [replace(self.compared[test.name], result=test) for test in self.results.tests]


def parameters(params_file: str | None = None, **given: Any) -> Comparison:
    """The checked parameters of a notebook: those of a params file, or its keys as papermill fills them in.

    Without either, the file is read that the environment variable ``PARAMS`` names (JupyterLab tells its kernels
    nothing in another way), or else the bundled comparison. A key that is None was not given.
    """
    given = {key: value for key, value in given.items() if value is not None}
    if not given:
        return read_params(resolve(params_file or os.environ.get("PARAMS") or BUNDLED))
    comparison = check_params(given)
    if comparison.name is None:
        expected = "`name: ...` in the params file, whose own name papermill does not tell a notebook"
        raise InputError(file=None, key="name", expected=expected, found="none")
    return comparison


def catalogue_of(params: Comparison) -> Catalogue:
    """The catalogue that `params` names, with their margins."""
    try:
        catalogue = read_catalogue(params.metrics)
    except InputError as error:
        raise params.fault_at(("metrics",), error) from None
    catalogue = catalogue.with_operations(params.operations)
    try:
        return catalogue.with_margins(params.margins)
    except InputError as error:
        fault = InputError(file=None, key=None, expected=error.expected, found=error.found)
        raise params.fault_at(("margins", str(error.key).removeprefix("margins.")), fault) from None


def pull_recordings(params: Comparison, *, refresh: bool = False, quiet: bool = False) -> None:
    """Pull the runs that are not at hand from their server, or with `refresh` all that come from one."""
    catalogue = catalogue_of(params)
    missing = [
        (slot, run)
        for slot, run in runs_of(params)
        if run.is_pulled and (refresh or not is_kept(slot, run, params.source, catalogue))
    ]
    for slot, run in shown(missing, quiet=quiet):
        _read(params, catalogue, slot, run, refresh=refresh)


def read_recordings(params: Comparison, *, refresh: bool = False) -> dict[str, dict[Side, list[Recording]]]:
    """Read every run; what must be pulled from a server is pulled once and kept (`refresh`: again)."""
    pull_recordings(params, refresh=refresh)
    catalogue = catalogue_of(params)
    recordings: dict[str, dict[Side, list[Recording]]] = {test.name: {"base": [], "new": []} for test in params.tests}
    for slot, run in runs_of(params):
        recordings[slot.test][slot.build].append(_read(params, catalogue, slot, run))
    return recordings


def runs_of(params: Comparison) -> Iterator[tuple[Slot, Run]]:
    """Every run of the comparison, and its place in it."""
    for test in params.tests:
        for side in SIDES:
            for number, run in enumerate(test.runs(side), start=1):
                yield Slot(params.name or "", test.name, side, number), run


def _read(params: Comparison, catalogue: Catalogue, slot: Slot, run: Run, *, refresh: bool = False) -> Recording:
    """Read a run; a fault says which one of the params it was met in."""
    try:
        return read_run(run, params.source, catalogue, slot, refresh=refresh)
    except (InputError, SourceError) as error:
        test = [each.name for each in params.tests].index(slot.test)
        if not run.is_pulled and isinstance(error, InputError):
            location = ("tests", test, slot.build, slot.run - 1, *run.place_of(error))
            raise params.fault_at(location, error) from None
        place = f"tests[{test}].{slot.build}[{slot.run - 1}] ({slot.test}, {slot.build}, run {slot.run})"
        raise error.within(place) from None


def read_profiles(params: Comparison) -> dict[str, Pair[list[Profile]] | None]:
    """The profiles of each test that has some."""
    return {test.name: _profiles(params, number) for number, test in enumerate(params.tests)}


def _profiles(params: Comparison, number: int) -> Pair[list[Profile]] | None:
    """The profiles of one test; a fault says which one of the params it was met in."""
    named = params.tests[number].profiles
    if named is None:
        return None
    found: dict[Side, list[Profile]] = {"base": [], "new": []}
    for side in SIDES:
        for i, path in enumerate(getattr(named, side)):
            try:
                found[side].append(read_profile(path))
            except InputError as error:
                raise params.fault_at(("tests", number, "profiles", side, i), error) from None
    return Pair.of(found.__getitem__)


def compare_test(test: Test, recordings: TestRecordings, catalogue: Catalogue, **known: Any) -> TestView:
    """Compare the runs of one test; what may be `known` are arguments of :func:`measure_test`."""
    return judge_test(measure_test(test, recordings, catalogue, **known), catalogue)


def measure_test(
    test: Test,
    recordings: TestRecordings,
    catalogue: Catalogue,
    *,
    coordinator: Coordinator | None = None,
    groups: Sequence[RepeatedRuns] = (),
    past: PastChanges | None = None,
    label_noise: LabelNoise | None = None,
    labels: tuple[str, str] = SIDES,
    looks: Sequence[tuple[int, int]] = (),
    planned_runs: int | None = None,
    profiles: Pair[list[Profile]] | None = None,
) -> Estimates:
    """Measure the runs of one test.

    The noise between runs is learned from `groups`, the repeated runs, and from `past` comparisons, or else is the
    catalogue's; `label_noise` is what was learned of labels from `groups`, where several tests share it. `looks` are
    the runs of base and new at earlier looks at this test, `planned_runs` those of each build that there will be in
    the end.
    """
    coordinator = coordinator or Coordinator()
    views = Pair.of(
        lambda side: [
            replace(view_run(recording, test.type, catalogue, coordinator), run=run)
            for recording, run in zip(recordings[side], test.runs(side), strict=True)
        ]
    )
    validity, views = judge_validity(test, with_estimates(test, views), catalogue, coordinator, Pair(*labels))
    views = with_ramp_ups(views)
    now = len(test.base), len(test.new)
    every_look = [*(look for look in looks if look != now), now]
    seen = Looks.of(every_look, planned_runs)
    evidence = Evidence(test, views, groups, past, seen, label_noise or LabelNoise(groups, catalogue.label_tables))
    tables = label_tables(views, evidence.label_noise)
    benchmark = test.type == "benchmark"
    measured = measure_measurements(recordings, catalogue, groups, past) if benchmark else None
    counted = Pair.of(lambda side: [run.errors for run in test.runs(side)])
    known: dict[str, Any] = {
        **{name: getattr(test, name) for name in ("name", "type", "db_engine", "users")},
        "limited_by": limited_by(test, views, catalogue, coordinator),
        "runs": views.map(lambda runs: [run_result(view, catalogue) for view in runs]),
        "ramp_up": compare_ramps(views),
        "distributions": compare_distributions(recordings, catalogue) if benchmark else [],
        "errors": [*compare_error_rates(views), *compare_counted_errors(test, views)],
        "errors_counted": counted if any(count is not None for counts in counted for count in counts) else None,
        "labels": compare_label_tables(tables, catalogue),
        "profiles": None if profiles is None else compare_profiles(profiles),
        "validity": validity,
        "looks": every_look,
        "level": seen.level,
        "planned_runs": planned_runs,
    }
    return Estimates(
        evidence,
        recordings,
        Pair(*labels),
        profiles,
        known,
        metrics=measure_metrics(test, views, catalogue, groups, past) if measured is None else measured,
        splits={} if benchmark else split_averages(tables, catalogue),
        at_load=measure_at_load(test, views, catalogue, groups, past),
        events=search_events(test, views, catalogue, groups),
    )


def compare_levels(
    evidence: Evidence,
    tables: LabelTables,
    catalogue: Catalogue,
    *,
    at_load: Mapping[str, schema.LoadAdjustedResult] | None = None,
) -> list[schema.MetricResult]:
    """Every metric of a test over the windows of `evidence.views`, judged in its family."""
    test, views, looks = evidence.test, evidence.views, evidence.looks
    measured = measure_metrics(test, views, catalogue, evidence.groups, evidence.past)
    splits = split_averages(tables, catalogue)
    return judge_measured(measured, test, catalogue, at_load=at_load, splits=splits, looks=looks)


def judge_test(estimates: Estimates, catalogue: Catalogue) -> TestView:
    """Judge what was measured of a test by the margins of `catalogue`."""
    evidence = estimates.evidence
    test, views, groups, looks = evidence.test, evidence.views, evidence.groups, evidence.looks
    users = None
    if test.type == "unbounded":
        users = compare_supported_users(test, views, catalogue, groups, evidence.past, looks)
    at_load = estimates.at_load.judged(catalogue, looks)
    known: dict[str, Any] = {"at_load": at_load, "splits": estimates.splits, "looks": looks}
    metrics = judge_measured(estimates.metrics, test, catalogue, **known)
    result = schema.TestResult(
        **estimates.known,
        verdict=verdict.of_test(metrics, users, estimates.known["validity"], estimates.known["errors"]),
        supported_users=users,
        metrics=metrics,
        events=compare_events(estimates.events, test, views, catalogue),
    )
    curves, profiles = estimates.at_load.curves, estimates.profiles
    return TestView(result, estimates.recordings, catalogue, estimates.labels, curves, estimates, profiles)


def run_result(view: RunView, catalogue: Catalogue) -> schema.RunResult:
    """One run, with what it misses."""
    recording, stop = view.recording, view.stop
    found = {series.metric for series in recording.graphs()}
    wanted = [] if recording.measurements and not found else catalogue.metrics  # nobody asked for a series
    until = stop.at_s if stop else recording.duration_s  # after the stop nobody asks, and rates of nothing are NaN
    return schema.RunResult(
        start=utc(recording.window[0]),
        end=utc(recording.window[1]),
        duration_s=recording.duration_s,
        stop_s=stop.at_s if stop else None,
        shutdown=bool(stop and stop.shutdown),
        window=view.steady.window,
        window_method=view.steady.method,
        window_reason=view.steady.reason,
        load_curve=view.load_slug,
        phases=list(view.shape.phases) if view.shape else [],
        ramp_up=view.ramp_up,
        validity=view.validity,
        estimated_supported_users=view.estimate,
        reported_supported_users=view.run.supported_users,
        coverage=[recording.coverage(series, (0.0, until)) for series in recording.graphs()],
        missing=[metric.slug for metric in wanted if metric.slug not in found],
        notes=[note.text for note in recording.notes],
        server=_server(recording),
        samples_sha256=recording.samples_sha256,
    )


def _server(recording: Recording) -> schema.ServerResult | None:
    """What the recording knows of the server that it was pulled from; None where others wrote something else there."""
    known = recording.provenance
    try:
        return schema.ServerResult(
            **known["server"],
            **{name: known[name] for name in ("url", "step_s", "label_step_s", "counter_resets", "warnings")},
            queries=len(known["queries"]),
            points=sum(query["points"] for query in known["queries"]),
            missing_points=sum(query["missing_points"] for query in known["queries"] if query["role"] == "graph"),
        )
    except (KeyError, TypeError, ValueError):
        return None


def analyse(params: Comparison, recordings: Mapping[str, TestRecordings], *, command: str | None = None) -> Analysis:
    """Compare the builds in every test and draw the findings; `command` makes the report again."""
    catalogue = catalogue_of(params)
    own = [recording for test in recordings.values() for side in SIDES for recording in test[side]]
    groups, self_check = (
        groups_without(calibration_of(params, params.calibration), own) if params.calibration else ([], None)
    )
    catalogue = beside_runs(catalogue, groups)
    labels = (params.base.label, params.new.label)
    shared: dict[str, Any] = {"coordinator": params.coordinator, "groups": groups, "labels": labels}
    simulated = any(recording.simulated for recording in own)
    ledger = None if params.history is None else read_ledger(resolve(params.history, is_folder=True))
    if ledger is not None:
        samples = {run.samples_sha256 for run in own}
        shared["past"] = past_changes(ledger, params, samples, catalogue, simulated=simulated)
    shared["label_noise"] = LabelNoise(groups, catalogue.label_tables)
    shared["planned_runs"] = params.planned_runs
    kept = ledger.find(entry_of(params, position=1)) if ledger else None
    looks = {test.name: test.all_looks for test in kept.tests} if kept and kept.name == params.name else {}
    profiles = read_profiles(params)
    compared = {}
    for test in params.tests:
        own_data: dict[str, Any] = {"looks": looks.get(test.name, ()), "profiles": profiles[test.name]}
        compared[test.name] = compare_test(test, recordings[test.name], catalogue, **own_data, **shared)
    inputs = [
        schema.InputProvenance(test=test.name, build=side, run=i, kind=str(run.provenance.get("kind", "")), **file)
        for test in params.tests
        for side in SIDES
        for i, run in enumerate(recordings[test.name][side], start=1)
        for file in run.provenance.get("files", ())
    ]
    inputs += [
        schema.InputProvenance(test=name, build=side, run=i, kind="profile", **profile.provenance)
        for name, both in profiles.items()
        for side in SIDES
        for i, profile in enumerate(both[side] if both else (), start=1)
    ]
    past: Past | None = None
    if ledger is not None:
        noise = supported_users_noise(catalogue, groups)
        tests = [each.result for each in compared.values()]
        past = compare_to_ledger(ledger, params, tests, noise, simulated=simulated)
    known: dict[str, Any] = {"simulated": simulated, "self_check": self_check, "past": past}
    results = _concluded(params, catalogue, compared, inputs=inputs, command=command, **known)
    return Analysis(params, catalogue, recordings, results, compared)


A = TypeVar("A", bound=Analysis)


def with_margins(analysis: A, margins: Mapping[str, float]) -> A:
    """The same comparison judged by other margins (percent by metric), beside those that it has.

    Nothing is read or measured again.
    """
    params = analysis.params.model_copy(update={"margins": {**analysis.params.margins, **margins}})
    catalogue, results = analysis.catalogue.with_margins(margins), analysis.results
    compared = {
        name: judge_test(view.estimates, catalogue) for name, view in analysis.compared.items() if view.estimates
    }
    past: Past | None = None
    if results.history is not None:
        margin = catalogue.load.margin_percent if catalogue.load else 0.0
        history = results.history.model_copy(update={"margin_percent": margin})
        past = history, results.drift, results.setup_differences
    known: dict[str, Any] = {"simulated": results.simulated, "self_check": results.self_check, "past": past}
    known |= {"inputs": results.provenance.inputs, "command": results.provenance.run["command"]}
    results = _concluded(params, catalogue, compared, **known)
    return replace(analysis, params=params, catalogue=catalogue, results=results, compared=compared)


def _concluded(
    params: Comparison,
    catalogue: Catalogue,
    compared: Mapping[str, TestView],
    *,
    simulated: bool,
    self_check: dict[str, Any] | None,
    past: Past | None,
    inputs: list[schema.InputProvenance],
    command: str | None,
) -> schema.Results:
    """The results of a comparison whose tests were judged."""
    tests, labels = [each.result for each in compared.values()], (params.base.label, params.new.label)
    history, drift, setup_differences = past or (None, [], [])
    return schema.Results(
        comparison=params.name or "",
        base=Label(label=labels[0]),
        new=Label(label=labels[1]),
        simulated=simulated,
        verdict=verdict.of_comparison(tests),
        verdict_rule=say("reasons", "verdict_rule"),
        setup=[schema.SetupRow(setting=setting, value=value) for setting, value in params.setup.items()],
        setup_differences=setup_differences,
        drift=drift,
        history=history,
        comments=params.comments,
        action_items=params.action_items,
        action_items_title=params.action_items_title,
        grafana=[schema.GrafanaLink(title=title, url=url) for title, url in params.grafana.items()],
        tests=tests,
        pooled=pool_metrics(tests, catalogue),
        plan=plan_tests(tests),
        self_check=self_check,
        suggestions=findings.suggest(tests, labels, findings_history.former_setup(*past) if past else ()),
        findings=findings.find(tests, labels, inputs, catalogue, findings_history.find(*past) if past else ()),
        provenance=provenance(params, params.metrics, inputs, command, artefacts.found_of(params)),
    )


def provenance(
    params: BaseModel,
    catalogue: str,
    inputs: list[schema.InputProvenance],
    command: str | None,
    left: Sequence[tuple[schema.ArtefactProvenance, object]] = (),
) -> schema.Provenance:
    """Where results come from; the parameters are the same from a file, from papermill and from a hand-filled cell."""
    told = params.model_dump(mode="json")
    asked = json.dumps(told, sort_keys=True, ensure_ascii=False)
    return schema.Provenance(
        params_sha256=hashlib.sha256(asked.encode()).hexdigest(),
        catalogue=catalogue,
        inputs=inputs,
        artefacts=[row for row, _ in left],
        run=_this_run(command or f"python -m buildcompare report params/{told['name']}.yaml"),
    )


def import_comparisons(folder: Path, ledger: Path) -> list[Entry]:
    """Analyse the comparison of every params file in `folder`, and record all of them in a ledger, or none.

    A chain in the order of the new builds' labels, numbers in them by size (v9.10 after v9.2).
    """
    files = sorted(file for pattern in ("*.yaml", "*.yml") for file in folder.glob(pattern))
    if not files:
        raise InputError(file=folder, key="FOLDER", expected="params files (*.yaml)", found="none")
    asked = [read_params(file).model_copy(update={"history": None}) for file in files]
    asked.sort(key=lambda each: [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", each.new.label)])
    entries = []
    for params in asked:
        results = analyse(params, read_recordings(params)).results
        known = {"simulated": results.simulated, "verdict": results.verdict}
        entries.append(entry_of(params, results.tests, position=1, **known))
    with locked(ledger):
        first = read_ledger(ledger).next_position
        placed = [entry.model_copy(update={"position": first + i}) for i, entry in enumerate(entries)]
        record(ledger, placed)
    return placed


def calibration_of(params: Comparison, file: str) -> Calibration:
    """The calibration that `params` name."""
    try:
        return read_calibration(file, params.metrics)
    except InputError as error:
        raise params.fault_at(("calibration",), error) from None


def _this_run(command: str) -> dict[str, Any]:
    """What differs between two runs of the same inputs."""
    created = dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"created": created, "command": command, **running_code(root())}


@functools.cache
def running_code(project: Path) -> dict[str, Any]:
    """The commit and the versions of what runs: as they were when it was imported, whatever is changed later."""
    packages = ("buildcompare", "numpy", "pandas", "scipy", "statsmodels")
    versions = {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}
    return {"git_commit": commit(project), "versions": versions}
