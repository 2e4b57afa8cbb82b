"""Is a comparison right where nothing happened, before it is useful where something did?"""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from scipy.signal import lfilter

import buildcompare as bc
from buildcompare.config.catalogue import LabelSd, LabelTable, Metric, RunSd, read_catalogue
from buildcompare.labels.noise import LabelNoise, label_pairs
from buildcompare.load.view import view_run
from buildcompare.results import Results
from buildcompare.results.codes import NoiseSource
from buildcompare.stats import noise as noises
from buildcompare.stats.effects import LABEL_ALPHA, judge_labels, measure_effect
from buildcompare.stats.levels import mean_with_error
from buildcompare.stats.noise import LABEL_KEY, RepeatedRuns, RunLevel, RunLevels, label_frame, metric_noise
from loadcalibrate.learn import run_levels, self_check
from support import sure

SAMPLES = 1080
SMALL = ("v1-1.1", "v2-L110", "v2-L222")
"""Configurations of the smallest machines."""
LOWER = Metric(name="metric", slug="metric", better="lower", margin_percent=10)


def ar1(rng: np.random.Generator, runs: int, phi: float) -> np.ndarray:
    series = lfilter([math.sqrt(1 - phi**2)], [1.0, -phi], rng.normal(size=(runs, SAMPLES + 500)), axis=1)
    return np.asarray(series[:, 500:])


def worth(table: np.ndarray) -> np.ndarray:
    return np.array([mean_with_error(series) for series in table]).T


def within_pair(base: np.ndarray, new: np.ndarray) -> np.ndarray:
    (b, b_se, b_effective), (n, n_se, n_effective) = worth(base), worth(new)
    df = np.maximum(b_effective + n_effective - 2.0, 1.0)
    return np.asarray(2.0 * special.stdtr(df, -np.abs(n - b) / np.hypot(b_se, n_se)))


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9, 0.97])
def test_the_test_within_a_pair_has_its_size(phi: float) -> None:
    rng = np.random.default_rng(int(1000 * phi) + 5)
    called = within_pair(ar1(rng, 2000, phi), ar1(rng, 2000, phi)) < 0.05
    assert 0.035 <= called.mean() <= 0.07


def test_the_test_within_a_pair_has_power() -> None:
    rng = np.random.default_rng(11)
    assert np.mean(within_pair(ar1(rng, 4000, 0.9), ar1(rng, 4000, 0.9) + 0.5) < 0.05) >= 0.74


@pytest.mark.parametrize(("phi", "independent"), [(0.0, SAMPLES), (0.5, SAMPLES / 3), (0.9, SAMPLES / 19)])
def test_correlated_samples_are_worth_less(phi: float, independent: float) -> None:
    found = worth(ar1(np.random.default_rng(3), 500, phi))[2]
    assert np.median(found) == pytest.approx(independent, rel=0.1)


def test_gaps_do_not_break_the_standard_error() -> None:
    rng = np.random.default_rng(4)
    whole = ar1(rng, 300, 0.8)
    holed = whole.copy()
    holed[:, 200:320] = math.nan
    holed[:, ::17] = math.nan
    ratio = np.median(worth(holed)[1]) / np.median(worth(whole)[1])
    assert ratio == pytest.approx(math.sqrt(SAMPLES / np.isfinite(holed[0]).sum()), rel=0.1)


def test_a_series_of_nothing_is_worth_nothing() -> None:
    mean, se, _ = worth(np.array([[math.nan] * 50, [1.0] * 50, [1.0, 2.0] + [math.nan] * 48]))
    assert math.isnan(mean[0])
    assert math.isnan(se[0])
    assert se[1] == 0.0
    assert math.isnan(se[2])


def groups_of(levels: np.ndarray, kind: Any = "bounded") -> list[RepeatedRuns]:
    return [
        RepeatedRuns(str(i), kind, [RunLevels({"metric": RunLevel(float(level))}) for level in row])
        for i, row in enumerate(levels)
    ]


def test_noise_is_what_the_runs_were_made_with() -> None:
    rng = np.random.default_rng(6)
    found = sure(
        metric_noise(LOWER, "bounded", groups_of(np.exp(rng.normal(0, 0.04, (200, 3)) + rng.normal(0, 1, (200, 1)))))
    )
    assert (found.noise_source, found.sd) == ("calibration", pytest.approx(0.04, rel=0.08))
    assert 250 < found.df <= 400


def test_setups_that_differ_are_worth_fewer_degrees_of_freedom() -> None:
    rng = np.random.default_rng(7)
    alike, unlike = 0.02 * np.ones(8), np.array([0.002] * 7 + [0.2])
    for sds, low, high in ((alike, 8, 16), (unlike, 2.9, 4)):
        logs = rng.normal(size=(8, 3)) * sds[:, None]
        found = sure(metric_noise(LOWER, "bounded", groups_of(np.exp(logs))))
        assert low <= found.df <= high


def test_few_runs_lean_on_the_other_type_of_test_or_on_the_catalogue() -> None:
    few = groups_of(np.array([[100.0, 100.1, 100.2]]))
    many = groups_of(np.exp(np.random.default_rng(8).normal(0, 0.08, (30, 3))), "unbounded")
    stated = LOWER.model_copy(update={"run_sd_percent": RunSd(bounded=8.0)})
    for metric, groups, df, sd, rel in ((LOWER, many, 4, 0.08, 0.1), (stated, [], 8, math.log(1.08), 0.01)):
        found = sure(metric_noise(metric, "bounded", [*groups, *few]))
        assert found.df == pytest.approx(2 + df)
        assert found.sd == pytest.approx(math.sqrt((2 * 0.001**2 + df * sd**2) / (2 + df)), rel=rel)


def test_without_runs_the_prior_is_borrowed_and_without_a_prior_there_is_none() -> None:
    with_prior = Metric(name="m", slug="metric", run_sd_percent=RunSd(bounded=2.0))
    borrowed = sure(metric_noise(with_prior, "bounded"))
    assert (borrowed.noise_source, borrowed.df, borrowed.sd) == ("catalogue", 8.0, pytest.approx(math.log(1.02)))
    known = with_prior.model_copy(update={"run_sd_percent": RunSd(bounded=2.0, df={"bounded": 15.0})})
    assert metric_noise(known, "bounded") == replace(borrowed, df=15.0)
    assert metric_noise(with_prior, "unbounded") is None
    assert metric_noise(LOWER, "bounded") is None


@pytest.mark.parametrize("run_sd", [0.3, 1.0, 3.0])
def test_a_calibrated_comparison_has_its_size_and_finds_what_it_should(run_sd: float) -> None:
    rng = np.random.default_rng(int(10 * run_sd))
    called = found = held = 0
    repetitions, within = 1500, 0.133  # standard error of a mean of 1,080 samples at phi 0.9
    for _ in range(repetitions):
        logs = np.hypot(run_sd, within) * rng.normal(size=22) / 1000
        noise = sure(metric_noise(LOWER, "bounded", groups_of(np.exp(logs[:20].reshape(10, 2)))))
        truth = 3.3 * math.sqrt(2) * math.hypot(run_sd, within) / 1000
        null = sure(measure_effect([RunLevel(math.exp(logs[20]))], [RunLevel(math.exp(logs[21]))], noise))
        moved = sure(measure_effect([RunLevel(math.exp(logs[20]))], [RunLevel(math.exp(logs[21] + truth))], noise))
        called += null.p_value < 0.05
        found += moved.p_value < 0.05
        low, high = moved.interval()
        held += low <= 100 * math.expm1(truth) <= high
    assert called / repetitions <= 0.06
    assert found / repetitions >= 0.80
    assert 0.93 <= held / repetitions <= 0.97


def test_a_shorter_window_is_less_certain() -> None:
    noise = bc.Noise(0.02, 20.0, "calibration", within=0.01, seconds=1800.0)
    sds = []
    for seconds in (1800.0, 450.0):
        effect = sure(measure_effect([RunLevel(1.0, 0.0, seconds)], [RunLevel(1.0, 0.0, seconds)], noise))
        sds.append(effect.sd)
    assert sds[1] ** 2 - sds[0] ** 2 == pytest.approx(2 * 3 * 0.01**2)  # three more parts of the within-run variance


def labelled(values: dict[str, float]) -> RunLevels:
    return RunLevels(
        labels=label_frame(
            [("api", label, "avg", value, math.nan) for label, value in values.items()], ["value", "calls"]
        )
    )


def label_groups(rng: np.random.Generator, setups: int, labels: int) -> list[RepeatedRuns]:
    levels = np.exp(rng.uniform(math.log(1e-3), 0.0, labels))
    sds = 0.04 * levels ** (-1 / 3)
    groups = []
    for setup in range(setups):
        shift = rng.normal(0, 0.5, labels)
        runs = [
            labelled({f"l{i}": levels[i] * math.exp(shift[i] + rng.normal(0, float(sds[i]))) for i in range(labels)})
            for _ in range(3)
        ]
        groups.append(RepeatedRuns(f"s{setup}", "bounded", runs))
    return groups


def pair_of(first: RunLevels, second: RunLevels) -> pd.DataFrame:
    return first.labels.merge(second.labels, on=LABEL_KEY, suffixes=("_base", "_new")).rename(
        columns={"value_base": "base", "value_new": "new"}
    )


@pytest.mark.slow
def test_label_rows_of_unchanged_builds_are_marked_at_their_rate() -> None:
    groups = label_groups(np.random.default_rng(12), 8, 80)
    noise = LabelNoise(groups[:7])
    marked = judged = 0
    for first, second in itertools.combinations(groups[7].runs, 2):
        effects = noise.effects(pair_of(first, second))["effect"]
        found = judge_labels([("api avg", effect) for effect in effects], margin_percent=0.1)
        assert len(found) == 80
        judged += len(found)
        marked += sum(each is not None and each.status in ("regression", "improvement") for each in found)
    assert marked / judged <= 0.05


@pytest.mark.slow
def test_a_change_of_the_whole_table_marks_no_label_and_that_of_one_label_does() -> None:
    groups = label_groups(np.random.default_rng(14), 6, 80)
    rows = pair_of(groups[5].runs[0], groups[5].runs[1])
    plain = LabelNoise(groups[:5]).effects(rows)
    slower = LabelNoise(groups[:5]).effects(rows.assign(new=1.3 * rows["new"]))
    assert slower["shared"].iloc[0] - plain["shared"].iloc[0] == pytest.approx(math.log(1.3))
    for before, after in zip(plain["effect"], slower["effect"], strict=True):
        assert after.log_ratio == pytest.approx(before.log_ratio)
        assert after.sd == pytest.approx(before.sd, rel=0.05), "long labels scatter less"
    last = rows.index[rows["base"].argmax()]  # a quiet one
    rows.loc[last, "new"] *= 3.0
    (alone,) = judge_labels([("api avg", LabelNoise(groups[:5]).effects(rows)["effect"][last])])
    assert sure(alone).status == "regression"


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize("common", [0.0, 0.05], ids=["labels alone", "whole runs"])
@pytest.mark.parametrize("runs", [2, 3])
def test_identical_builds_mark_few_labels_by_the_noise_of_their_repeats(runs: int, common: float) -> None:
    """One of four labels is rarely called and scatters four times as much."""
    rng, sds, labels = np.random.default_rng(17), np.array([0.03, 0.03, 0.03, 0.12]), list("abcd")
    keys = pd.MultiIndex.from_tuples([("api", label, "avg") for label in labels], names=LABEL_KEY)
    marked = found = 0
    for _ in range(100):
        logs = rng.normal(0.0, sds, (2 * runs, 4)) + rng.normal(0.0, common, (2 * runs, 1))
        levels = pd.DataFrame(np.exp(logs), ["base"] * runs + ["new"] * runs, keys)
        means = levels.groupby(level=0).mean()
        rows = keys.to_frame(index=False).assign(base=means.loc["base"].to_numpy(), new=means.loc["new"].to_numpy())
        rows["calls"] = [1600.0, 1600.0, 1600.0, 100.0]
        effects = LabelNoise().effects(rows, (runs, runs), levels)["effect"]
        judged = judge_labels([("api avg", effect) for effect in effects], margin_percent=0.1)
        marked += sum(each is not None and each.status.changed for each in judged)
        rows["new"] *= [1.5, 1.0, 1.0, 1.0]
        levels *= 1.0 + np.outer(levels.index == "new", [0.5, 0.0, 0.0, 0.0])
        found += LabelNoise().effects(rows, (runs, runs), levels)["effect"][0].p_value < 0.02
    assert marked / 400 <= 0.05
    assert found / 100 >= (0.4 * (runs - 1) if common else 0.9)


def test_repeats_of_a_noisier_laboratory_widen_what_the_catalogue_states() -> None:
    labels = [LabelTable(group="api", title="", label="", run_sd_percent={"avg": LabelSd(percent=5.0, df=4.0)})]
    keys = pd.MultiIndex.from_tuples([("api", label, "avg") for label in "abcd"], names=LABEL_KEY)
    logs = np.random.default_rng(18).normal(size=(6, 4))
    rows = keys.to_frame(index=False).assign(base=0.1234567, new=0.1345678, calls=1e6)
    sds = []
    for noise, df in ((0.001, 8.0), (0.3, 6.3)):  # the ratio of the laboratory is an estimate, too
        levels = pd.DataFrame(np.exp(noise * logs), ["base"] * 3 + ["new"] * 3, keys)
        (effect, *_) = LabelNoise(tables=labels).effects(rows, (3, 3), levels)["effect"]
        assert (effect.noise_source, effect.df) == ("catalogue", pytest.approx(df, abs=0.05))
        sds.append(effect.run_sd)
    assert sds[0] < math.log1p(0.05) < 0.1 < sds[1]


def test_an_erratic_label_widens_no_other() -> None:
    keys = pd.MultiIndex.from_tuples([("api", label, "avg") for label in "abcdefghijkl"], names=LABEL_KEY)
    rows, sds = keys.to_frame(index=False).assign(base=0.12, new=0.13, calls=100.0), []
    for erratic in (0.02, 1.0):
        logs = np.random.default_rng(18).normal(size=(6, 12)) * [erratic, *[0.02] * 11]
        levels = pd.DataFrame(np.exp(logs), ["base"] * 3 + ["new"] * 3, keys)
        sds.append(LabelNoise().effects(rows, (3, 3), levels)["effect"][5].run_sd)
    assert sds[1] < 1.5 * sds[0]


def test_rounded_times_are_known_to_half_a_millisecond() -> None:
    catalogue = LabelTable(group="api", title="", label="", run_sd_percent={"avg": LabelSd(percent=5.0, df=2.0)})
    rows = pd.DataFrame({"group": "api", "stat": "avg", "label": ["a", "b"], "base": [0.05, 0.5], "new": [0.1, 0.5]})
    rounded = LabelNoise(tables=[catalogue]).effects(rows)["effect"]
    exact = LabelNoise(tables=[catalogue]).effects(rows.assign(new=[0.1021234, 0.5]))["effect"]
    assert exact[0].sd == pytest.approx(math.sqrt(2.0) * math.log1p(0.05))
    assert rounded[0].sd == pytest.approx(math.hypot(exact[0].sd, 0.001 / math.sqrt(12.0) * math.hypot(20.0, 10.0)))
    assert rounded[1].sd == pytest.approx(exact[1].sd, rel=0.01)


@pytest.mark.slow
def test_too_little_says_nothing_of_a_label_but_what_the_catalogue_says() -> None:
    few = label_groups(np.random.default_rng(13), 2, 80)
    known = labelled({"l1": 0.1}).labels
    assert (LabelNoise(few).predict(known), LabelNoise().predict(known)) == ({}, {})
    enough = label_groups(np.random.default_rng(13), 4, 80)
    assert [*LabelNoise(enough).predict(known)] == [("api", "l1", "avg")]
    assert LabelNoise(enough).predict(known.assign(group="store")) == {}
    catalogue = read_catalogue("mattermost").label_tables
    assert LabelNoise(few, catalogue).predict(known)["api", "l1", "avg"].noise_source == "catalogue"
    assert LabelNoise(enough, catalogue).predict(known)["api", "l1", "avg"].noise_source == "calibration"
    nothing = known.assign(base=0.0, new=known["value"])
    assert LabelNoise(enough).effects(nothing)["effect"].isna().all()


@pytest.fixture(scope="module")
def ceiling(real: Path) -> list[RepeatedRuns]:
    catalogue = read_catalogue("mattermost")
    table = pd.read_csv(real / "ceiling/runs.csv", dtype={"config": str})
    groups = []
    for (suite, config), rows in table.groupby(["suite", "config"]):
        runs = []
        for row in rows.itertuples():
            try:
                recording = bc.read(real / "ceiling" / str(row.file), catalogue=catalogue, kind="ltctl")
            except bc.InputError:
                assert row.run_id == "v2-4XL552-1"  # an empty file, as published
                continue
            runs.append(run_levels(view_run(recording, row.test_type, catalogue), row.test_type, catalogue))
        if len(runs) > 1 and f"{suite}-{config}" not in SMALL:
            groups.append(RepeatedRuns(f"{suite}-{config}", rows.test_type.iloc[0], runs))
    return groups


def test_real_identical_pairs_are_rarely_called_changed(ceiling: list[RepeatedRuns]) -> None:
    found = sure(self_check(ceiling, read_catalogue("mattermost")))
    metrics, labels = found["metrics"], found["labels"]
    assert (found["groups"], found["pairs"]) == (10, 28)
    assert metrics["called"] / metrics["rows"] <= 0.03
    assert labels["called"] / labels["rows"] <= 0.02
    assert found["pairs_called"] / found["pairs"] <= 0.15  # three families of 5 %
    assert metrics["covering"] / metrics["rows"] >= 0.93
    assert labels["covering"] / labels["rows"] >= 0.93
    assert metrics["found"]["20"] / metrics["rows"] >= 0.75
    assert metrics["found"]["50"] / metrics["rows"] >= 0.95
    assert labels["found"]["100"] / labels["rows"] >= 0.50


def test_labels_are_judged_by_the_catalogue_where_there_is_no_calibration(ceiling: list[RepeatedRuns]) -> None:
    noise = LabelNoise(tables=read_catalogue("mattermost").label_tables)
    marked = tripled = rows = 0
    for group in ceiling:
        for _, pair in label_pairs(group).rename(columns={"first": "base", "second": "new"}).groupby("pair"):
            effects = [each for each in noise.effects(pair)["effect"] if each is not None]
            rows += len(effects)
            marked += sum(each.p_value < LABEL_ALPHA for each in effects)
            three = [replace(each, log_ratio=each.log_ratio + math.log(3.0)) for each in effects]
            tripled += sum(each.p_value < LABEL_ALPHA for each in three)
    assert rows > 12_000
    assert marked / rows <= 0.025
    assert tripled / rows >= 0.65


def test_no_verdict_rests_on_an_average_read_off_a_plot(real: Path, compared: Callable[[str], Results]) -> None:
    for release in sorted(path.name for path in (real / "comparisons").iterdir() if path.is_dir()):
        for test in (each for each in compared(release).tests if each.verdict != "invalid"):
            assert all(row.deciding.status != "regression" for row in test.metrics if row.slug == "avg-api-times")


SD = 0.03
CATALOGUE = bc.Noise(0.05, 8.0, NoiseSource.CATALOGUE, seconds=1800.0)
METRIC = Metric(name="metric", slug="metric", better="lower", run_sd_percent=RunSd(bounded=5.0, unbounded=5.0))


def contrasts(squares: object, df: float = 1.0, misread: bool = False) -> pd.DataFrame:
    frame = pd.DataFrame({"squares": squares, "df": df, "misread": misread})
    return frame.assign(comparison=frame.index)


def drawn(seed: int, count: int, df: int = 1) -> pd.DataFrame:
    return contrasts(SD**2 * np.random.default_rng(seed).chisquare(df, count), df)


def test_contrasts_pool_with_the_catalogue_by_degrees_of_freedom() -> None:
    taught = sure(noises.with_contrasts(CATALOGUE, contrasts([2 * SD**2] * 10, 2.0)))
    assert taught.sd == pytest.approx(math.sqrt((20 * SD**2 + 8 * 0.05**2) / 28))
    assert (taught.df, taught.comparisons, taught.noise_source) == (28.0, 10, NoiseSource.CATALOGUE)
    assert taught.seconds == CATALOGUE.seconds
    repeated = bc.Noise(0.05, 12.0, NoiseSource.CALIBRATION)
    beside = sure(noises.with_contrasts(repeated, contrasts([SD**2] * 12)))
    assert (beside.df, beside.noise_source) == (24.0, NoiseSource.CALIBRATION)
    assert beside.sd == pytest.approx(math.sqrt((SD**2 + 0.05**2) / 2))


@pytest.mark.parametrize("squares", [[0.05**2] * 20, [0.3**2] * 20, []])
def test_a_ledger_never_makes_the_noise_larger(squares: list[float]) -> None:
    assert noises.with_contrasts(CATALOGUE, contrasts(squares)) == noises.with_contrasts(CATALOGUE, None) == CATALOGUE


def test_without_another_source_enough_comparisons_teach_alone() -> None:
    alone = sure(noises.with_contrasts(None, drawn(1, 4000)))
    assert alone.sd == pytest.approx(SD, rel=0.05)
    assert (alone.noise_source, alone.comparisons, alone.df) == (NoiseSource.LEDGER, 4000, 4000.0)
    assert noises.with_contrasts(None, drawn(1, 7)) is None


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 19])
def test_pairs_where_nothing_changed_are_rarely_called(count: int) -> None:
    """At most 5 % of pairs, and not far fewer: 2,000 ledgers, each with one pair."""
    changes = np.random.default_rng(2).normal(0, math.sqrt(2) * SD, 2000)
    wrong = 0
    for seed, change in enumerate(changes):
        taught = sure(noises.with_contrasts(None, drawn(seed, count)))
        wrong += 2 * stats.t.sf(abs(change) / (math.sqrt(2) * taught.sd), taught.df) < 0.05
    assert 0.04 < wrong / 2000 < 0.06


def test_in_unbounded_tests_only_metrics_of_unknown_noise_learn() -> None:
    past = {(kind, "metric"): contrasts([SD**2] * 20) for kind in ("bounded", "unbounded")}
    unknown = METRIC.model_copy(update={"run_sd_percent": RunSd()})
    taught = sure(metric_noise(METRIC, "bounded", (), past))
    assert taught.comparisons == 20
    assert metric_noise(METRIC, "unbounded", (), past) == metric_noise(METRIC, "unbounded")
    alone = sure(metric_noise(unknown, "unbounded", (), past))
    assert alone.noise_source == NoiseSource.LEDGER
    assert metric_noise(unknown, "unbounded") is None


def test_values_read_off_plots_teach_about_such_values() -> None:
    past = {("bounded", "metric"): pd.concat([contrasts([0.04**2] * 20, misread=True), contrasts([0.01**2] * 20)])}
    clean, plotted = (sure(metric_noise(METRIC, "bounded", (), past, misread=percent)) for percent in (0.0, 4.0))
    borrowed = math.log(1.05)
    assert clean.sd == pytest.approx(math.sqrt((20 * 0.01**2 + 8 * borrowed**2) / 28))
    with_error = borrowed**2 + math.log(1.04) ** 2
    assert plotted.sd == pytest.approx(math.sqrt((20 * 0.04**2 + 8 * with_error) / 28))
