"""Make findings about label tables (slower labels, labels of only one build) and about profiles."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from scipy import special

from buildcompare.findings.finding import Found, grouped
from buildcompare.labels.tables import LEAST_ADDED
from buildcompare.results import LEANING, LabelResult, TestResult
from buildcompare.results.codes import SIDES, FindingKind, Pair, Severity, Side, Status, ValidityStatus, Verdict
from buildcompare.stats.effects import LABEL_ALPHA, LABEL_MARGIN_PERCENT
from buildcompare.stats.noise import LABEL_KEY
from buildcompare.stats.planning import ALPHA
from buildcompare.text.sentences import MOST_LABELS

API, STORE = "api", "store"
"""Names of the label tables of API handlers and of the database methods that they call."""
MOST = 3
"""Maximum number of labels of one table, or of frames of a profile, that one test reports."""
PLACEBO = {"releases": 19, "swapped": 1, "pairs": 56, "identical": 2}
"""False alarms about labels without recorded calls (`benchmarks/placebo.py`): 1 in 19 published releases with base and
new swapped, and 2 in 56 comparisons of identical runs."""
LEAST_NEW = 0.1
"""A label that only the new build has is a warning if it takes at least this share of the time of all calls."""
LEAST_POINTS = 1.0
"""Minimum growth of a frame's share of the profile for a finding, in percentage points."""

SEVERAL_TIMES = 3.0  # Minimum ratio of new to base of a label that counts as several times slower; a round number
FEWEST_LABELS = 5  # Minimum number of judged rows for a warning that most labels became slower
FEWEST_CALLS = 20  # Minimum number of calls of a slower label without a p-value; means of a few calls differ by chance
FAR = 6.0
"""Minimum ratio of P99 to average for a finding about a slower label without recorded calls. Of the published releases,
1 has such a finding, or 12 without this minimum. With base and new swapped, the numbers are 1 and 7."""
MOST_EXPECTED = 1.0  # Labels slower in n tests are reported only if chance gives fewer such labels than this


def most_moved(rows: Iterable[LabelResult]) -> list[LabelResult]:
    """Return changed averages, the largest added or saved time first; averages of unknown time last, by p-value."""

    def moved(row: LabelResult) -> tuple[float, float, float]:
        p_value = 1.0 if row.p_value is None else row.p_value
        return -abs(added_share(row) or 0.0), p_value, -abs(math.log(times_slower(row) or 1.0))

    return sorted((row for row in rows if row.stat == "avg" and row.delta_percent), key=moved)


def times_as_long(row: LabelResult) -> float:
    """Return the ratio of new to base; 0 if unknown."""
    if not row.base or row.new is None or row.at_least.base or row.only_in:
        return 0.0
    return row.new / row.base


def times_slower(row: LabelResult) -> float:
    """Return the ratio of new to base, divided by the median ratio of the table's labels if that median is above 1."""
    return times_as_long(row) / max(1.0 + (row.shared_percent or 0.0) / 100.0, 1.0)


def added_share(row: LabelResult) -> float | None:
    """Return the time that a label adds at the base's number of calls, as a fraction of its table's time in the base.

    It is None if calls were not recorded, or a time is unknown.
    """
    share = row.time_share.base if row.time_share else None
    return share * (row.new / row.base - 1.0) if share and row.base and row.new is not None else None


def slower_labels(tables: Mapping[str, Iterable[LabelResult]]) -> list[tuple[str, LabelResult, LabelResult | None]]:
    """Find averages that became several times slower; return test, average and 99th percentile, the costliest first.

    Each average is a regression or lacks a p-value, and adds at least `LEAST_ADDED` of its table's time. If the added
    time is unknown, the change must be significant, and the P99 also several times slower and `FAR` times the average.
    """
    slower: list[tuple[float, str, LabelResult, LabelResult | None]] = []
    for test, rows in tables.items():
        by_key = {(row.group, row.label, row.stat): row for row in rows}
        for row in by_key.values():
            enough = min((each or 0.0 for each in row.calls or ()), default=FEWEST_CALLS) >= FEWEST_CALLS
            judged_slower = row.status == Status.REGRESSION or (row.p_value is None and enough)
            if row.stat != "avg" or times_slower(row) < SEVERAL_TIMES or not judged_slower:
                continue
            p99, cost = by_key.get((row.group, row.label, "p99")), added_share(row)
            if cost is None and p99 and row.p_adjusted is not None and row.p_adjusted < ALPHA:
                ratios = [
                    (high or 0.0) / low if low else 0.0 for high, low in ((p99.base, row.base), (p99.new, row.new))
                ]
                if min(ratios) >= FAR and times_slower(p99) >= SEVERAL_TIMES:
                    slower.append((row.p_adjusted, test, row, p99))
            elif cost is not None and cost >= LEAST_ADDED:
                slower.append((-cost, test, row, p99))
    return [(test, row, p99) for _, test, row, p99 in sorted(slower, key=lambda each: each[0])]


@dataclass(frozen=True)
class SlowerLabel:
    """Evidence that the average time of a label became several times as long in a test."""

    group: str
    label: str
    stat: str
    base: float
    new: float
    delta_percent: float
    calls: Pair[float | None] | None
    test: str
    times: float
    added_share: float | None
    """Added time divided by the base's total time in the table; None if calls were not recorded."""
    p99_times: float | None
    p99_at_least: bool
    """Whether `p99_times` is a lower bound."""
    others: dict[str, float] = field(default_factory=dict)
    """Name of another test -> change of the label's average time in that test, in percent."""


def labels_beyond_noise(tests: Sequence[TestResult]) -> list[SlowerLabel]:
    """Collect labels that became several times slower, costliest first; omit labels of unknown cost if any is known."""
    judged = {test.name: test.labels for test in tests if test.validity.status != ValidityStatus.INVALID}
    labels: dict[tuple[str, str], SlowerLabel] = {}
    for test, row, p99 in slower_labels(judged):
        if first := labels.get((row.group, row.label)):
            first.others[test] = row.delta_percent or 0.0
            continue
        at_least = p99.at_least.new if p99 else False
        fields = row.model_dump(include={"group", "label", "stat", "base", "new", "delta_percent", "calls"})
        sizes = (times_as_long(row), added_share(row), times_as_long(p99) if p99 else None)
        labels[row.group, row.label] = SlowerLabel(
            **fields, test=test, times=sizes[0], added_share=sizes[1], p99_times=sizes[2] or None, p99_at_least=at_least
        )
    return [each for each in labels.values() if each.added_share is not None] or [*labels.values()]


def beyond_noise(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Find labels that became several times slower; the severity is warning if calls were recorded, else info."""
    if labels := labels_beyond_noise(tests):
        severity = Severity.INFO if labels[0].added_share is None else Severity.WARNING
        evidence = {"labels": labels, "not_named": max(len(labels) - MOST_LABELS, 0), "placebo": PLACEBO}
        yield Found(FindingKind.LABELS_BEYOND_NOISE, severity, evidence)


def label_changed(test: TestResult) -> Iterator[Found]:
    """Find labels that changed beyond the noise of repeated runs, by p-values adjusted for all rows of their table.

    A slower label is a warning, or critical if the test's verdict is regression. A faster label, or one that adds less
    time than `LEAST_ADDED`, has severity info. :func:`beyond_noise` reports labels that became several times slower.
    """
    if test.validity.status == ValidityStatus.INVALID or min(map(len, test.runs)) < 2:
        return
    surely = [row for row in test.labels if row.status.changed and (row.p_adjusted or 0.0) < LABEL_ALPHA]
    labels = grouped(((row.group, row.label), row) for row in surely)
    first = [min(rows, key=lambda row: (row.stat != "avg", row.p_value)) for rows in labels.values()]
    first = [row for row in first if times_slower(row) < SEVERAL_TIMES]
    first.sort(key=lambda row: (row.status != Status.REGRESSION, -abs(added_share(row) or 0.0), row.p_value or 0.0))
    for row in first[:MOST]:
        fields = {"group", "label", "stat", "base", "new", "delta_percent", "ci_low", "ci_high", "p_adjusted", "status",
                  "calls", "time_share", "shared_percent"}  # fmt: skip
        beside = {each.stat: each.delta_percent for each in labels[row.group, row.label] if each is not row}
        evidence = row.model_dump(include=fields) | {"also": beside}
        id_ = f"{test.name}.{FindingKind.LABEL_CHANGED}.{row.group}.{row.label}"
        yield Found(FindingKind.LABEL_CHANGED, _gravity(test, row), evidence, id=id_)


def _gravity(test: TestResult, row: LabelResult) -> Severity:
    added = added_share(row)
    if row.status != Status.REGRESSION or (added is not None and added < LEAST_ADDED):
        return Severity.INFO
    return Severity.CRITICAL if test.verdict == Verdict.REGRESSION else Severity.WARNING


def labels_changed(test: TestResult) -> Iterator[Found]:
    """Report labels whose time changed most, the number of significant changes, and the number expected by chance."""
    judged = [row for row in test.labels if row.p_value is not None]
    slower = [row for row in judged if row.status == Status.REGRESSION]
    faster = [row for row in judged if row.status == Status.IMPROVEMENT]
    groups = grouped((row.group, row) for row in test.labels).values()
    moved = [row for rows in groups for row in most_moved(rows)[:MOST]]
    if slower or faster or moved:
        fields = {"group", "label", "stat", "base", "new", "delta_percent", "calls", "time_share"}
        evidence = {
            "slower": len(slower),
            "faster": len(faster),
            "judged": len(judged),
            "expected": LABEL_ALPHA * len(judged),
            "shifted": any(row.shared_percent for row in judged),
            "surviving": sum(row.p_adjusted is not None and row.p_adjusted < ALPHA for row in (*slower, *faster)),
            "moved_most": [row.model_dump(include=fields) for row in moved],
        }
        most = len(judged) >= FEWEST_LABELS and len(slower) > len(judged) / 2.0
        yield Found(FindingKind.LABELS, Severity.WARNING if most else Severity.INFO, evidence)


def frames(test: TestResult) -> Iterator[Found]:
    """Find frames whose share of the profile grew by at least `LEAST_POINTS` and, if noise is known, beyond noise."""
    if test.profiles is None:
        return
    noise_known = sum(test.profiles.runs) > 2  # unknown with one profile per build
    evidence: dict[str, object] = {"noise_known": noise_known}
    for name in ("own", "total"):
        grown = (row for row in getattr(test.profiles, name) if row.points >= LEAST_POINTS)
        beyond = [row for row in grown if not noise_known or (row.p_adjusted or 0.0) < ALPHA]
        evidence[name] = [row.model_dump(exclude={"p_adjusted"}) for row in beyond[:MOST]]
    yield Found(FindingKind.PROFILES, Severity.INFO, evidence)


def labels_in_one_build(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Find tables and labels that only one build has; tests with the same labels share a finding."""
    for test in tests:
        for group in sorted({row.group for row in test.labels}):
            only_in = {row.only_in for row in test.labels if row.group == group}
            if len(only_in) == 1 and (side := only_in.pop()) is not None:
                lacking: Side = "new" if side == "base" else "base"
                evidence: dict[str, object] = {"group": group, "side": lacking}
                yield Found(FindingKind.NO_LABEL_TABLE, Severity.WARNING, evidence, test=test.name)
    alone = grouped(((side, _only_in(test, side)), test.name) for side in SIDES for test in tests)
    for (side, labels), having in alone.items():
        if labels:
            cost = costs([test for test in tests if test.name in having], side)
            ordered = sorted(labels, key=lambda each: -cost.get(each, (0.0, 0.0))[0])
            rows = [
                {"group": each[1], "label": each[0], "seconds": seconds, **({"share": share} if share else {})}
                for each in ordered
                for seconds, share in [cost.get(each, (None, None))]
            ]
            names = [f"{label} ({group})" for label, group in ordered]
            evidence = {"side": side, "labels": names, "rows": rows, "tests": having}
            is_costly = side == "new" and max((share for _, share in cost.values()), default=0.0) >= LEAST_NEW
            severity = Severity.WARNING if is_costly else Severity.INFO
            yield Found(FindingKind.LABELS_IN_ONE_BUILD, severity, evidence, test=having[0])


def _only_in(test: TestResult, side: Side) -> tuple[tuple[str, str], ...]:
    """List the labels (label, table) that only the build `side` has, in tables that both builds have."""
    paired = {row.group for row in test.labels if row.only_in is None}
    rows = (row for row in test.labels if row.only_in == side and row.group in paired)
    return tuple(sorted({(row.label, row.group) for row in rows}))


def costs(tests: Sequence[TestResult], side: Side) -> dict[tuple[str, str], tuple[float, float]]:
    """Map each label that only the build `side` has to its average in seconds and its share of its table's total time.

    If several tests have the label, the test with its highest average counts.
    """
    rows = [row for test in tests for row in test.labels if row.stat == "avg" and row.only_in == side]
    largest: dict[tuple[str, str], tuple[float, float]] = {}
    for row in rows:
        seconds, share = getattr(row, side), getattr(row.time_share, side, None) or 0.0
        if seconds is not None:
            largest[row.label, row.group] = max((seconds, share), largest.get((row.label, row.group), (0.0, 0.0)))
    return largest


@dataclass(frozen=True)
class Agreement:
    """A label that became slower in several tests."""

    label: Mapping[str, str]  # The columns of `LABEL_KEY`
    rows: Mapping[str, LabelResult]  # Name of the test -> row in which the label is slower, the largest change first
    marked: int  # Number of tests in which the label is significantly slower
    expected: float  # Number of labels that chance alone makes slower in as many tests as this label


def agreeing_labels(tables: Mapping[str, Iterable[LabelResult]]) -> list[Agreement]:
    """Find labels that became slower in several tests; labels with the strongest evidence come first.

    At least one test must judge the label slower. In other tests, a rise of half the margin with a p-value below
    2 * `LEANING` is enough, because chance rarely affects one label in several tests.
    """

    def chance(marked: int, slower: int, tests: int) -> float:  # probability of these counts or more by chance
        both = ((n, special.bdtrc(marked - 1, n, LABEL_ALPHA / 2.0 / LEANING)) for n in range(slower, tests + 1))
        lean = LEANING, 1.0 - LEANING
        return float(sum(math.comb(tests, n) * lean[0] ** n * lean[1] ** (tests - n) * enough for n, enough in both))

    labels: dict[tuple[str, str, str], dict[str, LabelResult]] = {}
    for test, row in ((test, row) for test, rows in tables.items() for row in rows if row.p_value is not None):
        labels.setdefault((row.group, row.label, row.stat), {})[test] = row
    alike, tests = [], Counter(map(len, labels.values()))
    for label, judged in sorted(labels.items()):
        slower = {}
        for test, row in judged.items():
            delta, leans = row.delta_percent or 0.0, (row.p_value or 0.0) < 2.0 * LEANING
            if delta > 0 and (row.status.changed or (delta >= LABEL_MARGIN_PERCENT / 2.0 and leans)):
                slower[test] = row
        marked = sum(row.status.changed for row in slower.values())
        if marked and len(slower) > 1:
            expected = math.fsum(times * chance(marked, len(slower), count) for count, times in tests.items())
            if expected < MOST_EXPECTED:
                rows = dict(sorted(slower.items(), key=lambda each: -(each[1].delta_percent or 0.0)))
                alike.append(Agreement(dict(zip(LABEL_KEY, label, strict=True)), rows, marked, expected))
    return sorted(alike, key=lambda each: (each.expected, -fmean(row.delta_percent or 0 for row in each.rows.values())))


def labels_in_several_tests(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Find labels that are significantly slower in one test, and at least probably slower in another test.

    Such labels are often due to chance: 6 of 19 published releases have them, and 5 if base and new are swapped.
    """
    agreed = agreeing_labels({test.name: test.labels for test in tests})
    if not agreed:
        return
    labels = []
    for each in agreed:
        in_tests = {
            test: {"delta_percent": row.delta_percent, "marked": row.status.changed} for test, row in each.rows.items()
        }
        labels.append({**each.label, "marked": each.marked, "expected": each.expected, "tests": in_tests})
    evidence = {"labels": labels, "not_named": max(len(agreed) - MOST_LABELS, 0)}
    yield Found(FindingKind.LABELS_IN_SEVERAL_TESTS, Severity.INFO, evidence)


def methods_with_handlers(test: TestResult) -> Iterator[Found]:
    """Report the significantly slower API handlers and database methods of a test that has both."""
    slower = [row for row in test.labels if row.status == Status.REGRESSION and row.stat == "avg"]
    surely = [row for row in slower if (row.p_adjusted or 0.0) < ALPHA]
    surely.sort(key=lambda row: -(row.delta_percent or 0.0))
    handlers, methods = ([row for row in surely if row.group == group] for group in (API, STORE))
    if handlers and methods:
        evidence = {
            "handlers": {row.label: row.delta_percent for row in handlers},
            "methods": {row.label: row.delta_percent for row in methods},
            "not_named": [max(len(rows) - MOST_LABELS, 0) for rows in (handlers, methods)],
        }
        yield Found(FindingKind.METHODS_WITH_HANDLERS, Severity.INFO, evidence)
