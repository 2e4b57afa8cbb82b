"""Schema of a comparison's history: setup differences, drift, and noise estimated from the ledger."""

from pydantic import Field

from buildcompare.results.base import Model, Number
from buildcompare.results.codes import DriftKind, NoHistory, NoiseSource, Pair, SetupChange, Side, TestType


class SetupDifference(Model):
    """A setting that differs between this comparison and the earlier one, `against`; values are plain text."""

    setting: str
    against: str
    before: str | None
    now: str | None
    kind: SetupChange


class DatabaseOrder(Model):
    """Earlier difference of two databases in supported users, in percent; null if unknown or now of opposite sign."""

    comparison: str
    base: Number = None
    new: Number = None


class Drift(Model):
    """Supported users of one build in one test, compared with another comparison, build or database (see `kind`)."""

    kind: DriftKind
    comparison: str
    against: str
    """Name of the earlier comparison; for the kind `between_databases`, name of the reference database."""
    test: str
    type: TestType
    db_engine: str | None
    side: Side
    label: str
    """Name of the judged build; `against_label` is the name of the build that it is compared with."""
    against_label: str
    before: Number
    value: Number
    delta_percent: Number
    ci_low: Number
    """Low end of the 95 % interval of `delta_percent`; it covers only run-to-run noise on one setup."""
    ci_high: Number
    p_value: Number
    noise_source: NoiseSource
    same_version: bool
    """Whether `label` and `against_label` have the same major and minor version; if not, this may explain the drift."""
    z: Number = None
    """Z-score of log(`value` / `before`); null unless `kind` is `same_version`, versions agree, and 5 drifts exist."""
    jump: bool = False
    setup_changed: list[str] = Field(default_factory=list)
    """Settings that changed since the earlier comparison; empty if no change is recorded."""
    flipped: bool = False
    """True if the order of databases by supported users is opposite to the last known one of an earlier new build."""
    earlier: list[DatabaseOrder] = Field(default_factory=list)
    """If `flipped`: latest earlier comparisons (at most 20) in which the database that leads now was also ahead."""
    earlier_comparisons: int = 0
    """If `flipped`: number of all earlier comparisons in which the database that leads now was also ahead."""

    @property
    def beyond_chance(self) -> bool:
        """Whether the 95 % interval of `delta_percent` excludes zero."""
        return (self.ci_low or 0.0) > 0 or (self.ci_high or 0.0) < 0


class BetweenComparisons(Model):
    """Robust SD of `links` drifts of supported users between two measurements of a version; null if `links` < 5."""

    type: TestType
    db_engine: str | None
    sd_percent: Number
    links: int


class RepeatedMeasurements(Model):
    """Standard deviation of a single run, from builds that were measured repeatedly on one setup in the ledger."""

    sd_percent: float
    ci_low: float
    ci_high: float
    df: int


class BumpsChanged(Model):
    """A test in which early bumps (rises that fall back) appeared or vanished in both builds since `against`."""

    test: str
    against: str
    """Name of the earlier comparison."""
    before: Pair[int]
    now: Pair[int]
    setup_changed: list[str] = Field(default_factory=list)


class HistoryResult(Model):
    """The ledger of earlier comparisons, and what it shows about noise and short rises of the load before the ramp."""

    ledger: str
    comparisons: int
    """Number of earlier comparisons of the ledger kind `monthly` that were used."""
    studies: int
    entries_sha256: str
    """SHA-256 of the ledger entries that were used; the entries are inputs of the comparison."""
    before: str | None
    """Name of the previous comparison; null if there is none to compare with (see `reason`)."""
    reason: NoHistory | None = None
    run_sd_percent: Number = None
    """Standard deviation between runs, in percent, for the intervals of `drift`; null if there is a `reason`."""
    noise_source: NoiseSource = NoiseSource.NONE
    margin_percent: float
    """Smallest drift, in percent, that is reported as a finding."""
    between: list[BetweenComparisons] = Field(default_factory=list)
    repeats: RepeatedMeasurements | None = None
    bumps: list[BumpsChanged] = Field(default_factory=list)
