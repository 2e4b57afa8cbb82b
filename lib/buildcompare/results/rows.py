"""Rows of tables in results.json: a value in both builds, its test against noise, and the conclusion."""

from typing import Literal, Self

from pydantic import Field

from buildcompare.results.base import Model, Number, Reason
from buildcompare.results.codes import Better, NoEstimate, NoiseSource, Pair, Side, Status, TestType, Window


class Change(Model):
    """One value in both builds, their difference, and the conclusion."""

    base: Number
    new: Number
    delta_percent: Number
    status: Status


class Tested(Change):
    """A change and its test against run-to-run noise; the added fields are null if the noise is unknown."""

    ci_low: Number = None
    """Low end of the interval of `delta_percent`, for this row alone; confidence 95 %, or 1 - the test's `level`."""
    ci_high: Number = None
    p_value: Number = None


LEANING = 0.1
"""A row with an adjusted one-sided p-value below this level is probably worse, and prevents a pass.

The value is a round number. `benchmarks/identical.py` prints how many pairs of identical runs pass with it."""


class Decided(Tested):
    """A change that a verdict can use, with its noise and the number of runs that would detect it."""

    p_worse_one_sided: Number = None
    """Adjusted one-sided p-value, given if the change is for the worse and exceeds the margin; else null."""
    no_worse_than_percent: Number = None
    """For the status `not_worse`: largest loss inside the interval, in percent; zero if the interval holds no loss."""
    min_detectable_percent: Number = None
    """Smallest rise, in percent, that is found with 80 % probability if no other row changed."""
    required_runs: int | None = None
    """Total number of runs of each build that detect, with 80 % probability, a change of one margin (1.5 margins for
    gate metrics and supported users). Null if more than 99 runs are needed, or if the noise is unknown."""
    required_runs_show_percent: Number = None
    """Smallest rise, in percent, that `required_runs` runs of each build show with 80 % probability."""
    run_sd_percent: Number = None
    """Standard deviation of the level of a single run, in percent; it includes the error within the run."""
    noise_df: Number = None
    """Degrees of freedom of `run_sd_percent`; null if infinite or if the noise is unknown."""
    noise_source: NoiseSource = NoiseSource.NONE
    se_log: Number = None
    """Standard error of log(new / base), from run-to-run noise."""
    within_se_log: Number = None
    """Standard error of log(new / base) from the samples within runs; far too large if the load oscillates."""
    noise_comparisons: int = 0
    """Number of earlier comparisons in the noise estimate; they are its only source if `noise_source` is `ledger`."""

    @property
    def leans_worse(self) -> bool:
        """Whether the row probably got worse. Such a row prevents a pass, even if its status is not `regression`."""
        return self.p_worse_one_sided is not None and self.p_worse_one_sided < LEANING

    @property
    def by_chance_percent(self) -> float | None:
        """Difference, in percent, that unchanged builds exceed in 1 of 20 comparisons; None if unknown."""
        if self.ci_high is None or self.delta_percent is None or not self.delta_percent > -100.0:
            return None  # unknown, or new is 0 and the division below is impossible
        return ((1.0 + self.ci_high / 100.0) / (1.0 + self.delta_percent / 100.0) - 1.0) * 100.0


class LoadAdjustedResult(Decided):
    """One metric at equal numbers of connected users; the 95 % interval is not adjusted for the number of metrics."""

    users: float
    p_adjusted: Number = None
    """P-value, adjusted (Holm) over the metric's family: error rates, gate metrics, durations, or remaining metrics."""
    at_users_range: Window
    """Lowest and highest load, in connected users, at which both builds were observed."""
    constant: bool = False
    """True if the result is a common change for all loads; False if it is the change at the highest load only."""
    noise_of: Literal["equal_load", "levels", "none"] = "none"
    """Origin of the run-to-run noise: runs compared at equal load, or levels of whole runs; `none` if unknown."""


class MixMover(Model):
    """A label that changed an average over all labels, because the label's share of the calls changed."""

    label: str
    base_share_percent: float
    new_share_percent: float
    seconds: float
    """Mean seconds per call, averaged over both builds."""
    percent: float
    """Contribution of this label to `mix_percent` of the metric."""


class TrafficMixResult(Model):
    """Change of an average duration, split into effects of mix (`mix_percent`) and speed of calls (`speed_percent`)."""

    group: str
    kind: Literal["mix", "speed", "both", "neither", "unknown"]
    """What changed: shares of calls (`mix`) or seconds per call (`speed`). `unknown`: mix changed; speed is unknown."""
    counts: bool
    """True if the row is judged, `mix_percent` is half the margin or more, and its interval (if known) excludes 0."""
    base: float
    new: float
    delta_percent: float
    mix_percent: float
    mix_ci_low: Number = None
    """Low end of the 95 % interval of `mix_percent`, from the noise of the labels; null if unknown."""
    mix_ci_high: Number = None
    speed_percent: float
    speed_ci_low: Number = None
    """Low end of the 95 % interval of `speed_percent`, from the run-to-run noise of the average."""
    speed_ci_high: Number = None
    at_unchanged_mix_percent: Number = None
    """Change of the metric in percent, without the part that the mix caused."""
    ci_low: Number = None
    """Low end of the 95 % interval of `at_unchanged_mix_percent`."""
    ci_high: Number = None
    p_adjusted: Number = None
    p_worse_one_sided: Number = None
    status: Status
    """Status of the metric without the change that the traffic mix caused."""
    movers: list[MixMover] = Field(default_factory=list)


class MetricRow(Model):
    """Name and properties of the metric that a row is about."""

    name: str
    slug: str
    unit: str
    better: Better
    gate: bool


class MetricResult(Decided, MetricRow):
    """One metric of one test; `base` and `new` are means over the steady window (geometric means for durations)."""

    labels: dict[str, str] = Field(default_factory=dict)
    margin_percent: float
    levels: Pair[list[float]]
    """Known levels of the runs. `base` and `new` are their geometric means (arithmetic for outcomes or levels of 0)."""
    mean: Pair[Number]
    """Arithmetic mean of a run's samples, averaged over the runs of each build; null if no run has usable samples."""
    p_adjusted: Number = None
    """P-value, adjusted (Holm) over the metrics of `family`."""
    family: str | None = None
    per_attempt: bool = False
    """True if `delta_percent` is the change of failures per attempt, because the number of attempts changed too."""
    failed_percent: Pair[Number] | None = None
    """Failed part of the attempts, in percent, if failures and attempts are counted; else null."""
    status: Status
    """Status of the change. If `better` is neutral, a rise is called improvement, and a fall is called regression."""
    reason: Reason | None
    reading_error_percent: Number = None
    """Standard deviation, in percent, of errors in reading levels off plots. Null if no run was read off a plot."""
    n_effective: Number = None
    """Effective sample size of the steady window, reduced for autocorrelation; the smallest over all runs."""
    window: Pair[Window | None]
    drift_percent: Pair[list[float]] | None = None
    """Change of each run from the first to the last third of its steady window; null unless the metric worsens in all
    new runs, clearly more than in the base."""
    missing_samples: Pair[Number]
    load_adjusted: LoadAdjustedResult | None = None
    traffic_mix: TrafficMixResult | None = None
    decided_by: Literal["level", "traffic_mix", "equal_load", "none"] = "level"
    """Change that the verdict uses. `level`: change of the level (bounded tests, benchmarks). `equal_load`: change at
    equal load (unbounded tests). `none`: the change at equal load is unknown. `traffic_mix`: change at unchanged mix of
    calls, if the mix affected the metric; an unbounded test uses this change only if it is no regression."""

    @property
    def full_name(self) -> str:
        """Name of the metric, followed by its labels in parentheses."""
        return f"{self.name} ({', '.join(self.labels.values())})" if self.labels else self.name

    @property
    def mix(self) -> TrafficMixResult | None:
        """How the mix of calls changed the metric, if this effect is large enough (`counts`), else None."""
        return self.traffic_mix if self.traffic_mix and self.traffic_mix.counts else None

    @property
    def at_unchanged_mix(self) -> Self:
        """The row, without the effect of the mix of calls if this effect is known and large enough to count."""
        if self.mix is None:
            return self
        at_unchanged_mix = self.mix.model_dump(
            include={"status", "ci_low", "ci_high", "p_worse_one_sided", "p_adjusted"}
        )
        change = {"delta_percent": self.mix.at_unchanged_mix_percent, "no_worse_than_percent": None}
        return self.model_copy(update=at_unchanged_mix | change)

    @property
    def deciding(self) -> Decided | None:
        """The row that the verdict uses, according to `decided_by`; None if `decided_by` is ``none``."""
        match self.decided_by:
            case "equal_load":
                return self.load_adjusted or self
            case "traffic_mix":
                return self.at_unchanged_mix
            case "level":
                return self
            case "none":
                return None

    @property
    def judged(self) -> Decided:
        """The row that findings describe: the row that the verdict uses, else the row at an unchanged traffic mix."""
        return self.deciding or self.at_unchanged_mix


class PooledResult(MetricRow):
    """Mean change of one metric over several tests of one type with independent noise; no verdict uses the mean."""

    labels: dict[str, str] = Field(default_factory=dict)
    type: TestType
    tests: list[str]
    """Names of the pooled tests: valid tests that judge the metric by its level or, if unbounded, at equal load."""
    margin_percent: float
    delta_percent: Number
    ci_low: Number
    """Low end of the 95 % interval of `delta_percent` (random effects); not adjusted for the number of rows."""
    ci_high: Number
    p_value: Number
    p_adjusted: Number
    """P-value, adjusted (Holm) over the metric's family: error rates, gate metrics, durations, or remaining metrics."""
    status: Status
    no_worse_than_percent: Number = None
    min_detectable_percent: Number = None
    between_percent: Number
    """Standard deviation, in percent, of the changes of the tests; the part due to run-to-run noise is removed."""
    noise_source: NoiseSource


class FailingLabel(Model):
    """Mean failure rates of one label in both builds."""

    label: str
    base: float
    new: float


class ErrorRateResult(Tested, MetricRow):
    """One error rate in one test: mean over the steady windows, or over whole runs for counts in the params file.

    `delta_percent` is null if nothing failed in the base. For the interval, 1/3 is added to failures and to successes.
    """

    better: Literal[Better.LOWER] = Better.LOWER
    gate: Literal[True] = True
    delta: Number
    """New minus base in `unit`; it is given because a base of zero has no change in percent."""
    reason: Reason | None
    per_attempt: bool = False
    """True if `delta_percent` is the change of failures per attempt, because the number of attempts changed too."""
    failed_percent: Pair[Number] | None = None
    """Failed part of the attempts, in percent, if failures and attempts are counted; else null."""
    most: FailingLabel | None = None
    """The label whose rate rose most; null if no rate rose, or if only the rate over all labels was recorded."""


class LabelRow(Model):
    """The label that a row is about, and its statistic."""

    group: str
    label: str
    stat: str


class LabelResult(Tested, LabelRow):
    """One statistic of one label in one test; the interval is for the change relative to the table's median change."""

    shared_percent: Number = None
    """Median change of all labels, in percent; 0 for fewer than 20 labels. Only the change beyond it is judged."""
    noise_source: NoiseSource = NoiseSource.NONE
    p_adjusted: Number = None
    calls: Pair[Number] | None = None
    time_share: Pair[Number] | None = None
    """Fraction (0 to 1) of the total time of all calls in the table; null if calls were not recorded."""
    whole_run_percent: Number = None
    """Change in percent over the whole runs, if the source also summarises whole runs; else null."""
    window: Literal["steady", "whole_run"]
    status: Status
    """`regression` or `improvement`: `p_value` is below 0.02, an end of the 96 % interval is beyond 10 %, and the row
    itself changed by 5 % or more. By chance, at most 2 % of unchanged rows get either status. `equivalent`: the change
    is below 10 % and the 98 % interval is in -50 to +100 %. `not_worse`: `ci_high` is at most 20 %. The status ignores
    `p_adjusted` (Benjamini-Hochberg)."""
    only_in: Side | None
    at_least: Pair[bool]
    reason: Reason | None


class SupportedUsersResult(Decided):
    """How many users each build supports (unbounded tests).

    If only a lower bound is known for the new build (`at_least`), the interval has only its low end (`ci_low`).
    """

    band_percent: Number
    """Smallest change of the supported users that matters, in percent; a metric has `margin_percent` instead."""
    reported: Pair[Number]
    estimated: Pair[Number]
    at_least: Pair[Number]
    reason: Pair[NoEstimate | None]
