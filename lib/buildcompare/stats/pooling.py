"""Pool the change of one metric over the tests of a release, where their noise is independent.

A line over several tests informs: the verdict rests on the tests' own rows, and counts nothing twice.
"""

import math
from collections.abc import Sequence

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import MetricResult, PooledResult, TestResult
from buildcompare.results.codes import TestType, ValidityStatus
from buildcompare.stats.effects import Effect, judge_metrics

STEPS, CLOSE = 50, 1e-5
"""How often the variance between tests is improved at most, and how close its equation then comes to zero."""


def pool_effects(effects: Sequence[Effect]) -> tuple[Effect, float]:
    """The mean change over tests with independent noise, and how much it differs between them.

    Parameters
    ----------
    effects
        The change in each test, at least two.

    Returns
    -------
    Effect and float
        The mean over tests like these (random effects), and the standard deviation of the logarithm of the ratio
        between tests beyond their noise, 0 where the noise explains all (Paule & Mandel 1982).

    Notes
    -----
    Quantiles are those of the noise's own degrees of freedom, as tests of one laboratory share it. Hartung and Knapp's
    variance has one degree of freedom of two tests: intervals ten times as wide. `benchmarks/identical.py` prints what
    this one holds.

    References
    ----------
    Paule & Mandel (1982), J. Research of the National Bureau of Standards 87. DerSimonian & Laird (1986), Controlled
    Clinical Trials 7.

    Examples
    --------
    >>> one, other = (Effect(log_ratio, 0.05, 20.0, 0.035, "catalogue") for log_ratio in (0.10, 0.12))
    >>> pooled, between = pool_effects([one, other])
    >>> round(pooled.delta_percent, 1), round(pooled.sd, 3), between
    (11.6, 0.035, 0.0)
    """
    ratios, variances = np.array([(each.log_ratio, each.sd**2) for each in effects]).T
    between = _between(ratios, variances)
    weights = 1.0 / (variances + between)
    mean, sd = float((weights / weights.sum() * ratios).sum()), float(np.sqrt(1.0 / weights.sum()))
    df, run_sd = min(each.df for each in effects), sd / math.sqrt(2.0)
    return Effect(mean, sd, df, run_sd, effects[0].noise_source), math.sqrt(between)


def _between(ratios: FloatArray, variances: FloatArray) -> float:
    """The variance between tests by Paule & Mandel: that by which their scatter is what their errors explain.

    DerSimonian & Kacker (2007), Contemporary Clinical Trials 28, appendix 8. By hand: importing statsmodels' takes half
    a second of each report and notebook.
    """
    between = 0.0
    for _ in range(STEPS):
        weights = 1.0 / (variances + between)
        squares = (ratios - weights.dot(ratios) / weights.sum()) ** 2
        excess = weights.dot(squares) - (ratios.size - 1)
        if excess < 0:
            return 0.0
        if excess <= CLOSE:
            break
        between += float(excess / (weights**2).dot(squares))
    return between


def pool_metrics(tests: Sequence[TestResult], catalogue: Catalogue) -> list[PooledResult]:
    """One line for each metric and type of test that is independent between tests, of at least two valid ones.

    Rows are those that decide: over the steady windows in bounded tests, at equal load in unbounded ones. Gate metrics
    are one family, the others another, over all lines of the release (Holm).
    """
    rows: dict[tuple[TestType, str, str], list[tuple[TestResult, MetricResult, Effect]]] = {}
    for test in (each for each in tests if each.validity.status != ValidityStatus.INVALID):
        for metric in test.metrics:
            effect = _effect(metric)
            if effect is not None and test.type in catalogue.find(metric.slug).independent_tests:
                rows.setdefault((test.type, metric.slug, str(metric.labels)), []).append((test, metric, effect))
    found = [of for of in rows.values() if len(of) > 1]
    pooled = [pool_effects([effect for _, _, effect in of]) for of in found]
    means = [(catalogue.find(of[0][1].slug), mean) for of, (mean, _) in zip(found, pooled, strict=True)]
    lines = []
    for of, (mean, between), tested in zip(found, pooled, judge_metrics(means), strict=True):
        if tested is None:
            continue
        row = of[0][1].model_dump(include={"name", "slug", "unit", "better", "gate", "labels", "margin_percent"})
        told = {name: value for name, value in tested.deciding_row().items() if name in PooledResult.model_fields}
        spread = {"delta_percent": mean.delta_percent, "between_percent": 100.0 * math.expm1(between)}
        here = {"type": of[0][0].type, "tests": [test.name for test, _, _ in of], "p_adjusted": tested.p_adjusted}
        lines.append(PooledResult(**row | told | spread | here))
    return lines


def _effect(metric: MetricResult) -> Effect | None:
    """The change in the row that decides; None where it was not judged, or is at unchanged traffic mix."""
    row = metric.deciding
    if metric.decided_by not in ("level", "equal_load") or row is None or row.delta_percent is None:
        return None
    if not row.se_log or row.delta_percent <= -100.0:
        return None
    log_ratio = math.log1p(row.delta_percent / 100.0)
    return Effect(log_ratio, row.se_log, row.noise_df or math.inf, row.se_log / math.sqrt(2.0), row.noise_source)
