"""Compute levels, effects and distributions of benchmark values, which have no timestamps."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import special

from buildcompare.config.catalogue import Catalogue, Metric
from buildcompare.config.units import TIMES
from buildcompare.load.view import ZEROS, run_level
from buildcompare.metrics.failures import Counts, attempts_name, compare_failures, failed_percent
from buildcompare.recordings.recording import FloatArray, Recording, joined_numbers
from buildcompare.results import Distribution, DistributionResult, MetricResult, MetricRow, Sessions
from buildcompare.results.base import Reason
from buildcompare.results.codes import SIDES, NoiseSource, Pair, ReasonCode, Side, Status
from buildcompare.stats.effects import Effect, all_positive, measure_effects
from buildcompare.stats.levels import Level, delta_percent, mean_of_runs, measure_level
from buildcompare.stats.noise import LEAST_REPEATS, Contrasts, Noise, RepeatedRuns, RunLevel, metric_noise, repeat_noise
from buildcompare.stats.planning import ALPHA, quantile

QUANTILES = (0.5, 0.9, 0.99)  # quantiles in distributions: the usual targets for request times
ENOUGH_TO_CHOOSE = 15  # metrics needed to decide whether to pair sessions; with 5, false positives rise from 5 to 5.5 %
BETWEEN_SESSIONS = Noise(0.0056, 2.0, NoiseSource.SESSIONS)
"""Default between-session noise of durations, from two pairs of sessions of one commit (181 benchmarks of CPython,
pairs 0 and 1 of benchmarks/sessions.py). In two other pairs, 95 % of the 95 % intervals include zero."""
REPEATED_DF = 4.0
"""Degrees of freedom of `BETWEEN_SESSIONS` with three or more sessions per build. On nights 0 to 9 (tuning), 4 finds
84 % of 10 % changes with 0.2 % false positives, and 2 finds 76 %. On nights 10 to 19, 4 finds 92 % with 0 %."""
BATCHES = 5  # parts into which a session's values are split to measure their scatter


@dataclass(frozen=True)
class Measured:
    """Metric of a test before its judgement, independent of margins."""

    metric_name: str  # name of the series, by which the catalogue finds the metric
    row: MetricResult
    effect: Effect | None  # None if not computed yet, or if the metric cannot be judged
    levels: Pair[list[RunLevel]]
    noise: Noise | None  # noise from other sources than the scatter of `levels`, such as the catalogue; None if unknown


def level_of_build(metric: Metric, runs: Sequence[Level]) -> float | None:
    """Return the geometric mean of the runs' levels; the arithmetic mean for failures, successes or a level of zero."""
    return mean_of_runs([run.value for run in runs], geometric=metric.outcome is None)


def unjudged_row(metric: Metric, levels: Pair[list[Level]], reason: Reason | None) -> MetricResult:
    """Make a row with the levels of the runs and without a judgement."""
    values = levels.map(lambda runs: level_of_build(metric, runs))
    delta = delta_percent(*values)
    of_metric = {name: getattr(metric, name) for name in (*MetricRow.model_fields, "margin_percent")}
    return MetricResult(
        **of_metric, base=values.base, new=values.new, delta_percent=delta, reason=reason,
        levels=levels.map(lambda runs: [level.value for level in runs if level.value is not None]),
        mean=levels.map(lambda runs: mean_of_runs([level.mean for level in runs])),
        status=Status.NOT_COMPARABLE if delta is None else Status.INCONCLUSIVE,
        within_se_log=_within(levels), window=Pair(None, None), missing_samples=Pair(None, None),
    )  # fmt: skip


def with_effects(measured: Sequence[Measured], paired: Collection[int] = ()) -> list[Measured]:
    """Measure the missing effects of metrics without a `reason`; repeated runs of all metrics help to estimate noise.

    `paired` holds the positions of metrics whose runs form pairs of a base run and a new run.
    """
    left = {at: each for at, each in enumerate(measured) if each.effect is None and each.row.reason is None}
    levels, priors = ({at: getattr(each, of) for at, each in left.items()} for of in ("levels", "noise"))
    repeats = {at: _repeats(*each, paired=at in paired) for at, each in levels.items()}
    completed = [*measured]
    for at, effect in measure_effects(levels, priors, repeats).items():
        each, why = left[at], None
        if effect is None:
            few = ReasonCode.FEW_RUNS if max(map(len, each.levels)) > 1 else ReasonCode.NO_NOISE
            why = Reason(code=few if all_positive(*each.levels) else ReasonCode.NOT_POSITIVE)
        elif effect.noise_source == NoiseSource.SESSIONS and not ((here := repeats[at]) and here.df >= LEAST_REPEATS):
            why = Reason(code=ReasonCode.FEW_SESSIONS)  # so few sessions can show changes, but not equivalence
        completed[at] = replace(each, effect=effect, row=each.row.model_copy(update={"reason": why}))
    return completed


def _complete(runs: Mapping[Side, Sequence[Recording]], slug: str) -> dict[Side, list[Recording]]:
    """Return the pairs of sessions in which both builds have the metric `slug`."""
    pairs = zip(*(runs[side] for side in SIDES), strict=True)
    kept = [pair for pair in pairs if all(any(each.metric == slug for each in run.measurements) for run in pair)]
    return {side: [pair[i] for pair in kept] for i, side in enumerate(SIDES)}


def _repeats(base: Sequence[RunLevel], new: Sequence[RunLevel], *, paired: bool) -> Noise | None:
    """Estimate the noise of one run from repeats, or from ratios new / base if `paired` and all pairs are complete."""
    if not paired or len(base) != len(new) or not all_positive(base, new):
        return repeat_noise(base, new)
    both = zip(base, new, strict=True)
    return repeat_noise([RunLevel((one.level / other.level) ** math.sqrt(0.5)) for other, one in both])


def run_levels(levels: Pair[list[Level]]) -> Pair[list[RunLevel]]:
    """Return the levels of the runs that have a level."""
    return levels.map(lambda runs: [run_level(level) for level in runs if level.value is not None])


def _within(levels: Pair[list[Level]]) -> float | None:
    """Return the standard error of log(new / base) from the samples within the runs; None if unknown."""
    errors = [[level.se_log / len(runs) for level in runs if level.value is not None] for runs in levels]
    error = math.hypot(*errors[0], *errors[1])
    return error if math.isfinite(error) and all(errors) else None


def measure_measurements(
    runs: Mapping[Side, Sequence[Recording]],
    catalogue: Catalogue,
    groups: Sequence[RepeatedRuns] = (),
    past: Contrasts | None = None,
) -> list[Measured]:
    """Measure every recorded metric, in the catalogue's order; all runs of a session count as one observation."""
    stated = sessions_of(runs)
    runs, paired = in_sessions(runs)
    rows: list[Measured] = []
    attempts = attempts_name([run for side in SIDES for run in runs[side]])
    every, pairs = runs, set[int]()
    for metric in measured_metrics(every, catalogue):
        complete = _complete(every, metric.slug) if paired else {}
        runs = complete if complete and len(complete["base"]) > LEAST_REPEATS else every
        if runs is complete:
            pairs.add(len(rows))
        numbers = Pair.of(lambda side: _values(runs[side], metric.slug))  # noqa: B023  # called at once, in the same round of the loop
        unit = "" if any((values <= 0.0).mean() > ZEROS for side in numbers for values in side) else metric.unit
        levels = numbers.map(lambda side: [level_of(values, unit) for values in side])  # noqa: B023  # called at once, in the same round of the loop
        missing = [side for side in SIDES if not levels[side]]
        counted = Pair.of(lambda side: _counts(runs[side], metric, attempts))  # noqa: B023  # called at once, in the same round of the loop
        effect, reason = compare_failures(metric, counted, timed=False)
        values = levels.map(lambda runs: level_of_build(metric, runs))  # noqa: B023  # called at once, in the same round of the loop
        if effect is None and missing:
            reason = Reason(code=ReasonCode.NOT_RECORDED, build=missing[0])
        elif effect is None and reason is None and delta_percent(*values) is None:
            reason = Reason(code=no_ratio(metric, levels))
        noise = metric_noise(metric, "benchmark", groups, past)
        if stated and noise is None and metric.unit in TIMES:
            noise = noise_of_sessions(*numbers)
        failed = {"failed_percent": failed_percent(metric, counted)}
        row = unjudged_row(metric, levels, reason).model_copy(update=failed)
        rows.append(Measured(metric.name, row, effect, run_levels(levels), noise))
    return with_effects(rows, pairs)


def noise_of_sessions(base: Sequence[FloatArray], new: Sequence[FloatArray]) -> Noise:
    """Return the default noise of the mean of one session: :data:`BETWEEN_SESSIONS` plus the scatter of its batches."""
    sessions = [each for each in (*base, *new) if each.size and each.min() > 0.0]
    parts = [np.array_split(each, min(BATCHES, each.size)) for each in sessions]
    within = repeat_noise(*([RunLevel(float(np.exp(np.log(part).mean()))) for part in each] for each in parts))
    error = within.sd * math.sqrt(np.mean([1.0 / len(each) for each in parts])) if within else 0.0
    df = REPEATED_DF if min(len(base), len(new)) > LEAST_REPEATS else BETWEEN_SESSIONS.df
    return replace(BETWEEN_SESSIONS, sd=math.hypot(BETWEEN_SESSIONS.sd, error), df=df)


def in_sessions(runs: Mapping[Side, Sequence[Recording]]) -> tuple[dict[Side, list[Recording]], bool]:
    """Join the runs of each session of a build, and tell whether the sessions are paired.

    Sessions are paired if both builds have the same session names, if each build has over `LEAST_REPEATS` sessions, and
    if pairing makes most intervals narrower (assumed for few metrics). Paired sessions are returned in the same order.
    """
    joined: dict[Side, list[Recording]] = {}
    for side in SIDES:
        sessions: dict[str | int, list[Recording]] = {}
        for i, run in enumerate(runs[side]):
            sessions.setdefault(run.session or i, []).append(run)
        joined[side] = [each[0] if len(each) == 1 else joined_numbers(each) for each in sessions.values()]
    names = [[run.session or "" for run in joined[side]] for side in SIDES]
    paired = all(names[0]) and len(names[0]) > LEAST_REPEATS and sorted(names[0]) == sorted(names[1])
    if paired:
        joined["new"].sort(key=lambda run: names[0].index(run.session or ""))
    return joined, paired and _pairs_narrow(joined)


@np.errstate(all="ignore")  # no warnings about values without a logarithm
def _pairs_narrow(sessions: Mapping[Side, Sequence[Recording]]) -> bool:
    """Test whether pairing makes most intervals narrower; always True with fewer than `ENOUGH_TO_CHOOSE` metrics."""
    base, new = (
        pd.DataFrame([{each.metric: np.log(each.values).mean() for each in run.measurements} for run in sessions[side]])
        for side in SIDES
    )
    ratios = ((new - base).var(skipna=False) / (base.var(skipna=False) + new.var(skipna=False))).dropna()
    wider = quantile(1.0 - ALPHA / 2.0, len(base) - 1.0) / quantile(1.0 - ALPHA / 2.0, 2.0 * len(base) - 2.0)
    return ratios.size < ENOUGH_TO_CHOOSE or float(ratios.median()) * wider**2 < 1.0


def sessions_of(runs: Mapping[Side, Sequence[Recording]]) -> Sessions | None:
    """Return the sessions of both builds; None if no run states its session."""
    stated = [run.session for side in SIDES for run in runs[side]]
    if not any(stated) and None in stated:
        return None
    joined, paired = in_sessions(runs)
    return Sessions(names=Pair.of(lambda side: [run.session or "" for run in joined[side]]), paired=paired)


def no_ratio(metric: Metric, levels: Pair[list[Level]]) -> ReasonCode:
    """Return the reason why a metric with a base of zero or less, or a negative new level, is not judged."""
    if metric.outcome is None:
        return ReasonCode.NOT_POSITIVE if any(level.value for level in levels.base) else ReasonCode.ZERO_BASE
    return ReasonCode.NO_ERROR_NOISE if any(level.value for level in levels.new) else ReasonCode.NONE_FAILED


def _counts(runs: Sequence[Recording], metric: Metric, name: tuple[str, str] | None) -> list[Counts]:
    """Return the failures of each run that recorded `metric`; `name` has slug and unit of the metric of attempts."""
    outcomes = []
    for run in runs:
        level = next((level_of(values, metric.unit) for values in _values([run], metric.slug)), None)
        attempts = [level_of(values, name[1]) for values in _values([run], name[0])] if name else []
        if level is not None:
            outcomes.append(Counts(level, attempts[0], name[1]) if attempts and name else Counts(level))
    return outcomes


def compare_distributions(runs: Mapping[Side, Sequence[Recording]], catalogue: Catalogue) -> list[DistributionResult]:
    """Describe each metric's values by build; leave out metrics with at most `LEAST_REPEATS` values in each build."""
    rows = []
    for metric in measured_metrics(runs, catalogue):
        builds = {side: distribution(values_of(runs[side], metric.slug)) for side in SIDES}
        if any(builds.values()):
            rows.append(DistributionResult(name=metric.name, slug=metric.slug, unit=metric.unit, **builds))
    return rows


def distribution(values: FloatArray) -> Distribution | None:
    """Describe independent values by mean, spread and quantiles with 95 % intervals; None for `LEAST_REPEATS` or fewer.

    The interval of the mean is that of Student's t. The intervals of quantiles are order statistics, which hold for any
    distribution (Conover 1999, Practical Nonparametric Statistics, 3.2).
    """
    count = values.size
    if count <= LEAST_REPEATS:
        return None
    ordered, mean, sd = np.sort(values), float(values.mean()), float(values.std(ddof=1))
    half = float(special.stdtrit(count - 1, 1 - ALPHA / 2)) * sd / math.sqrt(count)
    quantiles = {}
    for part in QUANTILES:
        low, high = map(int, special.bdtr(np.arange(count), count, part).searchsorted((ALPHA / 2, 1 - ALPHA / 2)))
        at = float(ordered[max(math.ceil(part * count), 1) - 1])
        bounds = (ordered[low - 1] if low >= 1 else None, ordered[high] if high < count else None)
        quantiles[f"{part:g}"] = (at, *(None if each is None else float(each) for each in bounds))
    return Distribution(values=count, mean=mean, ci=(mean - half, mean + half), sd=sd, quantiles=quantiles)


def measured_metrics(runs: Mapping[Side, Sequence[Recording]], catalogue: Catalogue) -> list[Metric]:
    """Return all recorded metrics in the catalogue's order."""
    names = {each.metric: each.name for side in SIDES for run in runs[side] for each in run.measurements}
    return [catalogue.find(names[slug]) for slug in sorted(names, key=catalogue.position)]


def level_of(values: FloatArray, unit: str) -> Level:
    """Return the level of one run: the geometric mean of durations, the arithmetic mean of other values."""
    level = measure_level(pd.Series(values), (-1.0, float(values.size)), geometric=unit in TIMES)
    return replace(level, seconds=math.nan)


def values_of(runs: Sequence[Recording], slug: str) -> FloatArray:
    """Return all values of a metric in `runs`."""
    return np.concatenate([np.empty(0), *_values(runs, slug)])


def _values(runs: Sequence[Recording], slug: str) -> list[FloatArray]:
    return [each.values for run in runs for each in run.measurements if each.metric == slug]
