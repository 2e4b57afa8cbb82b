"""What runs of one build differ by at equal load is learned from them, kept, cleared with its group, and used."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from buildcompare.calibration.learn import beside_runs, read_calibration
from buildcompare.config.catalogue import RunSd, read_catalogue
from buildcompare.load.view import view_run
from buildcompare.metrics.equal_load import LoadedRun, MetricAtLoad, equal_load, loaded_run
from buildcompare.metrics.judge_at_load import MeasuredAtLoad, effect_at_load, measure_noise_at_load, noise_at_load
from buildcompare.recordings.table import write_recording
from buildcompare.results import LoadAdjustedResult
from buildcompare.results.codes import Pair
from buildcompare.stats.effects import Effect, measure_effects
from buildcompare.stats.noise import Noise, NoiseAtEqualLoad, RepeatedRuns, RunLevel, RunLevels, metric_noise
from loadsim import Coordinator, RunSettings, ServerModel, Thresholds, simulate_run
from support import analysed, command, sure, write_params

CATALOGUE = read_catalogue("mattermost")
CPU = CATALOGUE.find("cpu-utilization")


def straight(level: float, seed: int, top: float = 4000.0) -> LoadedRun:
    """A climb and a rest; the metric costs `level` per user."""
    users = np.concatenate([np.arange(0.0, top, 20.0), np.full(600, top)])
    noise = np.random.default_rng(seed).normal(1.0, 0.01, users.size)
    index = pd.Index(np.arange(users.size) * 5.0, name="elapsed_s")
    curve = pd.Series(level * (1.0 + users) * noise, index)
    return LoadedRun(pd.Series(users, index), {"cpu-utilization": curve}, float(index[-1]))


def known(variance: float, df: float, within: float = 0.0, *, times: int = 1) -> list[RepeatedRuns]:
    one = {"cpu-utilization": NoiseAtEqualLoad(variance, within, df)}
    return [RepeatedRuns(str(i), "unbounded", [], one) for i in range(times)]


def test_runs_differ_by_the_variance_of_their_levels_whatever_load_they_reached() -> None:
    levels = [1.0, 1.08, 0.97, 1.02]
    runs = [straight(level, seed, 4000.0 + 800.0 * seed) for seed, level in enumerate(levels)]
    found = measure_noise_at_load(runs)["cpu-utilization"]
    assert (found.df, found.variance) == (3.0, pytest.approx(float(np.var(np.log(levels), ddof=1)), rel=0.1))
    assert 0 < found.within < 0.05 * found.variance
    other = replace(runs[0], metrics={"rps": runs[0].metrics["cpu-utilization"]})
    assert measure_noise_at_load(runs[:1]) == measure_noise_at_load([runs[0], other]) == {}


def test_a_run_without_users_is_compared_over_what_stands_in_for_them() -> None:
    recording = simulate_run(RunSettings(time_limit_s=3600.0), 3).recording
    users = "number-of-connected-devices"
    without = replace(recording, series=tuple(each for each in recording.series if each.metric != users))
    view = view_run(without, "unbounded", CATALOGUE)
    assert loaded_run(view, CATALOGUE) is None
    run = sure(loaded_run(view, CATALOGUE, by_proxy=True))
    truth = sure(loaded_run(view_run(recording, "unbounded", CATALOGUE), CATALOGUE, by_proxy=True))
    assert truth.users.equals(recording.curve(recording.find(users)))  # type: ignore[arg-type]  # it is there
    assert "goroutines-in-use" not in run.metrics
    assert run.users.max() == pytest.approx(truth.users.max(), rel=0.1)


def test_without_a_calibration_the_prior_counts() -> None:
    cpu = sure(noise_at_load(CPU))
    assert (cpu.sd, cpu.df) == (pytest.approx(math.log1p(0.01)), 15.0)
    levels = CPU.model_copy(update={"run_sd_percent": RunSd(unbounded=2.0)})
    assert noise_at_load(levels) == metric_noise(levels, "unbounded")
    heap = sure(noise_at_load(CATALOGUE.find("heap-in-use")))
    assert (heap.noise_source, heap.at_load, heap.sd) == ("catalogue", True, pytest.approx(math.log1p(0.012)))
    assert noise_at_load(CATALOGUE.find("unheard-of")) is None


def test_groups_outweigh_the_prior_and_errors_within_runs_are_taken_off() -> None:
    noise = sure(noise_at_load(CPU, known(5e-5, 2.0, 1e-5, times=100)))
    assert (noise.sd, noise.df) == (pytest.approx(math.sqrt(4e-5), rel=0.1), 215.0)
    assert (noise.noise_source, noise.at_load) == ("calibration", True)
    few = sure(noise_at_load(CPU, known(5e-5, 2.0)))
    assert noise.sd < few.sd < math.log1p(0.0101)
    assert few.df == 17.0
    most = sure(noise_at_load(CPU, known(4e-4, 2.0, 9e-4, times=1000)))
    assert most.sd == pytest.approx(0.01, rel=0.02), "errors within runs never explain all"


def test_setups_that_really_differ_are_worth_less() -> None:
    one, other = known(1e-6, 2.0, times=9), known(1e-2, 2.0)
    noise = sure(noise_at_load(CPU.model_copy(update={"run_sd_percent": RunSd()}), [*one, *other]))
    assert noise.df < 10.0
    beside = sure(noise_at_load(CPU, [*one, *other]))
    assert beside.df == noise.df + 15.0  # the catalogue's


STATED = {
    m.slug: math.log1p(m.run_sd_percent.equal_load / 100.0) for m in CATALOGUE.metrics if m.run_sd_percent.equal_load
}


def one_setup(rng: np.random.Generator, factor: float, df: float = 2.0) -> list[RepeatedRuns]:
    """Runs of a laboratory that differ `factor` times as much as the catalogue says."""
    found = {
        slug: NoiseAtEqualLoad((factor * sd) ** 2 * rng.chisquare(df) / df, 0.0, df) for slug, sd in STATED.items()
    }
    return [RepeatedRuns("one", "unbounded", [], found)]


@pytest.mark.parametrize(("factor", "most"), [(1.0, 0.05), (2.0, 0.1)])
def test_one_setup_of_a_noisier_laboratory_widens_what_is_borrowed(factor: float, most: float) -> None:
    """How many 95 % intervals lack zero; with the catalogue as it is 23 % do where runs differ twice as much."""
    rng, wrong = np.random.default_rng(12), []
    for _ in range(150):
        groups = one_setup(rng, factor)
        find = beside_runs(CATALOGUE, groups).find
        for slug, sd in STATED.items():
            noise = sure(noise_at_load(find(slug), groups))
            effect = Effect(factor * sd * rng.normal(), noise.sd, noise.df, noise.sd, noise.noise_source)
            wrong.append(effect.p_value < 0.05)
    assert np.mean(wrong) <= most


def test_runs_that_scatter_widen_the_levels_of_a_metric_that_they_lack() -> None:
    slugs = ("avg-api-times", "p99-api-times", "cpu-utilization", "stack-in-use")
    runs = [RunLevels({slug: RunLevel(level) for slug in slugs}) for level in (100.0, 140.0, 90.0)]
    groups = [RepeatedRuns("one", "bounded", runs)]
    rps, stated = (
        sure(metric_noise(each.find("rps"), "bounded", groups)) for each in (beside_runs(CATALOGUE, groups), CATALOGUE)
    )
    assert rps.sd > 2.0 * stated.sd
    assert rps.noise_source == "catalogue"


def judged(curves: Mapping[str, MetricAtLoad], groups: Sequence[RepeatedRuns]) -> dict[str, LoadAdjustedResult]:
    noises = {slug: noise_at_load(CATALOGUE.find(slug), groups) for slug in curves}
    return MeasuredAtLoad(curves, noises, (1, 1)).judged(CATALOGUE)


def test_metrics_are_judged_in_the_families_of_levels() -> None:
    groups = known(4e-4, 30.0)
    curve = equal_load([straight(1.0, 1)], [straight(1.04, 2)])["cpu-utilization"]
    alone = judged({"cpu-utilization": curve}, groups)["cpu-utilization"]
    with_others = judged(dict.fromkeys(("cpu-utilization", "stack-in-use", "p99-api-times"), curve), groups)
    beside = with_others["cpu-utilization"]
    noise = sure(noise_at_load(CPU, groups))
    effect = effect_at_load(curve, noise, (1, 1))
    for row in (alone, beside):
        assert (row.ci_low, row.ci_high) == pytest.approx(effect.interval())
        assert (row.noise_source, row.noise_of, row.constant) == ("calibration", "equal_load", True)
    assert alone.p_adjusted == pytest.approx(effect.p_value)
    stack, times = (with_others[slug] for slug in ("stack-in-use", "p99-api-times"))
    assert (stack.p_adjusted or 0.0) > (stack.p_value or 1.0)  # CPU is of its family
    assert times.p_adjusted == pytest.approx(times.p_value)


@pytest.mark.parametrize("factor", [1.0, 2.0, 3.0])
def test_repeats_of_the_comparison_scale_a_quieter_laboratory(factor: float) -> None:
    """Nine metrics, three runs of each build, 95 % intervals of what did not change: at most 6 % lack zero."""
    rng, prior, wrong = np.random.default_rng(3), Noise(0.02, 15.0, "catalogue"), 0
    for _ in range(150):
        runs = [RunLevel(level) for level in rng.lognormal(0.0, 0.02 * factor, 54)]
        levels = {i: Pair(runs[6 * i : 6 * i + 3], runs[6 * i + 3 : 6 * i + 6]) for i in range(9)}
        effects = measure_effects(levels, dict.fromkeys(levels, prior))
        wrong += sum(sure(each).p_value < 0.05 for each in effects.values())
    assert wrong <= 0.065 * 150 * 9  # 6 % and one standard error


Learned = tuple[Path, dict[str, list[dict[str, str]]]]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """A calibration of two groups of unbounded runs, and the runs of these and of a third."""
    folder = tmp_path_factory.mktemp("unbounded")
    runs: dict[str, list[dict[str, str]]] = {}
    for group, capacity in enumerate((3000.0, 3500.0, 4000.0)):
        settings = RunSettings(server=ServerModel(capacity_users=capacity), time_limit_s=5400.0)
        for run in range(3 if group < 2 else 2):
            file = folder / f"{group}-{run}.parquet"
            write_recording(simulate_run(settings, 100 * group + run).recording, file)
            runs.setdefault(f"g{group}", []).append({"recording": str(file)})
    groups = [{"name": name, "type": "unbounded", "runs": runs[name]} for name in ("g0", "g1")]
    spec = write_params(folder / "groups.yaml", {"source": {"kind": "recorded"}, "groups": groups})
    output = folder / "calibration.json"
    made = command("calibrate", spec, "--output", output)
    assert made.exit_code == 0, made.output
    return output, runs


def at_load(base: dict[str, str], new: dict[str, str], calibration: Path) -> LoadAdjustedResult:
    """CPU at equal load, as a report has it."""
    metrics = analysed({
        "name": "c", "base": {"label": "a"}, "new": {"label": "b"}, "source": {"kind": "recorded"},
        "tests": [{"name": "t", "type": "unbounded", "base": base, "new": new}], "calibration": str(calibration),
    }).results.tests[0].metrics  # fmt: skip
    return sure(next(metric.load_adjusted for metric in metrics if metric.slug == "cpu-utilization"))


def test_a_calibration_keeps_what_runs_differ_by_at_equal_load(learned: Learned) -> None:
    file, runs = learned
    kept = json.loads(file.read_text("utf-8"))["groups"]
    assert {*kept[0]["at_load"]} >= {"cpu-utilization", "avg-api-times", "goroutines-in-use"}
    variance, within, df = kept[0]["at_load"]["goroutines-in-use"]
    assert 0 < math.sqrt(variance) < 0.005  # of their levels it is 2 %: the users'
    assert within > 0
    assert df == 2.0
    groups = read_calibration(str(file), "mattermost").repeated_runs()
    noise = sure(noise_at_load(CATALOGUE.find("goroutines-in-use"), groups))
    levels = sure(metric_noise(CATALOGUE.find("goroutines-in-use"), "unbounded", groups))
    assert noise.sd < 0.5 * levels.sd
    found = at_load(*runs["g2"], file)  # type: ignore[call-arg]  # a pair
    assert (found.noise_source, found.noise_of) == ("calibration", "equal_load")


def test_a_judged_group_teaches_nothing_and_a_file_without_equal_load_teaches_levels(
    learned: Learned, tmp_path: Path
) -> None:
    file, runs = learned
    document = json.loads(file.read_text("utf-8"))
    only = {**document, "groups": document["groups"][:1]}
    without = [{key: each for key, each in group.items() if key != "at_load"} for group in document["groups"]]
    old = {**document, "method": 3, "groups": without}
    for kept, judged_runs, expected in (
        (only, "g0", ("catalogue", "equal_load")),
        (only, "g2", ("calibration", "equal_load")),
        (old, "g2", ("calibration", "levels")),
    ):
        (tmp_path / "kept.json").write_text(json.dumps(kept))
        base, new = runs[judged_runs][:2]
        found = at_load(base, new, tmp_path / "kept.json")
        assert (found.noise_source, found.noise_of) == expected


def simulated(settings: RunSettings, seed: int) -> LoadedRun:
    return sure(loaded_run(view_run(simulate_run(settings, seed).recording, "unbounded", CATALOGUE), CATALOGUE))


def called(judged: Mapping[str, LoadAdjustedResult]) -> bool:
    return any(row.status == "regression" for slug, row in judged.items() if CATALOGUE.find(slug).better == "lower")


@pytest.mark.untraced
@pytest.mark.slow
def test_slower_requests_are_called_and_other_thresholds_are_not() -> None:
    """Twelve pairs each; benchmarks/load_curve.py has the rates."""
    server = ServerModel(capacity_users=6000.0)
    slow = replace(
        server, cpu_at_capacity_percent=22.0, cpu_per_login_percent=7.15, client_avg_at_capacity_s=0.11,
        client_avg_idle_s=0.022,
    )  # fmt: skip
    other = Coordinator(thresholds=Thresholds(client_avg_s=0.075))
    groups = [
        RepeatedRuns(
            str(i),
            "unbounded",
            [],
            measure_noise_at_load([simulated(RunSettings(server=server), 900 + 10 * i + k) for k in range(3)]),
        )
        for i in range(6)
    ]
    found = wrong = worse = 0
    for seed in range(2000, 2120, 10):
        base = simulated(RunSettings(server=server), seed)
        slower = judged(equal_load([base], [simulated(RunSettings(server=slow), seed + 1)]), groups)
        found += called(slower)
        strict = simulated(RunSettings(server=server, coordinator=other), seed + 2)
        unchanged = judged(equal_load([base], [strict]), groups)
        wrong += called(unchanged)
        lows = [row.ci_low for slug, row in unchanged.items() if CATALOGUE.find(slug).better == "lower"]
        worse += any(low is not None and low > 0 for low in lows)
    assert found >= 8  # of twelve at 85 %: at least eight in 98 of 100
    assert wrong <= 1
    assert worse <= 2
