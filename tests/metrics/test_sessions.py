"""Runs of one session are one observation; sessions are named, paired, and too few of them claim nothing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare.comparison.plan import plan_text
from buildcompare.results import Finding

NAMES = [f"benchmark_{i}" for i in range(16)]


def session(seed: int, *, between: float = 0.0, slower: float = 1.0, build: int = 0) -> dict[str, list[float]]:
    """Values of twenty processes of each benchmark, in seconds; the level of a session is its seed's."""
    shift, within = np.random.default_rng(seed), np.random.default_rng([seed, build])
    return {
        name: (0.1 * slower * np.exp(between * shift.normal() + 0.003 * within.normal(size=20))).tolist()
        for name in NAMES
    }


def write(folder: Path, sessions: list[dict[str, list[float]]]) -> Path:
    folder.mkdir()
    for i, values in enumerate(sessions):
        made = [{"metadata": {"name": name}, "runs": [{"values": each}]} for name, each in values.items()]
        (folder / f"{i}.json").write_text(json.dumps({"benchmarks": made, "metadata": {"unit": "second"}}))
    return folder


def finding(result: bc.Result) -> Finding:
    (found,) = (each for each in result.results.findings if each.kind == "sessions")
    return found


def test_one_session_of_each_build_claims_no_change_that_sessions_may_show(tmp_path: Path) -> None:
    base = write(tmp_path / "base", [session(1, between=0.03)])
    result = bc.compare(base, write(tmp_path / "new", [session(2, between=0.03)]))
    assert (set(result.metrics["status"]), result.verdict) == ({"inconclusive"}, "inconclusive")
    assert {(row.unit, plan.runs) for plan in result.results.plan for row in plan.rows} == {("session", 1)}
    assert "1 further session of each build" in plan_text(result.results)
    assert "cannot tell a change below" in finding(result).text
    least = finding(result).evidence["least_percent"]
    found = bc.compare(base, write(tmp_path / "slow", [session(1, between=0.03, slower=1.0 + 1.2 * least / 100.0)]))
    assert found.verdict == "regression"


def test_processes_given_as_runs_of_a_session_count_once() -> None:
    runs = [{name: value for name, [value, *_] in session(seed).items()} for seed in range(10)]
    other = [{name: 1.01 * value for name, value in run.items()} for run in runs]
    seconds = {name: {"unit": "s"} for name in NAMES}
    split = bc.compare(runs, other, metrics=seconds)
    one = bc.compare(runs, other, metrics=seconds, sessions=(["mon"] * 10, ["tue"] * 10))
    assert (split.results.tests[0].looks, one.results.tests[0].looks) == ([(10, 10)], [(1, 1)])
    assert [len(levels) for row in one.results.tests[0].metrics for levels in row.levels] == [1] * 2 * len(NAMES)
    assert finding(one).text.startswith("1 session of base (mon) and 1 of new (tue) cannot tell")


@pytest.mark.parametrize(("names", "between"), [("abcd", 0.05), ("abce", 0.05), ("abcd", 0.0)])
def test_sessions_of_the_same_names_are_paired_if_intervals_narrow(names: str, between: float) -> None:
    frames = [
        pd.concat(
            pd.DataFrame(session(seed, between=between, slower=slower, build=build)).assign(session=name)
            for seed, name in order
        ).reset_index(drop=True)
        for build, (slower, order) in enumerate([(1.0, [*enumerate("abcd")]), (1.08, [*enumerate(names)][::-1])])
    ]
    seconds = {name: {"unit": "s"} for name in NAMES}
    result = bc.compare(*frames, metrics=seconds)
    paired = names == "abcd" and between > 0
    assert result.results.tests[0].sessions.paired == paired
    called = result.metrics["status"].eq("regression").sum()
    assert (called == len(NAMES)) == (names == "abcd")
    text = "4 sessions of each build, paired: a, b, c, d." if paired else "4 sessions of base (a, b, c, d) and 4 of new"
    assert text in finding(result).text


def test_a_params_file_names_sessions_and_folders_of_values(tmp_path: Path) -> None:
    for side in ("base", "new"):
        write(tmp_path / side, [session(seed) for seed in range(2)])
    runs = {
        side: [{"values": str(tmp_path / side / name), "session": day} for day in (1, 2, 3) for name in ("", "0.json")]
        for side in ("base", "new")
    }
    tests = f"tests: [{json.dumps({'name': 't', 'type': 'benchmark', **runs})}]"
    file = tmp_path / "x.yaml"
    file.write_text(f"base: {{label: a}}\nnew: {{label: b}}\nsource: {{kind: values}}\n{tests}")
    result = bc.compare(bc.read_params(file))
    assert "3 sessions of each build, paired: 1, 2, 3." in finding(result).text
    assert set(result.metrics["status"]) == {"equivalent"}
    [row, *_] = result.results.tests[0].distributions
    assert row.base is not None
    assert (row.base.values, len(result.results.provenance.inputs)) == (3 * 60, 2 * 3 * 3)
    file.write_text(file.read_text().replace("benchmark", "bounded"))
    with pytest.raises(bc.InputError, match="`session` only in a test of type benchmark"):
        bc.read_params(file)


def test_sessions_of_load_tests_and_a_wrong_number_of_names_are_refused() -> None:
    frame = pd.DataFrame({"rps": np.full(50, 10.0)}, index=np.arange(50.0))
    with pytest.raises(bc.InputError, match="runs without times, found runs with times"):
        bc.compare(frame, frame, sessions=(["a"], ["b"]))
    with pytest.raises(bc.InputError, match="a session for each of 2 runs, found 1"):
        bc.compare([session(1), session(2)], [session(3)], sessions=(["a"], ["b"]))
