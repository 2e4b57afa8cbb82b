"""A bounded test between whose builds nothing changed, and comparisons of two recordings, for tests of findings."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import buildcompare as bc
from buildcompare.comparison.analysis import Analysis, analyse
from buildcompare.comparison.measure import compare_test
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Test, check_params
from buildcompare.results import LoadAdjustedResult, MetricResult, TestResult
from buildcompare.results.codes import SIDES
from loadsim import Coordinator, RunSettings, Thresholds, simulate_run

UNLIMITED = Coordinator(max_users=2000, thresholds=Thresholds(None, None, None, None))
SETTINGS = RunSettings(type="bounded", coordinator=UNLIMITED, duration_s=2700.0)
QUIET = replace(SETTINGS, noise=replace(SETTINGS.noise, level_scale=0.1))
RUN = {"recording": "x.parquet"}
Runs = bc.Recording | Sequence[bc.Recording]


def compared(base: Runs, new: Runs, name: str = "postgresql_bounded", /, **fields: Any) -> TestResult:
    sides = ([each] if isinstance(each, bc.Recording) else [*each] for each in (base, new))
    recordings = dict(zip(SIDES, sides, strict=True))
    runs = {side: [RUN] * len(each) for side, each in recordings.items()}
    test = Test.model_validate({"name": name, "type": "bounded", **runs, **fields})
    return compare_test(test, recordings, read_catalogue("mattermost")).result


def analysed(base: bc.Recording, new: bc.Recording, name: str = "postgresql_bounded", **fields: Any) -> Analysis:
    test = {"name": name, "type": "bounded", **fields, "base": RUN, "new": RUN}
    builds = {"base": {"label": "v1"}, "new": {"label": "v2"}}
    params = check_params({"name": "x", **builds, "source": {"kind": "recorded"}, "tests": [test]})
    return analyse(params, {name: {"base": [base], "new": [new]}})


@cache
def quiet(name: str = "postgresql_bounded") -> TestResult:
    base, new = (simulate_run(QUIET, seed).recording for seed in (31, 32))
    return compared(base, new, name, db_engine=name.split("_")[0])


def with_metric(test: TestResult, slug: str, **changes: Any) -> TestResult:
    rows = [MetricResult.model_validate({**dict(row), **changes}) if row.slug == slug else row for row in test.metrics]
    return test.model_copy(update={"metrics": rows})


def at_load(delta: float, status: str = "inconclusive", **changes: Any) -> LoadAdjustedResult:
    row = {
        "users": 6000.0, "base": 1.0, "new": 1.0 + delta / 100, "delta_percent": delta, "ci_low": delta - 9,
        "ci_high": delta + 9, "p_value": 0.2, "p_adjusted": 0.2, "status": status, "at_users_range": (2e3, 6e3),
    }  # fmt: skip
    return LoadAdjustedResult.model_validate({**row, **changes})
