"""Schema of a comparison's history: setup differences, drift, and noise estimated from the ledger."""

from pydantic import Field

from buildcompare.results.base import Model, Number
from buildcompare.results.codes import DriftKind, NoHistory, NoiseSource, Pair, SetupChange, Side, TestType


class SetupDifference(Model):
    """A setting that differs from the earlier comparison `against`; plain text."""

    setting: str
    against: str
    before: str | None
    now: str | None
    kind: SetupChange


class DatabaseOrder(Model):
    """An earlier comparison with the databases in the same order: their differences in percent."""

    comparison: str
    base: Number = None
    new: Number = None


class Drift(Model):
    """One level (supported users) beside a reference that it should equal."""

    kind: DriftKind
    comparison: str
    against: str
    """The earlier comparison; the other database for `between_databases`."""
    test: str
    type: TestType
    db_engine: str | None
    side: Side
    label: str
    """The judged build; its reference is `against_label`."""
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
    """Whether both builds have the same major and minor version; otherwise the difference is more than drift."""
    z: Number = None
    """The log ratio, divided by the standard deviation of one version between comparisons (`history.between`)."""
    jump: bool = False
    setup_changed: list[str] = Field(default_factory=list)
    """Settings that changed since; empty if none is recorded."""
    flipped: bool = False
    """Whether the order of the databases differs from the previous comparison."""
    earlier: list[DatabaseOrder] = Field(default_factory=list)
    """If the order flipped: the latest earlier comparisons with the new order."""
    earlier_comparisons: int = 0
    """If flipped: the number of earlier comparisons with the present order."""

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval excludes no change."""
        return (self.ci_low or 0.0) > 0 or (self.ci_high or 0.0) < 0


class BetweenComparisons(Model):
    """Robust standard deviation of one version between consecutive comparisons of a test; null with few pairs."""

    type: TestType
    db_engine: str | None
    sd_percent: Number
    links: int


class RepeatedMeasurements(Model):
    """Run-to-run standard deviation of one run, from repeated builds of one setup in the ledger."""

    sd_percent: float
    ci_low: float
    ci_high: float
    df: int


class BumpsChanged(Model):
    """Early bumps that both builds of a test have here and neither had in an earlier comparison, or the reverse."""

    test: str
    against: str
    """The earlier comparison."""
    before: Pair[int]
    now: Pair[int]
    setup_changed: list[str] = Field(default_factory=list)


class HistoryResult(Model):
    """The ledger of earlier comparisons."""

    ledger: str
    comparisons: int
    """Earlier comparisons in the chain."""
    studies: int
    entries_sha256: str
    """SHA-256 of everything read from the ledger, which is an input like the recordings."""
    before: str | None
    """The previous comparison; null if `reason` says why there is no drift."""
    reason: NoHistory | None = None
    run_sd_percent: Number = None
    """Standard deviation of one run in the intervals of `drift`."""
    noise_source: NoiseSource = NoiseSource.NONE
    margin_percent: float
    """Smaller drifts are not reported."""
    between: list[BetweenComparisons] = Field(default_factory=list)
    repeats: RepeatedMeasurements | None = None
    bumps: list[BumpsChanged] = Field(default_factory=list)
