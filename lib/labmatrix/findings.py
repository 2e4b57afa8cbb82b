"""Make the findings about a matrix of variants, and the opening of its report."""

import math
from collections.abc import Iterator

from buildcompare.findings.finding import Found
from buildcompare.results import Results
from buildcompare.results.codes import FindingKind, Severity, Status
from buildcompare.text.sentences import say
from labmatrix.results import ClaimStatus, ContrastResult, Unjudged, VariantsResult, of_results

LARGEST = 3  # Most differences in findings if none is proven
ROBUST = 20.0  # Scatter of one run on small shared machines, percent (`labmatrix.ranking.PLAUSIBLE`)


def find(result: VariantsResult) -> Iterator[Found]:
    """Find findings: claims of the params, then proven differences, or the largest ones if none is proven."""
    for i, claim in enumerate(result.claims):
        wrong = claim.status in (ClaimStatus.CONTRADICTED, ClaimStatus.DISAGREES)
        evidence = {**claim.model_dump(mode="json"), **_of(result, claim.operation, claim.ci_low)}
        evidence["other"] = result.choice(claim.against)
        severity = Severity.WARNING if wrong else Severity.INFO
        yield Found(FindingKind.VARIANT_CLAIM, severity, evidence, metric=claim.operation, id=f"variant_claim.{i + 1}")
    claimed = {(claim.operation, claim.variant, claim.against) for claim in result.claims}
    changed = [row for row in result.by_weight if row.status.changed]
    largest = [row for row in result.by_weight if (row.operation, row.variant, row.against) not in claimed][:LARGEST]
    for i, row in enumerate(changed if is_known(result) else largest):
        beside = result.is_baseline(row.against)
        severity = Severity.CRITICAL if beside and row.status == Status.REGRESSION else Severity.INFO
        evidence = {**row.model_dump(mode="json"), **_of(result, row.operation, row.p_value)}
        evidence |= {"other": result.choice(row.against), "beside_baseline": beside}
        yield Found(FindingKind.VARIANT, severity, evidence, metric=row.operation, id=f"variant.{i + 1}")
    for i, term in enumerate(each for each in result.terms if each.proven and len(each.factors) > 1):
        evidence = {**term.model_dump(mode="json"), "name": result.operation(term.operation).name}
        yield Found(
            FindingKind.VARIANT_FACTOR, Severity.INFO, evidence, metric=term.operation, id=f"variant_factor.{i + 1}"
        )


def is_known(result: VariantsResult) -> bool:
    """Test whether any deciding operation can be judged."""
    return result.unjudged is None


def _of(result: VariantsResult, slug: str, judged: float | None) -> dict[str, object]:
    """Collect the evidence of a row; without p-value despite known noise it is confounded with its block."""
    of = result.operation(slug)
    about = of.model_dump(mode="json", include={"name", "unit", "better", "margin_percent"})
    return {**about, "unjudged": None if judged is not None else of.unjudged or Unjudged.CONFOUNDED}


def opening(results: Results) -> tuple[str, str]:
    """Return the title and the first sentence of a report."""
    result = of_results(results)
    rows, beside = result.by_weight, result.beside_baseline
    first = beside[0] if beside else None
    row = first and {**first.model_dump(), "name": result.operation(first.operation).name}
    best = []
    for operation in result.operations:
        of = [each for each in beside if each.operation == operation.slug]
        most = max(of, key=_times_better, default=None)
        if most:
            best.append((operation.name, most if _times_better(most) > 1.0 else None))
    changed = sum(each.status.changed for each in rows)
    robust = sum(each.most_chance >= ROBUST for each in rows)
    title = say("opening", "variants_title", results.verdict, result.unjudged, row, changed, len(rows))
    return title, say("opening", "variants", best, result.unjudged, robust, len(rows), result.uncompared)


def _times_better(row: ContrastResult) -> float:
    return math.inf if row.times_better is None else row.times_better
