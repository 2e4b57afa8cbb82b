"""Models of each run and of its validity."""

from __future__ import annotations

from pydantic import Field

from buildcompare.results.base import Model, Number, Reason, Window
from buildcompare.results.codes import NoEstimate, Side, ValidityCode, ValidityStatus
from buildcompare.results.users import Phase, RampUp


class Estimate(Model):
    """The supported users of one run, from its curve."""

    estimated: Number
    """Mean users over the last 30 minutes under load; null where that is not what the build supports."""
    at_least: Number
    """The same mean where the curve still rose or met the ceiling, so that the build supports at least as many."""
    reason: NoEstimate | None
    slope_users_per_s: Number = None
    window: Window | None = None


class SeriesCoverage(Model):
    """How much of its run, up to the stop, a series covers: samples expected, present, and present as a number."""

    slug: str
    expected: int
    present: int
    finite: int
    longest_gap_s: float


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
    because: Reason | None = None
    until_s: Number = None
    """The run is valid up to here; null where the fault has no time."""
    numbers: dict[str, Number] = Field(default_factory=dict)
    """What was found and what was expected; times in elapsed seconds."""


class Validity(Model):
    """Whether a run or a test may be judged."""

    status: ValidityStatus
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


class Runs(Model):
    """The runs of both builds."""

    base: list[RunResult]
    new: list[RunResult]

    @property
    def several(self) -> bool:
        """Whether a build has more than one run."""
        return len(self.base) > 1 or len(self.new) > 1
