"""The schema of results.json: the one summary that every report format is rendered from.

Fields are only ever added; a change of meaning raises `schema_version`. Everything that differs between two
runs of the same inputs stands under `provenance.run` and nowhere else. Times without a zone are elapsed
seconds from the start of their run; percentages are in percent.
"""

from typing import Any, Literal, Self

from pydantic import Field

from buildcompare.results import codes
from buildcompare.results.base import Label, Model, Number, Reason
from buildcompare.results.codes import Pair, Side, Status, ValidityCode, ValidityStatus, Window
from buildcompare.results.history import Drift, HistoryResult, SetupDifference
from buildcompare.results.users import Phase, RampUp, RampUps
from buildcompare.results.variants import VariantsResult


class Estimate(Model):
    """The supported users of one run, from its curve."""

    estimated: Number
    """Mean users over the last 30 minutes under load; null where that is not what the build supports."""
    at_least: Number
    """The same mean where the curve still rose or met the ceiling, so that the build supports at least as many."""
    reason: codes.NoEstimate | None
    slope_users_per_s: Number = None
    window: Window | None = None


class SeriesCoverage(Model):
    """How much of its run, up to the stop, a series covers: samples expected, present, and present as a number."""

    slug: str
    expected: int
    present: int
    finite: int
    longest_gap_s: float

    @property
    def fraction(self) -> float:
        """The part of the expected samples that is a number (0 to 1)."""
        return self.finite / self.expected if self.expected else 0.0


class ValidityReason(Model):
    """Something that limits what may be concluded from a run or a test."""

    code: ValidityCode
    status: ValidityStatus
    text: str = ""
    """A clause without a full stop and without the run's name."""
    side: Side | None = None
    run: int | None = None
    """Counted from 1; null where it is about several runs."""
    metric: str | None = None
    unit: str | None = None
    """Of `metric`, where its numbers are in it."""
    file: str | None = None
    """The recording, as the params name it."""
    labels: tuple[str, str] | None = None
    """Of `another_build`: the build as the recording states it, and as the params name it."""
    because: Reason | None = None
    from_s: Number = None
    until_s: Number = None
    """The run is valid between these; null where the fault has no time, or the steady window begins or ends there."""
    numbers: dict[str, Number] = Field(default_factory=dict)
    """What was found and what was expected; times in elapsed seconds."""


class Validity(Model):
    """Whether a run or a test may be judged."""

    status: ValidityStatus
    valid_from_s: Number = None
    valid_until_s: Number = None
    """Elapsed seconds up to which a limited run may be judged; null where time does not limit it."""
    reasons: list[ValidityReason] = Field(default_factory=list)

    @property
    def codes(self) -> list[ValidityCode]:
        """The code of each reason."""
        return [reason.code for reason in self.reasons]


class ServerResult(Model):
    """The server that a run was pulled from, and what it had to say."""

    kind: str
    version: str
    url: str
    step_s: float
    label_step_s: float
    queries: int
    points: int
    missing_points: int
    """Of the graphs: points on the grid of the window without a value."""
    counter_resets: dict[str, int] = Field(default_factory=dict)
    """By counter that a graph takes the rate of, how often it started again inside the window."""
    warnings: list[str] = Field(default_factory=list)


class RunResult(Model):
    """One run of one build."""

    start: str
    end: str
    duration_s: float
    stop_s: Number
    shutdown: bool
    window: Window | None
    """The steady window, elapsed seconds."""
    window_method: str
    window_reason: Reason | None
    load_curve: str | None
    phases: list[Phase]
    ramp_up: RampUp
    validity: Validity
    estimated_supported_users: Estimate | None
    reported_supported_users: int | None
    coverage: list[SeriesCoverage]
    missing: list[str]
    notes: list[str]
    server: ServerResult | None = None
    samples_sha256: str = ""
    """Of all samples of its metrics and of when they were taken."""


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


class Change(Model):
    """One value in both builds, how far they are apart, and the conclusion."""

    base: Number
    new: Number
    delta_percent: Number
    status: Status


class Tested(Change):
    """A change beside the noise between runs of one build; null where that is not known."""

    ci_low: Number = None
    """95 % interval of `delta_percent`, from run-to-run variance; of this row alone, unless its model says more."""
    ci_high: Number = None
    p_value: Number = None


LEANING = 0.1
"""One-sided adjusted p-value below which a row leans worse: no regression, but no pass either. A round number;
`benchmarks/identical.py` prints how many pairs of identical runs pass, and what warns in the others."""


class Decided(Tested):
    """A change that a verdict may rest on."""

    p_worse_one_sided: Number = None
    """Adjusted one-sided p-value, where the change lies beyond the margin on the bad side."""
    no_worse_than_percent: Number = None
    """Of `not_worse`: the margin, or the bad end of the interval where that is larger."""
    min_detectable_percent: Number = None
    """The smallest rise that would have been significant with a probability of 80 %, alone in its family."""
    required_runs: int | None = None
    """Runs per build, those at hand included, that would show a change of the margin's size with a probability of 80 %;
    null beyond 99 or where nothing is known."""
    required_runs_show_percent: Number = None
    """The smallest rise that so many runs would show."""
    run_sd_percent: Number = None
    """Standard deviation of a single run, the error within it included."""
    noise_df: Number = None
    """Degrees of freedom that it is known with; null where it is taken as exactly known."""
    noise_source: codes.NoiseSource = codes.NoiseSource.NONE
    se_log: Number = None
    """Standard error of the logarithm of new over base, from run to run."""
    within_se_log: Number = None
    """The part of it that the samples within the runs show; in a wavy load it is many times too large."""
    noise_comparisons: int = 0
    """How many earlier comparisons the noise was learned from, alone (`ledger`) or beside its source."""

    @property
    def leans_worse(self) -> bool:
        """Whether it may have got worse, though not surely: no regression, but no pass either."""
        return self.p_worse_one_sided is not None and self.p_worse_one_sided < LEANING

    @property
    def by_chance_percent(self) -> float | None:
        """How far two comparisons of unchanged builds differ in 19 of 20 cases, in percent; None if unknown."""
        if self.ci_high is None or self.delta_percent is None or not self.delta_percent > -100.0:
            return None  # of a metric that is as good as gone there is no ratio
        return ((1.0 + self.ci_high / 100.0) / (1.0 + self.delta_percent / 100.0) - 1.0) * 100.0


class LoadAdjustedResult(Decided):
    """One metric at equal load; `ci_low` to `ci_high` hold at 95 % for all metrics of its family together."""

    users: float
    p_adjusted: Number = None
    """Over the metrics of the test of which less is better, or over those without a better direction."""
    at_users_range: Window
    """Loads at which both builds were seen."""
    constant: bool = False
    """Whether the difference is the mean over these loads: at the highest it is no different."""
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


class MetricRow(Model):
    """The metric that a row is of."""

    name: str
    slug: str
    unit: str
    better: codes.Better
    gate: bool


class MetricResult(Decided, MetricRow):
    """One metric of one test. `base` and `new` are means over the steady window, for times geometric means."""

    labels: dict[str, str] = Field(default_factory=dict)
    margin_percent: float
    levels: Pair[list[float]]
    """The level of each run that has one; `base` and `new` are their means."""
    mean: Pair[Number]
    """The arithmetic means of the same samples."""
    p_adjusted: Number = None
    """Holm's over `family`."""
    family: str | None = None
    status: Status
    """Where neither direction is better (`better`: neutral), an improvement is merely more and a regression less."""
    reason: Reason | None
    reading_error_percent: Number = None
    """What a run's level is misread by (one standard deviation), where values were read off a plot: the noise, at own
    and at equal load, holds it."""
    n_effective: Number = None
    """Effective sample size of the steady window, in the run where it is smallest."""
    window: Pair[Window | None]
    missing_samples: Pair[Number]
    load_adjusted: LoadAdjustedResult | None = None
    traffic_mix: TrafficMixResult | None = None
    decided_by: Literal["level", "traffic_mix", "equal_load", "none"] = "level"
    """What a verdict counts: `equal_load` in an unbounded test, whose coordinator steers the load by latency, so that
    latency at a build's own load is no result (`none`: it is unknown at equal load). `traffic_mix`: other calls moved
    the average; at unchanged mix it does not regress."""

    @property
    def full_name(self) -> str:
        """The name with the labels."""
        return f"{self.name} ({', '.join(self.labels.values())})" if self.labels else self.name

    @property
    def mix(self) -> TrafficMixResult | None:
        """The traffic mix where it moved the average: then the metric counts as at unchanged mix."""
        return self.traffic_mix if self.traffic_mix and self.traffic_mix.counts else None

    @property
    def effective(self) -> Self:
        """The row, at unchanged traffic mix where that moved the average."""
        if self.mix is None:
            return self
        at_unchanged_mix = self.mix.model_dump(include={"status", "ci_low", "ci_high", "p_worse_one_sided"})
        change = {"delta_percent": self.mix.at_unchanged_mix_percent, "no_worse_than_percent": None}
        return self.model_copy(update=at_unchanged_mix | change)

    @property
    def deciding(self) -> Decided | None:
        """The row that a verdict rests on, by `decided_by`; None where there is none."""
        rows = {"none": None, "equal_load": self.load_adjusted or self, "traffic_mix": self.effective, "level": self}
        return rows[self.decided_by]

    @property
    def stated(self) -> Decided:
        """The row that findings are about: the one that a verdict rests on, or else the level."""
        return self.deciding or self.effective


class PooledResult(MetricRow):
    """The mean change of one metric over several tests of one type, where their noise is independent; it informs."""

    labels: dict[str, str] = Field(default_factory=dict)
    type: codes.TestType
    tests: list[str]
    """Valid tests in which the metric was judged: over the steady windows, in unbounded tests at equal load."""
    margin_percent: float
    delta_percent: Number
    ci_low: Number
    """95 % interval of `delta_percent`, of this line alone (random effects)."""
    ci_high: Number
    p_value: Number
    p_adjusted: Number
    """Holm's over the pooled lines of gate metrics, or over the others."""
    status: Status
    no_worse_than_percent: Number = None
    min_detectable_percent: Number = None
    between_percent: Number
    """Standard deviation of the change between tests, beyond their noise."""
    noise_source: codes.NoiseSource


class ErrorRateResult(Change, MetricRow):
    """How often something failed in one test, relative to how often it was tried: means over the steady windows.

    Without `delta_percent` where the base had none.
    """

    better: Literal[codes.Better.LOWER] = codes.Better.LOWER
    gate: Literal[True] = True
    delta: Number
    """In `unit`: of a rate that is often zero a ratio says little."""
    reason: Reason | None


class LabelRow(Model):
    """The label and statistic that a row is of."""

    group: str
    label: str
    stat: str


class LabelResult(Tested, LabelRow):
    """One label and statistic of one test; `ci_low` to `ci_high` is of what it moved beyond `shared_percent`."""

    shared_percent: Number = None
    """The median change of its table, which is one of the whole run: the row is judged beyond it."""
    noise_source: codes.NoiseSource = codes.NoiseSource.NONE
    p_adjusted: Number = None
    calls: Pair[Number] | None = None
    time_share: Pair[Number] | None = None
    """The part of the time of all calls of its table that goes to this label; null where calls were not recorded."""
    whole_run_percent: Number = None
    """The change over the whole runs, of a row of the steady windows whose source sums whole runs up too."""
    window: Literal["steady", "whole_run"]
    status: Status
    """By `p_value` below 0.02, row by row: at most that part of the rows is a false alarm.
    `not_worse` is by 10 % or by `ci_high`. `p_adjusted` (Benjamini and Hochberg's over the table and statistic) is for
    readers of the whole table."""
    only_in: Side | None
    at_least: Pair[bool]
    reason: Reason | None


class Event(Model):
    """Something that happened at one time in one metric."""

    metric: str
    build: Side
    run: int = 1
    kind: Literal["level", "spike", "drop"]
    phase: Literal["steady", "ramp"] = "steady"
    """In which it was found: an event of the ramp is one of the load, and says nothing of a level."""
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
    """Whether it is in one build only, and surely larger than the metric's margin; on the ramp, whether several metrics
    moved by theirs."""


class SupportedUsersResult(Decided):
    """How many users each build supports (unbounded tests).

    Where the new build supports *at least* some number, `ci_low` alone is known.
    """

    band_percent: Number
    reported: Pair[Number]
    estimated: Pair[Number]
    at_least: Pair[Number]
    reason: Pair[codes.NoEstimate | None]


class Distribution(Model):
    """How the values of all runs of one build are spread: requests, iterations, or single numbers of runs."""

    values: int
    mean: float
    ci: Window
    """95 % interval of the mean, as if the values were independent."""
    sd: float
    quantiles: dict[str, tuple[float, Number, Number]]
    """By the part below it (``0.99``): the quantile with its 95 % interval; null beyond the values at hand."""


class DistributionResult(Model):
    """One metric without times in both builds; null where there are too few values."""

    name: str
    slug: str
    unit: str
    base: Distribution | None
    new: Distribution | None


class FrameResult(Model):
    """The share of one frame in the samples of both builds, in percent: the mean over the profiles of each."""

    frame: str
    base_percent: float
    new_percent: float
    points: float
    """New minus base, in percentage points."""
    noise_points: Number
    """How far unchanged builds differ in 19 of 20 cases; null with one profile of each build."""
    noise_share: Number
    """The part of the difference (0 to 1) that noise explains, at most."""
    p_adjusted: Number
    """Holm's, over all frames that were judged."""


class ProfilesResult(Model):
    """Profiles of both builds, and the frames whose share moved most, the largest first."""

    runs: Pair[int]
    samples: Pair[float]
    own: list[FrameResult]
    """Of samples taken in the frame itself."""
    total: list[FrameResult]
    """Of samples in the frame or in what it calls; without those that moved by one that they call."""


class TestResult(Model):
    """One test of the comparison."""

    __test__ = False  # not a test class of pytest's

    name: str
    type: codes.TestType
    db_engine: str | None
    users: int | None
    verdict: codes.Verdict
    limited_by: LimitedBy | None = None
    runs: Pair[list[RunResult]]
    supported_users: SupportedUsersResult | None
    ramp_up: RampUps
    metrics: list[MetricResult]
    distributions: list[DistributionResult] = Field(default_factory=list)
    """Of a benchmark, where a build has several values of a metric."""
    errors: list[ErrorRateResult] = Field(default_factory=list)
    errors_counted: Pair[list[int | None]] | None = None
    """By run, how many errors the load-test tool counted; null where no run says."""
    labels: list[LabelResult]
    events: list[Event]
    profiles: ProfilesResult | None = None
    validity: Validity
    looks: list[tuple[int, int]] = Field(default_factory=list)
    """Runs of base and new at each look that the ledger knows, the present one last."""
    level: float = 0.05
    """What adjusted p-values are compared with, so that all looks together keep an error rate of 5 %."""
    planned_runs: int | None = None
    """Of each build, in the end: then all looks share the error. Without it the first look was judged by itself."""

    def events_of(self, metric: MetricResult) -> list[Event]:
        """Events in this metric of one build only that are worth a warning."""
        return [event for event in self.events if event.metric == metric.slug and event.warning]


class FurtherRunsResult(Model):
    """What some further runs of each build would show, each in four of five cases."""

    further: int
    hours: float
    """Of both builds, as long as the recorded runs took."""
    found_percent: float
    """The smallest rise that would be called."""
    no_worse_than_percent: Number
    """What would be excluded for the worse if nothing changed; null where neither direction is better."""


class PlannedRow(Model):
    """One row that a verdict rests on, and what further runs would make of it."""

    slug: str | None
    """Null for the supported users."""
    name: str
    margin_percent: float
    better: codes.Better
    decided_by: str
    status: Status
    now_percent: Number
    """The smallest rise that the runs at hand would have shown."""
    steps: list[FurtherRunsResult]
    """One further run of each build, and the fewest (at most eight) that would show a change of the margin's size."""

    @property
    def undecided(self) -> bool:
        """Whether further runs are asked for."""
        return self.status == Status.INCONCLUSIVE


class TestPlan(Model):
    """What further runs of one test would show."""

    __test__ = False  # not a test class of pytest's

    test: str
    hours: float
    """One further run of each build."""
    runs: int
    """Of each build, at hand."""
    order: list[Side] = Field(default_factory=list)
    """The builds to run, one after the other, for the undecided row that needs the most."""
    rows: list[PlannedRow]

    @property
    def undecided(self) -> list[PlannedRow]:
        """The rows that are not decided."""
        return [row for row in self.rows if row.undecided]


class Finding(Model):
    """What a report says first, with what it rests on."""

    id: str
    severity: codes.Severity
    kind: codes.FindingKind
    test: str | None
    metric: str | None
    text: str
    """One or two short sentences."""
    detail: str = ""
    """Intervals and what else it rests on, in sentences."""
    evidence: dict[str, Any]

    @property
    def whole(self) -> str:
        """All that is said of it."""
        return f"{self.text} {self.detail}".rstrip()


class Suggestion(Model):
    """Something to do next; never the analyst's own action item."""

    kind: codes.SuggestionKind
    test: str | None
    text: str
    evidence: dict[str, Any]


class SetupRow(Model):
    """One row of the setup table; both are Markdown."""

    setting: str
    value: str


class GrafanaLink(Model):
    """A link to a dashboard."""

    title: str
    url: str


class InputProvenance(Model):
    """One file that a run was read from."""

    test: str
    build: Side
    run: int
    kind: str
    path: str
    sha256: str
    bytes: int


class ArtefactProvenance(Model):
    """What one run left behind, as it was copied beside the report."""

    test: str
    """Of a matrix the levels of the run."""
    build: Side | None
    """Null in a matrix, whose runs are counted through."""
    run: int
    path: str
    """A folder in the report's."""
    files: int
    bytes: int


class Provenance(Model):
    """Where all of it comes from. Only `run` differs between two runs of the same inputs."""

    params_sha256: str
    catalogue: str
    inputs: list[InputProvenance]
    artefacts: list[ArtefactProvenance] = Field(default_factory=list)
    run: dict[str, Any] = Field(default_factory=dict)


class Results(Model):
    """The whole of results.json."""

    schema_version: Literal[2] = 2
    comparison: str
    base: Label
    new: Label
    complete: Literal[True] = True
    simulated: bool
    verdict: codes.Verdict
    verdict_rule: str
    setup: list[SetupRow]
    setup_differences: list[SetupDifference] = Field(default_factory=list)
    """Against the previous comparison of the chain."""
    drift: list[Drift] = Field(default_factory=list)
    history: HistoryResult | None = None
    comments: list[str]
    action_items: list[str]
    action_items_title: str
    grafana: list[GrafanaLink]
    self_check: dict[str, Any] | None = None
    tests: list[TestResult]
    pooled: list[PooledResult] = Field(default_factory=list)
    """Metrics over all tests of a type; no verdict counts them."""
    variants: VariantsResult | None = None
    """Of a matrix of variants; then there are no tests, and `base` is the baseline."""
    plan: list[TestPlan] = Field(default_factory=list)
    """What further runs would show, of each valid test."""
    findings: list[Finding]
    suggestions: list[Suggestion] = Field(default_factory=list)
    provenance: Provenance


def dumps(results: Results) -> str:
    """`results` as the text of results.json."""
    return results.model_dump_json(indent=1) + "\n"
