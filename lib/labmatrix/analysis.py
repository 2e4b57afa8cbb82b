"""A whole matrix of variants: parameters in, runs read and compared, findings drawn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from buildcompare import results as schema
from buildcompare.comparison import artefacts
from buildcompare.comparison.provenance import provenance
from buildcompare.comparison.reading import parameters_of
from buildcompare.config.errors import InputError, plural
from buildcompare.findings import gravest_first
from buildcompare.findings.finding import finding
from buildcompare.results.base import Label
from buildcompare.results.codes import Pair
from buildcompare.text.sentences import Names, say
from labmatrix import findings
from labmatrix.compare import catalogue_of, compare_cells, read_runs, verdict_of
from labmatrix.params import Variants, check_variants, read_variants
from labmatrix.results import VariantsResult, of_results

BUNDLED = "params/azbench.yaml"
"""The matrix of a notebook without parameters."""


@dataclass(frozen=True)
class Matrix:
    """A matrix that was read and compared."""

    params: Variants
    results: schema.Results
    published: bool = False
    """Whether a command runs the notebook, and publishes the report itself."""

    @property
    def result(self) -> VariantsResult:
        """The matrix in the results."""
        return of_results(self.results)


def variants_parameters(params_file: str | None = None, **given: Any) -> Variants:
    """The checked parameters of a notebook of variants, as papermill fills them in or as a file holds them.

    Parameters
    ----------
    params_file
        A params file; without it and without keys the file is read that the environment variable ``PARAMS`` names, or
        else a bundled one.
    **given
        The keys of a params file (docs/variants.md); None: not given.

    Returns
    -------
    Variants
        What to compare.

    Raises
    ------
    InputError
        With file, key, what was expected and what was found.

    Examples
    --------
    >>> variants_parameters("params/azbench.yaml").baseline
    {'disk': 'managed', 'scheduler': 'none'}
    """
    return parameters_of(params_file or os.environ.get("PARAMS") or BUNDLED, given, read_variants, check_variants)


def analyse_matrix(params: Variants, *, command: str | None = None) -> Matrix:
    """Compare every variant and draw the findings; `command` makes the report again."""
    catalogue = catalogue_of(params)
    runs = read_runs(params, catalogue)
    result = compare_cells(params, runs, catalogue)
    if not any(each.gate for each in result.operations):
        expected = "one with two variants or more and `better: higher` or `lower`, without `gate: false`"
        raise InputError(file=None, key="operations", expected=expected, found="none")
    if not result.contrasts:
        expected = "two variants of one task that differ in one factor, or of which one is the baseline"
        raise InputError(file=None, key="runs", expected=expected, found="none that were measured in one operation")
    count = sum(not result.is_baseline(variant) for variant in result.variants)
    labels = (", ".join(params.baseline.values()), plural(count, "variant"))
    names = Names(Pair(*labels), {})
    results = schema.Results(
        comparison=params.name or "",
        base=Label(label=labels[0]),
        new=Label(label=labels[1]),
        simulated=False,
        verdict=verdict_of(result),
        verdict_rule=say("reasons", "variants_rule"),
        setup=[schema.SetupRow(setting=setting, value=value) for setting, value in params.setup.items()],
        comments=params.comments,
        action_items=params.action_items,
        action_items_title=params.action_items_title,
        grafana=[],
        tests=[],
        variants=result,
        findings=gravest_first([finding(each, names) for each in findings.find(result)]),
        provenance=provenance(params, params.metrics or "operations", [], command, artefacts.of_runs(params)),
    )
    return Matrix(params, results, command is not None)
