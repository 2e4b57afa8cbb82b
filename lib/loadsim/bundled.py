"""The bundled comparisons: simulated recordings modelled on three published performance comparisons.

Supported users, numbers of users and durations are those of Mattermost performance-reports v10.4, v11.1 and v9.6.
Capacities come from bisection until the simulated supported users match the published ones to 0.2 %. Cold caches are
set so that the new build's ramp of v10.4 lags as in its report.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from buildcompare.recordings.table import write_recording
from loadsim.run import SimulatedRun, simulate_run
from loadsim.settings import Coordinator, LabelSet, MetricLevels, NoiseModel, RunSettings, ServerModel

Build = Literal["base", "new"]

QUIET = NoiseModel(capacity_sd=0.0, level_scale=0.15, sample_scale=0.85)
"""Little run-to-run noise: the published reports found no difference in the metrics."""
NEW_AFTER = dt.timedelta(hours=4)
"""Time between the starts of the base's and the new build's run; tests are a day apart."""
MYSQL = MetricLevels(
    api_avg_s=0.0105, api_p99_s=0.09, store_avg_s=0.0022, store_p99_s=0.017, store_p99_login=2.2, api_avg_login=0.15
)
"""Levels of v10.4's bounded MySQL test."""
ONLY_BASE = LabelSet(added=(("store", "BotStore.GetAll", 0.002),))
ONLY_NEW = LabelSet(added=(("api", "getScheduledPosts", 0.014),))

V10_4 = Coordinator(evaluate_every_s=1.9)
"""4.2 users/s before the first alert, 2.1 after it, as published."""
V11_1 = Coordinator(evaluate_every_s=1.0)
"""8 users/s before the first alert, 2.7 after it, as published."""
V9_6 = Coordinator(evaluate_every_s=2.15)
"""3.7 users/s before and after alerts, as in v10.1: the evaluation takes longer than the pause."""


@dataclass(frozen=True)
class BundledRun:
    """One bundled run; `published` are the supported users of the published report, None for bounded tests."""

    comparison: str
    test: str
    build: Build
    settings: RunSettings
    published: int | None = None

    @property
    def file(self) -> Path:
        """Path of the recording below the folder of all recordings."""
        return Path(self.comparison) / self.test / f"{self.build}.parquet"

    def simulate(self) -> SimulatedRun:
        """Simulate the run; its seed is the checksum of its path."""
        return simulate_run(self.settings, zlib.crc32(self.file.as_posix().encode()))


def bundled_runs() -> Iterator[BundledRun]:
    """Yield every bundled run."""
    yield from _dated("v10.4.0-rc1", "2024-12-11T10:00:00+00:00", _v10_4())
    yield from _dated("v11.1.0-rc2", "2025-11-05T10:00:00+00:00", _v11_1())
    yield from _dated("v9.6.0-rc1", "2024-03-06T10:00:00+00:00", _v9_6())


def write_bundled(folder: Path) -> list[Path]:
    """Write every bundled recording below `folder`; return the paths."""
    written = []
    for run in bundled_runs():
        write_recording(run.simulate().recording, folder / run.file)
        written.append(folder / run.file)
    return written


Row = tuple[str, Build, RunSettings, int | None]


def _v10_4() -> Iterator[Row]:
    """The new build warms its caches more slowly: more early bumps and a later ramp, but no lower plateau."""
    mysql, postgresql = ServerModel(levels=MYSQL), ServerModel()
    labels: tuple[tuple[Build, LabelSet], ...] = (("base", ONLY_BASE), ("new", ONLY_NEW))
    for build, own in labels:
        yield "mysql_bounded", build, replace(_bounded(mysql, 5000), labels=own), None
        yield "postgresql_bounded", build, replace(_bounded(postgresql, 7500), labels=own), None
    for test, build, server, capacity, cold_gain, cold_requests, published in (
        ("mysql_unbounded", "base", mysql, 9003.0, 6.0, 4000.0, 7097),
        ("mysql_unbounded", "new", mysql, 9379.0, 2.0, 50_000.0, 7126),
        ("postgresql_unbounded", "base", postgresql, 8684.0, 6.0, 4000.0, 6537),
        ("postgresql_unbounded", "new", postgresql, 9164.0, 1.8, 125_000.0, 6934),
    ):
        cold = replace(server, capacity_users=capacity, cold_gain=cold_gain, cold_requests=cold_requests)
        yield test, build, _unbounded(cold, V10_4, dict(labels)[build]), published


def _v11_1() -> Iterator[Row]:
    """Warm caches; new password hashing makes CPU the limit."""
    server = ServerModel(
        login_weight_s=0.09,
        client_avg_at_capacity_s=0.06,
        cpu_at_capacity_percent=85.0,
        cpu_per_login_percent=7.7,
        cold_gain=0.3,
    )
    steady = replace(QUIET, pressure_sd=0.012)  # both builds met their first alert at about the same users
    for build in _BUILDS:
        rule = replace(V11_1, max_users=5000)
        yield "postgresql_bounded", build, replace(_bounded(server, 5000), coordinator=rule), None
    for build, capacity, published in (("base", 18_669.0, 16_997), ("new", 17_989.0, 16_378)):
        settings = _unbounded(replace(server, capacity_users=capacity), V11_1)
        yield "postgresql_unbounded", build, replace(settings, noise=steady), published


def _v9_6() -> Iterator[Row]:
    """Two builds without a difference."""
    mysql = ServerModel(levels=MYSQL, login_weight_s=0.16, cold_gain=4.0, cold_requests=3000.0)
    postgresql = ServerModel(login_weight_s=0.16, cold_gain=4.0, cold_requests=3000.0)
    for build in _BUILDS:
        yield "mysql_bounded", build, _bounded(mysql, 5000), None
        yield "postgresql_bounded", build, _bounded(postgresql, 7500), None
    for test, build, server, capacity, published in (
        ("mysql_unbounded", "base", mysql, 12_119.0, 9230),
        ("mysql_unbounded", "new", mysql, 11_790.0, 9219),
        ("postgresql_unbounded", "base", postgresql, 14_745.0, 11_330),
        ("postgresql_unbounded", "new", postgresql, 14_618.0, 11_292),
    ):
        yield test, build, _unbounded(replace(server, capacity_users=capacity), V9_6), published


_BUILDS: tuple[Build, Build] = ("base", "new")


def _bounded(server: ServerModel, users: int) -> RunSettings:
    return RunSettings(type="bounded", server=server, coordinator=Coordinator(max_users=users), noise=QUIET)


def _unbounded(server: ServerModel, rule: Coordinator, labels: LabelSet | None = None) -> RunSettings:
    return RunSettings(server=server, coordinator=rule, noise=QUIET, labels=labels or LabelSet())


def _dated(comparison: str, first: str, rows: Iterator[Row]) -> Iterator[BundledRun]:
    """Give each run its name and start."""
    tests: list[str] = []
    for test, build, settings, published in rows:
        if test not in tests:
            tests.append(test)
        start = dt.datetime.fromisoformat(first) + dt.timedelta(days=tests.index(test))
        start += NEW_AFTER if build == "new" else dt.timedelta()
        yield BundledRun(comparison, test, build, replace(settings, start=int(start.timestamp())), published)
