"""Which of many metrics or labels changed? Chance finds some in any long table, so they are judged as families.

The families are declared before any data is seen: the metrics of one test that users feel, its other metrics, and
each label table with one statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from statsmodels.stats.multitest import fdrcorrection

from buildcompare.config.catalogue import Metric
from buildcompare.results.codes import Better, Status
from buildcompare.stats.effects import Effect, Judge, p_worse_one_sided


@dataclass(frozen=True)
class Judged:
    """One effect, judged in its family.

    Attributes
    ----------
    p_adjusted
        Over the family: Holm's (1979) for metrics, Benjamini and Hochberg's (1995) for labels. Holm's holds under any
        dependence: metrics of one run move together, so a family that is wrong once is often wrong several times over,
        which procedures for the rate of false discoveries reward.
    size
        How many were judged in the family.
    p_worse_one_sided
        Adjusted one-sided p-value of an effect beyond its margin on the bad side; None where there is none.
    """

    effect: Effect
    family: str
    size: int
    p_value: float
    p_adjusted: float
    status: Status
    p_worse_one_sided: float | None


@dataclass(frozen=True)
class JudgeMetrics:
    """Judge the metrics of one test in two families: what users feel (gate metrics), and the rest."""

    judge: Judge = field(default_factory=Judge)

    def __call__(self, effects: Sequence[tuple[Metric, Effect | None]]) -> list[Judged | None]:
        """One judgement for each of `effects`, in their order; None where there is no effect to judge."""
        families = ["gate" if metric.gate else "other" for metric, _ in effects]
        rows = [(family, effect) for family, (_, effect) in zip(families, effects, strict=True)]
        adjusted = _adjusted(rows, _holm)
        judged: list[Judged | None] = []
        for i, (metric, effect) in enumerate(effects):
            if effect is None:
                judged.append(None)
                continue
            leaning = p_worse_one_sided(effect, metric.margin_percent, metric.better)
            p_adjusted, size = adjusted[i]
            factor = p_adjusted / effect.p_value if effect.p_value > 0 else 1.0
            judged.append(
                Judged(
                    effect,
                    families[i],
                    size,
                    effect.p_value,
                    p_adjusted,
                    self.judge(effect, p_adjusted, metric.margin_percent, metric.better),
                    None if leaning is None else min(leaning * factor, 1.0),
                )
            )
        return judged


@dataclass(frozen=True)
class JudgeLabels:
    """Judge the rows of label tables, each at its own error rate.

    Nobody ships or stops a build for one row, but everybody reads the rows that are marked. So the promise is about
    the table: of rows where nothing changed at most `alpha` are marked. The adjusted p-value stands beside it.
    """

    alpha: float = 0.02
    margin_percent: float = 10.0

    def __call__(self, effects: Sequence[tuple[Hashable, Effect | None]]) -> list[Judged | None]:
        """One judgement for each of `effects`, given with the table that it belongs to; slower is worse."""
        adjusted = _adjusted(effects, lambda p_values: list(fdrcorrection(p_values)[1]))
        judge = Judge(self.alpha)
        return [
            None
            if effect is None
            else Judged(
                effect,
                str(table),
                adjusted[i].size,
                effect.p_value,
                adjusted[i].p_value,
                judge(effect, effect.p_value, self.margin_percent, Better.LOWER),
                None,
            )
            for i, (table, effect) in enumerate(effects)
        ]


class _Adjusted(NamedTuple):
    """An adjusted p-value, and the size of its family."""

    p_value: float
    size: int


def _adjusted(
    effects: Sequence[tuple[Hashable, Effect | None]], adjust: Callable[[Sequence[float]], list[float]]
) -> Mapping[int, _Adjusted]:
    """Adjusted p-values by position; families are the first members."""
    families: dict[Hashable, list[int]] = {}
    for i, (family, effect) in enumerate(effects):
        if effect is not None:
            families.setdefault(family, []).append(i)
    adjusted: dict[int, _Adjusted] = {}
    for members in families.values():
        p_values = [effect.p_value for i in members if (effect := effects[i][1]) is not None]
        for i, p_value in zip(members, adjust(p_values), strict=True):
            adjusted[i] = _Adjusted(float(p_value), len(members))
    return adjusted


def _holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted by Holm's procedure.

    In 3 microseconds for eight metrics: a self-check asks for tens of thousands of families, and statsmodels takes
    20 milliseconds for each, whatever its size.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, worst = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min((len(p_values) - rank) * p_values[i], 1.0))
        adjusted[i] = worst
    return adjusted
