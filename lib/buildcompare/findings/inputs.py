"""Do the inputs mean what they are taken for: their unit, the names of their metrics, the number of users?

What a file says of itself is not checked here but when it is read; these are mistakes that look like results.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from buildcompare.config.catalogue import Catalogue, Metric, slugify
from buildcompare.config.errors import plural
from buildcompare.findings.finding import Labels, finding, title
from buildcompare.results import Finding, InputProvenance, MetricResult, RunResult, Side, TestResult
from buildcompare.results.codes import Better, FindingKind, Severity
from buildcompare.text.numbers import change, listed, quantity, significant

LONGEST_AVERAGE_S = 5.0
"""An average of all requests above this is more likely milliseconds: in 68 published tests it is 0.3 s at most."""
MOST_TIMES = 20.0
"""Times of two builds further apart than this are more likely of two units: in 68 published tests it is 3.4 at most,
and a thousand where one build's are milliseconds."""
LOADS_APART_PERCENT = 5.0
"""Bounded runs whose loads differ by more than this were not the same test (`JudgeValidity.apart`)."""
ALIKE = 0.6
"""Names are suggested from this similarity on (difflib's own default)."""
MOST_NAMED = 3

_AVERAGE = re.compile(r"(avg|average|mean)\b")
_SIDES: tuple[Side, Side] = ("base", "new")
Pair = tuple[str, str, float]


def find(
    tests: Sequence[TestResult], labels: Labels, inputs: Sequence[InputProvenance], catalogue: Catalogue
) -> list[Finding]:
    """All that looks like another unit, another name or another load than was meant."""
    found = [each for test in tests for each in _units(test, labels, inputs, catalogue)]
    found += [each for test in tests for each in _users(test, labels, catalogue)]
    return [*found, *_names(tests, inputs, catalogue)]


def _units(
    test: TestResult, labels: Labels, inputs: Sequence[InputProvenance], catalogue: Catalogue
) -> Iterator[Finding]:
    """Times that are more likely milliseconds."""
    averages = {table.average for table in catalogue.label_tables}
    for metric in test.metrics:
        if metric.unit != "seconds" or metric.better != Better.LOWER or metric.base is None or metric.new is None:
            continue
        low, high = sorted((metric.base, metric.new))
        times = high / low if low > 0 else 1.0
        average = metric.slug in averages or _AVERAGE.match(metric.slug) is not None
        if times <= MOST_TIMES and not (average and high > LONGEST_AVERAGE_S):
            continue
        files = [_files(inputs, test.name, side) for side in _SIDES]
        values = [
            f"{quantity(value, metric.unit)} in {label}{f' ({listed(paths, most=1)})' if paths else ''}"
            for value, label, paths in zip((metric.base, metric.new), labels, files, strict=True)
        ]
        why = (
            f"{significant(times, 2)} times apart, so one of them may be in milliseconds"
            if times > MOST_TIMES
            else f"an average above {quantity(LONGEST_AVERAGE_S, 'seconds')} is more likely one of milliseconds"
        )
        text = f"{title(test)}: {metric.name} {' and '.join(values)}: {why}; they are read as seconds."
        evidence = {
            **metric.model_dump(include={"slug", "base", "new"}),
            "times": times,
            "longest_average_s": LONGEST_AVERAGE_S,
            "files": files,
        }
        yield finding(test, FindingKind.UNLIKELY_UNIT, Severity.WARNING, text, evidence, metric=metric.slug)


def _users(test: TestResult, labels: Labels, catalogue: Catalogue) -> Iterator[Finding]:
    """A bounded test that ran with more users than the params say; with fewer, it is no valid test anyway."""
    if test.type != "bounded" or test.users is None or catalogue.load is None:
        return
    rows = [metric for metric in test.metrics if metric.slug == catalogue.load.slug]
    recorded = [_total(rows, side) for side in _SIDES]
    most = max((users for users in recorded if users is not None), default=0.0)
    apart = (most / test.users - 1.0) * 100.0
    if apart <= LOADS_APART_PERCENT:
        return
    told = [f"{users:,.0f} in {label}" for users, label in zip(recorded, labels, strict=True) if users is not None]
    text = (
        f"{title(test)}: the params say {test.users:,.0f} users, and recorded are {' and '.join(told)} "
        f"({change(apart)}): `users` may be another test's."
    )
    evidence = {"users": test.users, "recorded": recorded, "percent": apart}
    yield finding(test, FindingKind.USERS_IN_PARAMS, Severity.WARNING, text, evidence)


def _total(rows: Sequence[MetricResult], side: Side) -> float | None:
    """Of a load that is recorded in parts, such as one series per node, the sum."""
    values = [value for row in rows if (value := getattr(row, side)) is not None]
    return sum(values) if values else None


def _names(tests: Sequence[TestResult], inputs: Sequence[InputProvenance], catalogue: Catalogue) -> Iterator[Finding]:
    """Recordings in which the catalogue finds neither what users feel nor the load, by the names that they have.

    One of both may be missing for good reason, so that is told only where a name is nearly the one that was expected.
    Recordings with the same names are told together.
    """
    gates = [metric for metric in catalogue.metrics if metric.gate]
    loads = [metric for metric in catalogue.metrics if metric.load]
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[TestResult, Side, int]]] = {}
    for test in tests:
        for side in _SIDES:
            for i, run in enumerate(getattr(test.runs, side), start=1):
                lacking = [kind for kind in (gates, loads) if kind and not _has(run, kind)]
                wanted = tuple(metric.slug for kind in lacking for metric in kind)
                unknown = tuple(sorted(_unknown(run, catalogue)))
                if len(lacking) == 2 or (wanted and _nearest(unknown, [m for kind in lacking for m in kind])):
                    alike.setdefault((wanted, unknown), []).append((test, side, i))
    for (wanted, unknown), runs in alike.items():
        metrics = [metric for metric in catalogue.metrics if metric.slug in wanted]
        yield _unrecognised(metrics, unknown, runs, inputs)


def _unrecognised(
    wanted: Sequence[Metric],
    unknown: Sequence[str],
    runs: Sequence[tuple[TestResult, Side, int]],
    inputs: Sequence[InputProvenance],
) -> Finding:
    test = runs[0][0]
    files = [path for each, side, i in runs for path in _files(inputs, each.name, side, i)]
    where = listed(files, most=2) if files else plural(len(runs), "recording")
    what = listed([metric.name for metric in wanted], most=MOST_NAMED)
    pairs = _nearest(unknown, wanted)
    text = f"{title(test)}: the catalogue recognises no {what.replace(', ', ', no ')} in {where}"
    if pairs:
        said = listed([f"{name} nearly {metric}" for name, metric, _ in pairs], most=MOST_NAMED)
        text += f"; named there is {said}: was that meant?"
    elif unknown:
        text += f"; named there is {listed(list(unknown), most=MOST_NAMED)}."
    else:
        text += "."
    evidence = {
        "wanted": [metric.name for metric in wanted],
        "unknown": list(unknown),
        "nearest": [[name, metric] for name, metric, _ in pairs],
        "files": files,
        "runs": [f"{each.name} {side} {i}" for each, side, i in runs],
        "not_named": [max(len(files) - 2, 0), max(len(unknown) - MOST_NAMED, 0), max(len(wanted) - MOST_NAMED, 0)],
    }
    found = finding(test, FindingKind.UNRECOGNISED, Severity.WARNING, text, evidence)
    return found.model_copy(update={"id": f"{found.id}.{runs[0][1]}.{runs[0][2]}"})


def _has(run: RunResult, metrics: Sequence[Metric]) -> bool:
    return any(metric.slug not in run.missing for metric in metrics)


def _unknown(run: RunResult, catalogue: Catalogue) -> set[str]:
    return {each.slug for each in run.coverage} - {metric.slug for metric in catalogue.metrics}


def _nearest(unknown: Sequence[str], wanted: Sequence[Metric]) -> list[Pair]:
    """Unknown names beside the metric that each is nearly called like, the nearest first, at most `MOST_NAMED`."""
    names = {slugify(name): metric.name for metric in wanted for name in (metric.slug, metric.name, *metric.aliases)}
    pairs: list[Pair] = [
        (name, names[near], difflib.SequenceMatcher(None, name, near).ratio())
        for name in unknown
        for near in difflib.get_close_matches(name, list(names), n=1, cutoff=ALIKE)
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:MOST_NAMED]


def _files(inputs: Sequence[InputProvenance], test: str, side: Side, run: int | None = None) -> list[str]:
    """The recordings of a build: of each run its first file, as the tables of labels stand behind it."""
    first: dict[int, str] = {}
    for each in inputs:
        if each.test == test and each.build == side and run in (None, each.run):
            first.setdefault(each.run, each.path)
    return list(first.values())
