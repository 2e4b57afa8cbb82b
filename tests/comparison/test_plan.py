"""What further runs would show, and where it is said; and answers of other margins are those of a new comparison."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.comparison import analysis, measure
from buildcompare.comparison.analysis import Analysis
from buildcompare.comparison.plan import order_of_runs, plan_text
from buildcompare.findings.verdict import opening
from buildcompare.report import sections
from buildcompare.results import Results
from buildcompare.text.numbers import percent
from loadfiles.comparisons import import_comparisons
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
    steps = bc.plan_runs(
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
    assert str(sections.further_runs(bench).html).count("<tr>") == 1 + sum(len(row.steps) for row in open_)
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


def said(result: bc.Result) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(result.to_json())
    results["provenance"].pop("run")
    return results


def from_scratch(result: bc.Result, margins: dict[str, float]) -> bc.Result:
    return bc.compare(result.params.model_copy(update={"margins": {**result.params.margins, **margins}}))


def test_a_folder_is_imported_in_the_order_of_releases(tmp_path: Path) -> None:
    for label in ("v1.10.0", "v1.9.0", "v1.10.0-rc1"):
        write_params(tmp_path / f"{label}.yaml", small_params(tmp_path / "data", name=label, new={"label": label}))
    made = import_comparisons(tmp_path, tmp_path / "ledger")
    assert [entry.name for entry in made] == ["v1.9.0", "v1.10.0-rc1", "v1.10.0"]


def test_the_bundled_comparison_beside_a_ledger(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(project / "params/v9.6.0-rc1.yaml", tmp_path)
    (ledger := tmp_path / "ledger").mkdir()
    import_comparisons(tmp_path, ledger)
    params = bc.read_params(project / "params/v10.4.0-rc1.yaml")
    first = bc.compare(params.model_copy(update={"history": str(ledger)}))
    asked: list[dict[str, float]] = [
        {"cpu-utilization": 1.0},  # then it counts for more, in tests and events
        {"number-of-connected-devices": 1.0, "p99-api-times": 60.0},  # the first is that of the ledger's drift, too
    ]
    wanted = said(first), *(said(from_scratch(first, margins)) for margins in asked)
    for name in ("read_recordings", "compare_test", "view_run", "measure_metrics", "measure_at_load", "search_events"):
        for module in (analysis, measure):
            monkeypatch.setattr(module, name, None, raising=module is measure and name != "read_recordings")
    other = [first.with_margins(margins) for margins in asked]
    assert (said(first), *map(said, other)) == wanted
    assert wanted[0] != wanted[1] != wanted[2]
    statuses = [tuple(row["status"] for row in each["tests"][0]["metrics"]) for each in wanted]
    assert len({*statuses}) > 1, "the margins matter"
    both = {name: size for margins in asked for name, size in margins.items()}
    assert said(other[0].with_margins(asked[1])) == said(first.with_margins(both)), "the other margins stay"


def test_repeated_runs_with_a_calibration_and_a_benchmark(project: Path) -> None:
    calibrated = bc.compare(bc.read_params(project / "params/missing-index.yaml"))
    margins = {calibrated.catalogue.metrics[1].name: 70.0}
    assert said(calibrated.with_margins(margins)) == said(from_scratch(calibrated, margins))
    old = [{"import": seconds, "start": 2.0} for seconds in (62.1, 61.5, 61.9)]
    new = [{"import": seconds, "start": 2.1} for seconds in (58.2, 58.9)]
    operations = {"import": {"unit": "seconds"}, "start": {"unit": "seconds"}}
    benchmark = bc.compare(old, new, metrics=operations)
    stricter = bc.compare(old, new, metrics=operations, margins={"import": 1.0})
    assert said(benchmark.with_margins({"import": 1.0})) == said(stricter) != said(benchmark)


@pytest.mark.parametrize(
    ("margins", "expected"),
    [({"cpu": 8.0}, "a metric of the catalogue"), ({"import": 0.0}, "above 0"), ({"import": float("nan")}, "above 0")],
)
def test_a_margin_of_nothing_is_refused(margins: dict[str, float], expected: str) -> None:
    result = bc.compare({"import": 2.0}, {"import": 2.1}, metrics={"import": {"unit": "seconds"}})
    with pytest.raises(bc.InputError, match=expected):
        result.with_margins(margins)
