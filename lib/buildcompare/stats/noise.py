"""Estimate run-to-run noise from repeated runs, the catalogue and earlier comparisons.

Noise is the standard deviation of log levels between runs, close to a relative one. The scatter within a run does not
predict it (Kalibera & Jones 2013, "Rigorous benchmarking in reasonable time"). The catalogue's noise and the constants
below come from Mattermost's ceiling tests, with three runs of each setup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Metric, RunSd
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource, TestType
from buildcompare.stats.planning import root

LENT_DF = 4.0
"""Maximum degrees of freedom of noise from runs of the other test type or from other labels of a table. In simulated
identical builds of 2 to 5 runs, 0.7 to 3.2 % of the labels are marked with it; with 8, up to 3.6 %."""
CATALOGUE_DF = 8.0
"""Default degrees of freedom of a catalogue's noise, and their maximum beside repeated runs, as the catalogue is of
another laboratory. Values of 4 and 6 leave more rows undecided, 15 is wrong more often (simulated pairs with seeds from
1,000,000, and identical ceiling runs of the development half)."""
ALIKE = 3.0
"""Number of metrics of one run that count as one, because they are correlated: the changes of eight metrics between
identical ceiling runs (development half) hold as much information as 2.7 independent ones."""
LEAST_DF = 3.0  # minimum degrees of freedom of pooled setups that differ (two setups with 2 and 3 runs have 3)
BY_CHANCE = 0.3
"""Variances of groups count as equal if pooling keeps at least this share of their degrees of freedom. Of simulated
calibrations with equal variances (6 to 12 groups of 2 to 4 runs), 1 in 400 keeps less. With 0.5 it would be 1 in 27,
and a third fewer added changes of 20 % in times would be found (identical ceiling runs, development half)."""
LEAST_REPEATS = 2  # minimum degrees of freedom of repeats; with one, intervals reach 13 standard errors
LEAST_SD = 1e-4  # minimum standard deviation; runs that agree more closely were rounded
CATALOGUE_S = 1800.0  # seconds of the shortest window from which the catalogues' noise was learned
ENOUGH_COMPARISONS = 8  # earlier comparisons needed to learn the noise of a metric that has no other source
Kind = Literal["bounded", "unbounded", "benchmark", "equal_load"]
"""Kinds of noise in a catalogue: of levels in a type of test, or of unbounded runs at equal load."""
LABEL_KEY = ["group", "label", "stat"]  # key of a row of a label table


def label_frame(rows: Sequence[tuple[object, ...]], columns: Sequence[str] = ("value",)) -> pd.DataFrame:
    """Make a frame with the columns `LABEL_KEY` and number columns, typed even if empty."""
    frame = pd.DataFrame(rows, columns=[*LABEL_KEY, *columns])
    return frame.astype({**dict.fromkeys(LABEL_KEY, "str"), **dict.fromkeys(columns, "float")})


NO_LABELS = label_frame([], ["value", "calls"])


@dataclass(frozen=True)
class RunLevel:
    """Level of one metric in one run: the mean over its steady window, above zero; NaN if unknown."""

    level: float
    se_log: float = math.nan  # standard error of the level's logarithm within the run
    seconds: float = math.nan  # length of the window


@dataclass(frozen=True, eq=False)
class RunLevels:
    """Levels of all metrics and labels of one run in a calibration."""

    metrics: Mapping[str, RunLevel] = field(default_factory=dict)  # by :func:`series_key`
    labels: pd.DataFrame = field(default_factory=lambda: NO_LABELS)
    """One row per label and statistic: `LABEL_KEY`, value (seconds) and calls in the window (NaN if unknown)."""
    no_change: Mapping[str, float] = field(default_factory=dict)  # by metric: result of `metrics.events.no_change`


@dataclass(frozen=True)
class NoiseAtEqualLoad:
    """Noise of one metric at equal load between the runs of one group."""

    variance: float  # variance of a run's log value, including the error within the run
    within: float  # share of `variance` that comes from errors within the runs
    df: float


@dataclass(frozen=True, eq=False)  # compared by identity, as it holds frames
class RepeatedRuns:
    """Repeated runs of one build on one setup."""

    name: str
    type: TestType
    runs: Sequence[RunLevels]
    at_load: Mapping[str, NoiseAtEqualLoad] = field(default_factory=dict)  # noise of unbounded runs, by metric


CONTRAST = ("comparison", "squares", "df", "misread")
"""Columns of :data:`Contrasts`: number of the comparison; squared distance, per run, of the test's log ratio from the
mean of the comparison's tests; degrees of freedom (1 minus the test's weight in that mean); True if read off plots."""
Contrasts = Mapping[tuple[str, str], pd.DataFrame]
"""Test type and metric -> contrasts, with the columns `CONTRAST`."""
Key = TypeVar("Key")


@dataclass(frozen=True)
class Noise:
    """Run-to-run noise of one metric or label."""

    sd: float  # standard deviation of one run's log level around the level of its build and setup
    df: float  # degrees of freedom of `sd`
    noise_source: NoiseSource
    within: float | None = None  # standard error of a run's level within the run (log scale)
    seconds: float = math.nan  # length of the windows that the noise was learned from; NaN if unknown
    at_load: bool = False  # True for noise at equal load, which excludes the error within runs
    comparisons: int = 0  # number of earlier comparisons that the noise was learned from


def run_noise(groups: Iterable[Sequence[float | RunLevel]]) -> Noise | None:
    """Estimate run-to-run noise from the levels of repeated runs, pooled over builds and setups.

    Parameters
    ----------
    groups
        Levels of a metric, above zero, in any unit: one sequence per build and setup, each with at least two runs.

    Returns
    -------
    Noise or None
        Standard deviation of one run's log level with its degrees of freedom; None without repeated runs.

    Examples
    --------
    >>> noise = run_noise([[100.0, 102.0, 99.0], [240.0, 236.0]])
    >>> f"{100 * noise.sd:.2f} % with {noise.df:g} degrees of freedom"
    '1.42 % with 3 degrees of freedom'
    """
    levels = [[each if isinstance(each, RunLevel) else RunLevel(float(each)) for each in group] for group in groups]
    repeated = [runs for group in levels if len(runs := [run for run in group if run.level > 0]) > 1]
    if not repeated:
        return None
    variances = np.array([np.var(np.log([run.level for run in group]), ddof=1) for group in repeated])
    variance, df = pool_variances(variances, np.array([len(group) - 1.0 for group in repeated]))
    within = [run.se_log**2 for group in repeated for run in group if math.isfinite(run.se_log)]
    seconds = [run.seconds for group in repeated for run in group if run.seconds > 0]
    usual = math.sqrt(float(np.median(within))) if within else None
    length = float(np.median(seconds)) if seconds else math.nan
    return Noise(max(math.sqrt(variance), LEAST_SD), df, NoiseSource.CALIBRATION, usual, length)


def repeat_noise(*runs: Sequence[RunLevel]) -> Noise | None:
    """Estimate noise from the scatter of repeated runs around the mean of their build; None without repeats."""
    noise = run_noise(runs)
    return noise and replace(noise, noise_source=NoiseSource.REPEATS)


def pool_variances(variances: FloatArray, dfs: FloatArray) -> tuple[float, float]:
    """Pool the variances of groups, and count the degrees of freedom that their scatter leaves (see `BY_CHANCE`).

    If setups have unequal noise, the pooled variance has fewer degrees of freedom than its number of runs suggests
    (Satterthwaite 1946, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2).
    """
    weights, total = dfs / dfs.sum(), float(dfs.sum())
    pooled = float(weights @ variances)
    count = len(variances)
    if count < 3 or pooled == 0:
        return pooled, total
    scatter = float(weights**2 @ (variances - pooled) ** 2) * count / (count - 1)
    left = 2.0 * pooled**2 / scatter if scatter > 0 else total
    return pooled, total if left >= BY_CHANCE * total else max(left, LEAST_DF)


def metric_noise(
    metric: Metric,
    test_type: TestType,
    groups: Sequence[RepeatedRuns] = (),
    past: Contrasts | None = None,
    *,
    misread: float = 0.0,
) -> Noise | None:
    """Estimate the run-to-run noise of `metric` from repeats, the catalogue and earlier comparisons; None if unknown.

    If a test type has few repeats, the variance of the other type is mixed in, then the catalogue's. `misread` is the
    reading error of a level in percent, if it was read off a plot. In unbounded tests earlier comparisons are used only
    for metrics without other noise: supported users move together in the tests of a comparison, so contrasts between
    these tests are too small (1.4 % for one run; identical runs show 1.6 to 2.0 %).
    """
    learned, catalogue = learned_noise(metric.slug, test_type, groups), catalogue_noise(metric, test_type)
    noise = (
        mixed_noise(learned, catalogue) if learned and catalogue and learned.df < CATALOGUE_DF else learned or catalogue
    )
    noise = with_reading_error(noise, misread)
    counts = past and (test_type != "unbounded" or noise is None)
    return with_contrasts(noise, past.get((test_type, metric.slug)), misread=misread > 0) if past and counts else noise


def with_reading_error(noise: Noise | None, misread: float) -> Noise | None:
    """Add the reading error of plots to `noise`; `misread` is in percent of a level."""
    return replace(noise, sd=math.hypot(noise.sd, math.log1p(misread / 100.0))) if noise else None


def with_contrasts(noise: Noise | None, past: pd.DataFrame | None, *, misread: bool = False) -> Noise | None:
    """Pool `noise` with the contrasts between the tests of earlier comparisons, each by its degrees of freedom.

    A change of the build moves all tests of a comparison (MySQL and Postgres, say), so their contrasts hold only noise.
    Contrasts never make the noise larger, because a change in only one test enlarges them too. Without other noise they
    are used from `ENOUGH_COMPARISONS` on. Contrasts of values read off plots are used only for such values.

    The rule was chosen on every second published release of the development half (63 rows of bounded tests), where 95 %
    of the contrasts lie in 95 % intervals learned from the other releases. On the remaining releases it is 97 %, in
    intervals three quarters as wide as the catalogue's.
    """
    rows = past[past["misread"] == misread] if past is not None else pd.DataFrame()
    if rows.empty:
        return noise
    df = float(rows["df"].sum())
    sd = max(math.sqrt(float(rows["squares"].sum()) / df), LEAST_SD)
    learned = Noise(sd, df, NoiseSource.LEDGER, comparisons=rows["comparison"].nunique())
    if noise is None:
        return learned if learned.comparisons >= ENOUGH_COMPARISONS else None
    return replace(mixed_noise(noise, learned), comparisons=learned.comparisons) if sd < noise.sd else noise


def learned_noise(slug: str, test_type: TestType, groups: Sequence[RepeatedRuns]) -> Noise | None:
    """Estimate noise from repeated runs alone; with few runs, those of the other test type are mixed in."""
    levels: dict[bool, list[list[RunLevel]]] = {True: [], False: []}  # by "is of this test type"
    for group in groups:
        for key in sorted({key for run in group.runs for key in run.metrics if slug_of(key) == slug}):
            levels[group.type == test_type].append([run.metrics[key] for run in group.runs if key in run.metrics])
    same, other = run_noise(levels[True]), run_noise(levels[False])
    other = other and replace(other, df=min(other.df, LENT_DF))
    return mixed_noise(same, other) if same and other and same.df < CATALOGUE_DF else same or other


def laboratory_ratio(noises: Sequence[tuple[Noise, Noise]]) -> float:
    """Estimate the ratio of a laboratory's variances to the catalogue's, from the noise of each metric in both.

    The ratios follow a scaled F distribution, as variances around a common prior do (Smyth 2004, Statistical
    Applications in Genetics and Molecular Biology 3). Maximum likelihood estimates its scale; one metric with a hundred
    times the noise moves it little. `ALIKE` metrics count as one. One assumed metric with one degree of freedom agrees
    with the catalogue. The result is at least 1, because few runs often agree by chance.
    """
    ratio, df, prior_df = np.array(
        [(runs.sd**2 / stated.sd**2, runs.df, stated.df) for runs, stated in noises] + [(1.0, 1.0, CATALOGUE_DF)]
    ).T
    weight = np.where(np.arange(ratio.size) < len(noises), 1.0 / ALIKE, 1.0)

    def surplus(log_scale: float) -> float:  # positive if the ratios are larger than the scale
        expected = prior_df * math.exp(log_scale) + df * ratio
        return float(weight @ ((df + prior_df) * df * ratio / expected - df))

    return math.exp(root(surplus, 0.0, math.log(ratio.max()))) if surplus(0.0) > 0 else 1.0


def in_laboratory(stated: RunSd, ratios: Mapping[Kind, float]) -> RunSd:
    """Scale the catalogue's variances of a metric by the `ratios` of a laboratory (:func:`laboratory_ratio`)."""
    percents = {kind: getattr(stated, kind) for kind in ratios}
    sds = {kind: math.log1p(percent / 100.0) * math.sqrt(ratios[kind]) for kind, percent in percents.items() if percent}
    dfs = {kind: min(stated.df.get(kind, CATALOGUE_DF), CATALOGUE_DF) for kind in sds}
    changed: dict[str, object] = {kind: 100.0 * math.expm1(sd) for kind, sd in sds.items()}
    return stated.model_copy(update=changed | {"df": {**stated.df, **dfs}})


def catalogue_noise(metric: Metric, of: Kind) -> Noise | None:
    """Return the catalogue's noise of a kind, with its degrees of freedom; None if the catalogue states none."""
    percent = getattr(metric.run_sd_percent, of)
    if not percent:
        return None
    at_load = of == "equal_load"
    df = metric.run_sd_percent.df.get(of, CATALOGUE_DF)
    return Noise(math.log1p(percent / 100.0), df, NoiseSource.CATALOGUE, seconds=CATALOGUE_S, at_load=at_load)


def mixed_noise(noise: Noise, other: Noise) -> Noise:
    """Mix the variances of two estimates, each weighted by its degrees of freedom, into `noise`."""
    df = noise.df + other.df
    return replace(noise, sd=math.sqrt((noise.df * noise.sd**2 + other.df * other.sd**2) / df), df=df)


def beside_repeats(priors: Mapping[Key, Noise | None], repeats: Mapping[Key, Noise | None]) -> dict[Key, Noise | None]:
    """Mix the noise of each metric from `priors` and from the comparison's own repeated runs.

    If the repeats of all metrics together scatter more than the priors (:func:`laboratory_ratio`), the variances of the
    priors are multiplied by that ratio, and the degrees of freedom of the ratio limit theirs. Then the variance of a
    metric's repeats is mixed in, by degrees of freedom. Without a prior the repeats are used alone, from
    `LEAST_REPEATS` degrees of freedom on. `benchmarks/repeats.py` prints error rates.
    """
    both = {
        key: (here, replace(prior, df=CATALOGUE_DF) if math.isinf(prior.df) else prior)
        for key, prior in priors.items()
        if prior and (here := repeats.get(key))
    }
    ratio = laboratory_ratio([*both.values()])
    uncertain = (1.0 - 1.0 / ratio) * ALIKE / max(math.fsum(here.df for here, _ in both.values()), 1.0)
    result = {}
    for key, stated in priors.items():
        here, prior = both.get(key, (repeats.get(key), stated))
        if prior and ratio > 1.0:
            prior = replace(prior, sd=prior.sd * math.sqrt(ratio), df=1.0 / (1.0 / prior.df + uncertain))
        alone = here if here and here.df >= LEAST_REPEATS else None
        result[key] = mixed_noise(prior, here) if prior and here else prior or alone
    return result


def in_windows(noise: Noise, *builds: Sequence[RunLevel]) -> Noise:
    """Return the noise of runs whose windows are shorter than those that `noise` was learned from.

    The variance within runs grows as the window shrinks. The standard errors of the compared runs are not used, because
    they are many times too large if the load has waves.
    """
    shares = np.array([1.0 / len(runs) for runs in builds])
    share = 1.0 if noise.within is None else min(1.0, noise.within**2 / noise.sd**2)
    lengths = (np.array([run.seconds for run in runs if run.seconds > 0]) for runs in builds)
    shorter = [
        max(noise.seconds / each.mean() - 1.0, 0.0) if each.size and noise.seconds > 0 else 0.0 for each in lengths
    ]
    return replace(noise, sd=noise.sd * math.sqrt(1.0 + share * float(shares @ shorter / shares.sum())))


def series_key(slug: str, labels: Mapping[str, str]) -> str:
    """Return the key of a series in a calibration: the metric's slug, and its labels if it has any."""
    listed = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"{slug}{{{listed}}}" if labels else slug


def slug_of(key: str) -> str:
    """Return the metric's slug from a key of :func:`series_key`."""
    return key.partition("{")[0]
