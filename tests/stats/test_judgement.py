"""When is a change called, and when is nothing said? From an effect to its status; failures by their scatter."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

import buildcompare as bc
from buildcompare.config.catalogue import Metric
from buildcompare.findings.verdict import opening
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.effects import Effect, judge_labels, judge_metrics, judge_users, measure_effect, status_of
from buildcompare.stats.failures import failures_effect
from buildcompare.stats.noise import RunLevel
from buildcompare.text.sentences import say
from support import analysed, small_params, sure, write_csv

LOWER = Metric(name="metric", slug="metric", better="lower", margin_percent=10)


def effect(log_ratio: float, sd: float = 0.02, df: float = math.inf) -> Effect:
    return Effect(log_ratio, sd, df, sd / math.sqrt(2), "calibration")


@pytest.mark.parametrize("df", [3.0, 14.0, math.inf])
def test_intervals_and_p_values_are_those_of_the_t_distribution(df: float) -> None:
    found, law = effect(0.05, 0.02, df), stats.norm if math.isinf(df) else stats.t(df)
    assert found.p_value == pytest.approx(2 * law.sf(2.5))
    assert found.interval() == pytest.approx((*100 * np.expm1(0.05 + np.array([-0.02, 0.02]) * law.ppf(0.975)),))


@pytest.mark.parametrize(
    ("log_ratio", "sd", "better", "status"),
    [
        (0.20, 0.02, "lower", "regression"),
        (-0.20, 0.02, "lower", "improvement"),
        (0.20, 0.02, "higher", "improvement"),
        (-0.20, 0.02, "neutral", "regression"),
        (0.05, 0.005, "lower", "equivalent"),  # surely changed, surely not by the margin
        (0.20, 0.15, "lower", "inconclusive"),
        (0.08, 0.02, "lower", "regression"),  # not beyond the margin, nor surely within it
        (0.06, 0.04, "lower", "not_worse"),  # perhaps unchanged, and not by twice the margin
        (0.08, 0.06, "lower", "inconclusive"),
        (0.08, 0.06, "neutral", "inconclusive"),
        (-0.06, 0.04, "higher", "not_worse"),
        (-0.08, 0.08, "higher", "inconclusive"),
        (-0.08, 0.06, "lower", "not_worse"),
        (0.0, 0.02, "lower", "equivalent"),
        (0.0, 0.2, "lower", "inconclusive"),
    ],
)
def test_the_status_follows_from_the_intervals(log_ratio: float, sd: float, better: Any, status: str) -> None:
    found = effect(log_ratio, sd)
    assert status_of(found, found.p_value, 10.0, better) == status


@pytest.mark.parametrize("sign", [1, -1])
def test_a_gate_is_called_only_where_its_estimate_lies_beyond_its_margin(sign: int) -> None:
    gate = LOWER.model_copy(update={"gate": True})
    within, beyond = (effect(math.log(1 + sign * size), 0.02) for size in (0.09, 0.11))
    for metric, changed in ((gate, [False, True]), (LOWER, [True, True])):
        judged = [judge_metrics([(metric, each)])[0] for each in (within, beyond)]
        assert [each.status.changed for each in judged if each] == changed


@pytest.mark.untraced
@given(st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=30))
def test_adjusted_p_values_are_those_of_holm_and_of_benjamini_and_hochberg(ratios: list[float]) -> None:
    effects = [effect(each) for each in ratios]
    metrics = [*map(sure, judge_metrics([(LOWER, each) for each in effects]))]
    labels = [*map(sure, judge_labels([("table", each) for each in effects]))]
    for judged, method in ((metrics, "holm"), (labels, "fdr_bh")):
        expected = multipletests([each.p_value for each in effects], method=method)[1]
        assert [each.p_adjusted for each in judged] == pytest.approx(expected)
        assert [each.size for each in judged] == pytest.approx([len(effects)] * len(effects))


def test_families_are_judged_apart() -> None:
    gate, time = (LOWER.model_copy(update=each) for each in ({"gate": True}, {"unit": "seconds"}))
    rows = [(gate, effect(0.3)), (LOWER, effect(0.05)), (LOWER, None), (LOWER, effect(0.06)), (time, effect(0.1))]
    judged = judge_metrics(rows)
    assert judged[2] is None
    assert [each.family for each in judged if each] == ["gate", "other", "other", "times"]
    gates, other = sure(judged[0]), sure(judged[1])
    assert gates.p_adjusted == gates.effect.p_value  # alone in its family
    assert other.p_adjusted == pytest.approx(max(other.effect.p_value, 2 * effect(0.06).p_value))


def test_what_would_be_seen_is_seen() -> None:
    noise = bc.Noise(0.03, 14.0, "calibration")
    rng = np.random.default_rng(21)
    family, sd = [LOWER] * 7, 0.03 * math.sqrt(2)
    size = effect(0.0, sd, 14.0).min_detectable_percent(10.0, len(family))
    found = 0
    for _ in range(800):
        known = bc.Noise(noise.sd * math.sqrt(rng.chisquare(14.0) / 14.0), 14.0, "calibration")  # an estimate too
        factors = [1 + size / 100, *[1.0] * (len(family) - 1)]
        pairs = [([RunLevel(1.0)], [RunLevel(factor * math.exp(rng.normal(0, sd)))]) for factor in factors]
        judged = judge_metrics([(LOWER, measure_effect(a, b, known)) for a, b in pairs])
        found += judged[0] is not None and judged[0].status == "regression"
    assert 0.75 <= found / 800 <= 0.87


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [(0.02, 0.02, "pass"), (None, 0.02, "inconclusive"), (0.02, None, "inconclusive"), (0.0, 4.0, "inconclusive")],
)
def test_what_users_feel_is_in_both_builds(tmp_path: Path, base: float | None, new: float | None, verdict: str) -> None:
    params = small_params(tmp_path)
    for side, value in (("base", base), ("new", new)):
        file = Path(params["tests"][0][side]["recording"])
        table = pd.read_csv(file)
        rows = table[table["metric"] == "rps"].assign(metric="p99-api-times", value=value)
        pd.concat([table, rows]).to_csv(file, index=False)
    params["tests"] = params["tests"][:1]
    params["margins"] = {"avg-api-times": 20.0}
    results = analysed(params).results
    assert results.verdict == verdict
    assert any(each.kind == "unjudgeable" for each in results.findings) is (verdict != "pass")


@pytest.mark.slow
@settings(max_examples=15)
@given(
    ratio=st.floats(0.01, 100.0),
    noise=st.floats(0.0, 0.5),
    name=st.sampled_from(["avg-api-times", "rps", "own-metric", "Anything else"]),
)
def test_without_calibration_and_prior_no_change_is_claimed(
    ratio: float, noise: float, name: str, tmp_path_factory: pytest.TempPathFactory
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
            drawn = rng.normal(size=600)  # not all zero: no two runs are one recording
            users = 100 if kind == "bounded" else max(int(100 * level), 1)
            curves = {name: level * np.exp((noise + 1e-9) * drawn), "users": np.full(600, float(users))}
            file = write_csv(folder / f"{kind}-{side}.csv", curves)
            sides[side] = {"recording": str(file), "supported_users": users}
        tests.append({"name": kind, "type": kind, **sides})
    results = analysed({
        "name": "unknown", "base": {"label": "a"}, "new": {"label": "b"}, "metrics": str(catalogue),
        "source": {"kind": "recorded"}, "tests": tests,
    }).results  # fmt: skip
    statuses = {row.status for test in results.tests for row in (*test.metrics, *test.labels)}
    statuses |= {test.supported_users.status for test in results.tests if test.supported_users}
    assert statuses <= {"inconclusive", "not_comparable"}
    assert results.verdict == "inconclusive"


def test_levels_of_runs_are_judged_by_themselves_as_in_a_comparison() -> None:
    noise = bc.Noise(0.03, 12.0, "calibration")
    own = bc.judge_levels([100.0, 104.0], [120.0], noise, margin_percent=10.0)
    levels = [RunLevel(100.0), RunLevel(104.0)], [RunLevel(120.0)]
    whole = sure(judge_metrics([(LOWER, measure_effect(*levels, noise))])[0])
    assert (own.effect, own.status) == (whole.effect, whole.status)
    assert bc.judge_levels([100.0], [120.0], 0.03).effect.sd == pytest.approx(0.03 * math.sqrt(2))
    with pytest.raises(ValueError, match="all above zero"):
        bc.judge_levels([0.0], [1.0], 0.03)


@pytest.mark.parametrize(("at", "rise", "gate"), [(0, 1.1, False), (1, 1.6, True)])
def test_a_family_of_unequal_metrics_is_rarely_wrong_and_finds_what_it_can(at: int, rise: float, gate: bool) -> None:
    """Half of the error is too much for the noisy metric, and for a quiet gate: 5 % together, 4,000 families each."""
    rng, sds = np.random.default_rng(8), (0.035, 0.2)
    metrics = [Metric(name="m", slug="m", better="lower", gate=gate, margin_percent=10) for _ in sds]
    called = {}
    for change in (0.0, math.log(rise)):
        found = []
        for _ in range(4000):
            drawn = [Effect(rng.normal(0, sd), sd, math.inf, sd, NoiseSource.CATALOGUE) for sd in sds]
            drawn[at] = replace(drawn[at], log_ratio=drawn[at].log_ratio + change)
            found.append([row.status.changed for row in judge_metrics([*zip(metrics, drawn, strict=True)]) if row])
        called[change > 0] = np.array(found)
    assert 0.03 < called[False].any(axis=1).mean() < 0.06
    even = stats.norm.sf(stats.norm.ppf(1 - 0.0125) - math.log(rise) / sds[at])
    assert called[True][:, at].mean() > even + 0.03


def test_a_loss_of_supported_users_needs_a_smaller_p_value_than_a_gain() -> None:
    for log_ratio, status in ((-0.075, "inconclusive"), (-0.11, "regression"), (0.075, "improvement")):
        found = Effect(log_ratio, 0.033, 11.0, 0.023, NoiseSource.CATALOGUE)
        assert found.p_value < 0.05
        assert judge_users(found, 5.0).status == status


ATTEMPTS = 10_000


def runs(*failed: float) -> list[tuple[float, float]]:
    return [(each, ATTEMPTS) for each in failed]


def test_few_failures_are_judged_by_the_exact_test() -> None:
    """Runs that agree by chance (none in the base) would be certain by their scatter alone."""
    for base, new, test in ((0, 1, stats.binomtest(3, 3)), (2, 7, stats.binomtest(21, 27))):
        effect = sure(failures_effect(runs(base, base, base), runs(new, new, new)))
        assert effect.p_value == pytest.approx(test.pvalue)


def test_runs_that_differ_are_judged_by_their_scatter() -> None:
    base, new = (20, 90, 240), (60, 300, 150)
    effect = sure(failures_effect(runs(*base), runs(*new)))
    odds = [np.log((np.array(side) + 1 / 3) / (ATTEMPTS - np.array(side) + 1 / 3)) for side in (base, new)]
    assert effect.p_value == pytest.approx(stats.ttest_ind(*odds).pvalue)
    swapped = sure(failures_effect(runs(*base), runs(*new), succeeded=True))
    assert effect.log_ratio > 0 > swapped.log_ratio == pytest.approx(math.log((ATTEMPTS - 170) / (ATTEMPTS - 350 / 3)))
    assert min(swapped.p_value, effect.p_value) > 0.05
    surely = [sure(failures_effect(runs(20, 22, 18), runs(40, 44, 42), succeeded=is_kept)) for is_kept in (False, True)]
    assert (surely[0].p_value < 0.001, surely[1].p_value) == (True, pytest.approx(surely[0].p_value))


def frame(share: float, columns: tuple[str, ...], seed: int) -> pd.DataFrame:
    rng, elapsed = np.random.default_rng(seed), np.arange(0.0, 3000.0, 10.0)
    requests = rng.poisson(100, elapsed.size)
    failed = rng.binomial(requests, share)
    every = {
        "Users": np.minimum(elapsed * 2, 500), "requests": requests, "requests_per_second": requests / 10,
        "errors": failed, "errors_per_second": failed / 10, "error_rate": failed / requests,
        "errors_percent": 100 * failed / requests, "success_rate": 1 - failed / requests,
    }  # fmt: skip
    every["latency_ms"] = rng.lognormal(2, 0.05, elapsed.size)
    return pd.DataFrame({name: every[name] for name in ("Users", "latency_ms", *columns)}, index=elapsed)


@pytest.mark.parametrize(
    "names",
    ["errors", "errors requests", "errors_per_second requests_per_second", "error_rate", "success_rate",
     "errors_percent requests_per_second", "requests_total by code"],
)  # fmt: skip
def test_frames_in_which_one_in_a_hundred_fails_are_a_regression(names: str) -> None:
    def run(share: float, seed: int) -> pd.DataFrame:
        if not names.endswith("code"):
            return frame(share, tuple(names.split()), seed)
        counts = frame(share, ("errors", "requests"), seed).rename_axis("timestamp").rename(columns={"errors": "503"})
        counts["200"] = counts.pop("requests") - counts["503"]
        counts = counts if share else counts.drop(columns="503")  # nothing failed: no series counts it
        counts[counts.columns[2:]] = counts[counts.columns[2:]].cumsum()
        tidy = counts.reset_index().melt("timestamp", var_name="metric")
        code = tidy["metric"].where(tidy["metric"].isin(["200", "503"]), "")
        return tidy.assign(metric=tidy["metric"].mask(code != "", "requests_total"), code=code, pod=str(seed))

    def verdict(base: float, new: float, count: int = 3) -> bc.Verdict:
        sides = [[run(share, 10 * side + i) for i in range(count)] for side, share in enumerate((base, new))]
        return bc.compare(*sides, type="bounded", users=500).verdict

    assert verdict(0.0, 0.0123) == "regression"
    assert verdict(0.01, 0.01) != "regression"
    assert verdict(0.0, 0.0123, count=1) != "regression", "one run says nothing of the next"


def test_numbers_of_failures_are_judged_beside_the_requests() -> None:
    def build(*failed: int) -> list[dict[str, float]]:
        return [{"errors": each, "requests": ATTEMPTS} for each in failed]

    result = bc.compare(build(0, 0, 0), build(110, 140, 120))
    assert result.verdict == "regression"
    (found,) = (each for each in result.results.findings if each.kind == "error_rate")
    assert (found.severity, found.metric) == ("critical", "errors")
    assert bc.compare(build(0), build(370)).verdict == "inconclusive"
    assert bc.compare(build(0, 0, 0), build(0, 0, 0)).metrics.loc[0, "reason"] == "none_failed"
    assert bc.compare(build(1, 0, 2), build(3, 0, 1)).metrics.loc[0, "reason"] == "few_failed"
    assert bc.compare(build(100, 90, 115), build(110, 95, 104)).verdict != "regression"
    kept = ([{"success_rate": 1.0 - n / ATTEMPTS} for n in each] for each in ((0, 0, 0), (0, 0, 250)))
    one_fails = bc.compare(*kept)
    assert (one_fails.verdict, one_fails.metrics.loc[0, "status"]) == ("inconclusive", "inconclusive")


@pytest.mark.parametrize(
    ("base", "new", "count", "verdict"),
    [
        ({"errors_percent": 0.0}, {"errors_percent": 3.0}, 3, "regression"),  # a rounded share does not scatter
        ({"errors_percent": 0.1}, {"errors_percent": 5.2}, 1, "inconclusive"),  # too many fail to pass
        ({"errors_per_second": 0.01}, {"errors_per_second": 5.0}, 3, "regression"),  # 500 times is no other unit
        ({"success_rate": 0.999}, {"success_rate": 97.0}, 3, "invalid"),  # a share beside percentages
        ({"success_rate": 0.999}, {"success_rate": 0.012}, 3, "regression"),  # an outage
        ({"errors_percent": 0.125}, {"errors_percent": 0.18}, 3, "inconclusive"),  # whichever of them rounds to zero
        ({"errors_per_second": 0.5, "slow_calls": 2.0}, {"errors_per_second": 1.0, "slow_calls": 4.0}, 3, "regression"),
    ],
)
def test_failures_of_other_kinds(base: dict[str, float], new: dict[str, float], count: int, verdict: str) -> None:
    def build(more: dict[str, float], seed: int) -> list[pd.DataFrame]:
        whole = [frame(0.0, (), seed + i) for i in range(count)]
        noise = [1.0 if "errors_percent" in more else each["latency_ms"] / each["latency_ms"].mean() for each in whole]
        return [each.assign(**{k: v * n for k, v in more.items()}) for each, n in zip(whole, noise, strict=True)]

    assert bc.compare(build(base, 0), build(new, 9), type="bounded", users=500).verdict == verdict


REQUESTS = {"queries": 200_000, "requests": 100_000, "cached_requests": 50_000, "errors": 10_000}


@pytest.mark.parametrize(
    ("new", "status"),
    [
        ({"queries": 100_000}, "equivalent"), ({"cached_requests": 25_000}, "equivalent"),
        ({"queries": 400_000, "errors": 20_000}, "regression"),
        ({"requests": 50_000}, "regression"), ({"requests": 200_000, "errors": 20_000}, "equivalent"),
        ({"errors": 0}, "improvement"), ({"requests": 2000, "errors": 30_000}, "regression"),
    ],
    ids=["other queries", "fewer cached", "more of both", "fewer requests",
         "more requests", "none fails", "more errors than requests"],
)  # fmt: skip
def test_failures_are_judged_per_request_and_the_change_is_the_judged_one(new: dict[str, int], status: str) -> None:
    def build(values: dict[str, int]) -> list[dict[str, float]]:
        return [{name: value + (value and i) for name, value in values.items()} for i in range(3)]

    result = bc.compare(build(REQUESTS), build(REQUESTS | new))
    row = next(each for each in result.results.tests[0].metrics if each.slug == "errors")
    assert row.status == status
    assert sure(row.ci_low) <= sure(row.delta_percent) <= sure(row.ci_high)
    explained = say("reasons", "explain", row)
    assert ["per attempt" in explained, "Not judged" in explained] == [new.get("requests", 0) >= 50_000, False]


def second_by_second(rate: Sequence[float], seed: int, **more: object) -> pd.DataFrame:
    rng, usual = np.random.default_rng(seed), np.interp(np.arange(90.0), [0, 10, 60, 61, 89], [0, 1, 1, *rate])
    columns = {"requests_per_second": rng.poisson(200 * usual), "latency_seconds": rng.lognormal(-3, 0.1, 90)}
    return pd.DataFrame({**more, **columns}, index=np.arange(90.0))


@pytest.mark.parametrize(
    ("end", "verdict"),
    [((0.3, 0.3), "regression"), ((0.12, 0.12), "regression"), ((1, 1), "pass"), ((0, 0), "pass"), ((1, 0), "pass")],
)
def test_a_server_that_answers_fewer_requests_is_still_under_load(end: tuple[float, float], verdict: str) -> None:
    base, new = ([second_by_second(rate, 9 * side + i) for i in range(3)] for side, rate in enumerate(((1, 1), end)))
    assert bc.compare(base, new, metrics={"requests_per_second": {"gate": True}}).verdict == verdict


def test_a_collapse_before_an_idle_end_and_a_short_outage_are_seen() -> None:
    times, rng = np.arange(0.0, 2400.0, 10.0), np.random.default_rng(1)
    whole = np.interp(times, [0, 60, 1190, 1200, 2400], [0, 1, 1, 0, 0])
    collapsed, down = np.where((times > 700) & (times < 1200), 0.15, 1.0), (times < 600) | (times > 620)
    for change, rate, more, verdict, restarted in (
        (collapsed, 5000, {}, "regression", False),
        (down, 5000, {}, "inconclusive", True),
        (down, 5000, {"users": whole}, "inconclusive", True),
        (down, 2, {"users": whole}, "inconclusive", False),  # so rare that no requests for 30 s are chance
    ):
        base, new = ([pd.DataFrame({"requests_per_second": rng.poisson(rate * each) / 10, **more,
                                    "latency_seconds": rng.lognormal(-3, 0.1, 240)}, times) for _ in range(3)]
                     for each in (whole, whole * change))  # fmt: skip
        result = bc.compare(base, new)
        assert (result.verdict, "restarted" in result.results.tests[0].validity.codes) == (verdict, restarted)


def test_a_metric_that_worsens_throughout_each_new_run_is_a_warning() -> None:
    sides = [[frame(0.0, (), seed + i) for i in range(3)] for seed in (1, 9)]
    for factors, told in (([1.0, 1.0], []), ([0.5, 1.5], ["latency_ms"])):  # the mean is the same
        new = [each.assign(latency_ms=each["latency_ms"] * np.linspace(*factors, 300)) for each in sides[1]]
        found = [*bc.compare(sides[0], new, type="bounded", users=500).results.findings]
        assert [each.evidence["name"] for each in found if each.kind == "drift_in_run"] == told


def test_a_load_that_ends_early_while_it_is_recorded_on_is_no_test() -> None:
    base, new = ([frame(0.0, (), seed + i) for i in range(2)] for seed in (1, 9))
    found = bc.compare(base, [each.mul(each.index < 1000.0, axis=0) for each in new], type="bounded", users=500)
    assert (found.verdict, {*found.results.tests[0].validity.codes}) == ("invalid", {"load_ended"})


def test_a_column_that_one_build_lacks_decides_nothing() -> None:
    base = [second_by_second((1, 1), i, audit_queries_per_second=3.0) for i in range(3)]
    new = [second_by_second((1, 1), 9 + i) for i in range(3)]
    windows = {run.window for of in bc.compare(base, new).results.tests[0].runs for run in of}
    assert {each and each[0] > 5.0 for each in windows} == {True}


def test_a_share_counts_each_sample_by_its_requests() -> None:
    """A tenth of the time has ten times the requests, all of which fail: half of the requests, not a tenth."""
    busy = np.arange(600) % 10 == 9
    build = [pd.DataFrame({"requests_per_second": np.where(busy, 900.0, 100.0) + i, "success_percent": 100.0 * ~busy})
             for i in range(3)]  # fmt: skip
    new = [each.set_axis(np.arange(600.0)) for each in build]
    base = [each.assign(success_percent=100.0) for each in new]
    row = bc.compare(base, new).metrics.set_index("name").loc["success_percent"]
    assert (row["status"], row["new"]) == ("regression", pytest.approx(50.0, abs=1.0))


@pytest.mark.parametrize("name", ["success_rate", "availability"])
def test_a_share_is_counted_where_requests_are_sampled_more_rarely(name: str) -> None:
    busy = np.arange(600) % 3 == 0
    rows = [
        ("requests_per_second", np.arange(0.0, 600, 30), np.full(20, 100.0)),
        (name, np.arange(600.0), 0.5 + busy / 2),
    ]
    build = [pd.concat(pd.DataFrame({"timestamp": at, "metric": each, "value": values + i / 999 * (each != name)})
             for each, at, values in rows) for i in range(3)]  # fmt: skip
    base = [each.assign(value=each["value"].where(each["metric"] != name, 1.0)) for each in build]
    row = bc.compare(base, build).metrics.set_index("name").loc[name]
    assert (row["status"], row["new"]) == ("regression", pytest.approx(2 / 3, abs=0.01))


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [(9.4, 10.5, "inconclusive"), (10.5, 10.5, "inconclusive"), (5.0, 10.5, "regression"), (5.0, 5.0, "pass")],
)
def test_a_percentile_at_the_end_of_its_histogram_is_not_called_unchanged(
    base: float, new: float, verdict: str
) -> None:
    rng, at = np.random.default_rng(1), np.arange(0.0, 3600.0, 10.0)
    sides = [[np.minimum(rng.lognormal(np.log(p99), 0.05, 360), 10.0) for _ in range(3)] for p99 in (base, new)]
    frames = ([pd.DataFrame({"P99 API times": run, "Users": at / 9}, at) for run in side] for side in sides)
    assert bc.compare(*frames, catalogue="mattermost").verdict == verdict


@pytest.mark.parametrize(("base", "new", "verdict"), [(60, 3_000, "inconclusive"), (3_000, 3_600, "pass")])
def test_counted_failures_bar_a_pass_from_one_percent_of_the_attempts(base: int, new: int, verdict: str) -> None:
    sides = [
        [{"transactions": 60_000 + i, "failed_transactions": n * (1 + i), "latency_ms": 8 + i / 99} for i in range(2)]
        for n in (base, new)
    ]
    assert bc.compare(*sides, metrics={"failed_transactions": {"gate": False}}).verdict == verdict


def test_times_of_zero_count() -> None:
    def waits(share: float) -> list[dict[str, list[float]]]:
        slow = np.arange(100) % 10 < 10 * share
        return [{"wait_ms": np.where(slow, 0.1 + i / 999, 0.0).tolist()} for i in range(3)]

    row = bc.compare(waits(0.1), waits(0.5)).metrics.loc[0]
    assert (row["status"], row["new"] / row["base"]) == ("regression", pytest.approx(5.0))
    assert bc.compare(waits(0.0), waits(0.5)).metrics.loc[0, "reason"] == "zero_base"
    timed = [[pd.DataFrame(each, index=np.arange(0.0, 1000, 10)) for each in waits(share)] for share in (0.1, 0.5)]
    levels = bc.investigate(bc.compare(*timed)).levels["level"]
    assert levels.max() == pytest.approx(0.05, rel=0.2)


def test_a_few_very_long_times_are_no_pass() -> None:
    rng, times = np.random.default_rng(1), np.arange(0.0, 1000, 5)
    base, new = ([rng.lognormal(-3, 0.05, 200) for _ in range(3)] for _ in "bn")
    new = [np.where((times > 500) & (times < 520), 8.0, each) for each in new]
    result = bc.compare(*([pd.DataFrame({"latency_seconds": run}, times) for run in side] for side in (base, new)))
    assert (result.verdict, "arithmetic mean" in str(opening(result.results))) == ("inconclusive", True)


def test_errors_that_scatter_are_no_change_of_attempts() -> None:
    build = [[{"errors": float(each), "requests": 100_000.0} for each in side] for side in ((0, 0, 90), (30, 30, 30))]
    row = next(each for each in bc.compare(*build).results.tests[0].metrics if each.slug == "errors")
    assert (row.base, row.new, row.delta_percent, row.per_attempt) == (30, 30, 0, False)


def test_milliseconds_and_seconds_get_one_status() -> None:
    calm, peaks = [[1.0, 1.0, 1.0 + i / 99] for i in range(3)], [[0.9, 0.9, 2.0 + i / 99] for i in range(3)]
    seconds, milli = (
        bc.compare(*([{f"import_{unit}": [scale * each for each in run]} for run in side] for side in (calm, peaks)))
        for unit, scale in (("seconds", 1.0), ("ms", 1e3))
    )
    assert seconds.metrics.loc[0, "status"] == milli.metrics.loc[0, "status"]
    assert milli.metrics.loc[0, "delta_percent"] == pytest.approx(seconds.metrics.loc[0, "delta_percent"])


def test_a_negative_level_has_no_percentage() -> None:
    base, new = ([second_by_second((1, 1), 9 * i - int(at), balance=at) for i in range(3)] for at in (-5.0, -8.0))
    row = bc.compare(base, new).metrics.set_index("name").loc["balance"]
    assert (row["status"], row["reason"], math.isnan(row["delta_percent"])) == ("not_comparable", "not_positive", True)
