"""Make findings about the recordings: validity, gaps, servers, and inputs that are probably mistakes.

Damaged files already fail when they are read. The mistakes found here leave files readable: a wrong unit, name or load.
"""

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence

from buildcompare.config.assumed import OpenCatalogue, recognised
from buildcompare.config.catalogue import Catalogue, Metric, slugify
from buildcompare.config.units import TIMES
from buildcompare.findings.finding import Found, grouped
from buildcompare.load.view import RATES
from buildcompare.results import InputProvenance, MetricResult, SeriesCoverage, TestResult
from buildcompare.results.codes import FindingKind, Severity, Side, ValidityCode, ValidityStatus, Verdict, numbered
from buildcompare.stats.levels import mean_of_runs
from buildcompare.stats.planning import ALPHA
from buildcompare.text.sentences import MOST_MOVERS, say
from buildcompare.validity.rules import APART

USUAL_LIMITS = {
    ValidityCode.MAY_BE_CUT,
    ValidityCode.STILL_CLIMBING,
    ValidityCode.CEILING_REACHED,
    ValidityCode.OTHER_RUNS,
}
"""Validity codes that concern only the supported users. A test that has only such codes gets no warning."""
MIN_COVERAGE = 0.98
"""Minimum share of the expected samples; a series with less has gaps. Published series have at least 0.99."""
ALIKE = 0.6
"""Minimum similarity between an unknown name and a suggested metric (difflib's default)."""


def validity(test: TestResult) -> Iterator[Found]:
    """Report why a test cannot be judged, or can be judged only in part."""
    if test.validity.status != ValidityStatus.VALID:
        severity = Severity.INFO if only_usual_limits(test) else Severity.WARNING
        invalid = test.validity.status == ValidityStatus.INVALID
        evidence = {**test.validity.model_dump(), "several": any(len(runs) > 1 for runs in test.runs)}
        yield Found(FindingKind.VALIDITY, Severity.CRITICAL if invalid else severity, evidence)


def only_usual_limits(test: TestResult) -> bool:
    """Test whether only the supported users of a test are unreliable: all its validity codes are in `USUAL_LIMITS`."""
    return test.validity.status == ValidityStatus.LIMITED and set(test.validity.codes) <= USUAL_LIMITS


def looks(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Report tests that were or will be analysed repeatedly, which lowers the significance level of their p-values."""
    several = (test for test in tests if len(test.looks) > 1 or test.level < ALPHA)
    alike = grouped(((tuple(test.looks), test.level, test.planned_runs), test.name) for test in several)
    for i, ((seen, level, planned), names) in enumerate(alike.items(), start=1):
        runs = [str(base) if base == new else f"{base} and {new}" for base, new in seen]
        evidence = {"tests": names, "looks": runs, "level": level, "planned_runs": planned}
        yield Found(FindingKind.LOOKS, Severity.INFO, evidence, id=f"{FindingKind.LOOKS}.{i}")


def left_out(test: TestResult) -> Iterator[Found]:
    """Report runs that do not count for their build's supported users."""
    for side, i, run in numbered(test.runs):
        estimates = [each.estimated_supported_users for each in test.runs[side]]
        estimate, others = run.estimated_supported_users, any(each and each.estimated is not None for each in estimates)
        if others and estimate and estimate.reason:
            yield Found(FindingKind.RUN_LEFT_OUT, Severity.WARNING, {"side": side, "run": i, "reason": estimate.reason})


def coverage(test: TestResult) -> Iterator[Found]:
    """Report gaps, and metrics that some runs lack; metrics that all runs lack have a finding of severity info."""
    gaps: list[tuple[Mapping[str, object], list[SeriesCoverage]]] = []
    absent: list[tuple[tuple[FindingKind, Side, tuple[str, ...]], Mapping[str, object]]] = []
    every = [*test.runs.base, *test.runs.new]
    nowhere = set.intersection(*(set(run.missing) for run in every)) if every else set()
    loads = {run.load_curve for run in every}
    stand_ins = [row for row in test.metrics if {row.slug} == loads and not row.unit.endswith("users")][:1]
    if test.type == "benchmark":
        stand_ins = [row for row in test.metrics if row.slug == "requests" and row.unit in RATES]
    if nowhere:
        evidence = {"slugs": sorted(nowhere), "load": stand_ins[0].name if stand_ins else None}
        yield Found(FindingKind.METRICS_NOWHERE, Severity.INFO, evidence)
    yield from _other_loads(test, stand_ins)
    for side, i, run in numbered(test.runs):
        place = {"side": side, "run": i, "runs": len(test.runs[side])}
        if gappy := [c for c in run.coverage if 0 < c.finite < MIN_COVERAGE * (c.expected - 1)]:
            gaps.append((place, gappy))
        absent.append(((FindingKind.MISSING_METRICS, side, tuple(s for s in run.missing if s not in nowhere)), place))
        absent.append(((FindingKind.EMPTY_METRICS, side, tuple(c.slug for c in run.coverage if c.finite == 0)), place))
    for (kind, _, slugs), places in grouped(absent).items():
        if slugs:
            yield Found(kind, Severity.WARNING, {**places[0], "others": len(places) - 1, "slugs": slugs})
    if gaps:
        where, worst = min(((where, c) for where, of in gaps for c in of), key=lambda each: each[1].fraction)
        size = {"worst": worst, "worst_percent": 100 * worst.finite / worst.expected, "others": len(gaps) - 1}
        named = [*dict.fromkeys(c.slug for _, of in gaps for c in of)]
        yield Found(FindingKind.GAPS, Severity.WARNING, {**where, "slugs": named, **size})


def _other_loads(test: TestResult, stand_ins: Sequence[MetricResult]) -> Iterator[Found]:
    """Report changed rates that represent the load: info if response times explain the change, else a warning."""
    for row in stand_ins:
        delta = row.delta_percent or 0.0
        is_set = test.type != "unbounded" and row.unit in RATES  # the test sets rates; other stand-ins follow the load
        if is_set and row.status.changed and abs(delta) > row.margin_percent:
            waits = delta < 0.0 and test.verdict == Verdict.REGRESSION  # closed loop: slow responses lower the rate
            for time in [each for each in test.metrics if each.gate and each.unit in TIMES and each.status.changed][:1]:
                changes = (delta, time.delta_percent or 0.0)
                change, by = (math.log(max(1.0 + percent / 100.0, 1e-9)) for percent in changes)
                waits |= abs(change + by) < 0.5 * abs(change)  # concurrency (Little's law) changed under half as much
            fields = row.model_dump(include={"name", "unit", "base", "new", "delta_percent"})
            yield Found(FindingKind.LOAD_MAY_DIFFER, Severity.INFO if waits else Severity.WARNING, fields)


def servers(test: TestResult) -> Iterator[Found]:
    """Report runs recorded by metric servers of different kinds or versions, which compute rates differently."""
    used: dict[str, list[str]] = {
        side: sorted({f"{run.server.kind} {run.server.version}".strip() for run in runs if run.server})
        for side, runs in test.runs.items()
    }
    if all(used.values()) and (used["base"] != used["new"] or len(used["base"]) > 1):
        yield Found(FindingKind.SERVER_VERSIONS, Severity.WARNING, used)


def counter_resets(test: TestResult) -> Iterator[Found]:
    """Report counters that restarted during a run, probably because their server restarted."""
    for side, i, run in numbered(test.runs):
        resets = {name: n for name, n in sorted((run.server.counter_resets if run.server else {}).items()) if n}
        if resets:
            evidence = {"side": side, "run": i, "runs": len(test.runs[side]), "resets": resets}
            yield Found(FindingKind.COUNTER_RESETS, Severity.WARNING, evidence)


def notes(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Report each note of the recordings once, and tests that made all runs of one build before those of the other."""
    by_test = {test.name: {note for _, _, run in numbered(test.runs) for note in run.notes} for test in tests}
    for test in tests:
        if test.in_order:
            by_test[test.name].add(say("reasons", "in_order", *test.in_order))
    noted = grouped((note, test) for test, notes in by_test.items() for note in sorted(notes))
    for note, having in noted.items():
        yield Found(FindingKind.RECORDING_NOTE, Severity.INFO, {"note": note, "tests": having}, test=having[0])


# ---- Probable mistakes in the input ---------------------------------------------------------------------------------


def users(tests: Sequence[TestResult], inputs: Sequence[InputProvenance], catalogue: Catalogue) -> Iterator[Found]:
    """Report bounded tests with more users than the params state; a test with fewer is invalid."""
    for test in tests:
        if test.type != "bounded" or test.users is None or catalogue.load is None:
            continue
        rows = [metric for metric in test.metrics if metric.slug == catalogue.load.slug]
        levels = [[row.base for row in rows], [row.new for row in rows]]  # several rows: one for each node
        plateaus = [[run.ramp_up.plateau_users for run in runs if run.ramp_up.plateau_users] for runs in test.runs]
        recorded = [of[0] if len(of) == 1 else mean_of_runs(p) for of, p in zip(levels, plateaus, strict=True)]
        apart = (max(each or 0.0 for each in recorded) / test.users - 1.0) * 100.0
        if apart > 100.0 * APART:
            evidence = {"users": test.users, "recorded": recorded, "percent": apart}
            yield Found(FindingKind.USERS_IN_PARAMS, Severity.WARNING, evidence, test=test.name)


def unrecognised(
    tests: Sequence[TestResult], inputs: Sequence[InputProvenance], catalogue: Catalogue
) -> Iterator[Found]:
    """Report recordings that lack the catalogue's load metric, all of its gate metrics, or both.

    If the catalogue is an `OpenCatalogue`, or only one of the two is missing, a recording is reported only if one of
    its unknown names is similar to an expected name. Recordings with the same names share a finding.
    """
    known = [metric for metric in catalogue.metrics if metric.known]
    gates, loads = ([m for m in known if m.gate], [m for m in known if m.load])
    is_fitted = isinstance(catalogue, OpenCatalogue)  # it is a catalogue of all tests; one may have none of its metrics
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[str, Side, int]]] = {}
    for test in tests:
        for side, i, run in numbered(test.runs):
            recorded = ({each.slug for each in run.coverage} | {row.slug for row in test.metrics}) - {*run.missing}
            unknown = recorded - {metric.slug for metric in catalogue.metrics}
            kinds = [kind for kind in (gates, loads) if kind]
            lacking = [k for k in kinds if unknown == recorded or all(m.slug in run.missing for m in k)]
            wanted = [metric for kind in lacking for metric in kind]
            names = tuple(sorted(recorded - {metric.slug for metric in known}))
            if (len(lacking) == 2 and not is_fitted) or (wanted and _nearest(names, wanted)):
                alike.setdefault((tuple(metric.slug for metric in wanted), names), []).append((test.name, side, i))
    for (slugs, names), places in alike.items():
        metrics = [metric for metric in catalogue.metrics if metric.slug in slugs]
        files = [path for place in places for path in _files(inputs, *place)]
        beyond = (len(files) - 2, len(names) - MOST_MOVERS, len(metrics) - MOST_MOVERS)
        evidence = {
            "wanted": [metric.name for metric in metrics],
            "unknown": list(names),
            "nearest": _nearest(names, metrics),
            "fitting": recognised(names),
            "files": files,
            "runs": [f"{name} {side} {i}" for name, side, i in places],
            "not_named": [max(left, 0) for left in beyond],
        }
        name, side, i = places[0]
        id_ = f"{name}.{FindingKind.UNRECOGNISED}.{side}.{i}"
        yield Found(FindingKind.UNRECOGNISED, Severity.WARNING, evidence, test=name, id=id_)


def assumed(tests: Sequence[TestResult], inputs: Sequence[InputProvenance], catalogue: Catalogue) -> Iterator[Found]:
    """Report units and directions that were assumed from the names of metrics, and metrics of unknown direction."""
    listed = {metric.slug for metric in catalogue.metrics}
    rows = [each.model_dump(include={"name", "unit", "better", "load"}) for each in catalogue.metrics if not each.known]
    unlisted = [row.name for test in tests for row in test.metrics if row.slug not in listed]
    rows += [{"name": name, "better": "neutral", "load": False} for name in dict.fromkeys(unlisted)]
    if rows:
        yield Found(FindingKind.ASSUMED, Severity.INFO, {"metrics": rows})


def _nearest(unknown: Sequence[str], wanted: Sequence[Metric]) -> list[tuple[str, str]]:
    """Pair unknown names with similar metrics; return at most `MOST_MOVERS` pairs, the most similar pair first."""
    slugs = {slugify(name): metric.name for metric in wanted for name in (metric.slug, metric.name, *metric.aliases)}
    pairs = [
        (name, slugs[near], difflib.SequenceMatcher(None, name, near).ratio())
        for name in unknown
        for near in difflib.get_close_matches(name, list(slugs), n=1, cutoff=ALIKE)
    ]
    return [(name, metric) for name, metric, _ in sorted(pairs, key=lambda pair: -pair[2])[:MOST_MOVERS]]


def _files(inputs: Sequence[InputProvenance], test: str, side: Side, run: int) -> list[str]:
    """Return a list with the path of the first input file of a run, without other files such as label tables."""
    of_build = (each for each in inputs if each.test == test and each.build == side and each.run == run)
    return [paths[0] for paths in grouped((each.run, each.path) for each in of_build).values()]
