"""How did the load come up: when were how many users connected?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class TimeToUsers:
    """When a curve first reached each of some round numbers of users."""

    levels: int = 5
    """About how many round numbers up to the lowest plateau."""

    def marks(self, plateaus: list[float]) -> list[int]:
        """Round numbers of users that every curve with one of these plateaus should reach."""
        lowest = min(plateaus, default=0.0)
        if not lowest > self.levels:
            return []
        raw = lowest / self.levels
        magnitude = 10.0 ** math.floor(math.log10(raw))
        step = max(int(next(nice * magnitude for nice in (1, 2, 5, 10) if nice * magnitude >= raw)), 1)
        return list(range(step, int(lowest) + 1, step))

    def __call__(self, users: pd.Series, marks: list[int]) -> dict[int, float | None]:
        """Elapsed seconds at which `users` first reached each mark; None where it never did."""
        elapsed, values = users.index.to_numpy(dtype=np.float64), users.to_numpy(dtype=np.float64)
        reached: dict[int, float | None] = {}
        for mark in marks:
            above = np.flatnonzero(values >= mark)
            # Already there at the first sample: the window opened in mid-ramp, the time is unknown.
            reached[mark] = float(elapsed[above[0]]) if above.size and above[0] > 0 else None
        return reached
