"""How many users does a build support? Curves whose truth is in the call, and published figures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from buildcompare.config.params import Run, Source
from buildcompare.load.users import supported_users
from buildcompare.recordings.sources import record
from buildcompare.results import Results
from curves import CATALOGUE, curve, kinds, recording
from quiet import compared
from support import sure, test_folders, users_curve


def estimate(values: np.ndarray, *, cut: bool = False) -> Any:
    return supported_users(curve(values), may_be_cut=cut)


def test_supported_users_are_the_mean_of_the_last_30_minutes() -> None:
    assert estimate(users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=9)).estimated == pytest.approx(7000)
    climbing = estimate(np.arange(0.0, 5400, 5.0))
    assert (climbing.estimated, climbing.reason) == (None, "still_climbing")
    assert (climbing.at_least, climbing.slope_users_per_s) == (pytest.approx(5395 - 900, abs=5), pytest.approx(1.0))


def test_a_curve_that_may_be_cut_is_not_estimated() -> None:
    flat = estimate(users_curve(7000, ramp_s=3000, hold_s=2400), cut=True)
    assert (flat.estimated, flat.at_least, flat.reason) == (None, None, "may_be_cut")
    slow = np.concatenate([users_curve(7000, ramp_s=3000, hold_s=600), 7000 + 0.25 * 5 * np.arange(400)])
    assert estimate(slow, cut=True).reason == "still_climbing"
    assert estimate(slow, cut=False).estimated is not None
    faster = np.concatenate([users_curve(7000, ramp_s=3000, hold_s=600), 7000 + 0.45 * 5 * np.arange(400)])
    assert estimate(faster, cut=False).reason == "still_climbing"
    assert estimate(np.concatenate([faster, [4000.0, 100.0]]), cut=False).reason == "still_climbing"
    assert estimate(slow[::-1] + 1000).reason in ("still_falling", "interrupted")


def test_a_run_that_was_disturbed_at_the_end_is_not_estimated() -> None:
    falling = np.concatenate([users_curve(7000, ramp_s=3000, hold_s=600), 7000 - 0.45 * 5 * np.arange(400)])
    assert estimate(falling).reason == "still_falling"
    away = users_curve(7000, ramp_s=3000, hold_s=2400)
    away[-200:-160] = 0.0
    assert estimate(away).reason == "interrupted"
    silent = curve(np.concatenate([users_curve(7000, ramp_s=3000, hold_s=2400), np.full(600, np.nan)]))
    assert supported_users(silent, known_end_s=8400.0).reason == "gaps"


def test_users_of_several_instances_are_summed() -> None:
    users = users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=9)
    whole = recording(number_of_connected_devices=users)
    (one,) = whole.series
    halves = tuple(replace(one, values=users / 2, labels={"instance": name}) for name in "ab")
    result = compared(whole, replace(whole, series=halves), type="unbounded")
    estimated = sure(result.supported_users).estimated
    assert estimated.new == estimated.base


def test_a_run_without_an_estimate_is_left_out_and_said_so() -> None:
    good = recording(number_of_connected_devices=users_curve(7000, ramp_s=3000, hold_s=2400, shutdown=9))
    climbing = recording(number_of_connected_devices=np.arange(0.0, 5400, 5.0))
    run = Run(recording="x", supported_users=6900)
    result = compared([good, climbing], good, type="unbounded", base=[run, Run(recording="x")], new=[run])
    users = sure(result.supported_users)
    assert (users.reported.base, users.reported.new, users.estimated.base) == (None, 6900, pytest.approx(7000))
    assert (users.at_least.base, users.reason.base, kinds(result)["run_left_out"]["run"]) == (None, None, 2)


def test_a_window_of_the_analyst_says_nothing_about_the_stop(real: Path) -> None:
    """A cut curve stays a cut curve when its own first and last sample are named."""
    folder = real / "comparisons/v10.5/postgresql_unbounded"
    runs: dict[str, list[Run]] = {"base": [Run(recording=str(folder / "base.csv.gz"))]}
    named = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-01T02:10:40Z"}
    runs["new"] = [Run.model_validate({"recording": str(folder / "new.csv.gz"), **named})]
    base, new = (record(run, Source(kind="recorded"), CATALOGUE) for (run,) in runs.values())
    users = sure(compared(base, new, type="unbounded", **runs).supported_users)
    assert (users.estimated.new, users.reason.new) == (None, "still_climbing")


def test_too_little_is_not_estimated() -> None:
    assert estimate(users_curve(500, ramp_s=300, hold_s=900)).reason == "too_short"
    holes = users_curve(500, ramp_s=300, hold_s=2400)
    holes[-200:-50] = np.nan
    assert (estimate(holes).reason, supported_users(None).reason) == ("gaps", "no_users_curve")


def reported(history: pd.DataFrame, folder: Path, side: str) -> float:
    release, run = folder.parent.name, None
    if "-run" in release:
        release, run = release.rsplit("-", 1)
    rows = history[(history["release"] == release) & (history["test_type"] == "unbounded")]
    rows = rows[rows["db"] == folder.name.split("_")[0]]
    rows = rows if run is None else rows[rows["run"] == run]
    assert len(rows) == 1
    return float(rows[f"su_{side}"].iloc[0])


def test_every_whole_published_curve_gives_the_published_figure(real: Path, compared: Callable[[str], Results]) -> None:
    """v8.0 is left out: its graphs belong to other runs than its table, its makers say so."""
    history = pd.read_csv(real / "comparisons/history.csv")
    errors, cut = [], []
    for folder in test_folders(real):
        if not folder.name.endswith("unbounded") or folder.parent.name == "v8.0":
            continue
        (result,) = [test for test in compared(folder.parent.name).tests if test.name == folder.name]
        users = sure(result.supported_users)
        for side in ("base", "new"):
            value, truth = getattr(users.estimated, side), reported(history, folder, side)
            if value is not None:
                errors.append(100 * (value / truth - 1))
                continue
            assert side == "new"
            cut.append(folder)
            at_least = getattr(users.at_least, side)
            assert getattr(users.reason, side) in ("may_be_cut", "still_climbing")
            assert at_least is None or at_least < 1.005 * truth
    assert len(errors) == 45  # every whole curve, no other
    assert max(map(abs, errors)) <= 0.5
    assert np.median(np.abs(errors)) <= 0.25
    assert len(cut) == 19


@pytest.mark.parametrize(
    ("run", "truth"), [("v1-1.3-1", 25000), ("v1-1.3-2", 25000), ("v1-1.3-3", 25000), ("v1-2.1.b-1", 70000)]
)
def test_ceiling_runs_give_the_published_figure(real: Path, run: str, truth: int) -> None:
    recording = record(Run(report=str(real / f"ceiling/{run}.out.gz")), Source(kind="ltctl"), CATALOGUE)
    users = recording.curve(sure(recording.find("number-of-connected-devices")))
    assert supported_users(users).estimated == pytest.approx(truth, rel=0.015)


def test_without_a_users_curve_the_window_follows_the_goroutines(real: Path) -> None:
    run = Run(report=str(real / "ceiling/v2-XL220-1.out.gz"))
    recording = record(run, Source(kind="ltctl"), CATALOGUE)
    result = compared(recording, recording, type="unbounded", base=[run], new=[run])
    users, view = sure(result.supported_users), result.runs.base[0]
    assert (users.reason.base, users.status) == ("no_users_curve", "not_comparable")
    assert (view.load_curve, view.window_method) == ("goroutines-in-use", "last_30_minutes")
