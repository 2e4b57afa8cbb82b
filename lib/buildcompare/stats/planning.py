"""Plan further runs, and judge at a level that keeps its error rate however often the runs were looked at before.

Who looks again after each of eight further runs calls a change by chance in 19 of 100 unchanged rows, not in 5. So the
error is spent over the looks, as the runs come in (Lan & DeMets 1983, "Discrete sequential boundaries for clinical
trials", Biometrika 70). Where nobody said how many runs there will be, much of it is spent early (their function like
Pocock's): after few further runs that finds more than the others. Where it was said, most is kept for the end (their
function like O'Brien & Fleming's): what is found then hardly depends on the looks in between. A mixture test, which
holds for any number of looks, finds less than either (benchmarks/looks.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import Better

ALPHA = 0.05  # the usual error rate, of a family; `benchmarks/accuracy.py` prints what it comes to on identical runs
POWER = 0.8  # the usual power at which a detectable effect is stated (Cohen 1988)
MOST_ADDED = 8  # further runs of each build that the error is spent over where nobody said how many there will be
MOST_RUNS = 99  # more runs per build than this are no advice
SPENT = 0.0425
"""Over all looks. The levels are those of normal statistics, applied to t statistics (Jennison & Turnbull 2000, "Group
Sequential Methods", 4.4): with 5 degrees of freedom that calls 0.3 points more (benchmarks/looks.py, table 1). So
that 5 % are kept, and by a simulation of some thousand comparisons too, less is spent."""
LEAST = 1e-6  # of the error: what no bound could be found for otherwise
MOST_STEPS, ROOT_DIGITS = 60, 1e-13  # of a search for a zero: each step at least halves the interval
POINTS = 401  # of the integral over what was not called yet: twice as many change a level by 1e-6


@dataclass(frozen=True)
class Looks:
    """The runs of each build at every look so far, the present one last; of unequal numbers twice the harmonic sum."""

    runs: tuple[float, ...] = (1.0,)
    planned: float | None = None
    """How many runs of each build there will be in the end; None: nobody said."""

    @classmethod
    def of(cls, looks: Iterable[tuple[int, int]], planned: float | None = None) -> Looks:
        """From the runs of base and new at each look."""
        return cls(tuple(2.0 / (1.0 / base + 1.0 / new) for base, new in looks), planned)

    @property
    def level(self) -> float:
        """The level at which the present look is judged."""
        return look_level(self.runs, self.planned)


@dataclass(frozen=True)
class FurtherRuns:
    """What some further runs of each build would show, each in four of five cases (:data:`POWER`)."""

    further: int
    found_percent: float
    """The smallest rise that would be called."""
    no_worse_than_percent: float | None
    """What would be excluded if nothing changed; None where neither direction is better."""


def plan_runs(
    run_sd: float,
    df: float,
    *,
    margin_percent: float = 5.0,
    better: Better | str = Better.LOWER,
    looks: Sequence[float] = (1.0,),
    family: float = 1.0,
    df_per_run: float = 2.0,
    reach: Callable[[float, float], float] | None = None,
    most: int = MOST_ADDED,
) -> list[FurtherRuns]:
    """Plan further runs of both builds for a metric that was looked at already.

    Parameters
    ----------
    run_sd
        Standard deviation of the logarithm of one run's level (0.03: about 3 %).
    df
        Degrees of freedom that it is known with.
    margin_percent
        The smallest change that matters.
    better
        ``lower``, ``higher`` or ``neutral``.
    looks
        Runs of each build at each look so far, the present one last.
    family
        How many metrics are judged together (Holm).
    df_per_run
        Degrees of freedom that one further run of each build adds.
    reach
        Instead of `family`: how many standard errors a change must have, by its standard error and the level of a look.
    most
        The largest number of further runs.

    Returns
    -------
    list of FurtherRuns
        For one further run of each build, for two, and so on: what is seen once they are all there, if their number was
        settled beforehand.

    References
    ----------
    Lan & DeMets (1983), Biometrika 70.

    Examples
    --------
    >>> [(step.further, round(step.found_percent)) for step in plan_runs(0.04, 8, margin_percent=10, most=3)]
    [(1, 14), (2, 11), (3, 9)]
    """
    steps = _further(run_sd, df, margin_percent, Better(better), looks, family, df_per_run, reach)
    return [*itertools.islice(steps, most)]


def enough_runs(
    run_sd: float,
    df: float,
    *,
    margin_percent: float,
    looks: Sequence[float] = (1.0,),
    family: float = 1.0,
    df_per_run: float = 2.0,
    reach: Callable[[float, float], float] | None = None,
) -> FurtherRuns | None:
    """The fewest further runs that show a change of the margin's size; None beyond `MOST_RUNS` in all."""
    steps = _further(run_sd, df, margin_percent, Better.LOWER, looks, family, df_per_run, reach)
    most = itertools.islice(steps, max(MOST_RUNS - math.ceil(looks[-1]), 0))
    return next((step for step in most if step.found_percent <= margin_percent), None)


def _further(
    run_sd: float,
    df: float,
    margin_percent: float,
    better: Better,
    looks: Sequence[float],
    family: float,
    df_per_run: float,
    reach: Callable[[float, float], float] | None,
) -> Iterator[FurtherRuns]:
    for further in itertools.count(1):
        then = looks[-1] + further
        sd, known = run_sd * math.sqrt(2.0 / then), df + df_per_run * further
        level = look_level((*looks, then), planned=then)
        needed = (reach(sd, level) if reach else quantile(1.0 - level / family / 2.0, known)) * sd
        found = smallest_found(needed, sd, known, margin_percent, level, known_now=df)
        bound = quantile(1.0 - level / 2.0, known) * sd + quantile(POWER, df) * sd
        worse = {Better.LOWER: percent(bound), Better.HIGHER: -percent(-bound)}.get(better)
        yield FurtherRuns(further, found, None if worse is None else max(worse, margin_percent))


def smallest_found(
    needed: float, sd: float, df: float, margin_percent: float, level: float, *, known_now: float | None = None
) -> float:
    """The smallest rise in percent that is called in four of five cases (:data:`POWER`).

    It must reach `needed` (log scale) and, less its own error at `level`, the margin. Both vary with the estimate of
    `sd`, and the larger of two such values is larger on average than either (Clark 1961, "The greatest of a finite set
    of random variables", Operations Research 9). `known_now` are the degrees of freedom that `sd` is known with now.
    """
    inside = quantile(1.0 - level, df) * sd
    beyond = math.log1p(margin_percent / 100.0) - inside
    apart, spread = needed - beyond, (needed + inside) / math.sqrt(2.0 * df)
    if spread > 0.0:
        z = apart / spread
        apart = apart * float(special.ndtr(z)) + spread * math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    return percent(beyond + max(apart, 0.0) + quantile(POWER, df if known_now is None else known_now) * sd)


def look_level(looks: Sequence[float], planned: float | None = None) -> float:
    """The level at which the last of several looks is judged, so that all of them together keep their error rate.

    Parameters
    ----------
    looks
        Runs of each build at each look, in any order. (Of unequal numbers twice the harmonic sum counts.)
    planned
        The runs of each build that there will be in the end: then all looks share the error, most of it in the end.
        Without them the first look was judged by itself, and later ones share it over up to 8 further runs.

    Returns
    -------
    float
        Two-sided level: what is called has an adjusted p-value below it, and intervals hold at one less it.

    Examples
    --------
    >>> look_level([1]), round(look_level([1, 2]), 4), round(look_level([1, 4], planned=4), 4)
    (0.05, 0.0083, 0.0425)
    """
    infos = sorted({*looks})
    first = 0.0 if planned else infos[0]
    last = max(planned or first + MOST_ADDED, first + 1.0)
    shared = [(info, min((info - first) / (last - first), 1.0)) for info in infos if info > first]
    if len(infos) == 1 and (not shared or shared[0][1] == 1.0):
        return ALPHA
    return levels(tuple(shared), spent_late if planned else spent_early)[-1]


def spent_early(part: float) -> float:
    """The error that may be spent once this part of the runs is there (Lan & DeMets 1983, like Pocock's bounds)."""
    return SPENT * math.log1p((math.e - 1.0) * part)


def spent_late(part: float) -> float:
    """The same, most of it in the end (Lan & DeMets 1983, like O'Brien & Fleming's bounds)."""
    return max(2.0 * float(special.ndtr(special.ndtri(SPENT / 2.0) / math.sqrt(part))), LEAST * part)


@cache
def levels(looks: tuple[tuple[float, float], ...], spending: Callable[[float], float]) -> list[float]:
    """Levels of looks, each given by its runs and the part of the planned ones that they are.

    Sums of independent normal increments that were not called yet are integrated over, look by look (Armitage,
    McPherson & Rowe 1969, Journal of the Royal Statistical Society A 132). Beyond what was planned the level stays.
    """
    found: list[float] = []
    sums, density = np.zeros(1), np.ones(1)
    used = before = bound = sd = 0.0
    for info, part in looks:
        share = spending(part) - used
        if share <= 0.0:
            found.append(found[-1])
            continue
        if found:
            at = np.linspace(-bound, bound, POINTS)
            weights = np.full(POINTS, at[1] - at[0])
            weights[[0, -1]] /= 2.0
            near = np.exp(-0.5 * ((at - sums[:, None]) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))
            sums, density = at, weights * (density @ near)
        sd = math.sqrt(info - before)
        bound = _bound(share, sums, density, sd)
        before, used = info, used + share
        found.append(2.0 * float(special.ndtr(-bound / math.sqrt(info))))
    return found


def _bound(share: float, sums: FloatArray, density: FloatArray, sd: float) -> float:
    """What a sum exceeds, to either side, with the probability `share` after a normal increment of `sd`."""

    def beyond(bound: float) -> float:
        return float(density @ (special.ndtr((-bound - sums) / sd) + special.ndtr((sums - bound) / sd))) - share

    return root(beyond, 0.0, float(sums[-1]) + 12.0 * sd)


def root(of: Callable[[float], float], low: float, high: float) -> float:
    """Where `of` is zero between two places at which it has different signs.

    Ridders (1979), IEEE Transactions on Circuits and Systems 26. By hand: scipy.optimize has better ones, and takes a
    tenth of a second to import in each command and notebook.

    >>> round(root(lambda x: x**2 - 2.0, 0.0, 1e6), 12)
    1.414213562373
    """
    at_low, at_high, found, before = of(low), of(high), low, math.nan
    for _ in range(MOST_STEPS):
        middle = (low + high) / 2.0
        at_middle = of(middle)
        side = math.copysign(1.0, at_low - at_high) * (middle - low)
        found = middle + side * at_middle / math.sqrt(at_middle**2 - at_low * at_high)
        at_found = of(found)
        if at_found == 0.0 or abs(found - before) <= ROOT_DIGITS * abs(found):
            break
        before = found
        if at_middle * at_found < 0.0:
            low, at_low, high, at_high = middle, at_middle, found, at_found
        elif at_low * at_found < 0.0:
            high, at_high = found, at_found
        else:
            low, at_low = found, at_found
    return found


def quantile(p: float, df: float) -> float:
    """Quantile of Student's t distribution."""
    return float(special.ndtri(p) if math.isinf(df) else special.stdtrit(df, p))


def percent(log_ratio: float) -> float:
    """A change in percent from its logarithm."""
    return math.expm1(min(log_ratio, 700.0)) * 100.0
