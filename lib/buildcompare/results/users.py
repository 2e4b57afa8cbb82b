"""Schema of the users' curves in results.json: phases, bumps, ramps."""

from typing import Literal

from pydantic import Field

from buildcompare.results.base import Model, Number
from buildcompare.results.codes import Status, Window

PhaseName = Literal["early_bumps", "ramp", "bend", "waves", "plateau", "shutdown"]


class Phase(Model):
    """A stretch of a run."""

    name: PhaseName
    """`bend` lies between the linear ramp and the waves."""
    start_s: float
    end_s: float


class Bump(Model):
    """A rise of the users that falls back before the lasting ramp."""

    start_s: float
    peak_s: float
    end_s: float
    peak_users: float
    depth_users: float


class RampUp(Model):
    """The shape of a run's ramp; null if not measured."""

    onset_s: Number = None
    slope_users_per_s: Number = None
    early_bumps: int | None = None
    early_bump_seconds: Number = None
    bumps: list[Bump] = Field(default_factory=list)
    """The early bumps of a single run; empty in the mean over several."""
    kink_s: Number = None
    """Time at which the ramp bent at the first alert: the coordinator rests after it, which is no defect."""
    lost_user_seconds: Number = None
    """User-seconds below the ideal ramp, up to the end of the linear part."""
    wave_onset_s: Number = None
    wave_onset_users: Number = None
    wave_period_s: Number = None
    wave_amplitude_users: Number = None
    """From peak to trough."""
    wave_regularity: Number = None
    waves_p_value: Number = None
    plateau_users: Number = None
    plateau_drift_users_per_s: Number = None
    equilibrium: bool | None = None
    """Whether the last 30 minutes kept the stop rule; null if unknown, and in the mean over runs."""
    stopped_earlier_users: Number = None
    """Level at the earliest stop that the rule allows."""
    time_to: dict[str, Number] = Field(default_factory=dict)
    """Seconds until a number of users (the key) was first connected."""


class BetweenRuns(Model):
    """New minus base, one run each, and its 95 % interval from run-to-run noise."""

    value: float
    ci_low: float
    ci_high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the difference is significant."""
        return not self.ci_low <= 0.0 <= self.ci_high


class RampUps(Model):
    """The ramps of both builds, and their difference."""

    base: RampUp
    new: RampUp
    shift_users: Number = None
    """New minus base: median gap over the common linear ramp; `shift_ci_*` is its 95 % interval."""
    shift_seconds: Number = None
    shift_ci_low: Number = None
    shift_ci_high: Number = None
    shift_p_value: Number = None
    shift_window: Window | None = None
    shift_noise_source: Literal["runs", "simulated"] | None = None
    """Source of the run-to-run noise of the ramp's start."""
    shift_status: Status = Status.INCONCLUSIVE
    """Regression if the new build's ramp is later; no verdict uses it."""
    wave_period_s: BetweenRuns | None = None
    """For the median pair of runs; no verdict uses it."""
    wave_amplitude_users: BetweenRuns | None = None
