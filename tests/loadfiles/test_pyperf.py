"""Results of pyperf are read as one run each; numbers of a benchmark may stand in files."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buildcompare as bc
from support import write_params


def result(benchmarks: dict[str, Sequence[Sequence[float]]], **metadata: Any) -> str:
    calibration = {"metadata": {}, "warmups": [[1, 9.0]]}
    runs = {name: [calibration, *({"values": [*each]} for each in made)] for name, made in benchmarks.items()}
    made = [{"metadata": {"name": name, **metadata}, "runs": each} for name, each in runs.items()]
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


def params_naming(folder: Path, text: str) -> bc.Comparison:
    (folder / "run.json").write_text(text)
    run = {"values": str(folder / "run.json")}
    test = {"name": "t", "type": "benchmark", "base": run, "new": run}
    params = {"base": {"label": "a"}, "new": {"label": "b"}, "source": {"kind": "values"}, "tests": [test]}
    operations = {"call": {"unit": "seconds", "better": "lower"}}
    return bc.read_params(write_params(folder / "x.yaml", {**params, "operations": operations}))


@pytest.mark.parametrize("kind", ["pyperf", "numbers"])
def test_values_of_a_params_file_name_a_file_of_more_numbers_than_yaml_may_hold(kind: str, tmp_path: Path) -> None:
    numbers = (0.1 * np.random.default_rng(1).lognormal(0.0, 0.01, 30_000)).tolist()
    text = result({"call": [numbers]}) if kind == "pyperf" else json.dumps({"call": numbers})
    found = bc.compare(params_naming(tmp_path, text))
    [described] = found.results.tests[0].distributions
    assert described.base.values == 30_000
    assert [each.path for each in found.results.provenance.inputs] == [f"{tmp_path}/run.json"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (result({"a": [[-1.0]]}), "a: expected values above 0"),
        (result({"a": []}), "a: expected values above 0, found none"),
        (result({"a": [[1.0]], "A": [[1.0]]}), "'a' twice"),
        (result({"a": [[1.0]]}, unit="joule"), "contents: expected a file of pyperf, found KeyError: 'joule'"),
        (result({"a": [[1.0]]})[:-9], "expected valid JSON"),
        ('{"benchmarks":[{"runs":[5]}]}', "contents: expected a file of pyperf, found KeyError: 'name'"),
    ],
)
def test_a_faulty_result_is_refused_in_one_line(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(bc.InputError, match=expected):
        bc.read(tmp_path / "run.json")


@pytest.mark.parametrize(
    ("text", "expected"), [("[1]", "a result of pyperf, or JSON"), ('{"call": [0]}', "call.*0"), ("{", "valid JSON")]
)
def test_a_faulty_file_of_numbers_is_refused_with_its_place(text: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(bc.InputError, match=rf"tests\[0\]\.base\.values \(line \d+\): .*{expected}"):
        bc.compare(params_naming(tmp_path, text))
