"""Titles of figures, and what a figure shows in words for those who cannot see it."""

from buildcompare.results import Event, MetricResult, TestResult
from buildcompare.results.codes import SIDES, Pair, Status
from buildcompare.results.users import RampUp
from buildcompare.text.numbers import change, interval, minutes, quantity, shift_words
from buildcompare.text.reasons import reason_words

PHASES = {"early_bumps": "bumps", "shutdown": ""}
"""What stands on the bar of a phase where it is not the phase's name; dark narrow bars carry none."""


def metric_title(metric: MetricResult) -> str:
    """The metric with the levels of both builds and the change."""
    return f"{metric.full_name}: {_levels(metric)}"


def metric_alt(metric: MetricResult, test: TestResult, labels: Pair[str]) -> str:
    """A metric's curves: how long the builds ran, their levels, the change, and the events that are marked."""
    words = f"{metric.full_name} over elapsed time, {test.name}. "
    for side, label in labels.items():
        length = max((run.duration_s for run in test.runs[side]), default=0.0) / 60
        words += f"{label} runs {length:.0f} minutes, steady level {quantity(getattr(metric, side), metric.unit)}. "
    if metric.delta_percent is not None:
        words += f"Change {change(metric.delta_percent)}."
    else:
        words += f"{reason_words(metric.reason) if metric.reason else ''}."
    for event in marked_events(metric, test):
        size = change(event.size_percent)
        words += f" {labels[event.build]} has a {event.kind} of {size} at {minutes(event.at_s)}."
    return words


def marked_events(metric: MetricResult, test: TestResult) -> list[Event]:
    """Events of one build only that are worth a warning."""
    return [event for event in test.events if event.metric == metric.slug and event.warning]


def event_mark(event: Event) -> str:
    """An event with its size, as it stands beside its line."""
    return f"{event.kind} {change(event.size_percent)}"


def users_title(test: TestResult, users: MetricResult, labels: Pair[str]) -> str:
    """The supported users of both builds, or in a bounded test the levels."""
    supported = test.supported_users
    if supported is None:
        return f"Connected users: {_levels(users)}"
    if supported.delta_percent is None:
        return "Connected users; the supported users cannot be compared"
    new, base = f"{labels.new} supports {supported.new:,.0f} users", f"{labels.base} {supported.base:,.0f}"
    return f"{new}, {base} ({change(supported.delta_percent)})"


def users_alt(test: TestResult, users: MetricResult, labels: Pair[str]) -> str:
    """The curves of connected users: the ramps, the waves and the shift."""
    words = metric_alt(users, test, labels)
    for side, label in labels.items():
        ramp: RampUp = getattr(test.ramp_up, side)
        if ramp.onset_s is None:
            continue
        words += f" {label}: {ramp.early_bumps or 0} early bumps, lasting ramp from {minutes(ramp.onset_s)}"
        if ramp.slope_users_per_s is not None:
            words += f" at {ramp.slope_users_per_s:.2f} users/s"
        if ramp.wave_onset_s is not None and ramp.wave_period_s is not None:
            words += f", waves from {minutes(ramp.wave_onset_s)} with a period of {ramp.wave_period_s:.0f} s"
        words += "."
    shift = test.ramp_up
    if shift.shift_users is not None and shift.shift_status != Status.INCONCLUSIVE:
        words += f" {labels.new} runs {shift_words(shift.shift_users)} on the common ramp."
    return words


def at_load_title(metric: MetricResult) -> str:
    """A metric of both builds at one load; two lines."""
    row = metric.load_adjusted
    if row is None:
        return metric.name
    levels = f"{quantity(row.base, metric.unit)} → {quantity(row.new, metric.unit)}"
    between = "" if row.ci_low is None else f"; {interval(row.ci_low, row.ci_high)}"
    return f"{metric.name} at {row.users:,.0f} users: {levels}\n({change(row.delta_percent)}{between})"


def at_load_alt(metric: MetricResult, labels: Pair[str], counts: Pair[int]) -> str:
    """A metric over the connected users; `counts`: minutes that each build is drawn with."""
    row = metric.load_adjusted
    low, high = row.at_users_range if row else (0.0, 0.0)
    dots = " and ".join(f"{counts[side]} of {labels[side]}" for side in SIDES)
    words = at_load_title(metric).replace("\n", " ")
    return (
        f"{words}. Over the connected users, from {low:,.0f} to {high:,.0f}, {labels.base} against {labels.new}. One "
        f"dot per minute ({dots}); dots and curves stand at the mean login rate of both builds. The bands are 95 % "
        "intervals within the runs; the interval of the change counts the variance between runs too."
    )


def _levels(metric: MetricResult) -> str:
    if metric.base is None and metric.new is None:
        return "no steady level"
    text = f"{quantity(metric.base, metric.unit)} → {quantity(metric.new, metric.unit)}"
    return text if metric.delta_percent is None else f"{text} ({change(metric.delta_percent)})"
