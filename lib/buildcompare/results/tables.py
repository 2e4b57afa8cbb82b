"""The tables of a report as frames and CSV."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, get_args

import pandas as pd
from pydantic import BaseModel

from buildcompare.results import Results, TestResult
from buildcompare.results.codes import SIDES, Pair, Reason
from buildcompare.results.variants import VariantsResult


def frame(rows: Iterable[tuple[str | None, BaseModel]]) -> pd.DataFrame:
    """Rows of results as a frame: pairs in two columns, a reason by its code, other nested values as they are."""
    return pd.DataFrame([{"test": test, **_flat(row)} for test, row in rows])


def tables(results: Results) -> dict[str, str]:
    """Every table of a report that has rows, as CSV by its name."""
    tests = results.tests
    found: dict[str, pd.DataFrame] = {
        "tests": pd.DataFrame([{"test": test.name, "type": test.type, "verdict": test.verdict} for test in tests]),
        "findings": frame((row.test, row) for row in results.findings).drop(columns="evidence", errors="ignore"),
        "supported_users": frame((test.name, test.supported_users) for test in tests if test.supported_users),
        "ramp_up": pd.concat([pd.DataFrame(), *map(_ramps, tests)]),
        "metrics": frame((test.name, row) for test in tests for row in test.metrics),
        "pooled": frame((None, row) for row in results.pooled).drop(columns="test", errors="ignore"),
        "errors": frame((test.name, row) for test in tests for row in test.errors),
        "errors_counted": pd.DataFrame([row for test in tests for row in _counted(test)]),
        "labels": frame((test.name, row) for test in tests for row in test.labels),
        "events": frame((test.name, row) for test in tests for row in test.events),
        "further_runs": pd.DataFrame(
            [
                {"test": plan.test, **_flat(row), **_flat(step)}
                for plan in results.plan
                for row in plan.undecided
                for step in row.steps
            ]
        ),
        **(_of_matrix(results.variants) if results.variants else {}),
        "setup": pd.DataFrame([dict(row) for row in results.setup]),
        "setup_differences": pd.DataFrame([dict(row) for row in results.setup_differences]),
        "drift": frame((row.test, row) for row in results.drift),
        "inputs": pd.DataFrame([dict(row) for row in results.provenance.inputs]),
    }
    return {name: table.to_csv(index=False, lineterminator="\n") for name, table in found.items() if len(table)}


def _of_matrix(matrix: VariantsResult) -> dict[str, pd.DataFrame]:
    """By name: `variants` are the contrasts, the others are called as in results.json."""
    runs = [{**row.levels, **dict(row), **row.values, **row.facts} for row in matrix.runs]
    return {
        "variants": pd.DataFrame([dict(row) for row in matrix.contrasts]),
        **{
            f"variants_{name}": pd.DataFrame([dict(row) for row in rows])
            for name, rows in (
                ("claims", matrix.claims),
                ("factors", matrix.terms),
                ("effects", matrix.effects),
                ("ranking", matrix.ranking),
            )
        },
        "variants_runs": pd.DataFrame(runs).drop(columns=["levels", "values", "facts"]),
    }


def _ramps(test: TestResult) -> pd.DataFrame:
    rows = [(side, number, run) for side in SIDES for number, run in enumerate(test.runs[side], start=1)]
    return pd.DataFrame(
        [
            {"test": test.name, "build": side, "run": number, "duration_s": run.duration_s, **_flat(run.ramp_up)}
            for side, number, run in rows
        ]
    )


def _counted(test: TestResult) -> Iterable[dict[str, object]]:
    for side, counts in test.errors_counted.items() if test.errors_counted else ():
        for number, count in enumerate(counts, start=1):
            yield {"test": test.name, "build": side, "run": number, "errors": count}


def _flat(row: BaseModel) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    kinds = _kinds(type(row))
    for name, value in row:
        if isinstance(value, Reason) or Reason in kinds[name]:
            flat[name] = value and value.code
        elif isinstance(value, (Pair, BaseModel)):
            parts = value.items() if isinstance(value, Pair) else _flat(value).items()
            flat |= {f"{name}_{key}": each for key, each in parts}
        elif not kinds[name]:
            flat["metric" if name == "slug" else name] = value  # else a model elsewhere, with columns of its own
    return flat


@cache
def _kinds(model: type[BaseModel]) -> dict[str, list[type[BaseModel]]]:
    """By the name of each field, the models that it may hold."""
    kinds = ((name, get_args(field.annotation)) for name, field in model.model_fields.items())
    return {name: [e for e in of if isinstance(e, type) and issubclass(e, BaseModel)] for name, of in kinds}
