"""Benchmarks: values without times, judged by repeats, stated noise, or not; a session is one observation."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import buildcompare as bc
from buildcompare.comparison.plan import plan_text
from buildcompare.metrics.measurements import distribution
from buildcompare.results import Finding
from support import sure

SECONDS = {"import": {"unit": "seconds"}}


def test_repeats_give_a_pooled_t_interval_and_a_status() -> None:
    base, new = [62.1, 61.5, 61.9], [55.2, 54.9, 55.4]
    result = bc.compare([{"import": x} for x in base], [{"import": x} for x in new], metrics=SECONDS)
    row = result.metrics.loc[0]
    logs = np.log(base), np.log(new)
    expected = stats.ttest_ind(logs[1], logs[0]).confidence_interval()
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(
        tuple(100 * np.expm1([expected.low, expected.high])), abs=0.01
    )
    assert (row["status"], row["noise_source"], result.verdict) == ("improvement", "repeats", bc.Verdict.PASS)
    assert result.results.tests[0].type == "benchmark"


def test_one_run_of_each_is_shown_and_unproven() -> None:
    rng = np.random.default_rng(1)
    base, new = rng.lognormal(-3, 0.3, 400), rng.lognormal(-2.9, 0.3, 400)
    result = bc.compare({"import": base}, {"import": new}, metrics=SECONDS)
    row = result.metrics.loc[0]
    assert (row["status"], row["reason"]) == ("inconclusive", "no_noise")
    expected = stats.ttest_ind(np.log(new), np.log(base)).confidence_interval()
    (found,) = (each for each in result.results.findings if each.kind == "single_runs")
    assert found.evidence["within_low"] == pytest.approx(100 * np.expm1(expected.low), abs=0.5)
    assert "unproven" in found.text
    assert result.verdict == bc.Verdict.INCONCLUSIVE


@pytest.mark.parametrize(("sd", "status"), [(1.0, "regression"), (8.0, "inconclusive")])
def test_stated_noise_judges_single_runs(sd: float, status: str) -> None:
    operations = {"tps": {"unit": "1/s", "better": "higher", "run_sd_percent": sd, "margin_percent": 5.0}}
    result = bc.compare({"tps": 600.0}, {"tps": 540.0}, metrics=operations)
    assert result.metrics.loc[0, "status"] == status


def test_pgbenchs_progress_is_a_run_over_time_and_its_summary_a_benchmark(tmp_path: Path) -> None:
    def run(level: float, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        seen = level * rng.lognormal(0, 0.03, 120)
        lines = [f"progress: {5 * i}.0 s, {tps:.1f} tps, lat 6.1 ms stddev 0.5" for i, tps in enumerate(seen, start=1)]
        lines += ["scaling factor: 1", "number of clients: 4", "number of transactions actually processed: 9"]
        file = tmp_path / f"{level}-{seed}.txt"
        file.write_text("\n".join([*lines, f"tps = {level} (without initial connection time)"]))
        return file

    sides = [[run(level, seed) for seed in range(3)] for level in (600.0, 500.0)]
    timed = bc.compare(*sides, catalogue="pgbench", users=4)
    assert timed.results.tests[0].type == "bounded"
    assert timed.metrics.set_index("metric").loc["tps", "delta_percent"] == pytest.approx(-100 / 6, abs=0.5)
    summed = bc.compare(*sides, catalogue="pgbench", type="benchmark").metrics.set_index("metric").loc["tps"]
    assert (summed["base"], summed["new"], summed["status"]) == (600.0, 500.0, "regression")


def test_quantiles_hold_their_intervals() -> None:
    rng, truth = np.random.default_rng(7), stats.expon.ppf([0.5, 0.9])
    held = np.zeros(2)
    for _ in range(400):
        made = sure(distribution(rng.exponential(size=80)))
        found = [made.quantiles[part] for part in ("0.5", "0.9")]
        held += [low <= true <= (high or np.inf) for (_, low, high), true in zip(found, truth, strict=True)]
    assert np.all((held / 400 > 0.93) & (held / 400 < 0.99))


def test_the_page_shows_distributions(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    runs = [[{"import": rng.lognormal(0, 0.2, 50)} for _ in range(3)] for _ in range(2)]
    page = bc.compare(*runs, metrics=SECONDS).to_html(tmp_path / "x.html").read_text("utf-8")
    assert "Distributions" in page
    assert 'aria-label="Empirical distribution of import. base: 150 values' in page


@pytest.mark.parametrize(
    ("base", "new", "verdict", "reason"),
    [
        ([0.0, 0.0, 0.0], [4.0, 4.1, 3.9], "inconclusive", "no_error_noise"),
        ([0.0, 0.1, 0.0], [0.2, 0.1, 0.1], "inconclusive", "not_positive"),  # the runs at 0 are not left out
    ],
)
def test_a_rate_may_be_0_and_is_then_no_ratio(base: list[float], new: list[float], verdict: str, reason: str) -> None:
    found = bc.compare(*([{"error_rate": each} for each in runs] for runs in (base, new)))
    [row] = found.results.tests[0].metrics
    assert (found.results.verdict, row.p_value, row.reason.code) == (verdict, None, reason)
    named = [each for each in found.results.findings if each.kind == "unjudgeable"]
    assert len(named) == (not any(base))
    with pytest.raises(bc.InputError, match="import: expected a number above 0"):
        bc.compare({"import": 0.0}, {"import": 1.0}, metrics=SECONDS)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: bc.compare({"import": -1.0}, {"import": 1.0}), "import: expected a number of 0 or more"),
        (lambda: bc.compare({"import": []}, {"import": 1.0}), "import: expected a number of 0 or more"),
        (lambda: bc.compare({"a": 1.0}, {"a": 1.0}, metrics={"a": {"bettr": "lower"}}), "the unknown key `bettr`"),
        (
            lambda: bc.compare({"a b": 1.0}, {"a b": 1.0}, metrics={"a b": {}, "a-b": {}}),
            "names that differ in letters or digits",
        ),
    ],
)
def test_what_is_no_number_is_refused(make: Callable[[], object], expected: str) -> None:
    with pytest.raises(bc.InputError, match="expected") as caught:
        make()
    assert expected in str(caught.value)


NAMES = [f"benchmark_{i}" for i in range(16)]


def session(
    seed: int, *, between: float = 0.0, within: float = 0.003, slower: float = 1.0, build: int = 0
) -> dict[str, list[float]]:
    shift, process = np.random.default_rng(seed), np.random.default_rng([seed, build])
    logs = {name: between * shift.normal() + within * process.normal(size=20) for name in NAMES}
    return {name: (0.1 * slower * np.exp(each)).tolist() for name, each in logs.items()}


def write(folder: Path, sessions: list[dict[str, list[float]]]) -> Path:
    folder.mkdir()
    for i, values in enumerate(sessions):
        made = [{"metadata": {"name": name}, "runs": [{"values": each}]} for name, each in values.items()]
        (folder / f"{i}.json").write_text(json.dumps({"benchmarks": made, "metadata": {"unit": "second"}}))
    return folder


def finding(result: bc.Result) -> Finding:
    (found,) = (each for each in result.results.findings if each.kind == "sessions")
    return found


@pytest.mark.parametrize("within", [0.003, 0.1])
def test_one_session_of_each_build_claims_no_change_that_noise_may_show(tmp_path: Path, within: float) -> None:
    base = write(tmp_path / "base", [session(1, between=0.03, within=within)])
    result = bc.compare(base, write(tmp_path / "new", [session(2, between=0.03, within=within)]))
    assert (set(result.metrics["status"]), result.verdict) == ({"inconclusive"}, "inconclusive")
    assert "1 further session of each build" in plan_text(result.results)
    least = finding(result).evidence["least_percent"]
    slow = session(1, between=0.03, within=within, slower=1.0 + 1.2 * least / 100.0)
    found = bc.compare(base, write(tmp_path / "slow", [slow]))
    assert (found.verdict, least > 60, "none is claimed" in finding(found).text) == ("regression", within == 0.1, False)


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


def test_a_metric_is_paired_in_sessions_that_have_it_in_both_builds() -> None:
    nights = [{name: [float(1.1**night * (1 + i / 999)) for i in range(9)] for name in "ab"} for night in range(6)]
    frames = [
        pd.concat(
            pd.DataFrame({"metric": name, "value": values, "session": night})
            for night, each in enumerate(nights) for name, values in each.items() if (name, night) != ("b", lacking)
        ) for lacking in (0, 5)
    ]  # fmt: skip
    rows = bc.compare(*frames, metrics={"b": {"unit": "s"}}).metrics.set_index("name")
    assert (rows.loc["b", "delta_percent"], len(rows)) == (pytest.approx(0.0, abs=0.01), 2)
    with pytest.raises(bc.InputError, match="found also case"):
        bc.compare(*(each.assign(case=1) for each in frames))


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
    unnamed = finding(bc.compare([session(1), session(2)], [session(3), session(4)]))
    assert unnamed.text == "The 2 runs of base and 2 of new count as independent: no session is named."
