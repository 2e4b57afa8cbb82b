"""Shapes of simulated runs against their truth, and of published runs against what is known of them."""

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.load.curve import find_stop
from buildcompare.load.phases import compare_waves
from buildcompare.load.view import Shape, view_run
from loadsim import shift_truth
from shape_curves import CATALOGUE, RUNS, prepared, recorded, shape, simulated
from support import sure, test_folders


@pytest.mark.untraced
@pytest.mark.slow
def test_simulated_shapes_are_what_really_happened() -> None:
    right: dict[str, list[bool]] = {name: [] for name in ("onset", "bumps", "slope", "waves", "period", "amplitude")}
    for seed in RUNS:
        found, truth = simulated(seed)
        hunting, ramp, onset = found.waves, found.ramp, found.beginning.onset_s
        right["onset"].append(onset is not None and abs(onset - truth.onset_s) <= 20.0)
        right["bumps"].append(len(found.beginning.bumps) == truth.early_bumps)
        if ramp is not None and ramp.end_s - ramp.start_s >= 60.0:
            true = truth.slope_at((ramp.start_s + ramp.end_s) / 2)
            right["slope"].append(ramp.slope == pytest.approx(true, rel=0.05))
        if truth.wave_onset_s is not None and truth.wave_period_s is not None:
            right["waves"].append(hunting.onset_s is not None and abs(hunting.onset_s - truth.wave_onset_s) <= 200.0)
            right["period"].append(hunting.period_s == pytest.approx(truth.wave_period_s, rel=0.1))
            right["amplitude"].append(hunting.amplitude == pytest.approx(truth.wave_amplitude_users, rel=0.1))
    for name, found_right in right.items():
        assert len(found_right) >= 34, name
        assert np.mean(found_right) >= 0.95, (name, found_right)


@pytest.mark.untraced
@pytest.mark.slow
def test_the_shift_of_simulated_runs_is_true_and_chance_is_not_significant() -> None:
    significant, right, other_waves = [], [], []
    for seed in range(5000, 5025):
        sides = [simulated(seed, 100_000 + 2 * seed + i) for i in range(2)]
        moved = bc.shift(*(found for found, _ in sides))
        true = shift_truth(*(truth for _, truth in sides))
        period, amplitude = compare_waves(*(found.waves for found, _ in sides))
        if period is not None and amplitude is not None:
            other_waves += [period.excludes_zero, amplitude.excludes_zero]
        if moved is not None and true is not None:
            significant.append(moved.significant)
            right.append(abs(moved.users - true) <= max(20.0, 0.05 * abs(true)))
    assert len(right) >= 20
    assert np.mean(right) >= 0.95
    assert sum(significant) <= 1
    assert len(other_waves) >= 40
    assert np.mean(other_waves) <= 0.1


@pytest.mark.untraced
@pytest.mark.slow
def test_a_kink_is_at_the_first_alert() -> None:
    expected, errors = [], []
    for seed in range(5000, 5080):
        found, truth = simulated(seed)
        if found.ramp is None:
            continue
        if found.ramp.kink_s is not None:
            errors.append(found.ramp.kink_s - truth.first_alert_s)
        if truth.first_alert_s > found.ramp.start_s + 60.0 and truth.slopes[0] > 1.2 * truth.slopes[1]:
            expected.append(found.ramp.kink_s is not None)
    assert len(errors) >= 8
    assert np.abs(errors).max() <= 30.0
    assert np.mean(expected) >= 0.8


@cache
def published(folder: Path, side: str) -> Shape:
    return shape(recorded(bc.read(folder / f"{side}.csv.gz", catalogue=CATALOGUE, kind="recorded")))


@pytest.mark.parametrize(
    ("db", "side", "bumps", "onset", "waves"),
    [
        ("postgresql", "base", (1, 1), 210, 2720),
        ("postgresql", "new", (2, 4), 1090, 4045),
        ("mysql", "base", (1, 1), 250, 2915),
        ("mysql", "new", (2, 4), 905, 3440),
    ],
)
def test_the_shapes_of_v10_4(real: Path, db: str, side: str, bumps: tuple[int, int], onset: int, waves: int) -> None:
    found = published(real / f"comparisons/v10.4/{db}_unbounded", side)
    assert bumps[0] <= len(found.beginning.bumps) <= bumps[1]
    assert found.beginning.onset_s == pytest.approx(onset, abs=90.0)
    assert (found.waves.onset_s, found.waves.claimed) == (pytest.approx(waves, abs=180.0), True)
    assert sure(found.ramp).slope == pytest.approx(2.1, rel=0.08)


@pytest.mark.parametrize(("db", "behind"), [("postgresql", -1600), ("mysql", -900)])
def test_the_shift_of_v10_4(real: Path, db: str, behind: int) -> None:
    folder = real / f"comparisons/v10.4/{db}_unbounded"
    moved = sure(bc.shift(published(folder, "base"), published(folder, "new")))
    assert moved.users == pytest.approx(behind, rel=0.1)
    assert moved.users_ci[0] < behind < moved.users_ci[1]
    assert moved.significant


def test_the_early_bump_came_with_a_data_set_and_went_with_it(real: Path) -> None:
    bumpy = ("v9.2", "v9.5", "v9.6", "v9.8", "v9.10", "v10.1", "v10.4")
    there, elsewhere = [], []
    for folder in test_folders(real):
        if folder.name.endswith("unbounded"):
            for side in ("base", "new"):
                bumps = published(folder, side).beginning.bumps
                (there if folder.parent.name in bumpy else elsewhere).append(bool(bumps))
    assert (len(there), len(elsewhere), sum(elsewhere)) == (28, 40, 0)
    assert sum(there) >= 26


@pytest.mark.parametrize(("config", "last_part", "period"), [("1.1", 1.0, (145, 180)), ("1.3", 1 / 3, (110, 170))])
@pytest.mark.parametrize("replicate", [1, 2, 3])
def test_waves_of_ceiling_runs(
    real: Path, config: str, last_part: float, period: tuple[int, int], replicate: int
) -> None:
    curve = recorded(bc.read(real / f"ceiling/v1-{config}-{replicate}.out.gz", catalogue=CATALOGUE, kind="ltctl"))
    stop_s = sure(find_stop(curve)).at_s
    onset_s = max(shape(curve).waves.onset_s or 0.0, (1.0 - last_part) * stop_s)
    assert period[0] <= sure(bc.waves(prepared(curve, stop_s), onset_s=onset_s).period_s) <= period[1]


def test_identical_published_runs_show_no_shift_and_the_same_waves(real: Path) -> None:
    """Three runs of each configuration in which nothing changed; v2 by its goroutines."""
    setups: dict[str, list[Shape]] = {}
    for file in sorted((real / "ceiling").glob("*.gz")):
        if file.stat().st_size > 100:  # one was published empty
            view = view_run(bc.read(file, catalogue=CATALOGUE, kind="ltctl"), "unbounded", CATALOGUE)
            if view.shape is not None:
                setups.setdefault(file.name.rpartition("-")[0], []).append(view.shape)
    pairs = [pair for runs in setups.values() for pair in itertools.combinations(runs, 2)]
    moved = [found.significant for pair in pairs if (found := bc.shift(*pair)) is not None]
    assert len(moved) >= 20
    assert sum(moved) <= 1
    claimed = [pair for pair in pairs if all(each.waves.claimed for each in pair)]
    other = [each for pair in claimed for each in compare_waves(*(shape.waves for shape in pair)) if each is not None]
    assert len(other) >= 20
    assert np.mean([each.excludes_zero for each in other]) <= 0.05
