"""The schema of results.json: the one summary that every report format is rendered from.

New fields may be added at any time; `schema_version` rises if a field is renamed, removed or changes its meaning.
Results of the same inputs differ only in `provenance.run`. Timestamps without a time zone are seconds since the start
of their run. The value of a field `*_percent` is in percent: 5.0 means 5 %.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from buildcompare.results import codes
from buildcompare.results.base import KindResult, Label, Model, Number, Reason
from buildcompare.results.codes import SIDES, Pair, Side, Status, ValidityCode, ValidityStatus, Window
from buildcompare.results.history import Drift, HistoryResult, SetupDifference
from buildcompare.results.rows import ErrorRateResult, LabelResult, MetricResult, PooledResult, SupportedUsersResult
from buildcompare.results.users import Phase, RampUp, RampUps


class Estimate(Model):
    """The supported users of one run, estimated from its curve of connected users."""

    estimated: Number
    """Mean users over the last 30 minutes under load; null if a `reason` is given."""
    at_least: Number
    """Lower bound of the supported users, for the reasons `still_climbing` and `ceiling_reached`; else null."""
    reason: codes.NoEstimate | None
    slope_users_per_s: Number = None
    window: Window | None = None


class SeriesCoverage(Model):
    """Numbers of expected, present and finite samples of one series, up to the end of the run's load."""

    slug: str
    expected: int
    present: int
    finite: int
    longest_gap_s: float

    @property
    def fraction(self) -> float:
        """The fraction (0 to 1) of the expected samples that are finite."""
        return self.finite / self.expected if self.expected else 0.0


class ValidityReason(Model):
    """A fact that limits the conclusions from a run or a test."""

    code: ValidityCode
    status: ValidityStatus
    text: str = ""
    """The reason in words: a clause without a full stop and without the name of the run."""
    side: Side | None = None
    run: int | None = None
    """Number of the run within its build, from 1; null if the reason concerns several runs."""
    metric: str | None = None
    unit: str | None = None
    """Unit of `numbers`, if they are values of `metric`."""
    file: str | None = None
    """Path of the recording, as in the params file."""
    labels: tuple[str, str] | None = None
    """For the code `another_build`: names of the build in the recording and in the params file."""
    because: Reason | None = None
    from_s: Number = None
    until_s: Number = None
    """Elapsed seconds at which the valid part of the run ends; null if this reason does not shorten the run."""
    numbers: dict[str, Number] = Field(default_factory=dict)
    """Observed and expected values by name; points in time are in elapsed seconds."""


class Validity(Model):
    """Whether a run or a test may be judged."""

    status: ValidityStatus
    valid_from_s: Number = None
    valid_until_s: Number = None
    """Elapsed seconds after which the run must not be judged; null if it may be judged to its end."""
    reasons: list[ValidityReason] = Field(default_factory=list)

    @property
    def codes(self) -> list[ValidityCode]:
        """The code of each reason."""
        return [reason.code for reason in self.reasons]


class ServerResult(Model):
    """The server from which the metrics of a run were pulled, and its warnings."""

    kind: str
    version: str
    url: str
    step_s: float
    label_step_s: float
    queries: int
    points: int
    missing_points: int
    """Number of requested points without a value, summed over the series of all metrics."""
    counter_resets: dict[str, int] = Field(default_factory=dict)
    """Number of restarts of each metric's counter during the run, by name of the metric."""
    warnings: list[str] = Field(default_factory=list)


class RunResult(Model):
    """One run of one build."""

    start: str
    end: str
    duration_s: float
    stop_s: Number
    shutdown: bool
    window: Window | None
    """Start and end of the steady window, in elapsed seconds; null if there is none (see `window_reason`)."""
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
    """SHA-256 of the values and timestamps of all samples of the run's metrics."""


class AlertResult(Model):
    """One alert of the load-test coordinator in the runs of one build: when and how often its threshold was reached."""

    build: Side
    alert: str
    name: str = ""
    """Name of the alert in the catalogue."""
    threshold: float
    first_s: Number
    """Earliest elapsed seconds over all runs, from 60 s on, at which the query reached the threshold; null if never."""
    times: int
    """Number of times that the query rose to the threshold, over all runs of the build."""
    share_steady: float
    """Fraction (0 to 1) of the samples in the steady window that reach the threshold: mean over the runs."""
    nearness: Number
    """95th percentile of query / threshold in the steady window: mean over the runs; null without a steady window."""


NEAR = 0.8
"""An alert with at least this `nearness` is near its threshold: about one more step of the load would reach it."""


class LimitedBy(Model):
    """What limited each build, in words (`base`, `new`), and the alerts of both builds in the catalogue's order."""

    base: str | None = None
    new: str | None = None
    alerts: list[AlertResult] = Field(default_factory=list)

    def of(self, build: Side) -> list[AlertResult]:
        """The alerts of one build."""
        return [use for use in self.alerts if use.build == build]

    def first(self, build: Side) -> AlertResult | None:
        """The alert of `build` that reached its threshold first; None if none did."""
        fired = [use for use in self.of(build) if use.first_s is not None]
        return min(fired, key=lambda use: use.first_s or 0.0, default=None)

    def limiting(self, build: Side) -> AlertResult | None:
        """The alert of `build` that was longest at its threshold in the steady window; None if none was."""
        use = max(self.of(build), key=lambda use: use.share_steady, default=None)
        return use if use is not None and use.share_steady > 0.0 else None

    def near(self, build: Side) -> list[AlertResult]:
        """The alerts of `build` whose `nearness` (see :class:`AlertResult`) is at least `NEAR`, the largest first."""
        near = [use for use in self.of(build) if (use.nearness or 0.0) >= NEAR]
        return sorted(near, key=lambda use: -(use.nearness or 0.0))


class Event(Model):
    """A sudden change of one metric in one run."""

    metric: str
    build: Side
    run: int = 1
    kind: Literal["level", "spike", "drop"]
    phase: Literal["steady", "ramp"] = "steady"
    """Always ``steady``; results of earlier versions of this library may also have events on the ramp."""
    at_s: float
    """Elapsed seconds of the change of level (kind `level`) or of the extreme value (kinds `spike`, `drop`)."""
    span_s: Window
    size: float
    """Signed size of the change, in the metric's unit."""
    size_percent: Number
    ci: tuple[Number, Number] | None
    group: int | None
    """Number, from 1, of the group of simultaneous events with this event; null only in results of earlier versions."""
    matched: bool
    warning: bool = False
    """True if only one build has it, significantly beyond the margin (a spike or drop of one metric: 6 margins)."""


class Distribution(Model):
    """Distribution of all values of one metric in one build: one value for each request, iteration or run."""

    values: int
    mean: float
    ci: Window
    """95 % interval of the mean, computed as for independent values."""
    sd: float
    quantiles: dict[str, tuple[float, Number, Number]]
    """Probability (such as ``0.99``) -> quantile and ends of its 95 % interval; an end is null for too few values."""


class DistributionResult(Model):
    """Distribution of one metric in each build; null for a build with too few values."""

    name: str
    slug: str
    unit: str
    base: Distribution | None
    new: Distribution | None


class FrameResult(Model):
    """Share of one stack frame in the samples of a profile, in percent: mean over the profiles of each build."""

    frame: str
    base_percent: float
    new_percent: float
    points: float
    """Share in the new build minus share in the base build, in percentage points."""
    noise_points: Number
    """Difference, in points, that unchanged builds exceed in 1 of 20 comparisons; null with one profile per build."""
    noise_share: Number
    """`noise_points` as a fraction of the absolute difference, at most 1; null if noise is unknown or `points` is 0."""
    p_adjusted: Number
    """P-value, adjusted (Holm) over all judged frames; null with one profile per build."""


class ProfilesResult(Model):
    """Profiles of both builds, and the stack frames whose share of samples changed most (largest change first)."""

    runs: Pair[int]
    samples: Pair[float]
    own: list[FrameResult]
    """Share of each frame in the samples, in percent; only samples taken in the frame itself count."""
    total: list[FrameResult]
    """Share of each frame with its callees. Frames with 90 % or more of their change in a callee are omitted."""


class Sessions(Model):
    """The sessions (runs made together) of a benchmark; the mean over all values of a session is one observation."""

    names: Pair[list[str]]
    """Names of the sessions of each build; the name of an unnamed session is empty."""
    paired: bool
    """True if each session is compared with the session of the same name in the other build."""


class TestResult(Model):
    """One test of the comparison."""

    __test__ = False  # otherwise pytest would collect this class, because of its name

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
    """Distributions of the metrics of a benchmark that have enough values; empty for other types of tests."""
    sessions: Sessions | None = None
    """Sessions of a benchmark; null if its runs state none."""
    errors: list[ErrorRateResult] = Field(default_factory=list)
    errors_counted: Pair[list[int | None]] | None = None
    """Number of errors that the load-test tool counted in each run; null if no run states a number."""
    labels: list[LabelResult]
    events: list[Event]
    profiles: ProfilesResult | None = None
    validity: Validity
    looks: list[tuple[int, int]] = Field(default_factory=list)
    """Numbers of runs (base, new) at each analysis of this test: earlier analyses from the ledger, then this one."""
    level: float = 0.05
    """Significance level of adjusted p-values, and 1 - confidence of intervals: 5 %, or less at repeated analyses."""
    planned_runs: int | None = None
    """Planned final number of runs of each build, which affects `level`; null if the params state none."""

    @property
    def in_order(self) -> tuple[Side, Side] | None:
        """The build whose runs all came first, and the other one; None if runs alternate or a build has one run."""
        for first, later in (SIDES, SIDES[::-1]):
            starts, ends = [run.start for run in self.runs[later]], [run.end for run in self.runs[first]]
            if min(len(starts), len(ends)) > 1 and max(ends) < min(starts):
                return first, later
        return None

    def events_of(self, metric: MetricResult) -> list[Event]:
        """Select the events of this metric that deserve a warning."""
        return [event for event in self.events if event.metric == metric.slug and event.warning]


class FurtherRunsResult(Model):
    """Number of further runs of each build, and the changes that these runs would detect with a probability of 80 %."""

    further: int
    hours: float
    """Hours that the further runs of both builds take, if they last as long as the recorded runs."""
    found_percent: float
    """Smallest rise, in percent, that would be reported as a change after the further runs (probability 80 %)."""
    no_worse_than_percent: Number
    """If builds are equal, losses above this percentage are excluded with 80 % probability; null for neutral rows."""


class PlannedRow(Model):
    """One row that the verdict uses, and the changes that further runs would detect in it."""

    slug: str | None
    """Slug of the metric; null for supported users."""
    name: str
    margin_percent: float
    better: codes.Better
    decided_by: str
    status: Status
    now_percent: Number
    """Smallest rise, in percent, that the present runs detect with a probability of 80 %."""
    unit: Literal["run", "session"] = "run"
    """What the numbers in `steps` count: runs or sessions."""
    steps: list[FurtherRunsResult]
    """Plans: 1 further run, and the fewest that detect a change of 1.5 times the margin (or 8 if 8 are not enough)."""

    @property
    def undecided(self) -> bool:
        """Whether the row is inconclusive, so that it needs further runs."""
        return self.status == Status.INCONCLUSIVE


class TestPlan(Model):
    """Plan of further runs of one test: their order, and the changes that they would detect."""

    __test__ = False  # otherwise pytest would collect this class, because of its name

    test: str
    hours: float
    """Hours for one further run of each build."""
    runs: int
    """Number of runs (or sessions) that each build has now; the smaller number if the builds differ."""
    order: list[Side] = Field(default_factory=list)
    """Build of each further run, in order; empty if all rows are decided."""
    rows: list[PlannedRow]

    @property
    def undecided(self) -> list[PlannedRow]:
        """Select the rows whose status is inconclusive."""
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
        """The text followed by the detail."""
        return f"{self.text} {self.detail}".rstrip()


class Suggestion(Model):
    """A next step that the results suggest; `action_items` has the analyst's own next steps."""

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
    """Name of the test; for a run in a matrix of variants, its factor levels."""
    build: Side | None
    """Build of the run; null if several variants are compared. In that case, `run` numbers the runs of all variants."""
    run: int
    path: str
    """Folder of the copied files, relative to the folder of the report."""
    files: int
    bytes: int


class Provenance(Model):
    """Origin of the results. Two results of the same inputs differ only in `run`."""

    params_sha256: str
    catalogue: str
    inputs: list[InputProvenance]
    artefacts: list[ArtefactProvenance] = Field(default_factory=list)
    run: dict[str, Any] = Field(default_factory=dict)


class Results(Model):
    """The whole of results.json."""

    model_config = ConfigDict(defer_build=True)  # pydantic builds the schema at first use, to avoid circular imports

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
    """Differences between the setup of this comparison and that of the previous one in the ledger."""
    drift: list[Drift] = Field(default_factory=list)
    history: HistoryResult | None = None
    comments: list[str]
    action_items: list[str]
    action_items_title: str
    grafana: list[GrafanaLink]
    self_check: dict[str, Any] | None = None
    tests: list[TestResult]
    pooled: list[PooledResult] = Field(default_factory=list)
    """Changes of metrics, pooled over tests of one type that have independent noise; no verdict uses them."""
    variants: KindResult | None = None
    """Results of a matrix of variants; such results have no `tests`, and `base` is the baseline variant."""
    plan: list[TestPlan] = Field(default_factory=list)
    """Plan of further runs for each valid test."""
    findings: list[Finding]
    suggestions: list[Suggestion] = Field(default_factory=list)
    provenance: Provenance


def dumps(results: Results) -> str:
    """Return `results` as the text of results.json."""
    return results.model_dump_json(indent=1) + "\n"
