"""Measure and judge one test, from its recordings to its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from buildcompare import results as schema
from buildcompare.config.catalogue import Catalogue
from buildcompare.config.params import Coordinator, Test
from buildcompare.findings import verdict
from buildcompare.labels.noise import LabelNoise
from buildcompare.labels.tables import LabelTables, compare_label_tables, label_tables
from buildcompare.labels.traffic_mix import TrafficMix, split_averages
from buildcompare.load.users import compare_supported_users, limited_by, with_estimates
from buildcompare.load.view import RunView, Views, compare_ramps, view_run, with_ramp_ups
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
    """Measurements of a test, which do not depend on margins, and the noise by which they are judged."""

    test: Test
    recordings: TestRecordings
    views: Views
    labels: Pair[str]
    groups: Sequence[RepeatedRuns]
    past: Contrasts | None
    looks: Looks
    label_noise: LabelNoise
    profiles: Pair[list[Profile]] | None
    unjudged: schema.TestResult
    """Its result before judgement: without supported users, metrics and events."""
    metrics: Sequence[Measured]
    splits: Mapping[str, tuple[str, TrafficMix]]
    at_load: MeasuredAtLoad
    events: Pair[list[dict[str, RunEvents]]]


@dataclass(frozen=True)
class TestView:
    """One test: its recordings, measurements and result, as figures need them."""

    __test__ = False  # not a test class of pytest's

    result: schema.TestResult
    recordings: TestRecordings
    catalogue: Catalogue
    labels: Pair[str]
    at_load: Mapping[str, MetricAtLoad]
    """Each metric over the connected users, by slug; empty in a bounded test."""
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

    The noise between runs is learned from `groups` of repeated runs and from `past` comparisons, else it is the
    catalogue's. `label_noise` is the noise of labels learned from `groups`, if several tests share it. `looks` are the
    runs of base and new at earlier looks at this test, `planned_runs` the final number of runs of each build.
    """
    coordinator, label_noise = coordinator or Coordinator(), label_noise or LabelNoise(groups, catalogue.label_tables)

    def view(side: Side) -> list[RunView]:
        views = [view_run(recording, test.type, catalogue, coordinator) for recording in recordings[side]]
        return [replace(view, run=run) for view, run in zip(views, test.runs(side), strict=True)]

    views, names = Pair.of(view), Pair(*labels)
    validity, views = judge_validity(test, with_estimates(test, views), catalogue, coordinator, names)
    views = with_ramp_ups(views)
    tables = label_tables(views, label_noise)
    sessions = sessions_of(recordings)
    now = (len(sessions.names.base), len(sessions.names.new)) if sessions else (len(test.base), len(test.new))
    every_look = [*(look for look in looks if look != now), now]
    seen = Looks.of(every_look, planned_runs)
    unjudged = _unjudged(test, recordings, views, catalogue, tables, validity, seen)
    settings = {
        "looks": every_look,
        "level": seen.level,
        "planned_runs": planned_runs,
        "sessions": sessions,
        "limited_by": limited_by(test, views, catalogue, coordinator),
        "profiles": None if profiles is None else compare_profiles(profiles),
    }
    unjudged = unjudged.model_copy(update=settings)
    if test.type == "benchmark":
        metrics, splits = measure_measurements(recordings, catalogue, groups, past), {}
    else:
        metrics, splits = measure_metrics(test, views, catalogue, groups, past), split_averages(tables, catalogue)
    valid = validity.status != ValidityStatus.INVALID
    at_load = measure_at_load(test, views, catalogue, groups) if valid else MeasuredAtLoad()
    events = search_events(test, views, catalogue, groups)
    estimates = Estimates(
        test, recordings, views, names, groups, past, seen, label_noise, profiles, unjudged, metrics, splits, at_load,
        events,
    )  # fmt: skip
    return judge_test(estimates, catalogue)


def _unjudged(
    test: Test,
    recordings: TestRecordings,
    views: Views,
    catalogue: Catalogue,
    tables: LabelTables,
    validity: schema.Validity,
    looks: Looks,
) -> schema.TestResult:
    counted = Pair.of(lambda side: [run.errors for run in test.runs(side)])
    return schema.TestResult(
        name=test.name,
        type=test.type,
        db_engine=test.db_engine,
        users=test.users,
        verdict=Verdict.INCONCLUSIVE,
        runs=views.map(lambda runs: [run_result(view, catalogue) for view in runs]),
        supported_users=None,
        ramp_up=compare_ramps(views),
        metrics=[],
        distributions=compare_distributions(recordings, catalogue) if test.type == "benchmark" else [],
        errors=compare_error_rates(test, views, looks),
        errors_counted=counted if any(count is not None for counts in counted for count in counts) else None,
        labels=compare_label_tables(tables, catalogue),
        events=[],
        validity=validity,
    )


def judge_test(estimates: Estimates, catalogue: Catalogue) -> TestView:
    """Judge the measurements of a test by the margins of `catalogue`."""
    test, views, looks, unjudged = estimates.test, estimates.views, estimates.looks, estimates.unjudged
    users = None
    if test.type == "unbounded":
        users = compare_supported_users(test, views, catalogue, estimates.groups, estimates.past, looks)
    at_load = estimates.at_load.judged(catalogue, looks)
    metrics = judge_measured(estimates.metrics, test, catalogue, at_load=at_load, splits=estimates.splits, looks=looks)
    judged = {
        "verdict": verdict.of_test(metrics, users, unjudged.validity, unjudged.errors),
        "supported_users": users,
        "metrics": metrics,
        "events": compare_events(estimates.events, test, views, catalogue),
    }
    result = unjudged.model_copy(update=judged)
    curves, profiles = estimates.at_load.curves, estimates.profiles
    return TestView(result, estimates.recordings, catalogue, estimates.labels, curves, estimates, profiles)


def run_result(view: RunView, catalogue: Catalogue) -> schema.RunResult:
    """One run, with the metrics that it lacks."""
    recording, stop = view.recording, view.stop
    recorded = {series.metric for series in recording.graphs()}
    wanted = [] if recording.measurements and not recorded else catalogue.metrics  # benchmarks need no series
    until = stop.at_s if stop else recording.duration_s  # after the stop rates are NaN
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
    """The server of a pulled recording; None if the provenance has another form."""
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
