"""The tables of a report as data frames and as CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, get_args

import pandas as pd
from pydantic import BaseModel

from buildcompare.results import Results, TestResult
from buildcompare.results.base import Reason
from buildcompare.results.codes import Pair, numbered

_FORMULA = re.compile(r"[=+\-@\x00-\x1f＝＋－＠]")
Rows = Iterable[Mapping[str, Any]]


def frame(model: type[BaseModel], rows: Iterable[tuple[str | None, BaseModel]]) -> pd.DataFrame:
    """Put (test, row) pairs into a data frame: nested models as columns, reasons as codes, and no lists of models."""
    made = _flattened(rows)
    empty = ["test", *("metric" if name == "slug" else name for name in model.model_fields if name != "test")]
    return pd.DataFrame(made, columns=None if made else empty)


def tables(results: Results) -> dict[str, str]:
    """Return the tables of a report as CSV texts, by name of the table; tables without rows are left out."""
    tests = results.tests
    rows_of: dict[str, Rows] = {
        "tests": ({"test": test.name, "type": test.type, "verdict": test.verdict} for test in tests),
        "findings": _without("evidence", _flattened((row.test, row) for row in results.findings)),
        "supported_users": _flattened((test.name, test.supported_users) for test in tests if test.supported_users),
        "ramp_up": (row for test in tests for row in _ramps(test)),
        "metrics": _flattened((test.name, row) for test in tests for row in test.metrics),
        "pooled": _without("test", _flattened((None, row) for row in results.pooled)),
        "distributions": (row for test in tests for row in _distributions(test)),
        "frames": (row for test in tests for row in _frames(test)),
        "errors": _flattened((test.name, row) for test in tests for row in test.errors),
        "errors_counted": (row for test in tests for row in _counted(test)),
        "labels": _flattened((test.name, row) for test in tests for row in test.labels),
        "events": _flattened((test.name, row) for test in tests for row in test.events),
        "further_runs": (
            {"test": plan.test, **_flat(row), **_flat(step)}
            for plan in results.plan
            for row in plan.undecided
            for step in row.steps
        ),
        **(results.variants.tables() if results.variants else {}),
        "setup": map(dict, results.setup),
        "setup_differences": map(dict, results.setup_differences),
        "drift": _flattened((row.test, row) for row in results.drift),
        "inputs": map(dict, results.provenance.inputs),
    }
    texts = {name: _csv(rows) for name, rows in rows_of.items()}
    return {name: text for name, text in texts.items() if text}


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV below a header with the names of all columns; return an empty text if there are no rows."""
    rows = [{name: _cell(value) for name, value in row.items()} for row in rows]
    text = io.StringIO()
    table = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
    if rows:
        table.writer.writerow(map(_cell, table.fieldnames))
        table.writerows(rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would take for a formula; in all text, replace CR by LF."""
    text = value.replace("\r", "\n") if isinstance(value, str) else ""  # csv quotes "\n", but not "\r"
    return f"'{text}" if _FORMULA.match(text) else text or value


def _without(name: str, rows: Rows) -> Rows:
    return ({key: value for key, value in row.items() if key != name} for row in rows)


def _ramps(test: TestResult) -> Rows:
    for side, number, run in numbered(test.runs):
        yield {"test": test.name, "build": side, "run": number, "duration_s": run.duration_s} | _flat(run.ramp_up)


def _distributions(test: TestResult) -> Rows:
    """Yield one row for each build of each metric: mean and quantiles, with both ends of their intervals."""
    for row in test.distributions:
        for build, described in (("base", row.base), ("new", row.new)):
            if described is not None:
                named = {"test": test.name, "metric": row.slug, "name": row.name, "unit": row.unit, "build": build}
                summary = {"values": described.values, "sd": described.sd, "mean": described.mean}
                ends = ("", "_low", "_high")
                each = {q: zip(ends, of, strict=True) for q, of in described.quantiles.items()}
                quantiles = {f"q{q}{end}": at for q, of in each.items() for end, at in of}
                yield {**named, **summary, "mean_low": described.ci[0], "mean_high": described.ci[1], **quantiles}


def _frames(test: TestResult) -> Rows:
    """Yield a row for each frame: first shares of the frames themselves (own), then shares with callees (total)."""
    profiles = test.profiles
    for samples, rows in (("own", profiles.own), ("total", profiles.total)) if profiles else ():
        yield from ({"test": test.name, "samples": samples, **dict(row)} for row in rows)


def _counted(test: TestResult) -> Iterable[dict[str, object]]:
    for side, counts in test.errors_counted.items() if test.errors_counted else ():
        for number, count in enumerate(counts, start=1):
            yield {"test": test.name, "build": side, "run": number, "errors": count}


def _flattened(rows: Iterable[tuple[str | None, BaseModel]]) -> list[dict[str, object]]:
    return [{"test": test, **_flat(row)} for test, row in rows]


def _flat(row: BaseModel) -> dict[str, object]:
    flat: dict[str, object] = {}
    kinds = _kinds(type(row))
    for name, value in row:
        if isinstance(value, Reason) or Reason in kinds[name]:
            flat[name] = value and value.code
        elif isinstance(value, (Pair, BaseModel)):
            parts = value.items() if isinstance(value, Pair) else _flat(value).items()
            flat |= {f"{name}_{key}": each for key, each in parts}
        elif not kinds[name]:
            flat["metric" if name == "slug" else name] = value  # lists of models are omitted: other tables hold them
    return flat


@cache
def _kinds(model: type[BaseModel]) -> dict[str, list[type[BaseModel]]]:
    """List the model classes in the type arguments of each field, such as in a union or list, by name of the field."""
    kinds = ((name, get_args(field.annotation)) for name, field in model.model_fields.items())
    return {name: [e for e in of if isinstance(e, type) and issubclass(e, BaseModel)] for name, of in kinds}
