"""Comparisons of random tables equal an independent computation (tests/independent.py tries more)."""

import pytest

import independent


@pytest.mark.parametrize("seed", range(4))
def test_a_comparison_equals_plain_sums_in_any_order_unit_and_direction(seed: int) -> None:
    assert independent.wrong(seed) == []
