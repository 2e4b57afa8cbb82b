"""Errors against known truth: chains of counts that were drawn, and one that everybody would see."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from buildcompare.history.drift import find_error_changes


def drawn(seed: int, count: int, sd: float = 0.07) -> pd.DataFrame:
    """A chain of one test: errors of both builds, and the users that they support."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(1_500, 8_000, count)
    new = base * np.exp(rng.normal(size=count) * sd)
    return chain(base, new)


def chain(base: np.ndarray, new: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"errors_base": base, "errors_new": new}).assign(
        comparison=[f"c{i}" for i in range(len(base))], key="k", type="unbounded", users_base=1.0, users_new=1.0
    )


def test_nothing_is_said_of_a_chain_in_which_nothing_happened() -> None:
    assert sum(not find_error_changes(drawn(seed, 30)).empty for seed in range(30_000, 30_200)) == 0
    few = chain(np.full(9, 3.0), np.array([[2.0, 3.0, 5.0][i % 3] for i in range(9)]))
    assert find_error_changes(few).empty, "single errors are chance"


def test_errors_that_triple_are_found() -> None:
    found = 0
    for seed in range(30_000, 30_100):
        tests = drawn(seed, 30)
        tests["errors_new"] *= np.where(tests.index == 12, 3.0, 1.0)
        found += list(find_error_changes(tests)["comparison"]) == ["c12"]
    assert found >= 99


@pytest.mark.parametrize("load", [1.0, 2.0])
def test_errors_count_relative_to_the_load(load: float) -> None:
    tests = drawn(1, 20)
    columns = ["errors_base", "errors_new", "users_base", "users_new"]
    tests.loc[3, columns] = [2_000.0, 4_000.0, 5_000.0, 5_000.0 * load]
    changes = find_error_changes(tests)
    assert list(changes["comparison"]) == ([] if load == 2.0 else ["c3"])
    assert list(changes["delta_percent"]) == pytest.approx([100.0] * len(changes))
    assert list(changes["usual_percent"]) == pytest.approx([100 * math.expm1(0.07)] * len(changes), rel=0.5)
    bounded = find_error_changes(tests.assign(type="bounded"))
    assert list(bounded["comparison"]) == ["c3"], "in a bounded test both builds serve the same users"


def test_too_few_comparisons_or_none_with_errors_in_both_builds_say_nothing() -> None:
    tests = drawn(1, 4)
    tests.loc[0, ["errors_base", "errors_new"]] = [100.0, 100_000.0]
    assert find_error_changes(tests).empty
    assert find_error_changes(chain(np.zeros(9), np.full(9, 5.0))).empty
