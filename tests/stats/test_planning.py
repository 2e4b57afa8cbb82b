"""What further runs would show, and at which level a look is judged that is not the first."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from buildcompare.results.codes import Better, NoiseSource, Status
from buildcompare.stats.effects import Effect, judge
from buildcompare.stats.planning import (
    SPENT,
    Looks,
    enough_runs,
    levels,
    look_level,
    plan_runs,
    spent_early,
    spent_late,
)
from support import sure


def status(runs: np.ndarray, df: float, known: float, margin: float, looks: Looks | None) -> Status:
    """How runs of shape (2, n) are judged by a noise `known` with `df` degrees of freedom."""
    n = runs.shape[1]
    squares = float(((runs - runs.mean(axis=1, keepdims=True)) ** 2).sum())
    sd = math.sqrt((df * known**2 + squares) / (df + 2.0 * (n - 1)))
    change = float(runs[1].mean() - runs[0].mean())
    effect = Effect(change, sd * math.sqrt(2.0 / n), df + 2.0 * (n - 1), sd, NoiseSource.CATALOGUE)
    return judge(effect, margin, Better.LOWER, looks=looks).status


@pytest.mark.parametrize("spending", [spent_early, spent_late])
def test_levels_spend_what_they_may(spending: Callable[[float], float]) -> None:
    """Against a simulation of the sums themselves."""
    parts = (0.25, 0.5, 0.75, 1.0)
    found = levels(tuple((4.0 * part, part) for part in parts), spending)
    sums = np.cumsum(np.random.default_rng(3).normal(size=(200_000, 4)), axis=1)
    p_values = 2.0 * special.ndtr(-np.abs(sums) / np.sqrt(np.arange(1, 5)))
    called = np.maximum.accumulate(p_values < found, axis=1).mean(axis=0)
    assert called == pytest.approx([spending(part) for part in parts], abs=0.002)
    assert spending(1.0) == pytest.approx(SPENT)


def test_one_look_is_judged_as_ever() -> None:
    assert look_level([1]) == look_level([3]) == look_level([3], planned=3) == look_level([3], planned=2) == 0.05
    assert look_level([1, 1]) == 0.05  # the same runs again are no further look
    assert look_level([1], planned=3) < look_level([1, 2], planned=3) < look_level([1, 2, 3], planned=3) < 0.05
    assert look_level([1, 2, 3]) == look_level([3, 1, 2])
    assert look_level([1, 9, 10]) == look_level([1, 9])  # beyond what was planned the level stays


@pytest.mark.untraced
@pytest.mark.parametrize("planned", [None, 9.0])
@pytest.mark.parametrize("df", [5.0, 8.0, 15.0])
def test_all_further_looks_together_call_no_more_than_one_should(df: float, planned: float | None) -> None:
    rng = np.random.default_rng([31, int(df)])
    called = naive = worse = 0
    repetitions = 1200
    for _ in range(repetitions):
        known, runs = 0.05 * math.sqrt(rng.chisquare(df) / df), rng.normal(0.0, 0.05, (2, 9))
        looks = [Looks(tuple(map(float, range(1, n + 1))), planned) for n in range(1, 10)]
        seen = [status(runs[:, :n], df, known, 0.1, looks[n - 1]) for n in range(1, 10)]
        called += any(each.changed for each in (seen if planned else seen[1:]))
        worse += Status.REGRESSION in seen
        naive += any(status(runs[:, :n], df, known, 0.1, None).changed for n in range(1, 10))
    assert called / repetitions <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repetitions)
    assert worse / repetitions <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repetitions)  # the first look included
    assert naive / repetitions > 0.15


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("df", "sd", "margin"), [(5.0, 0.03, 5.0), (8.0, 0.056, 10.0), (15.0, 0.08, 10.0), (5.0, 0.03, 10.0)]
)
def test_what_was_planned_is_found(df: float, sd: float, margin: float) -> None:
    rng = np.random.default_rng(32)
    for further in (1, 3):
        step = plan_runs(sd, df, margin_percent=margin)[further - 1]
        last, found, excluded = further + 1, 0, 0
        looks = Looks((1.0, float(last)), float(last))
        for _ in range(600):
            true_sd = sd / math.sqrt(rng.chisquare(df) / df)  # what is known of the noise is an estimate
            runs = rng.normal(0.0, true_sd, (2, last))
            slower = runs + np.array([[0.0], [math.log1p(step.found_percent / 100.0)]])
            found += status(slower, df, sd, margin, looks).changed
            bound = step.no_worse_than_percent or 0.0
            excluded += status(runs, df, sd, max(bound / 2.0, 0.1), looks) != Status.INCONCLUSIVE
        assert 0.72 <= found / 600 <= 0.86
        assert excluded / 600 >= 0.72


@pytest.mark.untraced
@pytest.mark.parametrize("known", [True, False], ids=["noise known", "noise estimated"])
@pytest.mark.parametrize(("df", "sd", "margin"), [(5.0, 0.056, 10.0), (8.0, 0.03, 5.0), (15.0, 0.08, 10.0)])
def test_the_runs_that_settle_it_settle_four_of_five_cases(df: float, sd: float, margin: float, known: bool) -> None:
    """Of rows that were undecided after the first look, where the change is the one that the sentence names."""
    rng = np.random.default_rng(33)
    settled = []
    for _ in range(1000):
        noise = sd if known else sd * math.sqrt(rng.chisquare(df) / df)
        enough = sure(enough_runs(noise, df, margin_percent=margin))
        assert enough.found_percent <= margin
        last = enough.further + 1
        runs = rng.normal(0.0, sd, (2, last))
        runs[1] += math.log1p(enough.found_percent / 100.0)
        if status(runs[:, :1], df, noise, margin, None) == Status.INCONCLUSIVE:
            settled.append(status(runs, df, noise, margin, Looks((1.0, last), last)).changed)
    assert len(settled) > 500
    assert 0.75 <= np.mean(settled) <= 0.86


def test_more_runs_show_more() -> None:
    steps = plan_runs(0.06, 8.0, margin_percent=10.0, family=2, better="neutral")
    assert [step.further for step in steps] == [*range(1, 9)]
    assert all(one.found_percent > two.found_percent for one, two in itertools.pairwise(steps))
    assert {step.no_worse_than_percent for step in steps} == {None}
    alone = plan_runs(0.06, 8.0, margin_percent=10.0)
    assert alone[0].found_percent < steps[0].found_percent
    fewer, more = (plan_runs(0.06, 8.0, margin_percent=1.0, better=each)[0] for each in ("higher", "lower"))
    assert sure(fewer.no_worse_than_percent) < sure(more.no_worse_than_percent)  # halved: doubled
    assert enough_runs(2.0, 8.0, margin_percent=0.1) is None
