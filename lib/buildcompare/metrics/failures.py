"""Count the failures of each run, which are recorded as a share of the attempts, as a rate or as a count."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special

from buildcompare.config.catalogue import FAILED, SHARES, SUCCEEDED, Metric
from buildcompare.load.view import RunView
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.series import Measurement
from buildcompare.results.base import Reason
from buildcompare.results.codes import Pair, ReasonCode
from buildcompare.stats.effects import Effect
from buildcompare.stats.failures import failures_effect
from buildcompare.stats.levels import Level, mean_of_runs, measure_level
from buildcompare.stats.planning import ALPHA

_ATTEMPTS = [
    re.compile(rf"(?<!\bper-)\b({words})\b")  # the first of these kinds that is recorded counts the attempts
    for words in ("requests?|reqs?|rps", "transactions|tps", "attempts|calls|iterations", "queries|qps")
]
_NOW = (  # words for states, not for attempts
    "flight|queued?|pending|waiting|slow|active|open|concurrent|running|blocked|long|idle|cached"
)
_OF_ATTEMPTS = re.compile(
    rf"{FAILED}|requests?|reqs?|transactions?|attempts|calls|iterations|queries|http|of|per|second|s|rate|total|counts?"
)
_OTHER = re.compile(rf"\b({FAILED}|{SUCCEEDED}|{_NOW})\b")
_UNITS = ("", "requests", "transactions")
FEW = 1e-3  # an insignificant change is not judged if every run's share of failures (upper bound) is below this
MANY = 1e9  # number of attempts assumed if none are recorded; large, so that failures are Poisson-distributed


class Counts(NamedTuple):
    """Failures or successes of one run, and its attempts if they were recorded."""

    level: Level
    attempts: Level | None = None
    unit: str = ""
    """Unit of `attempts`."""


def attempts_name(runs: Sequence[Recording]) -> tuple[str, str] | None:
    """Return slug and unit of the metric that counts the attempts of all `runs`; None if they share no such metric.

    Runs with time series prefer rates, others counts; then the order of `_ATTEMPTS` and the shortest slug decide.
    """
    rows: list[list[Series | Measurement]] = [[*run.graphs(), *run.measurements] for run in runs]
    named = [{(row.metric, row.unit) for row in of_run} for of_run in rows]
    shared = set[tuple[str, str]].intersection(*named) if named else set[tuple[str, str]]()
    timed = any(run.series for run in runs)
    ranked = [
        (unit.endswith("/s") != timed, kind, len(slug), slug, unit)
        for slug, unit in shared
        for kind, words in enumerate(_ATTEMPTS)
        if (unit in _UNITS or unit.endswith("/s")) and words.search(slug) and not _OTHER.search(slug)
    ]
    return min(ranked)[3:] if ranked else None


def counts(level: Level, view: RunView, name: tuple[str, str] | None, share: Series | None = None) -> Counts:
    """Pair the level of a run's failures with that of its attempts; `name` is slug and unit of the metric of attempts.

    If `share` is given (failures or successes per attempt), the level is the mean of `share` weighted by attempts.
    """
    series = view.recording.total(name[0]) if name else None
    if name is None or series is None:
        return Counts(level)
    window = view.steady.window or view.steady.shown
    if share is not None and window is not None:
        part, number = (curve[np.isfinite(curve)] for curve in map(view.recording.curve, (share, series)))
        part = part[(part.index > window[0]) & (part.index <= window[1])]
        weights = np.interp(part.index, number.index, number) if len(number) else np.zeros(len(part))
        mean = float((part * weights).sum() / weights.sum()) if weights.sum() > 0 else level.value
        level = replace(level, value=mean, mean=mean) if level.value is not None else level
    return Counts(level, measure_level(view.recording.curve(series), window) if window else None, name[1])


def compare_failures(
    metric: Metric, runs: Pair[list[Counts]], *, timed: bool = True
) -> tuple[Effect | None, Reason | None]:
    """Compare the failures of two builds; `metric` counts the failures, or else the successes.

    The effect is None if the metric counts neither failures nor successes, or cannot be judged. It is also None, with a
    reason, if the change is insignificant and every run has a share of failures below `FEW`. Unknown attempts are
    estimated from the scatter of the run's samples; a run without failures gets the median attempts of other runs.
    """
    used = runs.map(lambda side: [run for run in side if run.level.value is not None])
    if any(_exceeds(metric, run) for side in used for run in side):  # so `attempts` counts something else
        used = used.map(lambda side: [Counts(run.level) for run in side])
    if metric.outcome is None:
        return None, None
    highest = max((run.level.value or 0.0 for side in used for run in side), default=0.0)
    whole = 100.0 if (highest > 1.0 if metric.outcome == "successes" else metric.unit == "percent") else 1.0
    counted = used.map(lambda side: [_counted(metric, run, whole, timed=timed) for run in side])
    numbers = [attempts for side in counted for _, attempts, _ in side if 0 < attempts < math.inf]
    if not numbers:
        return None, None
    usual = float(np.median(numbers))
    filled = counted.map(lambda side: [(share, n if 0 < n < math.inf else usual) for share, n, _ in side])
    failures = filled.map(lambda side: [(share * n, n) for share, n in side])
    effect = failures_effect(*failures, succeeded=metric.outcome == "successes")
    known = all(each[2] for side in counted for each in side)
    if effect and known and metric.outcome == "failures" and metric.unit not in SHARES:
        of = used.map(lambda side: mean_of_runs([run.attempts.value for run in side if run.attempts]) or 1.0)
        effect = replace(effect, log_attempts=math.log(of.new / of.base))
    if effect is None or effect.p_value < ALPHA or not known:
        return effect, None
    failed, attempts = np.array([*failures.base, *failures.new]).T
    few = (special.gammaincinv(failed + 1.0, 1.0 - ALPHA / 2.0) < FEW * attempts).all()  # upper Poisson bounds
    return (None, Reason(code=ReasonCode.FEW_FAILED)) if few else (effect, None)


def failed_percent(metric: Metric, runs: Pair[list[Counts]]) -> Pair[float | None] | None:
    """Return the failed part of each build's attempts, in percent; None if failures or attempts are not counted.

    Failures and attempts must both be rates, or both counts. Attempts below the failures are taken for successes.
    """
    rate, counted = metric.unit.endswith("/s"), metric.outcome == "failures" and metric.unit not in SHARES
    known = runs.map(lambda side: [(run.level.value, run.attempts and run.attempts.value, run.unit) for run in side])
    every = [each for side in known for each in side]
    if not counted or any(n is None or value is None or unit.endswith("/s") != rate for value, n, unit in every):
        return None
    if not all(_OF_ATTEMPTS.fullmatch(word) for word in metric.slug.split("-")):
        return None  # something other than requests fails, such as a cache

    def part(failed: float, attempts: float) -> float:
        return 100.0 * failed / (attempts + failed * (attempts < failed) or 1.0)

    return known.map(lambda side: mean_of_runs([part(value or 0.0, n or 0.0) for value, n, _ in side]))


def _exceeds(metric: Metric, run: Counts) -> bool:
    """Whether a run has over 1 % more failures than attempts, both as rates or both as counts."""
    comparable = metric.outcome == "failures" and metric.unit not in SHARES
    comparable = comparable and metric.unit.endswith("/s") == run.unit.endswith("/s")
    return bool(comparable and run.attempts and (run.level.value or 0.0) > 1.01 * (run.attempts.value or math.inf))


def _counted(metric: Metric, run: Counts, whole: float, *, timed: bool) -> tuple[float, float, bool]:
    """Return the share of failures, the attempts (NaN if unknown), and whether the share is known without `MANY`."""
    level, value, seconds = run.level, run.level.value or 0.0, run.level.seconds if timed else 1.0
    attempts = (run.attempts.value if run.attempts else None) or math.nan
    exact = run.unit.endswith("/s") == timed  # attempts must be a rate in runs with time series, else a count
    rate, known = metric.unit.endswith("/s"), True
    if metric.outcome == "successes" or metric.unit in SHARES:
        share = min(max(1.0 - value / whole if metric.outcome == "successes" else value / whole, 0.0), 1.0)
        number = attempts * seconds if exact else math.nan
    elif attempts > 0 and rate == run.unit.endswith("/s") and not re.search(r"\brate\b", metric.slug):
        share, number = min(value / attempts, 1.0), attempts * seconds if exact else math.nan
    else:
        share, known = value / MANY, False
        number = seconds * MANY if rate == timed and "rate" not in metric.slug else math.nan
    if not number > 0:
        part = level.se_log * value / whole if metric.outcome == "successes" else level.se_log * share
        # A constant share, such as a rounded one, has no scatter: one attempt per second is assumed.
        constant = seconds if timed and known and share > 0 else math.nan
        number = share * (1.0 - share) / part**2 if part > 1e-9 * share else constant
    return share, number, known
