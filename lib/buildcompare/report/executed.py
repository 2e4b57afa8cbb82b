"""What an executed notebook carries: its results and its figures. The exporters read nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nbformat import NotebookNode

from buildcompare.config.errors import ExecutionError
from buildcompare.figures.base import FIGURE_MIME
from buildcompare.report.sections import RESULTS_MIME
from buildcompare.results import Results


@dataclass(frozen=True)
class EmbeddedFigure:
    """A figure as it stands in a notebook."""

    name: str
    alt: str
    png: bytes
    graph_of: str | None


def outputs(notebook: NotebookNode) -> Iterator[Any]:
    """Every output of every code cell."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def results(notebook: NotebookNode) -> Results:
    """The results that the notebook embeds.

    Raises
    ------
    ExecutionError
        Where it was not run to its end.
    """
    for output in outputs(notebook):
        if RESULTS_MIME in output.get("data", {}):
            return Results.model_validate(output["data"][RESULTS_MIME])
    raise ExecutionError("the notebook holds no results: it was not run to its end")


def figures(notebook: NotebookNode) -> Iterator[EmbeddedFigure]:
    """The figures that the notebook shows."""
    for output in outputs(notebook):
        about = output.get("metadata", {}).get(FIGURE_MIME)
        if about and "image/png" in output.get("data", {}):
            png = base64.b64decode(output["data"]["image/png"])
            yield EmbeddedFigure(name=about["name"], alt=about["alt"], png=png, graph_of=about["graph_of"])
