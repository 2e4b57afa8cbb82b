"""Did the level move between comparisons? The same version, measured again in the next one, should stand where it was.

Each comparison measures the version that the one before called new once more, as its base. A difference between the
two is no change of the build: it is the run-to-run noise, and whatever else changed between two batches of tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from buildcompare.results.codes import NoiseSource
from buildcompare.stats.effects import Effect
from buildcompare.stats.noise import Noise

MAD_TO_SD = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution (Rousseeuw & Croux 1993, JASA 88)."""


@dataclass(frozen=True)
class Levels:
    """What one comparison measured in one test: supported users (or another positive level) of both builds.

    Attributes
    ----------
    base_minor, new_minor
        Major and minor version; None where unknown, which is never the same as another.
    base, new
        Mean over the runs of each build; None where there is none.
    """

    comparison: str
    base_minor: str | None
    new_minor: str | None
    base: float | None
    new: float | None
    base_runs: int = 1
    new_runs: int = 1


@dataclass(frozen=True)
class Change:
    """One level against another.

    Attributes
    ----------
    against, value
        The earlier (or the other) level, and the one that is judged by it.
    percent, low, high
        Change and its 95 % interval in percent, as two batches of runs of one build on one setup would differ.
    """

    against: float
    value: float
    percent: float
    low: float
    high: float
    p_value: float
    noise_source: NoiseSource

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval excludes no change."""
        return self.low > 0 or self.high < 0

    @property
    def log_ratio(self) -> float:
        """Logarithm of the value over what it stands against."""
        return math.log(self.value / self.against)


@dataclass(frozen=True)
class MeasureChange:
    """The ratio of two levels with the interval that the noise of single runs gives."""

    noise: Noise

    def __call__(self, against: float | None, value: float | None, runs: tuple[int, int] = (1, 1)) -> Change | None:
        """Compare two levels, means over `runs` runs each; None where one is missing or not positive."""
        if against is None or value is None or not (0 < against < math.inf and 0 < value < math.inf):
            return None
        sd = self.noise.sd * math.sqrt(1 / runs[0] + 1 / runs[1])
        effect = Effect(math.log(value / against), sd, self.noise.df, self.noise.sd, self.noise.noise_source)
        low, high = effect.interval()
        return Change(against, value, effect.delta_percent, low, high, effect.p_value, self.noise.noise_source)

    def interval(self, level: float, runs: int = 1) -> tuple[float, float]:
        """The 95 % interval of one positive level, a mean over `runs` runs."""
        sd = self.noise.sd / math.sqrt(runs)
        low, high = Effect(0.0, sd, self.noise.df, self.noise.sd, self.noise.noise_source).interval()
        return level * (1.0 + low / 100.0), level * (1.0 + high / 100.0)


@dataclass(frozen=True)
class Link:
    """One comparison beside an earlier one, in one test.

    Attributes
    ----------
    before
        The one before it; or the last that measured this base's version as its new, where the one before did not.
    same_version
        Whether this base and the previous new are of the same major and minor version: else `level` is no drift.
    level
        This base against the previous new.
    new
        This new against the previous new.
    z
        `level` in standard deviations of the other links (modified z-score); None where they are too few.
    jump
        Whether that is an outlier.
    """

    comparison: str
    before: str
    same_version: bool
    level: Change | None
    new: Change | None
    z: float | None = None
    jump: bool = False


@dataclass(frozen=True)
class Drift:
    """The links of a chain, and how far the same version lies apart in two comparisons.

    Attributes
    ----------
    between_sd
        Standard deviation of the log ratio of the same version (same major.minor, often not the same patch) in two
        consecutive comparisons: the noise of two runs, and all that differs between two batches of tests. Robust, so
        jumps hardly count. None with too few links.
    same_version_links
        How many ratios it was learned from.
    """

    links: Sequence[Link]
    between_sd: float | None
    same_version_links: int

    @property
    def jumps(self) -> list[Link]:
        """The links at which the level jumped."""
        return [link for link in self.links if link.jump]


@dataclass(frozen=True)
class MeasureDrift:
    """Chain one test's comparisons and mark the links whose level jumped.

    A link is a jump where its modified z-score exceeds 3.5 (Iglewicz & Hoaglin 1993, "How to detect and handle
    outliers", ASQC): the drift of the same version over 1.4826 times the median absolute drift. The center is zero,
    where the same version belongs. That spread is never taken for less than the noise of two single runs. Of drawn
    chains without a jump 4 to 6 % have one by this rule, whether they have 5 links or 33 (tests/test_drift.py).
    """

    measure: MeasureChange
    outlier: float = 3.5
    least_links: int = 5
    """With fewer same-version links their median says nothing."""

    def __call__(self, chain: Sequence[Levels]) -> Drift:
        """Link `chain` (in its order); a comparison without figures is skipped, and the next looks further back.

        So does one whose base is of another version than the last new: a comparison that was recorded late, or of an
        older line of releases, does not break the chain of the others.
        """
        known = [each for each in chain if each.base is not None or each.new is not None]
        links = [self._link(_before(known[:i], known[i]), known[i]) for i in range(1, len(known))]
        drifts = np.array([abs(link.level.log_ratio) for link in links if link.same_version and link.level])
        if drifts.size < self.least_links:
            return Drift(links, None, drifts.size)
        sd = max(MAD_TO_SD * float(np.median(drifts)), math.sqrt(2.0) * self.measure.noise.sd)
        return Drift([self._scored(link, sd) for link in links], sd, drifts.size)

    def _link(self, before: Levels, each: Levels) -> Link:
        same = each.base_minor is not None and each.base_minor == before.new_minor
        level = self.measure(before.new, each.base, (before.new_runs, each.base_runs))
        new = self.measure(before.new, each.new, (before.new_runs, each.new_runs))
        return Link(each.comparison, before.comparison, same, level, new)

    def _scored(self, link: Link, sd: float) -> Link:
        if link.level is None or not link.same_version:
            return link
        z = link.level.log_ratio / sd
        return Link(link.comparison, link.before, True, link.level, link.new, z, abs(z) > self.outlier)


def _before(earlier: Sequence[Levels], each: Levels) -> Levels:
    """The last of `earlier` whose new is of the version of `each`'s base; else the last."""
    alike = (other for other in reversed(earlier) if other.new_minor == each.base_minor and other.new is not None)
    return earlier[-1] if each.base_minor is None else next(alike, earlier[-1])


@dataclass(frozen=True)
class Repeats:
    """Run-to-run standard deviation (log scale) from repeated measurements, and its interval."""

    sd: float
    df: int
    low: float
    high: float


@dataclass(frozen=True)
class MeasureRepeats:
    """Pool what repetitions of the same build on the same setup say: the variance within groups."""

    alpha: float = field(default=0.05)

    def __call__(self, groups: Sequence[Sequence[float]]) -> Repeats | None:
        """Pool groups of positive levels; None where no group has two. The interval is the chi-squared one."""
        logs = [np.log(np.asarray(group, dtype=np.float64)) for group in groups if len(group) > 1]
        df = sum(log.size - 1 for log in logs)
        if df == 0:
            return None
        squares = math.fsum(float(((log - log.mean()) ** 2).sum()) for log in logs)
        low, high = (squares / float(stats.chi2.ppf(p, df)) for p in (1 - self.alpha / 2, self.alpha / 2))
        return Repeats(math.sqrt(squares / df), int(df), math.sqrt(low), math.sqrt(high))
