"""What is kept of earlier comparisons beside this one?"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from buildcompare.results.base import Model, Number, Side
from buildcompare.results.codes import NoiseSource


class SetupDifference(Model):
    """A setting that is not what it was in an earlier comparison; its texts are plain."""

    setting: str
    against: str
    """The earlier comparison."""
    before: str | None
    now: str | None
    kind: Literal["changed", "not_recorded"]
    """`not_recorded`: one of the two comparisons does not say, so nobody can tell."""


class DatabaseOrder(Model):
    """An earlier comparison in which the databases stood in the same order: changes in percent where they did."""

    comparison: str
    base: Number = None
    new: Number = None


class Drift(Model):
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
    noise_source: NoiseSource
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


class BetweenComparisons(Model):
    """How far the same version lies apart in two consecutive comparisons, in one test."""

    type: Literal["bounded", "unbounded"]
    db_engine: str | None
    sd_percent: Number
    """Robust standard deviation of the ratio; null with too few links."""
    links: int


class RepeatedMeasurements(Model):
    """Run-to-run standard deviation of one run from builds that the ledger holds more than once on one setup."""

    sd_percent: float
    ci_low: float
    ci_high: float
    df: int


class HistoryResult(Model):
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
    noise_source: NoiseSource = NoiseSource.NONE
    margin_percent: float
    """A smaller drift is not worth a sentence."""
    between: list[BetweenComparisons] = Field(default_factory=list)
    repeats: RepeatedMeasurements | None = None
