"""Errors that a load-test tool counted, relative to the users who could meet them: in results, findings and ledger."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.findings.metrics import ERRORS_PER_USER_MINUTE
from buildcompare.history.ledger import entry_of, read_ledger
from buildcompare.report import junit
from buildcompare.results import ErrorRateResult
from support import small_params, users_curve, write_csv

BASE_MINUTES = 1000 * (600 / 2 + 2400) / 60 + 1000 * 5 / 60 * sum(np.linspace(0.8, 0.1, 6))
"""User-minutes of the bounded base of `small_params`: a ramp, a level, and a shutdown of six samples."""


def counted(folder: Path, errors: dict[tuple[str, str], int], **more: Any) -> dict[str, Any]:
    params = small_params(folder, **more)
    for test in params["tests"]:
        for side in ("base", "new"):
            if (test["type"], side) in errors:
                test[side]["errors"] = errors[test["type"], side]
    return params


def compared(params: dict[str, Any]) -> bc.Result:
    return bc.compare(bc.parameters(**params))


def row_of(result: bc.Result, kind: str) -> ErrorRateResult:
    (row,) = next(test.errors for test in result.results.tests if test.type == kind)
    return row


def test_counts_are_divided_by_the_minutes_of_all_users(tmp_path: Path) -> None:
    result = compared(counted(tmp_path, {("bounded", "base"): 45_000, ("bounded", "new"): 51_000}))
    results, row = result.results, row_of(result, "bounded")
    assert row.base == pytest.approx(45_000 / BASE_MINUTES, rel=0.01)
    assert row.new == pytest.approx(51_000 / (BASE_MINUTES + 1000 * 300 / 60), rel=0.01)
    assert row.delta_percent == pytest.approx(100 * ((row.new or 0) / (row.base or 1) - 1))
    assert (row.slug, row.unit, row.status) == ("counted-errors", "per user and minute", "inconclusive")
    (found,) = [each for each in results.findings if each.kind == "counted_errors"]
    assert found.severity == "info"
    assert found.evidence == {
        "postgresql_bounded": {"base": row.base, "new": row.new, "delta_percent": row.delta_percent}
    }
    assert not [each for each in results.findings if each.kind == "error_rate"]
    assert next(test.errors for test in results.tests if test.type == "unbounded") == []


@pytest.mark.parametrize(
    ("errors", "new", "told"), [(2.0, 3.0, True), (2.0, 1.5, False), (2.0, 0.0, False), (0.1, 5.0, False)]
)
def test_counts_that_double_warn_unless_they_are_few(tmp_path: Path, errors: float, new: float, told: bool) -> None:
    base = errors * ERRORS_PER_USER_MINUTE * BASE_MINUTES
    params = counted(tmp_path, {("bounded", "base"): round(base), ("bounded", "new"): round(new * base)})
    found = [each for each in compared(params).results.findings if each.kind == "error_rate"]
    assert [each.severity for each in found] == ["warning"] * told


def test_a_count_of_one_build_and_a_curve_that_may_be_cut_give_no_rate(tmp_path: Path) -> None:
    params = counted(tmp_path, {("bounded", "base"): 45_000, ("unbounded", "base"): 45_000})
    climbing = users_curve(3000.0, ramp_s=5000.0, hold_s=0.0)
    file = write_csv(tmp_path / "climbing.csv", {"number-of-connected-devices": climbing})
    params["tests"][1]["new"] = {"recording": str(file), "errors": 45_000}
    result = compared(params)
    codes = {"bounded": "errors_not_stated", "unbounded": "users_unknown"}
    for kind, code in codes.items():
        row = row_of(result, kind)
        assert row.base is not None
        assert (row.new, row.status) == (None, "not_comparable")
        assert row.reason.model_dump(exclude_none=True) == {"code": code, "build": "new"}


def test_a_build_server_and_the_ledger_see_them(tmp_path: Path) -> None:
    params = counted(
        tmp_path, {("bounded", "base"): 45_000, ("bounded", "new"): 51_000}, history=str(tmp_path / "ledger")
    )
    results = compared(params).results
    root = ET.fromstring(junit.render(results))  # our own
    (case,) = [each for each in root.iter("testcase") if each.get("name") == "counted-errors"]
    assert "per user and minute" in str(case.find("skipped").get("message"))  # type: ignore[union-attr]
    entry = entry_of(bc.parameters(**params), results.tests, position=read_ledger(tmp_path / "ledger").next_position)
    errors = {test.type: test.errors for test in entry.tests}
    assert errors["unbounded"] is None
    assert (errors["bounded"].base, errors["bounded"].new) == (45_000, 51_000)


def test_a_negative_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bc.InputError, match="errors: expected"):
        bc.parameters(**counted(tmp_path, {("bounded", "base"): -1}))
