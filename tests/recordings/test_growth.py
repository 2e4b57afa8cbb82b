"""Work grows with an input's size, not with its square."""

from pathlib import Path

import pytest

import growth

GROWN, NOISE_S = 16, 0.03


@pytest.mark.slow
@pytest.mark.parametrize("name", growth.CASES)
def test_work_grows_no_faster_than_its_input(name: str, tmp_path: Path) -> None:
    """Sixteen times the input may take three times sixteen times the work; the square would be 256 times."""
    kind, make, most = growth.CASES[name]
    small, large = (make(max(most // part, 10)) for part in (64 * GROWN, 64))
    growth.takes_s(kind, small, tmp_path)  # imports
    before = min(growth.takes_s(kind, small, tmp_path) for _ in range(3))
    assert growth.takes_s(kind, large, tmp_path) < 3 * GROWN * max(before, NOISE_S / GROWN)
