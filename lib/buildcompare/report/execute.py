"""Runs the comparison notebook with papermill and turns what goes wrong into the right error."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
import papermill
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from buildcompare.config.errors import ExecutionError, InputError
from buildcompare.config.params import Comparison
from buildcompare.config.project import COMMAND_VARIABLE, OUTPUT_VARIABLE, root

NOTEBOOK = Path("notebooks/comparison.ipynb")
KERNEL_START_S = 120


def execute(params: Comparison, output: Path, *, command: str, progress: bool = False) -> NotebookNode:
    """Run the notebook with `params` into `output`; its other files go into the same folder.

    Raises
    ------
    InputError
        Where the notebook met a fault of the user's: a file that is missing, empty or damaged.
    ExecutionError
        Where it failed in any other way.
    """
    before = dict(os.environ)
    os.environ[OUTPUT_VARIABLE] = str(output.parent)
    os.environ[COMMAND_VARIABLE] = command
    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # a kernel of this environment, not of the user's
    sockets = tempfile.TemporaryDirectory(prefix="bc-")
    try:
        papermill.execute_notebook(
            str(root() / NOTEBOOK),
            str(output),
            parameters=params.model_dump(mode="json"),
            cwd=str(root()),
            progress_bar=progress,
            log_output=False,
            start_timeout=KERNEL_START_S,
            config=_transport(Path(sockets.name)),
        )
    except PapermillExecutionError as error:
        raise _translated(error) from None
    except Exception as error:  # a kernel that dies or does not start raises whatever its libraries raise
        raise ExecutionError(f"the notebook could not be run: {type(error).__name__}: {error}") from error
    finally:
        sockets.cleanup()
        os.environ.clear()
        os.environ.update(before)
    notebook: NotebookNode = nbformat.read(output, as_version=4)  # type: ignore[no-untyped-call]  # nbformat has no types
    _without_machine(notebook)
    nbformat.write(notebook, output)  # type: ignore[no-untyped-call]  # nbformat has no types
    return notebook


def _transport(folder: Path) -> Config:
    """Unix sockets in a folder of this kernel's own: TCP ports race, and a shared folder cross-connects."""
    if os.name != "posix":
        return Config()
    return Config({"KernelManager": {"transport": "ipc", "ip": str(folder / "k")}})


def _translated(error: PapermillExecutionError) -> Exception:
    if error.ename == InputError.__name__:
        return KernelInputError(error.evalue)
    return ExecutionError(f"cell {error.exec_count} of {NOTEBOOK}: {error.ename}: {error.evalue}")


class KernelInputError(InputError):
    """An :class:`InputError` from inside the kernel: only its message crosses over."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


def _without_machine(notebook: NotebookNode) -> None:
    """Drop this machine's paths: the notebook is published."""
    for cell in notebook.cells:  # warnings name files of this machine
        if "outputs" in cell:
            cell.outputs = [o for o in cell.outputs if not (o.output_type == "stream" and o.name == "stderr")]
    about = notebook.metadata.get("papermill", {})
    about.update(input_path=str(NOTEBOOK), output_path=NOTEBOOK.name)
