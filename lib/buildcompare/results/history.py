"""Schema of a comparison's past: setup differences, drift, and what the ledger taught."""

from __future__ import annotations

from pydantic import Field

from buildcompare.results.base import Model, Number
from buildcompare.results.codes import DriftKind, NoHistory, NoiseSource, SetupChange, Side, TestType


class SetupDifference(Model):
    """A setting that differs from the earlier comparison `against`; its texts are plain."""

    setting: str
    against: str
    before: str | None
    now: str | None
    kind: SetupChange


class DatabaseOrder(Model):
    """An earlier comparison in which the databases stood in the same order: changes in percent where they did."""

    comparison: str
    base: Number = None
    new: Number = None


class Drift(Model):
    """One level (supported users) beside another that it should equal, or is often compared with.

    Attributes
    ----------
    against
        The earlier comparison; the other database for `between_databases`.
    label, against_label
        The build that is judged, and the one that it is judged by.
    ci_low, ci_high
        95 % interval of `delta_percent` from the noise of single runs on one setup.
    same_version
        Whether both builds are of one major and minor version: else their distance is no drift alone.
    z
        In standard deviations of the same version between comparisons (see history.between).
    setup_changed
        Settings that changed since; empty: none recorded.
    flipped
        Whether the databases stand in another order than in the comparison before.
    earlier
        Where they flipped: every earlier comparison in which they stood like this.
    """

    kind: DriftKind
    comparison: str
    against: str
    test: str
    type: TestType
    db_engine: str | None
    side: Side
    label: str
    against_label: str
    before: Number
    value: Number
    delta_percent: Number
    ci_low: Number
    ci_high: Number
    p_value: Number
    noise_source: NoiseSource
    same_version: bool
    z: Number = None
    jump: bool = False
    setup_changed: list[str] = Field(default_factory=list)
    flipped: bool = False
    earlier: list[DatabaseOrder] = Field(default_factory=list)

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval excludes no change."""
        return (self.ci_low or 0.0) > 0 or (self.ci_high or 0.0) < 0


class BetweenComparisons(Model):
    """Robust standard deviation of one version between two consecutive comparisons of a test; null with few links."""

    type: TestType
    db_engine: str | None
    sd_percent: Number
    links: int


class RepeatedMeasurements(Model):
    """Run-to-run standard deviation of one run from builds that the ledger holds more than once on one setup."""

    sd_percent: float
    ci_low: float
    ci_high: float
    df: int


class HistoryResult(Model):
    """The ledger that this comparison was compared with.

    Attributes
    ----------
    comparisons
        Earlier ones in the chain.
    entries_sha256
        Of all that was read from the ledger: it is an input as the recordings are.
    before
        The comparison before this one; null where `reason` says why drift is not known.
    run_sd_percent
        Standard deviation of one run, which the intervals of `drift` rest on.
    margin_percent
        Smaller drifts are not reported.
    """

    ledger: str
    comparisons: int
    studies: int
    entries_sha256: str
    before: str | None
    reason: NoHistory | None = None
    run_sd_percent: Number = None
    noise_source: NoiseSource = NoiseSource.NONE
    margin_percent: float
    between: list[BetweenComparisons] = Field(default_factory=list)
    repeats: RepeatedMeasurements | None = None
