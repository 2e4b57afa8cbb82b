"""Inputs that are read without a fault and mean something else: another unit, other names, another test's users."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from buildcompare.results import Finding
from evidence import without_evidence
from support import analysed, small_params

KINDS = ("users_in_params", "unrecognised")
Change = Callable[[pd.DataFrame], pd.DataFrame]


def found(params: Mapping[str, Any]) -> list[Finding]:
    """What is said of the inputs; every number of it is in its evidence, and all of it warns."""
    results = analysed(params).results
    those = [each for each in results.findings if each.kind in KINDS]
    assert {each.severity for each in those} <= {"warning"}
    assert [missing for each in those if (missing := without_evidence(each, results))] == []
    return those


def change(params: Mapping[str, Any], side: str, to: Change) -> str:
    """Write the bounded test's recording of one build again, changed; its path."""
    file = Path(params["tests"][0][side]["recording"])
    to(pd.read_csv(file)).to_csv(file, index=False)
    return str(file)


def scaled(factor: float, metric: str = "avg-api-times") -> Change:
    def scale(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(value=table["value"].where(table["metric"] != metric, table["value"] * factor))

    return scale


def renamed(**names: str) -> Change:
    by_slug = {old.replace("_", "-"): new for old, new in names.items()}
    return lambda table: table.assign(metric=table["metric"].replace(by_slug))


def bounded(folder: Path) -> dict[str, Any]:
    params = small_params(folder)
    return {**params, "tests": params["tests"][:1]}


@pytest.mark.parametrize("changed", [None, scaled(15.0), scaled(1 / 15), scaled(1000.0, "rps")])
def test_usual_inputs_and_large_changes_are_not_remarked_upon(tmp_path: Path, changed: Change | None) -> None:
    params = small_params(tmp_path)
    if changed is not None:
        change(params, "new", changed)
    assert found(params) == []


def test_more_users_than_the_params_say_are_told(tmp_path: Path) -> None:
    params = bounded(tmp_path)
    params["tests"][0]["users"] = 500
    (told,) = found(params)
    assert told.kind == "users_in_params"
    assert (told.evidence["users"], told.evidence["percent"]) == (500, pytest.approx(100.0))
    assert told.evidence["recorded"] == pytest.approx([1000.0, 1000.0])


def test_where_nothing_is_recognised_the_nearest_names_are_told(tmp_path: Path) -> None:
    params = bounded(tmp_path)
    names = {"avg_api_times": "api times (average)", "number_of_connected_devices": "connected devices", "rps": "qps"}
    files = [change(params, side, renamed(**names)) for side in ("base", "new")]
    (told,) = found(params)
    assert told.kind == "unrecognised"
    assert told.evidence["wanted"] == ["Avg API times", "P99 API times", "Number of Connected Devices"]
    assert ["connected-devices", "Number of Connected Devices"] in told.evidence["nearest"]
    assert told.evidence["files"] == files, "recordings with the same names are told together"


def test_one_misspelt_name_is_told_and_one_missing_metric_is_not(tmp_path: Path) -> None:
    params = bounded(tmp_path)
    file = change(params, "new", renamed(avg_api_times="avg api time"))
    (told,) = found(params)
    assert (told.evidence["wanted"], told.evidence["files"]) == (["Avg API times", "P99 API times"], [file])
    assert [name for name, _ in told.evidence["nearest"]] == ["avg-api-time"]
    change(params, "new", lambda table: table[table["metric"] != "avg api time"])
    assert found(params) == []
