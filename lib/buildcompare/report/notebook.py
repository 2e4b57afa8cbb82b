"""Run the comparison notebook, and read what an executed one holds: its results and its figures."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from buildcompare.config.errors import ExecutionError, InputError
from buildcompare.config.params import Comparison
from buildcompare.config.project import root
from buildcompare.figures.base import FIGURE_MIME, Figure
from buildcompare.report.sections import RESULTS_MIME
from buildcompare.results import Results

NOTEBOOK = Path("notebooks/comparison.ipynb")


class KernelInputError(InputError):
    """An :class:`InputError` from inside the kernel: only its message crosses over."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


def execute(params: Comparison, output: Path, *, command: str, progress: bool = False) -> NotebookNode:
    """Run the notebook with `params` and write it to `output`; `command` makes the report again, for its provenance.

    Raises :class:`InputError` at a fault of the user's (a file that is missing, empty or damaged), at any other
    :class:`ExecutionError`.
    """
    import papermill
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from papermill.exceptions import PapermillExecutionError
    from traitlets.config import Config

    class OwnKernel(AsyncKernelManager):
        """Kernels of the Python that runs this, whatever kernels the user has installed."""

        kernel_spec = KernelSpec(resource_dir=RESOURCES, **get_kernel_dict())

    with tempfile.TemporaryDirectory(prefix="bc-") as sockets:
        # Sockets in a folder of this kernel's own: TCP ports race, and a shared folder cross-connects.
        transport = {"KernelManager": {"transport": "ipc", "ip": f"{sockets}/k"}} if os.name == "posix" else {}
        try:
            papermill.execute_notebook(
                str(root() / NOTEBOOK),
                str(output),
                parameters={**params.model_dump(mode="json"), "command": command},
                cwd=str(root()),
                progress_bar=progress,
                log_output=False,
                start_timeout=120,  # seconds
                config=Config(transport),
                kernel_manager_class=OwnKernel,
            )
        except PapermillExecutionError as error:
            if error.ename == InputError.__name__:
                raise KernelInputError(error.evalue) from None
            where = f"cell {error.exec_count} of {NOTEBOOK}"
            raise ExecutionError(f"{where}: {error.ename}: {error.evalue}") from None
        except Exception as error:  # a kernel that dies or does not start raises whatever its libraries raise
            raise ExecutionError(f"the notebook could not be run: {type(error).__name__}: {error}") from error
    notebook: NotebookNode = nbformat.read(output, as_version=4)  # type: ignore[no-untyped-call]  # nbformat has no types
    for cell in notebook.cells:  # it is published: warnings and papermill name files of this machine
        if "outputs" in cell:
            cell.outputs = [o for o in cell.outputs if not (o.output_type == "stream" and o.name == "stderr")]
    notebook.metadata.get("papermill", {}).update(input_path=str(NOTEBOOK), output_path=NOTEBOOK.name)
    nbformat.write(notebook, output)  # type: ignore[no-untyped-call]  # nbformat has no types
    return notebook


def outputs_of(notebook: NotebookNode) -> Iterator[Any]:
    """Every output of every code cell."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def results_of(notebook: NotebookNode) -> Results:
    """The results that the notebook embeds; an :class:`ExecutionError` where it was not run to its end."""
    for output in outputs_of(notebook):
        if RESULTS_MIME in output.get("data", {}):
            return Results.model_validate(output["data"][RESULTS_MIME])
    raise ExecutionError("the notebook holds no results: it was not run to its end")


def figures_of(notebook: NotebookNode) -> Iterator[Figure]:
    """The figures that the notebook shows."""
    for output in outputs_of(notebook):
        about, data = output.get("metadata", {}).get(FIGURE_MIME), output.get("data", {})
        if about and "image/png" in data:
            yield Figure(**about, svg=data["image/svg+xml"], png=base64.b64decode(data["image/png"]))
