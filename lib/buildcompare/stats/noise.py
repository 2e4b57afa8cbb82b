"""Estimate how far two runs of one build lie apart, from repeated runs, earlier comparisons or the catalogue.

What happens inside a run says nothing about the next run of the same build (Kalibera & Jones 2013, "Rigorous
benchmarking in reasonable time"). All noise here is a standard deviation of log levels, close to a relative one.
Its numbers count runs of Mattermost's ceiling tests, three of each setup, from which the catalogue's noise comes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildcompare.config.catalogue import Metric, RunSd
from buildcompare.recordings.recording import FloatArray
from buildcompare.results.codes import NoiseSource, TestType
from buildcompare.stats.changepoints import robust_sd
from buildcompare.stats.planning import root

ENOUGH_DF = 8.0  # with fewer degrees of freedom the other test type is drawn on: three setups of three runs have six
OTHER_TYPE_DF = 4.0  # what the other test type's variance counts for, at most: two setups of three runs
CATALOGUE_DF = 8.0
"""What a catalogue's noise is known with where it does not say, and what it counts for at most beside repeated runs: it
was learned in another laboratory. Of 4, 6, 8 and 15 (simulated pairs, seeds from 1,000,000, and identical ceiling runs
of the development half, each setup by one to three others), fewer leave more undecided, and 15 is wrong more often."""
ALIKE = 3.0
"""So many metrics of one run count as one: the changes of eight metrics between identical ceiling runs (development
half) are as correlated as those of 2.7 independent ones."""
LEAST_DF = 3.0  # bound on the loss of degrees of freedom to setups that differ: what two setups of 2 and 3 runs have
BY_CHANCE = 0.3
"""Groups whose scatter leaves at least this part of their degrees of freedom differ by chance: of calibrations from 6
to 12 groups of 2 to 4 runs with one variance, it leaves less in one of 400. With a half (one in 27) the times of
identical ceiling runs lose a third of the changes of 20 % that are found (development half)."""
LEAST_REPEATS = 2  # with one degree of freedom, intervals are 13 standard errors wide and show nothing
LEAST_SD = 1e-4  # runs that agree to the last digit were rounded, not free of noise: no variance at all judges nothing
CATALOGUE_S = 1800.0  # the catalogues' noise was learned from windows of 30 minutes and more
MAD_EFFICIENCY = 0.37
"""Of a median absolute deviation, against a standard deviation of normal data: n of its observations are worth 0.37 n
degrees of freedom (Rousseeuw & Croux 1993, "Alternatives to the median absolute deviation", JASA 88)."""
ENOUGH_COMPARISONS = 8
"""From so many earlier comparisons on, their noise takes the place of the catalogue's; of 8 with two databases each, 16
changes are worth 6 degrees of freedom."""
Kind = Literal["bounded", "unbounded", "benchmark", "equal_load"]
"""What a catalogue states noise of: levels in a type of test, or unbounded runs at equal load."""
LABEL_KEY = ["group", "label", "stat"]  # what a row of a label table is of


def label_frame(rows: Sequence[tuple[object, ...]], columns: Sequence[str] = ("value",)) -> pd.DataFrame:
    """A frame of `LABEL_KEY` and numbers, typed also where it is empty."""
    frame = pd.DataFrame(rows, columns=[*LABEL_KEY, *columns])
    return frame.astype({**dict.fromkeys(LABEL_KEY, "str"), **dict.fromkeys(columns, "float")})


NO_LABELS = label_frame([], ["value", "calls"])


@dataclass(frozen=True)
class RunLevel:
    """Level of one metric in one run: its mean over the steady window, positive; NaN is unknown."""

    level: float
    se_log: float = math.nan  # standard error of its logarithm within the run
    seconds: float = math.nan  # length of the window


@dataclass(frozen=True, eq=False)
class RunLevels:
    """What a calibration learns from one run."""

    metrics: Mapping[str, RunLevel] = field(default_factory=dict)  # by :func:`series_key`
    labels: pd.DataFrame = field(default_factory=lambda: NO_LABELS)
    """One row per label and statistic: `LABEL_KEY`, value (seconds) and calls in the window (NaN: unknown)."""
    no_change: Mapping[str, float] = field(default_factory=dict)
    """By metric, how large a change the noise of the run alone looks like (see :mod:`buildcompare.metrics.events`)."""


@dataclass(frozen=True)
class NoiseAtEqualLoad:
    """What runs of one group differ by at equal load, in one metric."""

    variance: float  # of one run's log value around that of its build, errors within the run included
    within: float  # the part of it that the runs' own standard errors explain
    df: float


@dataclass(frozen=True, eq=False)  # told apart by what they are, not by what they hold
class RepeatedRuns:
    """Runs of one build on one setup: between them nothing changed."""

    name: str
    type: TestType
    runs: Sequence[RunLevels]
    at_load: Mapping[str, NoiseAtEqualLoad] = field(default_factory=dict)  # by metric, of unbounded runs


@dataclass(frozen=True)
class PastChange:
    """How far the builds of an earlier comparison lay apart in one metric of one test."""

    comparison: str
    log_ratio: float  # logarithm of new over base
    runs: tuple[int, int] = (1, 1)  # of base and new
    se_log: float = 0.0  # standard error of the log ratio within the runs, where it is at equal load
    seconds: float = math.nan  # length of the windows
    within: float = math.nan  # standard error of a single run's level within the run (log scale)
    same_setup: bool = True
    misread: bool = False  # whether it was read off plots, with an error that the catalogue states


@dataclass(frozen=True, eq=False)
class PastColumns:
    """Many earlier changes as arrays of shape (n,), each as the field of :class:`PastChange` of its name."""

    comparison: npt.NDArray[np.int64]  # places in `names`
    log_ratio: FloatArray
    runs: FloatArray  # shape (n, 2)
    se_log: FloatArray
    seconds: FloatArray
    within: FloatArray
    same_setup: npt.NDArray[np.bool_]
    misread: npt.NDArray[np.bool_]
    names: Sequence[str] = ()

    @classmethod
    def of(cls, changes: Sequence[PastChange]) -> PastColumns:
        """The columns of `changes`."""
        names = list(dict.fromkeys(each.comparison for each in changes))
        places = {name: place for place, name in enumerate(names)}

        def floats(name: str) -> FloatArray:
            return np.array([getattr(each, name) for each in changes], dtype=np.float64)

        return cls(
            comparison=np.array([places[each.comparison] for each in changes], dtype=np.int64),
            **{name: floats(name) for name in ("log_ratio", "se_log", "seconds", "within")},
            runs=floats("runs").reshape(-1, 2),
            same_setup=np.array([each.same_setup for each in changes], dtype=bool),
            misread=np.array([each.misread for each in changes], dtype=bool),
            names=names,
        )

    def __len__(self) -> int:
        return self.log_ratio.size

    def __iter__(self) -> Iterator[PastChange]:
        for i, (base, new) in enumerate(self.runs.astype(int).tolist()):
            known = {name: getattr(self, name)[i].item() for name in (*_FLOATS, "same_setup", "misread")}
            yield PastChange(self.names[self.comparison[i]], runs=(base, new), **known)

    def where(self, kept: npt.NDArray[np.bool_]) -> PastColumns:
        """Those that are `kept`."""
        if kept.all():
            return self
        fields = ("comparison", "runs", *_FLOATS, "same_setup", "misread")
        return PastColumns(**{name: getattr(self, name)[kept] for name in fields}, names=self.names)


_FLOATS = ("log_ratio", "se_log", "seconds", "within")
PastChanges = Mapping[tuple[str, str], PastColumns | Sequence[PastChange]]
"""Earlier changes by test type (or ``equal_load``) and metric."""


@dataclass(frozen=True)
class Noise:
    """Run-to-run noise of one metric or label."""

    sd: float  # standard deviation of one run's log level around the level of its build and setup
    df: float  # degrees of freedom that `sd` is known with
    noise_source: NoiseSource
    within: float | None = None  # standard error that repeated runs had of their own mean (log scale)
    seconds: float = math.nan  # length of the windows that it was learned from; NaN where unknown
    at_load: bool = False  # whether it is that of runs compared at equal load, without the error within them
    comparisons: int = 0  # earlier comparisons that it was learned from
    within_scale: float = 1.0  # at equal load, how much larger earlier comparisons say the errors within runs are


def run_noise(groups: Iterable[Sequence[float | RunLevel]], *, least_df: float = LEAST_DF) -> Noise | None:
    """Estimate run-to-run noise from the levels of repeated runs, pooled over builds and setups.

    Parameters
    ----------
    groups
        For each build on one setup the positive levels of a metric in its runs, at least two, in any unit.
    least_df
        Bound on the loss of degrees of freedom to setups that differ.

    Returns
    -------
    Noise or None
        Standard deviation of one run's log level with its degrees of freedom; None without any group.

    Examples
    --------
    >>> noise = run_noise([[100.0, 102.0, 99.0], [240.0, 236.0]])
    >>> f"{100 * noise.sd:.2f} % with {noise.df:g} degrees of freedom"
    '1.42 % with 3 degrees of freedom'
    """
    levels = [[each if isinstance(each, RunLevel) else RunLevel(float(each)) for each in group] for group in groups]
    repeated = [known for group in levels if len(known := [run for run in group if run.level > 0]) > 1]
    if not repeated:
        return None
    variances = np.array([np.var(np.log([run.level for run in group]), ddof=1) for group in repeated])
    variance, df = pool_variances(variances, np.array([len(group) - 1.0 for group in repeated]), least_df=least_df)
    within = [run.se_log**2 for group in repeated for run in group if math.isfinite(run.se_log)]
    seconds = [run.seconds for group in repeated for run in group if run.seconds > 0]
    usual = math.sqrt(float(np.median(within))) if within else None
    length = float(np.median(seconds)) if seconds else math.nan
    return Noise(max(math.sqrt(variance), LEAST_SD), df, NoiseSource.CALIBRATION, usual, length)


def repeats_noise(*runs: Sequence[RunLevel]) -> Noise | None:
    """Noise that is known from nothing but the repeated runs to be judged, which count in by themselves.

    None with fewer than `LEAST_REPEATS` degrees of freedom. Runs that agree to the last digit count as `LEAST_SD`.
    """
    logs = [np.log([run.level for run in of if run.level > 0]) for of in runs]
    if sum(max(log.size - 1, 0) for log in logs) < LEAST_REPEATS:
        return None
    same = all(float(np.ptp(log)) < LEAST_SD for log in logs if log.size > 1)
    return Noise(LEAST_SD, math.inf if same else 0.0, NoiseSource.REPEATS)


def pool_variances(variances: FloatArray, dfs: FloatArray, *, least_df: float = LEAST_DF) -> tuple[float, float]:
    """Pool the variances of groups, and count the degrees of freedom that their scatter leaves beyond `BY_CHANCE`.

    Where one setup is quiet and the next is not, a pooled variance is worth less than its number of runs
    (Satterthwaite 1946, "An approximate distribution of estimates of variance components", Biometrics Bulletin 2).
    """
    weights, total = dfs / dfs.sum(), float(dfs.sum())
    pooled = float(weights @ variances)
    count = len(variances)
    if count < 3 or pooled == 0:
        return pooled, total
    scatter = float(weights**2 @ (variances - pooled) ** 2) * count / (count - 1)
    left = 2.0 * pooled**2 / scatter if scatter > 0 else total
    return pooled, total if left >= BY_CHANCE * total else max(left, least_df)


def metric_noise(
    metric: Metric,
    test_type: TestType,
    groups: Sequence[RepeatedRuns] = (),
    past: PastChanges | None = None,
    *,
    misread: float = 0.0,
) -> Noise | None:
    """Run-to-run noise of `metric` from repeated runs, earlier comparisons and the catalogue; None where unknown.

    A test type with few runs leans on the other type's variance of the same metric, and then on the catalogue's.
    `misread` is what a run's level is misread by, in percent, where it was read off a plot.
    """
    known = _repeated_noise(metric, test_type, groups)
    return with_past(known, (past or {}).get((test_type, metric.slug), ()), misread=misread)


def with_past(known: Noise | None, past: PastColumns | Sequence[PastChange], *, misread: float = 0.0) -> Noise | None:
    """`known` noise with the reading error of plots, scaled to how far the builds of earlier comparisons lay apart.

    Most releases change nothing, some do: so by the median absolute change, of the setup at hand. From
    `ENOUGH_COMPARISONS` on it takes the place of the catalogue's noise; below that, and beside repeated runs, each
    counts by its degrees of freedom. Comparisons on other setups can make the noise larger only. Values that were read
    off plots teach about such values only, and the others about the others.
    """
    if known is not None:  # misread once in each run, however long it is
        known = replace(known, sd=math.hypot(known.sd, math.log1p(misread / 100.0)))
    past = past if isinstance(past, PastColumns) else PastColumns.of(past)
    past = past.where(past.misread == (misread > 0.0))
    own, others = (past.where(past.same_setup == same) for same in (True, False))
    count, of_others = (int(np.count_nonzero(np.bincount(changes.comparison))) for changes in (own, others))
    enough = count >= ENOUGH_COMPARISONS
    if not len(past) or (known is None and not enough):
        return known
    unit = known or Noise(1.0, 0.0, NoiseSource.LEDGER)

    def variance_of(changes: PastColumns) -> float:
        """The variance of `changes`, in that which `unit` expects of them."""
        expected = unit.sd * np.sqrt(1.0 / changes.runs[:, 0] + 1.0 / changes.runs[:, 1])
        if changes.se_log.any():
            expected = np.array([*map(math.hypot, changes.se_log.tolist(), expected.tolist())])
        return robust_sd(changes.log_ratio / expected) ** 2

    learned = MAD_EFFICIENCY * len(own)  # degrees of freedom
    kept = 0.0 if enough and unit.noise_source != NoiseSource.CALIBRATION else unit.df
    variance = (learned * variance_of(own) + kept) / (learned + kept) if len(own) else 1.0
    if of_others >= ENOUGH_COMPARISONS:
        variance = max(variance, variance_of(others))
    seconds, within = own.seconds[own.seconds > 0], own.within[own.within > 0]
    return replace(
        unit,
        sd=max(math.sqrt(variance) * unit.sd, LEAST_SD),
        df=learned + kept,
        noise_source=NoiseSource.LEDGER if enough else unit.noise_source,
        seconds=float(np.median(seconds)) if enough and seconds.size else unit.seconds,
        within=float(np.median(within)) if enough and within.size else unit.within,
        comparisons=count,
        within_scale=math.sqrt(variance),
    )


def _repeated_noise(metric: Metric, test_type: TestType, groups: Sequence[RepeatedRuns]) -> Noise | None:
    """Noise of `metric` from repeated runs and the catalogue."""
    learned, catalogue = learned_noise(metric.slug, test_type, groups), catalogue_noise(metric, test_type)
    if learned is None or catalogue is None or learned.df >= ENOUGH_DF:
        return learned or catalogue
    return mixed_noise(learned, catalogue, catalogue.df)


def learned_noise(slug: str, test_type: TestType, groups: Sequence[RepeatedRuns]) -> Noise | None:
    """Noise of the levels of a metric from repeated runs alone, few of them with those of the other test type."""
    levels: dict[bool, list[list[RunLevel]]] = {True: [], False: []}  # by whether of this type, each series of a group
    for group in groups:
        for key in sorted({key for run in group.runs for key in run.metrics if slug_of(key) == slug}):
            found = [run.metrics[key] for run in group.runs if key in run.metrics]
            levels[group.type == test_type].append(found)
    own, other = run_noise(levels[True]), run_noise(levels[False])
    if own and other and own.df < ENOUGH_DF:
        return mixed_noise(own, other, min(other.df, OTHER_TYPE_DF))
    return own or (other and replace(other, df=min(other.df, OTHER_TYPE_DF)))


def laboratory_ratio(known: Sequence[tuple[Noise, Noise]]) -> float:
    """How many times the variances of a catalogue those of a laboratory's own repeated runs are, over all metrics.

    Their ratios follow a scaled F distribution, as variances do that scatter about a common prior; its scale is the
    one of maximum likelihood, which a single metric that is a hundred times as noisy moves little. `ALIKE` metrics
    count as one, and one more of one degree of freedom agrees with the catalogue. At least 1: few runs are often alike
    by chance, and that makes their own metrics' noise smaller anyhow.

    Parameters
    ----------
    known
        Of each metric the noise that repeated runs taught, and the catalogue's.

    References
    ----------
    Smyth (2004), "Linear models and empirical Bayes methods", Statistical Applications in Genetics and Molecular
    Biology 3, whose degrees of freedom of the prior are estimated too; too few metrics tell them here.

    Examples
    --------
    >>> catalogue = Noise(0.02, 15.0, NoiseSource.CATALOGUE)
    >>> twice = [(Noise(sd, 6.0, NoiseSource.CALIBRATION), catalogue) for sd in (0.03, 0.04, 0.05, 0.04, 0.01, 0.06)]
    >>> round(laboratory_ratio(twice), 1), laboratory_ratio([(catalogue, catalogue)])
    (3.4, 1.0)
    """
    ratio, df, prior_df = np.array(
        [(own.sd**2 / stated.sd**2, own.df, stated.df) for own, stated in known] + [(1.0, 1.0, CATALOGUE_DF)]
    ).T
    weight = np.where(np.arange(ratio.size) < len(known), 1.0 / ALIKE, 1.0)

    def surplus(log_scale: float) -> float:  # above zero where the ratios are larger than this scale explains
        expected = prior_df * math.exp(log_scale) + df * ratio
        return float(weight @ ((df + prior_df) * df * ratio / expected - df))

    return math.exp(root(surplus, 0.0, math.log(ratio.max()))) if surplus(0.0) > 0 else 1.0


def in_laboratory(stated: RunSd, ratios: Mapping[Kind, float]) -> RunSd:
    """What a catalogue states of a metric, as it counts beside repeated runs of a laboratory.

    Its variances are larger by `ratios` (:func:`laboratory_ratio`), of the kinds that repeated runs taught.
    """
    percents = {kind: getattr(stated, kind) for kind in ratios}
    sds = {kind: math.log1p(percent / 100.0) * math.sqrt(ratios[kind]) for kind, percent in percents.items() if percent}
    dfs = {kind: min(stated.df.get(kind, CATALOGUE_DF), CATALOGUE_DF) for kind in sds}
    changed: dict[str, Any] = {kind: 100.0 * math.expm1(sd) for kind, sd in sds.items()}
    return stated.model_copy(update=changed | {"df": {**stated.df, **dfs}})


def catalogue_noise(metric: Metric, of: Kind) -> Noise | None:
    """What the catalogue states; it counts by its degrees of freedom, alone and beside repeated runs."""
    percent = getattr(metric.run_sd_percent, of)
    if not percent:
        return None
    at_load = of == "equal_load"
    df = metric.run_sd_percent.df.get(of, CATALOGUE_DF)
    return Noise(math.log1p(percent / 100.0), df, NoiseSource.CATALOGUE, seconds=CATALOGUE_S, at_load=at_load)


def mixed_noise(noise: Noise, other: Noise, other_df: float) -> Noise:
    """`noise` with the variance of `other` counted in as `other_df` degrees of freedom."""
    df = noise.df + other_df
    return replace(noise, sd=math.sqrt((noise.df * noise.sd**2 + other_df * other.sd**2) / df), df=df)


def series_key(slug: str, labels: Mapping[str, str]) -> str:
    """How a calibration names a series: the metric's slug, and its labels where it has any."""
    listed = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"{slug}{{{listed}}}" if labels else slug


def slug_of(key: str) -> str:
    """The metric's slug in a key of :func:`series_key`."""
    return key.partition("{")[0]
