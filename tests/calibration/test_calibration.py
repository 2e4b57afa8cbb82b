"""Repeated runs teach how far runs lie apart, and never judge themselves."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import analysed, command, refused, users_curve, write_csv, write_params


def run_files(folder: Path, groups: int, runs: int, *, sd: float = 0.02, seed: int = 1) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    made = []
    for group in range(groups):
        files = []
        for run in range(runs):
            users = users_curve(1000.0, ramp_s=300.0, hold_s=2400.0)
            level = 0.01 * (1 + 0.2 * group) * np.exp(rng.normal(0, sd))
            curves = {
                "number-of-connected-devices": users,
                "avg-api-times": level * np.exp(0.05 * rng.normal(size=users.size)),
                "cpu-utilization": 50 * np.exp(rng.normal(0, sd)) + rng.normal(0, 0.5, users.size),
            }
            file = write_csv(folder / f"g{group}-r{run}.csv", curves)
            labels = folder / f"g{group}-r{run}.labels.csv"
            rows = [f"api,l{i},avg,{(0.001 + 0.01 * i) * np.exp(rng.normal(0, sd)):.9f}" for i in range(30)]
            labels.write_text("group,label,stat,value\n" + "\n".join(rows) + "\n")
            files.append({"recording": str(file), "labels": str(labels)})
        made.append({"name": f"g{group}", "type": "bounded", "runs": files})
    return made


def spec_file(folder: Path, groups: list[dict[str, Any]], **more: Any) -> Path:
    return write_params(folder / "groups.yaml", {"source": {"kind": "recorded"}, "groups": groups, **more})


def comparison(base: dict[str, Any], new: dict[str, Any], calibration: Path) -> Any:
    return analysed({
        "name": "c", "base": {"label": "a"}, "new": {"label": "b"}, "source": {"kind": "recorded"},
        "tests": [{"name": "t", "type": "bounded", "base": base, "new": new}], "calibration": str(calibration),
    }).results  # fmt: skip


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("calibration")
    groups = run_files(folder, 6, 3)
    output = folder / "data" / "calibration.json"
    made = command("calibrate", spec_file(folder, groups[:5]), "--output", output)
    assert made.exit_code == 0, made.output
    assert "15 runs in 5 groups" in made.output
    return output, groups


def test_a_comparison_is_judged_by_it(learned: tuple[Path, list[dict[str, Any]]]) -> None:
    file, groups = learned
    results = comparison(groups[5]["runs"][0], groups[5]["runs"][1], file)
    metric = next(row for row in results.tests[0].metrics if row.slug == "avg-api-times")
    assert metric.noise_source == "calibration"
    assert metric.ci_low < metric.delta_percent < metric.ci_high
    assert metric.ci_high - metric.ci_low == pytest.approx(4 * 100 * 0.02 * 2**0.5, rel=0.6)
    assert {row.status for row in results.tests[0].labels} & {"equivalent", "inconclusive"}
    assert all(row.p_value is not None for row in results.tests[0].labels)
    assert (results.self_check["pairs"], results.self_check["left_out"]) == (15, [])
    assert results.self_check["metrics"]["found"]["50"] == results.self_check["metrics"]["rows"] == 30


def test_no_run_is_judged_by_itself(learned: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    file, groups = learned
    run, copy = groups[2]["runs"][0], tmp_path / "copy.csv.gz"
    copy.write_bytes(gzip.compress(Path(run["recording"]).read_bytes()))
    for again in (run, {"recording": str(copy)}):
        results = comparison(again, groups[5]["runs"][1], file)
        assert results.self_check["left_out"] == ["g2"]
        assert results.self_check["calibration"] == ["g0", "g1", "g3", "g4"]


def test_a_self_check_of_another_method_is_hidden(learned: tuple[Path, list[dict[str, Any]]], tmp_path: Path) -> None:
    file, groups = learned
    other = tmp_path / "old.json"
    other.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "method": 0}), "utf-8")
    check = comparison(groups[5]["runs"][0], groups[5]["runs"][1], other).self_check
    assert check["same_method"] is False
    assert "metrics" not in check


def short(folder: Path) -> dict[str, str]:
    users = users_curve(9.0, ramp_s=60, hold_s=10)
    return {"recording": str(write_csv(folder / "short.csv", {"number-of-connected-devices": users}))}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given, _: given.update(groups=[]), "groups (line {}): expected at least 1 of them, found 0"),
        (lambda given, _: given.update(group=[]), "one of metrics, source, groups, found the unknown key `group`"),
        (lambda given, _: given.update(groups=given["groups"][:1] * 2), "'g0' twice"),
        (lambda given, _: given["groups"][0]["runs"].pop(), "groups[0].runs (line {}): expected at least 2 of them"),
        (
            lambda given, folder: given["groups"][0]["runs"].append(short(folder)),
            "short.csv: groups.g0.runs[2]: expected a run with a steady window",
        ),
        (
            lambda given, _: given["groups"][1]["runs"].append(given["groups"][0]["runs"][0]),
            "groups.g1.runs[2]: expected each run once, found the run of groups.g0.runs[0]",
        ),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, change: Callable[[dict[str, Any], Path], object], said: str) -> None:
    given = {"source": {"kind": "recorded"}, "groups": run_files(tmp_path, 2, 2)}
    change(given, tmp_path)
    told = refused("calibrate", write_params(tmp_path / "groups.yaml", given), "--output", tmp_path / "out.json")
    assert said in re.sub(r"\(line \d+\)", "(line {})", told)
    assert not (tmp_path / "out.json").exists()


def test_a_single_group_has_no_self_check(tmp_path: Path) -> None:
    groups = run_files(tmp_path, 2, 3)
    made = command("calibrate", spec_file(tmp_path, groups[:1]), "--output", tmp_path / "one.json")
    assert "Self-check: none" in made.output
    check = comparison(groups[1]["runs"][0], groups[1]["runs"][1], tmp_path / "one.json").self_check
    assert check["same_method"] is True
    assert "metrics" not in check


@pytest.mark.parametrize("output", ["folder", "file/calibration.json"])
def test_an_output_that_cannot_be_written_is_said_before_the_work(tmp_path: Path, output: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    spec = spec_file(tmp_path, run_files(tmp_path, 1, 2))
    assert "--output: expected" in refused("calibrate", spec, "--output", tmp_path / output)
    assert not list(tmp_path.rglob("*.part"))
