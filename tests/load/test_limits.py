"""What limited a build: simulated runs whose coordinator knows, and alert series made by hand."""

import math

import numpy as np
import pytest

from buildcompare.config.catalogue import Alert, read_catalogue
from buildcompare.load.curve import SteadyState, Stop
from buildcompare.load.users import alerts_of_build
from buildcompare.load.view import RunView, view_run
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import LimitedBy
from buildcompare.text.sentences import say
from loadsim import Coordinator, RunSettings, ServerModel, SimulatedRun, Thresholds, simulate_run
from loadsim.measure import ALERTS
from support import sure

CATALOGUE = read_catalogue("mattermost")
HOT = ServerModel(
    cpu_at_capacity_percent=95.0,
    cpu_per_login_percent=1.0,
    client_avg_at_capacity_s=0.06,
    error_percent_at_capacity=0.001,
)


def seen(recording: Recording, stop_s: float, steady: tuple[float, float]) -> RunView:
    return RunView(recording, SteadyState(steady), stop=Stop(stop_s, stop_s, shutdown=False))


def limits(run: SimulatedRun, thresholds: dict[str, float] | None = None) -> LimitedBy:
    view = view_run(run.recording, run.truth.settings.type, CATALOGUE)
    return LimitedBy(alerts=alerts_of_build(CATALOGUE.alerts, thresholds or {}, [view], "base"))


@pytest.mark.parametrize(
    ("settings", "slug"),
    [
        (RunSettings(), "client-average"),
        (RunSettings(server=HOT), "app-cpu"),
        (RunSettings(coordinator=Coordinator(thresholds=Thresholds(client_p99_s=0.9))), "client-p99"),
        (RunSettings(server=ServerModel(error_percent_at_capacity=0.1)), "client-5xx"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_limit_is_the_one_that_the_coordinator_met(settings: RunSettings, slug: str, seed: int) -> None:
    run = simulate_run(settings, seed, alerts=True)
    found = limits(run, {"client-p99": settings.coordinator.thresholds.client_p99_s or math.inf})
    truth = run.truth
    assert ALERTS[truth.limited_by or ""] == sure(found.limiting("base")).alert == slug
    assert truth.alerts[truth.limited_by or ""] == max(truth.alerts.values())
    assert sure(found.first("base")).first_s == pytest.approx(sure(truth.first_alert_s), abs=5.0)
    seen = {use.alert: use.first_s is not None for use in found.alerts}
    assert {ALERTS[name] for name in truth.alerts} == {slug for slug, fired in seen.items() if fired}


def test_a_bounded_run_may_be_far_from_every_limit() -> None:
    small = RunSettings(type="bounded", coordinator=Coordinator(max_users=3000))
    found = limits(simulate_run(small, 1, alerts=True))
    assert found.alerts
    assert (found.limiting("base"), found.near("base")) == (None, [])
    words = say("reasons", "limited_by", found, "base", {each.slug: each for each in CATALOGUE.alerts})
    assert words.startswith("no alert in the steady window")


SLOW = Alert(name="Slow", slug="slow", unit="seconds", threshold=0.1, query="slow")
BUSY = Alert(name="Busy", slug="busy", unit="percent", threshold=85.0, query="busy")


def made(slow: list[float], busy: list[float], more: list[float] | None = None) -> Recording:
    times = 1000.0 + 60.0 * np.arange(1, len(slow) + 1)
    series = [
        Series(slug, slug, "", times, np.array(values), role="alert", labels=labels)
        for slug, values, labels in (("slow", slow, {}), ("busy", busy, {"i": "1"}), ("busy", more or busy, {"i": "2"}))
    ]
    return Recording(tuple(series), (1000.0, float(times[-1])), stop_known=True)


COLD = made([0.3, 0.05, 0.09, 0.09, 0.09, 0.09], [20.0, 80.0, 84.0, 85.0, 80.0, 86.0], [math.nan] * 6)


def found_in(recording: Recording, stop_s: float, steady: tuple[float, float]) -> LimitedBy:
    return LimitedBy(alerts=alerts_of_build((SLOW, BUSY), {}, [seen(recording, stop_s, steady)], "base"))


def test_shares_and_times_are_counted() -> None:
    found = found_in(COLD, 360.0, (120.0, 360.0))
    slow, busy = found.alerts
    assert (slow.first_s, slow.times, slow.share_steady, slow.nearness) == (60.0, 1, 0.0, pytest.approx(0.9))
    assert (busy.first_s, busy.times, busy.share_steady) == (240.0, 2, 0.5)
    assert found.first("base") is slow
    assert found.limiting("base") is busy
    assert found.near("base") == [busy, slow]
    assert say("reasons", "limited_by", found, "base", {each.slug: each for each in (SLOW, BUSY)}) == (
        "Busy (at or above 85.0 % in 50 % of the steady window; 2 times in all); first to alert: Slow, at 1 min; "
        "near its limit: Slow (90 %)"
    )


def test_stated_thresholds_and_the_stop_count() -> None:
    stated, run = {"slow": 0.4, "busy": 90.0}, seen(COLD, 300.0, (120.0, 300.0))
    later = LimitedBy(alerts=alerts_of_build((SLOW, BUSY), stated, [run], "base"))
    assert (later.first("base"), later.limiting("base")) == (None, None)
    words = say("reasons", "limited_by", later, "base", {each.slug: each for each in (SLOW, BUSY)})
    assert words.startswith("no alert in the steady window; near its limit: Busy (")


def test_runs_of_a_build_are_put_together() -> None:
    silent = Recording((), COLD.window, stop_known=True)
    runs = [seen(run, 360.0, (120.0, 360.0)) for run in (COLD, silent, made([0.05] * 6, [20.0] * 6))]
    slow, busy = alerts_of_build((SLOW, BUSY), {}, runs, "new")
    assert ({slow.build, busy.build}, slow.first_s, slow.times, busy.share_steady) == ({"new"}, 60.0, 1, 0.25)
    assert busy.nearness == pytest.approx((0.995 * 86.0 / 85 + 20.0 / 85) / 2, abs=0.01)
    of_two = found_in(made([0.05] * 3, [10.0, 20.0, math.nan], [5.0, 90.0, 86.0]), 180.0, (0.0, 180.0))
    assert sure(of_two.limiting("base")).share_steady == pytest.approx(2 / 3), "the highest answer of two instances"
