"""Errors against known truth: chains of counts that were drawn, and one that everybody would see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from buildcompare.history.chain import Chain, ErrorChange
from buildcompare.history.ledger import Entry, LedgerBuild, LedgerTest
from buildcompare.results.codes import NoiseSource, Pair
from buildcompare.stats.noise import Noise

NOISE = Noise(0.018, math.inf, NoiseSource.CATALOGUE)


def drawn(seed: int, count: int, sd: float = 0.07) -> tuple[np.ndarray, np.ndarray]:
    """Errors of both builds along a chain of one test."""
    rng = np.random.default_rng(seed)
    base = rng.uniform(1_500, 8_000, count)
    new = base * np.exp(rng.normal(size=count) * sd)
    return base, new


def changes(
    base: np.ndarray,
    new: np.ndarray,
    *,
    loads: Mapping[int, tuple[float, float]] | None = None,
    kind: str = "unbounded",
) -> list[tuple[str, ErrorChange]]:
    """What is found in a chain in which both builds support one user, but for comparisons with other `loads`."""
    users = [Pair(*(loads or {}).get(i, (1.0, 1.0))) for i in range(base.size)]
    return changes_in({"t": (base, new)}, kind=kind, users=users)


def changes_in(
    tests: Mapping[str, tuple[np.ndarray, np.ndarray]], *, kind: str = "bounded", users: Sequence[Any] | None = None
) -> list[tuple[str, ErrorChange]]:
    """What is found in a chain of several tests, each with the errors of both builds, in so many comparisons."""
    build = LedgerBuild(label="x")
    chain = []
    for i in range(len(next(iter(tests.values()))[0])):
        about = {"type": kind, "supported_users": users and users[i]}
        counted = [
            LedgerTest.model_validate({**about, "name": name, "errors": Pair(base[i], new[i])})
            for name, (base, new) in tests.items()
        ]
        chain.append(Entry(name=f"c{i}", position=i + 1, base=build, new=build, tests=counted, source="report"))
    analysed = Chain(chain, NOISE)
    return [(entry.name, change) for place, entry in enumerate(chain) for change in analysed.step(place).errors]


def test_nothing_is_said_of_a_chain_in_which_nothing_happened() -> None:
    assert not changes_in({f"t{seed}": drawn(seed, 30) for seed in range(30_000, 30_200)})
    few = changes(np.full(9, 3.0), np.array([[2.0, 3.0, 5.0][i % 3] for i in range(9)]))
    assert not few, "single errors are chance"


def test_errors_that_triple_are_found() -> None:
    chains = {f"t{seed}": drawn(seed, 30) for seed in range(30_000, 30_100)}
    for _, new in chains.values():
        new[12] *= 3.0
    found = [(name, change.test.name) for name, change in changes_in(chains)]
    assert {name for name, _ in found} == {"c12"}
    assert len(found) >= 99


@pytest.mark.parametrize("load", [1.0, 2.0])
def test_errors_count_relative_to_the_load(load: float) -> None:
    base, new = drawn(1, 20)
    base[3], new[3] = 2_000.0, 4_000.0
    loads = {3: (5_000.0, 5_000.0 * load)}
    found = changes(base, new, loads=loads)
    assert [name for name, _ in found] == ([] if load == 2.0 else ["c3"])
    assert [each.delta_percent for _, each in found] == pytest.approx([100.0] * len(found))
    assert [each.usual_percent for _, each in found] == pytest.approx([100 * math.expm1(0.07)] * len(found), rel=0.5)
    bounded = changes(base, new, loads=loads, kind="bounded")
    assert [name for name, _ in bounded] == ["c3"], "in a bounded test both builds serve the same users"


def test_too_few_comparisons_or_none_with_errors_in_both_builds_say_nothing() -> None:
    base, new = drawn(1, 4)
    base[0], new[0] = 100.0, 100_000.0
    assert not changes(base, new)
    assert not changes(np.zeros(9), np.full(9, 5.0))
