"""Schema of what is kept of the load: what limited a build, what differs at equal load, which calls were made."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from buildcompare.results.base import Model, Number, Window
from buildcompare.results.codes import NoiseSource, Side, Status


class AlertResult(Model):
    """What one alert of the coordinator did in one build."""

    build: Side
    alert: str
    threshold: float
    first_s: Number
    """Null where it never was at its threshold."""
    times: int
    """How often it came to its threshold from below."""
    share_steady: float
    """The part of the samples in the steady window at or above the threshold."""
    nearness: Number
    """What the query answered in the steady window (its 95th percentile) as a part of the threshold."""


NEAR = 0.8
"""At this part of its threshold a query is near it: one more step of load, and it would be what limits."""


class LimitedBy(Model):
    """What limited each build, in words and in numbers; the alerts of a build in the catalogue's order."""

    base: str | None = None
    new: str | None = None
    alerts: list[AlertResult] = Field(default_factory=list)

    def of(self, build: Side) -> list[AlertResult]:
        """The alerts of one build."""
        return [use for use in self.alerts if use.build == build]

    def first(self, build: Side) -> AlertResult | None:
        """The alert that was at its threshold first."""
        fired = [use for use in self.of(build) if use.first_s is not None]
        return min(fired, key=lambda use: use.first_s or 0.0, default=None)

    def limiting(self, build: Side) -> AlertResult | None:
        """The alert that was at its threshold most often in the steady window; None where none was."""
        use = max(self.of(build), key=lambda use: use.share_steady, default=None)
        return use if use is not None and use.share_steady > 0.0 else None

    def near(self, build: Side) -> list[AlertResult]:
        """The alerts whose queries came near their thresholds in the steady window, nearest first."""
        near = [use for use in self.of(build) if (use.nearness or 0.0) >= NEAR]
        return sorted(near, key=lambda use: -(use.nearness or 0.0))


class LoadAdjustedResult(Model):
    """One metric at equal load; `ci_low` to `ci_high` hold at 95 % for all metrics of its family together."""

    users: float
    base: Number
    new: Number
    delta_percent: Number
    ci_low: Number
    ci_high: Number
    p_value: Number
    p_adjusted: Number
    """Over the metrics of the test of which less is better, or over those without a better direction."""
    status: Status
    at_users_range: Window
    """Loads at which both builds were seen."""
    constant: bool = False
    """Whether the difference is the mean over these loads: at the highest it is no different."""
    noise_source: NoiseSource = NoiseSource.NONE
    noise_of: Literal["equal_load", "levels", "none"] = "none"
    """What the noise between runs was learned from: runs at equal load, or their levels, which move with the load."""


class MixMover(Model):
    """A label whose share of the calls moved an average."""

    label: str
    base_share_percent: float
    new_share_percent: float
    seconds: float
    """Per call, the mean of both builds."""
    percent: float
    """Its part of `mix_percent`."""


class TrafficMixResult(Model):
    """The change of an average over labels, split: `mix_percent` and `speed_percent` add up to `delta_percent`."""

    group: str
    kind: Literal["mix", "speed", "both", "neither", "unknown"]
    """What moved; `unknown`: the mix did, and how far speed moves by chance is not known."""
    counts: bool
    """Whether the metric counts as at unchanged mix (where the mix moved it), and not as measured."""
    base: float
    new: float
    delta_percent: float
    mix_percent: float
    mix_ci_low: Number = None
    """95 %, from the noise of the labels where it is known."""
    mix_ci_high: Number = None
    speed_percent: float
    speed_ci_low: Number = None
    """95 %, from the noise of the average between runs of one build."""
    speed_ci_high: Number = None
    at_unchanged_mix_percent: Number = None
    """The change of the metric itself without the mix part."""
    ci_low: Number = None
    """95 % interval of `at_unchanged_mix_percent`."""
    ci_high: Number = None
    p_adjusted: Number = None
    p_worse_one_sided: Number = None
    status: Status
    """Of the metric at unchanged mix."""
    movers: list[MixMover] = Field(default_factory=list)
