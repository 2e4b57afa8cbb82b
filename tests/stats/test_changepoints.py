"""The exact search against brute force; penalties against simulated runs whose truth is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

import buildcompare as bc
from buildcompare.stats.changepoints import ar1_noise, penalty_factor, segment_means
from loadcalibrate.penalty import no_change_of, no_change_penalty


def ar1(rng: np.random.Generator, size: int, phi: float) -> np.ndarray:
    shocks = rng.standard_normal(size + 300) * math.sqrt(1.0 - phi**2)
    return lfilter([1.0], [1.0, -phi], shocks)[300:]


def optimum(values: np.ndarray, penalty: float) -> float:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    squares = np.concatenate([[0.0], np.cumsum(values**2)])
    best = np.zeros(values.size + 1)
    best[0] = -penalty
    for end in range(1, values.size + 1):
        start = np.arange(end)
        cost = squares[end] - squares[start] - (sums[end] - sums[start]) ** 2 / (end - start)
        best[end] = (best[start] + penalty + cost).min()
    return float(best[-1])


def signal(seed: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size)
    if seed % 5 == 1:
        return np.round(values)
    if seed % 5 == 2:
        return values + np.repeat(rng.normal(0, 3, size // 12 + 1), 12)[:size]
    if seed % 5 == 3:
        return np.cumsum(values)
    if seed % 5 == 4:
        return values + 9.0 * (rng.random(size) < 0.05)
    return values


def cost_of(values: np.ndarray, changes: tuple[int, ...], penalty: float) -> float:
    return float(((values - segment_means(values, changes)) ** 2).sum()) + penalty * len(changes)


@given(st.integers(0, 10**6), st.integers(2, 300), st.sampled_from([0.05, 1.0, 6.0, 30.0]))
def test_no_segmentation_is_better(seed: int, size: int, penalty: float) -> None:
    values = signal(seed, size)
    found = bc.best_segmentation(values, penalty)
    assert list(found) == sorted(set(found))
    assert cost_of(values, found, penalty) == pytest.approx(optimum(values, penalty), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("phi", "steps", "per_variance"), [(0.0, 0, 9), (0.0, 20, 26), (0.9, 20, 12), (0.5, 100, 12)])
def test_a_series_of_many_steps_is_searched_as_exactly(phi: float, steps: int, per_variance: float) -> None:
    rng = np.random.default_rng(7)
    values = ar1(rng, 1080, phi)
    for at in rng.choice(np.arange(1, values.size), steps, replace=False):
        values[at:] += rng.choice([-1.0, 1.0]) * rng.uniform(1.0, 4.0)
    penalty = per_variance * (1.0 + phi) / (1.0 - phi)
    found = bc.best_segmentation(values, penalty)
    assert len(found) >= steps / 8
    assert cost_of(values, found, penalty) == pytest.approx(optimum(values, penalty), rel=1e-10)


def test_what_cannot_be_searched_is_refused() -> None:
    for values in ([1.0, math.nan, 2.0], [[1.0, 2.0]], [1.0, math.inf]):
        with pytest.raises(ValueError, match="values: expected finite numbers"):
            bc.best_segmentation(np.array(values), 1.0)
    for penalty in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="penalty: expected a number above 0"):
            bc.best_segmentation(np.zeros(3), penalty)


@pytest.mark.parametrize("size", [0, 1])
def test_a_series_of_one_sample_has_no_change(size: int) -> None:
    assert bc.best_segmentation(np.ones(size), 1.0) == ()
    assert no_change_penalty(np.ones(size)) == 0.0


@given(st.integers(0, 10**6), st.integers(2, 200))
def test_the_no_change_penalty_is_where_changes_end(seed: int, size: int) -> None:
    values = signal(seed, size)
    penalty = no_change_penalty(values)
    if penalty == 0.0:
        assert np.ptp(values) == 0.0
        return
    assert bc.best_segmentation(values, penalty * (1 + 1e-6)) == ()
    assert bc.best_segmentation(values, penalty * (1 - 1e-6)) != ()


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_noise_of_an_ar1_process_is_estimated(phi: float) -> None:
    rng = np.random.default_rng(11)
    noises = [ar1_noise(ar1(rng, 400, phi) + 3.0 * (np.arange(400) > 150), (151,)) for _ in range(200)]
    assert np.mean([each.phi for each in noises]) == pytest.approx(phi, abs=0.04)
    assert np.median([each.long_run_variance for each in noises]) == pytest.approx((1 + phi) / (1 - phi), rel=0.2)
    means = [ar1(rng, 50, phi).mean() for _ in range(2000)]
    assert np.mean([each.mean_variance(50) for each in noises]) == pytest.approx(np.var(means), rel=0.2)


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize(("phi", "size"), [(0.0, 1080), (0.5, 1080), (0.9, 1080), (0.5, 75)])
def test_without_calibration_false_alarms_are_few_and_a_step_is_found(phi: float, size: int) -> None:
    rng = np.random.default_rng(12)
    step = 2.0 * (np.arange(size) >= size // 2)
    false = [bool(bc.changepoints(ar1(rng, size, phi)).changes) for _ in range(150)]
    found = [bool(bc.changepoints(ar1(rng, size, phi) + step).changes) for _ in range(60)]
    assert np.mean(false) <= 0.10
    assert np.mean(found) >= 0.60


@pytest.mark.untraced
@pytest.mark.slow
def test_with_calibration_false_alarms_are_rare_and_a_step_is_found() -> None:
    rng = np.random.default_rng(13)
    step = 2.0 * (np.arange(1080) >= 540)
    penalties = [penalty_factor([no_change_of(ar1(rng, 1080, 0.9)) for _ in range(20)]) for _ in range(10)]
    runs = [(penalty, ar1(rng, 1080, 0.9)) for penalty in penalties for _ in range(20)]
    assert bc.changepoints(runs[0][1], factor=runs[0][0]).calibrated
    false = [bool(bc.changepoints(run, factor=penalty).changes) for penalty, run in runs]
    found = [
        any(abs(at - 540) <= 50 for at in bc.changepoints(run + step, factor=penalty).changes)
        for penalty, run in runs[::3]
    ]
    assert np.mean(false) <= 0.07  # 5 % over many calibrations (benchmarks/events.py); 200 runs here
    assert np.mean(found) >= 0.85


def test_a_calibrated_penalty_is_beyond_every_run_that_it_learned_from() -> None:
    rng = np.random.default_rng(14)
    runs = [ar1(rng, 300, 0.8) for _ in range(10)]
    factor = penalty_factor([no_change_of(run) for run in runs])
    for run in runs:
        assert no_change_of(run) <= factor * (1 + 1e-9)
        assert bc.changepoints(run, factor=factor).changes == ()


@pytest.mark.parametrize("no_change", [(1.0,) * 9, (1.0,) * 9 + (0.0,)])
def test_a_calibration_needs_ten_runs(no_change: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="at least 10 numbers above 0"):
        penalty_factor(no_change)


def test_a_series_without_noise_shows_its_step_and_nothing_else() -> None:
    early = np.arange(100) < 70
    assert bc.changepoints(np.full(100, 5003.0)).changes == ()
    assert bc.changepoints(np.where(early, 5003.0, 4546.0)).changes == (70,)
    assert bc.changepoints(np.repeat([0.0, 9.0], 5)).changes == (), "too short"


def test_an_outlier_is_no_change_and_hides_none() -> None:
    rng = np.random.default_rng(16)
    values = ar1(rng, 300, 0.3) + 3.0 * (np.arange(300) >= 150)
    values[[40, 41, 90, 200, 250]] += (25.0, 25.0, -40.0, 60.0, 30.0)
    assert bc.changepoints(values).changes == pytest.approx((150,), abs=4)
