"""Schema of a matrix of variants in results.json."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from pydantic import Field

from buildcompare.results import Results
from buildcompare.results.base import KindResult, Model, Number
from buildcompare.results.codes import Better, NoiseSource, Status

ClaimStatus = StrEnum("ClaimStatus", "HOLDS WITHIN_MARGIN LIKELY UNPROVEN DISAGREES CONTRADICTED")
ClaimStatus.__doc__ = """Agreement of the runs with a conclusion.

Within margin: a difference was claimed, but it is significantly smaller than the margin. If nothing is significant:
disagrees (the values contradict it), likely (noise unknown, but only large noise explains the values), or unproven."""
Unjudged = StrEnum("Unjudged", "SINGLE FEW CONFOUNDED")
Unjudged.__doc__ = """Why runs of variants give no estimate of their noise.

Single: no variant ran twice. Few: too few did. Confounded: no two variants share a block (machine, round)."""


def listed_levels(levels: Mapping[str, str]) -> str:
    """Levels in one line, numbers with the name of their factor: ``D4s_v3, scale 120``."""
    return ", ".join(f"{name} {level}" if level.isdecimal() else level for name, level in levels.items())


class Uncompared(NamedTuple):
    """A variant without a contrast with the baseline, for lack of runs; a missing baseline affects its whole task."""

    task: str
    variant: str
    ran: bool
    is_baseline: bool


class VariantRunResult(Model):
    """One run: the level of each operation, and other facts."""

    variant: str
    levels: dict[str, str]
    block: str | None
    values: dict[str, float]
    """Level of each operation: the mean of several requests or iterations, geometric for times."""
    facts: dict[str, float | str] = Field(default_factory=dict)
    source: str | None = None
    """File and line that hold the values of the run; null if the params file holds them."""


class OperationResult(Model):
    """A measured operation and its run-to-run noise."""

    slug: str
    name: str
    unit: str
    better: Better
    gate: bool
    margin_percent: float
    model: Literal["linear", "mixed", "none"]
    """Model of the noise: `mixed` if runs share blocks, else `linear`; `none` without an estimate (see `unjudged`)."""
    run_sd_percent: Number = None
    block_sd_percent: Number = None
    noise_source: NoiseSource = NoiseSource.NONE
    unjudged: Unjudged | None = None
    """Why the noise is unknown; null if it is known."""
    zero_in: str | None = None
    """Name of a variant with a run of 0. Such variants are compared by differences, and have no part in `effects`."""


class Unproven(Model):
    """The noise that would explain a difference by chance, and the runs that would show the difference."""

    chance_sd_percent: Number
    """The difference is significant (5 %) only if the standard deviation of one run, in percent, is smaller than this.

    Null if a run measured 0 (no ratio), and for a claim of equality.
    """
    runs_needed: dict[str, int | None]
    """Standard deviation of one run (percent) -> runs of each variant that show the difference, or confirm a claim of
    equality, with 80 % probability. Null above 99, or if no number of runs is enough."""


class ContrastResult(Unproven):
    """One variant compared with another in one operation."""

    operation: str
    variant: str
    against: str
    differs_in: list[str]
    base: float
    new: float
    delta_percent: Number
    """Change from `against` to `variant`, in percent; null from 0 to another level."""
    times_better: Number
    """Ratio of levels, above 1 if the variant is better (lower is better: `against` / `variant`); null if infinite."""
    ci_low: Number = None
    """95 % interval of `delta_percent` for this row alone."""
    ci_high: Number = None
    p_value: Number = None
    p_adjusted: Number = None
    """P-value, adjusted (Holm) over all contrasts of the gate operations."""
    status: Status
    no_worse_than_percent: Number = None
    required_runs: int | None = None
    """Runs needed per variant to show a change of the margin."""

    @property
    def most_chance(self) -> float:
        """`chance_sd_percent`; infinite if only one of the levels is 0."""
        without = math.inf if self.base != self.new else 0.0
        return without if self.chance_sd_percent is None else self.chance_sd_percent


class EffectResult(Model):
    """Effect of a level of one factor, or interaction of levels of two, averaged over the other factors."""

    operation: str
    factors: list[str]
    levels: list[str]
    bases: list[str]
    delta_percent: float
    """For two factors: their interaction, as a ratio of ratios."""
    ci_low: Number = None
    ci_high: Number = None


class TermResult(Model):
    """Test of one factor, or of the interaction of two, in one operation."""

    operation: str
    factors: list[str]
    df: int | None = None
    p_value: Number = None
    p_adjusted: Number = None
    """P-value, adjusted (Holm) over all terms of all operations."""
    proven: bool = False
    largest_percent: float
    """The largest effect of the term, in percent."""


class RankResult(Model):
    """The rank of a variant in one operation, among the variants of its task."""

    operation: str
    workload: dict[str, str]
    variant: str
    level: float
    first: int
    """Number of significantly better variants, plus one."""
    last: int
    """Number of variants that are not significantly worse."""
    runs_to_next: int | None = None
    """Runs per variant that separate it from the next (80 % probability); null if separate, above 99 or unknown."""


class ClaimResult(Unproven):
    """A conclusion stated in the params file, and its agreement with the runs."""

    says: Literal["better", "worse", "same", "not_better"]
    operation: str
    variant: str
    against: str
    text: str | None
    delta_percent: Number
    ci_low: Number = None
    ci_high: Number = None
    status: ClaimStatus


class VariantsResult(KindResult):
    """A matrix of variants, each compared with its baseline."""

    factors: dict[str, list[str]]
    baseline: dict[str, str]
    workload: list[str]
    variants: dict[str, dict[str, str]]
    """Factor levels by variant; the baseline of each task comes first."""
    operations: list[OperationResult]
    runs: list[VariantRunResult]
    contrasts: list[ContrastResult]
    terms: list[TermResult]
    effects: list[EffectResult]
    ranking: list[RankResult]
    claims: list[ClaimResult] = Field(default_factory=list)

    def tables(self) -> Mapping[str, Iterable[Mapping[str, Any]]]:
        """Rows by name of their table: `variants` holds the contrasts, and `variants_factors` the terms."""
        wide = {"levels", "values", "facts"}
        runs = ({**row.levels, **dict(row), **row.values, **row.facts} for row in self.runs)
        return {
            "variants": map(dict, self.contrasts),
            "variants_claims": map(dict, self.claims),
            "variants_factors": map(dict, self.terms),
            "variants_effects": map(dict, self.effects),
            "variants_ranking": map(dict, self.ranking),
            "variants_runs": ({name: value for name, value in row.items() if name not in wide} for row in runs),
        }

    def choice(self, variant: str) -> str:
        """The name of a variant without its task, which a row states once."""
        return variant.removesuffix(f" ({self.task(variant)})")

    def task(self, variant: str) -> str:
        """The levels of the workload of a variant."""
        return listed_levels({name: self.variants[variant][name] for name in self.workload})

    @property
    def unjudged(self) -> Unjudged | None:
        """Why no operation with a contrast can be judged; None if one can."""
        compared = {row.operation for row in self.contrasts}
        reasons = [each.unjudged for each in self.operations if each.slug in compared]
        return None if None in reasons else max(filter(None, reasons), key=list(Unjudged).index, default=None)

    def is_baseline(self, variant: str) -> bool:
        """Whether a variant is the baseline of its task."""
        return self.baseline.items() <= self.variants[variant].items()

    @property
    def beside_baseline(self) -> list[ContrastResult]:
        """The contrasts with the baseline, which decide the verdict, in the order of :meth:`by_weight`."""
        return [row for row in self.by_weight if self.is_baseline(row.against)]

    @property
    def uncompared(self) -> dict[Uncompared, list[str]]:
        """Variants without a contrast with the baseline, with the names of the gate operations concerned."""
        operations: dict[Uncompared, list[str]] = {}
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
                    operations.setdefault(each, []).append(operation.name)
        return operations

    @property
    def by_weight(self) -> list[ContrastResult]:
        """The contrasts: regressions against the baseline, improvements on the baseline, other changes, then the rest.

        Each group is sorted by the noise of one run that would explain the difference by chance, the largest first.
        """

        def place(row: ContrastResult) -> tuple[bool, bool, bool, float]:
            other = row.status.changed and not self.is_baseline(row.against)
            return not row.status.changed, other, row.status != Status.REGRESSION, -row.most_chance

        return sorted(self.contrasts, key=place)

    def most_telling(self, operation: str | None, most: int) -> list[ContrastResult]:
        """The first `most` contrasts of an operation (None: of all) in `by_weight`, in the order of `contrasts`."""
        first = [row for row in self.by_weight if operation in (None, row.operation)][:most]
        return [row for row in self.contrasts if any(row is each for each in first)]

    def operation(self, slug: str) -> OperationResult:
        """The operation of this slug."""
        return next(each for each in self.operations if each.slug == slug)


def of_results(results: Results) -> VariantsResult:
    """Return the matrix of variants in the results of a report."""
    assert isinstance(results.variants, VariantsResult)
    return results.variants
