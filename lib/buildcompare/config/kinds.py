"""Kinds of params files besides two builds, which packages above this one register as `buildcompare.kinds`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from buildcompare.config.params import Reported
from buildcompare.config.yaml import Document
from buildcompare.results import Results
from buildcompare.results.base import KindResult

if TYPE_CHECKING:
    from buildcompare.report.sections import Section

Sample = tuple[str, dict[str, str], float]
"""An exported number: name, labels, and value (NaN if unknown)."""


@dataclass(frozen=True)
class Kind:
    """How params files of a kind are recognised and read, and how their reports are shown."""

    name: str
    """Field of its results in results.json."""
    folder: Path
    """Folder of its package, which has a folder ``templates``."""
    notebook: str
    markdown: str
    """Name of the template of README.md."""
    table: str
    """Template of the table of results in Markdown."""
    junit: str
    """Template of its test suites in junit.xml."""
    model: type[Reported]
    result: type[KindResult]
    holds: Callable[[Document], bool]
    read: Callable[[Path], Reported]
    check: Callable[[Any], object]
    """Read all runs, whose errors name file and line."""
    files: Callable[[Any], Iterable[str | None]]
    """Paths of the runs."""
    opening: Callable[[Results], tuple[str, str]]
    """Title and first sentence of a report."""
    sections: Callable[[], Mapping[str, Section]]
    samples: Callable[[Results, Mapping[str, str]], Iterator[Sample]]
    """Yield the numbers to export; the second argument is the labels that all of them have."""
    help: Mapping[str, str]
    """Explanation of each exported name."""


@cache
def kinds() -> tuple[Kind, ...]:
    """All registered kinds."""
    return tuple(entry.load() for entry in entry_points(group="buildcompare.kinds"))


def kind_of(document: Document) -> Kind | None:
    """Return the kind of a params file; None for a comparison of two builds."""
    return next((kind for kind in kinds() if kind.holds(document)), None)


def kind_of_params(params: Reported) -> Kind | None:
    """Return the kind of checked parameters; None for a comparison of two builds."""
    return next((kind for kind in kinds() if isinstance(params, kind.model)), None)


def kind_of_results(results: Results) -> Kind | None:
    """Return the kind of results; None for a comparison of two builds."""
    return next((kind for kind in kinds() if getattr(results, kind.name) is not None), None)
