"""Errors against known truth: chains of counts that were drawn, and one that everybody would see."""

from __future__ import annotations

import math

import numpy as np
import pytest

from buildcompare.history.error_counts import ErrorCounts, FindErrorChanges


def drawn(seed: int, count: int, sd: float = 0.07) -> list[ErrorCounts]:
    rng = np.random.default_rng(seed)
    base = rng.uniform(1_500, 8_000, count)
    new = base * np.exp(rng.normal(size=count) * sd)
    return [ErrorCounts(f"c{i}", float(b), float(n)) for i, (b, n) in enumerate(zip(base, new, strict=True))]


def test_nothing_is_said_of_a_chain_in_which_nothing_happened() -> None:
    assert sum(bool(FindErrorChanges()(drawn(seed, 30))) for seed in range(30_000, 30_200)) == 0
    few = [FindErrorChanges()([ErrorCounts(f"c{i}", 3, [2, 3, 5][i % 3]) for i in range(9)])]
    assert few == [[]], "single errors are chance"


def test_errors_that_triple_are_found() -> None:
    found = 0
    for seed in range(30_000, 30_100):
        chain = drawn(seed, 30)
        chain[12] = ErrorCounts("c12", chain[12].base, 3.0 * chain[12].new)
        changes = FindErrorChanges()(chain)
        found += [each.counts.comparison for each in changes] == ["c12"]
    assert found >= 99


@pytest.mark.parametrize("load", [1.0, 2.0])
def test_errors_count_relative_to_the_load(load: float) -> None:
    chain = drawn(1, 20)
    chain[3] = ErrorCounts("c3", 2_000.0, 4_000.0, 5_000.0, 5_000.0 * load)
    changes = FindErrorChanges()(chain)
    assert [each.counts.comparison for each in changes] == ([] if load == 2.0 else ["c3"])
    assert all(each.percent == pytest.approx(100.0) for each in changes)
    assert all(each.usual_percent == pytest.approx(100 * math.expm1(0.07), rel=0.5) for each in changes)


def test_too_few_comparisons_or_none_with_errors_in_both_builds_say_nothing() -> None:
    chain = drawn(1, 4)
    chain[0] = ErrorCounts("c0", 100.0, 100_000.0)
    assert FindErrorChanges()(chain) == []
    assert FindErrorChanges()([ErrorCounts(f"c{i}", 0.0, 5.0) for i in range(9)]) == []
