"""What several tests agree on, error rates, and what is suggested."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from buildcompare import findings
from buildcompare.findings import suggest
from buildcompare.findings.labels import agreeing_labels
from buildcompare.recordings.recording import Recording, Series
from buildcompare.report import junit, markdown, sections
from buildcompare.results import Finding, LabelResult, Suggestion, TestPlan, TestResult, Validity
from buildcompare.results.codes import Pair
from loadsim import Traffic, simulate_run
from quiet import QUIET, analysed, compared


@cache
def recordings() -> tuple[Recording, Recording]:
    return simulate_run(QUIET, 21).recording, simulate_run(QUIET, 22).recording


def result(
    name: str = "postgresql_bounded",
    errors: tuple[float | None, float | None] | None = None,
    rows: Mapping[tuple[str, str], tuple[float, float, bool]] | None = None,
) -> TestResult:
    base, new = (failing(each, rate) for each, rate in zip(recordings(), errors or (None, None), strict=True))
    found = compared(base, new, name, db_engine=name.split("_")[0], users=2000)
    return found.model_copy(update={"labels": [label_row(*key, *row) for key, row in (rows or {}).items()]})


def failing(recording: Recording, percent: float | None) -> Recording:
    if percent is None:
        return recording
    times = recording.graphs()[0].times
    values = np.where(times - recording.window[0] < 300, 50.0, percent)
    series = Series("client-errors", "Client errors", "percent", times, values, role="error")
    return replace(recording, series=(*recording.series, series))


def label_row(group: str, label: str, delta: float, p_value: float, marked: bool) -> LabelResult:
    status: Any = ("regression" if delta > 0 else "improvement") if marked else "inconclusive"
    return LabelResult(
        group=group, label=label, stat="avg", base=0.1, new=0.1 * (1 + delta / 100), delta_percent=delta,
        p_value=p_value, p_adjusted=min(1.0, 10 * p_value), window="steady", status=status, only_in=None,
        at_least=Pair(False, False), reason=None,
    )  # fmt: skip


def validity_of(status: str, code: str) -> Validity:
    return Validity.model_validate({"status": status, "reasons": [{"code": code, "status": status}]})


def kinds(*tests: TestResult) -> dict[str, Finding]:
    return {each.kind: each for each in findings.find(tests, ("v1", "v2"))}


def test_agreement_needs_a_marked_row_and_another_that_leans_the_same_way() -> None:
    marked, leans = (40.0, 0.002, True), (12.0, 0.12, False)
    labels = {
        "both": [marked, leans], "twice": [marked, marked], "alone": [marked, (12.0, 0.8, False)],
        "small": [marked, (1.0, 0.12, False)], "against": [marked, (-12.0, 0.12, False)], "leaning": [leans, leans],
    }  # fmt: skip
    tables = {test: [label_row("api", name, *rows[i]) for name, rows in labels.items()] for i, test in enumerate("ab")}
    found = agreeing_labels(tables)
    assert ([each.label["label"] for each in found], [each.marked for each in found]) == (["twice", "both"], [2, 1])
    assert found[0].expected == pytest.approx(6 * 0.01**2)
    assert found[1].expected == pytest.approx(6 * (0.1**2 - 0.09**2))
    crowd = [label_row("api", str(i), 0.0, 1.0, False) for i in range(600)]
    sure = agreeing_labels({test: [*rows, *crowd] for test, rows in tables.items()})
    assert [each.label["label"] for each in sure] == ["twice"], "what chance shows anyway sinks"


@pytest.mark.untraced
@pytest.mark.slow
def test_chance_agrees_as_often_as_is_said() -> None:
    rng, tables = np.random.default_rng(3), 2000
    counted, expected = 0, 0.0
    for _ in range(tables):
        p = rng.random((50, 3))
        rows = {
            str(j): [label_row("api", str(i), 20.0, 2.0 * float(p[i, j]), bool(p[i, j] < 0.01)) for i in range(50)]
            for j in range(3)
        }
        twice = [each for each in agreeing_labels(rows) if each.marked >= 2]
        counted += len(twice)
        expected = next((each.expected for each in twice if (each.marked, len(each.rows)) == (2, 2)), expected)
    # 30 are expected, so three standard deviations are about half of them; two marked rows agree at the least.
    assert counted / tables == pytest.approx(expected, rel=0.5)


def test_a_label_that_tests_agree_on_rises_and_a_single_one_does_not() -> None:
    slow, lone = {("api", "getPost"): (60.0, 0.001, True)}, {("api", "getTeam"): (60.0, 0.001, True)}
    found = kinds(result("postgresql_bounded", rows=slow), result("mysql_bounded", rows={**slow, **lone}))
    agreed = found["labels_in_several_tests"]
    assert agreed.severity == "info", "as many releases have one with base and new swapped"
    assert agreed.test is None
    assert [row["label"] for row in agreed.evidence["labels"]] == ["getPost"]
    assert set(agreed.evidence["labels"][0]["tests"]) == {"postgresql_bounded", "mysql_bounded"}
    assert "labels_in_several_tests" not in kinds(result(rows=slow))
    assert "labels_in_several_tests" not in kinds(result(rows=slow), result("mysql_bounded", rows=lone))


def test_a_handler_is_named_with_the_methods_that_move_with_it() -> None:
    rows = {
        ("api", "createPost"): (40.0, 0.001, True),
        ("store", "PostStore.Save"): (38.0, 0.001, True),
        ("store", "PostStore.Get"): (30.0, 0.2, False),
        ("store", "UserStore.Get"): (-40.0, 0.001, True),
    }
    found = kinds(result(rows=rows))["methods_with_handlers"].evidence
    assert (found["handlers"], found["methods"]) == ({"createPost": 40.0}, {"PostStore.Save": 38.0})
    without = {key: row for key, row in rows.items() if key[1] != "PostStore.Save"}
    assert "methods_with_handlers" not in kinds(result(rows=without))
    by_chance = {**rows, ("store", "PostStore.Save"): (38.0, 0.01, True)}
    assert "methods_with_handlers" not in kinds(result(rows=by_chance))


def test_error_rates_are_of_the_steady_window_and_are_not_called() -> None:
    (row,) = result(errors=(0.01, 0.02)).errors
    assert (row.base, row.new, row.delta) == pytest.approx((0.01, 0.02, 0.01))
    assert row.delta_percent == pytest.approx(100.0)
    assert (row.better, row.gate, row.status) == ("lower", True, "inconclusive")
    assert (row.reason.code, result().errors) == ("no_error_noise", [])
    (row,) = result(errors=(None, 0.5)).errors
    assert (row.base, row.status, row.reason and row.reason.build) == (None, "not_comparable", "base")


@pytest.mark.parametrize(
    ("errors", "told"), [((0.01, 0.06), True), ((0.0, 0.03), True), ((0.05, 0.06), False), ((0.001, 0.01), False)]
)
def test_a_jump_of_errors_is_told(errors: tuple[float, float], told: bool) -> None:
    found = kinds(result(errors=errors)).get("error_rate")
    assert (found is not None) == told
    assert found is None or found.severity == "warning"
    quiet = result(errors=(0.0, 0.0))
    assert ("error_rate" in kinds(quiet), quiet.errors[0].reason.code) == (False, "none_failed")
    assert quiet.verdict == result().verdict


def test_a_quiet_test_and_one_that_is_limited_in_its_users_suggest_nothing() -> None:
    limited = result().model_copy(update={"validity": validity_of("limited", "still_climbing")})
    assert suggest([result()]) == suggest([limited]) == []


def test_suggestions_are_three_at_most_and_the_gravest_first() -> None:
    slow = {("api", "getPost"): (60.0, 0.001, True)}
    tests = [result("postgresql_bounded", rows=slow), result("mysql_bounded", rows=slow), result("mariadb_bounded")]
    gate = next(metric for metric in tests[0].metrics if metric.gate)
    leaning = gate.model_copy(update={"p_worse_one_sided": 0.05, "status": "inconclusive", "required_runs": 3})
    tests[0] = tests[0].model_copy(update={"metrics": [leaning]})
    assert [each.kind for each in suggest(tests)] == ["settle", "look_at_label"]
    step = {"further": 2, "found_percent": 5.0, "no_worse_than_percent": None, "hours": 4.0}
    row = {"slug": gate.slug, "name": gate.name, "margin_percent": 5.0, "better": "lower", "decided_by": "level"}
    plan = {"test": tests[0].name, "hours": 2.0, "runs": 1, "order": [], "rows": [
        {**row, "status": "inconclusive", "now_percent": 20.0, "steps": [step]}]}  # fmt: skip
    assert [each.kind for each in suggest(tests, plans=[TestPlan.model_validate(plan)])] == ["look_at_label"]
    assert (suggest(tests)[0].evidence["name"], suggest(tests)[0].evidence["required_runs"]) == (gate.name, 3)
    assert (suggest(tests)[1].evidence["label"], suggest(tests)[1].evidence["marked"]) == ("getPost", 2)
    for i, status in ((1, "limited"), (2, "invalid")):
        tests[i] = tests[i].model_copy(update={"validity": validity_of(status, "gaps")})
    assert [(each.kind, each.test) for each in suggest(tests)] == [
        ("rerun", "mariadb_bounded"),
        ("rerun", "mysql_bounded"),
        ("settle", "postgresql_bounded"),
    ]


def test_where_only_failures_regressed_their_cause_is_to_be_found_first() -> None:
    found = result(errors=(0.0, 3.0))
    errors = [row.model_copy(update={"status": "regression"}) for row in found.errors]
    assert suggest([found.model_copy(update={"errors": errors})]) == [], "not where the test did not regress"
    again = result("mysql_bounded").model_copy(update={"validity": validity_of("invalid", "gaps")})
    first, second = suggest([again, found.model_copy(update={"errors": errors, "verdict": "regression"})])
    text = "Find the cause of Client errors in Bounded Postgres."
    assert (first.kind, first.text, second.kind) == ("find_cause", text, "rerun")


def test_a_test_without_its_load_is_to_be_recorded_with_it_and_not_run_again() -> None:
    found = result()
    runs = found.runs.map(lambda each: [run.model_copy(update={"load_curve": None}) for run in each])
    limited = validity_of("limited", "no_steady_window")
    unknown = found.model_copy(update={"validity": limited, "runs": runs})
    assert suggest([unknown])[0].evidence["load_unknown"] is True
    assert suggest([found.model_copy(update={"validity": limited})])[0].evidence["load_unknown"] is False


def test_reports_show_the_mix_the_errors_and_the_suggestions_apart_from_the_action_items() -> None:
    dropped = Traffic(calls=(("api/getUser", 0.0), ("api/getTeam", 0.0), ("api/getUsersByIds", 0.0)))
    base = failing(simulate_run(QUIET, 21, traffic=Traffic()).recording, 0.01)
    made = analysed(base, failing(simulate_run(QUIET, 22, traffic=dropped).recording, 0.09), db_engine="postgresql")
    suggestion = Suggestion(kind="rerun", test=None, text="Run <it> again.", evidence={})
    results = made.results.model_copy(update={"suggestions": [suggestion], "action_items": ["Ours."]})
    (test,) = results.tests
    risen = test.metrics[-1].model_copy(update={"base": 0.0, "new": 4.0, "delta_percent": None})
    results.tests[0] = test.model_copy(update={"metrics": [*test.metrics[:-1], risen]})
    made = replace(made, results=results)
    page = "".join(str(part.html) for part in sections.metrics(made) if isinstance(part, sections.Fragment))
    assert "Client errors" in str(sections.errors(made).html)
    assert all(words in page for words in ("Other calls or slower calls", "at unchanged traffic mix", "from 0</td>"))
    verdict_part = str(sections.verdict(made).html)
    assert "at unchanged traffic mix" in verdict_part, "the table below the verdict counts as the verdict does"
    assert "Next, suggested by these results:" in verdict_part
    assert "Run &lt;it&gt; again." in verdict_part
    assert "Run &lt;it&gt; again." not in str(sections.action_items(made).html)
    before, _, after = markdown.render(results, []).partition("## Comments")
    assert "Next, suggested by these results:" in before
    assert ["again." in before, "again." in after, "Ours." in after] == [True, False, True]
    case = ET.fromstring(junit.render(results)).find(".//testcase[@name='avg-api-times']")  # our own
    assert case.find("failure") is None
