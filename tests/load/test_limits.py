"""What limited a build: simulated runs whose coordinator knows, and alert series made by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from buildcompare.config.catalogue import Alert, read_catalogue
from buildcompare.load.limits import FindLimits, Limits
from buildcompare.load.view import ViewRun
from buildcompare.recordings.parquet import write_recording
from buildcompare.recordings.recording import Recording, Series
from buildcompare.text.limits import limited_words
from loadsim import Coordinator, RunSettings, ServerModel, SimulatedRun, Thresholds, simulate_run
from loadsim.measure import ALERTS

CATALOGUE = read_catalogue("mattermost")
HOT = ServerModel(
    cpu_at_capacity_percent=95.0,
    cpu_per_login_percent=1.0,
    client_avg_at_capacity_s=0.06,
    error_percent_at_capacity=0.001,
)


def limits(run: SimulatedRun, thresholds: dict[str, float] | None = None) -> Limits:
    view = ViewRun(CATALOGUE)(run.recording, run.truth.settings.type)
    assert view.stop is not None
    found = FindLimits(CATALOGUE.alerts, thresholds or {})(run.recording, view.stop.at_s, view.steady.window)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("settings", "slug"),
    [
        (RunSettings(), "client-average"),
        (RunSettings(server=HOT), "app-cpu"),
        (RunSettings(coordinator=Coordinator(thresholds=Thresholds(client_p99_s=0.9))), "client-p99"),
    ],
    ids=["client average", "CPU", "client p99"],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_limit_is_the_one_that_the_coordinator_met(settings: RunSettings, slug: str, seed: int) -> None:
    run = simulate_run(settings, seed, alerts=True)
    rule = settings.coordinator.thresholds
    found = limits(run, {"client-p99": rule.client_p99_s or math.inf})
    truth = run.truth
    assert ALERTS[truth.limited_by or ""] == slug
    assert found.limited_by is not None
    assert found.limited_by.alert.slug == slug
    assert found.first is not None
    assert truth.first_alert_s is not None
    assert found.first.first_s == pytest.approx(truth.first_alert_s, abs=5.0)
    seen = {use.alert.slug: use.share > 0 for use in found.alerts}
    assert {ALERTS[name] for name in truth.alerts} == {slug for slug, fired in seen.items() if fired}


def test_a_bounded_run_may_be_far_from_every_limit() -> None:
    small = RunSettings(type="bounded", coordinator=Coordinator(max_users=3000))
    found = limits(simulate_run(small, 1, alerts=True))
    assert found.limited_by is None
    assert found.near == ()
    assert limited_words(found).startswith("no alert in the steady window")


def test_alert_series_change_nothing_else(tmp_path: Path) -> None:
    plain, with_alerts = (simulate_run(RunSettings(type="bounded"), 5, alerts=alerts) for alerts in (False, True))
    own = [series for series in with_alerts.recording.series if series.role == "alert"]
    rest = [series for series in with_alerts.recording.series if series.role != "alert"]
    assert [series.metric for series in own] == list(ALERTS.values())
    assert with_alerts.truth == plain.truth
    assert with_alerts.recording.provenance == plain.recording.provenance
    for ours, theirs in zip(rest, plain.recording.series, strict=True):
        np.testing.assert_array_equal(ours.values, theirs.values)
    write_recording(with_alerts.recording, tmp_path / "run.parquet")
    assert (tmp_path / "run.parquet").stat().st_size > 0


def test_runs_without_alert_series_have_no_limits() -> None:
    run = simulate_run(RunSettings(type="bounded"), 1).recording
    assert FindLimits(CATALOGUE.alerts, {})(run, 5000.0, (1500.0, 5000.0)) is None
    assert FindLimits(CATALOGUE.alerts, {}).of_build([None, None]) is None


# ---- Made by hand ---------------------------------------------------------------------------------------------------

SLOW = Alert(name="Slow", slug="slow", unit="seconds", threshold=0.1, query="slow")
BUSY = Alert(name="Busy", slug="busy", unit="percent", threshold=85.0, query="busy")


def made(slow: list[float], busy: list[float], more: list[float] | None = None) -> Recording:
    times = 1000.0 + 60.0 * np.arange(1, len(slow) + 1)
    series = [
        Series(slug, slug, "", times, np.array(values), role="alert", labels=labels)
        for slug, values, labels in (("slow", slow, {}), ("busy", busy, {"i": "1"}), ("busy", more or busy, {"i": "2"}))
    ]
    return Recording(tuple(series), (1000.0, float(times[-1])), stop_known=True)


FIND = FindLimits((SLOW, BUSY), {})
COLD = made([0.3, 0.05, 0.09, 0.09, 0.09, 0.09], [20.0, 80.0, 84.0, 85.0, 80.0, 86.0], [math.nan] * 6)


def test_shares_and_times_are_counted() -> None:
    found = FIND(COLD, 360.0, (120.0, 360.0))
    assert found is not None
    slow, busy = found.alerts
    assert (slow.first_s, slow.times, slow.share, slow.share_steady) == (60.0, 1, pytest.approx(1 / 6), 0.0)
    assert slow.nearness == pytest.approx(0.9)
    assert (busy.first_s, busy.times, busy.share_steady) == (240.0, 2, 0.5)
    assert found.first is slow
    assert found.limited_by is busy
    assert found.near == (busy, slow)
    assert limited_words(found) == (
        "Busy (at or above 85.0 % in 50% of the steady window; 2 times in all); first to alert: Slow, at 1 min; "
        "near its limit: Slow (90%)"
    )


def test_stated_thresholds_the_quiet_start_and_the_stop_count() -> None:
    later = FindLimits((SLOW, BUSY), {"busy": 90.0}, quiet_s=100.0)(COLD, 300.0, (120.0, 300.0))
    assert later is not None
    assert (later.first, later.limited_by) == (None, None)
    assert limited_words(later).startswith("no alert in the steady window; near its limit: Busy (")


def test_of_several_instances_the_highest_answer_counts() -> None:
    found = FIND(made([0.05] * 3, [10.0, 20.0, math.nan], [5.0, 90.0, 86.0]), 180.0, (0.0, 180.0))
    assert found is not None
    assert found.limited_by is not None
    assert found.limited_by.share_steady == pytest.approx(2 / 3)


def test_runs_of_a_build_are_put_together() -> None:
    other = FIND(made([0.05] * 6, [20.0] * 6), 360.0, (120.0, 360.0))
    both = FIND.of_build([FIND(COLD, 360.0, (120.0, 360.0)), None, other])
    assert both is not None
    slow, busy = both.alerts
    assert (slow.first_s, slow.times) == (60.0, 1)
    assert busy.share_steady == 0.25
    assert busy.nearness == pytest.approx((0.995 * 86.0 / 85 + 20.0 / 85) / 2, abs=0.01)
