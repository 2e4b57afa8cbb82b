"""The strict model of a params file of variants: factors with levels, a baseline, and runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Tag
from pydantic.functional_validators import BeforeValidator, model_validator

from buildcompare.config.catalogue import Operation
from buildcompare.config.errors import InputError
from buildcompare.config.params import MOST_VALUES, ONE_OR_MANY, Reported, RunFiles, name_of
from buildcompare.config.yaml import Document, Strict, checked, read_yaml, refuse

Name = Annotated[str, Field(min_length=1, max_length=100)]
Level = Annotated[Name, BeforeValidator(lambda value: str(value) if type(value) is int else value)]
Levels = Annotated[dict[Name, Level], Field(min_length=1)]
Value = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Values = Annotated[
    Annotated[Value, Tag("one")] | Annotated[list[Value], Field(min_length=1, max_length=MOST_VALUES), Tag("many")],
    ONE_OR_MANY,
]
Says = Literal["better", "worse", "same", "not_better"]


class VariantRun(Strict):
    """One run: the levels of its factors, and its numbers or the file of pgbench that holds them."""

    levels: dict[Name, Level] = Field(default_factory=dict)
    """Factor -> level; pgbench's output may supply ``scale``, ``clients``, ``threads`` and ``query mode``."""
    values: dict[Name, Values] | None = Field(default=None, min_length=1)
    """Operation -> one number, or one for each request or iteration; not negative."""
    pgbench: str | None = Field(default=None, min_length=1)
    """File of pgbench's output; each summary in it is one run."""
    block: Level | None = None
    """Machine, day or round shared with other runs."""
    facts: dict[Name, float | str] = Field(default_factory=dict)
    """Further numbers of the run, shown but not judged."""
    artefacts: list[str] = Field(default_factory=list)
    """Files and folders of the run, copied beside the report."""

    @model_validator(mode="after")
    def _one_place(self) -> VariantRun:
        count = (self.values is not None) + (self.pgbench is not None)
        refuse(count != 1, "`values` or `pgbench`", "both" if count else "none of them")
        return self


class Claim(Strict):
    """A conclusion to check: one variant against another (default: the baseline) in one operation."""

    says: Says
    operation: Name
    of: Levels
    against: Levels | None = None
    text: str | None = Field(default=None, min_length=1, max_length=300)
    """The analyst's wording."""


class Variants(Reported):
    """A matrix of variants, each run once or more, beside one baseline."""

    title: str | None = Field(default=None, min_length=1, max_length=200)
    factors: Annotated[dict[Name, Annotated[list[Level], Field(min_length=1)]], Field(min_length=1)]
    baseline: Levels
    """A level of each factor that is not `workload`."""
    workload: list[Name] = Field(default_factory=list)
    """Factors that set the task, such as a scale; variants are compared only at equal levels of them."""
    names: dict[Name, Levels] = Field(default_factory=dict)
    """Name of a variant -> its levels; unnamed variants show their levels."""
    operations: dict[Name, Operation] = Field(default_factory=dict)
    metrics: str | None = Field(default=None, min_length=1)
    """Catalogue of further metrics, beside `operations`."""
    runs: Annotated[list[VariantRun], Field(min_length=2)]
    claims: list[Claim] = Field(default_factory=list)

    @model_validator(mode="after")
    def _known(self) -> Variants:
        unknown = [name for name in self.workload if name not in self.factors]
        refuse(unknown, f"factors ({', '.join(self.factors)}) in `workload`", repr(unknown[:1]))
        refuse(len(self.workload) == len(self.factors), "a factor that is no workload", "none")
        for name, levels in self.factors.items():
            refuse(len({*levels}) < len(levels), f"different levels of {name!r}", "one twice")
        free = set(self.treatments)
        refuse(set(self.baseline) != free, f"a level of {', '.join(sorted(free))} as `baseline`", str(self.baseline))
        named: list[tuple[str, dict[str, str]]] = [("baseline", self.baseline)]
        named += [(f"names.{name}", levels) for name, levels in self.names.items()]
        named += [(f"runs[{i}].levels", run.levels) for i, run in enumerate(self.runs)]
        for i, claim in enumerate(self.claims):
            named += [(f"claims[{i}]", levels) for levels in (claim.of, claim.against or {})]
        for place, chosen in named:
            for factor, level in chosen.items():
                allowed = self.factors.get(factor)
                refuse(allowed is None, f"a factor ({', '.join(self.factors)}) in {place}", repr(factor))
                refuse(
                    allowed and level not in allowed, f"a level of {factor!r} ({', '.join(allowed or [])})", repr(level)
                )
        if self.metrics is None:
            refuse(not self.operations, "`operations`, or a catalogue (`metrics`)", "neither")
        return self

    @property
    def treatments(self) -> list[str]:
        """The factors to compare: those outside `workload`."""
        return [name for name in self.factors if name not in self.workload]

    def run_files(self) -> Iterator[RunFiles]:
        """Yield the files that each run left behind."""
        for i, run in enumerate(self.runs):
            name = ", ".join(run.levels.values()) or str(run.pgbench)
            yield RunFiles(("runs", i), run.artefacts, name, None, i + 1, f"run-{i + 1}")


def read_variants(file: str | Path) -> Variants:
    """Read and check a params file of variants.

    Parameters
    ----------
    file
        Path of a YAML file with `factors`, `baseline` and `runs` (docs/variants.md). Without a `name` it takes the
        file's stem.

    Returns
    -------
    Variants
        The checked parameters.

    Raises
    ------
    InputError
        If the file is not valid; it names file, key, expected and actual value.

    Examples
    --------
    >>> read_variants("params/azbench.yaml").workload
    ['machine', 'scale']
    """
    path = Path(file)
    document = read_yaml(path)
    if isinstance(document.data, dict) and "tests" in document.data and "factors" not in document.data:
        found = "a comparison of two builds, which comparison.ipynb, `report` and `compare` take"
        raise InputError(
            file=path, key=document.key(("tests",)), expected="a matrix of variants, with `factors`", found=found
        )
    variants = check_variants(document)
    return variants.model_copy(update={"name": name_of(path, variants.name)})


def check_variants(data: Any) -> Variants:
    """Check plain data, such as what papermill injected, against the model."""
    return checked(Variants, data)


def holds_variants(document: Document) -> bool:
    """Whether a params file describes variants rather than two builds."""
    return isinstance(document.data, dict) and bool({"factors", "runs"} & document.data.keys())
