"""What stands first: which rows made the verdict, what could have been seen beside a pass, and what did not change."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import pytest

import buildcompare as bc
from buildcompare import findings
from buildcompare import results as schema
from buildcompare.comparison import analysis as workbench
from buildcompare.findings import verdict
from buildcompare.findings.verdict import Opening, opening
from buildcompare.report import markdown, sections
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.results.users import Bump, RampUp
from loadsim import Coordinator, RunSettings, simulate_run
from quiet import analysed, at_load, quiet, with_metric
from validity_cases import changed, scaled


@cache
def bench() -> workbench.Analysis:
    settings = RunSettings(type="bounded", duration_s=2400.0, coordinator=Coordinator(max_users=2000))
    base, new = (simulate_run(settings, seed).recording for seed in (1, 2))
    return analysed(base, new, db_engine="postgresql")


def results(*tests: schema.TestResult) -> schema.Results:
    judged = [test.model_copy(update={"verdict": verdict.of_test(test)}) for test in tests]
    update = {"tests": judged, "verdict": verdict.of_comparison(judged), "findings": [], "suggestions": []}
    return bench().results.model_copy(update=update)


def with_recordings(change: Callable[[Side, bc.Recording], bc.Recording]) -> schema.Results:
    known, test = bench(), "postgresql_bounded"
    recordings = {side: [change(side, each) for each in known.recordings[test][side]] for side in SIDES}
    return workbench.analyse(known.params, {test: recordings}).results


def users(delta: float, **changes: Any) -> schema.SupportedUsersResult:
    nobody = {"base": None, "new": None}
    row = schema.SupportedUsersResult.model_validate(
        {
            "base": 7000.0, "new": 7000.0 * (1 + delta / 100), "delta_percent": delta, "ci_low": delta - 4.0,
            "ci_high": delta + 4.0, "p_value": 0.5, "band_percent": 5.0, "status": "inconclusive",
            "min_detectable_percent": 7.3,
            "reported": nobody, "estimated": nobody, "at_least": nobody, "reason": nobody,
        }
    )  # fmt: skip
    return row.model_copy(update=changes)


def worse(test: schema.TestResult, slug: str, delta: float) -> schema.TestResult:
    return with_metric(test, slug, status="regression", delta_percent=delta, traffic_mix=None)


def test_a_regression_names_what_regressed_and_where() -> None:
    other = quiet("mysql_bounded")
    one = results(worse(quiet(), "p99-api-times", 33.4), other)
    assert one.verdict == "regression"
    assert opening(one).title == "Regression in Bounded Postgres: P99 API times +33.4 %"
    alone = results(worse(quiet(), "p99-api-times", 33.4))
    assert opening(alone).title == "Regression: P99 API times +33.4 %"
    both = results(worse(quiet(), "p99-api-times", 33.4), worse(other, "p99-api-times", 12.0))
    assert opening(both).title == "Regression: P99 API times +33.4 % at worst in 2 tests"
    two = results(worse(quiet(), "p99-api-times", 33.4), worse(other, "avg-api-times", 12.0))
    assert opening(two).title == (
        "Regression: P99 API times +33.4 % in Bounded Postgres, Avg API times +12.0 % in Bounded MySQL"
    )


def test_the_supported_users_are_named_first_and_a_title_stays_short() -> None:
    about = {"name": "postgresql_unbounded", "type": "unbounded"}
    unbounded = quiet().model_copy(update={**about, "supported_users": users(-12.3, status="regression")})
    test = worse(worse(unbounded, "p99-api-times", 90.0), "avg-api-times", 40.0)
    assert opening(results(test)).title == "Regression: supported users −12.3 %, P99 API times +90.0 % and 1 more"


def test_a_title_counts_as_the_verdict_does() -> None:
    mix = bc.TrafficMixResult(
        group="api", kind="both", counts=True, base=0.01, new=0.02, delta_percent=100.0, mix_percent=60.0,
        speed_percent=40.0, at_unchanged_mix_percent=25.0, status="regression",
    )  # fmt: skip
    found = results(with_metric(quiet(), "avg-api-times", status="regression", delta_percent=100.0, traffic_mix=mix,
                                decided_by="traffic_mix"))  # fmt: skip
    assert opening(found).title == "Regression: Avg API times +25.0 % at unchanged traffic mix"


def unbounded(row: schema.LoadAdjustedResult | None, status: str = "regression", delta: float = 60.0) -> schema.Results:
    decided = "none" if row is None else "equal_load"
    test = with_metric(quiet(), "p99-api-times", status=status, delta_percent=delta, load_adjusted=row,
                       decided_by=decided, p_worse_one_sided=0.001)  # fmt: skip
    return results(test.model_copy(update={"type": "unbounded", "supported_users": users(1.0)}))


def test_latency_at_own_load_decides_no_unbounded_test() -> None:
    for row in (None, at_load(4.0, "inconclusive"), at_load(-2.0, "not_worse", no_worse_than_percent=10.0)):
        assert unbounded(row).verdict == "pass"
    leans = unbounded(at_load(14.0, "inconclusive", p_worse_one_sided=0.04))
    assert leans.verdict == "inconclusive"
    assert "P99 API times" in opening(leans).sentence


def test_a_regression_at_equal_load_decides_whatever_the_own_load_shows() -> None:
    for status, delta in (("inconclusive", 3.0), ("improvement", -20.0), ("regression", 50.0)):
        found = unbounded(at_load(31.0, "regression", p_value=0.001, p_adjusted=0.002), status, delta)
        assert found.verdict == "regression"
        assert opening(found).title == "Regression: P99 API times +31.0 % at equal load"


def test_what_users_do_not_feel_makes_no_title() -> None:
    found = results(worse(quiet(), "stack-in-use", 70.0))
    assert found.verdict == "pass"
    assert "Stack" not in opening(found).title + opening(found).sentence


@pytest.mark.parametrize(
    ("base", "new", "unit", "verdict"),
    [
        (0.0, 4.0, "percent", "inconclusive"),
        (0.4, 1.0, "percent", "inconclusive"),
        (0.6, 1.0, "percent", "pass"),  # not twice as many
        (0.0, 0.9, "percent", "pass"),  # the findings name it
        (4.0, 0.0, "percent", "pass"),
        (0.0, 4.0, "errors/s", "pass"),  # of how many requests nobody knows
    ],
)
def test_a_build_whose_requests_fail_does_not_pass(base: float, new: float, unit: str, verdict: str) -> None:
    fields: dict[str, Any] = {"name": "Server errors", "slug": "server-errors", "unit": unit, "base": base, "new": new}
    row = schema.ErrorRateResult(**fields, delta=new - base, delta_percent=None, status="inconclusive", reason=None)
    found = results(quiet().model_copy(update={"errors": [row]}))
    assert found.verdict == verdict
    if verdict != "pass":
        assert opening(found) == Opening(
            "Cannot tell: Server errors",
            "The new build fails at least 1 % of its requests, and twice as many as the base.",
        )


def test_a_section_without_content_has_no_heading() -> None:
    bare = replace(bench(), results=results(quiet()).model_copy(update={"plan": []}))
    assert [name for name in sections.SECTIONS if not [*sections.parts_of(bare, name)]] == [
        "further_runs", "setup", "supported_users", "errors",
    ]  # fmt: skip
    assert next(sections.parts_of(bare, "comments")).heading == "Comments", "README.md fills it in"


def test_beside_a_pass_stands_what_could_have_gone_unseen() -> None:
    sizes = {"avg-api-times": 35.2, "p99-api-times": 21.0}
    test = quiet()
    for slug, size in sizes.items():
        test = with_metric(test, slug, ci_low=-9.0, ci_high=size, status="inconclusive", p_value=0.5)
    said = opening(results(test))
    assert said.title == "Pass"
    assert "Still possible: Avg API times 35.2 % worse, P99 API times 21.0 % worse." in said.sentence
    assert "Not judged" not in said.sentence
    other = with_metric(quiet("mysql_bounded"), "avg-api-times", ci_low=-9.0, ci_high=40.0, status="inconclusive")
    (found,) = (each for each in findings.find([test], ("v1", "v2")) if each.kind == "blind_spots")
    assert found not in findings.above_the_fold([found])[0], "once is enough"
    assert "Avg API times 40.0 % worse" in opening(results(test, other)).sentence


def test_beside_a_pass_stands_what_users_feel_and_nothing_judged() -> None:
    test = with_metric(quiet(), "avg-api-times", min_detectable_percent=None, p_value=None, ci_low=None)
    sentence = opening(results(test)).sentence
    assert "Not judged: Avg API times." in sentence
    assert "Avg API times" not in sentence.split("Not judged")[0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"p_worse_one_sided": 0.04, "delta_percent": 25.0}, "Not decided: it may be worse, or this may be chance"),
        ({"base": None, "p_value": None, "delta_percent": None}, "one build has no value"),
        ({"ci_low": -40.0, "ci_high": 101.0, "p_worse_one_sided": 0.3}, "it may be twice as bad"),
    ],
)
def test_what_cannot_be_told_is_named(row: dict[str, Any], said: str) -> None:
    found = results(with_metric(quiet(), "p99-api-times", status="inconclusive", traffic_mix=None, **row))
    assert found.verdict == "inconclusive"
    assert opening(found).title.startswith("Cannot tell: P99 API times")
    assert said in opening(found).sentence
    assert "Bounded Postgres: P99 API times" not in opening(found).sentence  # the title has it


def test_a_loss_of_users_that_cannot_be_excluded_is_said() -> None:
    row = users(-7.0, ci_low=-14.0, p_worse_one_sided=0.06)
    found = results(quiet().model_copy(update={"supported_users": row}))
    assert (found.verdict, opening(found).title) == ("inconclusive", "Cannot tell: supported users −7.0 %")
    assert "(Bounded Postgres: a loss of up to 14.0 %)" in opening(found).sentence


def test_an_invalid_test_is_named_and_hides_no_regression() -> None:
    invalid = quiet("mysql_bounded").model_copy(update={"validity": schema.Validity(status="invalid")})
    found = results(worse(quiet(), "p99-api-times", 33.4), worse(invalid, "avg-api-times", 99.0))
    assert opening(found).title == "Invalid test: Bounded MySQL"
    assert "In valid tests this got worse: P99 API times +33.4 % in Bounded Postgres." in opening(found).sentence
    assert "99.0" not in opening(found).sentence


def test_another_unit_blocks_a_verdict_by_one_line_at_the_top() -> None:
    found = with_recordings(lambda _, each: scaled(each, "cpu-utilization", 0.01))
    line = opening(found)
    assert (found.verdict, line.title) == ("invalid", "Invalid test: Bounded Postgres")
    said = "v1: cpu-utilization is 0.327 % in x.parquet, where a server under this load"
    assert line.sentence.startswith(f"It cannot be judged ({said}")
    assert (found.findings[0].kind, found.findings[0].severity) == ("validity", "critical")


def test_a_load_that_was_not_recorded_is_said_first() -> None:
    load = ("number-of-connected-devices", "goroutines-in-use")
    found = with_recordings(lambda _, each: changed(each, lambda s: s if s.metric not in load else None))
    assert found.tests[0].validity.status == "limited"
    said = "The load of Bounded Postgres was not recorded, so its results are limited"
    assert opening(found).sentence.startswith(said)


@pytest.mark.parametrize(
    ("status", "low", "high", "delta", "p", "said"),
    [
        ("regression", -0.8, 13.3, 6.0, 0.03, "more"),
        ("regression", 0.8, 13.3, 6.0, 0.03, "more"),
        ("inconclusive", -1.0, 40.0, 18.0, 0.2, "cannot tell"),
        ("equivalent", -6.0, 6.0, 0.0, 1.0, "no difference beyond 6.0 %"),
        ("equivalent", -4.0, 4.0, 0.0, 1.0, "no difference beyond 5.0 %"),
    ],
)
def test_at_equal_load_a_status_says_what_decided(
    status: str, low: float, high: float, delta: float, p: float, said: str
) -> None:
    row = at_load(delta, status, ci_low=low, ci_high=high, p_value=p / 8, p_adjusted=p)
    test = with_metric(quiet(), "stack-in-use", margin_percent=5.0, load_adjusted=row)
    parts = sections.metrics(replace(bench(), results=results(test)))
    assert f"</span> {said}</td>" in "".join(str(getattr(part, "html", "")) for part in parts)


@pytest.mark.parametrize(
    ("changes", "samples", "runs"),
    [
        ({"status": "inconclusive", "required_runs": 7, "n_effective": 0.3}, "below 1", "7"),
        ({"status": "inconclusive", "required_runs": None, "n_effective": 41.6}, "42", "over 99"),
        ({"status": "regression", "required_runs": 7, "n_effective": None}, "–", "–"),
        ({"status": "equivalent", "required_runs": 7, "n_effective": 1.0}, "1", "–"),
        ({"status": "inconclusive", "required_runs": None, "p_value": None, "n_effective": 5.0}, "5", "–"),
    ],
)
def test_only_what_is_open_has_runs_to_settle(changes: dict[str, Any], samples: str, runs: str) -> None:
    test = with_metric(quiet(), "stack-in-use", **{"p_value": 0.2, "traffic_mix": None, **changes})
    parts = sections.metrics(replace(bench(), results=results(test)))
    page = "".join(str(getattr(part, "html", "")) for part in parts)
    row = page.split("The numbers behind it")[1].split("Stack In Use")[1].split("</tr>")[0]
    assert f'<td class="n">{samples}</td><td class="n">{runs}</td>' in row


LABELS = ("v1", "v2")


def of_kind(kind: str, *tests: schema.TestResult) -> list[schema.Finding]:
    return [each for each in findings.find(tests, LABELS) if each.kind == kind]


def judged(test: schema.TestResult) -> list[bc.MetricResult]:
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
    assert len(found.evidence["same"]) == statuses.count(bc.Status.EQUIVALENT)
    assert len(found.evidence["not_worse"]) == statuses.count(bc.Status.NOT_WORSE)
    assert len(found.evidence["undecided"]) == len(undecided)


def test_an_unbounded_test_is_reported_at_equal_load() -> None:
    worse = at_load(6.0, "regression", p_adjusted=0.03)
    own: dict[str, Any] = {"delta_percent": 30.0, "status": bc.Status.REGRESSION, "decided_by": "equal_load"}

    def found(slug: str, row: schema.LoadAdjustedResult) -> list[schema.Finding]:
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
    invalid = other.model_copy(update={"validity": schema.Validity(status="invalid")})
    (found,) = of_kind("unchanged", quiet(), invalid)
    assert (found.evidence["tests"], of_kind("unchanged", invalid)) == (["postgresql_bounded"], [])


def finding(kind: str, severity: Literal["critical", "warning", "info"]) -> schema.Finding:
    return schema.Finding(id=kind, severity=severity, kind=kind, test=None, metric=None, text=".", evidence={"x": 1})


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

    def bullets(found: list[schema.Finding]) -> list[str]:
        text = markdown.render(bench().results.model_copy(update={"findings": found, "suggestions": []}), [])
        return [line for line in text.partition("## Comments")[0].splitlines() if line.startswith("- ")]

    more = [f"- {count} more findings in [report.html](report.html)." for count in (3, 7)]
    assert bullets([*asked, *quiet_ones]) == ["- .", "- .", "- .", more[0]]
    assert bullets(warnings) == [*(f"- Warning {i}." for i in range(5)), more[1]]


@pytest.mark.parametrize(("base", "new", "said"), [(1, 1, True), (0, 0, False), (1, 3, False)])
def test_bumps_of_both_builds_are_one_info(base: int, new: int, *, said: bool) -> None:
    test, ramps = quiet(), {}
    for side, count in (("base", base), ("new", new)):
        sizes = (180.0 + i for i in range(count))
        found = [Bump(start_s=0, peak_s=75, end_s=200, peak_users=size, depth_users=170) for size in sizes]
        of_test = getattr(test.ramp_up, side).model_dump()
        ramps[side] = RampUp.model_validate({**of_test, "onset_s": 240.0, "early_bumps": count, "bumps": found})
    runs = Pair.of(lambda side: [test.runs[side][0].model_copy(update={"ramp_up": ramps[side]})])
    ramp_up = test.ramp_up.model_copy(update=ramps)
    bumpy = test.model_copy(update={"type": "unbounded", "ramp_up": ramp_up, "runs": runs})
    told = of_kind("bumps_in_both", bumpy)
    assert bool(told) is said
    if said:
        assert told[0].severity == "info"
        assert [told[0].evidence[key] for key in ("early_bumps", "peak", "onset_s")] == [1, 180.0, 240.0]


@pytest.mark.parametrize(("slug", "severity"), [("p99-api-times", "critical"), ("stack-in-use", "info")])
def test_regressions_of_gates_are_critical_and_an_invalid_test_has_none(slug: str, severity: str) -> None:
    """Swapped releases have as many regressions of other metrics, so these are infos before all others."""
    worse = with_metric(quiet(), slug, delta_percent=30.0, status="regression", gate=severity == "critical")
    (told,) = of_kind("metric", worse)
    assert told.severity == severity
    infos = [each for each in findings.find([worse], LABELS) if each.severity == "info"]
    assert severity == "critical" or infos[0] == told
    invalid = worse.model_copy(update={"validity": schema.Validity(status="invalid")})
    (told,) = of_kind("metric", invalid)
    assert (told.severity, told.text.endswith("+30.0 %, in an invalid test.")) == ("info", True)
    assert of_kind("metric", invalid.model_copy(update={"type": "unbounded"})) == []
