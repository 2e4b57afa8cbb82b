"""Is a comparison right where nothing happened, before it is useful where something did?"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter
from statsmodels.stats.multitest import multipletests

from buildcompare.analysis.families import JudgeLabels, JudgeMetrics
from buildcompare.analysis.judge import (
    Effect,
    Judge,
    MeasureEffect,
    adjust_discoveries,
    adjust_familywise,
)
from buildcompare.analysis.label_noise import LabelNoise
from buildcompare.analysis.run_to_run import LabelValue, Noise, RepeatedRuns, RunLevel, RunLevels, RunToRun
from buildcompare.analysis.self_check import SelfCheck
from buildcompare.analysis.significance import StandardError, WithinPair
from buildcompare.errors import InputError
from buildcompare.metrics import Metric, RunSd, read_catalogue
from buildcompare.params import Run, check_params
from buildcompare.run_view import ViewRun
from buildcompare.sources.ltctl import LtctlSource
from buildcompare.workbench import analyse, read_recordings
from support import real_params, small_params

SAMPLES = 1080
SMALL = ("v1-1.1", "v2-L110", "v2-L222")
"""Configurations of the smallest machines."""
LOWER = Metric(name="metric", slug="metric", better="lower", margin_percent=10)


def ar1(rng: np.random.Generator, runs: int, phi: float) -> np.ndarray:
    series = lfilter([math.sqrt(1 - phi**2)], [1.0, -phi], rng.normal(size=(runs, SAMPLES + 500)), axis=1)
    return np.asarray(series[:, 500:])


# ---- Within a run ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, 0.97])
def test_the_test_within_a_pair_has_its_size(phi: float) -> None:
    rng = np.random.default_rng(int(1000 * phi) + 5)
    called = WithinPair()(ar1(rng, 2000, phi), ar1(rng, 2000, phi)) < 0.05
    assert 0.035 <= called.mean() <= 0.07


def test_the_test_within_a_pair_has_power() -> None:
    rng = np.random.default_rng(11)
    assert np.mean(WithinPair()(ar1(rng, 4000, 0.9), ar1(rng, 4000, 0.9) + 0.5) < 0.05) >= 0.74


def test_independent_samples_are_worth_their_number() -> None:
    worth = StandardError()(np.random.default_rng(2).normal(5.0, 2.0, (400, 900)))
    assert np.median(worth.n_effective) == pytest.approx(900, rel=0.05)
    assert np.median(worth.se) == pytest.approx(2.0 / 30.0, rel=0.03)


@pytest.mark.parametrize(("phi", "worth"), [(0.5, SAMPLES / 3), (0.9, SAMPLES / 19)])
def test_correlated_samples_are_worth_less(phi: float, worth: float) -> None:
    found = StandardError()(ar1(np.random.default_rng(3), 500, phi)).n_effective
    assert np.median(found) == pytest.approx(worth, rel=0.1)


def test_gaps_do_not_break_the_standard_error() -> None:
    rng = np.random.default_rng(4)
    whole = ar1(rng, 300, 0.8)
    holed = whole.copy()
    holed[:, 200:320] = math.nan
    holed[:, ::17] = math.nan
    ratio = np.median(StandardError()(holed).se) / np.median(StandardError()(whole).se)
    assert ratio == pytest.approx(math.sqrt(SAMPLES / np.isfinite(holed[0]).sum()), rel=0.1)


def test_a_series_of_nothing_is_worth_nothing() -> None:
    worth = StandardError()(np.array([[math.nan] * 50, [1.0] * 50, [1.0, 2.0] + [math.nan] * 48]))
    assert math.isnan(worth.mean[0])
    assert math.isnan(worth.se[0])
    assert worth.se[1] == 0.0
    assert math.isnan(worth.se[2])


# ---- Between runs ---------------------------------------------------------------------------------------------------


def groups_of(levels: np.ndarray, kind: Any = "bounded") -> list[RepeatedRuns]:
    """One group for each row of `levels`."""
    return [
        RepeatedRuns(str(i), kind, [RunLevels({"metric": RunLevel(float(level))}) for level in row])
        for i, row in enumerate(levels)
    ]


def test_noise_is_what_the_runs_were_made_with() -> None:
    rng = np.random.default_rng(6)
    found = RunToRun(groups_of(np.exp(rng.normal(0, 0.04, (200, 3)) + rng.normal(0, 1, (200, 1)))))(LOWER, "bounded")
    assert found is not None
    assert found.prior == "calibrated"
    assert found.sd == pytest.approx(0.04, rel=0.08)
    assert 250 < found.df <= 400


def test_setups_that_differ_are_worth_fewer_degrees_of_freedom() -> None:
    rng = np.random.default_rng(7)
    alike, unlike = 0.02 * np.ones(8), np.array([0.002] * 7 + [0.2])
    for sds, low, high in ((alike, 8, 16), (unlike, 2.9, 4)):
        logs = rng.normal(size=(8, 3)) * sds[:, None]
        found = RunToRun(groups_of(np.exp(logs)))(LOWER, "bounded")
        assert found is not None
        assert low <= found.df <= high


def test_few_runs_lean_on_the_other_type_of_test() -> None:
    rng = np.random.default_rng(8)
    many = groups_of(np.exp(rng.normal(0, 0.08, (30, 3))), "unbounded")
    few = groups_of(np.array([[100.0, 100.1, 100.2]]), "bounded")
    found = RunToRun([*many, *few])(LOWER, "bounded")
    assert found is not None
    assert found.df == pytest.approx(2 + 4)
    assert found.sd == pytest.approx(math.sqrt((2 * 0.001**2 + 4 * 0.08**2) / 6), rel=0.1)


def test_without_runs_the_prior_is_borrowed_and_without_a_prior_there_is_none() -> None:
    with_prior = Metric(name="m", slug="metric", run_sd_percent=RunSd(bounded=2.0))
    borrowed = RunToRun()(with_prior, "bounded")
    assert borrowed is not None
    assert (borrowed.prior, borrowed.df) == ("borrowed", math.inf)
    assert borrowed.sd == pytest.approx(math.log(1.02))
    assert RunToRun()(with_prior, "unbounded") is None
    assert RunToRun()(LOWER, "bounded") is None


def test_few_runs_lean_on_the_catalogue() -> None:
    with_prior = LOWER.model_copy(update={"run_sd_percent": RunSd(bounded=8.0)})
    found = RunToRun(groups_of(np.array([[100.0, 100.1, 100.2]])))(with_prior, "bounded")
    assert found is not None
    assert found.df == pytest.approx(2 + 4)
    assert found.sd == pytest.approx(math.sqrt((2 * 0.001**2 + 4 * math.log(1.08) ** 2) / 6), rel=0.01)


def test_runs_that_scatter_widen_a_borrowed_prior() -> None:
    noise = Noise(0.02, math.inf, "borrowed")
    wide = MeasureEffect()([RunLevel(v) for v in (100, 60, 160)], [RunLevel(v) for v in (130, 75, 220)], noise)
    assert wide is not None
    assert wide.run_sd > 0.2
    assert wide.p_value > 0.2


@pytest.mark.parametrize("run_sd", [0.3, 1.0, 3.0])
def test_a_calibrated_comparison_has_its_size_and_finds_what_it_should(run_sd: float) -> None:
    rng = np.random.default_rng(int(10 * run_sd))
    called = found = held = 0
    repetitions, within = 1500, 0.133  # standard error of a mean of 1,080 samples at phi 0.9
    for _ in range(repetitions):
        logs = np.hypot(run_sd, within) * rng.normal(size=22) / 1000
        noise = RunToRun(groups_of(np.exp(logs[:20].reshape(10, 2))))(LOWER, "bounded")
        assert noise is not None
        truth = 3.3 * math.sqrt(2) * math.hypot(run_sd, within) / 1000
        null = MeasureEffect()([RunLevel(math.exp(logs[20]))], [RunLevel(math.exp(logs[21]))], noise)
        moved = MeasureEffect()([RunLevel(math.exp(logs[20]))], [RunLevel(math.exp(logs[21] + truth))], noise)
        assert null is not None
        assert moved is not None
        called += null.p_value < 0.05
        found += moved.p_value < 0.05
        low, high = moved.interval()
        held += low <= 100 * math.expm1(truth) <= high
    assert called / repetitions <= 0.06
    assert found / repetitions >= 0.80
    assert 0.93 <= held / repetitions <= 0.97


def test_repeated_runs_of_the_builds_narrow_the_interval() -> None:
    noise = Noise(0.05, 20.0, "calibrated")
    one = MeasureEffect()([RunLevel(1.0)], [RunLevel(1.0)], noise)
    four = MeasureEffect()([RunLevel(1.0)] * 4, [RunLevel(1.0), RunLevel(1.1), RunLevel(0.9), RunLevel(1.0)], noise)
    assert one is not None
    assert four is not None
    assert four.df == 26
    assert four.sd < one.sd / 1.8


def test_a_shorter_window_is_less_certain() -> None:
    noise = Noise(0.02, 20.0, "calibrated", within=0.01, seconds=1800.0)
    sds = []
    for seconds in (1800.0, 450.0):
        effect = MeasureEffect()([RunLevel(1.0, 0.0, seconds)], [RunLevel(1.0, 0.0, seconds)], noise)
        assert effect is not None
        sds.append(effect.sd)
    assert sds[1] ** 2 - sds[0] ** 2 == pytest.approx(2 * 3 * 0.01**2)  # three more parts of the within-run variance


# ---- Judgement ------------------------------------------------------------------------------------------------------


def effect(log_ratio: float, sd: float = 0.02, df: float = math.inf) -> Effect:
    return Effect(log_ratio, sd, df, sd / math.sqrt(2), "calibrated")


@pytest.mark.parametrize("df", [3.0, 14.0, math.inf])
def test_intervals_and_p_values_are_those_of_the_t_distribution(df: float) -> None:
    found = effect(0.05, 0.02, df)
    distribution = stats.norm if math.isinf(df) else stats.t(df)
    assert found.p_value == pytest.approx(2 * distribution.sf(2.5))
    low, high = found.interval()
    half = distribution.ppf(0.975) * 0.02
    assert low == pytest.approx(100 * math.expm1(0.05 - half))
    assert high == pytest.approx(100 * math.expm1(0.05 + half))


@pytest.mark.parametrize(
    ("log_ratio", "sd", "better", "status"),
    [
        (0.20, 0.02, "lower", "regression"),
        (-0.20, 0.02, "lower", "improvement"),
        (0.20, 0.02, "higher", "improvement"),
        (-0.20, 0.02, "context", "regression"),
        (0.05, 0.005, "lower", "equivalent"),  # surely changed, surely not by the margin
        (0.20, 0.15, "lower", "inconclusive"),
        (0.08, 0.02, "lower", "inconclusive"),  # not beyond the margin, and may be
        (0.0, 0.02, "lower", "equivalent"),
        (0.0, 0.2, "lower", "inconclusive"),
    ],
)
def test_the_status_follows_from_the_intervals(log_ratio: float, sd: float, better: Any, status: str) -> None:
    found = effect(log_ratio, sd)
    assert Judge()(found, found.p_value, 10.0, better) == status


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30))
def test_adjusted_p_values_are_those_of_statsmodels(p_values: list[float]) -> None:
    assert adjust_familywise(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])
    assert adjust_discoveries(p_values) == pytest.approx(multipletests(p_values, method="fdr_bh")[1])


def test_families_are_judged_apart() -> None:
    gate = LOWER.model_copy(update={"gate": True})
    rows = [(gate, effect(0.3)), (LOWER, effect(0.05)), (LOWER, None), (LOWER, effect(0.06))]
    judged = JudgeMetrics()(rows)
    assert judged[2] is None
    assert [each.family for each in judged if each] == ["gate", "other", "other"]
    assert judged[0] is not None
    assert judged[0].p_adjusted == judged[0].p_value  # alone in its family
    assert judged[1] is not None
    assert judged[1].p_adjusted == pytest.approx(max(judged[1].p_value, 2 * effect(0.06).p_value))


def test_the_runs_that_settle_it_would_settle_it() -> None:
    found = effect(0.0, 0.10 * math.sqrt(2))
    runs = found.runs_to_settle(10.0)
    assert runs is not None
    rng = np.random.default_rng(9)
    means = rng.normal(0, 0.10, (20_000, 2, runs)).mean(axis=2)
    z = np.abs(means[:, 1] - means[:, 0] + math.log(1.1)) / (0.10 * math.sqrt(2 / runs))
    assert 0.8 <= np.mean(z > 1.96) < 0.85


def test_what_would_be_seen_is_seen() -> None:
    noise = Noise(0.03, 14.0, "calibrated")
    rng = np.random.default_rng(21)
    family, sd = [LOWER] * 7, 0.03 * math.sqrt(2)
    size = effect(0.0, sd, 14.0).detectable_percent(10.0, len(family))
    found = 0
    for _ in range(800):
        known = Noise(noise.sd * math.sqrt(rng.chisquare(14.0) / 14.0), 14.0, "calibrated")  # an estimate too
        factors = [1 + size / 100, *[1.0] * (len(family) - 1)]
        pairs = [([RunLevel(1.0)], [RunLevel(factor * math.exp(rng.normal(0, sd)))]) for factor in factors]
        judged = JudgeMetrics()([(LOWER, MeasureEffect()(a, b, known)) for a, b in pairs])
        found += judged[0] is not None and judged[0].status == "regression"
    assert 0.75 <= found / 800 <= 0.87


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [(0.02, 0.02, "pass"), (None, 0.02, "inconclusive"), (0.02, None, "inconclusive"), (0.0, 40.0, "inconclusive")],
)
def test_what_users_feel_must_be_there_in_both_builds(
    tmp_path: Path, base: float | None, new: float | None, verdict: str
) -> None:
    """A second gate metric, which is missing in one build or rises from zero, is no pass."""
    params = small_params(tmp_path)
    for side, value in (("base", base), ("new", new)):
        file = Path(params["tests"][0][side]["recording"])
        table = pd.read_csv(file)
        rows = table[table["metric"] == "rps"].assign(
            metric="p99-api-times", value=math.nan if value is None else value
        )
        pd.concat([table, rows]).to_csv(file, index=False)
    params["tests"] = params["tests"][:1]
    params["margins"] = {"avg-api-times": 20.0}
    checked = check_params(params)
    results = analyse(checked, read_recordings(checked)).results
    assert results.verdict == verdict
    assert any(each.kind == "unjudgeable" for each in results.findings) is (verdict != "pass")


# ---- Labels ---------------------------------------------------------------------------------------------------------


def label_groups(rng: np.random.Generator, setups: int, labels: int) -> list[RepeatedRuns]:
    """Labels whose noise falls with their level, from 40 % at 1 ms to 4 % at 1 s."""
    levels = np.exp(rng.uniform(math.log(1e-3), 0.0, labels))
    sds = 0.04 * levels ** (-1 / 3)
    groups = []
    for setup in range(setups):
        shift = rng.normal(0, 0.5, labels)
        runs = [
            RunLevels(
                labels={
                    ("api", "avg", f"l{i}"): LabelValue(
                        float(levels[i] * math.exp(shift[i] + rng.normal(0, float(sds[i]))))
                    )
                    for i in range(labels)
                }
            )
            for _ in range(3)
        ]
        groups.append(RepeatedRuns(f"s{setup}", "bounded", runs))
    return groups


def test_the_noise_of_a_label_follows_its_level() -> None:
    noise = LabelNoise(label_groups(np.random.default_rng(10), 6, 80))
    quiet = noise(("api", "avg"), "unseen", [LabelValue(0.5)], "bounded")
    loud = noise(("api", "avg"), "unseen", [LabelValue(0.002)], "bounded")
    assert quiet is not None
    assert loud is not None
    assert quiet.sd == pytest.approx(0.04 * 0.5 ** (-1 / 3), rel=0.4)
    assert loud.sd == pytest.approx(0.04 * 0.002 ** (-1 / 3), rel=0.4)


def test_label_rows_of_unchanged_builds_are_marked_at_their_rate() -> None:
    rng = np.random.default_rng(12)
    groups = label_groups(rng, 8, 80)
    noise = LabelNoise(groups[:7])
    marked = judged = 0
    for first, second in itertools.combinations(groups[7].runs, 2):
        rows = []
        for key, a in first.labels.items():
            b = second.labels[key]
            known = noise(key[:2], key[2], (a, b), "bounded")
            assert known is not None
            rows.append((key[:2], MeasureEffect()([RunLevel(a.value)], [RunLevel(b.value)], known)))
        found = JudgeLabels(margin_percent=0.1)(rows)
        judged += len(found)
        marked += sum(each is not None and each.status in ("regression", "improvement") for each in found)
    assert marked / judged <= 0.05


def test_too_little_says_nothing_of_a_label() -> None:
    few = label_groups(np.random.default_rng(13), 2, 80)
    assert LabelNoise(few)(("api", "avg"), "l1", [LabelValue(0.1)], "bounded") is None
    assert LabelNoise()(("api", "avg"), "l1", [LabelValue(0.1)], "bounded") is None
    enough = label_groups(np.random.default_rng(13), 4, 80)
    assert LabelNoise(enough)(("store", "avg"), "l1", [LabelValue(0.1)], "bounded") is None
    assert LabelNoise(enough)(("api", "avg"), "l1", [LabelValue(0.0)], "bounded") is None


# ---- Nothing is claimed without knowing the noise -------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    ratio=st.floats(0.01, 100.0),
    noise=st.floats(0.0, 0.5),
    runs=st.integers(1, 3),
    name=st.sampled_from(["avg-api-times", "rps", "own-metric", "Anything else"]),
)
def test_without_calibration_and_prior_no_change_is_claimed(
    ratio: float, noise: float, runs: int, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("unknown")
    rng = np.random.default_rng(1)
    catalogue = folder / "bare.yaml"
    catalogue.write_text(
        "metrics:\n  - {name: avg-api-times, slug: avg-api-times, better: lower, gate: true}\n"
        "  - {name: users, slug: users, load: true}\n"
    )
    tests = []
    for kind in ("bounded", "unbounded"):
        sides = {}
        for side, level in (("base", 1.0), ("new", ratio)):
            files = []
            for run in range(runs):
                elapsed = np.arange(0, 3000, 5)
                file = folder / f"{kind}-{side}-{run}.csv"
                rows = pd.DataFrame({"timestamp": elapsed + 1.7e9})
                values = {name: level * np.exp(noise * rng.normal(size=elapsed.size)), "users": 100.0 + 0 * elapsed}
                pd.concat([rows.assign(metric=m, value=v) for m, v in values.items()]).to_csv(file, index=False)
                files.append({"recording": str(file), "supported_users": max(int(100 * level), 1)})
            sides[side] = files
        tests.append({"name": kind, "type": kind, **sides})
    params = check_params(
        {
            "name": "unknown", "base": {"label": "a"}, "new": {"label": "b"}, "metrics": str(catalogue),
            "source": {"kind": "recorded"}, "tests": tests,
        }
    )  # fmt: skip
    results = analyse(params, read_recordings(params)).results
    statuses = {row.status for test in results.tests for row in [*test.metrics, *test.labels]}
    statuses |= {test.supported_users.status for test in results.tests if test.supported_users}
    assert statuses <= {"inconclusive", "not_comparable"}
    assert results.verdict == "inconclusive"


def test_metrics_with_a_prior_are_judged(tmp_path: Path) -> None:
    """The counterpart of the test above: it could have failed."""
    params = check_params(small_params(tmp_path))
    rows = {row.slug: row for row in analyse(params, read_recordings(params)).results.tests[0].metrics}
    assert rows["avg-api-times"].prior == "borrowed"
    assert rows["avg-api-times"].delta_percent == pytest.approx(10, abs=0.5)
    assert rows["rps"].status == "equivalent"


def test_margins_of_the_params_count(tmp_path: Path) -> None:
    rows = {}
    for margin in (1.0, 30.0):
        params = check_params(small_params(tmp_path, margins={"rps": margin, "avg-api-times": margin}))
        found = analyse(params, read_recordings(params)).results.tests[0].metrics
        rows[margin] = {row.slug: row for row in found}
    assert rows[1.0]["rps"].status == "inconclusive"
    assert rows[30.0]["rps"].status == "equivalent"
    assert rows[30.0]["avg-api-times"].margin_percent == 30.0


# ---- Real runs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ceiling(real: Path) -> list[RepeatedRuns]:
    """Three runs of each published configuration but the smallest."""
    catalogue = read_catalogue("mattermost")
    view_run, source = ViewRun(catalogue), LtctlSource(catalogue)
    table = pd.read_csv(real / "ceiling/runs.csv", dtype={"config": str})
    groups = []
    for (suite, config), rows in table.groupby(["suite", "config"]):
        runs = []
        for row in rows.itertuples():
            try:
                recording = source.record(Run(report=str(real / "ceiling" / str(row.file))))
            except InputError:
                assert row.run_id == "v2-4XL552-1"  # an empty file, as published
                continue
            runs.append(view_run.levels(view_run(recording, row.test_type), row.test_type))
        if len(runs) > 1 and f"{suite}-{config}" not in SMALL:
            groups.append(RepeatedRuns(f"{suite}-{config}", rows.test_type.iloc[0], runs))
    return groups


def test_real_identical_pairs_are_rarely_called_changed(ceiling: list[RepeatedRuns]) -> None:
    found = SelfCheck(read_catalogue("mattermost").find)(ceiling)
    assert found is not None
    assert (found.groups, found.pairs) == (10, 28)
    assert found.metrics.called / found.metrics.rows <= 0.05
    assert found.labels.called / found.labels.rows <= 0.02
    assert found.pairs_called / found.pairs <= 0.10
    assert found.metrics.covering / found.metrics.rows >= 0.93
    assert found.labels.covering / found.labels.rows >= 0.93
    assert found.metrics.found[50.0] / found.metrics.rows >= 0.95


def test_twenty_percent_on_a_resource_is_found(ceiling: list[RepeatedRuns]) -> None:
    five = ("cpu-utilization", "heap-in-use", "stack-in-use", "goroutines-in-use", "rps")
    pairs = SelfCheck(read_catalogue("mattermost").find).metric_pairs(ceiling)
    found = [row.found[20.0] for _, rows in pairs for row in rows if row.key in five]
    assert len(found) == 5 * 28
    assert np.mean(found) >= 0.9


def judged(real: Path, release: str, base: str, new: str) -> dict[str, dict[str, Any]]:
    """Metrics by slug of each test of a published comparison, judged by the borrowed priors."""
    params = check_params({"name": release, **real_params(real, release, base, new)})
    results = analyse(params, read_recordings(params)).results
    return {test.name: {row.slug: row for row in test.metrics} for test in results.tests}


def test_the_stack_of_v9_2_is_called_by_borrowed_priors(real: Path) -> None:
    tests = judged(real, "v9.2", "v9.1", "v9.2")
    for name, percent in (("mysql_bounded", 22), ("postgresql_bounded", 20)):
        row = tests[name]["stack-in-use"]
        assert row.status == "regression"
        assert row.prior == "borrowed"
        assert row.delta_percent == pytest.approx(percent, abs=2)


def test_nothing_of_v9_6_is_called_by_borrowed_priors(real: Path) -> None:
    tests = judged(real, "v9.6", "v9.5", "v9.6")
    for name in ("mysql_bounded", "postgresql_bounded"):
        for slug in ("cpu-utilization", "stack-in-use", "goroutines-in-use", "rps", "p99-api-times", "p99-store-times"):
            assert tests[name][slug].status in ("equivalent", "inconclusive")
            assert tests[name][slug].p_value is not None


def test_what_a_plot_hides_is_never_called(real: Path) -> None:
    for release in sorted(path.name for path in (real / "comparisons").iterdir() if path.is_dir()):
        for tests in judged(real, release, "base", "new").values():
            for slug in ("heap-in-use", "avg-api-times", "avg-store-times"):
                assert tests[slug].status in ("inconclusive", "not_comparable")
                assert "plot" in tests[slug].reason
