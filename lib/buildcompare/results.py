"""The schema of results.json: the one summary that every report format is rendered from.

Fields are only ever added; a change of meaning raises `schema_version`. Everything that differs between two
runs of the same inputs stands under `provenance.run` and nowhere else. Times without a zone are elapsed
seconds from the start of their run; percentages are in percent.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Status = Literal["regression", "improvement", "equivalent", "inconclusive", "not_comparable"]
Verdict = Literal["pass", "regression", "inconclusive", "invalid"]
Side = Literal["base", "new"]


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
Window = tuple[float, float]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Label(_Model):
    """A build by its name."""

    label: str


class BothNumbers(_Model):
    """A number for each build; null where there is none."""

    base: Number = None
    new: Number = None


class AlertResult(_Model):
    """What one alert of the coordinator did in one build; see analysis.limits."""

    build: Side
    alert: str
    threshold: Number
    first_s: Number
    times: int
    share_steady: Number
    nearness: Number


class BothTexts(_Model):
    """A text for each build; null where there is none."""

    base: str | None = None
    new: str | None = None


class LimitedBy(BothTexts):
    """What limited each build, in words and in numbers."""

    alerts: list[AlertResult] = Field(default_factory=list)


class BothFlags(_Model):
    """Yes or no for each build."""

    base: bool = False
    new: bool = False


class BothWindows(_Model):
    """A window in elapsed seconds for each build (of its first run that has one)."""

    base: Window | None = None
    new: Window | None = None


class Phase(_Model):
    """A stretch of a run."""

    name: Literal["early_bumps", "ramp", "bend", "waves", "plateau", "shutdown"]
    """`bend` is what lies between the linear ramp and the waves."""
    start_s: float
    end_s: float


class Bump(_Model):
    """A rise of the users that fell back before the lasting ramp."""

    start_s: float
    peak_s: float
    end_s: float
    peak_users: float
    depth_users: float


class RampUp(_Model):
    """The shape of a run's beginning; null where it was not measured."""

    onset_s: Number = None
    slope_users_per_s: Number = None
    early_bumps: int | None = None
    early_bump_seconds: Number = None
    bumps: list[Bump] = Field(default_factory=list)
    """The early bumps of a single run; empty in the mean over several."""
    kink_s: Number = None
    """When the ramp bent at the first alert, from where the coordinator rests: no defect."""
    lost_user_seconds: Number = None
    """Against the ideal ramp, up to the end of the linear one."""
    wave_onset_s: Number = None
    wave_onset_users: Number = None
    wave_period_s: Number = None
    wave_amplitude_users: Number = None
    """From peak to trough."""
    wave_regularity: Number = None
    """1 is a clock."""
    waves_p_value: Number = None
    plateau_users: Number = None
    plateau_drift_users_per_s: Number = None
    equilibrium: bool | None = None
    """Whether the last 30 minutes kept the stop rule; null where it cannot be told, or in the mean over runs."""
    stopped_earlier_users: Number = None
    """The level that the earliest stop allowed by the rule would have given."""
    time_to: dict[str, Number] = Field(default_factory=dict)
    """Seconds until this many users (the key) were connected for the first time."""


class RampUps(_Model):
    """The beginnings of both builds, and how far they are apart."""

    base: RampUp
    new: RampUp
    shift_users: Number = None
    """New minus base, the median gap over the common linear ramp; `shift_ci_*` bound it at 95 %."""
    shift_seconds: Number = None
    shift_ci_low: Number = None
    shift_ci_high: Number = None
    shift_p_value: Number = None
    shift_window: Window | None = None
    shift_prior: Literal["runs", "simulated"] | None = None
    """Where the run-to-run variation of the ramp's start is from."""
    shift_status: Status = "inconclusive"
    """A regression where the new build's ramp is later; it never decides the verdict."""


class Estimate(_Model):
    """The supported users of one run, from its curve."""

    estimated: Number
    at_least: Number
    reason: str | None
    slope_users_per_s: Number
    window: Window | None


class SeriesCoverage(_Model):
    """How much of its run, up to the stop, a series covers: samples expected, present, and present as a number."""

    slug: str
    expected: int
    present: int
    finite: int
    longest_gap_s: float


class Validity(_Model):
    """Whether a run or a test may be judged."""

    status: Literal["valid", "limited", "invalid"]
    valid_until_s: Number = None
    codes: list[str] = Field(default_factory=list)
    """What each of the reasons is, for programs."""
    reasons: list[str] = Field(default_factory=list)
    numbers: list[dict[str, Number]] = Field(default_factory=list)
    """The numbers of each of the reasons; times in elapsed seconds."""


class ServerResult(_Model):
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
    """In the server's own words."""


class RunResult(_Model):
    """One run of one build."""

    start: str
    """RFC 3339, UTC."""
    end: str
    duration_s: float
    stop_s: Number
    shutdown: bool
    window: Window | None
    """The steady window, elapsed seconds."""
    window_method: str
    window_reason: str | None
    load_curve: str | None
    """Slug of the metric that the phases were read off."""
    phases: list[Phase]
    ramp_up: RampUp
    validity: Validity
    estimated_supported_users: Estimate | None
    reported_supported_users: int | None
    coverage: list[SeriesCoverage]
    missing: list[str]
    """Slugs that the catalogue has and this run lacks."""
    notes: list[str]
    server: ServerResult | None = None
    """Null where the run was read from files."""


class Runs(_Model):
    """The runs of both builds."""

    base: list[RunResult]
    new: list[RunResult]


class SupportedUsersResult(_Model):
    """How many users each build supports (unbounded tests)."""

    base: Number
    new: Number
    delta_percent: Number
    ci_low: Number = None
    """Known too where the new build supports *at least* some number: then without `delta_percent` and `ci_high`."""
    ci_high: Number = None
    p_value: Number = None
    leans_worse: Number = None
    detectable_percent: Number = None
    runs_to_settle: int | None = None
    prior: Literal["calibrated", "borrowed", "none"] = "none"
    run_sd_percent: Number = None
    """Standard deviation of a single run."""
    band_percent: Number
    status: Status
    reported: BothNumbers
    estimated: BothNumbers
    at_least: BothNumbers
    reason: BothTexts


class LoadAdjustedResult(_Model):
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
    """Whether the difference is the mean over these loads: at the highest it is no other, as far as can be told."""
    prior: Literal["calibrated", "borrowed", "none"] = "none"
    noise_of: Literal["equal_load", "levels", "none"] = "none"
    """What the noise between runs was learned from: runs at equal load, or their levels, which move with the load."""


class MixMover(_Model):
    """A label whose share of the calls moved an average."""

    label: str
    base_share_percent: float
    new_share_percent: float
    seconds: float
    """Per call, the mean of both builds."""
    percent: float
    """Its part of `mix_percent`."""


class TrafficMixResult(_Model):
    """The change of an average over labels, split: `mix_percent` and `speed_percent` add up to `delta_percent`."""

    group: str
    """The label table that it was computed from."""
    kind: Literal["mix", "speed", "both", "neither", "unknown"]
    """What moved; `unknown`: the mix did, and how far speed moves by chance is not known."""
    counts: bool
    """Whether the metric counts as at unchanged mix (where the mix moved it), and not as measured."""
    base: float
    """The averages over the labels, in seconds."""
    new: float
    delta_percent: float
    mix_percent: float
    """What other calls did to the average, in percent of the base's."""
    mix_ci_low: Number = None
    """95 %, from the noise of the labels where it is known."""
    mix_ci_high: Number = None
    speed_percent: float
    """What slower or faster calls did to it."""
    speed_ci_low: Number = None
    """95 %, from the noise of the average between runs of one build."""
    speed_ci_high: Number = None
    at_unchanged_mix_percent: Number = None
    """The change of the metric itself without the mix part."""
    ci_low: Number = None
    """95 % interval of `at_unchanged_mix_percent`."""
    ci_high: Number = None
    p_adjusted: Number = None
    leans_worse: Number = None
    status: Status
    """Of the metric at unchanged mix."""
    movers: list[MixMover] = Field(default_factory=list)
    """The labels that moved the mix most."""


class MetricResult(_Model):
    """One metric of one test."""

    name: str
    slug: str
    labels: dict[str, str] = Field(default_factory=dict)
    unit: str
    better: Literal["lower", "higher", "context"]
    gate: bool
    margin_percent: float
    """The smallest change that matters."""
    base: Number
    """Level over the steady window: the mean, for times the geometric mean."""
    new: Number
    mean: BothNumbers
    """The arithmetic means of the same samples."""
    delta_percent: Number
    ci_low: Number = None
    """95 % interval of `delta_percent`, from run-to-run variance, not adjusted for the number of metrics."""
    ci_high: Number = None
    p_value: Number = None
    p_adjusted: Number = None
    """Holm's over `family`."""
    family: str | None = None
    leans_worse: Number = None
    """Adjusted one-sided p-value, where the change lies beyond the margin on the bad side."""
    status: Status
    """Where neither direction is better (`better`: context), an improvement is merely more and a regression less."""
    reason: str | None
    n_effective: Number = None
    """Independent samples that the steady window is worth, in the run that is worth least."""
    detectable_percent: Number = None
    """The smallest rise that would have been called with a probability of 80 %, alone in its family."""
    runs_to_settle: int | None = None
    """Runs per build that tell a change of the margin's size from chance; null beyond 99 or where nothing is known."""
    prior: Literal["calibrated", "borrowed", "none"] = "none"
    window: BothWindows
    missing_samples: BothNumbers
    load_adjusted: LoadAdjustedResult | None = None
    """Unbounded tests: what differs at the highest load that both builds sustained."""
    traffic_mix: TrafficMixResult | None = None
    """Averages over labels whose call rates are known."""

    @property
    def counted_status(self) -> Status:
        """The status that a verdict counts: at unchanged traffic mix where the mix moved the average."""
        return self.traffic_mix.status if self.traffic_mix and self.traffic_mix.counts else self.status

    @property
    def counted_delta_percent(self) -> float | None:
        """`delta_percent` as a verdict counts it."""
        mix = self.traffic_mix
        return mix.at_unchanged_mix_percent if mix and mix.counts else self.delta_percent

    @property
    def counted_leaning(self) -> float | None:
        """`leans_worse` as a verdict counts it."""
        return self.traffic_mix.leans_worse if self.traffic_mix and self.traffic_mix.counts else self.leans_worse


class ErrorRateResult(_Model):
    """How often something failed in one test, relative to how often it was tried."""

    name: str
    slug: str
    unit: str
    better: Literal["lower"] = "lower"
    gate: Literal[True] = True
    """Errors are what users feel."""
    base: Number
    """Mean over the steady window, over the runs of the build."""
    new: Number
    delta: Number
    """In `unit`: of a rate that is often zero a ratio says little."""
    delta_percent: Number
    """Null where the base had none."""
    status: Status
    reason: str | None


class LabelResult(_Model):
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
    calls: BothNumbers | None = None
    window: Literal["steady", "whole_run"]
    status: Status
    """Called by `p_value` below 0.02, row by row: of rows where nothing changed at most that part is called.
    `p_adjusted` (Benjamini and Hochberg's over the table and statistic) is for readers of the whole table."""
    only_in: Side | None
    at_least: BothFlags
    reason: str | None


class Event(_Model):
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
    """95 % interval of `size`."""
    group: int | None
    """The same number for events that happened together."""
    matched: bool
    """Whether the other build shows it too."""
    warning: bool = False
    """Whether it is in one build only and surely larger than the metric's margin."""


class TestResult(_Model):
    """One test of the comparison."""

    __test__ = False  # not a test class of pytest's

    name: str
    type: Literal["bounded", "unbounded"]
    db_engine: str | None
    users: int | None
    verdict: Verdict
    limited_by: LimitedBy | None = None
    runs: Runs
    supported_users: SupportedUsersResult | None
    ramp_up: RampUps
    metrics: list[MetricResult]
    errors: list[ErrorRateResult] = Field(default_factory=list)
    """Where error rates were recorded."""
    labels: list[LabelResult]
    events: list[Event]
    validity: Validity


class Finding(_Model):
    """One sentence of the report with what it rests on."""

    id: str
    severity: Literal["critical", "warning", "info"]
    kind: str
    test: str | None
    metric: str | None
    text: str
    evidence: dict[str, Any]


class Suggestion(_Model):
    """Something that these tests suggest to do; never the analyst's own action item."""

    kind: Literal["rerun", "former_setup", "settle", "look_at_label"]
    test: str | None
    text: str
    evidence: dict[str, Any]


class SetupRow(_Model):
    """One row of the setup table; both are Markdown."""

    setting: str
    value: str


class SetupDifference(_Model):
    """A setting that is not what it was in an earlier comparison; its texts are plain."""

    setting: str
    against: str
    """The earlier comparison."""
    before: str | None
    now: str | None
    kind: Literal["changed", "not_recorded"]
    """`not_recorded`: one of the two comparisons does not say, so nobody can tell."""


class DatabaseOrder(_Model):
    """An earlier comparison in which the databases stood in the same order: changes in percent where they did."""

    comparison: str
    base: Number = None
    new: Number = None


class Drift(_Model):
    """One level (supported users) beside another that it should equal, or is often compared with."""

    kind: Literal["same_version", "previous_new", "between_databases"]
    """This base against the previous new of the same version; this new against the previous new; a database against
    another within one build."""
    comparison: str
    against: str
    """The earlier comparison; the other database for `between_databases`."""
    test: str
    type: Literal["bounded", "unbounded"]
    db_engine: str | None
    side: Side
    label: str
    """The build that is judged."""
    against_label: str
    """The build that it is judged by."""
    before: Number
    value: Number
    delta_percent: Number
    ci_low: Number
    """95 % interval of `delta_percent` from the noise of single runs: what two runs on one setup would show."""
    ci_high: Number
    p_value: Number
    prior: Literal["calibrated", "borrowed", "none"]
    same_version: bool
    """False where the two builds are not of one major and minor version, so that their distance is no drift alone."""
    z: Number = None
    """In standard deviations of the same version between comparisons (see history.between)."""
    jump: bool = False
    setup_changed: list[str] = Field(default_factory=list)
    """Settings that changed since; empty: none recorded."""
    flipped: bool = False
    """The databases stand in another order than in the comparison before."""
    earlier: list[DatabaseOrder] = Field(default_factory=list)
    """Where they flipped: every earlier comparison in which they stood like this."""


class BetweenComparisons(_Model):
    """How far the same version lies apart in two consecutive comparisons, in one test."""

    type: Literal["bounded", "unbounded"]
    db_engine: str | None
    sd_percent: Number
    """Robust standard deviation of the ratio; null with too few links."""
    links: int


class RepeatedMeasurements(_Model):
    """Run-to-run standard deviation of one run from builds that the ledger holds more than once on one setup."""

    sd_percent: float
    ci_low: float
    ci_high: float
    df: int


class HistoryResult(_Model):
    """The ledger that this comparison was held against."""

    ledger: str
    comparisons: int
    """Earlier ones in the chain."""
    studies: int
    entries_sha256: str
    """Of all that was read from the ledger: it is an input as the recordings are."""
    before: str | None
    """The comparison before this one."""
    reason: str | None = None
    """Why nothing is said of drift; null where it is."""
    run_sd_percent: Number = None
    """Standard deviation of one run, which the intervals of `drift` rest on."""
    prior: Literal["calibrated", "borrowed", "none"] = "none"
    margin_percent: float
    """A smaller drift is not worth a sentence."""
    between: list[BetweenComparisons] = Field(default_factory=list)
    repeats: RepeatedMeasurements | None = None


class GrafanaLink(_Model):
    """A link to a dashboard."""

    title: str
    url: str


class InputProvenance(_Model):
    """One file that a run was read from."""

    test: str
    build: Side
    run: int
    kind: str
    path: str
    sha256: str
    bytes: int


class Provenance(_Model):
    """Where all of it comes from. Only `run` differs between two runs of the same inputs."""

    params_sha256: str
    catalogue: str
    inputs: list[InputProvenance]
    run: dict[str, Any] = Field(default_factory=dict)


class Results(_Model):
    """The whole of results.json."""

    schema_version: Literal[1] = 1
    comparison: str
    base: Label
    new: Label
    complete: Literal[True] = True
    simulated: bool
    verdict: Verdict
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
    findings: list[Finding]
    suggestions: list[Suggestion] = Field(default_factory=list)
    """At most three, the most useful first."""
    provenance: Provenance


def dumps(results: Results) -> str:
    """`results` as the text of results.json."""
    return json.dumps(results.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of results.json."""
    schema = Results.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
