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
    """A change and its test against run-to-run noise; null if the noise is unknown."""

    ci_low: Number = None
    """95 % interval of `delta_percent` from run-to-run variance; for this row alone unless a model states more."""
    ci_high: Number = None
    p_value: Number = None


LEANING = 0.1
"""One-sided adjusted p-value below which a row leans worse: no regression, but no pass either.

A round number; `benchmarks/identical.py` prints how many pairs of identical runs pass, and the warnings of others."""


class Decided(Tested):
    """A change that a verdict may rest on."""

    p_worse_one_sided: Number = None
    """Adjusted one-sided p-value of a change that is worse than the margin; null for other changes."""
    no_worse_than_percent: Number = None
    """For `not_worse`: the bad end of the interval; zero if that is no loss."""
    min_detectable_percent: Number = None
    """Smallest rise that is significant with a probability of 80 %, alone in its family."""
    required_runs: int | None = None
    """Runs per build, including the present ones, that show a change of the margin's size with a probability of 80 %;
    null above 99 or if unknown."""
    required_runs_show_percent: Number = None
    """Smallest rise that `required_runs` show with a probability of 80 %."""
    run_sd_percent: Number = None
    """Standard deviation of a single run, including the error within it."""
    noise_df: Number = None
    """Degrees of freedom of `run_sd_percent`; null if it is taken as exact."""
    noise_source: NoiseSource = NoiseSource.NONE
    se_log: Number = None
    """Standard error of log(new / base) from run to run."""
    within_se_log: Number = None
    """The part of `se_log` estimated from the samples within runs; many times too large under a wavy load."""
    noise_comparisons: int = 0
    """Number of earlier comparisons in the noise estimate, alone (`ledger`) or beside its source."""

    @property
    def leans_worse(self) -> bool:
        """Whether the row has probably got worse: no regression, but no pass either."""
        return self.p_worse_one_sided is not None and self.p_worse_one_sided < LEANING

    @property
    def by_chance_percent(self) -> float | None:
        """How far unchanged builds differ in 19 of 20 comparisons, in percent; None if unknown."""
        if self.ci_high is None or self.delta_percent is None or not self.delta_percent > -100.0:
            return None  # a new value of 0 leaves no ratio
        return ((1.0 + self.ci_high / 100.0) / (1.0 + self.delta_percent / 100.0) - 1.0) * 100.0


class LoadAdjustedResult(Decided):
    """One metric at equal load; its interval holds at 95 % by itself."""

    users: float
    p_adjusted: Number = None
    """Adjusted over the test's metrics with `better: lower`, or over those with `better: neutral`."""
    at_users_range: Window
    """Loads (users) at which both builds were observed."""
    constant: bool = False
    """True if the difference is the mean over these loads, because the one at the highest load agrees with it."""
    noise_of: Literal["equal_load", "levels", "none"] = "none"
    """Source of the run-to-run noise: runs at equal load, or levels of runs, which also vary with the load."""


class MixMover(Model):
    """A label whose share of the calls changed an average."""

    label: str
    base_share_percent: float
    new_share_percent: float
    seconds: float
    """Seconds per call, mean of both builds."""
    percent: float
    """Contribution to `mix_percent`."""


class TrafficMixResult(Model):
    """The change of an average over labels, split into `mix_percent` and `speed_percent`, which add up to it."""

    group: str
    kind: Literal["mix", "speed", "both", "neither", "unknown"]
    """Cause of the change; `unknown`: the mix changed, and the noise of the speed is unknown."""
    counts: bool
    """True if the mix changed the metric, which is then judged at unchanged mix."""
    base: float
    new: float
    delta_percent: float
    mix_percent: float
    mix_ci_low: Number = None
    """95 % interval of `mix_percent` from the noise of the labels; null if unknown."""
    mix_ci_high: Number = None
    speed_percent: float
    speed_ci_low: Number = None
    """95 % interval of `speed_percent` from the run-to-run noise of the average."""
    speed_ci_high: Number = None
    at_unchanged_mix_percent: Number = None
    """The metric's change without the mix part."""
    ci_low: Number = None
    """95 % interval of `at_unchanged_mix_percent`."""
    ci_high: Number = None
    p_adjusted: Number = None
    p_worse_one_sided: Number = None
    status: Status
    """Status of the metric at unchanged mix."""
    movers: list[MixMover] = Field(default_factory=list)


class MetricRow(Model):
    """The metric of a row."""

    name: str
    slug: str
    unit: str
    better: Better
    gate: bool


class MetricResult(Decided, MetricRow):
    """One metric of one test; `base` and `new` are means over the steady window, geometric means for times."""

    labels: dict[str, str] = Field(default_factory=dict)
    margin_percent: float
    levels: Pair[list[float]]
    """Level of each run that has one; `base` and `new` are their geometric means, of errors their means."""
    mean: Pair[Number]
    """Arithmetic means of the same samples."""
    p_adjusted: Number = None
    """Adjusted over `family` (Holm)."""
    family: str | None = None
    status: Status
    """With `better: neutral`, improvement means a rise and regression a fall."""
    reason: Reason | None
    reading_error_percent: Number = None
    """Reading error of a level (1 SD) if values were read off a plot; part of the noise."""
    n_effective: Number = None
    """Smallest effective sample size of the runs' steady windows."""
    window: Pair[Window | None]
    missing_samples: Pair[Number]
    load_adjusted: LoadAdjustedResult | None = None
    traffic_mix: TrafficMixResult | None = None
    decided_by: Literal["level", "traffic_mix", "equal_load", "none"] = "level"
    """The row that the verdict uses. `equal_load`: in an unbounded test latency controls the load, so only latency at
    equal load is a result (`none` if that is unknown). `traffic_mix`: a different mix of calls changed the average,
    which is no regression at unchanged mix."""

    @property
    def full_name(self) -> str:
        """The name and its labels."""
        return f"{self.name} ({', '.join(self.labels.values())})" if self.labels else self.name

    @property
    def mix(self) -> TrafficMixResult | None:
        """The traffic mix, if it changed the average."""
        return self.traffic_mix if self.traffic_mix and self.traffic_mix.counts else None

    @property
    def at_unchanged_mix(self) -> Self:
        """The row at unchanged traffic mix; the row itself if the mix did not change the average."""
        if self.mix is None:
            return self
        at_unchanged_mix = self.mix.model_dump(include={"status", "ci_low", "ci_high", "p_worse_one_sided"})
        change = {"delta_percent": self.mix.at_unchanged_mix_percent, "no_worse_than_percent": None}
        return self.model_copy(update=at_unchanged_mix | change)

    @property
    def deciding(self) -> Decided | None:
        """The row that the verdict uses, by `decided_by`; None if it uses none."""
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
        """`deciding`, or else the level at unchanged mix; findings describe this row."""
        return self.deciding or self.at_unchanged_mix


class PooledResult(MetricRow):
    """The mean change of one metric over several tests of one type with independent noise; no verdict uses it."""

    labels: dict[str, str] = Field(default_factory=dict)
    type: TestType
    tests: list[str]
    """Valid tests in which the metric was judged, in unbounded tests at equal load."""
    margin_percent: float
    delta_percent: Number
    ci_low: Number
    """95 % interval of `delta_percent` for this row alone (random effects)."""
    ci_high: Number
    p_value: Number
    p_adjusted: Number
    """Adjusted (Holm) over the pooled rows of gate metrics, or over the other rows."""
    status: Status
    no_worse_than_percent: Number = None
    min_detectable_percent: Number = None
    between_percent: Number
    """Standard deviation of the change between tests, without their noise."""
    noise_source: NoiseSource


class FailingLabel(Model):
    """Mean rates of failures of one label."""

    label: str
    base: float
    new: float


class ErrorRateResult(Tested, MetricRow):
    """Failures per attempt in one test: means over the steady windows.

    `delta_percent` is null if nothing failed in the base; the interval counts half a failure then.
    """

    better: Literal[Better.LOWER] = Better.LOWER
    gate: Literal[True] = True
    delta: Number
    """New minus base in `unit`, because rates are often zero."""
    reason: Reason | None
    most: FailingLabel | None = None
    """The label whose rate rose most; null if none did, or if rates were recorded for all labels together."""


class LabelRow(Model):
    """The label and statistic of a row."""

    group: str
    label: str
    stat: str


class LabelResult(Tested, LabelRow):
    """One label and statistic of one test; its interval bounds the change beyond `shared_percent`."""

    shared_percent: Number = None
    """Median change of the table, common to the whole run; subtracted before the row is judged."""
    noise_source: NoiseSource = NoiseSource.NONE
    p_adjusted: Number = None
    calls: Pair[Number] | None = None
    time_share: Pair[Number] | None = None
    """The label's part of the time of all calls in its table; null if calls were not recorded."""
    whole_run_percent: Number = None
    """Change over the whole runs, if the source also summarises whole runs."""
    window: Literal["steady", "whole_run"]
    status: Status
    """A change if `p_value` is below 0.02: at most 2 % of unchanged rows are false alarms. `equivalent` if the row
    moved less than 10 % and its 98 % interval lies between half and twice the time. The bound of `not_worse` is 10 % or
    `ci_high`. `p_adjusted` (Benjamini and Hochberg, over table and statistic) serves readers of the whole table."""
    only_in: Side | None
    at_least: Pair[bool]
    reason: Reason | None


class SupportedUsersResult(Decided):
    """How many users each build supports (unbounded tests).

    Only `ci_low` is known if the new build supports *at least* a number.
    """

    band_percent: Number
    """Margin of the supported users, as `margin_percent` of a metric."""
    reported: Pair[Number]
    estimated: Pair[Number]
    at_least: Pair[Number]
    reason: Pair[NoEstimate | None]
