"""Which metrics differ at equal load, by more than runs of one build do?

The metrics of which less is better are one family here: they answer one question, whether a request costs the same.
Those of which neither direction is better, such as the requests per second, answer another: whether the users ask
for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from buildcompare.config.catalogue import Metric
from buildcompare.metrics.load_curve import MetricAtLoad
from buildcompare.metrics.load_family import AdjustByNoise
from buildcompare.results.codes import Status
from buildcompare.stats.effects import ALPHA, Effect, status_of
from buildcompare.stats.noise import Noise

FindMetric = Callable[[str], Metric]
FindNoise = Callable[[Metric], Noise | None]


@dataclass(frozen=True)
class LoadAdjusted:
    """One metric at the highest load that both builds sustained; `None`s where its noise is not known.

    Attributes
    ----------
    family
        How many metrics were judged together.
    noise
        What it was judged by.
    """

    at_load: MetricAtLoad
    effect: Effect | None
    p_adjusted: float | None
    status: Status
    family: int = 1
    noise: Noise | None = None

    def interval(self) -> tuple[float, float] | None:
        """Of the change in percent, at 95 % for all metrics of the family together.

        A reader looks at every row. Of ten intervals that hold at 95 % each, one lies wholly on the bad side in a
        fifth of the tests in which nothing changed; of these, in a fortieth (Bonferroni).
        """
        return self.effect.interval(1.0 - ALPHA / self.family) if self.effect else None

    def row(self) -> dict[str, object]:
        """As it stands in results.json under `load_adjusted`."""
        low, high = self.interval() or (None, None)
        seen = self.at_load
        return {
            "users": seen.at_users,
            "base": seen.base,
            "new": seen.new,
            "delta_percent": (seen.new / seen.base - 1.0) * 100.0,
            "ci_low": low,
            "ci_high": high,
            "p_value": self.effect.p_value if self.effect else None,
            "p_adjusted": self.p_adjusted,
            "status": self.status,
            "at_users_range": [float(seen.users[0]), float(seen.users[-1])],
            "constant": seen.constant,
            "noise_source": self.noise.noise_source if self.noise else "none",
            "noise_of": "none" if self.noise is None else "equal_load" if self.noise.at_load else "levels",
        }


@dataclass(frozen=True)
class JudgeAtLoad:
    """Judge the differences at equal load against margins and the noise between runs."""

    find: FindMetric
    """The catalogue's metric of a slug."""
    noise: FindNoise
    """What runs of one build differ by."""
    adjust: AdjustByNoise = field(default_factory=AdjustByNoise)

    def __call__(self, curves: Mapping[str, MetricAtLoad], runs: tuple[int, int]) -> dict[str, LoadAdjusted]:
        """Judge `curves`, by slug, made from this many runs of each build."""
        metrics = {slug: self.find(slug) for slug in curves}
        noises = {slug: self.noise(metric) for slug, metric in metrics.items()}
        effects = {slug: curves[slug].effect(noise, runs) for slug, noise in noises.items() if noise is not None}
        judged = {slug: LoadAdjusted(curve, None, None, Status.INCONCLUSIVE) for slug, curve in curves.items()}
        for context in (False, True):
            family = [slug for slug in effects if (metrics[slug].better == "neutral") == context]
            for slug, adjusted in zip(family, self._adjusted(family, effects, metrics), strict=True):
                metric, effect = metrics[slug], effects[slug]
                status = status_of(effect, adjusted, metric.margin_percent, metric.better)
                judged[slug] = LoadAdjusted(curves[slug], effect, adjusted, status, len(family), noises[slug])
        return judged

    def _adjusted(
        self, family: Sequence[str], effects: Mapping[str, Effect], metrics: Mapping[str, Metric]
    ) -> list[float]:
        return self.adjust([effects[slug] for slug in family], [metrics[slug].margin_percent for slug in family])
