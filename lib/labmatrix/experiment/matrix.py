"""Read the file of an experiment: factors and levels, commands of each cell, and conditions for the start."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.functional_validators import AfterValidator, BeforeValidator, model_validator

from buildcompare.config.catalogue import Operation, slugify
from buildcompare.config.outside import hiding
from buildcompare.config.params import FileName, SetupValue, Source, Variable
from buildcompare.config.project import root
from buildcompare.config.yaml import Strict, Traced, checked, must, read_yaml, refuse, unlike

MAX_CELLS = 10_000
OUTPUT = "output.txt"
"""File name of the command's standard output, in the cell's folder."""
_TEMPLATE = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")
_VARIABLES = ("cell", "repeat", "root")
"""Variables of templates beside the factors: the cell's folder, its repeat, the project's folder."""
_PATTERN = "a regular expression with at most one group"


def _compiles(pattern: str) -> bool:
    try:
        return re.compile(pattern, re.MULTILINE).groups <= 1
    except (re.error, OverflowError):
        return False


Level = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value), Field(min_length=1)]
FactorName = Annotated[
    str, must(rf"(?!({'|'.join(_VARIABLES)})$)[A-Za-z_]\w{{0,59}}", "a name of letters, digits and _")
]
Pattern = Annotated[str, must(_compiles, _PATTERN)]
Target = Annotated[str, must(r"[^\s/:\[\]]+:\d{1,5}", "HOST:PORT")]


def _distinct(levels: list[str]) -> list[str]:
    if len({slugify(level) for level in levels}) < len(levels):
        raise unlike("levels that differ in letters or digits", f"{levels}")
    return levels


class Command(Strict):
    """A program with its arguments, or a text for a shell."""

    run: list[str] | None = Field(default=None, min_length=1)
    shell: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one(self) -> Command:
        refuse((self.run is None) == (self.shell is None), "a list of arguments, or `shell`", "both or neither")
        return self

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """Arguments with the values of a cell filled in; quoted in a shell's text."""
        if self.shell is not None:
            return ["/bin/sh", "-c", filled(self.shell, {name: shlex.quote(value) for name, value in values.items()})]
        return [filled(argument, values) for argument in self.run or ()]


AnyCommand = Annotated[Command, BeforeValidator(lambda value: {"run": value} if isinstance(value, list) else value)]


class Ready(Strict):
    """When results are ready: a pattern in the output of the command, or of a command that polls."""

    pattern: Pattern
    command: AnyCommand | None = None
    every_s: float = Field(default=5.0, gt=0, le=3600)
    within_s: float = Field(default=600.0, gt=0, le=86_400)


class Result(Strict):
    """Result file of a cell: output of pgbench, or any text with one pattern per number."""

    file: str = Field(default=OUTPUT, min_length=1)
    values: dict[str, Pattern] = Field(default_factory=dict)
    """Name -> pattern whose group is the number. Empty: the file is output of pgbench."""


def _refuse_unknown(templates: list[str], variables: set[str]) -> None:
    for text in templates:
        for match in _TEMPLATE.finditer(text):
            odd = match[1] not in variables if match[1] else len(match[0]) == 1
            refuse(odd, f"{', '.join(sorted(variables))} in braces, or braces twice", f"{match[0]!r} in {text[:60]!r}")


class Matrix(Traced):
    """An experiment."""

    name: FileName | None = None
    factors: dict[FactorName, Annotated[list[Level], Field(min_length=1), AfterValidator(_distinct)]]
    workload: list[str] = Field(default_factory=list)
    """Factors that define the task; variants are not compared across their levels."""
    baseline: dict[str, Level] = Field(default_factory=dict)
    """Level of each factor outside the workload; default: its first."""
    repeats: int = Field(default=3, ge=1, le=1000)
    seed: int = Field(ge=0)
    credentials: list[Variable] = Field(default_factory=list)
    targets: list[Target] = Field(default_factory=list)
    checks: list[AnyCommand] = Field(default_factory=list)
    versions: dict[str, AnyCommand] = Field(default_factory=dict)
    """Setup row -> command; the row shows the first line of its output."""
    set_up: list[AnyCommand] = Field(default_factory=list)
    command: AnyCommand
    beside: dict[FileName, AnyCommand] = Field(default_factory=dict)
    """Output file -> background command, such as iostat."""
    tear_down: list[AnyCommand] = Field(default_factory=list)
    ready: Ready | None = None
    timeout_s: float = Field(default=3600.0, gt=0, le=604_800)
    """Time limit of each command."""
    artefacts: list[str] = Field(default_factory=list)
    """Files and folders outside the cell's folder; copied into it."""
    result: Result = Result()
    metrics: str | None = Field(default="pgbench", min_length=1)
    operations: dict[str, Operation] = Field(default_factory=dict)
    """Units and directions of numbers that the catalogue does not list."""
    source: Source | None = None
    """Prometheus that scrapes the target; each cell's window is pulled with the queries of catalogue `scraped`."""
    scraped: str = Field(default="postgresql", min_length=1)
    setup: dict[str, SetupValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _whole(self) -> Matrix:
        refuse(not self.factors, "at least one factor", "none")
        count = self.repeats
        for levels in self.factors.values():
            count *= len(levels)
        refuse(count > MAX_CELLS, f"at most {MAX_CELLS:,} cells", f"{count:,}")
        for name in self.workload:
            refuse(name not in self.factors, "factors in `workload`", repr(name))
        for name, level in self.baseline.items():
            odd = name not in self.factors or name in self.workload
            refuse(odd, "a factor that is no workload in `baseline`", repr(name))
            refuse(level not in self.factors[name], f"a level of {name} in `baseline`", repr(level))
        templates = [*self.artefacts, self.result.file]
        commands = [*self.set_up, self.command, *self.beside.values(), *self.tear_down]
        for each in [*commands, *([self.ready.command] if self.ready and self.ready.command else [])]:
            templates += [*(each.run or ()), each.shell or ""]
        _refuse_unknown(templates, {*self.factors, *_VARIABLES})
        for once in (*self.checks, *self.versions.values()):  # these run before the first cell
            _refuse_unknown([*(once.run or ()), once.shell or ""], {"root"})
        return self

    @property
    def treatments(self) -> dict[str, list[str]]:
        """Factors outside the workload, with their levels."""
        return {name: levels for name, levels in self.factors.items() if name not in self.workload}

    @property
    def key(self) -> str:
        """Hash that identifies the experiment."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Cell:
    """One run of one combination of levels."""

    number: int
    """Position in the order, from 1."""
    levels: Mapping[str, str]
    repeat: int

    @property
    def name(self) -> str:
        """Folder name."""
        levels = "-".join(f"{slugify(name)}-{slugify(level)}"[:30] for name, level in self.levels.items())
        return f"{self.number:04d}-{levels}-{self.repeat}"[:100]

    def values(self, folder: Path) -> dict[str, str]:
        """Values of the templates' variables."""
        return {**self.levels, "repeat": str(self.repeat), "cell": str(folder), "root": str(root())}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Fill a template with values.

    >>> filled("-s {scale} {{x}}", {"scale": "5"})
    '-s 5 {x}'
    """
    return _TEMPLATE.sub(lambda match: values[match[1]] if match[1] else match[0][0], text)


def cells(matrix: Matrix) -> list[Cell]:
    """All cells in running order: each repeat is a block of all combinations in random order.

    Slow drift then affects all combinations alike (Fisher 1935, The Design of Experiments). The seed fixes the order.
    """
    rng, order = random.Random(matrix.seed), []
    combinations = [
        dict(zip(matrix.factors, levels, strict=True)) for levels in itertools.product(*matrix.factors.values())
    ]
    for repeat in range(1, matrix.repeats + 1):
        order += [(levels, repeat) for levels in rng.sample(combinations, len(combinations))]
    return [Cell(number, levels, repeat) for number, (levels, repeat) in enumerate(order, start=1)]


def read_matrix(file: Path) -> Matrix:
    """Read and check the file; InputError at its first fault."""
    matrix = checked(Matrix, read_yaml(file))
    return matrix.model_copy(update={"name": matrix.name or slugify(file.stem)})


def hider(matrix: Matrix) -> Callable[[str], str]:
    """Function that hides the values of the credentials in a text."""
    return hiding(filter(None, map(os.environ.get, matrix.credentials)))
