"""Estimate effects of a matrix's factors on an operation: log means of cells and their contrasts.

The error comes from repeated runs of a cell, so it holds no interaction; without repeats nothing is tested. Runs that
share a block (a machine, a round) need a mixed model with a random level per block; its contrasts within blocks have
other degrees of freedom than those between blocks.
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
from buildcompare.results.codes import NoiseSource
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import CATALOGUE_DF, LEAST_REPEATS, LEAST_SD
from buildcompare.stats.planning import ALPHA, quantile
from labmatrix.results import Unjudged

LEAST_COUNT_SD = 0.5
"""Least standard deviation of counts: 0, 0, 0 beside 1, 1, 1 is no proof. Poisson counts of one rate (0.2 to 8) with
a 0 among two, three or five runs of each variant are then called different in at most 3.4 %."""
Cell = tuple[str, ...]
"""Level of each factor, in the order of the factors."""


@dataclass(frozen=True, eq=False)
class CellMeans:
    """Mean log level of each cell, with its error."""

    cells: Sequence[Cell]
    means: FloatArray
    """Shape (cells,)."""
    counts: FloatArray
    """Runs of each cell."""
    variance: float
    """Residual variance of a run; NaN if unknown."""
    df: float = 0.0
    """Degrees of freedom of `variance`; in a mixed model each contrast has its own."""
    mixed: Mixed | None = None
    """The mixed model, if runs share blocks."""
    source: NoiseSource = NoiseSource.NONE
    unjudged: Unjudged | None = None
    """Why the noise is unknown."""
    blocks: FloatArray | None = None
    """1 where a cell (column) ran in a block (row), if each cell ran in one block alone; else None."""

    @property
    def known(self) -> bool:
        """Whether the noise between runs is known."""
        return self.source != NoiseSource.NONE

    @cached_property
    def index(self) -> dict[Cell, int]:
        """Cell -> position."""
        return {cell: i for i, cell in enumerate(self.cells)}

    def df_of(self, contrast: FloatArray) -> float:
        """Degrees of freedom of a contrast (shape (cells,)); 0 without repeats."""
        return self.df if self.mixed is None else self.mixed.df_of(contrast)

    def effect(self, contrast: FloatArray) -> Effect | None:
        """Contrast (shape (cells,)) as a log ratio with its error; None if the noise is unknown."""
        if not self.known or self._across_blocks(contrast) or not (df := self.df_of(contrast)):
            return None
        sd = max(math.sqrt(contrast @ self.covariance @ contrast), LEAST_SD * float(np.abs(contrast).max()))
        runs = float((np.abs(contrast) / self.counts * np.abs(contrast)).sum())
        return Effect(float(contrast @ self.means), sd, df, sd / math.sqrt(runs), self.source)

    def test(self, contrasts: FloatArray) -> tuple[float, float] | None:
        """F test that all contrasts (shape (n, cells)) are zero: rank and p-value; None if the noise is unknown."""
        if not self.known or not len(contrasts) or any(map(self._across_blocks, contrasts)):
            return None
        df = min(self.df_of(each) for each in contrasts)
        covariance = self.covariance
        inner = contrasts @ covariance @ contrasts.T
        rank = int(np.linalg.matrix_rank(contrasts))
        if not df or not rank:
            return None
        differences = contrasts @ self.means
        statistic = float(differences @ np.linalg.pinv(inner, hermitian=True) @ differences) / rank
        return float(rank), float(special.fdtrc(rank, df, statistic))

    def _across_blocks(self, contrast: FloatArray) -> bool:
        """Whether a contrast compares cells of different blocks, whose effects cannot be separated."""
        return self.blocks is not None and bool(np.abs(self.blocks @ contrast).max() > 1e-9)

    @cached_property
    def covariance(self) -> FloatArray:
        """Covariance of the cells' means, shape (cells, cells)."""
        if self.mixed is not None:
            return self.mixed.covariance
        return np.diag(max(self.variance, LEAST_SD**2) / self.counts)


@dataclass(frozen=True, eq=False)
class Mixed:
    """Mixed model of cells and random blocks, adjusted for the error of its two variances.

    Kenward & Roger (1997, Biometrics 53) adjust the covariance and the degrees of freedom of each contrast, so that
    intervals hold for variants that ran unevenly over blocks.
    """

    weights: FloatArray
    """Weight of each run in each cell's mean, shape (cells, runs)."""
    variance: float
    """Residual variance of a run."""
    between: float
    """Variance between blocks."""
    plain: FloatArray
    """Covariance of the means for known variances, shape (cells, cells)."""
    covariance: FloatArray
    """Covariance of the means, adjusted for the error of both variances."""
    slopes: tuple[FloatArray, FloatArray]
    """Derivatives of `plain` by each variance."""
    variance_covariance: FloatArray
    """Covariance of the two variances, shape (2, 2)."""

    def df_of(self, contrast: FloatArray) -> float:
        """Degrees of freedom of a contrast, shape (cells,)."""
        slopes = np.array([contrast @ each @ contrast for each in self.slopes])
        spread = float(slopes @ self.variance_covariance @ slopes)
        return 2.0 * float(contrast @ self.plain @ contrast) ** 2 / spread if spread > 0.0 else 0.0


def cell_means(table: pd.DataFrame, *, run_sd: float | None = None) -> CellMeans:
    """Estimate the level of each cell by a linear or a mixed model.

    Parameters
    ----------
    table
        One row per run: ``cell`` (tuple of levels), ``log`` (logarithm of the measured level) and ``block`` (text;
        empty: no block).
    run_sd
        Standard deviation of one run's logarithm from another source; pooled with the repeats.

    Returns
    -------
    CellMeans
        Means and noise; the noise is unknown without repeats and `run_sd`.

    References
    ----------
    Laird & Ware (1982), Biometrics 38. Kenward & Roger (1997), Biometrics 53.

    Examples
    --------
    >>> cells = [("old",), ("old",), ("new",), ("new",)]
    >>> runs = pd.DataFrame({"cell": cells, "log": [0.0, 0.2, 1.0, 1.2], "block": ""})
    >>> effect = cell_means(runs).effect(np.array([-1.0, 1.0]))
    >>> round(effect.log_ratio, 2), round(effect.sd, 3), effect.df
    (1.0, 0.141, 2.0)
    """
    cells = list(dict.fromkeys(table["cell"]))
    place = table["cell"].map({cell: i for i, cell in enumerate(cells)}).to_numpy()
    logs = table["log"].to_numpy(dtype=np.float64)
    design = (place[:, None] == np.arange(len(cells))).astype(np.float64)
    counts = design.sum(axis=0)
    number, names = pd.factorize(np.where(table["block"] == "", [f"\0{i}" for i in range(len(table))], table["block"]))
    shared = len(names) < len(table)
    members = (number[:, None] == np.arange(len(names))).astype(np.float64)
    rank = int(np.linalg.matrix_rank(np.hstack([design, members])))
    df, mixed, blocks = float(len(table) - len(cells)), None, None
    means = design.T @ logs / counts
    residual = logs - design @ means
    variance = float(residual @ residual) / df if df else math.nan
    why = Unjudged.FEW if df else Unjudged.SINGLE
    if shared:
        within, across = float(len(table) - rank), float(rank - len(cells))
        if within and across:
            mixed = _mixed(design, members, logs)
            df, variance, means = within, mixed.variance, mixed.weights @ logs
        elif not within:  # one run per block: the blocks are the repeats
            df = across
        elif len(names) == len(cells) > 1:  # each cell ran in a block of its own
            df, why = 0.0, Unjudged.CONFOUNDED
        elif len(names) > 1:  # each cell ran in one block alone
            blocks = (members.T @ design > 0).astype(np.float64)
    estimate = CellMeans(cells, means, counts, variance, df, mixed, blocks=blocks)
    repeats = df if mixed is None else float(len(table) - len(cells))
    source = NoiseSource.REPEATS if repeats >= LEAST_REPEATS else NoiseSource.NONE
    if run_sd is not None and not shared:
        squares = CATALOGUE_DF * run_sd**2 + (df * variance if df else 0.0)
        df += CATALOGUE_DF
        return replace(estimate, variance=squares / df, df=df, source=NoiseSource.CATALOGUE)
    variance = max(variance, LEAST_SD**2) if df else math.nan
    return replace(estimate, variance=variance, source=source, unjudged=None if source != NoiseSource.NONE else why)


def _mixed(design: FloatArray, members: FloatArray, logs: FloatArray) -> Mixed:
    """The mixed model of runs in cells (`design`, shape (runs, cells)) and blocks (`members`, shape (runs, blocks))."""
    variance, between = _variances(design, members, logs)
    together = members @ members.T
    precise = np.linalg.inv(max(variance, LEAST_SD**2) * np.eye(logs.size) + between * together)
    plain = np.asarray(np.linalg.inv(design.T @ precise @ design), dtype=np.float64)
    weights = plain @ design.T @ precise
    rest = precise @ (np.eye(logs.size) - design @ weights)
    derivatives = [rest, rest @ together]  # times the derivatives of the covariance by both variances
    information = 0.5 * np.array([[float((one * other.T).sum()) for other in derivatives] for one in derivatives])
    variance_covariance = np.linalg.pinv(information, hermitian=True)
    moved = [weights, weights @ together]
    added = sum(variance_covariance[i, j] * (moved[i] @ rest @ moved[j].T) for i in range(2) for j in range(2))
    slopes = (moved[0] @ weights.T, moved[1] @ weights.T)
    return Mixed(
        weights,
        variance,
        between,
        plain,
        plain + 2.0 * added,
        slopes,
        variance_covariance=np.asarray(variance_covariance),
    )


def _variances(design: FloatArray, members: FloatArray, logs: FloatArray) -> tuple[float, float]:
    """Variances of runs within blocks and of blocks, by restricted likelihood."""
    import statsmodels.formula.api as smf  # late: a slow import

    table = pd.DataFrame({"cell": design.argmax(axis=1), "block": members.argmax(axis=1), "log": logs})
    spread = float(logs.std()) or 1.0
    table["log"] = (table["log"] - table["log"].mean()) / spread  # scaled to unit spread for the optimiser
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a block variance of 0 is no fault
        fitted = smf.mixedlm("log ~ 0 + C(cell)", table, groups="block").fit(reml=True, method=["nm", "powell"])
    return float(fitted.scale) * spread**2, max(float(fitted.cov_re.iloc[0, 0]), 0.0) * spread**2


# ---- Contrasts ------------------------------------------------------------------------------------------------------


def between_cells(means: CellMeans, cell: Cell, against: Cell) -> FloatArray:
    """Contrast of one cell with another, shape (cells,)."""
    contrast = np.zeros(len(means.cells))
    contrast[means.index[cell]] += 1.0
    contrast[means.index[against]] -= 1.0
    return contrast


def main_effect(means: CellMeans, factor: int, level: str, base: str) -> FloatArray | None:
    """Mean contrast of a level with the base level, over all combinations of other factors that ran with both."""
    pairs = [
        (cell, other)
        for cell in means.cells
        if cell[factor] == level and (other := _moved(cell, {factor: base})) in means.index
    ]
    return np.mean([between_cells(means, *pair) for pair in pairs], axis=0) if pairs else None


def interaction(means: CellMeans, factors: tuple[int, int], levels: Cell, bases: Cell) -> FloatArray | None:
    """Interaction of two factors (a ratio of ratios), over all combinations that ran with all four pairs of levels."""
    (one, other), contrasts = factors, []
    for cell in means.cells:
        if (cell[one], cell[other]) == levels:
            without = [_moved(cell, {one: bases[0]}), _moved(cell, {other: bases[1]})]
            neither = _moved(cell, dict(zip(factors, bases, strict=True)))
            if all(each in means.index for each in (*without, neither)):
                contrasts.append(between_cells(means, cell, without[0]) - between_cells(means, without[1], neither))
    return np.mean(contrasts, axis=0) if contrasts else None


def reference_levels(levels: dict[str, list[str]], baseline: dict[str, str], means: CellMeans) -> list[str]:
    """Reference level of each factor: the baseline's, or the first that ran."""
    run = [{cell[i] for cell in means.cells} for i in range(len(levels))]
    return [
        baseline.get(name) or next(level for level in of if level in measured)
        for (name, of), measured in zip(levels.items(), run, strict=True)
    ]


def _moved(cell: Cell, levels: dict[int, str]) -> Cell:
    return tuple(levels.get(i, level) for i, level in enumerate(cell))


# ---- Levels of 0 ----------------------------------------------------------------------------------------------------


class Share(Effect):
    """Difference as a share of the reference level (stored in `log_ratio`), for levels of 0, which have no ratio."""

    @property
    def delta_percent(self) -> float:
        """Change in percent."""
        return 100.0 * self.log_ratio

    def interval(self, level: float = 1.0 - ALPHA) -> tuple[float, float]:
        """Two-sided interval of the change in percent, at least -100."""
        half = quantile(0.5 + level / 2.0, self.df) * self.sd
        return max(100.0 * (self.log_ratio - half), -100.0), 100.0 * (self.log_ratio + half)


def share_of(base: FloatArray, new: FloatArray) -> Share | None:
    """Difference of two cells' mean levels as a share of the base's, or of the new one's if the base's is 0.

    Both sides take the larger of their two variances, because runs that are all 0 show none; counts have at least
    `LEAST_COUNT_SD`. None without two runs of each: a single 0 may be a failed run.

    >>> share = share_of(np.array([100.0, 104.0, 97.0]), np.zeros(3))
    >>> [round(end) for end in share.interval()]
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
    """Level of each cell in one operation: a mean of logarithms, or an arithmetic mean if a run measured 0."""

    means: CellMeans | None
    """Means of the cells whose runs are all above 0; None without such cells."""
    runs: Mapping[Cell, Sequence[tuple[float, str]]]
    """Cell -> level and block of each run."""

    def has_zero(self, *cells: Cell) -> bool:
        """Whether a run of one of these cells measured 0."""
        return any(self.means is None or cell not in self.means.index for cell in cells)

    def level(self, cell: Cell) -> float:
        """Geometric mean of a cell's runs, or the arithmetic mean if one of them is 0."""
        if self.means is None or self.has_zero(cell):
            return float(np.mean([value for value, _ in self.runs[cell]]))
        return math.exp(self.means.means[self.means.index[cell]])

    def effect(self, cell: Cell, against: Cell) -> Effect | None:
        """Effect of one cell against another; None if the noise is unknown."""
        if self.means is not None and not self.has_zero(cell, against):
            return self.means.effect(between_cells(self.means, cell, against))
        blocks = [{block for _, block in self.runs[each]} for each in (against, cell)]
        return share_of(*(self._values(each, by_block=blocks[0] != blocks[1]) for each in (against, cell)))

    def _values(self, cell: Cell, *, by_block: bool) -> FloatArray:
        """Levels of a cell's runs, or of its blocks, whose effect cannot be separated from the cell's."""
        table = pd.DataFrame(self.runs[cell], columns=["value", "block"])
        unit = table["block"].where(by_block & (table["block"] != ""), [f"\0{i}" for i in range(len(table))])
        return table.groupby(unit)["value"].mean().to_numpy(dtype=np.float64)


def levels_of(runs: Sequence[tuple[Cell, float, str]], *, run_sd: float | None = None) -> Levels:
    """Estimate the level of each cell from (cell, level, block) of each run (:func:`cell_means`)."""
    by_cell: dict[Cell, list[tuple[float, str]]] = {}
    for cell, value, block in runs:
        by_cell.setdefault(cell, []).append((value, block))
    above = {cell for cell, of in by_cell.items() if min(of)[0] > 0}
    table = pd.DataFrame([run for run in runs if run[0] in above], columns=["cell", "value", "block"])
    means = cell_means(table.assign(log=np.log(table["value"])), run_sd=run_sd) if above else None
    return Levels(means, by_cell)
