"""A bounded test between whose builds nothing changed, for tests of findings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from buildcompare.comparison.analysis import compare_test
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Test
from buildcompare.results import MetricResult, TestResult
from loadsim import Coordinator, RunSettings, Thresholds, simulate_run


@cache
def quiet(name: str = "postgresql_bounded") -> TestResult:
    settings = RunSettings(
        type="bounded",
        coordinator=Coordinator(max_users=2000, thresholds=Thresholds(None, None, None, None)),
        duration_s=2700.0,
    )
    quieter = replace(settings, noise=replace(settings.noise, level_scale=0.1))
    base, new = (simulate_run(quieter, seed).recording for seed in (31, 32))
    run = {"recording": "x.parquet"}
    db = name.split("_")[0]
    test = Test.model_validate({"name": name, "type": "bounded", "db_engine": db, "base": run, "new": run})
    return compare_test(test, {"base": [base], "new": [new]}, read_catalogue("mattermost")).result


def with_metric(test: TestResult, slug: str, **changes: Any) -> TestResult:
    rows = [MetricResult.model_validate({**dict(row), **changes}) if row.slug == slug else row for row in test.metrics]
    return test.model_copy(update={"metrics": rows})
