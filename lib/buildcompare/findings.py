"""What it means: results in, sentences out. Every sentence of the report is made here.

A finding is one sentence with its numbers, and the evidence that they come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from buildcompare.errors import plural
from buildcompare.explanations import by_chance_percent
from buildcompare.results import (
    Finding,
    LabelResult,
    MetricResult,
    RunResult,
    Side,
    SupportedUsersResult,
    TestResult,
)
from buildcompare.verdict import LEANING
from buildcompare.wording import (
    NO_ESTIMATE_WORDS,
    change,
    db_name,
    interval,
    listed,
    minutes,
    percent,
    quantity,
    status_words,
)

MIN_COVERAGE = 0.98
"""Below this part of the expected samples a series' gaps are worth a sentence."""
REPORTED_TOLERANCE_PERCENT = 1.0
"""Reported and estimated supported users agree within 0.5 % on published runs; beyond twice that, say so."""
LABEL_ALPHA = 0.02
"""Of label rows where nothing changed, at most this part is marked (analysis.families.JudgeLabels)."""
WORTH_A_WORD_S = 300.0
"""A build that climbs five minutes later than the other is worth a sentence."""
_SEVERITIES = ("critical", "warning", "info")


def find(tests: Sequence[TestResult], labels: tuple[str, str]) -> list[Finding]:
    """All findings about `tests`, the gravest first; `labels` are the names of the two builds."""
    found = [finding for rule in _RULES for test in tests for finding in rule(test, labels)]
    found += [finding for rule in _RULES_ACROSS for finding in rule(tests, labels)]
    return gravest_first(found)


def gravest_first(findings: Sequence[Finding]) -> list[Finding]:
    """Findings by severity; those of one severity keep their order."""
    return sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity))


def title(test: TestResult) -> str:
    """A test by type and database: ``Unbounded Postgres``."""
    words = f"{test.type.capitalize()} {db_name(test.db_engine)}".strip()
    return words if test.name == f"{test.db_engine}_{test.type}" else f"{words} ({test.name})"


def _supported_users(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    users = test.supported_users
    if users is None:
        return
    severity = "info"
    if users.delta_percent is not None:
        text = (
            f"{title(test)}: {labels[1]} supports {users.new:,.0f} users against {users.base:,.0f} of {labels[0]}, "
            f"{_judged(users.delta_percent, users)}"
        )
        severity = "critical" if users.status == "regression" else "info"
    else:
        missing: list[str] = []
        for side, label in (("base", labels[0]), ("new", labels[1])):
            if getattr(users, side) is None:
                at_least = getattr(users.at_least, side)
                words = NO_ESTIMATE_WORDS.get(getattr(users.reason, side) or "", "there is no estimate")
                missing.append(f"{label}: {words}" + (f", at least {at_least:,.0f}" if at_least is not None else ""))
        text = f"{title(test)}: the supported users cannot be compared ({'; '.join(missing)})"
        bound = f"; a loss of more than {percent(-users.ci_low)} can be ruled out" if users.ci_low is not None else ""
        text += f"{bound}."
    evidence = users.model_dump(include={"base", "new", "delta_percent", "ci_low", "ci_high", "status", "band_percent"})
    yield _finding(test, "supported_users", severity, text, evidence)


def _judged(delta: float, row: MetricResult | SupportedUsersResult) -> str:
    """The end of a sentence about a change: how much, how sure, and what follows."""
    margin = row.margin_percent if isinstance(row, MetricResult) else row.band_percent
    better = row.better if isinstance(row, MetricResult) else "higher"
    if row.ci_low is None:
        return f"{change(delta)}: how far two runs of one build lie apart is not known here, so this may be chance."
    words = {
        "regression": f"more than chance and more than the {percent(margin)} that matter",
        "improvement": f"more than chance and more than the {percent(margin)} that matter",
        "equivalent": f"no difference beyond {percent(margin)}",
    }
    said = words.get(row.status)
    if said is None:
        chance = percent(by_chance_percent(row))
        said = f"cannot be told from chance, which moves this by up to {chance}"
    elif row.status != "equivalent":
        said = f"{status_words(row.status, better)}, {said}"
    return f"{change(delta)} (95 % interval {interval(row.ci_low, row.ci_high)}): {said}."


def _metrics(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    """What was called, and what leans worse without being sure."""
    for metric in test.metrics:
        called = metric.status in ("regression", "improvement")
        leans = metric.leans_worse is not None and metric.leans_worse < LEANING
        if metric.delta_percent is None or not (called or leans):
            continue
        severity = "info"
        if metric.status == "regression" and metric.better != "context":
            severity = "critical" if metric.gate else "warning"
        elif leans and not called:
            severity = "warning" if metric.gate else "info"
        values = f"{quantity(metric.new, metric.unit)} against {quantity(metric.base, metric.unit)}"
        text = f"{title(test)}: {metric.name} of {labels[1]} {values}, {_judged(metric.delta_percent, metric)}"
        keys = {"slug", "base", "new", "delta_percent", "ci_low", "ci_high", "p_adjusted", "status", "margin_percent"}
        yield _finding(test, "metric", severity, text, metric.model_dump(include=keys), metric=metric.slug)


def _blind_spots(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    """What this test could not have seen: said beside every pass."""
    seen = [(m.detectable_percent, m.name) for m in test.metrics if m.gate and m.detectable_percent is not None]
    if test.supported_users is not None and test.supported_users.detectable_percent is not None:
        seen.append((test.supported_users.detectable_percent, "supported users"))
    coarse = [f"{name} {percent(size)}" for size, name in seen]
    if coarse:
        text = f"{title(test)} would hardly have seen changes smaller than: {listed(coarse)}."
        evidence = {name: size for size, name in seen}
        yield _finding(test, "blind_spots", "info", text, evidence)


def _labels_called(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    """How many label rows moved more than chance moves them, beside how many chance would mark."""
    judged = [row for row in test.labels if row.p_value is not None]
    slower = sorted((r for r in judged if r.status == "regression"), key=lambda r: -(r.delta_percent or 0.0))
    faster = [row for row in judged if row.status == "improvement"]
    if not slower and not faster:
        return
    expected = LABEL_ALPHA * len(judged)
    worst = listed([f"{row.label} {row.stat} ({change(row.delta_percent)})" for row in slower], most=3)
    text = (
        f"{title(test)}: {len(slower)} of {len(judged)} label rows are slower and {len(faster)} faster by more than "
        f"chance usually moves them; up to {expected:.0f} are marked where nothing changed"
        + (f". Slowest: {worst}." if slower else ".")
    )
    evidence = {"slower": len(slower), "faster": len(faster), "judged": len(judged), "expected": expected}
    yield _finding(test, "labels", "info", text, evidence)


def _reported_against_estimated(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    users = test.supported_users
    if users is None:
        return
    for side, label in (("base", labels[0]), ("new", labels[1])):
        reported, estimated = getattr(users.reported, side), getattr(users.estimated, side)
        if reported is None or estimated is None:
            continue
        apart = (estimated / reported - 1.0) * 100.0
        if abs(apart) > REPORTED_TOLERANCE_PERCENT:
            text = (
                f"{title(test)}: the curve of {label} gives {estimated:,.0f} supported users, the load-test tool "
                f"reported {reported:,.0f} ({change(apart)}): curve and report may belong to different runs."
            )
            evidence = {"side": side, "reported": reported, "estimated": estimated, "percent": apart}
            yield _finding(test, "reported_against_estimated", "warning", text, evidence)


def _validity(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    for side, label in (("base", labels[0]), ("new", labels[1])):
        for run in getattr(test.runs, side):
            if run.window is None:
                text = f"{title(test)}: {label} has no steady window ({run.window_reason}), so nothing was measured."
                yield _finding(test, "no_steady_window", "warning", text, {"side": side})
        estimates = [run.estimated_supported_users for run in getattr(test.runs, side)]
        for i, estimate in enumerate(estimates):
            if estimate and estimate.reason and any(other and other.estimated is not None for other in estimates):
                why = NO_ESTIMATE_WORDS[estimate.reason]
                text = f"{title(test)}: run {i + 1} of {label} is left out of its supported users: {why}."
                yield _finding(test, "run_left_out", "warning", text, {"side": side, "run": i + 1})


def _ramp(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    """How much later one build reached the round number of users where they differ most; no judgement."""
    later = test.ramp_up.new.time_to
    both = [(mark, base, later.get(mark)) for mark, base in test.ramp_up.base.time_to.items()]
    reached = [(abs(new - base), mark, base, new) for mark, base, new in both if base is not None and new is not None]
    apart, mark, base, new = max(reached, default=(0.0, "0", 0.0, 0.0))
    if test.type == "unbounded" and apart >= WORTH_A_WORD_S:
        text = (
            f"{title(test)}: {labels[1]} reaches {int(mark):,} users after {minutes(new)}, {labels[0]} after "
            f"{minutes(base)}."
        )
        yield _finding(test, "time_to_users", "info", text, {"users": int(mark), "base": base, "new": new})


def _coverage(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    for side, label in (("base", labels[0]), ("new", labels[1])):
        runs: list[RunResult] = getattr(test.runs, side)
        for i, run in enumerate(runs):
            who = label if len(runs) == 1 else f"run {i + 1} of {label}"
            empty = [c.slug for c in run.coverage if c.finite == 0]
            gaps = [c for c in run.coverage if 0 < c.finite < MIN_COVERAGE * c.expected]
            if run.missing:
                text = f"{title(test)}: {who} lacks {plural(len(run.missing), 'metric')}: {listed(run.missing)}."
                yield _finding(test, "missing_metrics", "warning", text, {"side": side, "slugs": run.missing})
            if empty:
                text = f"{title(test)}: {who} has no number at all in {listed(empty)}."
                yield _finding(test, "empty_metrics", "warning", text, {"side": side, "slugs": empty})
            if gaps:
                worst = min(gaps, key=lambda c: c.finite / c.expected)
                text = (
                    f"{title(test)}: {who} has gaps in {plural(len(gaps), 'metric')}, at worst {worst.slug} with "
                    f"{100 * worst.finite / worst.expected:.0f} % of its samples "
                    f"(longest gap {minutes(worst.longest_gap_s)})."
                )
                evidence = {"side": side, "slugs": [c.slug for c in gaps], "finite": worst.finite, "of": worst.expected}
                yield _finding(test, "gaps", "warning", text, evidence)


def _servers(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    """Servers of different kinds or versions: the same samples give different rates on them."""
    named = {
        side: sorted({f"{run.server.kind} {run.server.version}".strip() for run in runs if run.server})
        for side, runs in (("base", test.runs.base), ("new", test.runs.new))
    }
    if all(named.values()) and (named["base"] != named["new"] or len(named["base"]) > 1):
        text = (
            f"{title(test)}: {labels[0]} was recorded by {listed(named['base'])}, {labels[1]} by "
            f"{listed(named['new'])}; servers compute rates differently, so a part of every change may be theirs."
        )
        yield _finding(test, "server_versions", "warning", text, named)


def _counter_resets(test: TestResult, labels: tuple[str, str]) -> Iterator[Finding]:
    for side, label in (("base", labels[0]), ("new", labels[1])):
        runs: list[RunResult] = getattr(test.runs, side)
        for i, run in enumerate(runs):
            resets = {name: n for name, n in (run.server.counter_resets if run.server else {}).items() if n}
            if resets:
                who = label if len(runs) == 1 else f"run {i + 1} of {label}"
                text = (
                    f"{title(test)}: {who} restarted during the run: {plural(len(resets), 'counter')} began again at "
                    f"zero ({listed(sorted(resets))})."
                )
                yield _finding(test, "counter_resets", "warning", text, {"side": side, "run": i + 1, "resets": resets})


def _labels_in_one_build(tests: Sequence[TestResult], labels: tuple[str, str]) -> Iterator[Finding]:
    """One sentence for each build; the tests that agree on its labels are named together."""
    sides: tuple[tuple[Side, str], ...] = (("base", labels[0]), ("new", labels[1]))
    for side, label in sides:
        same: dict[tuple[str, ...], list[TestResult]] = {}
        for test in tests:
            alone = tuple(sorted({_named(row) for row in test.labels if row.only_in == side}))
            if alone:
                same.setdefault(alone, []).append(test)
        for names, having in same.items():
            where = "Every test" if len(having) == len(tests) > 1 else ", ".join(title(test) for test in having)
            text = f"{where}: only {label} has {plural(len(names), 'label')}: {listed(list(names), most=3)}."
            evidence = {"side": side, "labels": list(names), "tests": [test.name for test in having]}
            yield _finding(having[0], "labels_in_one_build", "info", text, evidence)


def _notes(tests: Sequence[TestResult], labels: tuple[str, str]) -> Iterator[Finding]:
    noted: dict[str, list[TestResult]] = {}
    for test in tests:
        for note in sorted({note for side in (test.runs.base, test.runs.new) for run in side for note in run.notes}):
            noted.setdefault(note, []).append(test)
    for note, having in noted.items():
        where = "Every test" if len(having) == len(tests) > 1 else ", ".join(title(test) for test in having)
        evidence = {"note": note, "tests": [test.name for test in having]}
        yield _finding(having[0], "recording_note", "info", f"{where}: {note}", evidence)


def _named(row: LabelResult) -> str:
    return f"{row.label} ({row.group})"


def _finding(
    test: TestResult,
    kind: str,
    severity: str,
    text: str,
    evidence: Mapping[str, object],
    *,
    metric: str | None = None,
) -> Finding:
    identity = ".".join(str(part) for part in (test.name, kind, metric, evidence.get("side")) if part)
    return Finding.model_validate(
        {
            "id": identity,
            "severity": severity,
            "kind": kind,
            "test": test.name,
            "metric": metric,
            "text": text,
            "evidence": dict(evidence),
        }
    )


_RULES = (
    _supported_users,
    _metrics,
    _ramp,
    _reported_against_estimated,
    _validity,
    _coverage,
    _servers,
    _counter_resets,
    _labels_called,
    _blind_spots,
)
_RULES_ACROSS = (_labels_in_one_build, _notes)
