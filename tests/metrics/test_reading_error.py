"""Values that were read off a plot are judged, with what they may be misread by in their noise."""

from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.results import TestResult
from buildcompare.results.codes import TestType
from buildcompare.text.sentences import say
from quiet import compared
from support import users_curve, write_csv

CATALOGUE = read_catalogue("mattermost")


def result(folder: Path, kind: TestType, times: float, *, off_a_plot: bool = True) -> TestResult:
    users = users_curve(1000.0, ramp_s=1500.0, hold_s=2700.0)
    users = np.round(users, 2) + 0.37 if off_a_plot else np.rint(users)
    noise, runs = np.random.default_rng(3).normal(1.0, 0.02, users.size), []
    for side, level in (("base", 0.01), ("new", 0.01 * times)):
        curves = {"number-of-connected-devices": users, "avg-api-times": level * noise, "rps": users / 10}
        runs.append(bc.read(write_csv(folder / f"{side} {off_a_plot}.csv", curves), catalogue=CATALOGUE))
    assert all(run.digitised == off_a_plot for run in runs)
    return compared(*runs, type=kind)


@pytest.mark.parametrize("kind", ["bounded", "unbounded"])
@pytest.mark.parametrize(("times", "changed"), [(2.25, "regression"), (0.5, "improvement"), (1.05, None)])
def test_only_large_changes_are_called(tmp_path: Path, kind: TestType, times: float, changed: str | None) -> None:
    row = next(row for row in result(tmp_path, kind, times).metrics if row.slug == "avg-api-times")
    for judged in (row, *([row.load_adjusted] if kind == "unbounded" else [])):
        assert judged.p_value is not None
        assert judged.status == changed if changed else not judged.status.changed


@pytest.mark.parametrize("kind", ["bounded", "unbounded"])
def test_the_reading_error_widens_the_interval_and_is_said(tmp_path: Path, kind: TestType) -> None:
    seen = [{row.slug: row for row in result(tmp_path, kind, 1.2, off_a_plot=off).metrics} for off in (False, True)]
    exact, misread = (rows["avg-api-times"] for rows in seen)
    assert (exact.reading_error_percent, misread.reading_error_percent) == (None, 2)
    assert seen[1]["rps"].reading_error_percent is None, "a plot shows it well"
    wide, narrow = (np.log1p(np.array([row.ci_low, row.ci_high]) / 100.0) for row in (misread, exact))
    sd = np.log1p(getattr(CATALOGUE.find("avg-api-times").run_sd_percent, kind) / 100.0)
    assert np.ptp(wide) / np.ptp(narrow) == pytest.approx(np.hypot(sd, np.log1p(0.02)) / sd, rel=1e-3)
    if kind == "unbounded":
        assert misread.load_adjusted.ci_low < exact.load_adjusted.ci_low
    assert "read off a plot" in say("reasons", "explain", misread)
    assert "plot" not in say("reasons", "explain", exact)
