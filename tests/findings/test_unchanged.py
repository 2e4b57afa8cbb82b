"""What did not change, and what stands where: the sentences that a quiet comparison begins with."""

import random
from typing import Any, Literal

import pytest

from buildcompare import findings
from buildcompare.report import markdown
from buildcompare.results import Finding, LoadAdjustedResult, MetricResult, TestResult, Validity
from buildcompare.results.codes import Pair, Status
from buildcompare.results.users import Bump, RampUp
from loadsim import RunSettings, simulate_run
from quiet import analysed, at_load, quiet, with_metric

LABELS = ("v1", "v2")


def of_kind(kind: str, *tests: TestResult) -> list[Finding]:
    return [each for each in findings.find(tests, LABELS) if each.kind == kind]


def judged(test: TestResult) -> list[MetricResult]:
    return [row for row in test.metrics if row.p_value is not None]


def test_what_did_not_change_is_said_with_its_counts() -> None:
    test = quiet()
    (found,) = of_kind("unchanged", test)
    statuses = [row.status for row in judged(test)]
    assert set(statuses) <= {"equivalent", "not_worse", "inconclusive"}
    assert (found.severity, found.evidence["judged"], found.evidence["differ"]) == ("info", len(statuses), [])
    undecided = [row for row in judged(test) if row.status == "inconclusive"]
    widest = max(undecided, key=lambda row: abs(row.delta_percent or 0.0))
    assert found.evidence["largest_undecided"]["name"] == widest.name
    assert len(found.evidence["same"]) == statuses.count(Status.EQUIVALENT)
    assert len(found.evidence["not_worse"]) == statuses.count(Status.NOT_WORSE)
    assert len(found.evidence["undecided"]) == len(undecided)


def test_an_unbounded_test_is_reported_at_equal_load() -> None:
    """What became slow at a build's own load alone is no finding: the load-test coordinator lets it."""
    worse = at_load(6.0, "regression", p_adjusted=0.03)
    own: dict[str, Any] = {"delta_percent": 30.0, "status": Status.REGRESSION, "decided_by": "equal_load"}

    def found(slug: str, row: LoadAdjustedResult) -> list[Finding]:
        return of_kind("metric", with_metric(quiet(), slug, load_adjusted=row, **own))

    assert found("cpu-utilization", at_load(6.0)) == []
    (told,) = found("cpu-utilization", worse)
    assert (told.severity, told.evidence["delta_percent"], told.evidence["own_load_percent"]) == ("info", 6.0, 30.0)
    assert " at equal load (6,000 users), +6.0 %." in told.text
    assert "At each build's own load +30.0 %." in told.whole
    (told,) = found("p99-api-times", at_load(6.0, p_worse_one_sided=0.06))
    assert told.severity == "info"
    assert "+6.0 %, which looks worse, but may be chance." in told.text
    (told,) = found("p99-api-times", worse)
    assert told.severity == "critical"


def test_two_tests_of_one_kind_share_a_sentence_and_an_invalid_one_says_nothing() -> None:
    other = quiet("mysql_bounded")
    (found,) = of_kind("unchanged", quiet(), other)
    assert found.evidence["tests"] == ["postgresql_bounded", "mysql_bounded"]
    assert found.evidence["judged"] == len(judged(quiet())) + len(judged(other))
    invalid = other.model_copy(update={"validity": Validity(status="invalid")})
    (found,) = of_kind("unchanged", quiet(), invalid)
    assert (found.evidence["tests"], of_kind("unchanged", invalid)) == (["postgresql_bounded"], [])


def finding(kind: str, severity: Literal["critical", "warning", "info"]) -> Finding:
    return Finding(id=kind, severity=severity, kind=kind, test=None, metric=None, text=".", evidence={"x": 1})


def test_an_endpoint_that_got_slower_stands_first_and_drift_above_single_metrics() -> None:
    warnings = ("beginning", "setup_differences", "level_drift")
    infos = ("unchanged", "previous_new", "between_databases", "metric", "label_changed", "event", "blind_spots")
    order = [finding("label_changed", "warning"), finding("validity", "critical"), finding("supported_users", "info")]
    order += [*(finding(kind, "warning") for kind in warnings), *(finding(kind, "info") for kind in infos)]
    shuffled = random.Random(1).sample(order, len(order))
    assert [each.kind for each in findings.gravest_first(shuffled)] == [each.kind for each in order]


def test_above_the_fold_no_info_stands_above_a_warning() -> None:
    found = [finding("validity", "critical"), finding("supported_users", "info"), finding("beginning", "warning"),
             finding("level_drift", "warning"), finding("unchanged", "info")]  # fmt: skip
    top, rest = findings.above_the_fold(found)
    assert [each.kind for each in top] == ["validity", "beginning", "level_drift", "supported_users", "unchanged"]
    assert rest == []
    warnings = [finding("metric", "warning").model_copy(update={"id": f"m{i}"}) for i in range(12)]
    top, rest = findings.above_the_fold([found[1], *warnings])
    assert top == [*warnings[:4], found[1]], "what everybody asks is not folded away"
    assert rest == warnings[4:]


def test_findings_about_recordings_push_no_other_off_the_first_five() -> None:
    changes = [finding("metric", "info").model_copy(update={"id": f"m{i}"}) for i in range(5)]
    hygiene = [finding(kind, "warning") for kind in ("gaps", "missing_metrics", "counter_resets")]
    top, rest = findings.above_the_fold(findings.gravest_first([*hygiene, *changes]))
    assert (top, {each.kind for each in rest}) == (changes, {each.kind for each in hygiene})
    top, _ = findings.above_the_fold(findings.gravest_first([*hygiene, *changes[:3]]))
    assert [each.kind for each in top] == ["gaps", "missing_metrics", "metric", "metric", "metric"]


def test_a_readme_says_what_is_asked_and_at_most_five_lines() -> None:
    asked = [finding("supported_users", "info"), finding("unchanged", "info"), finding("between_databases", "info")]
    quiet_ones = [finding("event", "info"), finding("metric", "info"), finding("blind_spots", "info")]
    warnings = [finding("metric", "warning").model_copy(update={"text": f"Warning {i}."}) for i in range(12)]
    assert findings.headlines([*asked, *quiet_ones]) == asked
    assert findings.headlines([*quiet_ones, *warnings]) == warnings

    def opening(found: list[Finding]) -> list[str]:
        base, new = (simulate_run(RunSettings(type="bounded", duration_s=2400.0), seed).recording for seed in (1, 2))
        results = analysed(base, new).results
        text = markdown.render(results.model_copy(update={"findings": found, "suggestions": []}), [])
        return [line for line in text.partition("## Comments")[0].splitlines() if line.startswith("- ")]

    assert opening([*asked, *quiet_ones]) == ["- ."] * 3
    assert opening(warnings) == [*(f"- Warning {i}." for i in range(5)), "- 7 more in [report.html](report.html)."]


def bumpy(test: TestResult, base: int, new: int) -> TestResult:
    ramps = {}
    for side, count in (("base", base), ("new", new)):
        sizes = (180.0 + i for i in range(count))
        found = [Bump(start_s=0, peak_s=75, end_s=200, peak_users=size, depth_users=170) for size in sizes]
        of_test = getattr(test.ramp_up, side).model_dump()
        ramps[side] = RampUp.model_validate({**of_test, "onset_s": 240.0, "early_bumps": count, "bumps": found})
    runs = Pair.of(lambda side: [test.runs[side][0].model_copy(update={"ramp_up": ramps[side]})])
    return test.model_copy(update={"type": "unbounded", "ramp_up": test.ramp_up.model_copy(update=ramps), "runs": runs})


@pytest.mark.parametrize(("base", "new", "said"), [(1, 1, True), (0, 0, False), (1, 3, False)])
def test_bumps_of_both_builds_are_one_info(base: int, new: int, *, said: bool) -> None:
    found = of_kind("bumps_in_both", bumpy(quiet(), base, new))
    assert bool(found) is said
    if said:
        assert found[0].severity == "info"
        assert [found[0].evidence[key] for key in ("early_bumps", "peak", "onset_s")] == [1, 180.0, 240.0]


@pytest.mark.parametrize(("slug", "severity"), [("p99-api-times", "critical"), ("stack-in-use", "info")])
def test_regressions_of_gates_are_critical_and_an_invalid_test_has_none(slug: str, severity: str) -> None:
    """Swapped releases have as many regressions of other metrics, so these are infos before all others."""
    worse = with_metric(quiet(), slug, delta_percent=30.0, status="regression", gate=severity == "critical")
    (told,) = of_kind("metric", worse)
    assert told.severity == severity
    infos = [each for each in findings.find([worse], LABELS) if each.severity == "info"]
    assert severity == "critical" or infos[0] == told
    invalid = worse.model_copy(update={"validity": Validity(status="invalid")})
    assert [each.severity for each in of_kind("metric", invalid)] == ["info"]
    assert of_kind("metric", invalid.model_copy(update={"type": "unbounded"})) == []
