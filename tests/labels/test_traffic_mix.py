"""A changed mix of calls is told apart from slower calls; a label that no noise explains stands in the verdict."""

import math
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
from buildcompare import findings
from buildcompare.comparison.analysis import Analysis
from buildcompare.findings.labels import added_share, slower_labels
from buildcompare.findings.verdict import opening
from buildcompare.labels.traffic_mix import explained_by_labels
from buildcompare.report import sections
from buildcompare.results import LabelResult, TestResult, Validity
from buildcompare.results.codes import SIDES, Pair, ValidityStatus
from buildcompare.stats.effects import Effect
from curves import CATALOGUE
from loadsim import Traffic, simulate_run
from quiet import SETTINGS, analysed, compared
from support import sure

Labels = dict[str, tuple[float, float]]
"""Calls and seconds per call."""
BASE: Labels = {"fast": (3000.0, 0.001), "slow": (1000.0, 0.009)}
MIXED: Labels = {"fast": (1500.0, 0.001), "slow": (1000.0, 0.009)}
DROPPED = ("getUser", "getTeam", "getUsersByIds", "getPreferences")
LONG = replace(SETTINGS, duration_s=3600.0, noise=replace(SETTINGS.noise, level_scale=0.15))
"""Chance draws little, so that each of the three answers is certain."""


def split_of(base: Labels, new: Labels, noise: dict[str, bc.Noise] | None = None) -> bc.TrafficMix:
    return sure(maybe_split(base, new, noise))


def maybe_split(base: Labels, new: Labels, noise: dict[str, bc.Noise] | None = None) -> bc.TrafficMix | None:
    frames = [
        pd.DataFrame([(k, *v) for k, v in side.items()], columns=["label", "calls", "seconds"]) for side in (base, new)
    ]
    return bc.traffic_mix(*frames, noise=noise)


def played(traffic: Traffic) -> TestResult:
    base, new = (simulate_run(LONG, seed, traffic=each).recording for seed, each in ((11, Traffic()), (12, traffic)))
    return compared(base, new, "bounded", users=2000)


@pytest.mark.parametrize(
    ("new", "mix", "speed"),
    [
        ({"slow": BASE["slow"]}, 200.0, 0.0),
        ({name: (calls, 1.3 * seconds) for name, (calls, seconds) in BASE.items()}, 0.0, 30.0),
        ({name: (5.0 * calls, seconds) for name, (calls, seconds) in BASE.items()}, 0.0, 0.0),
    ],
)
def test_a_change_is_split_into_mix_and_speed(new: Labels, mix: float, speed: float) -> None:
    split = split_of(BASE, new)
    assert (split.mix_percent, split.speed_percent) == pytest.approx((mix, speed), abs=1e-9)
    assert (split.delta_percent, split.movers["percent"].sum()) == pytest.approx((mix + speed, mix), abs=1e-9)
    assert split.log_mix == pytest.approx(math.log1p(mix / 100.0), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_add_up_and_change_sign_with_the_builds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sides = [{f"l{i}": (a, b) for i, (a, b) in enumerate(np.exp(rng.normal(size=(9, 2))).tolist())} for _ in "bn"]
    there, back = split_of(*sides), split_of(sides[1], sides[0])
    assert there.mix_percent + there.speed_percent == pytest.approx(there.delta_percent)
    assert (there.log_mix, there.log_ratio) == (pytest.approx(-back.log_mix), pytest.approx(-back.log_ratio))


def test_calls_without_a_duration_leave_no_answer() -> None:
    assert maybe_split(BASE, {**BASE, "lost": (100.0, math.nan)}) is None
    assert maybe_split(BASE, {**BASE, "lost": (10.0, math.nan)}) is not None
    assert maybe_split(BASE, {}) is None


def test_frames_are_checked() -> None:
    frame = pd.DataFrame({"label": ["a"], "calls": [1.0], "seconds": [0.1]})
    with pytest.raises(ValueError, match="new: expected the columns label, calls, seconds, found no calls"):
        bc.traffic_mix(frame, frame.drop(columns="calls"))
    with pytest.raises(ValueError, match="base: expected one row per label"):
        bc.traffic_mix(pd.concat([frame, frame]), frame)


@pytest.mark.untraced
@pytest.mark.slow
def test_intervals_hold_what_repeated_draws_show() -> None:
    """Durations are redrawn with the stated noise: the parts of identical speed fall into their intervals."""
    rng, inside = np.random.default_rng(5), [0, 0]
    truth = split_of(BASE, MIXED)
    noise = dict.fromkeys(BASE, bc.Noise(0.05, math.inf, "calibration"))
    for _ in range(600):
        drawn = [
            {name: (calls, seconds * math.exp(0.05 * rng.normal())) for name, (calls, seconds) in side.items()}
            for side in (BASE, MIXED)
        ]
        split = split_of(drawn[0], drawn[1], noise)
        inside[0] += split.mix_ci[0] <= truth.mix_percent <= split.mix_ci[1]
        inside[1] += split.speed_ci[0] <= 0.0 <= split.speed_ci[1]
    # The mix part is stated against the drawn base, whose error is in both of its numbers: its interval is too wide.
    assert 0.92 <= inside[1] / 600 <= 0.98
    assert 0.93 <= inside[0] / 600 <= 0.995


def test_the_four_answers() -> None:
    split, same = split_of(BASE, MIXED), split_of(BASE, BASE)
    effect = Effect(split.log_mix, 0.05, math.inf, 0.035, "catalogue")
    assert split.kind(effect, 10.0) == "mix"
    assert split.kind(replace(effect, log_ratio=effect.log_ratio + 0.3), 10.0) == "both"
    assert same.kind(replace(effect, log_ratio=0.3), 10.0) == "speed"
    assert (same.kind(replace(effect, log_ratio=0.0), 10.0), split.kind(None, 10.0)) == ("neither", "unknown")
    assert split.unmixed(effect).delta_percent == pytest.approx(0.0)


def test_a_mix_that_raises_an_average_does_not_count_against_the_build() -> None:
    result = played(Traffic(calls=tuple((f"api/{name}", 0.0) for name in DROPPED)))
    row = next(row for row in result.metrics if row.slug == "avg-api-times")
    assert (row.status, row.traffic_mix.kind, row.traffic_mix.counts) == ("regression", "mix", True)
    assert row.at_unchanged_mix.status != "regression"
    assert result.verdict == "pass"
    about = [each for each in findings.find([result], ("v1", "v2")) if each.metric == "avg-api-times"]
    assert [(each.kind, each.severity) for each in about] == [("traffic_mix", "info")]
    assert about[0].evidence["mix_percent"] > 0
    assert "getUser" in {mover["label"] for mover in about[0].evidence["movers"]}
    assert about[0].evidence["percentiles"] == ["P99 API times"]


def test_slower_calls_behind_a_faster_mix_count() -> None:
    calls = tuple((f"api/{name}", 0.1) for name in ("searchPostsInTeam", "createChannel", "login", "addChannelMember"))
    result = played(Traffic(calls=(*calls, ("api/getUser", 2.0)), times=(("api/*", 1.67),)))
    row = next(row for row in result.metrics if row.slug == "avg-api-times")
    assert row.traffic_mix.kind == "both"
    assert row.traffic_mix.mix_percent < -10
    assert (row.at_unchanged_mix.status, result.verdict) == ("regression", "regression")
    about = [each for each in findings.find([result], ("v1", "v2")) if each.metric == "avg-api-times"]
    assert {each.kind: each.severity for each in about} == {"metric": "critical", "traffic_mix": "info"}


@pytest.mark.parametrize(
    ("traffic", "verdict", "kind"),
    [
        (Traffic(), "pass", None),
        (Traffic(calls=tuple((f"api/{name}", 0.0) for name in DROPPED)), "pass", "mix"),
        (Traffic(times=(("api/*", 1.5),)), "regression", "speed"),
        (Traffic(times=(("api/getPostsForChannel", 12.0),)), "regression", None),
    ],
)
def test_without_recorded_calls_an_average_that_no_label_explains_is_a_mix(
    traffic: Traffic, verdict: str, kind: str | None
) -> None:
    runs = (simulate_run(LONG, seed, traffic=each).recording for seed, each in ((11, Traffic()), (12, traffic)))
    base, new = (replace(run, series=tuple(each for each in run.series if each.stat != "calls")) for run in runs)
    result = compared(base, new, "bounded", users=2000)
    (mix,) = (row.traffic_mix for row in result.metrics if row.slug == "avg-api-times")
    assert (result.verdict, mix and mix.kind) == (verdict, kind)
    if kind == "mix":
        assert mix is not None
        assert mix.movers == []
        assert mix.at_unchanged_mix_percent == pytest.approx(0.0, abs=3.0)


HANDLER = "getPostsForChannel"
USUAL = replace(SETTINGS, duration_s=3600.0)


def row(label: str = "getPost", **fields: object) -> LabelResult:
    known: dict[str, object] = {
        "group": "api", "label": label, "stat": "avg", "base": 0.01, "new": 0.08, "delta_percent": 700.0,
        "shared_percent": 2.0, "p_value": 0.008, "p_adjusted": 0.4, "calls": Pair(120_000.0, 110_000.0),
        "time_share": Pair(0.03, 0.2), "window": "steady", "status": bc.Status.REGRESSION, "only_in": None,
        "at_least": Pair(False, False), "reason": None,
    }  # fmt: skip
    return LabelResult(**known | fields)


@pytest.mark.parametrize(("new", "p", "speed"), [(1, 0.9, [0]), (1.15, 0.1, [16]), (1.31, 0.1, []), (1, None, [])])
def test_a_percentile_beyond_all_labels_follows_the_mix(new: float, p: float | None, speed: list[float]) -> None:
    rows = [row("a", stat="p99", new=0.01), row("b", stat="p99", new=0.01 * new, p_value=p)]
    p99: Any = SimpleNamespace(slug="p99-api-times", labels={}, base=0.1, new=0.13, margin_percent=10.0)
    effects = [(p99, Effect(math.log(1.3), 0.03, 8.0, 0.03, "catalogue"))]
    known = {"avg-api-times": ("api", split_of(BASE, MIXED))}
    assert p99.slug not in explained_by_labels([row("a", new=0.01)], effects, CATALOGUE, known)  # no tails of labels
    split = explained_by_labels(rows, effects, CATALOGUE, known)
    assert [split[each][1].speed_percent for each in {*split} & {p99.slug}] == pytest.approx(speed, abs=0.1)


def named(**tests: list[LabelResult]) -> list[str]:
    return [row.label for _, row, _ in slower_labels(tests)]


@pytest.mark.parametrize(
    ("fields", "is_named"),
    [
        ({}, True),
        ({"p_value": None, "p_adjusted": None, "status": bc.Status.INCONCLUSIVE}, True),
        ({"p_value": None, "status": bc.Status.INCONCLUSIVE, "calls": Pair(40.0, 3.0)}, False),
        ({"time_share": Pair(0.001, 0.008)}, False),
        ({"status": bc.Status.INCONCLUSIVE}, False),
        ({"shared_percent": 300.0}, False),
        ({"new": 0.02, "delta_percent": 100.0}, False),
        ({"new": 0.001, "delta_percent": -90.0, "status": bc.Status.IMPROVEMENT}, False),
        ({"calls": None, "time_share": None}, False),
        ({"calls": None, "time_share": None, "p_adjusted": 0.01}, True),
    ],
)  # fmt: skip
def test_a_label_counts_by_the_time_that_it_adds(fields: dict[str, object], *, is_named: bool) -> None:
    p99 = row(stat="p99", base=0.5, new=10.0, delta_percent=None, p_value=None, at_least=Pair(False, True))
    assert named(a=[row(**fields), p99]) == (["getPost"] if is_named else [])


def test_the_costliest_label_of_all_tests_stands_first_and_its_percentile_must_follow_without_calls() -> None:
    assert added_share(row(shared_percent=0.0, calls=Pair(1e5, 1e5))) == pytest.approx(7 * 0.03)
    assert named(a=[row()], b=[row("costlier", time_share=Pair(0.2, 0.6))]) == ["costlier", "getPost"]
    unknown = row(calls=None, time_share=None, p_adjusted=0.01)
    assert named(a=[unknown]) == named(a=[unknown, row(stat="p99", new=0.011, delta_percent=10.0)]) == []


def slower(times: float, seed: int = 11) -> Analysis:
    base = simulate_run(USUAL, seed, traffic=Traffic()).recording
    slow = Traffic(times=((f"api/{HANDLER}", times),))
    return analysed(base, simulate_run(USUAL, seed + 1, traffic=slow).recording, "bounded", users=2000)


@pytest.mark.slow
def test_a_handler_eight_times_slower_stands_in_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    analysis = slower(8.0)
    (found,) = [each for each in analysis.results.findings if each.kind == "labels_beyond_noise"]
    (label,) = found.evidence["labels"]
    assert (found.severity, found.text.startswith(f"{HANDLER} avg ")) == ("warning", True)
    assert (label["times"], label["calls"]["new"] > 10_000) == (pytest.approx(8.0, rel=0.3), True)
    how = rf"{HANDLER} avg takes [\d.]+ times as long \([\d,]+ calls, which alone make the time of all api calls [\d.]+"
    assert re.search(how, opening(analysis.results).sentence)
    assert re.search(rf"{HANDLER} avg [\d.]+ .?s → [\d.]+ .?s \(\+\d+ %, p99 .* calls in Load test\)", found.detail)
    rows = re.findall(r'<tr[^>]*><th scope="row">(\w+)</th>', sections.labels(analysis).html)
    assert rows[0] == HANDLER
    monkeypatch.setattr(sections, "MOST_LABELS", 1)  # of a long table what moved is shown
    short = sections.labels(analysis).html
    kept = re.findall(r'<tr[^>]*><th scope="row">(\w+)</th>', short)
    marked = {each.label for each in analysis.results.tests[0].labels if each.status.changed}
    assert kept == [each for each in rows if each in marked or each == HANDLER]
    assert f"{len(rows) - len(kept)} labels that moved less are not shown here" in short
    (moved,) = [each.detail for each in analysis.results.findings if each.kind == "labels"]
    assert re.match(rf"Moved most: {HANDLER} avg \+\d+ % \([\d,]+ calls, \d+ ?% of the time of all calls\)", moved)
    invalid = analysis.results.tests[0].model_copy(update={"validity": Validity(status=ValidityStatus.INVALID)})
    assert "times as long" not in opening(analysis.results.model_copy(update={"tests": [invalid]})).sentence


@pytest.mark.slow
@pytest.mark.untraced
def test_identical_runs_name_no_label() -> None:
    for seed in range(50, 60, 2):
        analysis = slower(1.0, seed)
        kinds = {each.kind for each in analysis.results.findings}
        assert ("labels_beyond_noise" in kinds, "times as long" in opening(analysis.results).sentence) == (False, False)


@pytest.mark.slow
def test_shares_of_time_add_up_and_both_windows_are_measured() -> None:
    rows = [each for each in slower(1.0).results.tests[0].labels if each.stat == "avg" and each.group == "api"]
    for side in SIDES:
        shares = [each.time_share[side] or 0.0 for each in rows if each.time_share]
        assert (len(shares), sum(shares)) == (len(rows), pytest.approx(1.0))
    both = [(each.whole_run_percent, each.delta_percent) for each in rows]
    assert None not in [percent for pair in both for percent in pair]
    assert max(abs((whole or 0.0) - (steady or 0.0)) for whole, steady in both) < 60.0
    assert any(whole != steady for whole, steady in both)
