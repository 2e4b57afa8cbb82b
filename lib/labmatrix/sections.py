"""Make the sections of a matrix of variants as fragments of HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from buildcompare.config.kinds import Section
from buildcompare.findings import above_the_fold
from buildcompare.findings.verdict import opening
from buildcompare.report.sections import Fragment, Part, action_items, comments, fragment, provenance, setup
from labmatrix import figures
from labmatrix.analysis import Matrix
from labmatrix.findings import is_known

OPEN_CHARTS, MOST_TERMS = 2, 12
"""Most unfolded charts, and most unfolded rows of factors, on a page."""


def matrix_title(matrix: Matrix) -> Fragment:
    """Show the title and the compared variants."""
    return fragment("variants_title", results=matrix.results, result=matrix.result, title=matrix.params.title)


def matrix_verdict(matrix: Matrix) -> Fragment:
    """Show the verdict with its rule, conclusions from elsewhere, and the findings."""
    top, rest = above_the_fold(matrix.results.findings)
    return fragment("variants_verdict", results=matrix.results, opening=opening(matrix.results), top=top, rest=rest)


def matrix_contrasts(matrix: Matrix) -> Iterator[Part]:
    """Show each variant beside its reference, over all operations, then operation by operation.

    Charts of operations with changes are open, or else the first; at most `OPEN_CHARTS`.
    """
    result = matrix.result
    rows = {each.slug: [row for row in result.contrasts if row.operation == each.slug] for each in result.operations}
    drawn = {each.slug: figure for each in result.operations if (figure := figures.contrasts(result, each))}
    changed = [slug for slug in drawn if any(row.status.changed for row in rows[slug])]
    shown = (changed or [*drawn])[: OPEN_CHARTS if changed else 1]
    yield from (drawn[slug] for slug in shown)
    small = [figures.heat_map(result), *(figure for slug, figure in drawn.items() if slug not in shown)]
    yield from (replace(figure, shown=False) for figure in small if figure)
    for operation in result.operations:
        if of := rows[operation.slug]:
            yield fragment("variants_contrasts", result=result, operation=operation, rows=of)


def matrix_factors(matrix: Matrix) -> Iterator[Part]:
    """Show the effect of each factor and interactions of two; pictures of proven interactions are open."""
    result = matrix.result
    proven = [term for term in result.terms if term.proven]
    shown = proven or [term for term in result.terms if len(term.factors) == 1]
    yield fragment("variants_factors", result=result, shown=shown[:MOST_TERMS])
    acting = [(term.operation, *term.factors) for term in proven]
    drawn = [
        (replace(figure, shown=False), (operation.slug, *pair) in acting)
        for operation in result.operations
        for pair, figure in figures.interactions(result, operation)
    ]
    first = [figure for figure, acts in drawn if acts][:OPEN_CHARTS]
    yield from (replace(figure, shown=True) for figure in first)
    yield from (figure for figure, _ in drawn if figure not in first)


def matrix_ranking(matrix: Matrix) -> Fragment:
    """Show the ranking of the variants, with ties of variants that the runs cannot separate."""
    result = matrix.result
    ranked = result.ranking if is_known(result) else []
    groups = [
        (result.operation(slug), task, [*rows])
        for (slug, task), rows in groupby(ranked, key=lambda row: (row.operation, row.workload))
    ]
    return fragment("variants_ranking", result=result, groups=groups)


def matrix_runs(matrix: Matrix) -> Fragment:
    """Show every run with its numbers."""
    every = matrix.result.runs
    facts = list(dict.fromkeys(name for run in every for name in run.facts))
    blocks, sources = any(run.block for run in every), any(run.source for run in every)
    return fragment("variants_runs", result=matrix.result, blocks=blocks, sources=sources, facts=facts)


SECTIONS: Mapping[str, Section] = {
    "title": Section("", matrix_title),
    "verdict": Section("Verdict", matrix_verdict),
    "comments": Section("Comments", comments),
    "action_items": Section("", action_items),
    "variants": Section("Variants", matrix_contrasts),
    "factors": Section("Factors", matrix_factors),
    "ranking": Section("Ranking", matrix_ranking),
    "setup": Section("Setup", setup),
    "runs": Section("Runs", matrix_runs),
    "provenance": Section("Provenance", provenance),
}
"""Sections of a matrix of variants by name, in the order of the page and its notebook."""
