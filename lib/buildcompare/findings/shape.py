"""What is there to say of how the load came up, and of what happened at one time?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from buildcompare.config.errors import plural
from buildcompare.findings.finding import Labels, finding, title
from buildcompare.results import Event, Finding, TestResult, WithinRuns
from buildcompare.results.codes import FindingKind, Severity, Status
from buildcompare.text.numbers import change, listed, minutes

TOGETHER = 3
"""Metrics that must move together for an event to be a warning: one or two do so in every third pair of identical runs
(Mattermost's ceiling tests, `benchmarks/identical.py`), three in one of fourteen."""
AGREEING = 0.5
"""A difference of trimmed means of which the medians show less than this part is not said beside those."""
WORTH_A_WORD_S = 300.0
"""A build that climbs five minutes later than the other is worth a sentence."""


def time_to_users(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """How much later one build reached the round number of users where they differ most; no judgement."""
    later = test.ramp_up.new.time_to
    both = [(mark, base, later.get(mark)) for mark, base in test.ramp_up.base.time_to.items()]
    reached = [(abs(new - base), mark, base, new) for mark, base, new in both if base is not None and new is not None]
    apart, mark, base, new = max(reached, default=(0.0, "0", 0.0, 0.0))
    said_otherwise = test.ramp_up.shift_status != Status.INCONCLUSIVE
    if test.type == "unbounded" and not said_otherwise and apart >= WORTH_A_WORD_S:
        text = (
            f"{title(test)}: {labels[1]} reaches {int(mark):,} users after {minutes(new)}, {labels[0]} after "
            f"{minutes(base)}."
        )
        yield finding(
            test, FindingKind.TIME_TO_USERS, Severity.INFO, text, {"users": int(mark), "base": base, "new": new}
        )


def beginning(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """A beginning with more bumps, or a lasting ramp that starts later, and how far behind that leaves a build."""
    base, new, shift = test.ramp_up.base, test.ramp_up.new, test.ramp_up
    if base.early_bumps is None or new.early_bumps is None or base.onset_s is None or new.onset_s is None:
        return
    later = new.onset_s - base.onset_s
    if new.early_bumps == base.early_bumps and shift.shift_status == Status.INCONCLUSIVE:
        return
    bumps = [plural(count, "early bump") for count in (new.early_bumps, base.early_bumps)]
    text = (
        f"{title(test)}: {labels[1]} begins with {bumps[0]} against {bumps[1]} of {labels[0]}; its lasting ramp starts "
        f"at {minutes(new.onset_s)} instead of {minutes(base.onset_s)}"
    )
    if shift.shift_users is not None and shift.shift_status != Status.INCONCLUSIVE:
        side = "behind" if shift.shift_users < 0 else "ahead"
        text += (
            f". From there to the first wave it runs {abs(shift.shift_users):,.0f} users {side} (95 % interval "
            f"{shift.shift_ci_low:+,.0f} to {shift.shift_ci_high:+,.0f})".replace("-", "−")
        )
    slopes = (new.slope_users_per_s, base.slope_users_per_s)
    if slopes[0] is not None and slopes[1] is not None:
        text += f". The ramp itself rises by {slopes[0]:.2f} users a second against {slopes[1]:.2f}"
    waves = (new.wave_onset_s, base.wave_onset_s)
    if waves[0] is not None and waves[1] is not None:
        text += f", its waves begin at {minutes(waves[0])} instead of {minutes(waves[1])}"
    severity = Severity.WARNING if shift.shift_status == Status.REGRESSION and later > 0 else Severity.INFO
    evidence = {
        "early_bumps": [base.early_bumps, new.early_bumps],
        "onset_s": [base.onset_s, new.onset_s],
        "slope_users_per_s": [base.slope_users_per_s, new.slope_users_per_s],
        "wave_onset_s": [base.wave_onset_s, new.wave_onset_s],
        **shift.model_dump(include={"shift_users", "shift_seconds", "shift_ci_low", "shift_ci_high", "shift_status"}),
    }
    yield finding(test, FindingKind.BEGINNING, severity, text + ".", evidence)


def waves(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """Waves that come at another pace, or fall deeper, in one build; no judgement: two runs tell of themselves only."""
    ramps = test.ramp_up
    base, new = ramps.base, ramps.new
    period, fall = (base.wave_period_s, new.wave_period_s), (base.wave_amplitude_users, new.wave_amplitude_users)
    told = [
        *_apart(ramps.wave_period_s, period, "come {} s farther apart", "come {} s closer together"),
        *_apart(ramps.wave_amplitude_users, fall, "fall {} users deeper", "fall {} users less"),
    ]
    if told:
        text = f"{title(test)}: the waves of {labels[1]}, against those of {labels[0]}, {' and '.join(told)}."
        evidence = {
            "medians": {"period_s": list(period), "amplitude_users": list(fall)},
            **ramps.model_dump(include={"wave_period_s", "wave_amplitude_users"}),
        }
        yield finding(test, FindingKind.WAVES, Severity.INFO, text, evidence)


def _apart(
    difference: WithinRuns | None, medians: tuple[float | None, float | None], more: str, less: str
) -> Iterator[str]:
    """How one measure differs, where its interval excludes that it does not, and the medians in the table agree."""
    base, new = medians
    if difference is None or base is None or new is None or not difference.excludes_zero:
        return
    if (new - base) / difference.value >= AGREEING:
        near, far = sorted((abs(difference.ci_low), abs(difference.ci_high)))
        words = (more if difference.value > 0 else less).format(f"{abs(difference.value):,.0f}")
        yield f"{words} (95 % interval within these runs {near:,.0f} to {far:,.0f})"


def bumps_in_both(tests: Sequence[TestResult], labels: Labels) -> Iterator[Finding]:
    """Early bumps that both builds have: no difference, but something that the load or its data do to both.

    Tests with as many bumps are named together.
    """
    alike: dict[int, list[TestResult]] = {}
    for test in tests:
        counts = {ramp.early_bumps for ramp in (test.ramp_up.base, test.ramp_up.new)}
        if test.type == "unbounded" and len(counts) == 1 and (count := counts.pop()):
            alike.setdefault(count, []).append(test)
    for count, having in alike.items():
        ramps = [run.ramp_up for test in having for run in (*test.runs.base, *test.runs.new)]
        peak = max((bump.peak_users for ramp in ramps for bump in ramp.bumps), default=None)
        onset = max((ramp.onset_s or 0.0 for ramp in ramps), default=None)
        text = f"{' and '.join(title(test) for test in having)}: both builds begin with {plural(count, 'early bump')}"
        text += f", of {peak:,.0f} users at most" if peak is not None else ""
        text += f"; their lasting ramps start within {minutes(onset)}." if onset else "."
        evidence = {"tests": [test.name for test in having], "early_bumps": count, "peak": peak, "onset_s": onset}
        found = finding(having[0], FindingKind.BUMPS_IN_BOTH, Severity.INFO, text, evidence)
        yield found.model_copy(update={"id": f"bumps_in_both.{count}", "test": None})


def events(test: TestResult, labels: Labels) -> Iterator[Finding]:
    """One sentence for each group of events that only one build shows, where one of them is surely large."""
    names = {metric.slug: metric.name for metric in test.metrics}
    groups: dict[int, list[Event]] = {}
    for event in test.events:
        groups.setdefault(event.group or 0, []).append(event)
    for number, events in groups.items():
        if not any(event.warning for event in events):
            continue
        first = max(events, key=lambda event: (event.warning, abs(event.size_percent or 0.0)))
        label = labels[0 if first.build == "base" else 1]
        largest = sorted(events, key=lambda event: -abs(event.size_percent or 0.0))
        others = {e.metric: f"{names.get(e.metric, e.metric)} {change(e.size_percent)}" for e in reversed(largest)
                  if e.metric != first.metric}  # fmt: skip
        kind = {"level": "shifts its level by", "spike": "has a spike of", "drop": "has a drop of"}[first.kind]
        text = (
            f"{title(test)}: {names.get(first.metric, first.metric)} of {label} {kind} {change(first.size_percent)} at "
            f"{minutes(first.at_s)}" + (f", together with {listed(sorted(others.values()), most=4)}" if others else "")
        )
        evidence = {"side": first.build, "group": number, "events": [event.model_dump() for event in events]}
        severity = Severity.WARNING if _alarming(test, events) else Severity.INFO
        found = finding(test, FindingKind.EVENT, severity, f"{text}; the other build shows nothing like it.", evidence)
        yield found.model_copy(update={"id": f"{found.id}.{number}"})


def _alarming(test: TestResult, events: list[Event]) -> bool:
    """Whether the load itself moved, or several metrics together of which one got worse."""
    loads = {run.load_curve for run in (*test.runs.base, *test.runs.new)}
    if any(event.metric in loads for event in events if event.warning):
        return True
    bad = {"lower": 1.0, "higher": -1.0}
    better = {metric.slug: metric.better for metric in test.metrics}
    worse = any(event.size * bad.get(better.get(event.metric, "lower"), event.size) > 0 for event in events)
    return worse and len({event.metric for event in events}) >= TOGETHER
