"""Schema of what is kept of a matrix of variants."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import Field

from buildcompare.results.base import Model, Number
from buildcompare.results.codes import Better, ClaimStatus, NoiseSource, Status, Unjudged


def listed_levels(levels: Mapping[str, str]) -> str:
    """Levels by their own names, numbers with their factor's: ``D4s_v3, scale 120``."""
    return ", ".join(f"{name} {level}" if level.isdecimal() else level for name, level in levels.items())


class Uncompared(NamedTuple):
    """A variant that lacks what a row beside the baseline needs; the baseline itself leaves its whole task without."""

    task: str
    variant: str
    ran: bool
    is_baseline: bool


class VariantRunResult(Model):
    """One run with its numbers: the level of each operation, and further facts."""

    variant: str
    levels: dict[str, str]
    block: str | None
    values: dict[str, float]
    """By operation; of several requests or iterations their mean, of times the geometric one."""
    facts: dict[str, float | str] = Field(default_factory=dict)
    source: str | None = None
    """File and line that it was read from; null where the params hold it."""


class OperationResult(Model):
    """What was measured, and the noise between runs that it is judged by."""

    slug: str
    name: str
    unit: str
    better: Better
    gate: bool
    margin_percent: float
    model: Literal["linear", "mixed", "none"]
    """`mixed`: runs share blocks; `none`: no run was repeated and nobody stated the noise."""
    run_sd_percent: Number = None
    block_sd_percent: Number = None
    noise_source: NoiseSource = NoiseSource.NONE
    unjudged: Unjudged | None = None
    """Why the noise is not known; null where it is."""
    zero_in: str | None = None
    """A variant of which a run measured 0: it has no ratio, is judged by the difference, and no factor counts it."""


class Unproven(Model):
    """What a difference of single runs rests on."""

    chance_sd_percent: Number
    """Chance is excluded (at 5 %) only if one run scatters by less than this (one standard deviation).

    Null where a run measured 0, which leaves no ratio.
    """
    runs_needed: dict[str, int | None]
    """By the scatter of one run in percent, the runs of each variant that would show it in four of five cases; null
    beyond 99."""


class ContrastResult(Unproven):
    """One variant beside another in one operation."""

    operation: str
    variant: str
    against: str
    differs_in: list[str]
    base: float
    new: float
    delta_percent: Number
    """Null where the other's level is 0 and its own is not."""
    times_better: Number
    """How many times better the variant is: of times, the other's over its own. Null: beyond all bounds."""
    ci_low: Number = None
    """95 % interval of `delta_percent`, of this row alone."""
    ci_high: Number = None
    p_value: Number = None
    p_adjusted: Number = None
    """Holm's over all contrasts of the operations that decide, or over those of the others."""
    status: Status
    no_worse_than_percent: Number = None
    required_runs: int | None = None
    """Of each variant, to show a change of the margin's size."""

    @property
    def most_chance(self) -> float:
        """`chance_sd_percent`; beyond all bounds where one of two different levels is 0."""
        without = math.inf if self.base != self.new else 0.0
        return without if self.chance_sd_percent is None else self.chance_sd_percent


class EffectResult(Model):
    """What a level of a factor does, or of two together, as the mean over all else that was run."""

    operation: str
    factors: list[str]
    levels: list[str]
    bases: list[str]
    delta_percent: float
    """Of two factors: how much more the two levels do together than each alone (a ratio of ratios)."""
    ci_low: Number = None
    ci_high: Number = None


class TermResult(Model):
    """One factor, or two together, in one operation: whether any of its levels does anything."""

    operation: str
    factors: list[str]
    df: int | None = None
    p_value: Number = None
    p_adjusted: Number = None
    """Holm's over all terms of all operations."""
    proven: bool = False
    largest_percent: float
    """Of its effects, the largest."""


class RankResult(Model):
    """The place of a variant in one operation, among those with the same task."""

    operation: str
    workload: dict[str, str]
    variant: str
    level: float
    first: int
    """Variants that are surely better, plus one."""
    last: int
    """All variants, less those that are surely worse."""
    runs_to_next: int | None = None
    """Of each, to tell it from the next in the list in four of five cases; null where it is told, or beyond 99."""


class ClaimResult(Unproven):
    """What somebody concluded, beside what the runs say."""

    says: Literal["better", "worse", "same", "not_better"]
    operation: str
    variant: str
    against: str
    text: str | None
    delta_percent: Number
    ci_low: Number = None
    ci_high: Number = None
    status: ClaimStatus


class VariantsResult(Model):
    """A matrix of variants, each beside its baseline."""

    factors: dict[str, list[str]]
    baseline: dict[str, str]
    workload: list[str]
    variants: dict[str, dict[str, str]]
    """By name, the levels of each; the baseline's first."""
    operations: list[OperationResult]
    runs: list[VariantRunResult]
    contrasts: list[ContrastResult]
    terms: list[TermResult]
    effects: list[EffectResult]
    ranking: list[RankResult]
    claims: list[ClaimResult] = Field(default_factory=list)

    def choice(self, variant: str) -> str:
        """A variant without its task, which a row says once."""
        return variant.removesuffix(f" ({self.task(variant)})")

    def task(self, variant: str) -> str:
        """The levels of the workload of a variant."""
        return listed_levels({name: self.variants[variant][name] for name in self.workload})

    @property
    def unjudged(self) -> Unjudged | None:
        """Why no operation that decides can be judged; None where one can."""
        there = {row.operation for row in self.contrasts}
        why = [each.unjudged for each in self.operations if each.slug in there]
        return None if None in why else max(filter(None, why), key=list(Unjudged).index, default=None)

    def is_baseline(self, variant: str) -> bool:
        """Whether a variant is the baseline of its task."""
        return self.baseline.items() <= self.variants[variant].items()

    @property
    def beside_baseline(self) -> list[ContrastResult]:
        """The contrasts with the baseline, by weight: the verdict rests on them."""
        return [row for row in self.by_weight if self.is_baseline(row.against)]

    @property
    def uncompared(self) -> dict[Uncompared, list[str]]:
        """What no row beside the baseline holds, with the names of the operations that decide."""
        found: dict[Uncompared, list[str]] = {}
        for operation in (each for each in self.operations if each.gate):
            there = {run.variant for run in self.runs if operation.slug in run.values}
            for task in dict.fromkeys(self.task(name) for name in self.variants if name in there):
                variants = [name for name in self.variants if self.task(name) == task]
                base = next((name for name in variants if self.is_baseline(name)), None)
                if base is None:
                    lacking = [Uncompared(task, listed_levels(self.baseline), ran=False, is_baseline=True)]
                elif base not in there:
                    lacking = [Uncompared(task, self.choice(base), ran=True, is_baseline=True)]
                else:
                    without = [self.choice(name) for name in variants if name not in there]
                    lacking = [Uncompared(task, name, ran=True, is_baseline=False) for name in without]
                for each in lacking:
                    found.setdefault(each, []).append(operation.name)
        return found

    @property
    def by_weight(self) -> list[ContrastResult]:
        """The contrasts: what changed beside the baseline first, of that what is worse, then other changes.

        The rest follows by how hard it is to explain by chance.
        """

        def place(row: ContrastResult) -> tuple[bool, bool, bool, float]:
            other = row.status.changed and not self.is_baseline(row.against)
            return not row.status.changed, other, row.status != Status.REGRESSION, -row.most_chance

        return sorted(self.contrasts, key=place)

    def most_telling(self, operation: str | None, most: int) -> list[ContrastResult]:
        """At most so many rows of an operation (None: of all) in their order, those of most weight."""
        first = [row for row in self.by_weight if operation in (None, row.operation)][:most]
        return [row for row in self.contrasts if any(row is each for each in first)]

    def operation(self, slug: str) -> OperationResult:
        """The operation of this slug."""
        return next(each for each in self.operations if each.slug == slug)
