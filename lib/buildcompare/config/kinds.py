"""Kinds of params files that do not compare two builds; packages add kinds as entry points `buildcompare.kinds`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from buildcompare.config.params import Reported
from buildcompare.config.yaml import Document
from buildcompare.results import Results
from buildcompare.results.base import KindResult

Sample = tuple[str, dict[str, str], float]
"""An exported number: name, labels, and value (NaN if unknown)."""


@dataclass(frozen=True)
class Section:
    """Section of a report: its heading, and the function that makes its parts from the report."""

    heading: str
    parts: Callable[[Any], Any]


@dataclass(frozen=True)
class Kind:
    """How params files of a kind are recognised and read, and how their reports are shown."""

    name: str
    """Name of the field in results.json that holds results of this kind."""
    folder: Path
    """Folder of the Python package that implements this kind of report; it contains a folder ``templates``."""
    notebook: str
    markdown: str
    """Name of the template of README.md."""
    table: str
    """Name of the template of the table of results in Markdown."""
    junit: str
    """Name of the template of the test suites in junit.xml."""
    model: type[Reported]
    result: type[KindResult]
    holds: Callable[[Document], bool]
    read: Callable[[Path], Reported]
    check: Callable[[Any], object]
    """Function that reads all runs to check them; its errors name file and line."""
    files: Callable[[Any], Iterable[str | None]]
    """Function that returns the paths of the runs' files."""
    opening: Callable[[Results], tuple[str, str]]
    """Function that returns the title and the first sentence of a report."""
    sections: Callable[[], Mapping[str, Section]]
    samples: Callable[[Results, Mapping[str, str]], Iterator[Sample]]
    """Function that yields the numbers to export; its second argument holds the labels that all numbers share."""
    help: Mapping[str, str]
    """Name of an exported number -> its explanation."""


@cache
def kinds() -> tuple[Kind, ...]:
    """Return all registered kinds."""
    return tuple(entry.load() for entry in entry_points(group="buildcompare.kinds"))


def kind_of(document: Document) -> Kind | None:
    """Return the kind of a params file; None for a comparison of two builds."""
    return next((kind for kind in kinds() if kind.holds(document)), None)


def kind_of_params(params: Reported) -> Kind | None:
    """Return the kind of report that `params` ask for; None for a comparison of two builds."""
    return next((kind for kind in kinds() if isinstance(params, kind.model)), None)


def kind_of_results(results: Results) -> Kind | None:
    """Return the kind of report to which `results` belong; None for a comparison of two builds."""
    return next((kind for kind in kinds() if getattr(results, kind.name) is not None), None)
