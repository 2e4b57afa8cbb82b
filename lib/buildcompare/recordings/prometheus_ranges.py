"""Which pieces is a window asked for in, so that each stays within what a server answers at once?"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from buildcompare.config.errors import InputError

MAX_POINTS = 10_999
"""Points of one piece: a server refuses more than 11,000 steps in a query."""
MAX_PIECES = 500
"""Bound on the pieces of one window: 5.5 million points per series, a year at 6 s."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Grid:
    """The times ``start + k * step`` up to the end, in whole milliseconds, which is what servers count in."""

    start_ms: int
    end_ms: int
    step_ms: int

    @property
    def points(self) -> int:
        """How many times there are."""
        return (self.end_ms - self.start_ms) // self.step_ms + 1

    def pieces(self) -> tuple[Grid, ...]:
        """The same times in pieces that share none.

        Raises
        ------
        InputError
            Where the window has too many points.
        """
        if self.points > MAX_POINTS * MAX_PIECES:
            expected = f"a window of at most {MAX_POINTS * MAX_PIECES:,} points at this step"
            raise InputError(file=None, key="start, end", expected=expected, found=f"{self.points:,}")
        return tuple(
            Grid(self._at(first), self._at(min(first + MAX_POINTS, self.points) - 1), self.step_ms)
            for first in range(0, self.points, MAX_POINTS)
        )

    def parameters(self) -> dict[str, str]:
        """As a server wants them: seconds with exactly three decimals."""
        named = {"start": self.start_ms, "end": self.end_ms, "step": self.step_ms}
        return {name: f"{ms // 1000}.{ms % 1000:03}" for name, ms in named.items()}

    def _at(self, index: int) -> int:
        return self.start_ms + index * self.step_ms


def grid(start: dt.datetime, end: dt.datetime, step_s: float) -> Grid:
    """The grid that begins at `start`, a fraction of a second included; both times have a zone."""
    if start.tzinfo is None or end.tzinfo is None:
        naive = start if start.tzinfo is None else end
        raise InputError(file=None, key="start, end", expected="times with their zone", found=naive.isoformat())
    return Grid(_milliseconds(start), _milliseconds(end), round(step_s * 1000))


def _milliseconds(instant: dt.datetime) -> int:
    microseconds = (instant - _EPOCH) // dt.timedelta(microseconds=1)
    return (microseconds + 500) // 1000
