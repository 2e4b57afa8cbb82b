"""Make findings about supported users, the course of the load, and events (sudden changes of metrics)."""

from collections.abc import Iterator, Sequence

from buildcompare.findings.finding import Found, grouped
from buildcompare.results import LimitedBy, TestResult
from buildcompare.results.codes import SIDES, FindingKind, Severity, Status, ValidityStatus
from buildcompare.results.users import Bump, RampUps
from buildcompare.stats.levels import mean_of_runs

REPORTED_TOLERANCE_PERCENT = 1.0
"""Maximum difference between reported and estimated supported users, in percent, that gives no finding. In published
runs, the difference is at most 0.5 %."""
DEEPER = 2.0
"""Early bumps of two builds are similar if the ratio of their largest falls is at most this (published tests: 1.6)."""
OTHER_BUMPS, OTHER_TIMES = (12, 31), (3, 9)
"""Number of pairs of identical unbounded runs that differ, and of all pairs (`benchmarks/identical.py`). The pairs
differ in the number of early load rises (`OTHER_BUMPS`), or reach a load `LATER_S` s or more apart (`OTHER_TIMES`)."""
OTHER_EVENTS = {"unbounded": (5, 22), "bounded": (2, 6)}
"""Test type -> pairs of identical runs with events in only one run, and all pairs (see `benchmarks/placebo.py`)."""
MOST_EVENTS = 5
"""Maximum number of findings about events of one test; one more finding counts the remaining events."""
WAVES = ("wave_period_s", "wave_amplitude_users")
LATER_S = 300.0
"""Minimum delay of a build's load for a finding, in seconds. Early bumps of published tests delay it by up to 240 s."""


def supported_users(test: TestResult) -> Iterator[Found]:
    """Report the supported users of both builds, or why they cannot be compared."""
    if (users := test.supported_users) is None:
        return
    keys = {"base", "new", "delta_percent", "ci_low", "ci_high", "status", "band_percent", "no_worse_than_percent",
            "at_least", "reason"}  # fmt: skip
    evidence = {
        **users.model_dump(mode="json", include=keys),
        "by_chance_percent": users.by_chance_percent,
        "ruled_out_percent": None if users.ci_low is None else -users.ci_low,
    }
    valid = test.validity.status != ValidityStatus.INVALID
    worse = valid and users.delta_percent is not None and users.status == Status.REGRESSION
    yield Found(FindingKind.SUPPORTED_USERS, Severity.CRITICAL if worse else Severity.INFO, evidence)


def reported_against_estimated(test: TestResult) -> Iterator[Found]:
    """Report builds whose supported users, estimated from the curves, differ from the load-test tool's report."""
    users = test.supported_users
    if users is None:
        return
    for side in SIDES:
        reported, estimated = users.reported[side], users.estimated[side]
        if reported is None or estimated is None:
            continue
        apart = (estimated / reported - 1.0) * 100.0
        if abs(apart) > REPORTED_TOLERANCE_PERCENT:
            evidence = {"side": side, "reported": reported, "estimated": estimated, "percent": apart}
            yield Found(FindingKind.REPORTED_AGAINST_ESTIMATED, Severity.INFO, evidence)


def limited_by(test: TestResult) -> Iterator[Found]:
    """Report which threshold limited each build in an unbounded test, when load waves began, and when load ended."""
    limits = test.limited_by or LimitedBy()
    waves = [ramp.wave_onset_s for ramp in (test.ramp_up.base, test.ramp_up.new)]
    if test.type != "unbounded" or (test.limited_by is None and None in waves):
        return
    names = {side: use.name if (use := limits.limiting(side)) else None for side in SIDES}
    stops = [mean_of_runs([run.stop_s for run in test.runs[side]]) for side in SIDES]
    evidence = {**limits.model_dump(mode="json"), "limiting": names, "wave_onset_s": waves, "stop_s": stops}
    yield Found(FindingKind.LIMITED_BY, Severity.INFO, evidence)


def time_to_users(test: TestResult) -> Iterator[Found]:
    """Report the load (1,000, 2,000, ... users) that the builds reach furthest apart in time, if `LATER_S` or more."""
    ramps = test.ramp_up
    both = [(mark, base, ramps.new.time_to.get(mark)) for mark, base in ramps.base.time_to.items()]
    reached = [(abs(new - base), mark, base, new) for mark, base, new in both if base is not None and new is not None]
    apart, mark, base, new = max(reached, default=(0.0, "0", 0.0, 0.0))
    if test.type == "unbounded" and ramps.shift_status == Status.INCONCLUSIVE and apart >= LATER_S:
        identical = OTHER_TIMES if max(map(len, test.runs)) == 1 else None
        evidence = {"users": int(mark), "base": base, "new": new, "identical": identical}
        yield Found(FindingKind.TIME_TO_USERS, Severity.INFO, evidence)


def beginning(test: TestResult) -> Iterator[Found]:
    """Report that the builds' loads begin differently: short rises before the ramp differ, or the ramp is shifted."""
    base, new, shift = test.ramp_up.base, test.ramp_up.new, test.ramp_up
    if base.early_bumps is None or new.early_bumps is None or base.onset_s is None or new.onset_s is None:
        return
    falls = _falls(shift)
    if bumps_alike(shift) and shift.shift_status == Status.INCONCLUSIVE:
        return
    both, single = ("early_bumps", "onset_s", "slope_users_per_s", "wave_onset_s"), max(map(len, test.runs)) == 1
    shifted = {"shift_users", "shift_seconds", "shift_ci_low", "shift_ci_high", "shift_status", "shift_noise_source"}
    evidence = {
        **{key: [getattr(base, key), getattr(new, key)] for key in both},
        **shift.model_dump(include=shifted),
        "falls": None if bumps_alike(shift) or not any(falls) else falls,
        "identical": OTHER_BUMPS if single and shift.shift_status == Status.INCONCLUSIVE else None,
    }
    yield Found(FindingKind.BEGINNING, Severity.INFO, evidence)


def _falls(ramps: RampUps) -> list[Bump | None]:
    """Return each build's early bump (short rise before the ramp) with the largest fall; None without bumps."""
    return [max(ramp.bumps, key=lambda bump: bump.depth_users, default=None) for ramp in (ramps.base, ramps.new)]


def bumps_alike(ramps: RampUps) -> bool:
    """Test whether both builds have equally many early bumps (rises before the ramp), with similar largest falls."""
    depths = sorted(bump.depth_users for bump in _falls(ramps) if bump)
    similar = len(depths) < 2 or depths[1] <= DEEPER * depths[0]
    return ramps.base.early_bumps == ramps.new.early_bumps and similar


def waves(test: TestResult) -> Iterator[Found]:
    """Report that waves of the load differ in period or depth between the builds by more than run-to-run noise."""
    ramps = test.ramp_up
    differences = {measure: getattr(ramps, measure) for measure in WAVES}
    differ = [measure for measure, difference in differences.items() if difference and difference.excludes_zero]
    if differ:
        both = {key.removeprefix("wave_"): [getattr(ramps.base, key), getattr(ramps.new, key)] for key in WAVES}
        evidence = {"differ": differ, "medians": both, **ramps.model_dump(include=set(WAVES))}
        yield Found(FindingKind.WAVES, Severity.INFO, evidence)


def bumps_in_both(tests: Sequence[TestResult]) -> Iterator[Found]:
    """Report similar early bumps (rises before the ramp) of both builds: one finding per number of bumps."""
    shown = (test for test in tests if test.type == "unbounded" and test.ramp_up.base.early_bumps)
    alike = (test for test in shown if bumps_alike(test.ramp_up))
    for count, having in grouped((test.ramp_up.base.early_bumps, test) for test in alike).items():
        ramps = [run.ramp_up for test in having for run in (*test.runs.base, *test.runs.new)]
        evidence = {
            "tests": [test.name for test in having],
            "early_bumps": count,
            "peak": max((bump.peak_users for ramp in ramps for bump in ramp.bumps), default=None),
            "onset_s": max((ramp.onset_s or 0.0 for ramp in ramps), default=None),
        }
        yield Found(FindingKind.BUMPS_IN_BOTH, Severity.INFO, evidence, id=f"bumps_in_both.{count}")


def events(test: TestResult) -> Iterator[Found]:
    """Report groups of simultaneous events that contain a warning: an event of one build only, beyond the margin.

    The severity is info, because identical runs have such events too, and base builds have as many as new builds.
    """
    metrics = {metric.slug: metric for metric in test.metrics}
    groups = grouped((event.group or 0, event) for event in test.events)
    alone = {number: events for number, events in groups.items() if any(event.warning for event in events)}

    def weight(number: int) -> tuple[int, float]:
        margins = ((each, metrics[each.metric].margin_percent) for each in alone[number] if each.metric in metrics)
        sizes = (abs(each.size_percent or 0.0) / margin for each, margin in margins)
        return len({each.metric for each in alone[number]}), max(sizes, default=0.0)

    largest = sorted(alone, key=weight, reverse=True)
    for number in sorted(largest[:MOST_EVENTS]):
        events = alone[number]
        side = events[0].build
        slugs = [event.metric for event in events]
        names = {slug: metrics[slug].name if slug in metrics else slug for slug in slugs}
        rate = OTHER_EVENTS.get(test.type)
        evidence = {"side": side, "group": number, "events": events, "names": names, "identical": rate}
        yield Found(FindingKind.EVENT, Severity.INFO, evidence, id=f"{test.name}.{FindingKind.EVENT}.{side}.{number}")
    if folded := largest[MOST_EVENTS:]:
        yield Found(FindingKind.MORE_EVENTS, Severity.INFO, {"groups": sorted(folded)})
