"""Run the cells of a notebook in this process, with the outputs that a kernel would give."""

import contextlib
import io
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from nbformat import NotebookNode, v4
from traitlets.config import Config

new_output: Any = v4.new_output  # nbformat has no types
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
    "version": platform.python_version(),
}
"""What a kernel says of its language; it stands in the metadata of an executed notebook."""
CAN_FAIL = "raises-exception"
"""Tag of a cell whose error does not end the notebook."""


@dataclass(frozen=True)
class CellRun:
    """A code cell that was begun (`outputs` None) or that ran."""

    index: int  # among all cells of the notebook, from 0
    count: int  # of executed cells, from 1
    outputs: list[NotebookNode] | None = None
    failed: bool = False


class _Publisher(DisplayPublisher):
    """Keeps what cells display, in order; it is shared by all kinds of outputs."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)  # type: ignore[no-untyped-call]  # IPython has few types
        self.outputs: list[NotebookNode] = []
        self.known: dict[str, list[NotebookNode]] = {}

    def publish(self, data: Any, metadata: Any = None, *_: Any, transient: Any = None, **named: Any) -> None:
        shown, name = {"data": data, "metadata": metadata or {}}, (transient or {}).get("display_id")
        if named.get("update"):
            for output in self.known.get(str(name), ()):
                output["data"], output["metadata"] = shown["data"], shown["metadata"]
            return
        self.outputs.append(new_output("display_data", **shown))
        if name:
            self.known.setdefault(name, []).append(self.outputs[-1])

    def clear_output(self, wait: bool = False) -> None:
        self.outputs.clear()


class _Results(DisplayHook):
    """Keeps the value of a cell's last expression."""

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        known = {"data": format_dict, "metadata": md_dict or {}, "execution_count": self.prompt_count}
        shell: Any = self.shell
        shell.display_pub.outputs.append(new_output("execute_result", **known))

    def finish_displayhook(self) -> None:
        self._is_active = False


class _Shell(InteractiveShell):
    displayhook_class = _Results
    display_pub_class = _Publisher

    def enable_gui(self, gui: Any = None) -> None:
        """Nobody looks: nothing to enable."""

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        told = {"ename": etype.__name__, "evalue": str(evalue), "traceback": stb}
        publisher: Any = self.display_pub
        publisher.outputs.append(new_output("error", **told))


class _Stream(io.TextIOBase):
    """Standard output or error of the cells."""

    def __init__(self, name: str, publisher: _Publisher) -> None:
        self._name, self._publisher = name, publisher

    def write(self, text: str) -> int:
        outputs = self._publisher.outputs
        if outputs and outputs[-1].get("name") == self._name:
            outputs[-1].text += text
        elif text:
            outputs.append(new_output("stream", name=self._name, text=text))
        return len(text)


def run_cells(cells: Sequence[NotebookNode]) -> Iterator[CellRun]:
    """Run code cells one after the other, until one fails, each said before and after it ran."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    shell: Any = _Shell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    publisher = shell.display_pub
    for index, cell in enumerate(cells):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        count = shell.execution_count
        yield CellRun(index, count)
        streams = _Stream("stdout", publisher), _Stream("stderr", publisher)
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            done = shell.run_cell(cell.source, store_history=True)
        failed = not done.success and CAN_FAIL not in cell.metadata.get("tags", ())
        outputs, publisher.outputs = publisher.outputs, []
        yield CellRun(index, count, outputs, failed)
        if failed:
            return
