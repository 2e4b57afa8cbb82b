"""Rank variants with ties, and count the runs that would separate them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from buildcompare.results.codes import Better
from buildcompare.stats.effects import Effect, holm
from buildcompare.stats.planning import ALPHA, POWER, enough_runs, percent, quantile
from labmatrix.model import Cell, Levels, Share

SCATTERS = (2.0, 5.0, 10.0, 20.0)
"""Assumed standard deviations of one run, percent. Supported users in Mattermost's ceiling tests vary by 0.6 to 2.8 on
large machines, and by 11 to 26 on the smallest."""
PLAUSIBLE = 20.0  # percent; a difference that exceeds this noise of one run holds on any usual machine


@dataclass(frozen=True)
class Rank:
    """Rank of a cell: between `first` and `last`, from 1."""

    cell: Cell
    first: int
    last: int
    runs_to_next: int | None


def rank_cells(levels: Levels, cells: Sequence[Cell], better: Better) -> list[Rank]:
    """Rank cells, best first; two differ if their contrast is significant among all pairs (Holm 1979)."""
    sign = -1.0 if better == Better.HIGHER else 1.0
    ordered = sorted(cells, key=lambda cell: sign * levels.level(cell))
    pairs = [*itertools.combinations(range(len(ordered)), 2)]
    effects = [levels.effect(ordered[j], ordered[i]) for i, j in pairs]
    adjusted = holm([effect.p_value if effect else 1.0 for effect in effects])
    different = {pair for pair, p in zip(pairs, adjusted, strict=True) if p < ALPHA}
    next_to = {i: effect for (i, j), effect in zip(pairs, effects, strict=True) if j == i + 1}
    ranks = []
    for i, cell in enumerate(ordered):
        above, below = (
            sum((j, i) in different for j in range(i)),
            sum((i, j) in different for j in range(i + 1, len(ordered))),
        )
        effect = None if (i, i + 1) in different else next_to.get(i)
        needed = runs_to_show(effect, family=len(pairs)) if effect and not isinstance(effect, Share) else None
        ranks.append(Rank(cell, above + 1, len(ordered) - below, needed))
    return ranks


def runs_to_show(effect: Effect, *, family: float = 1.0) -> int | None:
    """Runs of each side that would show a difference of this size with 80 % power; None beyond 99."""
    size = percent(abs(effect.log_ratio))
    enough = enough_runs(effect.run_sd, effect.df, margin_percent=size, looks=(effect.runs,), family=family)
    return math.ceil(effect.runs + enough.further) if enough else None


def chance_sd(log_ratio: float, runs: float = 1.0) -> float:
    """Noise of one run, in percent, below which chance does not explain a difference of `runs` runs each.

    >>> round(chance_sd(math.log(4.5)))
    72
    """
    return percent(abs(log_ratio) / quantile(1.0 - ALPHA / 2.0, math.inf) * math.sqrt(runs / 2.0))


def runs_needed(log_ratio: float, *, same_within: float | None = None) -> dict[str, int | None]:
    """Noise of one run in percent -> runs of each variant that would show this difference.

    With a margin `same_within` (percent): runs that would show that the difference lies inside.
    """
    return {f"{scatter:g}": _needed(math.log1p(scatter / 100.0), log_ratio, same_within) for scatter in SCATTERS}


def _needed(sd: float, log_ratio: float, same_within: float | None) -> int | None:
    left = abs(log_ratio) if same_within is None else math.log1p(same_within / 100.0) - abs(log_ratio)
    if left <= 0:
        return None
    level = 1.0 - (ALPHA / 2.0 if same_within is None else ALPHA)
    for runs in range(2, 100):
        df = 2.0 * runs - 2.0
        if left >= (quantile(level, df) + quantile(POWER, df)) * sd * math.sqrt(2.0 / runs):
            return runs
    return None
