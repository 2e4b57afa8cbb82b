"""Which metrics changed, and do the tests agree?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildcompare.findings.finding import Labels, finding, title
from buildcompare.findings.judged import judged
from buildcompare.findings.traffic_mix import at_unchanged_mix
from buildcompare.findings.verdict import LEANING, lost
from buildcompare.results import Finding, MetricResult, TestResult
from buildcompare.results.codes import FindingKind, Severity, Status
from buildcompare.text.explanations import at_load_words, by_chance_percent
from buildcompare.text.numbers import change, interval, listed, percent, quantity, significant
from buildcompare.text.reasons import reason_words

Row = tuple[TestResult, MetricResult]


def metrics(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """One sentence for each metric and direction: what was called, and what leans worse without being sure.

    Movements that several tests agree on rise; one that only one of several tests shows, in a metric that users do not
    feel, sinks to an info.
    """
    called: dict[tuple[str, tuple[tuple[str, str], ...], bool], list[Row]] = {}
    for test in tests:
        for metric in test.metrics:
            if metric.delta_percent is not None and _said(metric):
                key = (metric.slug, tuple(sorted(metric.labels.items())), metric.delta_percent > 0)
                called.setdefault(key, []).append((test, metric))
    for (slug, _, rises), rows in called.items():
        severity = _severity(rows, _agreeing(tests, slug, rises=rises), alone=len(tests) == 1)
        yield _sentence(rows, tests, labels, severity)


def _said(metric: MetricResult) -> bool:
    """At unchanged traffic mix where that changed: what the mix did has a sentence of its own."""
    return metric.effective_status in (Status.REGRESSION, Status.IMPROVEMENT) or _leans(metric)


def _leans(metric: MetricResult) -> bool:
    return metric.effective_p_worse is not None and metric.effective_p_worse < LEANING


def _agreeing(tests: Sequence[TestResult], slug: str, *, rises: bool) -> int:
    """Tests in which the metric moves the same way, by half its margin or more, and not only as its load did."""
    moves = [
        (delta if rises else -delta, metric.margin_percent)
        for test in tests
        for metric in test.metrics
        if metric.slug == slug and (delta := _by_itself(metric)) is not None
    ]
    return sum(delta >= margin / 2 for delta, margin in moves)


def _by_itself(metric: MetricResult) -> float | None:
    """The change without what another load did to it, or other calls, where that is known."""
    at_load = metric.load_adjusted
    if at_load is not None and at_load.p_value is not None:
        return at_load.delta_percent
    return metric.effective_delta_percent


def _severity(rows: Sequence[Row], agreeing: int, *, alone: bool) -> Severity:
    worse = [
        metric for _, metric in rows if metric.effective_status == Status.REGRESSION and metric.better != "neutral"
    ]
    if worse and all(_from_load(metric) for metric in worse):
        return Severity.INFO
    if any(metric.gate for metric in worse):
        return Severity.CRITICAL
    if any(metric.gate and _leans(metric) for _, metric in rows):
        return Severity.WARNING
    return Severity.WARNING if worse and (alone or agreeing > 1) else Severity.INFO


def _from_load(metric: MetricResult) -> bool:
    """Whether a metric that users do not feel was called at different loads only, and not at an equal one."""
    at_load = metric.load_adjusted
    return (
        not metric.gate and at_load is not None and at_load.p_value is not None and at_load.status != Status.REGRESSION
    )


def _sentence(rows: Sequence[Row], tests: Sequence[TestResult], labels: Labels, severity: Severity) -> Finding:
    test, metric = max(rows, key=lambda row: abs(row[1].delta_percent or 0.0))
    values = f"{quantity(metric.new, metric.unit)} against {quantity(metric.base, metric.unit)}"
    said = judged(metric.delta_percent or 0.0, metric)
    text = f"{title(test)}: {metric.name} of {labels[1]} {values}, {said}{at_unchanged_mix(metric)}"
    others = [_told(t, m) for t, m in rows if t is not test]
    not_here = [
        (t, m)
        for t in tests
        for m in t.metrics
        if m.slug == metric.slug and m.delta_percent is not None and t not in [row[0] for row in rows]
    ]
    contrary = [_told(t, m) for t, m in not_here if _said(m)]
    rest = [_told(t, m) for t, m in not_here if not _said(m)]
    if metric.load_adjusted is not None and metric.load_adjusted.ci_low is not None:
        at_load = metric.load_adjusted
        text += (
            f" At equal load ({at_load.users:,.0f} users): {change(at_load.delta_percent)} "
            f"({interval(at_load.ci_low, at_load.ci_high)}), {at_load_words(metric)}."
        )
    if others:
        text += f" Also: {listed(others)}."
    if contrary:
        text += f" The other way: {listed(contrary)}."
    if rest:
        text += f" Not called: {listed(rest)}."
    keys = {"slug", "base", "new", "delta_percent", "ci_low", "ci_high", "p_adjusted", "status", "margin_percent"}
    evidence = {
        **metric.model_dump(include=keys),
        "traffic_mix": metric.traffic_mix.model_dump() if metric.traffic_mix else None,
        "by_chance_percent": by_chance_percent(metric),
        "load_adjusted": metric.load_adjusted.model_dump() if metric.load_adjusted else None,
        "tests": {
            t.name: {**m.model_dump(include={"delta_percent", "status"}), **_apart(m)}
            for t in tests
            for m in t.metrics
            if m.slug == metric.slug
        },
    }
    return finding(test, FindingKind.METRIC, severity, text, evidence, metric=metric.slug)


def _told(test: TestResult, metric: MetricResult) -> str:
    """A change in another test, beside it what is left of it at equal load or at unchanged traffic mix."""
    apart = [f"{_IN_WORDS[key]} {change(delta)}" for key, delta in _apart(metric).items()]
    return f"{title(test)} {change(metric.delta_percent)}" + (f" ({', '.join(apart)})" if apart else "")


def _apart(metric: MetricResult) -> dict[str, float | None]:
    """The changes of a metric that a different load or a different mix has no part in, where they are known."""
    found: dict[str, float | None] = {}
    if metric.load_adjusted is not None:
        found["at_equal_load_percent"] = metric.load_adjusted.delta_percent
    if metric.traffic_mix is not None and metric.traffic_mix.counts:
        found["at_unchanged_mix_percent"] = metric.traffic_mix.at_unchanged_mix_percent
    return found


_IN_WORDS = {"at_equal_load_percent": "at equal load", "at_unchanged_mix_percent": "at unchanged mix"}


def at_equal_load(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """What got worse at equal load, and does not show at the loads that each build had: it did not carry as many."""
    for metric in test.metrics:
        at_load = metric.load_adjusted
        if at_load is None or at_load.status != Status.REGRESSION or metric.better == "neutral" or _said(metric):
            continue
        margin, chance = percent(metric.margin_percent), significant(at_load.p_adjusted or 0.0, 2)
        text = (
            f"{title(test)}: at equal load ({at_load.users:,.0f} users) {metric.name} of {labels[1]} "
            f"{change(at_load.delta_percent)}: regression, more than chance (adjusted p {chance}) and more "
            f"than the {margin} that matter"
        )
        if metric.delta_percent is not None:
            text += f"; at each build's own load {change(metric.delta_percent)}"
        evidence = metric.model_dump(include={"slug", "delta_percent", "margin_percent"})
        evidence["load_adjusted"] = at_load.model_dump()
        yield finding(test, FindingKind.EQUAL_LOAD, Severity.WARNING, text + ".", evidence, metric=metric.slug)


def unjudgeable(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """What users feel and only one build has, or was zero in one build: no ratio can judge that."""
    for metric in test.metrics:
        if metric.gate and lost(metric):
            levels = zip((metric.base, metric.new), labels, strict=True)
            values = ", ".join(f"{quantity(level, metric.unit)} in {label}" for level, label in levels)
            why = reason_words(metric.reason) if metric.reason else "no ratio"
            text = f"{title(test)}: {metric.name} cannot be judged: {values} ({why})."
            evidence = metric.model_dump(include={"slug", "base", "new", "reason"})
            yield finding(test, FindingKind.UNJUDGEABLE, Severity.WARNING, text, evidence, metric=metric.slug)


def blind_spots(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """What these tests could not have seen; the sentence under a pass says it too."""
    seen = _detectable(tests)
    if seen:
        text = f"Smaller changes than these could go unseen: {blind_spots_in_words(tests)}."
        evidence = {"min_detectable_percent": {f"{test.name} {name}": size for test, name, size in seen}}
        yield finding(seen[0][0], FindingKind.BLIND_SPOTS, Severity.INFO, text, evidence)


def blind_spots_in_words(tests: Sequence[TestResult]) -> str:
    """What users feel, with the size that a change had to have to be seen: ``Avg API times 33 to 37 %``."""
    by_name: dict[str, list[float]] = {}
    for _, name, size in _detectable(tests):
        by_name.setdefault(name, []).append(size)
    return listed([f"{name} {_span(sizes)}" for name, sizes in by_name.items()], most=8)


def _detectable(tests: Sequence[TestResult]) -> list[tuple[TestResult, str, float]]:
    seen: list[tuple[TestResult, str, float]] = []
    for test in tests:
        seen += [(test, m.name, m.min_detectable_percent) for m in test.metrics if m.gate and m.min_detectable_percent]
        users = test.supported_users
        if users is not None and users.min_detectable_percent is not None:
            seen.append((test, "supported users", users.min_detectable_percent))
    return seen


def _span(sizes: Sequence[float]) -> str:
    """Sizes of several tests in percent: ``19 to 40 %``, or the one that all of them have."""
    least, most = percent(min(sizes)), percent(max(sizes))
    return least if least == most else f"{least.removesuffix(' %')} to {most}"
