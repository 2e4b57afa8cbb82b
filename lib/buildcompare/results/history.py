"""Schema of a comparison's past: setup differences, drift, and what the ledger taught."""

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
    """One level (supported users) beside another that it should equal, or is often compared with."""

    kind: DriftKind
    comparison: str
    against: str
    """The earlier comparison; the other database for `between_databases`."""
    test: str
    type: TestType
    db_engine: str | None
    side: Side
    label: str
    """The build that is judged, by `against_label`."""
    against_label: str
    before: Number
    value: Number
    delta_percent: Number
    ci_low: Number
    """95 % interval of `delta_percent` from the noise of single runs on one setup."""
    ci_high: Number
    p_value: Number
    noise_source: NoiseSource
    same_version: bool
    """Whether both builds are of one major and minor version: else their distance is no drift alone."""
    z: Number = None
    """In standard deviations of the same version between comparisons (see history.between)."""
    jump: bool = False
    setup_changed: list[str] = Field(default_factory=list)
    """Settings that changed since; empty: none recorded."""
    flipped: bool = False
    """Whether the databases stand in another order than in the comparison before."""
    earlier: list[DatabaseOrder] = Field(default_factory=list)
    """Where they flipped: the newest earlier comparisons in which they stood like this."""
    earlier_comparisons: int = 0
    """Where they flipped: how many earlier comparisons that are in all."""

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
    """The ledger that this comparison was compared with."""

    ledger: str
    comparisons: int
    """Earlier ones in the chain."""
    studies: int
    entries_sha256: str
    """Of all that was read from the ledger: it is an input as the recordings are."""
    before: str | None
    """The comparison before this one; null where `reason` says why drift is not known."""
    reason: NoHistory | None = None
    run_sd_percent: Number = None
    """Standard deviation of one run, which the intervals of `drift` rest on."""
    noise_source: NoiseSource = NoiseSource.NONE
    margin_percent: float
    """Smaller drifts are not reported."""
    between: list[BetweenComparisons] = Field(default_factory=list)
    repeats: RepeatedMeasurements | None = None
