"""Schema of what is kept of the users' curves: phases, bumps, ramps."""

from typing import Literal

from pydantic import Field

from buildcompare.results.base import Model, Number
from buildcompare.results.codes import Status, Window

PhaseName = Literal["early_bumps", "ramp", "bend", "waves", "plateau", "shutdown"]


class Phase(Model):
    """A stretch of a run."""

    name: PhaseName
    """`bend` is what lies between the linear ramp and the waves."""
    start_s: float
    end_s: float


class Bump(Model):
    """A rise of the users that fell back before the lasting ramp."""

    start_s: float
    peak_s: float
    end_s: float
    peak_users: float
    depth_users: float


class RampUp(Model):
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
    waves_p_value: Number = None
    plateau_users: Number = None
    plateau_drift_users_per_s: Number = None
    equilibrium: bool | None = None
    """Whether the last 30 minutes kept the stop rule; null where it is not known, or in the mean over runs."""
    stopped_earlier_users: Number = None
    """The level that the earliest stop allowed by the rule would have given."""
    time_to: dict[str, Number] = Field(default_factory=dict)
    """Seconds until this many users (the key) were connected for the first time."""


class BetweenRuns(Model):
    """New minus base, one run each, and its 95 % interval by what runs of one build differ by from run to run."""

    value: float
    ci_low: float
    ci_high: float

    @property
    def excludes_zero(self) -> bool:
        """Whether the builds differ by more than their runs do."""
        return not self.ci_low <= 0.0 <= self.ci_high


class RampUps(Model):
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
    shift_noise_source: Literal["runs", "simulated"] | None = None
    """Where the run-to-run variation of the ramp's start is from."""
    shift_status: Status = Status.INCONCLUSIVE
    """A regression where the new build's ramp is later; it never decides the verdict."""
    wave_period_s: BetweenRuns | None = None
    """Of the pair of runs in the middle; it never decides anything."""
    wave_amplitude_users: BetweenRuns | None = None
