"""Plan further runs, and keep the false-alarm rate if a comparison is judged repeatedly (each judgement is a "look").

If unchanged rows are judged again after each of eight further runs, 19 % instead of 5 % are significant at least once.
So looks share a false-alarm rate (Lan & DeMets 1983, "Discrete sequential boundaries for clinical trials", Biometrika
70). If no number of runs is planned, the first look has its own rate, and the next looks get large parts (like Pocock's
bounds): most changes are found soon. If a number is planned, the last look gets the largest part (like O'Brien &
Fleming's bounds), and early looks cost little power. A mixture test detects fewer changes (benchmarks/looks.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import special

from buildcompare.results.codes import Better

ALPHA = 0.05  # false-alarm rate of a family; `benchmarks/accuracy.py` prints the actual rate on identical runs
SOUGHT = 1.5
"""Size of a change, in multiples of the margin. Further runs of gate metrics are planned to find this change. Other
metrics share the significance level `ALPHA` in proportion to their power to find this change. If gate metrics did so
too, values of 1.5 to 2 would find nearly as many injected changes as equal shares do (10 % in identical unbounded runs
used for tuning). Smaller values find more slowdowns of P99 API times by 10 % in bounded tests."""
POWER = 0.8  # power of a detectable effect (Cohen 1988)
MOST_ADDED = 8  # added runs of each build over which looks share the false-alarm rate if no number is planned
MOST_RUNS = 99  # maximum number of runs per build that a plan recommends
SPENT = 0.0425
"""False-alarm rate of all looks (without a plan, all but the first) for normal statistics. It is below `ALPHA`, because
t statistics add 0.003 with 5 degrees of freedom (Jennison & Turnbull 2000, "Group Sequential Methods", 4.4)."""
LEAST = 1e-6  # minimum of `spent_late(part) / part`; a false-alarm rate of 0 would have no critical value
HALVINGS = 75  # bisection steps of a root search; they shrink an interval of 1e6 to the floating-point precision of 1
POINTS = 401  # grid points of the integral in `levels`; twice as many change a level by 1e-6


@dataclass(frozen=True)
class Looks:
    """Numbers of runs of each build at all judgements (looks) of a comparison; the last is for the present look."""

    runs: tuple[float, ...] = (1.0,)  # runs of each build at each judgement; the harmonic mean if the numbers differ
    planned: float | None = None
    """Planned final number of runs of each build; None if no number was planned."""

    @classmethod
    def of(cls, looks: Iterable[tuple[int, int]], planned: float | None = None) -> Looks:
        """Make `Looks` from the numbers of runs of base and new at each look."""
        return cls(tuple(2.0 / (1.0 / base + 1.0 / new) for base, new in looks), planned)

    @property
    def level(self) -> float:
        """Significance level of the present look (the last of `runs`)."""
        return look_level(self.runs, self.planned)


@dataclass(frozen=True)
class FurtherRuns:
    """Number of further runs of each build, and changes that these runs detect with probability :data:`POWER`."""

    further: int
    found_percent: float
    """Smallest rise, in percent, that would count as a change after the further runs (probability :data:`POWER`)."""
    no_worse_than_percent: float | None
    """Losses above this percentage are excluded with probability 80 % for equal builds; None with `better: neutral`."""


def plan_runs(
    run_sd: float,
    df: float,
    *,
    margin_percent: float = 5.0,
    better: Better | str = Better.LOWER,
    looks: Sequence[float] = (1.0,),
    family: float = 1.0,
    gate: bool = False,
    delta_percent: float = 0.0,
    most: int = MOST_ADDED,
) -> list[FurtherRuns]:
    """Plan further runs of both builds for a metric that was judged before.

    Parameters
    ----------
    run_sd
        Standard deviation of the logarithm of one run's level (0.03 is about 3 %).
    df
        Degrees of freedom of `run_sd`.
    margin_percent
        The smallest change that matters.
    better
        ``lower``, ``higher`` or ``neutral``.
    looks
        Runs of each build at each judgement (look) so far, the present one last.
    family
        Number of metrics that are judged together (Holm).
    gate
        True if a change counts only if its estimate lies beyond the margin.
    delta_percent
        Change in percent over the runs so far; only `no_worse_than_percent` depends on it.
    most
        Maximum number of further runs of each build.

    Returns
    -------
    list of FurtherRuns
        What 1, 2, ... further runs of each build would detect, if their number is planned beforehand.

    References
    ----------
    Lan & DeMets (1983), Biometrika 70.

    Examples
    --------
    >>> [(step.further, round(step.found_percent)) for step in plan_runs(0.04, 8, margin_percent=10, most=3)]
    [(1, 14), (2, 11), (3, 9)]
    """
    steps = _further(run_sd, df, margin_percent, Better(better), looks, family, gate, delta_percent)
    return [*itertools.islice(steps, most)]


def enough_runs(
    run_sd: float,
    df: float,
    *,
    margin_percent: float,
    looks: Sequence[float] = (1.0,),
    family: float = 1.0,
    gate: bool = False,
) -> FurtherRuns | None:
    """Fewest further runs that detect a change of size :func:`aim`; None if more than `MOST_RUNS` runs are needed."""
    steps = _further(run_sd, df, margin_percent, Better.LOWER, looks, family, gate)
    most = itertools.islice(steps, max(MOST_RUNS - math.ceil(looks[-1]), 0))
    return next((step for step in most if step.found_percent <= aim(margin_percent, gate)), None)


def aim(margin_percent: float, gate: bool) -> float:
    """Change in percent that further runs should detect: the margin, or `SOUGHT` times the margin with `gate`.

    With `gate`, only estimates above the margin count, so a change equal to the margin would be found half the time.
    """
    return margin_percent * (SOUGHT if gate else 1.0)


def _further(
    run_sd: float,
    df: float,
    margin_percent: float,
    better: Better,
    looks: Sequence[float],
    family: float,
    gate: bool,
    delta_percent: float = 0.0,
) -> Iterator[FurtherRuns]:
    so_far = math.log1p(max(delta_percent, -99.0) / 100.0) * (-1.0 if better == Better.HIGHER else 1.0)
    for further in itertools.count(1):
        then = looks[-1] + further
        sd, then_df = run_sd * math.sqrt(2.0 / then), df + 2.0 * further  # one degree of freedom per run of each build
        level = look_level((*looks, then), planned=then)
        needed = quantile(1.0 - level / family / 2.0, then_df) * sd
        smallest = smallest_found(needed, sd, then_df, margin_percent, level, df_now=df, gate=gate)
        chance = run_sd * math.sqrt(2.0 * further) / then  # standard deviation that further runs add to the estimate
        mean = so_far * looks[-1] / then + quantile(POWER, df) * chance
        bound = mean + quantile(1.0 - level / 2.0, then_df) * sd
        worse = {Better.LOWER: percent(bound), Better.HIGHER: -percent(-bound)}.get(better)
        yield FurtherRuns(further, smallest, None if worse is None else max(worse, margin_percent))


def smallest_found(
    needed: float,
    sd: float,
    df: float,
    margin_percent: float,
    level: float,
    *,
    df_now: float | None = None,
    gate: bool = False,
) -> float:
    """Smallest rise in percent that counts as a change with probability :data:`POWER`.

    The estimate must exceed `needed` (log scale). With `gate`, the estimate must also exceed the margin; without
    `gate`, the upper end of its interval must. Because `sd` is estimated, the expected maximum of both is used (Clark
    1961, "The greatest of a finite set of random variables", Operations Research 9). `df_now` is the present `df`.
    """
    inside = 0.0 if gate else quantile(1.0 - level, df) * sd
    beyond = math.log1p(margin_percent / 100.0) - inside
    apart, spread = needed - beyond, (needed + inside) / math.sqrt(2.0 * df)
    if spread > 0.0:
        z = apart / spread
        apart = apart * float(special.ndtr(z)) + spread * math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
    return percent(beyond + max(apart, 0.0) + quantile(POWER, df if df_now is None else df_now) * sd)


def look_level(looks: Sequence[float], planned: float | None = None) -> float:
    """Significance level of the present judgement (look), which is lower if other looks came before or are planned.

    Parameters
    ----------
    looks
        Number of runs of each build at each look, in any order; for unequal numbers, their harmonic mean.
    planned
        Final number of runs of each build. If given, all looks share `ALPHA`, and the last gets the largest
        part. If None, the first look has the rate `ALPHA`; later looks share a second rate over up to 8 further runs.

    Returns
    -------
    float
        Two-sided level for adjusted p-values; intervals have the confidence 1 - level.

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
    """Total false-alarm rate after the fraction `part` of the runs, as with Pocock bounds (Lan & DeMets 1983)."""
    return SPENT * math.log1p((math.e - 1.0) * part)


def spent_late(part: float) -> float:
    """Total false-alarm rate after the fraction `part` of runs, as with O'Brien-Fleming bounds (Lan & DeMets 1983)."""
    return max(2.0 * float(special.ndtr(special.ndtri(SPENT / 2.0) / math.sqrt(part))), LEAST * part)


@cache
def levels(looks: tuple[tuple[float, float], ...], spending: Callable[[float], float]) -> list[float]:
    """Significance level of each look at a growing set of runs; a look is a number of runs and a `part` for `spending`.

    From look to look, the density of a sum of normal increments is integrated over outcomes not yet significant
    (Armitage, McPherson & Rowe 1969, J. Royal Statistical Society A 132). With no rate left, the last level repeats.
    """
    spent: list[float] = []
    sums, density = np.zeros(1), np.ones(1)
    used = before = bound = sd = 0.0
    for info, part in looks:
        share = spending(part) - used
        if share <= 0.0:
            spent.append(spent[-1])
            continue
        if spent:
            at = np.linspace(-bound, bound, POINTS)
            weights = np.full(POINTS, at[1] - at[0])
            weights[[0, -1]] /= 2.0
            near = np.exp(-0.5 * ((at - sums[:, None]) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))
            sums, density = at, weights * (density @ near)
        sd = math.sqrt(info - before)
        bound = root(
            lambda b: float(density @ (special.ndtr((-b - sums) / sd) + special.ndtr((sums - b) / sd))) - share,  # noqa: B023  # called at once, in the same round of the loop
            0.0, float(sums[-1]) + 12.0 * sd,
        )  # fmt: skip
        before, used = info, used + share
        spent.append(2.0 * float(special.ndtr(-bound / math.sqrt(info))))
    return spent


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Find a root of a function by bisection between `low` and `high`; its signs at both ends must differ.

    ``scipy.optimize`` is not used, because its import would add a tenth of a second to each command and notebook.

    >>> round(root(lambda x: x**2 - 2.0, 0.0, 1e6), 12)
    1.414213562373
    """
    rises = function(high) > 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if (function(middle) > 0.0) == rises else (middle, high)
    return (low + high) / 2.0


def quantile(p: float, df: float) -> float:
    """Quantile of Student's t distribution."""
    return float(special.ndtri(p) if math.isinf(df) else special.stdtrit(df, p))


def percent(log_ratio: float) -> float:
    """Convert the logarithm of a ratio to a change in percent."""
    return math.expm1(min(log_ratio, 700.0)) * 100.0
