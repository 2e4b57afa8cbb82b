"""Findings about a matrix of variants, and how its report begins."""

from collections.abc import Iterator

from buildcompare.findings.finding import Found
from buildcompare.results import Results
from buildcompare.results.codes import ClaimStatus, FindingKind, NoiseSource, Severity, Status
from buildcompare.results.variants import VariantsResult
from buildcompare.text.sentences import say

LARGEST = 3  # differences named where none is proven
ROBUST = 20.0  # Percent that one run may scatter by on small shared machines (`variants.ranking.PLAUSIBLE`)


def find(result: VariantsResult) -> Iterator[Found]:
    """What somebody concluded, what is proven, and where nothing is, what is largest."""
    for i, claim in enumerate(result.claims):
        wrong = claim.status in (ClaimStatus.CONTRADICTED, ClaimStatus.DISAGREES)
        evidence = {**claim.model_dump(mode="json"), "name": result.operation(claim.operation).name}
        evidence["other"] = result.choice(claim.against)
        severity = Severity.WARNING if wrong else Severity.INFO
        yield Found(FindingKind.VARIANT_CLAIM, severity, evidence, metric=claim.operation, id=f"variant_claim.{i + 1}")
    told = {(claim.operation, claim.variant, claim.against) for claim in result.claims}
    changed = [row for row in result.by_weight if row.status.changed]
    largest = [row for row in result.by_weight if (row.operation, row.variant, row.against) not in told][:LARGEST]
    for i, row in enumerate(changed if is_known(result) else largest):
        of = result.operation(row.operation)
        named = of.model_dump(mode="json", include={"name", "unit", "better", "margin_percent"})
        severity = Severity.CRITICAL if row.status == Status.REGRESSION else Severity.INFO
        evidence = {**row.model_dump(mode="json"), **named, "other": result.choice(row.against)}
        yield Found(FindingKind.VARIANT, severity, evidence, metric=row.operation, id=f"variant.{i + 1}")
    for i, term in enumerate(each for each in result.terms if each.proven and len(each.factors) > 1):
        evidence = {**term.model_dump(mode="json"), "name": result.operation(term.operation).name}
        yield Found(
            FindingKind.VARIANT_FACTOR, Severity.INFO, evidence, metric=term.operation, id=f"variant_factor.{i + 1}"
        )


def is_known(result: VariantsResult) -> bool:
    """Whether any operation that decides can be judged."""
    return any(each.noise_source != NoiseSource.NONE for each in result.operations if each.gate)


def opening(results: Results, result: VariantsResult) -> tuple[str, str]:
    """The title and the sentence that a report begins with."""
    known, rows = is_known(result), result.by_weight
    chosen = rows[0] if rows else None
    row = chosen and {**chosen.model_dump(), "name": result.operation(chosen.operation).name}
    row = row and {**row, "other": result.choice(row["against"])}
    changed = sum(each.status.changed for each in rows)
    robust = sum((each.chance_sd_percent or 0.0) >= ROBUST for each in rows)
    title = say("opening", "variants_title", results.verdict, known, row, changed, len(rows))
    return title, say("opening", "variants", known, row, robust, len(rows))
