"""Which metrics differ at equal load, by more than runs of one build do?

All metrics of one test are one family here: they answer one question, whether a request costs the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from buildcompare.analysis.judge import Effect, Judge, Status, adjust_discoveries
from buildcompare.analysis.load_curve import MetricAtLoad
from buildcompare.analysis.run_to_run import Noise
from buildcompare.metrics import Metric

FindMetric = Callable[[str], Metric]
FindNoise = Callable[[Metric], Noise | None]


@dataclass(frozen=True)
class LoadAdjusted:
    """One metric at the highest load that both builds sustained; `None`s where its noise is not known."""

    at_load: MetricAtLoad
    effect: Effect | None
    p_adjusted: float | None
    status: Status

    def row(self) -> dict[str, object]:
        """As it stands in results.json under `load_adjusted`."""
        low, high = self.effect.interval() if self.effect else (None, None)
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
        }


@dataclass(frozen=True)
class JudgeAtLoad:
    """Judge the differences at equal load against margins and the noise between runs."""

    find: FindMetric
    """The catalogue's metric of a slug."""
    noise: FindNoise
    """What runs of one build differ by."""
    judge: Judge = field(default_factory=Judge)

    def __call__(self, curves: Mapping[str, MetricAtLoad], runs: tuple[int, int]) -> dict[str, LoadAdjusted]:
        """Judge `curves`, by slug, made from this many runs of each build."""
        metrics = {slug: self.find(slug) for slug in curves}
        noises = {slug: self.noise(metric) for slug, metric in metrics.items()}
        effects = {slug: curves[slug].effect(noise, runs) for slug, noise in noises.items() if noise is not None}
        adjusted = dict(zip(effects, adjust_discoveries([effect.p_value for effect in effects.values()]), strict=True))
        return {
            slug: LoadAdjusted(curve, effects[slug], adjusted[slug], self._status(effects, adjusted, metrics[slug]))
            if slug in effects
            else LoadAdjusted(curve, None, None, "inconclusive")
            for slug, curve in curves.items()
        }

    def _status(self, effects: Mapping[str, Effect], adjusted: Mapping[str, float], metric: Metric) -> Status:
        return self.judge(effects[metric.slug], adjusted[metric.slug], metric.margin_percent, metric.better)
