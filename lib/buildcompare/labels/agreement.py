"""Which labels do several tests of one comparison call changed, and is that more than chance?

Single rows of long tables are marked by chance. The same label marked in two tests that ran at other times, or on
another database, hardly ever is: how often can be counted.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Row:
    """One label in one test: its change in percent, one-sided p-value of that direction, and whether it is marked."""

    test: str
    delta_percent: float
    p_value: float
    marked: bool


@dataclass(frozen=True)
class Agreement:
    """A label that moved one way in several tests.

    Attributes
    ----------
    rows
        The tests that mark it or lean the same way, the largest change first.
    marked
        How many of them mark it.
    expected
        How many labels of all at hand would be marked, and lean or be marked, in as many tests where nothing changed.
    """

    label: Hashable
    rows: tuple[Row, ...]
    marked: int
    expected: float


@dataclass(frozen=True)
class FindAgreement:
    """Labels that one test at least marks, and others mark or lean towards, beyond what chance shows anyway.

    Parameters
    ----------
    alpha
        Part of the unchanged rows that are marked in one direction: half of the label tables' error rate.
    leaning
        One-sided p-value below which a row leans, as it does for a verdict.
    least_percent
        A smaller change does not lean: half of the label tables' margin.
    most_expected
        What chance shows this often or oftener sinks.
    """

    alpha: float = 0.01
    leaning: float = 0.1
    least_percent: float = 5.0
    most_expected: float = 1.0

    def __call__(self, labels: Mapping[Hashable, Sequence[Row]], *, rising: bool = True) -> tuple[Agreement, ...]:
        """The labels that rose (or fell), those marked in the most tests first; one row for each test and label."""
        found = []
        for label, rows in labels.items():
            agreeing = sorted(
                (row for row in rows if self._agrees(row, rising=rising)), key=lambda row: -abs(row.delta_percent)
            )
            marked = sum(row.marked for row in agreeing)
            if marked and len(agreeing) > 1:
                chance = sum(self._chance(marked, len(agreeing), len(each)) for each in labels.values())
                if chance < self.most_expected:
                    found.append(Agreement(label, tuple(agreeing), marked, chance))
        return tuple(sorted(found, key=lambda each: (each.expected, -_mean(each.rows), str(each.label))))

    def _chance(self, marked: int, agreeing: int, tests: int) -> float:
        """Probability that as many of `tests` independent rows are marked and agree where nothing changed."""
        total = 0.0
        for both in range(agreeing, tests + 1):
            of_these = float(stats.binom.sf(marked - 1, both, self.alpha / self.leaning))
            total += float(stats.binom.pmf(both, tests, self.leaning)) * of_these
        return total

    def _agrees(self, row: Row, *, rising: bool) -> bool:
        if (row.delta_percent > 0) != rising:
            return False
        return row.marked or (abs(row.delta_percent) >= self.least_percent and row.p_value < self.leaning)


def _mean(rows: Sequence[Row]) -> float:
    return math.fsum(abs(row.delta_percent) for row in rows) / len(rows)
