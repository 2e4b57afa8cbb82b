"""Load testers from their registries, against a real HTTP server of which one build is slower and fails."""

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import buildcompare as bc
import programs
from buildcompare.results import ErrorRateResult, MetricResult

TOOLS = ("k6", "vegeta", "locust", "jmeter")
RUNS, SECONDS = 3, 60


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize("tool", TOOLS)
def test_the_slower_endpoint_is_the_first_finding_and_failures_a_regression(
    tool: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(getattr(programs, f"{tool}_program")().parent), prepend=":")
    monkeypatch.syspath_prepend(project / "benchmarks")
    tools = importlib.import_module("tools")  # its servers run in processes, which must find it by name
    with tools.server(slower=False) as base, tools.server(slower=True) as new, ThreadPoolExecutor(2 * RUNS) as pool:
        places = [(at, tmp_path / name / f"run{i}") for i in range(RUNS) for name, at in (("base", base), ("new", new))]
        _ = [*pool.map(lambda place: tools.record(tool, *place, SECONDS), places)]
    result = bc.compare(tmp_path / "base", tmp_path / "new")
    (slower,) = result.labels.query("stat == 'avg' and label.str.contains('/search')")["delta_percent"]
    assert 1.0 + slower / 100.0 == pytest.approx(tools.SLOWER, rel=0.1)  # clients on a busy machine add their time
    assert "/search" in result.results.findings[0].text
    (test,) = result.results.tests
    rows: list[MetricResult | ErrorRateResult] = [*test.metrics, *test.errors]
    failing = {row.slug for row in rows if row.status == "regression"}
    assert failing & {"successful-requests", "failed-requests"}
