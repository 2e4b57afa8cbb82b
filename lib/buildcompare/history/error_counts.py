"""Did a build fail more often than the builds of other comparisons do? Errors of two builds, relative to their load.

Counts of errors have no run-to-run deviation that anybody published, so each comparison of a chain is held against all
others: where new and base differ as they never do elsewhere, the build or its setup is the likely reason. Within one
comparison no chain tells what is usual: there `findings.error_rates` goes by a doubling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from buildcompare.history.drift import MAD_TO_SD


@dataclass(frozen=True)
class ErrorCounts:
    """Errors of both builds in one test of one comparison.

    Attributes
    ----------
    base_load, new_load
        What they are relative to, in any unit (users that the build supports); equal in tests at a fixed load.
    """

    comparison: str
    base: float
    new: float
    base_load: float = 1.0
    new_load: float = 1.0

    @property
    def log_ratio(self) -> float:
        """Logarithm of new over base, both relative to their load."""
        return math.log(self.new / self.base) - math.log(self.new_load / self.base_load)


@dataclass(frozen=True)
class ErrorChange:
    """Errors that changed as they do in no other comparison.

    Attributes
    ----------
    percent
        Change relative to the load.
    usual_percent
        Robust standard deviation of that change over the chain.
    z
        The change in those, the chance of counting (Poisson) included.
    comparisons
        How many it was learned from.
    """

    counts: ErrorCounts
    percent: float
    usual_percent: float
    z: float
    comparisons: int


@dataclass(frozen=True)
class FindErrorChanges:
    """The comparisons of a chain whose errors changed by more than 3.5 robust standard deviations and by half or more.

    The rule is that of level jumps (Iglewicz & Hoaglin 1993). By itself it calls too much: published counts have
    heavier tails than a normal distribution (9 of 25 bounded MySQL tests lie beyond it), so a change must be large too.
    """

    outlier: float = 3.5
    least_factor: float = 1.5
    """Half as many again, or a third fewer: what people would call more errors without a calculation."""
    least_comparisons: int = 5

    def __call__(self, chain: Sequence[ErrorCounts]) -> list[ErrorChange]:
        """Look at one test's counts over a chain; those without an error in one build say nothing of a ratio."""
        known = [each for each in chain if min(each.base, each.new, each.base_load, each.new_load) > 0]
        if len(known) < self.least_comparisons:
            return []
        ratios = np.array([each.log_ratio for each in known])
        usual = MAD_TO_SD * float(np.median(np.abs(ratios)))
        found = []
        for each, ratio in zip(known, ratios.tolist(), strict=True):
            z = ratio / math.sqrt(usual**2 + 1.0 / each.base + 1.0 / each.new)
            if abs(z) > self.outlier and abs(ratio) > math.log(self.least_factor):
                percents = (100.0 * math.expm1(ratio), 100.0 * math.expm1(usual))
                found.append(ErrorChange(each, *percents, z, len(known)))
        return found
