"""The simulator keeps the coordinator's rule, the shapes of real curves emerge from it, and its truth is true."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import pytest

from buildcompare.analysis.stop import FindStop
from buildcompare.analysis.supported_users import EstimateSupportedUsers
from buildcompare.params import read_params
from buildcompare.recording import Recording
from buildcompare.recording_parquet import read_recording
from buildcompare.simulate import (
    Coordinator,
    Gap,
    LabelEffect,
    LabelSet,
    LostAgent,
    MetricEffect,
    NanStretch,
    NoiseModel,
    Restart,
    RunSettings,
    ServerModel,
    SimulatedRun,
    Thresholds,
    Truncation,
    simulate_run,
)
from buildcompare.simulate.bundled import BundledRun, bundled_runs, write_bundled
from buildcompare.simulate.coordinator import FeedbackLoop, Trend
from buildcompare.simulate.labels import histogram_p99
from buildcompare.simulate.noise import ar1

USERS = "number-of-connected-devices"
UNBOUNDED = RunSettings()
BOUNDED = RunSettings(type="bounded", coordinator=Coordinator(max_users=5000))
STEPS_OF_A_FALL = 5  # DESIGN: a wave falls by five coordinator steps or more


@cache
def run(settings: RunSettings = UNBOUNDED, seed: int = 1) -> SimulatedRun:
    return simulate_run(settings, seed)


@cache
def bundled(file: str) -> tuple[BundledRun, SimulatedRun]:
    found = next(each for each in bundled_runs() if each.file.as_posix() == f"{file}.parquet")
    return found, found.simulate()


def values(recording: Recording, slug: str = USERS) -> npt.NDArray[np.float64]:
    series = recording.find(slug)
    assert series is not None
    return series.values


def peaks(users: npt.NDArray[np.float64], fall: float = 40.0) -> list[float]:
    """Maxima from which users fall by `fall` or more before they rise by as much again."""
    found, high, low, rising = [], users[0], users[0], True
    for value in users:
        if rising:
            high = max(high, value)
            if high - value >= fall:
                found.append(float(high))
                low, rising = value, False
        else:
            low = min(low, value)
            if value - low >= fall:
                high, rising = value, True
    return found


def early(users: npt.NDArray[np.float64], until: float = 600.0) -> npt.NDArray[np.float64]:
    """The curve before it first reaches `until` users."""
    return users[: int(np.flatnonzero(users >= until)[0])]


# ---- The rule -------------------------------------------------------------------------------------------------------


def test_users_change_no_faster_than_the_rule_allows() -> None:
    truth = run().truth
    rule = UNBOUNDED.coordinator
    times, changes = (np.array(column) for column in zip(*truth.actions, strict=True))
    assert set(changes) == {rule.users_inc, -rule.users_dec}
    assert truth.first_alert_s is not None
    after = times[times >= truth.first_alert_s]
    assert np.diff(after).min() > rule.rest_s
    assert np.diff(times).min() == pytest.approx(rule.evaluate_every_s)  # before the first alert there is no rest


def test_without_alerts_the_ramp_is_straight_to_the_target() -> None:
    """8 users every 2 s: 4 users per second."""
    found = run(BOUNDED)
    assert found.truth.first_alert_s is None
    assert found.truth.supported_users is None
    assert [change for _, change in found.truth.actions] == [8] * 625
    assert found.truth.actions[-1][0] == 624 * 2.0
    users = values(found.recording)
    assert np.polyfit(np.arange(20, 240) * 5, users[20:240], 1)[0] == pytest.approx(4.0, abs=0.01)
    assert set(users[280:1080]) == {5000.0}


@pytest.mark.parametrize(("every_s", "slope"), [(2.0, 2.0), (1.9, 8 / 3.8), (1.0, 8 / 3), (2.15, 8 / 2.15)])
def test_after_the_first_alert_the_coordinator_rests(every_s: float, slope: float) -> None:
    """The published ramps: 2.1 users/s in v10.4, 2.7 in v11.1, 3.7 in v10.1."""
    loop = FeedbackLoop(Coordinator(evaluate_every_s=every_s))
    loop.evaluate(0.0, True)
    seen = [(i * every_s, loop.active) for i in range(1, 1000) if not loop.evaluate(i * every_s, False)]
    assert np.polyfit(*zip(*seen, strict=True), 1)[0] == pytest.approx(slope, rel=0.01)


def test_an_alert_takes_users_away_and_defers_the_next_increment() -> None:
    loop = FeedbackLoop(Coordinator(evaluate_every_s=1.0))
    for second in range(5):
        loop.evaluate(float(second), False)
    assert loop.active == 40
    loop.evaluate(5.0, True)  # 1 s after an action: still resting
    assert loop.active == 40
    loop.evaluate(7.0, True)
    assert loop.active == 32
    for second in (8, 9):
        loop.evaluate(float(second), False)
    assert loop.active == 32
    loop.evaluate(10.0, False)
    assert loop.active == 40


def test_users_stay_between_zero_and_the_ceiling() -> None:
    loop = FeedbackLoop(Coordinator(max_users=20))
    for i in range(10):
        loop.evaluate(i * 2.0, False)
    assert loop.active == 20
    for i in range(10, 40):
        loop.evaluate(i * 2.0, True)
    assert loop.active == 0


def test_a_ceiling_below_the_capacity_is_the_answer() -> None:
    """A cold start alerts, then nothing does; the last of the ramp is still in the window when its slope is small."""
    truth = run(replace(UNBOUNDED, coordinator=Coordinator(max_users=3000))).truth
    assert truth.supported_users == pytest.approx(3000, rel=0.03)
    assert truth.limited_by is None


def test_the_stop_rule_holds_at_the_stop_and_not_before() -> None:
    truth = run().truth
    rule = UNBOUNDED.coordinator
    at = np.arange(0, truth.decided_s + 1e-9, rule.evaluate_every_s)
    times, changes = (np.array(column) for column in zip(*truth.actions, strict=True))
    active = np.concatenate(([0.0], np.cumsum(changes)))[np.searchsorted(times, at, side="left")]
    assert truth.first_alert_s is not None

    def slope(i: int) -> float:
        window = (at >= at[i] - rule.window_s) & (at <= at[i]) & (at >= truth.first_alert_s)
        return float(np.polyfit(at[window] - at[i], active[window], 1)[0])

    assert truth.decided_s >= truth.first_alert_s + rule.window_s
    assert abs(slope(-1)) < rule.slope_limit
    earliest = int(np.flatnonzero(at > truth.first_alert_s + rule.window_s)[0])
    assert all(abs(slope(i)) >= rule.slope_limit for i in range(earliest, at.size - 1, 20))
    last = (at >= at[-1] - rule.window_s) & (at >= truth.first_alert_s)
    assert truth.supported_users == pytest.approx(active[last].mean(), rel=1e-12)


def test_the_trend_is_least_squares() -> None:
    rng = np.random.default_rng(4)
    trend, x, y = Trend(50.0), np.cumsum(rng.uniform(0.5, 3.0, 200)), rng.normal(1000.0, 30.0, 200)
    for i in range(200):
        trend.add(x[i], y[i])
        seen = (x[: i + 1] >= x[i] - 50.0).nonzero()[0]
        assert trend.whole == (seen[0] > 0)
        if i > 5:
            assert trend.slope == pytest.approx(np.polyfit(x[seen], y[seen], 1)[0], rel=1e-6, abs=1e-9)
            assert trend.mean == pytest.approx(y[seen].mean())


def test_a_time_limit_ends_a_run_without_an_answer() -> None:
    truth = run(replace(UNBOUNDED, time_limit_s=2400.0)).truth
    assert (truth.decided_s, truth.supported_users) == (2400.0, None)


# ---- What emerges ---------------------------------------------------------------------------------------------------


def test_a_cold_start_makes_an_early_bump() -> None:
    """As published for v9.2 to v10.4: up to about 200 users at 75 s, back, and a ramp from about 200 s on."""
    users = values(run().recording)
    assert len(peaks(early(users))) == 1
    assert 150 <= users[:30].max() <= 260
    assert 60 <= 5 * int(users[:30].argmax()) <= 100
    assert users[30:60].min() < 0.6 * users[:30].max()
    assert run().truth.first_alert_s == pytest.approx(UNBOUNDED.coordinator.quiet_s, abs=15)
    assert run().truth.cold_start_s > 60


def test_warm_caches_make_none() -> None:
    warm = run(replace(UNBOUNDED, server=ServerModel(cold_gain=0.0)))
    assert peaks(early(values(warm.recording))) == []
    assert warm.truth.cold_start_s == 0
    assert warm.truth.first_alert_s is not None
    assert warm.truth.first_alert_s > 2 * run().truth.first_alert_s  # type: ignore[operator]  # it has one


def test_slower_warming_makes_more_bumps_and_a_later_ramp() -> None:
    slow = run(replace(UNBOUNDED, server=ServerModel(cold_gain=1.8, cold_requests=120_000.0)))
    users, usual = values(slow.recording), values(run().recording)
    assert len(peaks(early(users))) >= 2
    assert early(users).size > early(usual).size + 40
    assert usual[400] - users[400] > 500
    assert slow.truth.cold_start_s > run().truth.cold_start_s


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_waves_emerge_after_the_ramp(seed: int) -> None:
    """Published: falls of 40 to 120 users, a period of 145 to 250 s."""
    found = run(UNBOUNDED, seed)
    users = values(found.recording)[: int(found.truth.decided_s / 5)]
    late = users[-480:]
    tops = peaks(late)
    assert len(tops) >= 5
    assert 110 <= 2400 / len(tops) <= 260
    deepest = np.max(np.maximum.accumulate(late) - late)
    assert STEPS_OF_A_FALL * 8 <= deepest <= 250


def test_the_ramp_bends_to_a_plateau() -> None:
    found = run()
    users = values(found.recording)[: int(found.truth.decided_s / 5)]
    slopes = [np.polyfit(np.arange(200) * 5, users[i : i + 200], 1)[0] for i in (100, users.size - 200)]
    assert slopes[0] == pytest.approx(2.0, abs=0.1)
    assert abs(slopes[1]) < 0.2


def test_more_capacity_supports_more_users_in_proportion() -> None:
    quiet = replace(UNBOUNDED, noise=NoiseModel(capacity_sd=0.0))
    found = [
        run(replace(quiet, server=ServerModel(capacity_users=c))).truth.supported_users for c in (7000, 8500, 10_500)
    ]
    assert all(each is not None for each in found)
    assert found[0] < found[1] < found[2]  # type: ignore[operator]  # checked above
    for users, capacity in zip(found, (7000, 8500, 10_500), strict=True):
        assert 0.7 < users / capacity < 0.95  # type: ignore[operator]


def test_a_run_that_carries_fewer_users_takes_no_more_cpu_for_each() -> None:
    """In Mattermost's ceiling tests, users vary by 1.9 % and CPU at equal users by 0.9 %."""
    unlike = replace(BOUNDED, noise=NoiseModel(capacity_sd=0.05, level_scale=0.0, sample_scale=0.0))
    runs = [run(unlike, seed) for seed in (1, 2, 3)]
    assert np.ptp([each.truth.capacity_users for each in runs]) > 0.03 * runs[0].truth.capacity_users
    cpu = [values(each.recording, "cpu-utilization")[600:].mean() for each in runs]
    np.testing.assert_allclose(cpu, cpu[0], rtol=1e-3)


@pytest.mark.parametrize(
    ("server", "limit"),
    [
        (ServerModel(), "client_avg"),
        (
            ServerModel(cpu_at_capacity_percent=90.0, client_avg_at_capacity_s=0.05, error_percent_at_capacity=0.001),
            "app_cpu",
        ),
        (ServerModel(client_p99_ratio=40.0), "client_p99"),
        (ServerModel(error_percent_at_capacity=0.1), "client_errors"),
    ],
)
def test_the_truth_names_what_limited_the_run(server: ServerModel, limit: str) -> None:
    truth = run(replace(UNBOUNDED, server=server)).truth
    assert truth.limited_by == limit
    assert truth.alerts[limit] == max(truth.alerts.values())


def test_an_alert_that_is_off_never_fires() -> None:
    off = Thresholds(client_avg_s=None)
    truth = run(replace(UNBOUNDED, coordinator=Coordinator(thresholds=off))).truth
    assert "client_avg" not in truth.alerts


# ---- What is recorded -----------------------------------------------------------------------------------------------


def test_a_recording_has_the_graphs_of_the_catalogue_and_says_that_it_is_simulated() -> None:
    recording = run().recording
    assert len(recording.graphs()) == 10
    assert recording.simulated
    assert recording.stop_known
    assert recording.provenance["seed"] == 1
    assert {series.step_s for series in recording.series} == {5.0}
    assert all(recording.coverage(series).fraction > 0.99 for series in recording.series)
    assert recording.duration_s == run().truth.stop_s


def test_rates_are_averages_over_a_minute() -> None:
    """Requests end at once when the server goes down; their graph falls in a straight line over 12 samples."""
    still = replace(BOUNDED, noise=NoiseModel(sample_scale=0.0, level_scale=0.0, capacity_sd=0.0))
    rps = values(run(replace(still, injections=(Restart(3000.0, down_s=300.0),))).recording, "rps")
    assert rps[600] == pytest.approx(0.116 * 5000, rel=1e-3)
    np.testing.assert_allclose(rps[600:613], rps[600] * (1 - np.arange(13) / 12), atol=0.02 * rps[600])


def test_the_plateau_of_a_bounded_test_looks_like_the_published_one() -> None:
    """Means of v10.4's Postgres test at 7500 users, digitised."""
    _, found = bundled("v10.4.0-rc1/postgresql_bounded/base")
    published = {
        "cpu-utilization": 140.5,
        "goroutines-in-use": 22_920,
        "heap-in-use": 7.95e8,
        "rps": 867,
        "stack-in-use": 1.123e8,
        "avg-api-times": 0.0094,
        "p99-api-times": 0.0776,
        "avg-store-times": 0.0015,
        "p99-store-times": 0.0158,
    }
    for slug, level in published.items():
        assert values(found.recording, slug)[-420:-40].mean() == pytest.approx(level, rel=0.1), slug


def test_the_agents_stop_before_the_stop_is_stamped() -> None:
    with_shutdown, without = run(), run(replace(UNBOUNDED, shutdown_s=0.0))
    users = values(with_shutdown.recording)
    assert users[-1] < 0.1 * users[-11]
    assert with_shutdown.truth.supported_users == without.truth.supported_users
    assert with_shutdown.truth.stop_s == pytest.approx(without.truth.stop_s + 45, abs=5)
    kept = values(without.recording)
    assert np.array_equal(kept, users[: kept.size])
    assert kept[-1] > 0.9 * kept.max()


def test_labels_are_plausible_and_capped() -> None:
    summaries = run().recording.label_summaries
    groups = {group: {s.label for s in summaries if s.group == group} for group in ("api", "store")}
    assert (len(groups["api"]), len(groups["store"])) == (25, 40)
    assert all(0 < s.value <= 10 for s in summaries if s.stat == "p99")
    slow = LabelSet(added=(("store", "PostStore.Slow", 8.0),), without=("api/login",))
    changed = run(replace(UNBOUNDED, labels=slow)).recording.label_summaries
    assert {(s.label, s.stat): s.value for s in changed}["PostStore.Slow", "p99"] == 10.0
    assert "login" not in {s.label for s in changed}


def test_a_percentile_is_read_off_the_histogram() -> None:
    """1 ms on average: everything is in the first bucket, so 99 % of it is reported."""
    assert histogram_p99(0.001, 0.5) == pytest.approx(0.99 * 0.005, rel=0.01)
    rng = np.random.default_rng(0)
    drawn = rng.lognormal(np.log(0.1) - 0.32, 0.8, 200_000)
    high = np.quantile(drawn, 0.99)
    assert 0.25 < high < 0.5
    assert 0.25 < histogram_p99(0.1, 0.8) < 0.5


def test_noise_has_the_asked_spread_and_memory() -> None:
    noise = ar1(np.random.default_rng(0), 200_000, 0.3, 20.0)
    assert noise.std() == pytest.approx(0.3, rel=0.05)
    assert np.corrcoef(noise[:-20], noise[20:])[0, 1] == pytest.approx(np.exp(-1), abs=0.04)


def test_runs_of_one_build_differ_by_what_was_asked_for() -> None:
    still = replace(BOUNDED, duration_s=1500.0, noise=NoiseModel(sample_scale=0.0))
    levels = np.log([run(still, seed).truth.levels["avg-api-times"] for seed in range(60)])
    assert levels.std() == pytest.approx(0.07, rel=0.25)
    one, other = run(still, 1), run(still, 2)
    ratio = values(other.recording, "heap-in-use") / values(one.recording, "heap-in-use")
    expected = other.truth.levels["heap-in-use"] / one.truth.levels["heap-in-use"]
    assert ratio[280] == pytest.approx(expected, rel=2e-3)


# ---- Determinism ----------------------------------------------------------------------------------------------------


def test_one_seed_gives_one_recording_and_another_gives_another() -> None:
    first, again, other = run(), simulate_run(UNBOUNDED, 1), run(UNBOUNDED, 2)
    assert again.truth == first.truth
    assert again.recording.label_summaries == first.recording.label_summaries
    for one, same in zip(first.recording.series, again.recording.series, strict=True):
        np.testing.assert_array_equal(one.values, same.values)
    assert not np.array_equal(values(first.recording, "rps")[:500], values(other.recording, "rps")[:500])
    assert other.truth.supported_users != first.truth.supported_users


# ---- Injections -----------------------------------------------------------------------------------------------------


def injected(*injections: object, settings: RunSettings = BOUNDED) -> tuple[Recording, Recording]:
    return run(settings).recording, run(replace(settings, injections=injections)).recording  # type: ignore[arg-type]


def test_a_metric_effect_is_exactly_its_factor_and_touches_nothing_else() -> None:
    plain, changed = injected(MetricEffect("avg-api-times", 1.2), MetricEffect("heap-in-use", 1.5, at_s=3000.0))
    for before, after in zip(plain.series, changed.series, strict=True):
        late = before.times - plain.window[0] >= 3000.0
        factor = {"avg-api-times": 1.2, "heap-in-use": np.where(late, 1.5, 1.0)}.get(before.metric, 1.0)
        np.testing.assert_allclose(after.values, before.values * factor, rtol=1e-15)
    assert plain.label_summaries == changed.label_summaries


def test_a_label_effect_is_exactly_its_factor() -> None:
    plain, changed = injected(LabelEffect("store", "PostStore.Save", 3.0))
    for before, after in zip(plain.label_summaries, changed.label_summaries, strict=True):
        factor = 3.0 if before.label == "PostStore.Save" else 1.0
        assert after.value == before.value * factor


def test_gaps_and_nan_stretches_are_where_they_were_asked_for() -> None:
    plain, changed = injected(Gap(1000.0, 1100.0), NanStretch(2000.0, 2050.0, metric="rps"))
    for before, after in zip(plain.series, changed.series, strict=True):
        elapsed = after.times - plain.window[0]
        assert before.values.size - after.values.size == 20
        assert not np.any((elapsed >= 1000.0) & (elapsed < 1100.0))
        missing = np.isnan(after.values) & (elapsed > 10)
        assert missing.sum() == (10 if before.metric == "rps" else 0)


def test_a_truncated_recording_does_not_know_of_the_stop() -> None:
    plain, changed = injected(Truncation(3000.0), settings=UNBOUNDED)
    assert changed.duration_s == 3000.0
    assert not changed.stop_known
    np.testing.assert_array_equal(values(changed), values(plain)[:601])


def test_a_lost_agent_takes_its_users_along() -> None:
    """v9.2: 5003 users became 4546 when one agent of eleven died."""
    plain, changed = injected(LostAgent(4500.0))
    assert np.array_equal(values(plain)[:900], values(changed)[:900])
    assert values(changed)[950] == round(5000 * 10 / 11)


def test_a_restart_drops_users_and_counters_and_they_come_back() -> None:
    plain, changed = injected(Restart(4000.0))
    assert np.array_equal(values(plain)[:800], values(changed)[:800])
    assert values(changed)[802] == 0
    assert values(changed, "goroutines-in-use")[802] < 400
    assert values(changed)[860] == pytest.approx(5000, rel=0.01)
    calls = values(changed, "rps")
    assert np.nanmin(calls) >= 0  # a counter that starts again is no negative rate


# ---- The bundled comparisons ----------------------------------------------------------------------------------------


def test_bundled_recordings_are_what_the_settings_make(project: Path, tmp_path: Path) -> None:
    kept = project / "data" / "recordings"
    written = write_bundled(tmp_path)
    assert {f.relative_to(tmp_path) for f in written} == {f.relative_to(kept) for f in kept.rglob("*.parquet")}
    for file in written:
        committed = kept / file.relative_to(tmp_path)
        made, stored = (read_recording(pq.ParquetFile(f), f) for f in (file, committed))
        assert (made.window, made.notes) == (stored.window, stored.notes)
        assert made.provenance == stored.provenance
        for new, old in zip(made.series, stored.series, strict=True):
            assert new.metric == old.metric
            np.testing.assert_array_equal(new.times, old.times)
            np.testing.assert_allclose(new.values, old.values, rtol=1e-9)
        for new_label, old_label in zip(made.label_summaries, stored.label_summaries, strict=True):
            assert new_label.label == old_label.label
            assert new_label.value == pytest.approx(old_label.value, rel=1e-9)


def test_bundled_recordings_are_small(project: Path) -> None:
    sizes = {f: f.stat().st_size for f in (project / "data" / "recordings").rglob("*.parquet")}
    assert sum(sizes.values()) <= 6_000_000
    assert sum(size for f, size in sizes.items() if "v10.4.0-rc1" in f.parts) <= 3_500_000


@pytest.mark.parametrize("name", ["v10.4.0-rc1", "v11.1.0-rc2", "v9.6.0-rc1"])
def test_params_name_the_bundled_recordings(project: Path, name: str) -> None:
    comparison = read_params(project / "params" / f"{name}.yaml")
    listed = {run.recording for test in comparison.tests for side in (test.base, test.new) for run in side}
    made = {f"data/recordings/{each.file.as_posix()}" for each in bundled_runs() if each.comparison == name}
    assert listed == made
    reported = {t.name: (t.base[0].supported_users, t.new[0].supported_users) for t in comparison.tests}
    for each in bundled_runs():
        if each.comparison == name:
            assert reported[each.test][each.build == "new"] == each.published


PUBLISHED = {
    "v10.4.0-rc1/mysql_unbounded/base": 7097,
    "v10.4.0-rc1/mysql_unbounded/new": 7126,
    "v10.4.0-rc1/postgresql_unbounded/base": 6537,
    "v10.4.0-rc1/postgresql_unbounded/new": 6934,
    "v11.1.0-rc2/postgresql_unbounded/base": 16997,
    "v11.1.0-rc2/postgresql_unbounded/new": 16378,
    "v9.6.0-rc1/mysql_unbounded/base": 9230,
    "v9.6.0-rc1/mysql_unbounded/new": 9219,
    "v9.6.0-rc1/postgresql_unbounded/base": 11330,
    "v9.6.0-rc1/postgresql_unbounded/new": 11292,
}


@pytest.mark.parametrize(("file", "published"), PUBLISHED.items())
def test_the_published_supported_users_emerge(file: str, published: int) -> None:
    _, found = bundled(file)
    assert found.truth.supported_users == pytest.approx(published, rel=0.005)
    assert found.truth.connected_users == pytest.approx(published, rel=0.005)
    series = found.recording.find(USERS)
    assert series is not None
    curve = found.recording.curve(series)
    estimated = EstimateSupportedUsers()(curve, FindStop()(curve), may_be_cut=False).estimated
    assert estimated == pytest.approx(found.truth.supported_users, rel=0.005)


@pytest.mark.parametrize(("db", "behind"), [("mysql", 900), ("postgresql", 1600)])
def test_the_new_build_of_v10_4_runs_behind_until_the_waves(db: str, behind: int) -> None:
    base, new = (values(bundled(f"v10.4.0-rc1/{db}_unbounded/{build}")[1].recording) for build in ("base", "new"))
    start = early(new, 700).size
    assert np.median(base[start : start + 120] - new[start : start + 120]) == pytest.approx(behind, rel=0.15)
    assert len(peaks(early(base))) == 1
    assert 2 <= len(peaks(early(new))) <= 5


@pytest.mark.parametrize(
    "file", ["v9.6.0-rc1/postgresql_unbounded", "v9.6.0-rc1/mysql_unbounded", "v11.1.0-rc2/postgresql_unbounded"]
)
def test_the_other_releases_start_alike(file: str) -> None:
    base, new = (values(bundled(f"{file}/{build}")[1].recording) for build in ("base", "new"))
    assert np.abs(base[:300] - new[:300]).max() < 0.06 * base.max()
    assert len(peaks(early(base))) == len(peaks(early(new))) == (1 if file.startswith("v9") else 0)


def test_each_build_of_v10_4_has_a_label_of_its_own() -> None:
    base, new = (
        {(s.group, s.label) for s in bundled(f"v10.4.0-rc1/mysql_bounded/{build}")[1].recording.label_summaries}
        for build in ("base", "new")
    )
    assert base - new == {("store", "BotStore.GetAll")}
    assert new - base == {("api", "getScheduledPosts")}
