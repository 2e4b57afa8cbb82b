"""Models of metrics, error rates, labels and events."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from buildcompare.results.base import Model, Number, Reason, Window
from buildcompare.results.codes import Better, NoiseSource, Pair, Side, Status
from buildcompare.results.load import LoadAdjustedResult, TrafficMixResult


class MetricResult(Model):
    """One metric of one test."""

    name: str
    slug: str
    labels: dict[str, str] = Field(default_factory=dict)
    unit: str
    better: Better
    gate: bool
    margin_percent: float
    base: Number
    """Level over the steady window: the mean, for times the geometric mean."""
    new: Number
    mean: Pair[Number]
    """The arithmetic means of the same samples."""
    delta_percent: Number
    ci_low: Number = None
    """95 % interval of `delta_percent`, from run-to-run variance, not adjusted for the number of metrics."""
    ci_high: Number = None
    p_value: Number = None
    p_adjusted: Number = None
    """Holm's over `family`."""
    family: str | None = None
    p_worse_one_sided: Number = None
    """Adjusted one-sided p-value, where the change lies beyond the margin on the bad side."""
    status: Status
    """Where neither direction is better (`better`: neutral), an improvement is merely more and a regression less."""
    reason: Reason | None
    n_effective: Number = None
    """Effective sample size of the steady window, in the run where it is smallest."""
    min_detectable_percent: Number = None
    """The smallest rise that would have been significant with a probability of 80 %, alone in its family."""
    required_runs: int | None = None
    """Runs per build that tell a change of the margin's size from chance; null beyond 99 or where nothing is known."""
    noise_source: NoiseSource = NoiseSource.NONE
    window: Pair[Window | None]
    missing_samples: Pair[Number]
    load_adjusted: LoadAdjustedResult | None = None
    traffic_mix: TrafficMixResult | None = None

    @property
    def effective_status(self) -> Status:
        """The status that a verdict counts: at unchanged traffic mix where the mix moved the average."""
        return self.traffic_mix.status if self.traffic_mix and self.traffic_mix.counts else self.status

    @property
    def effective_delta_percent(self) -> float | None:
        """`delta_percent` as a verdict counts it."""
        mix = self.traffic_mix
        return mix.at_unchanged_mix_percent if mix and mix.counts else self.delta_percent

    @property
    def effective_p_worse(self) -> float | None:
        """`p_worse_one_sided` as a verdict counts it."""
        mix = self.traffic_mix
        return mix.p_worse_one_sided if mix and mix.counts else self.p_worse_one_sided


class ErrorRateResult(Model):
    """How often something failed in one test, relative to how often it was tried."""

    name: str
    slug: str
    unit: str
    better: Literal[Better.LOWER] = Better.LOWER
    gate: Literal[True] = True
    base: Number
    """Mean over the steady window, over the runs of the build."""
    new: Number
    delta: Number
    """In `unit`: of a rate that is often zero a ratio says little."""
    delta_percent: Number
    """Null where the base had none."""
    status: Status
    reason: Reason | None


class LabelResult(Model):
    """One label and statistic of one test."""

    group: str
    label: str
    stat: str
    base: Number
    new: Number
    delta_percent: Number
    ci_low: Number = None
    ci_high: Number = None
    p_value: Number = None
    p_adjusted: Number = None
    calls: Pair[Number] | None = None
    window: Literal["steady", "whole_run"]
    status: Status
    """By `p_value` below 0.02, row by row: at most that part of the rows is a false alarm.
    `p_adjusted` (Benjamini and Hochberg's over the table and statistic) is for readers of the whole table."""
    only_in: Side | None
    at_least: Pair[bool]
    reason: Reason | None


class Event(Model):
    """Something that happened at one time in one metric."""

    metric: str
    build: Side
    run: int = 1
    kind: Literal["level", "spike", "drop"]
    at_s: float
    """When it was largest; of a level shift, when it happened."""
    span_s: Window
    size: float
    """In the metric's unit, with its sign."""
    size_percent: Number
    ci: tuple[Number, Number] | None
    group: int | None
    """The same number for events that happened together."""
    matched: bool
    warning: bool = False
    """Whether it is in one build only and surely larger than the metric's margin."""
