"""Register variants as a kind of params files (entry point ``buildcompare.kinds``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from buildcompare.config.kinds import Kind, Sample, Section
from labmatrix.compare import catalogue_of, read_runs
from labmatrix.findings import opening
from labmatrix.params import Variants, holds_variants, read_variants
from labmatrix.results import VariantsResult

if TYPE_CHECKING:
    from buildcompare.results import Results


def _check(params: Variants) -> None:
    read_runs(params, catalogue_of(params))


def _files(params: Variants) -> list[str | None]:
    return [run.pgbench for run in params.runs]


def _sections() -> Mapping[str, Section]:
    from labmatrix.sections import SECTIONS  # late: it takes time to import

    return SECTIONS


def _samples(results: Results, labels: Mapping[str, str]) -> Iterator[Sample]:
    from labmatrix.export import samples  # late, as above

    return samples(results, labels)


_HELP = {
    "variant_seconds": "Level of a variant in an operation that is a time.",
    "variant_bytes": "Level of a variant in an operation in bytes.",
    "variant_ratio": "Level of a variant in an operation that is a part of a whole.",
    "variant_value": "Level of a variant in the unit that the label names.",
    "variant_change_ratio": "Change from the baseline of the same task to the variant, 0.1 for 10 % more.",
    "variant_change_low_ratio": "Lower end of the 95 % interval of the change.",
    "variant_change_high_ratio": "Upper end of the 95 % interval of the change.",
    "variant_status": "1 for the status of the variant beside the baseline, 0 for the others.",
}
VARIANTS = Kind(
    name="variants",
    folder=Path(__file__).parent,
    notebook="variants.ipynb",
    markdown="variants.md",
    table="variants_table.md.j2",
    junit="variants.xml.j2",
    model=Variants,
    result=VariantsResult,
    holds=holds_variants,
    read=read_variants,
    check=_check,
    files=_files,
    opening=opening,
    sections=_sections,
    samples=_samples,
    help=_HELP,
)
