"""What a watch decides of runs whose truth is known: faults, regressions, and identical builds."""

import numpy as np
import pytest

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Test
from buildcompare.recordings.recording import Recording
from loadwatch.decide import Code, Decision, decide
from loadwatch.look import Watched
from planted import faults, scaled
from simulated import BOUNDED, UNBOUNDED, run

CATALOGUE = read_catalogue("mattermost")
RAMP_S, HELD_S = 700.0, 2400.0
PLANTED = faults(RAMP_S, HELD_S)


def watched(base: Recording, new: Recording, kind: str = "bounded", users: int = 5000) -> Watched:
    runs = [Run(recording="any.parquet")]
    test = Test(name="t", type=kind, users=users, base=runs, new=runs)
    return Watched(test, CATALOGUE, [base], new.duration_s, labels=("v8.6.0", "v8.7.0"))


def ending(test: Watched, new: Recording, since_s: float = 60.0, every_s: float = 60.0) -> Decision:
    """The first decision that ends the watch."""
    times = np.append(np.arange(since_s, test.length_s, every_s), test.length_s)
    looks = (decide(test, new, float(at_s))[0] for at_s in times)
    return next(each for each in looks if each.code != Code.RUNNING)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_certain_within_five_minutes(name: str) -> None:
    base, valid = run(BOUNDED, 2).recording, run(BOUNDED, 3).recording
    since_s, plant = PLANTED[name]
    new = plant(valid)
    test = watched(base, new)
    before = np.arange(max(since_s - 120.0, 60.0), since_s + 1.0, 60.0)
    assert all(decide(test, new, float(at_s))[0].fault is None for at_s in before)
    late_s = 600.0 if since_s == 0.0 else since_s + 300.0  # a fault of the load shows under load
    found = ending(test, new, since_s + 60.0)
    assert (found.code, found.at_s <= late_s) == (Code.INVALID, True), found.text


def test_identical_builds_are_stopped_for_no_fault_and_no_regression() -> None:
    runs = [run(BOUNDED, seed).recording for seed in (2, 3)]
    for base, new in (runs, runs[::-1]):
        found = ending(watched(base, new), new, every_s=300.0)
        assert (found.code in (Code.ENOUGH, Code.FINISHED), found.verdict) == (True, "pass"), found.text
        row = found.rows[0]
        assert row.end_low <= row.change_percent <= row.end_high


def test_a_large_regression_is_certain_long_before_the_end() -> None:
    base, new = run(BOUNDED, 2).recording, scaled(run(BOUNDED, 3).recording, 2.5, 0.0, "p99-api-times", "avg-api-times")
    found = ending(watched(base, new), new, every_s=300.0)
    assert (found.code, found.verdict) == (Code.REGRESSION, "regression"), found.text
    assert found.at_s < 0.8 * found.length_s


def test_a_loss_of_users_is_certain_once_both_curves_left_their_ramps() -> None:
    base = run(UNBOUNDED, 1).recording
    new = run(UNBOUNDED, 2).recording
    lost = scaled(new, 0.7, 0.0, "number-of-connected-devices")
    found = ending(watched(base, lost, "unbounded", 20_000), lost, every_s=600.0)
    assert (found.code, found.rows[0].end_low) == (Code.REGRESSION, None), found.text
    assert ending(watched(base, new, "unbounded", 20_000), new, every_s=600.0).code == Code.FINISHED
