"""Estimate run-to-run noise from repeated runs, the catalogue and earlier comparisons.

The scatter within a run does not predict the next run of the same build (Kalibera & Jones 2013, "Rigorous benchmarking
in reasonable time"). Noise is a standard deviation of log levels, close to a relative standard deviation. The noise in
the catalogue and the thresholds below come from Mattermost's unbounded tests, with three runs of each setup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Metric
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource, TestType
from buildcompare.stats.planning import root

LENT_DF = 4.0
"""Maximum degrees of freedom of noise from runs of another test type or from other labels of a table. In simulated
identical builds (2 to 5 runs each), 0.7 to 3.2 % of labels are marked as changed. With 8, up to 3.6 % are marked."""
CATALOGUE_DF = 8.0
"""Degrees of freedom of a catalogue's noise: the default, and the maximum if the noise is rescaled to other machines.
Noise of repeated runs with fewer degrees of freedom is pooled with other noise. In simulations (seeds from 1,000,000)
and identical unbounded runs (tuning data), 4 or 6 leave more rows undecided than 8, and 15 makes more wrong."""
ALIKE = 3.0
"""Number of correlated metrics of a run that count as one independent metric. In identical unbounded runs used for
tuning, eight metrics hold as much information as 2.7 independent metrics, so about three count as one."""
LEAST_DF = 3.0  # minimum degrees of freedom if groups differ in noise; groups of 2 and 3 runs have (2 - 1) + (3 - 1)
BY_CHANCE = 0.3
"""Variances of groups count as equal if Satterthwaite's degrees of freedom reach this fraction of the groups' total.
If variances are equal (6 to 12 groups of 2 to 4 runs), 1 of 400 calibrations has a fraction below 0.3, and 1 of 27
below 0.5. A limit of 0.5 would miss a third of the injected 20 % changes that are found now (tuning data)."""
LEAST_REPEATS = 2  # minimum degrees of freedom of noise from repeats alone; with 1, intervals are +-13 standard errors
LEAST_SD = 1e-4  # minimum standard deviation (log scale), because rounded values may be equal in all runs
CATALOGUE_S = 1800.0  # shortest window, in seconds, from which the catalogues' noise was learned
ENOUGH_COMPARISONS = 8  # earlier comparisons needed to learn the noise of a metric that has no other source
Kind = Literal["bounded", "unbounded", "benchmark", "equal_load"]
"""Kinds of noise in a catalogue: of levels in one type of test, or at equal numbers of users (`equal_load`)."""
LABEL_KEY = ["group", "label", "stat"]  # columns that identify a row of a label table


def label_frame(rows: Sequence[tuple[object, ...]], columns: Sequence[str] = ("value",)) -> pd.DataFrame:
    """Build a frame of the text columns `LABEL_KEY` and the numeric `columns`, with these types even if it is empty."""
    frame = pd.DataFrame(rows, columns=[*LABEL_KEY, *columns])
    return frame.astype({**dict.fromkeys(LABEL_KEY, "str"), **dict.fromkeys(columns, "float")})


NO_LABELS = label_frame([], ["value", "calls"])


@dataclass(frozen=True)
class RunLevel:
    """Level of one metric in one run: the mean over its steady window; 0 or NaN if unknown."""

    level: float
    se_log: float = math.nan  # standard error of the logarithm of `level`, from the samples of this run
    seconds: float = math.nan  # length of the window


@dataclass(frozen=True, eq=False)
class RunLevels:
    """Levels of metrics and labels in one of the repeated runs from which noise is learned."""

    metrics: Mapping[str, RunLevel] = field(default_factory=dict)  # levels by slug and labels (:func:`series_key`)
    labels: pd.DataFrame = field(default_factory=lambda: NO_LABELS)
    """One row per label and statistic: `LABEL_KEY`, value (seconds) and calls in the window (NaN if unknown)."""
    no_change: Mapping[str, float] = field(default_factory=dict)  # by slug: smallest penalty that leaves no changepoint


@dataclass(frozen=True)
class NoiseAtEqualLoad:
    """Run-to-run noise of one metric at equal numbers of connected users, from repeated runs of one build."""

    variance: float  # variance of runs' log values around their build's log value, including the error within a run
    within: float  # component of `variance` that comes from errors within the runs
    df: float


@dataclass(frozen=True, eq=False)  # compared by identity
class RepeatedRuns:
    """Repeated runs of one build on one setup."""

    name: str
    type: TestType
    runs: Sequence[RunLevels]
    at_load: Mapping[str, NoiseAtEqualLoad] = field(default_factory=dict)  # by slug; only for unbounded runs


CONTRAST = ("comparison", "squares", "df", "misread")
"""Columns of a table with one row per test: number of the comparison, squared deviation of the test's log(new / base)
from the comparison's mean (scaled to one run), degrees of freedom, and whether levels were read off plots."""
Contrasts = Mapping[tuple[str, str], pd.DataFrame]
"""Maps the test type and the slug of a metric to a table with the columns `CONTRAST`."""
Key = TypeVar("Key")


@dataclass(frozen=True)
class Noise:
    """Run-to-run noise of one metric or label."""

    sd: float  # standard deviation of one run's log level around the level of its build and setup
    df: float  # degrees of freedom of `sd`
    noise_source: NoiseSource
    within: float | None = None  # typical standard error of a run's log level, from the samples within the run
    seconds: float = math.nan  # length of the windows that `sd` was learned from; NaN if unknown
    at_load: bool = False  # True for noise at equal load, which excludes the error within the runs
    comparisons: int = 0  # number of earlier comparisons that `sd` was learned from


def run_noise(groups: Iterable[Sequence[float | RunLevel]]) -> Noise | None:
    """Estimate run-to-run noise from the levels of repeated runs, pooled over builds and setups.

    Parameters
    ----------
    groups
        Levels of a metric, above zero, in any unit; each group holds the runs of one build on one setup.

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
    """Noise from the scatter of repeated runs around the levels of their own builds; None without any repeats."""
    noise = run_noise(runs)
    return noise and replace(noise, noise_source=NoiseSource.REPEATS)


def pool_variances(variances: FloatArray, dfs: FloatArray) -> tuple[float, float]:
    """Return the pooled variance of groups and its degrees of freedom, which are reduced if the variances differ.

    The reduction follows Satterthwaite (1946, "An approximate distribution of estimates of variance components",
    Biometrics Bulletin 2). It needs at least three groups, and differences beyond chance (`BY_CHANCE`).
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
    """Run-to-run noise of `metric` from repeated runs, the catalogue and earlier comparisons; None if unknown.

    If repeated runs are few, noise from the other test type and the catalogue is pooled in. `misread` is the reading
    error of levels read off plots, in percent. In unbounded tests (rising load), earlier comparisons count only for
    metrics without other noise, because the comparisons miss noise that is common to all their tests. For example,
    one run's supported users have a standard deviation of 1.4 % in earlier comparisons, 1.6 to 2.0 % in identical runs.
    """
    learned, catalogue = learned_noise(metric.slug, test_type, groups), catalogue_noise(metric, test_type)
    noise = (
        mixed_noise(learned, catalogue) if learned and catalogue and learned.df < CATALOGUE_DF else learned or catalogue
    )
    noise = with_reading_error(noise, misread)
    counts = past and (test_type != "unbounded" or noise is None)
    return with_contrasts(noise, past.get((test_type, metric.slug)), misread=misread > 0) if past and counts else noise


def with_reading_error(noise: Noise | None, misread: float) -> Noise | None:
    """Add to `noise` the reading error of levels read off plots; `misread` is that error in percent."""
    return replace(noise, sd=math.hypot(noise.sd, math.log1p(misread / 100.0))) if noise else None


def with_contrasts(noise: Noise | None, past: pd.DataFrame | None, *, misread: bool = False) -> Noise | None:
    """Pool `noise` with noise estimated from earlier comparisons, weighted by degrees of freedom.

    A contrast is a metric's change in one test, such as on MySQL, minus its change in another of the same comparison,
    such as on Postgres. If the build affects the tests differently, contrasts overestimate noise, so they never raise
    `noise`. Without `noise`, `ENOUGH_COMPARISONS` comparisons are needed. `misread` is True for levels read off plots.

    The rule was chosen on half of the published releases in the tuning data (63 rows of bounded tests). In that half,
    95 % of contrasts lie in 95 % intervals learned from other releases, or 91 % without the catalogue's noise. In the
    other half, 97 % do, and the intervals are three quarters as wide as those from the catalogue.
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
    """Noise of a metric's levels from repeated runs alone; with few runs, runs of the other test type count too."""
    levels: dict[bool, list[list[RunLevel]]] = {True: [], False: []}  # True: runs of `test_type`; False: other runs
    for group in groups:
        for key in sorted({key for run in group.runs for key in run.metrics if slug_of(key) == slug}):
            levels[group.type == test_type].append([run.metrics[key] for run in group.runs if key in run.metrics])
    same, other = run_noise(levels[True]), run_noise(levels[False])
    other = other and replace(other, df=min(other.df, LENT_DF))
    return mixed_noise(same, other) if same and other and same.df < CATALOGUE_DF else same or other


def laboratory_ratio(noises: Sequence[tuple[Noise, Noise]]) -> float:
    """Estimate how many times larger a laboratory's run-to-run variances are than the catalogue's, over all metrics.

    `noises` holds the noise of each metric from repeated runs and from the catalogue. The result is the maximum-
    likelihood scale of an F distribution of the metrics' ratios (Smyth 2004, Statistical Applications in Genetics and
    Molecular Biology 3). The result is at least 1, because a few runs often agree by chance. Metrics are correlated,
    so `ALIKE` metrics count as one. A metric with ratio 1 and one degree of freedom is added to stabilise the estimate.
    """
    ratio, df, prior_df = np.array(
        [(runs.sd**2 / stated.sd**2, runs.df, stated.df) for runs, stated in noises] + [(1.0, 1.0, CATALOGUE_DF)]
    ).T
    weight = np.where(np.arange(ratio.size) < len(noises), 1.0 / ALIKE, 1.0)

    def surplus(log_scale: float) -> float:  # positive below the maximum-likelihood scale, negative above
        expected = prior_df * math.exp(log_scale) + df * ratio
        return float(weight @ ((df + prior_df) * df * ratio / expected - df))

    return math.exp(root(surplus, 0.0, math.log(ratio.max()))) if surplus(0.0) > 0 else 1.0


def catalogue_noise(metric: Metric, of: Kind) -> Noise | None:
    """Noise of `metric` in the catalogue, in one type of test or at equal load (`of`); None if it is not stated."""
    percent = getattr(metric.run_sd_percent, of)
    if not percent:
        return None
    at_load = of == "equal_load"
    df = metric.run_sd_percent.df.get(of, CATALOGUE_DF)
    return Noise(math.log1p(percent / 100.0), df, NoiseSource.CATALOGUE, seconds=CATALOGUE_S, at_load=at_load)


def mixed_noise(noise: Noise, other: Noise) -> Noise:
    """Return `noise` with the pooled variance of both estimates, each weighted by its degrees of freedom."""
    df = noise.df + other.df
    return replace(noise, sd=math.sqrt((noise.df * noise.sd**2 + other.df * other.sd**2) / df), df=df)


def beside_repeats(priors: Mapping[Key, Noise | None], repeats: Mapping[Key, Noise | None]) -> dict[Key, Noise | None]:
    """Pool two estimates of each metric's noise: from other sources (`priors`), and from a comparison's own `repeats`.

    Degrees of freedom are the weights. If repeated runs vary more than `priors` predict over all metrics together, the
    variances of `priors` are multiplied by the :func:`laboratory_ratio`. The uncertainty of this ratio reduces the
    degrees of freedom of `priors`. A metric without noise in `priors` needs repeated runs with at least `LEAST_REPEATS`
    degrees of freedom. `benchmarks/repeats.py` prints the rates of false positives.
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
    """Return `noise`, increased if the runs' windows are shorter than the windows that `noise` was learned from.

    The variance within runs is inversely proportional to the length of the window. The standard errors of the compared
    runs are not used, because slow oscillations of the load make them many times too large.
    """
    shares = np.array([1.0 / len(runs) for runs in builds])
    share = 1.0 if noise.within is None else min(1.0, noise.within**2 / noise.sd**2)
    spans = (np.array([run.seconds for run in runs if run.seconds > 0]) for runs in builds)
    excess = [max(noise.seconds / each.mean() - 1.0, 0.0) if each.size and noise.seconds > 0 else 0.0 for each in spans]
    return replace(noise, sd=noise.sd * math.sqrt(1.0 + share * float(shares @ excess / shares.sum())))


def series_key(slug: str, labels: Mapping[str, str]) -> str:
    """Key of a series in a calibration: the metric's slug, with its labels if any."""
    listed = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"{slug}{{{listed}}}" if labels else slug


def slug_of(key: str) -> str:
    """Slug of the metric in a key of :func:`series_key`."""
    return key.partition("{")[0]
