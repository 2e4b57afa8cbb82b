"""Run the cells of a notebook in a forked process instead of a kernel: ``papermill --engine warm``."""

import contextlib
import io
import platform
from functools import partial
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from nbformat import NotebookNode
from traitlets.config import Config

from buildcompare.report import processes

NAME = "warm"
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3}, "file_extension": ".py", "mimetype": "text/x-python",
    "name": "python", "nbconvert_exporter": "python", "pygments_lexer": "ipython3",
    "version": platform.python_version(),
}  # fmt: skip
"""Metadata about the language of an executed notebook. A kernel would write the same metadata."""
CAN_FAIL = "raises-exception"
"""Tag of cells that may fail without ending the run of the notebook."""


class _Outputs:
    """Collector of a cell's outputs in order, in place of IPython's display publisher."""

    is_publishing = False  # IPython reads this attribute

    def __init__(self) -> None:
        self._by_id: dict[str, list[NotebookNode]] = {}
        self.of_cell: list[NotebookNode] = []

    def add(self, kind: str, **fields: Any) -> NotebookNode:
        """Add an output to this cell."""
        self.of_cell.append(NotebookNode(output_type=kind, **fields))  # type: ignore[no-untyped-call]  # no types
        return self.of_cell[-1]

    def publish(
        self, data: Any, metadata: Any = None, *, transient: Any = None, update: bool = False, **_: Any
    ) -> None:
        """Keep the output of ``display``; with `update`, change the earlier outputs with the same display id."""
        fields, name = {"data": data, "metadata": metadata or {}}, str((transient or {}).get("display_id", ""))
        if update:
            for output in self._by_id.get(name, ()):
                output.update(fields)  # type: ignore[no-untyped-call]
            return
        output = self.add("display_data", **fields)
        if name:
            self._by_id.setdefault(name, []).append(output)

    def clear_output(self, wait: bool = False) -> None:
        """Remove all outputs of this cell so far."""
        self.of_cell.clear()


class _Stream(io.TextIOBase):
    """Standard output or error of the cells; successive texts of one stream are joined to one output."""

    def __init__(self, name: str, outputs: _Outputs) -> None:
        self._name, self._outputs = name, outputs

    def write(self, text: str) -> int:
        last = self._outputs.of_cell[-1:]
        if last and last[0].get("name") == self._name:
            last[0].text += text
        elif text:
            self._outputs.add("stream", name=self._name, text=text)
        return len(text)


def _shell(outputs: _Outputs) -> Any:
    """Make an IPython shell without terminal and kernel, whose outputs go to `outputs`."""
    shell: Any = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    results = shell.displayhook

    def result(data: Any, metadata: Any = None) -> None:
        outputs.add("execute_result", data=data, metadata=metadata or {}, execution_count=results.prompt_count)

    def nothing(*_: object, **__: object) -> None:
        """Do nothing, in place of IPython's prompts, windows and printed tracebacks, which nobody would see."""

    shell.display_pub, shell.enable_gui = outputs, nothing
    shell.showtraceback = shell.showsyntaxerror = nothing  # the engine adds the error as an output
    results.write_format_data, results.write_output_prompt = result, nothing
    return shell


class WarmEngine:
    """Papermill engine that runs cells in a child of the fork server. Inside such a child, no further child starts.

    The class does not inherit from papermill's engine, because papermill imports this module during its own import.
    """

    @staticmethod
    def nb_kernel_name(nb: Any, name: str | None = None) -> str:
        """Return the kernel that the notebook names, without starting it."""
        return str(name or nb.metadata.kernelspec.name)

    @staticmethod
    def nb_language(nb: Any, language: str | None = None) -> str:
        """Return the programming language in which papermill writes the parameters into the notebook."""
        return language or "python"

    @classmethod
    def execute_notebook(cls, nb: Any, kernel_name: str, **options: Any) -> Any:
        """Run the notebook in a child process, or in this process if it is a child; papermill calls this method."""
        if processes.is_child():
            from papermill.engines import Engine

            return Engine.execute_notebook.__func__(cls, nb, kernel_name, **options)
        options |= {"output_path": None, "progress_bar": False}
        return processes.in_child(partial(cls.execute_notebook, nb, kernel_name, **options))

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **_: object) -> None:
        """Run code cells in order until a cell fails that has no tag `CAN_FAIL`."""
        from matplotlib import pyplot  # late import: every import of papermill loads engine.py

        nb_man.nb.metadata["language_info"] = LANGUAGE
        outputs = _Outputs()
        shell = _shell(outputs)
        pyplot.switch_backend("module://matplotlib_inline.backend_inline")
        pyplot.uninstall_repl_displayhook()  # otherwise each figure would be drawn a second time
        for index, cell in enumerate(nb_man.nb.cells):
            if cell.cell_type != "code" or not cell.source.strip():
                continue
            cell.execution_count, outputs.of_cell = shell.execution_count, []
            processes.tell(cell.execution_count)
            nb_man.cell_start(cell, index)
            out, err = _Stream("stdout", outputs), _Stream("stderr", outputs)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                done = shell.run_cell(cell.source, store_history=True)
            if error := done.error_before_exec or done.error_in_exec:
                lines = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
                outputs.add("error", ename=type(error).__name__, evalue=str(error), traceback=lines)
            cell.outputs = outputs.of_cell
            failed = not done.success and CAN_FAIL not in cell.metadata.get("tags", ())
            if failed:
                nb_man.cell_exception(cell, cell_index=index)
            nb_man.cell_complete(cell, cell_index=index)
            if failed:
                return
