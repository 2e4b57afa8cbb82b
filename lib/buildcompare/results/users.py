"""Schema of what results.json states about curves of connected users: phases, bumps and ramps."""

from typing import Literal

from pydantic import Field

from buildcompare.results.base import Model, Number
from buildcompare.results.codes import Status, Window

PhaseName = Literal["early_bumps", "ramp", "bend", "waves", "plateau", "shutdown"]


class Phase(Model):
    """A phase of one run, in elapsed seconds."""

    name: PhaseName
    """Name of the phase; `bend` lasts from the end of the linear ramp to the start of the next phase."""
    start_s: float
    end_s: float


class Bump(Model):
    """A rise of the connected users that falls back before the lasting ramp begins."""

    start_s: float
    peak_s: float
    end_s: float
    peak_users: float
    depth_users: float


class RampUp(Model):
    """The shape of a run's ramp, or the mean over the runs of a build; a field is null if it was not measured."""

    onset_s: Number = None
    slope_users_per_s: Number = None
    early_bumps: int | None = None
    early_bump_seconds: Number = None
    bumps: list[Bump] = Field(default_factory=list)
    """Early bumps (rises that fall back before the lasting ramp) of a single run; empty in a mean of runs."""
    kink_s: Number = None
    """Elapsed seconds at which the ramp gets less steep. This is normal after the first alert of the load test."""
    lost_user_seconds: Number = None
    """Area between the ideal straight ramp and the curve, up to the end of the linear ramp, in user-seconds."""
    wave_onset_s: Number = None
    wave_onset_users: Number = None
    wave_period_s: Number = None
    wave_amplitude_users: Number = None
    """Median fall from a peak to the next trough, in users."""
    wave_regularity: Number = None
    waves_p_value: Number = None
    plateau_users: Number = None
    plateau_drift_users_per_s: Number = None
    equilibrium: bool | None = None
    """Whether the users hardly changed in the last 30 minutes; null if unknown or in a mean of several runs."""
    stopped_earlier_users: Number = None
    """Mean users over the first 30 minutes that met the load-test tool's stop rule; null if none met it."""
    time_to: dict[str, Number] = Field(default_factory=dict)
    """Elapsed seconds at which each number of users (the key) was first reached; null if unknown or never."""


class BetweenRuns(Model):
    """Difference between single runs of the builds, new minus base, with its 95 % interval from run-to-run noise."""

    value: float
    ci_low: float
    ci_high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the 95 % interval excludes zero, so that the difference is significant."""
        return not self.ci_low <= 0.0 <= self.ci_high


class RampUps(Model):
    """The ramps of both builds, and their difference."""

    base: RampUp
    new: RampUp
    shift_users: Number = None
    """Median gap in users, new minus base, while both builds ramp up; `shift_ci_*` is its 95 % interval."""
    shift_seconds: Number = None
    shift_ci_low: Number = None
    shift_ci_high: Number = None
    shift_p_value: Number = None
    shift_window: Window | None = None
    shift_noise_source: Literal["runs", "simulated"] | None = None
    """Source of the run-to-run noise in the ramp's delay: repeated runs, or simulated runs."""
    shift_status: Status = Status.INCONCLUSIVE
    """`regression` if the new build's ramp is significantly later; no verdict uses this status."""
    wave_period_s: BetweenRuns | None = None
    """Median difference of the wave period over the pairs of runs, new minus base, in seconds; no verdict uses it."""
    wave_amplitude_users: BetweenRuns | None = None
