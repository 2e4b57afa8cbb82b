"""What further runs would show: of which rows, for how many hours, in which order, and where it is said."""

from pathlib import Path

import numpy as np
import pytest

from buildcompare.comparison.analysis import Analysis
from buildcompare.comparison.plan import order_of_runs, plan_text
from buildcompare.findings.verdict import opening
from buildcompare.report import sections
from buildcompare.results import Results
from buildcompare.stats.planning import plan_runs
from buildcompare.text.numbers import percent
from support import analysed, command, small_params, write_params


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysed(small_params(tmp_path_factory.mktemp("plan")))


def test_the_rows_that_a_verdict_rests_on_are_planned(bench: Analysis) -> None:
    bounded, unbounded = bench.results.plan
    assert [row.name for row in bounded.rows] == ["Avg API times"]
    assert [(row.name, row.decided_by) for row in unbounded.rows] == [
        ("Avg API times", "equal_load"),
        ("supported users", "level"),
    ]
    runs = bench.results.tests[0].runs
    assert bounded.hours == pytest.approx((runs.base[0].duration_s + runs.new[0].duration_s) / 3600.0)
    row = bounded.rows[0]
    metric = next(each for each in bench.results.tests[0].metrics if each.slug == row.slug)
    assert metric.noise_df is not None
    steps = plan_runs(
        np.log1p(metric.run_sd_percent / 100.0), metric.noise_df, margin_percent=row.margin_percent, gate=True
    )
    assert row.steps[0].found_percent == pytest.approx(steps[0].found_percent)
    assert [step.hours / step.further for step in row.steps] == pytest.approx([bounded.hours] * len(row.steps))
    assert row.steps[-1].found_percent <= max(1.5 * row.margin_percent, steps[-1].found_percent)


def test_runs_are_interleaved() -> None:
    assert order_of_runs(3, runs=2) == ["base", "new", "new", "base", "base", "new"]
    for runs in range(1, 4):
        for further in range(1, 9):
            order = ["base", "new"] * (runs == 1) + order_of_runs(further, runs)
            place = {side: np.mean([i for i, each in enumerate(order) if each == side]) for side in ("base", "new")}
            assert abs(place["base"] - place["new"]) <= 1.0  # a drift of the machines hits both alike


def test_the_plan_is_said_where_something_is_open(bench: Analysis, tmp_path: Path) -> None:
    open_ = [row for plan in bench.results.plan for row in plan.undecided]
    assert open_, "else nothing is tested"
    text = plan_text(bench.results)
    assert f"{open_[0].steps[0].further} further run of each build" in text
    html = str(sections.further_runs(bench).html)
    assert html.count("<tr>") == 1 + sum(len(row.steps) for row in open_)
    file = write_params(tmp_path / "small.yaml", bench.params.model_dump(mode="json", exclude_defaults=True))
    told = command("plan", file)
    assert (told.exit_code, told.output) == (0, text)


def all_decided(results: Results) -> Results:
    plans = []
    for plan in results.plan:
        rows = [row.model_copy(update={"status": "not_worse"}) for row in plan.rows]
        plans.append(plan.model_copy(update={"rows": rows}))
    return results.model_copy(update={"plan": plans})


def test_the_opening_says_what_further_hours_would_give(bench: Analysis) -> None:
    plans = bench.results.plan
    gates = [(test, row) for test in bench.results.tests for row in test.metrics if row.gate and row.deciding]
    size, where, slug = max((row.deciding.ci_high or 0.0, test.name, row.slug) for test, row in gates if row.deciding)
    (worst,) = (row for plan in plans if plan.test == where for row in plan.undecided if row.slug == slug)
    best = next(step for step in worst.steps if (step.no_worse_than_percent or size) < 0.8 * size)
    passed = bench.results.model_copy(update={"verdict": "pass"})
    sentence = opening(passed).sentence
    assert best.no_worse_than_percent is not None
    bound = percent(best.no_worse_than_percent, "upper")
    assert f"{worst.name} to be at most {bound} worse, if nothing changed." in sentence
    assert " One more run of each build in " in sentence
    assert "more run" not in opening(all_decided(passed)).sentence
    decided = plan_text(all_decided(bench.results))
    assert decided == "Every row that the verdict rests on is decided: no further runs are asked for.\n"
    assert plan_text(all_decided(bench.results).model_copy(update={"verdict": "invalid"})).startswith("Run the invalid")
