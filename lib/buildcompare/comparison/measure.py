"""Measure and judge one test, from its recordings to its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildcompare import results as schema
from buildcompare.comparison.drift import with_drifts
from buildcompare.comparison.matching import without_build_labels
from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.findings import verdict
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.tables import judge_label_tables, label_tables
from buildcompare.labels.traffic_mix import TrafficMix, explained_by_labels, split_averages
from buildcompare.load.ramps import compare_ramps, with_ramp_ups
from buildcompare.load.users import compare_supported_users, limited_by, with_estimates
from buildcompare.load.view import RunView, Views, view_run
from buildcompare.metrics.compare import compare_error_rates, judge_measured, measure_metrics
from buildcompare.metrics.compare_events import compare_events, search_events
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.metrics.events import RunEvents
from buildcompare.metrics.judge_at_load import MeasuredAtLoad, measure_at_load
from buildcompare.metrics.measurements import Measured, compare_distributions, measure_measurements, sessions_of
from buildcompare.profiles.compare import compare_profiles
from buildcompare.profiles.stacks import Profile
from buildcompare.recordings.recording import Recording, utc
from buildcompare.results.codes import SIDES, Pair, Side, ValidityStatus, Verdict
from buildcompare.stats.noise import Contrasts, RepeatedRuns
from buildcompare.stats.planning import Looks
from buildcompare.validity.rules import judge_validity

TestRecordings = Mapping[Side, Sequence[Recording]]


@dataclass(frozen=True)
class Estimates:
    """Measurements of a test, and the noise to judge them by; no field depends on the margins."""

    test: Test
    views: Views
    groups: Sequence[RepeatedRuns]
    past: Contrasts | None
    looks: Looks
    label_noise: LabelNoise
    metrics: Sequence[Measured]
    splits: Mapping[str, tuple[str, TrafficMix]]
    at_load: MeasuredAtLoad
    events: Pair[list[dict[str, RunEvents]]]


@dataclass(frozen=True)
class TestView:
    """One test: its recordings, measurements and result, as figures need them."""

    __test__ = False  # tells pytest that this is no test class

    result: schema.TestResult
    recordings: TestRecordings
    catalogue: Catalogue
    labels: Pair[str]
    at_load: Mapping[str, MetricAtLoad]
    """Slug of a metric -> its values over connected users in both builds. Filled only for valid unbounded tests."""
    estimates: Estimates | None = None
    profiles: Pair[list[Profile]] | None = None


def compare_test(
    test: Test,
    recordings: TestRecordings,
    catalogue: Catalogue,
    *,
    coordinator: Coordinator | None = None,
    groups: Sequence[RepeatedRuns] = (),
    past: Contrasts | None = None,
    label_noise: LabelNoise | None = None,
    labels: tuple[str, str] = SIDES,
    looks: Sequence[tuple[int, int]] = (),
    planned_runs: int | None = None,
    profiles: Pair[list[Profile]] | None = None,
) -> TestView:
    """Measure and judge the runs of one test.

    The noise between runs is learned from `groups` of repeated runs and from `past` comparisons, or else taken from
    `catalogue`. `label_noise` is the noise of labels; several tests can share it. `looks` holds the numbers of base and
    new runs at each earlier analysis. `planned_runs` is the planned number of runs of each build.
    """
    coordinator, label_noise = coordinator or Coordinator(), label_noise or LabelNoise(groups, catalogue.label_tables)
    names, recordings = Pair(*labels), without_build_labels(recordings)
    validity, views = _viewed(test, recordings, catalogue, coordinator, names)
    tables = label_tables(views, label_noise)
    sessions = sessions_of(recordings)
    now = (len(sessions.names.base), len(sessions.names.new)) if sessions else (len(test.base), len(test.new))
    every_look = [*(look for look in looks if look != now), now]
    seen = Looks.of(every_look, planned_runs)
    if test.type == "benchmark":
        metrics, splits = measure_measurements(recordings, catalogue, groups, past), {}
    else:
        metrics, splits = measure_metrics(test, views, catalogue, groups, past), split_averages(tables, catalogue)
        metrics = with_drifts(metrics, views, catalogue) if test.type == "bounded" else metrics
    invalid = validity.status == ValidityStatus.INVALID
    at_load = MeasuredAtLoad() if invalid else measure_at_load(test, views, catalogue, groups)
    events = search_events(test, views, catalogue, groups)
    estimates = Estimates(test, views, groups, past, seen, label_noise, metrics, splits, at_load, events)
    counted = Pair.of(lambda side: [run.errors for run in test.runs(side)])
    unjudged = schema.TestResult(
        name=test.name, type=test.type, db_engine=test.db_engine, users=test.users,
        runs=views.map(lambda runs: [run_result(view, catalogue) for view in runs]),
        ramp_up=compare_ramps(views),
        distributions=compare_distributions(recordings, catalogue) if test.type == "benchmark" else [],
        errors=compare_error_rates(test, views, seen),
        errors_counted=counted if any(count is not None for counts in counted for count in counts) else None,
        labels=[row for row, _ in judge_label_tables(tables, catalogue)],
        validity=validity,
        looks=every_look,
        level=seen.level,
        planned_runs=planned_runs,
        sessions=sessions,
        limited_by=limited_by(test, views, catalogue, coordinator),
        profiles=None if profiles is None else compare_profiles(profiles),
        verdict=Verdict.INCONCLUSIVE, metrics=[], supported_users=None, events=[],  # `judge_test` fills these in
    )  # fmt: skip
    return judge_test(TestView(unjudged, recordings, catalogue, names, at_load.curves, estimates, profiles), catalogue)


def _viewed(
    test: Test, recordings: TestRecordings, catalogue: Catalogue, coordinator: Coordinator, labels: Pair[str]
) -> tuple[schema.Validity, Views]:
    """Return the validity of a test, and its runs. Steady windows are cut to each run's valid part."""
    repeated = test.type == "bounded" and min(len(recordings[side]) for side in SIDES) > 1
    recorded = ({series.metric for series in each.graphs()} for side in SIDES for each in recordings[side])
    shared = set[str].intersection(*recorded)

    def view(side: Side) -> list[RunView]:
        views = [
            replace(view_run(recording, test.type, catalogue, coordinator, repeated=repeated, shared=shared), run=run)
            for recording, run in zip(recordings[side], test.runs(side), strict=True)
        ]
        if any(view.steady.window for view in views):  # then show no levels of runs without a steady window
            views = [replace(view, steady=replace(view.steady, shown=None)) for view in views]
        return views

    views = with_estimates(test, Pair.of(view))
    validity, views = judge_validity(test, views, catalogue, coordinator, labels)
    return validity, with_ramp_ups(views)


def judge_test(view: TestView, catalogue: Catalogue) -> TestView:
    """Judge the measurements of a test by the margins of `catalogue`; a view without `estimates` stays as it is."""
    if (estimates := view.estimates) is None:
        return view
    test, looks, users = estimates.test, estimates.looks, None
    if test.type == "unbounded":
        users = compare_supported_users(test, estimates.views, catalogue, estimates.groups, estimates.past, looks)
    at_load = estimates.at_load.judged(catalogue, looks)
    splits, effects = estimates.splits, [(each.row, each.effect) for each in estimates.metrics]
    if test.type == "bounded":
        splits = explained_by_labels(view.result.labels, effects, catalogue, splits)
    metrics = judge_measured(estimates.metrics, test, catalogue, at_load=at_load, splits=splits, looks=looks)
    events = compare_events(estimates.events, catalogue)
    result = view.result.model_copy(update={"supported_users": users, "metrics": metrics, "events": events})
    result = result.model_copy(update={"verdict": verdict.of_test(result)})
    return replace(view, result=result, catalogue=catalogue)


def run_result(view: RunView, catalogue: Catalogue) -> schema.RunResult:
    """Describe one run for results.json: its windows, validity and missing metrics."""
    recording, stop = view.recording, view.stop
    recorded = {series.metric for series in recording.graphs()}
    wanted = [] if recording.measurements and not recorded else catalogue.metrics  # none for benchmarks without series
    until = stop.at_s if stop else recording.duration_s  # exclude the time after the stop, when rates are NaN
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
        missing=[metric.slug for metric in wanted if metric.slug not in recorded],
        notes=[note.text for note in recording.notes],
        server=_server(recording),
        samples_sha256=recording.samples_sha256,
    )


def _server(recording: Recording) -> schema.ServerResult | None:
    """Describe the server of a pulled recording; None if the provenance does not describe one."""
    origin = recording.provenance
    try:
        return schema.ServerResult(
            **origin["server"],
            **{name: origin[name] for name in ("url", "step_s", "label_step_s", "counter_resets", "warnings")},
            queries=len(origin["queries"]),
            points=sum(query["points"] for query in origin["queries"]),
            missing_points=sum(query["missing_points"] for query in origin["queries"] if query["role"] == "graph"),
        )
    except (KeyError, TypeError, ValueError):
        return None
