"""The schema of results.json: the one summary that every report format is rendered from.

Fields are only added; a field that is renamed, removed or changes its meaning raises `schema_version`. Only
`provenance.run` differs between two runs of the same inputs. Times without a zone are seconds from the start of
their run; percentages are in percent.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from buildcompare.results import codes
from buildcompare.results.base import KindResult, Label, Model, Number, Reason
from buildcompare.results.codes import Pair, Side, Status, ValidityCode, ValidityStatus, Window
from buildcompare.results.history import Drift, HistoryResult, SetupDifference
from buildcompare.results.rows import ErrorRateResult, LabelResult, MetricResult, PooledResult, SupportedUsersResult
from buildcompare.results.users import Phase, RampUp, RampUps


class Estimate(Model):
    """The supported users of one run, from its curve."""

    estimated: Number
    """Mean users over the last 30 minutes under load; null with a `reason` if that is no estimate."""
    at_least: Number
    """The same mean as a lower bound, if the curve still rose or met the ceiling."""
    reason: codes.NoEstimate | None
    slope_users_per_s: Number = None
    window: Window | None = None


class SeriesCoverage(Model):
    """How much of its run, up to the stop, a series covers: samples expected, present, and finite."""

    slug: str
    expected: int
    present: int
    finite: int
    longest_gap_s: float

    @property
    def fraction(self) -> float:
        """The part of the expected samples that is finite (0 to 1)."""
        return self.finite / self.expected if self.expected else 0.0


class ValidityReason(Model):
    """A fact that limits the conclusions from a run or a test."""

    code: ValidityCode
    status: ValidityStatus
    text: str = ""
    """A clause without a full stop and without the run's name."""
    side: Side | None = None
    run: int | None = None
    """Counted from 1; null if the reason concerns several runs."""
    metric: str | None = None
    unit: str | None = None
    """Unit of `numbers`, if they are values of `metric`."""
    file: str | None = None
    """Path of the recording, as in the params file."""
    labels: tuple[str, str] | None = None
    """For `another_build`: the build named in the recording, and the one in the params file."""
    because: Reason | None = None
    from_s: Number = None
    until_s: Number = None
    """The run is valid from `from_s` to `until_s`; null if the fault does not limit that end."""
    numbers: dict[str, Number] = Field(default_factory=dict)
    """Observed and expected values; times in elapsed seconds."""


class Validity(Model):
    """Whether a run or a test may be judged."""

    status: ValidityStatus
    valid_from_s: Number = None
    valid_until_s: Number = None
    """A limited run may be judged up to here (elapsed seconds); null if no time limits it."""
    reasons: list[ValidityReason] = Field(default_factory=list)

    @property
    def codes(self) -> list[ValidityCode]:
        """The code of each reason."""
        return [reason.code for reason in self.reasons]


class ServerResult(Model):
    """The server that a run was pulled from, and its warnings."""

    kind: str
    version: str
    url: str
    step_s: float
    label_step_s: float
    queries: int
    points: int
    missing_points: int
    """Points of the graphs' time grid without a value."""
    counter_resets: dict[str, int] = Field(default_factory=dict)
    """How often a counter of a graph started again inside the window, by its name."""
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
    """SHA-256 of all samples of the run's metrics and of their times."""


class AlertResult(Model):
    """One alert of the coordinator in one build."""

    build: Side
    alert: str
    name: str = ""
    """Name of the alert in the catalogue."""
    threshold: float
    first_s: Number
    """When its query first reached the threshold; null if never."""
    times: int
    """How often its query rose to the threshold."""
    share_steady: float
    """The part of the samples in the steady window at or above the threshold."""
    nearness: Number
    """95th percentile of the query in the steady window, divided by the threshold."""


NEAR = 0.8
"""`nearness` from which an alert counts as near its threshold: about one step of load below it."""


class LimitedBy(Model):
    """The limits of each build, in words and numbers; alerts in the catalogue's order."""

    base: str | None = None
    new: str | None = None
    alerts: list[AlertResult] = Field(default_factory=list)

    def of(self, build: Side) -> list[AlertResult]:
        """The alerts of one build."""
        return [use for use in self.alerts if use.build == build]

    def first(self, build: Side) -> AlertResult | None:
        """The alert that reached its threshold first."""
        fired = [use for use in self.of(build) if use.first_s is not None]
        return min(fired, key=lambda use: use.first_s or 0.0, default=None)

    def limiting(self, build: Side) -> AlertResult | None:
        """The alert that was at its threshold most often in the steady window; None if none was."""
        use = max(self.of(build), key=lambda use: use.share_steady, default=None)
        return use if use is not None and use.share_steady > 0.0 else None

    def near(self, build: Side) -> list[AlertResult]:
        """The alerts whose queries came near their thresholds in the steady window, nearest first."""
        near = [use for use in self.of(build) if (use.nearness or 0.0) >= NEAR]
        return sorted(near, key=lambda use: -(use.nearness or 0.0))


class Event(Model):
    """A sudden change of one metric at one time."""

    metric: str
    build: Side
    run: int = 1
    kind: Literal["level", "spike", "drop"]
    phase: Literal["steady", "ramp"] = "steady"
    """Always ``steady``; results of earlier versions may also have events of the ramp."""
    at_s: float
    """Time of the extreme value; for a level shift the time of the shift."""
    span_s: Window
    size: float
    """Signed, in the metric's unit."""
    size_percent: Number
    ci: tuple[Number, Number] | None
    group: int | None
    """Simultaneous events share this number."""
    matched: bool
    warning: bool = False
    """True if the event is in one build only and significantly larger than the metric's margin."""


class Distribution(Model):
    """Distribution of the values of all runs of one build: requests, iterations, or one number per run."""

    values: int
    mean: float
    ci: Window
    """95 % interval of the mean of independent values."""
    sd: float
    quantiles: dict[str, tuple[float, Number, Number]]
    """Quantile and its 95 % interval, by probability (``0.99``); an end is null if there are too few values."""


class DistributionResult(Model):
    """One metric without time stamps in both builds; null if there are too few values."""

    name: str
    slug: str
    unit: str
    base: Distribution | None
    new: Distribution | None


class FrameResult(Model):
    """Share of one frame in the samples, in percent: mean over the profiles of each build."""

    frame: str
    base_percent: float
    new_percent: float
    points: float
    """New minus base, in percentage points."""
    noise_points: Number
    """How far unchanged builds differ in 19 of 20 comparisons; null with one profile per build."""
    noise_share: Number
    """Largest part of the difference (0 to 1) that noise explains."""
    p_adjusted: Number
    """Adjusted (Holm) over all judged frames."""


class ProfilesResult(Model):
    """Profiles of both builds, and the frames whose share changed most, the largest first."""

    runs: Pair[int]
    samples: Pair[float]
    own: list[FrameResult]
    """Shares of the samples taken in the frame itself."""
    total: list[FrameResult]
    """Shares of the samples in the frame or its callees, without frames that changed because of a callee."""


class Sessions(Model):
    """The sessions of a benchmark: the mean of each is one observation."""

    names: Pair[list[str]]
    """Empty names: unnamed sessions."""
    paired: bool
    """True if each session of one build is compared with that of the same name."""


class TestResult(Model):
    """One test of the comparison."""

    __test__ = False  # pytest would collect it by its name

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
    """For benchmarks with several values of a metric in a build."""
    sessions: Sessions | None = None
    """For benchmarks whose runs all state their session."""
    errors: list[ErrorRateResult] = Field(default_factory=list)
    errors_counted: Pair[list[int | None]] | None = None
    """Errors counted by the load-test tool, by run; null if no run states them."""
    labels: list[LabelResult]
    events: list[Event]
    profiles: ProfilesResult | None = None
    validity: Validity
    looks: list[tuple[int, int]] = Field(default_factory=list)
    """Runs of base and new at each look in the ledger, the present one last."""
    level: float = 0.05
    """Threshold of adjusted p-values, lowered so that all looks together keep an error rate of 5 %."""
    planned_runs: int | None = None
    """Planned runs of each build, over which the looks share the error; null if the first look had no plan."""

    def events_of(self, metric: MetricResult) -> list[Event]:
        """Events of this metric that deserve a warning."""
        return [event for event in self.events if event.metric == metric.slug and event.warning]


class FurtherRunsResult(Model):
    """Detectable changes after further runs of each build, with a probability of 80 %."""

    further: int
    hours: float
    """Hours for both builds, at the recorded runs' duration."""
    found_percent: float
    """Smallest rise that would be reported."""
    no_worse_than_percent: Number
    """Smallest loss that is excluded if nothing changed; null with `better: neutral`."""


class PlannedRow(Model):
    """One deciding row, and its power after further runs."""

    slug: str | None
    """Null for supported users."""
    name: str
    margin_percent: float
    better: codes.Better
    decided_by: str
    status: Status
    now_percent: Number
    """Smallest rise that the present runs show with a probability of 80 %."""
    unit: Literal["run", "session"] = "run"
    """Unit of `steps`."""
    steps: list[FurtherRunsResult]
    """One further run of each build, and the fewest (at most eight) that show a change of the margin's size."""

    @property
    def undecided(self) -> bool:
        """Whether the row needs further runs."""
        return self.status == Status.INCONCLUSIVE


class TestPlan(Model):
    """Effect of further runs of one test: the changes that they would detect, and their order."""

    __test__ = False  # pytest would collect it by its name

    test: str
    hours: float
    """Hours for one further run of each build."""
    runs: int
    """Present runs of each build."""
    order: list[Side] = Field(default_factory=list)
    """Builds in the order to run them, for the undecided row that needs the most runs."""
    rows: list[PlannedRow]

    @property
    def undecided(self) -> list[PlannedRow]:
        """Rows without a decision."""
        return [row for row in self.rows if row.undecided]


class Finding(Model):
    """A statement at the head of a report, and its evidence."""

    id: str
    severity: codes.Severity
    kind: codes.FindingKind
    test: str | None
    metric: str | None
    text: str
    """One or two short sentences."""
    detail: str = ""
    """Intervals and other evidence, in sentences."""
    evidence: dict[str, Any]

    @property
    def whole(self) -> str:
        """Text and detail."""
        return f"{self.text} {self.detail}".rstrip()


class Suggestion(Model):
    """A proposed next step; the analyst's action items stand elsewhere."""

    kind: codes.SuggestionKind
    test: str | None
    text: str
    evidence: dict[str, Any]


class SetupRow(Model):
    """One row of the setup table, in Markdown."""

    setting: str
    value: str


class GrafanaLink(Model):
    """A link to a dashboard."""

    title: str
    url: str


class InputProvenance(Model):
    """One input file of a run."""

    test: str
    build: Side
    run: int
    kind: str
    path: str
    sha256: str
    bytes: int


class ArtefactProvenance(Model):
    """Files that one run produced, copied beside the report."""

    test: str
    """The test; in a matrix the levels of the run."""
    build: Side | None
    """Null in a matrix, which numbers its runs across builds."""
    run: int
    path: str
    """Folder, relative to the report's."""
    files: int
    bytes: int


class Provenance(Model):
    """Origin of the results. Only `run` differs between two runs of the same inputs."""

    params_sha256: str
    catalogue: str
    inputs: list[InputProvenance]
    artefacts: list[ArtefactProvenance] = Field(default_factory=list)
    run: dict[str, Any] = Field(default_factory=dict)


class Results(Model):
    """The whole of results.json."""

    model_config = ConfigDict(defer_build=True)  # see `KindResult`

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
    """Differences from the previous comparison of the chain."""
    drift: list[Drift] = Field(default_factory=list)
    history: HistoryResult | None = None
    comments: list[str]
    action_items: list[str]
    action_items_title: str
    grafana: list[GrafanaLink]
    self_check: dict[str, Any] | None = None
    tests: list[TestResult]
    pooled: list[PooledResult] = Field(default_factory=list)
    """Metrics over all tests of a type; no verdict uses them."""
    variants: KindResult | None = None
    """Results of a matrix of variants, which has no tests; `base` is its baseline."""
    plan: list[TestPlan] = Field(default_factory=list)
    """Effect of further runs, for each valid test."""
    findings: list[Finding]
    suggestions: list[Suggestion] = Field(default_factory=list)
    provenance: Provenance


def dumps(results: Results) -> str:
    """`results` as the text of results.json."""
    return results.model_dump_json(indent=1) + "\n"
