"""Compare variants, inspect the result, publish it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pandas as pd

from buildcompare.api import Shown, cut
from buildcompare.findings.verdict import opening
from buildcompare.results.codes import Verdict
from labmatrix.analysis import Matrix, analyse_matrix
from labmatrix.params import Variants


def compare_variants(variants: Variants, *, command: str | None = None) -> VariantsReport:
    """Compare the variants of a matrix with their baseline.

    Parameters
    ----------
    variants
        The matrix, from :func:`read_variants` or :func:`variants_parameters`.
    command
        The command that reproduces the report, for its provenance.

    Returns
    -------
    VariantsReport
        Contrasts, effects of factors, ranks and findings.

    Raises
    ------
    InputError
        Where a run cannot be read, or nothing can be compared.

    Examples
    --------
    >>> report = compare_variants(read_variants("params/ceilometer-schemas.yaml"))
    >>> rows = report.contrasts.query("operation == 'resource-list' and variant == 'Normalise + index'")
    >>> rows[["against", "times_better"]].round(2).values.tolist()[0]
    ['Master', 4.5]
    """
    made = analyse_matrix(variants, command=command)
    return VariantsReport(**vars(made))


@dataclass(frozen=True, repr=False)
class VariantsReport(Shown, Matrix):
    """The result for a matrix of variants: tables as DataFrames, figures, and the report."""

    @property
    def verdict(self) -> Verdict:
        """Regression where a variant is surely worse than the baseline."""
        return self.results.verdict

    @functools.cached_property
    def contrasts(self) -> pd.DataFrame:
        """One row for each variant beside another, in each operation."""
        return pd.DataFrame([row.model_dump() for row in self.result.contrasts])

    @functools.cached_property
    def effects(self) -> pd.DataFrame:
        """One row for each level of a factor, and for each pair of levels of two factors."""
        return pd.DataFrame([row.model_dump() for row in self.result.effects])

    @functools.cached_property
    def ranking(self) -> pd.DataFrame:
        """One row for each variant in each operation: its level and the places that it may have."""
        return pd.DataFrame([row.model_dump() for row in self.result.ranking])

    @functools.cached_property
    def findings(self) -> pd.DataFrame:
        """The findings, the most severe first, each with its evidence."""
        return pd.DataFrame([row.model_dump() for row in self.results.findings])

    def __repr__(self) -> str:
        lines = [f"<buildcompare.VariantsReport: {len(self.result.variants)} variants>", opening(self.results).title]
        return "\n".join([*lines, *(f"  {each.severity}: {cut(each.text)}" for each in self.results.findings[:5])])
