"""What is kept of each run, and of whether it may be judged?"""

from __future__ import annotations

from pydantic import Field

from buildcompare.results.base import Model, Number, Reason, Window
from buildcompare.results.codes import ValidityStatus
from buildcompare.results.users import Phase, RampUp


class Estimate(Model):
    """The supported users of one run, from its curve."""

    estimated: Number
    at_least: Number
    reason: str | None
    slope_users_per_s: Number
    window: Window | None


class SeriesCoverage(Model):
    """How much of its run, up to the stop, a series covers: samples expected, present, and present as a number."""

    slug: str
    expected: int
    present: int
    finite: int
    longest_gap_s: float


class Validity(Model):
    """Whether a run or a test may be judged."""

    status: ValidityStatus
    valid_until_s: Number = None
    codes: list[str] = Field(default_factory=list)
    """What each of the reasons is, for programs."""
    reasons: list[str] = Field(default_factory=list)
    numbers: list[dict[str, Number]] = Field(default_factory=list)
    """The numbers of each of the reasons; times in elapsed seconds."""


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
    """In the server's own words."""


class RunResult(Model):
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
    window_reason: Reason | None
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
    samples_sha256: str = ""
    """Of all samples of its metrics and of when they were taken."""


class Runs(Model):
    """The runs of both builds."""

    base: list[RunResult]
    new: list[RunResult]
