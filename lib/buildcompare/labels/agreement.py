"""Find the labels that several tests of one comparison call slower, beyond what chance shows.

Single rows of long tables are marked by chance. The same label marked in two tests that ran at other times, or on
another database, hardly ever is: how often can be counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

ALPHA = 0.01
"""Part of the unchanged rows that are marked in one direction: half of the label tables' error rate."""
LEANING = 0.1
"""One-sided p-value below which a row leans, as it does for a verdict."""
LEAST_PERCENT = 5.0
"""A smaller change does not lean: half of the label tables' margin."""
MOST_EXPECTED = 1.0
"""What chance shows this often or oftener is left out."""


@dataclass(frozen=True)
class LabelInTest:
    """One label in one test: its change in percent, one-sided p-value of that direction, and whether it is marked."""

    test: str
    delta_percent: float
    p_value: float
    marked: bool

    @property
    def slower(self) -> bool:
        """Whether it is marked as slower or leans that way."""
        return self.delta_percent > 0 and (
            self.marked or (self.delta_percent >= LEAST_PERCENT and self.p_value < LEANING)
        )


@dataclass(frozen=True)
class Agreement:
    """A label that became slower in several tests."""

    label: Hashable
    rows: tuple[LabelInTest, ...]
    """The tests that mark it or lean the same way, the largest change first."""
    marked: int
    """How many of them mark it."""
    expected: float
    """How many labels of all at hand would be marked, and lean or be marked, in as many tests where nothing changed."""


def agreeing_labels(labels: Mapping[Hashable, Sequence[LabelInTest]]) -> list[Agreement]:
    """Labels that one test at least marks as slower and others mark or lean towards, the surest first."""
    found = []
    tests = Counter(len(rows) for rows in labels.values())
    for label, rows in labels.items():
        slower = sorted((row for row in rows if row.slower), key=lambda row: -row.delta_percent)
        marked = sum(row.marked for row in slower)
        if marked and len(slower) > 1:
            expected = math.fsum(times * _chance(marked, len(slower), count) for count, times in tests.items())
            if expected < MOST_EXPECTED:
                found.append(Agreement(label, tuple(slower), marked, expected))

    def mean_percent(each: Agreement) -> float:
        return math.fsum(row.delta_percent for row in each.rows) / len(each.rows)

    return sorted(found, key=lambda each: (each.expected, -mean_percent(each), str(each.label)))


def _chance(marked: int, slower: int, tests: int) -> float:
    """Probability that as many of `tests` independent rows are marked and slower where nothing changed."""
    from scipy import stats

    both = range(slower, tests + 1)
    return float(sum(stats.binom.pmf(n, tests, LEANING) * stats.binom.sf(marked - 1, n, ALPHA / LEANING) for n in both))
