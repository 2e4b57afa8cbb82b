"""Average the change of one metric over those tests of a release whose noise is independent.

Pooled rows are for information; the verdict uses only the rows of the tests.
"""

import math
from collections.abc import Sequence

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.recording import FloatArray
from buildcompare.results import MetricResult, PooledResult, TestResult
from buildcompare.results.codes import TestType, ValidityStatus
from buildcompare.stats.effects import Effect, judge_metrics
from buildcompare.stats.planning import root


def pool_effects(effects: Sequence[Effect]) -> tuple[Effect, float]:
    """Return the random-effects mean of the changes in tests with independent noise, and the changes' true spread.

    The spread is the standard deviation of the tests' log ratios, without their noise (Paule & Mandel 1982, J. Research
    of the National Bureau of Standards 87; DerSimonian & Laird 1986, Controlled Clinical Trials 7). The mean gets the
    smallest degrees of freedom of the tests. Hartung and Knapp's variance is not used: with two tests it has one degree
    of freedom and intervals ten times as wide. `benchmarks/identical.py` prints the rate of false alarms.
    """
    ratios, variances = np.array([(each.log_ratio, each.sd**2) for each in effects]).T
    between = _between(ratios, variances)
    weights = 1.0 / (variances + between)
    mean, sd = float((weights / weights.sum() * ratios).sum()), float(np.sqrt(1.0 / weights.sum()))
    df, run_sd = min(each.df for each in effects), sd / math.sqrt(2.0)
    return Effect(mean, sd, df, run_sd, effects[0].noise_source), math.sqrt(between)


def _between(ratios: FloatArray, variances: FloatArray) -> float:
    """Return the variance between tests that explains the scatter of changes beyond their noise; 0 if noise suffices.

    ``combine_effects`` of statsmodels is not used, because its import takes half a second; unit tests compare with it.
    """

    def excess(between: float) -> float:
        weights = 1.0 / (variances + between)
        squares = (ratios - weights.dot(ratios) / weights.sum()) ** 2
        return float(weights.dot(squares)) - (ratios.size - 1)

    return root(excess, 0.0, float(ratios.var()) * ratios.size) if excess(0.0) > 0.0 else 0.0


def pool_metrics(tests: Sequence[TestResult], catalogue: Catalogue) -> list[PooledResult]:
    """Pool each metric that two or more valid tests of one type judge, if its noise is independent between the tests.

    Each test contributes the change that its verdict uses: by level or, if unbounded, at equal load. P-values are
    adjusted within the families of :func:`~buildcompare.stats.effects.judge_metrics`.
    """
    rows: dict[tuple[TestType, str, str], list[tuple[TestResult, MetricResult, Effect]]] = {}
    for test in (each for each in tests if each.validity.status != ValidityStatus.INVALID):
        for metric in test.metrics:
            effect = _effect(metric)
            if effect is not None and test.type in catalogue.find(metric.slug).independent_tests:
                rows.setdefault((test.type, metric.slug, str(metric.labels)), []).append((test, metric, effect))
    groups = [group for group in rows.values() if len(group) > 1]
    pooled = [pool_effects([effect for _, _, effect in group]) for group in groups]
    means = [(catalogue.find(group[0][1].slug), mean) for group, (mean, _) in zip(groups, pooled, strict=True)]
    results = []
    for group, (mean, between), tested in zip(groups, pooled, judge_metrics(means), strict=True):
        if tested is not None:
            test, metric, _ = group[0]
            fields = vars(tested.filled(metric)) | {"type": test.type}
            fields |= {"delta_percent": mean.delta_percent, "between_percent": 100.0 * math.expm1(between)}
            fields["tests"] = [each.name for each, _, _ in group]
            results.append(PooledResult.model_validate({name: fields[name] for name in PooledResult.model_fields}))
    return results


def _effect(metric: MetricResult) -> Effect | None:
    """Return the effect in the row that the verdict uses; None for a traffic mix, -100 %, or no standard error."""
    row = metric.deciding
    if metric.decided_by not in ("level", "equal_load") or row is None or row.delta_percent is None:
        return None
    if not row.se_log or row.delta_percent <= -100.0:
        return None
    log_ratio = math.log1p(row.delta_percent / 100.0)
    return Effect(log_ratio, row.se_log, row.noise_df or math.inf, row.se_log / math.sqrt(2.0), row.noise_source)
