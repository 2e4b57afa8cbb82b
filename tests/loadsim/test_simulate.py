"""The simulator keeps the coordinator's rule and records what happened; the bundled recordings are what it makes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from loadsim import Coordinator, LabelEffect, LabelSet, MetricEffect, NoiseModel, Restart
from loadsim.bundled import bundled_runs, write_bundled
from loadsim.coordinator import FeedbackLoop
from simulated import BOUNDED, UNBOUNDED, USERS, bundled, run, values


def test_users_change_no_faster_than_the_rule_allows() -> None:
    truth = run().truth
    rule = UNBOUNDED.coordinator
    times, changes = (np.array(column) for column in zip(*truth.actions, strict=True))
    assert set(changes) == {rule.users_inc, -rule.users_dec}
    assert truth.first_alert_s is not None
    assert np.diff(times[times >= truth.first_alert_s]).min() > rule.rest_s
    assert np.diff(times).min() == pytest.approx(rule.evaluate_every_s)  # before the first alert there is no rest


@pytest.mark.parametrize(("every_s", "slope"), [(2.0, 2.0), (1.9, 8 / 3.8), (1.0, 8 / 3), (2.15, 8 / 2.15)])
def test_after_the_first_alert_the_coordinator_rests(every_s: float, slope: float) -> None:
    """The published ramps: 2.1 users/s in v10.4, 2.7 in v11.1, 3.7 in v10.1."""
    loop = FeedbackLoop(Coordinator(evaluate_every_s=every_s))
    loop.evaluate(0.0, True)
    seen = [(i * every_s, loop.active) for i in range(1, 1000) if not loop.evaluate(i * every_s, False)]
    assert np.polyfit(*zip(*seen, strict=True), 1)[0] == pytest.approx(slope, rel=0.01)


def test_users_stay_between_zero_and_the_ceiling() -> None:
    loop = FeedbackLoop(Coordinator(max_users=20))
    for i in range(10):
        loop.evaluate(i * 2.0, False)
    assert loop.active == 20
    for i in range(10, 40):
        loop.evaluate(i * 2.0, True)
    assert loop.active == 0


def test_a_ceiling_below_the_capacity_is_the_answer() -> None:
    truth = run(replace(UNBOUNDED, coordinator=Coordinator(max_users=3000))).truth
    assert truth.supported_users == pytest.approx(3000, rel=0.03)
    assert truth.limited_by is None


def test_the_stop_rule_holds_at_the_stop_and_not_before() -> None:
    truth = run().truth
    rule = UNBOUNDED.coordinator
    at = np.arange(0, truth.decided_s + 1e-9, rule.evaluate_every_s)
    times, changes = (np.array(column) for column in zip(*truth.actions, strict=True))
    active = np.concatenate(([0.0], np.cumsum(changes)))[np.searchsorted(times, at, side="left")]

    def slope(i: int) -> float:
        window = (at >= at[i] - rule.window_s) & (at <= at[i]) & (at >= truth.first_alert_s)
        return float(np.polyfit(at[window] - at[i], active[window], 1)[0])

    assert truth.decided_s >= truth.first_alert_s + rule.window_s
    assert abs(slope(-1)) < rule.slope_limit
    earliest = int(np.flatnonzero(at > truth.first_alert_s + rule.window_s)[0])
    assert all(abs(slope(i)) >= rule.slope_limit for i in range(earliest, at.size - 1, 20))
    last = (at >= at[-1] - rule.window_s) & (at >= truth.first_alert_s)
    assert truth.supported_users == pytest.approx(active[last].mean(), rel=1e-12)


def test_a_time_limit_ends_a_run_without_an_answer() -> None:
    truth = run(replace(UNBOUNDED, time_limit_s=2400.0)).truth
    assert (truth.decided_s, truth.supported_users) == (2400.0, None)


def test_a_run_that_carries_fewer_users_takes_no_more_cpu_for_each() -> None:
    """In Mattermost's ceiling tests, users vary by 1.9 % and CPU at equal users by 0.9 %."""
    unlike = replace(BOUNDED, noise=NoiseModel(capacity_sd=0.05, level_scale=0.0, sample_scale=0.0))
    runs = [run(unlike, seed) for seed in (1, 2, 3)]
    assert np.ptp([each.truth.capacity_users for each in runs]) > 0.03 * runs[0].truth.capacity_users
    cpu = [values(each.recording, "cpu-utilization")[600:].mean() for each in runs]
    np.testing.assert_allclose(cpu, cpu[0], rtol=1e-3)


def test_a_recording_has_the_graphs_of_the_catalogue_and_says_that_it_is_simulated() -> None:
    recording = run().recording
    assert len(recording.graphs()) == 10
    assert recording.simulated
    assert recording.stop_known
    assert (recording.provenance["seed"], {series.step_s for series in recording.series}) == (1, {5.0})
    assert all(recording.coverage(series).fraction > 0.99 for series in recording.series)
    assert recording.duration_s == run().truth.stop_s


def test_rates_are_averages_over_a_minute() -> None:
    still = replace(BOUNDED, noise=NoiseModel(sample_scale=0.0, level_scale=0.0, capacity_sd=0.0))
    rps = values(run(replace(still, injections=(Restart(3000.0, down_s=300.0),))).recording, "rps")
    assert rps[600] == pytest.approx(0.116 * 5000, rel=1e-3)
    np.testing.assert_allclose(rps[600:613], rps[600] * (1 - np.arange(13) / 12), atol=0.02 * rps[600])


def test_the_plateau_of_a_bounded_test_looks_like_the_published_one() -> None:
    _, found = bundled("v10.4.0-rc1/postgresql_bounded/base")
    published = {
        "cpu-utilization": 140.5, "goroutines-in-use": 22_920, "heap-in-use": 7.95e8, "rps": 867,
        "stack-in-use": 1.123e8, "avg-api-times": 0.0094, "p99-api-times": 0.0776, "avg-store-times": 0.0015,
        "p99-store-times": 0.0158,
    }  # fmt: skip
    for slug, level in published.items():
        assert values(found.recording, slug)[-420:-40].mean() == pytest.approx(level, rel=0.1), slug


def test_labels_are_plausible_and_capped() -> None:
    summaries = run().recording.label_summaries
    groups = {group: {s.label for s in summaries if s.group == group} for group in ("api", "store")}
    assert (len(groups["api"]), len(groups["store"])) == (25, 40)
    assert all(0 < s.value <= 10 for s in summaries if s.stat == "p99")
    slow = LabelSet(added=(("store", "PostStore.Slow", 8.0),), without=("api/login",))
    changed = run(replace(UNBOUNDED, labels=slow)).recording.label_summaries
    assert {(s.label, s.stat): s.value for s in changed}["PostStore.Slow", "p99"] == 10.0
    assert "login" not in {s.label for s in changed}


@pytest.mark.slow
def test_runs_of_one_build_differ_by_what_was_asked_for() -> None:
    still = replace(BOUNDED, duration_s=1500.0, noise=NoiseModel(sample_scale=0.0))
    levels = np.log([run(still, seed).truth.levels["avg-api-times"] for seed in range(60)])
    assert levels.std() == pytest.approx(0.07, rel=0.25)
    one, other = run(still, 1), run(still, 2)
    ratio = values(other.recording, "heap-in-use") / values(one.recording, "heap-in-use")
    expected = other.truth.levels["heap-in-use"] / one.truth.levels["heap-in-use"]
    assert ratio[280] == pytest.approx(expected, rel=2e-3)


def test_effects_are_exactly_their_factors_and_touch_nothing_else() -> None:
    metrics = MetricEffect("avg-api-times", 1.2), MetricEffect("heap-in-use", 1.5, at_s=3000.0)
    label = LabelEffect("store", "PostStore.Save", 3.0)
    plain, changed = run(BOUNDED).recording, run(replace(BOUNDED, injections=(*metrics, label))).recording
    for before, after in zip(plain.series, changed.series, strict=True):
        late = before.times - plain.window[0] >= 3000.0
        factor = {"avg-api-times": 1.2, "heap-in-use": np.where(late, 1.5, 1.0)}.get(before.metric, 1.0)
        np.testing.assert_allclose(after.values, before.values * factor, rtol=1e-15)
    for label_before, label_after in zip(plain.label_summaries, changed.label_summaries, strict=True):
        times = 3.0 if label_before.label == "PostStore.Save" else 1.0
        assert label_after.value == label_before.value * times


@pytest.mark.slow
def test_bundled_recordings_are_what_the_settings_make(project: Path, tmp_path: Path) -> None:
    kept = project / "data" / "recordings"
    written = write_bundled(tmp_path)
    recorded = kept / "missing-index"  # on a real server (docs/example.md)
    simulated = {f.relative_to(kept) for f in kept.rglob("*.parquet") if not f.is_relative_to(recorded)}
    assert {f.relative_to(tmp_path) for f in written} == simulated
    for file in written:
        made, stored = (bc.read(f) for f in (file, kept / file.relative_to(tmp_path)))
        assert (made.window, made.notes) == (stored.window, stored.notes)
        told = ({k: v for k, v in each.provenance.items() if k != "files"} for each in (made, stored))
        assert next(told) == next(told)
        for new, old in zip(made.series, stored.series, strict=True):
            assert new.metric == old.metric
            np.testing.assert_array_equal(new.times, old.times)
            np.testing.assert_allclose(new.values, old.values, rtol=1e-9)
        for new_label, old_label in zip(made.label_summaries, stored.label_summaries, strict=True):
            assert (new_label.label, new_label.value) == (old_label.label, pytest.approx(old_label.value, rel=1e-9))


def test_bundled_recordings_are_small(project: Path) -> None:
    sizes = {f: f.stat().st_size for f in (project / "data" / "recordings").rglob("*.parquet")}
    assert sum(sizes.values()) <= 6_000_000
    assert sum(size for f, size in sizes.items() if "v10.4.0-rc1" in f.parts) <= 3_500_000


@pytest.mark.parametrize("name", ["v10.4.0-rc1", "v11.1.0-rc2", "v9.6.0-rc1"])
def test_params_name_the_bundled_recordings(project: Path, name: str) -> None:
    comparison = bc.read_params(project / "params" / f"{name}.yaml")
    listed = {run.recording for test in comparison.tests for side in (test.base, test.new) for run in side}
    made = {f"data/recordings/{each.file.as_posix()}" for each in bundled_runs() if each.comparison == name}
    assert listed == made
    reported = {t.name: (t.base[0].supported_users, t.new[0].supported_users) for t in comparison.tests}
    for each in bundled_runs():
        if each.comparison == name:
            assert reported[each.test][each.build == "new"] == each.published


@pytest.mark.parametrize("file", [each.file.with_suffix("").as_posix() for each in bundled_runs() if each.published])
def test_the_published_supported_users_emerge(file: str) -> None:
    settings, found = bundled(file)
    published = settings.published
    assert found.truth.supported_users == pytest.approx(published, rel=0.005)
    assert found.truth.connected_users == pytest.approx(published, rel=0.005)
    series = found.recording.find(USERS)
    curve = found.recording.curve(series)
    estimated = bc.supported_users(curve).estimated
    assert estimated == pytest.approx(found.truth.supported_users, rel=0.005)
