"""Which variants to compare: factors with their levels, a baseline, and runs; the strict model of a params file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Tag
from pydantic.functional_validators import BeforeValidator, field_validator, model_validator

from buildcompare.config.catalogue import Operation
from buildcompare.config.params import MOST_VALUES, ONE_OR_MANY, FileName, SetupValue, name_of
from buildcompare.config.yaml import Document, Strict, Traced, checked, read_yaml, refuse

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
    """Of factors that pgbench prints (``scale``, ``clients``, ``threads``, ``query mode``) its output may say them."""
    values: dict[Name, Values] | None = Field(default=None, min_length=1)
    """A number, or a list of requests or iterations; 0 or more."""
    pgbench: str | None = Field(default=None, min_length=1)
    """Each summary in it is a run of these levels."""
    block: Level | None = None
    """The machine, day or round that it shares with other runs."""
    facts: dict[Name, float | str] = Field(default_factory=dict)
    """Further numbers of the run, shown and not judged."""
    artefacts: list[str] = Field(default_factory=list)
    """Files and folders that it left behind; copied beside the report."""

    @model_validator(mode="after")
    def _one_place(self) -> VariantRun:
        given = (self.values is not None) + (self.pgbench is not None)
        refuse(given != 1, "`values` or `pgbench`", "both" if given else "none of them")
        return self


class Claim(Strict):
    """What somebody concluded: how one variant is beside another (by default the baseline) in one operation."""

    says: Says
    operation: Name
    of: Levels
    against: Levels | None = None
    text: str | None = Field(default=None, min_length=1, max_length=300)
    """In the analyst's own words."""


class Variants(Traced):
    """A matrix of variants, each run once or more, beside one baseline."""

    name: FileName | None = None
    title: str | None = Field(default=None, min_length=1, max_length=200)
    factors: Annotated[dict[Name, Annotated[list[Level], Field(min_length=1)]], Field(min_length=1)]
    baseline: Levels
    """A level of each factor that is not `workload`."""
    workload: list[Name] = Field(default_factory=list)
    """Factors that set the task and are no choice, such as a scale: nothing is compared across their levels."""
    names: dict[Name, Levels] = Field(default_factory=dict)
    """What some variants are called; the others are called by their levels."""
    operations: dict[Name, Operation] = Field(default_factory=dict)
    metrics: str | None = Field(default=None, min_length=1)
    """A catalogue that knows what the runs measure, beside `operations`."""
    runs: Annotated[list[VariantRun], Field(min_length=2)]
    claims: list[Claim] = Field(default_factory=list)
    setup: dict[str, SetupValue] = Field(default_factory=dict)
    comments: list[str] = Field(default_factory=list)
    action_items: list[str] = Field(default_factory=list)
    action_items_title: str = Field(default="Action Items", min_length=1, max_length=100)

    @field_validator("workload", "claims", "comments", "action_items", mode="before")
    @classmethod
    def _no_list(cls, value: Any) -> Any:
        return [] if value is None else value

    @field_validator("names", "operations", "setup", mode="before")
    @classmethod
    def _no_mapping(cls, value: Any) -> Any:
        return {} if value is None else value

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
                known = self.factors.get(factor)
                refuse(known is None, f"a factor ({', '.join(self.factors)}) in {place}", repr(factor))
                refuse(known and level not in known, f"a level of {factor!r} ({', '.join(known or [])})", repr(level))
        if self.metrics is None:
            refuse(not self.operations, "`operations`, or a catalogue (`metrics`)", "neither")
        return self

    @property
    def treatments(self) -> list[str]:
        """The factors that are a choice."""
        return [name for name in self.factors if name not in self.workload]


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
        What to compare.

    Raises
    ------
    InputError
        With file, key, what was expected and what was found.

    Examples
    --------
    >>> read_variants("params/azbench.yaml").workload
    ['machine', 'scale']
    """
    path = Path(file)
    variants = check_variants(read_yaml(path))
    return variants.model_copy(update={"name": name_of(path, variants.name)})


def check_variants(data: Any) -> Variants:
    """Check plain data, such as what papermill injected, against the model."""
    return checked(Variants, data)


def holds_variants(document: Document) -> bool:
    """Whether a params file is one of variants rather than of two builds."""
    return isinstance(document.data, dict) and bool({"factors", "runs"} & document.data.keys())
