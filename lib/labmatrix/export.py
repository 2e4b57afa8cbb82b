"""Export a matrix of variants as time series."""

import math
from collections.abc import Iterator, Mapping
from statistics import fmean, geometric_mean

from buildcompare.config.kinds import Sample
from buildcompare.results import Results, Tested
from labmatrix.results import of_results
from loadexport.export import UNITS, of_change


def samples(results: Results, labels: Mapping[str, str]) -> Iterator[Sample]:
    """The level of each variant, and its change beside the baseline."""
    matrix = of_results(results)
    modelled = {(row.operation, row.variant): row.level for row in matrix.ranking}
    for operation in matrix.operations:
        unit, factor = UNITS.get(operation.unit, ("value", 1.0))
        of = {**labels, "operation": operation.slug}
        for variant in matrix.variants:
            of_variant = (run.values for run in matrix.runs if run.variant == variant)
            runs = [values[operation.slug] for values in of_variant if operation.slug in values]
            alone = fmean(runs) if 0 in runs else geometric_mean(runs) if runs else math.nan
            level = modelled.get((operation.slug, variant), alone)
            named = {**of, "variant": variant} | ({"unit": operation.unit} if unit == "value" else {})
            yield f"variant_{unit}", named, level * factor
        for row in matrix.beside_baseline:
            if row.operation == operation.slug:
                change = Tested(**row.model_dump(include={*Tested.model_fields}))
                yield from of_change("variant", {**of, "variant": row.variant}, change)
