"""Estimate what each factor of a matrix does to an operation: log means of its cells, and contrasts of them.

The error is that of repeated runs of one cell, so no interaction hides in it: without repeats nothing is tested. Where
runs share a block (a machine, a round), a mixed model with a random level of each block takes the place of the linear
one, and contrasts within blocks have other degrees of freedom than contrasts between them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import special

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource, Unjudged
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import CATALOGUE_DF, LEAST_REPEATS, LEAST_SD
from buildcompare.stats.planning import ALPHA, quantile

LEAST_COUNT_SD = 0.5
"""Of whole numbers: 0, 0, 0 beside 1, 1, 1 is no proof. Of Poisson counts of one rate (0.2 to 8), with a 0 among two,
three or five of each, at most 3.4 % are then called different."""
Cell = tuple[str, ...]
"""The level of each factor, in the order of the factors."""


@dataclass(frozen=True, eq=False)
class CellMeans:
    """The mean log level of each cell, with what it is known with."""

    cells: Sequence[Cell]
    means: FloatArray
    """Shape (cells,)."""
    counts: FloatArray
    """Runs of each cell."""
    variance: float
    """Of a run around the level of its cell and block; NaN where nothing says it."""
    df: float = 0.0
    """Of `variance`; in a mixed model each contrast has its own."""
    mixed: Mixed | None = None
    """Where runs share blocks."""
    source: NoiseSource = NoiseSource.NONE
    unjudged: Unjudged | None = None
    """Why the noise is not known."""

    @property
    def known(self) -> bool:
        """Whether the noise between runs is known."""
        return self.source != NoiseSource.NONE

    @cached_property
    def index(self) -> dict[Cell, int]:
        """The place of each cell."""
        return {cell: i for i, cell in enumerate(self.cells)}

    def df_of(self, contrast: FloatArray) -> float:
        """Degrees of freedom of a contrast (shape (cells,)); 0: nothing was repeated."""
        return self.df if self.mixed is None else self.mixed.df_of(contrast)

    def effect(self, contrast: FloatArray) -> Effect | None:
        """The contrast as a log ratio with its error; None where noise or repeats of it are not known."""
        if not self.known or not (df := self.df_of(contrast)):
            return None
        sd = max(math.sqrt(contrast @ self.covariance @ contrast), LEAST_SD * float(np.abs(contrast).max()))
        runs = float((np.abs(contrast) / self.counts * np.abs(contrast)).sum())
        return Effect(float(contrast @ self.means), sd, df, sd / math.sqrt(runs), self.source)

    def test(self, contrasts: FloatArray) -> tuple[float, float] | None:
        """Number of independent contrasts (shape (n, cells)) and the p-value that all are zero; None where unknown."""
        if not self.known or not len(contrasts):
            return None
        df = min(self.df_of(each) for each in contrasts)
        covariance = self.covariance
        inner = contrasts @ covariance @ contrasts.T
        rank = int(np.linalg.matrix_rank(contrasts))
        found = contrasts @ self.means
        if not df or not rank:
            return None
        value = float(found @ np.linalg.pinv(inner, hermitian=True) @ found) / rank
        return float(rank), float(special.fdtrc(rank, df, value))

    @cached_property
    def covariance(self) -> FloatArray:
        """Of the cells' means, shape (cells, cells)."""
        if self.mixed is not None:
            return self.mixed.covariance
        return np.diag(max(self.variance, LEAST_SD**2) / self.counts)


@dataclass(frozen=True, eq=False)
class Mixed:
    """Cells' means where each block has a random level, with the error of the two estimated variances counted in.

    Their covariance is adjusted for it and each contrast has degrees of freedom of its own (Kenward & Roger 1997,
    Biometrics 53), so that intervals hold where a variant ran more often in one block than in another.
    """

    weights: FloatArray
    """Of each run in each cell's mean, shape (cells, runs)."""
    variance: float
    """Of a run around the level of its cell and block."""
    between: float
    """Of a block around the level of its cells."""
    plain: FloatArray
    """Covariance of the means if both variances were known, shape (cells, cells)."""
    covariance: FloatArray
    """The same with their error."""
    slopes: tuple[FloatArray, FloatArray]
    """How `plain` grows with each of them."""
    unsure: FloatArray
    """Their own covariance, shape (2, 2)."""

    def df_of(self, contrast: FloatArray) -> float:
        """Degrees of freedom of a contrast, shape (cells,)."""
        slopes = np.array([contrast @ each @ contrast for each in self.slopes])
        spread = float(slopes @ self.unsure @ slopes)
        return 2.0 * float(contrast @ self.plain @ contrast) ** 2 / spread if spread > 0.0 else 0.0


def cell_means(table: pd.DataFrame, *, run_sd: float | None = None) -> CellMeans:
    """Estimate the level of each cell by a linear or a mixed model.

    Parameters
    ----------
    table
        One row for each run: ``cell`` (a tuple of levels), ``log`` (logarithm of what it measured) and ``block`` (text;
        empty where the run shares none).
    run_sd
        Standard deviation of one run's logarithm, where it is known from elsewhere; it counts beside repeats.

    Returns
    -------
    CellMeans
        Means and noise; without repeats and `run_sd` the noise is not known.

    References
    ----------
    Laird & Ware (1982), Biometrics 38. Kenward & Roger (1997), Biometrics 53.

    Examples
    --------
    >>> cells = [("old",), ("old",), ("new",), ("new",)]
    >>> runs = pd.DataFrame({"cell": cells, "log": [0.0, 0.2, 1.0, 1.2], "block": ""})
    >>> found = cell_means(runs)
    >>> effect = found.effect(np.array([-1.0, 1.0]))
    >>> round(effect.log_ratio, 2), round(effect.sd, 3), effect.df
    (1.0, 0.141, 2.0)
    """
    cells = list(dict.fromkeys(table["cell"]))
    place = table["cell"].map({cell: i for i, cell in enumerate(cells)}).to_numpy()
    logs = table["log"].to_numpy(dtype=np.float64)
    design = (place[:, None] == np.arange(len(cells))).astype(np.float64)
    counts = design.sum(axis=0)
    own = np.where(table["block"] == "", [f"\0{i}" for i in range(len(table))], table["block"])
    number, names = pd.factorize(own)
    shared = len(names) < len(table)
    members = (number[:, None] == np.arange(len(names))).astype(np.float64)
    rank = int(np.linalg.matrix_rank(np.hstack([design, members])))
    df, mixed = float(len(table) - len(cells)), None
    means = design.T @ logs / counts
    residual = logs - design @ means
    variance = float(residual @ residual) / df if df else math.nan
    why = Unjudged.FEW if df else Unjudged.SINGLE
    if shared:
        within, across = float(len(table) - rank), float(rank - len(cells))
        if within and across:
            mixed = _mixed(design, members, logs)
            df, variance, means = within, mixed.variance, mixed.weights @ logs
        elif not within:  # one run of each block: blocks are what is repeated
            df = across
        elif not any(len({*place[number == i]}) > 1 for i in range(len(names))):
            # Each cell ran in one block alone: what the block does cannot be told from what the cell does.
            df, why = 0.0, Unjudged.CONFOUNDED
    made = CellMeans(cells, means, counts, variance, df, mixed)
    repeats = df if mixed is None else float(len(table) - len(cells))
    source = NoiseSource.REPEATS if repeats >= LEAST_REPEATS else NoiseSource.NONE
    if run_sd is not None and not shared:
        known = CATALOGUE_DF * run_sd**2 + (df * variance if df else 0.0)
        df += CATALOGUE_DF
        return replace(made, variance=known / df, df=df, source=NoiseSource.CATALOGUE)
    variance = max(variance, LEAST_SD**2) if df else math.nan
    return replace(made, variance=variance, source=source, unjudged=None if source != NoiseSource.NONE else why)


def _mixed(design: FloatArray, members: FloatArray, logs: FloatArray) -> Mixed:
    """The mixed model of runs in cells (`design`, shape (runs, cells)) and blocks (`members`, shape (runs, blocks))."""
    variance, between = _variances(design, members, logs)
    together = members @ members.T
    precise = np.linalg.inv(max(variance, LEAST_SD**2) * np.eye(logs.size) + between * together)
    plain = np.asarray(np.linalg.inv(design.T @ precise @ design), dtype=np.float64)
    weights = plain @ design.T @ precise
    rest = precise @ (np.eye(logs.size) - design @ weights)
    grown = [rest, rest @ together]  # by a variance more of runs, and of blocks
    information = 0.5 * np.array([[float((one * other.T).sum()) for other in grown] for one in grown])
    unsure = np.linalg.pinv(information, hermitian=True)
    moved = [weights, weights @ together]
    added = sum(unsure[i, j] * (moved[i] @ rest @ moved[j].T) for i in range(2) for j in range(2))
    slopes = (moved[0] @ weights.T, moved[1] @ weights.T)
    return Mixed(weights, variance, between, plain, plain + 2.0 * added, slopes, unsure=np.asarray(unsure))


def _variances(design: FloatArray, members: FloatArray, logs: FloatArray) -> tuple[float, float]:
    """Variances of runs within blocks and of blocks, by restricted likelihood."""
    import statsmodels.formula.api as smf  # late: takes seconds to import

    table = pd.DataFrame({"cell": design.argmax(axis=1), "block": members.argmax(axis=1), "log": logs})
    spread = float(logs.std()) or 1.0
    table["log"] = (table["log"] - table["log"].mean()) / spread  # the search has one scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no block differs is no fault
        found = smf.mixedlm("log ~ 0 + C(cell)", table, groups="block").fit(reml=True, method=["nm", "powell"])
    return float(found.scale) * spread**2, max(float(found.cov_re.iloc[0, 0]), 0.0) * spread**2


# ---- Contrasts ------------------------------------------------------------------------------------------------------


def between_cells(means: CellMeans, cell: Cell, against: Cell) -> FloatArray:
    """The contrast of one cell with another."""
    contrast = np.zeros(len(means.cells))
    contrast[means.index[cell]] += 1.0
    contrast[means.index[against]] -= 1.0
    return contrast


def main_effect(means: CellMeans, factor: int, level: str, base: str) -> FloatArray | None:
    """The mean contrast of a level with the base level, over all combinations of the others that were run with both."""
    pairs = [
        (cell, other)
        for cell in means.cells
        if cell[factor] == level and (other := _moved(cell, {factor: base})) in means.index
    ]
    return np.mean([between_cells(means, *pair) for pair in pairs], axis=0) if pairs else None


def interaction(means: CellMeans, factors: tuple[int, int], levels: Cell, bases: Cell) -> FloatArray | None:
    """How a contrast of one factor differs by another's level (a ratio of ratios), over what was run with all four."""
    (one, other), found = factors, []
    for cell in means.cells:
        if (cell[one], cell[other]) == levels:
            without = [_moved(cell, {one: bases[0]}), _moved(cell, {other: bases[1]})]
            neither = _moved(cell, dict(zip(factors, bases, strict=True)))
            if all(each in means.index for each in (*without, neither)):
                found.append(between_cells(means, cell, without[0]) - between_cells(means, without[1], neither))
    return np.mean(found, axis=0) if found else None


def reference_levels(levels: dict[str, list[str]], baseline: dict[str, str], means: CellMeans) -> list[str]:
    """The level that each factor is compared with: the baseline's, or the first that was run."""
    run = [{cell[i] for cell in means.cells} for i in range(len(levels))]
    return [
        baseline.get(name) or next(level for level in of if level in there)
        for (name, of), there in zip(levels.items(), run, strict=True)
    ]


def _moved(cell: Cell, levels: dict[int, str]) -> Cell:
    return tuple(levels.get(i, level) for i, level in enumerate(cell))


# ---- Levels of 0 ----------------------------------------------------------------------------------------------------


class Share(Effect):
    """A difference as a share of the level it is compared with (`log_ratio`), where a 0 leaves no ratio."""

    @property
    def delta_percent(self) -> float:
        """Change in percent."""
        return 100.0 * self.log_ratio

    def interval(self, level: float = 1.0 - ALPHA) -> tuple[float, float]:
        """Two-sided interval of the change in percent; nothing falls by more than all of it."""
        half = quantile(0.5 + level / 2.0, self.df) * self.sd
        return max(100.0 * (self.log_ratio - half), -100.0), 100.0 * (self.log_ratio + half)


def share_of(base: FloatArray, new: FloatArray) -> Share | None:
    """The difference of the mean levels of two cells as a share of the base's; of the new one's where that is 0.

    Both sides have the larger of their two variances, as runs that are all 0 show none; counts have at least
    `LEAST_COUNT_SD`. None without two runs of each: a single 0 may be a run that failed.

    >>> found = share_of(np.array([100.0, 104.0, 97.0]), np.zeros(3))
    >>> [round(end) for end in found.interval()]
    [-100, -92]
    """
    if min(base.size, new.size) < 2:
        return None
    levels = (float(base.mean()), float(new.mean()))
    of = levels[0] or levels[1] or 1.0
    both = np.concatenate([base, new])
    least = LEAST_COUNT_SD if any(levels) and np.array_equal(both, np.round(both)) else LEAST_SD * of
    variance = max(float(base.var(ddof=1)), float(new.var(ddof=1)), least**2)
    sd = math.sqrt(variance * (1.0 / base.size + 1.0 / new.size)) / of
    return Share((levels[1] - levels[0]) / of, sd, both.size - 2.0, math.sqrt(variance) / of, NoiseSource.REPEATS)


@dataclass(frozen=True, eq=False)
class Levels:
    """The level of each cell in one operation: of logarithms, or beside them where a run of the cell measured 0."""

    means: CellMeans | None
    """Of the cells whose runs are all above 0; None where there is none."""
    runs: Mapping[Cell, Sequence[tuple[float, str]]]
    """Level and block of each run, by cell."""

    def has_zero(self, *cells: Cell) -> bool:
        """Whether a run of one of these cells measured 0."""
        return any(self.means is None or cell not in self.means.index for cell in cells)

    def level(self, cell: Cell) -> float:
        """The mean of the runs of a cell: the geometric one, or the arithmetic one where one of them is 0."""
        if self.means is None or self.has_zero(cell):
            return float(np.mean([value for value, _ in self.runs[cell]]))
        return math.exp(self.means.means[self.means.index[cell]])

    def effect(self, cell: Cell, against: Cell) -> Effect | None:
        """One cell beside another; None where nothing says how far two runs lie apart."""
        if self.means is not None and not self.has_zero(cell, against):
            return self.means.effect(between_cells(self.means, cell, against))
        blocks = [{block for _, block in self.runs[each]} for each in (against, cell)]
        return share_of(*(self._values(each, by_block=blocks[0] != blocks[1]) for each in (against, cell)))

    def _values(self, cell: Cell, *, by_block: bool) -> FloatArray:
        """Levels of its runs, or of its blocks: what a block of one cell alone does cannot be told from the cell."""
        table = pd.DataFrame(self.runs[cell], columns=["value", "block"])
        own = table["block"].where(by_block & (table["block"] != ""), [f"\0{i}" for i in range(len(table))])
        return table.groupby(own)["value"].mean().to_numpy(dtype=np.float64)


def levels_of(runs: Sequence[tuple[Cell, float, str]], *, run_sd: float | None = None) -> Levels:
    """The level of each cell from cell, level and block of each run (:func:`cell_means`)."""
    by_cell: dict[Cell, list[tuple[float, str]]] = {}
    for cell, value, block in runs:
        by_cell.setdefault(cell, []).append((value, block))
    above = {cell for cell, of in by_cell.items() if min(of)[0] > 0}
    table = pd.DataFrame([run for run in runs if run[0] in above], columns=["cell", "value", "block"])
    means = cell_means(table.assign(log=np.log(table["value"])), run_sd=run_sd) if above else None
    return Levels(means, by_cell)
