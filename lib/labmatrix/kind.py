"""Register variants as a kind of params files (entry point ``buildcompare.kinds``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from buildcompare.config.kinds import Kind
from labmatrix.findings import opening
from labmatrix.params import Variants, holds_variants, read_variants

if TYPE_CHECKING:
    from buildcompare.report.sections import Section


def _check(params: Variants) -> None:
    from labmatrix.compare import catalogue_of, read_runs  # late: it takes time to import

    read_runs(params, catalogue_of(params))


def _files(params: Variants) -> list[str | None]:
    return [run.pgbench for run in params.runs]


def _sections() -> Mapping[str, Section]:
    from labmatrix.sections import SECTIONS  # late, as above

    return SECTIONS


VARIANTS = Kind(
    name="variants",
    folder=Path(__file__).parent,
    notebook="variants.ipynb",
    markdown="variants.md",
    table="variants_table.md.j2",
    model=Variants,
    holds=holds_variants,
    read=read_variants,
    check=_check,
    files=_files,
    opening=opening,
    sections=_sections,
)
