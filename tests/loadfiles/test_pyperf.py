"""Results of pyperf are read as one run each; numbers of a benchmark may stand in files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buildcompare as bc


def result(benchmarks: dict[str, Sequence[Sequence[float]]], **metadata: Any) -> str:
    """A file as pyperf writes it: a calibration without values, then a process with values each."""
    made = [
        {
            "metadata": {"name": name, **metadata},
            "runs": [{"metadata": {}, "warmups": [[1, 9.0]]}, *({"values": [*each]} for each in processes)],
        }
        for name, processes in benchmarks.items()
    ]
    return json.dumps({"benchmarks": made, "metadata": {"unit": "second"}, "version": "1.0"}, sort_keys=True)


def processes(level: float, seed: int) -> list[list[float]]:
    return (level * np.random.default_rng(seed).lognormal(0.0, 0.01, (20, 3))).tolist()


def test_values_of_all_processes_are_one_run(tmp_path: Path) -> None:
    file = tmp_path / "run.json.gz"
    file.write_bytes(gzip.compress(result({"nbody": processes(0.08, 1), "uptime check": [[2.0]]}).encode()))
    [nbody, other] = bc.read(file).measurements
    assert nbody.values.tolist() == np.ravel(processes(0.08, 1)).tolist()
    assert (nbody.name, nbody.unit, other.values.tolist()) == ("nbody", "seconds", [2.0])


def test_folders_of_results_are_compared_without_any_configuration(tmp_path: Path) -> None:
    for side, level in (("base", 0.08), ("new", 0.1)):
        (tmp_path / side).mkdir()
        for i in range(3):
            text = result({"nbody": processes(level, i), "2to3": processes(0.3, 10 + i)})
            (tmp_path / side / f"{i}.json").write_text(text)
    found = bc.compare(tmp_path / "base", tmp_path / "new")
    rows = found.metrics.set_index("metric")
    assert rows["status"].to_dict() == {"nbody": "regression", "2to3": "equivalent"}
    assert (found.verdict, found.results.tests[0].type) == ("regression", "benchmark")


@pytest.mark.parametrize("kind", ["pyperf", "numbers"])
def test_values_of_a_params_file_name_a_file_of_more_numbers_than_yaml_may_hold(kind: str, tmp_path: Path) -> None:
    numbers = (0.1 * np.random.default_rng(1).lognormal(0.0, 0.01, 30_000)).tolist()
    text = result({"call": [numbers]}) if kind == "pyperf" else json.dumps({"call": numbers})
    (tmp_path / "run.json").write_text(text)
    operations = "{call: {unit: seconds, better: lower}}"
    run = f"{{values: {tmp_path}/run.json}}"
    (tmp_path / "x.yaml").write_text(
        f"base: {{label: a}}\nnew: {{label: b}}\nsource: {{kind: values}}\noperations: {operations}\n"
        f"tests:\n  - {{name: t, type: benchmark, base: {run}, new: {run}}}\n"
    )
    found = bc.compare(bc.read_params(tmp_path / "x.yaml"))
    [described] = found.results.tests[0].distributions
    assert described.base is not None
    assert described.base.values == 30_000
    assert [each.path for each in found.results.provenance.inputs] == [f"{tmp_path}/run.json"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (result({"a": [[-1.0]]}), "a: expected values above 0"),
        (result({"a": []}), "a: expected values above 0, found none"),
        (result({"a": [[1.0]], "A": [[1.0]]}), "'a' twice"),
        (result({"a": [[1.0]]}, unit="joule"), "benchmarks: expected names and values of pyperf"),
        (result({"a": [[1.0]]})[:-9], "expected valid JSON"),
        ('{"benchmarks":[{"runs":[5]}]}', "benchmarks: expected names and values"),
    ],
)
def test_a_faulty_result_is_refused_in_one_line(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(bc.InputError, match=expected) as refused:
        bc.read(tmp_path / "run.json")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "expected"), [("[1]", "a result of pyperf, or JSON"), ('{"call": [0]}', "call.*0"), ("{", "valid JSON")]
)
def test_a_faulty_file_of_numbers_is_refused_with_its_place(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    run = f"{{values: {tmp_path}/run.json}}"
    (tmp_path / "x.yaml").write_text(
        f"base: {{label: a}}\nnew: {{label: b}}\nsource: {{kind: values}}\n"
        f"operations: {{call: {{unit: seconds}}}}\ntests:\n  - {{name: t, type: benchmark, base: {run}, new: {run}}}\n"
    )
    with pytest.raises(bc.InputError, match=expected) as refused:
        bc.compare(bc.read_params(tmp_path / "x.yaml"))
    assert r"tests[0].base.values (line 6)" in str(refused.value)
