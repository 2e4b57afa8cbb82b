"""Run notebooks in forked processes instead of kernels: ``papermill --engine warm``.

1. The fork server, a fresh Python, imports :mod:`buildcompare.report.preload` once. It starts no thread, so that
   forking it is safe, and its children share what it imported.
2. A child runs one function (:func:`in_child`): it has the environment and the working folder of whoever asked for it,
   and no state of others.
3. :func:`run_cells` runs the cells of a notebook there, with the outputs that a kernel would give.
4. :class:`WarmEngine` is what papermill calls.

IPython and papermill are imported late: the command line, and papermill itself, import this module first.
"""

import atexit
import contextlib
import functools
import io
import multiprocessing
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, TypeVar

from buildcompare.config.errors import ExecutionError
from buildcompare.config.project import socket_folder

if TYPE_CHECKING:
    from nbformat import NotebookNode

T = TypeVar("T")
PRELOAD = ["buildcompare.report.preload", "buildcompare.api"]
GRACE_S = 5.0
"""How long a child may take to tidy up once nobody waits for it."""
_asker: Connection | None = None  # in a child: who waits for its result


def is_safe() -> bool:
    """Whether processes can be forked here: not on macOS, whose system libraries do not survive it, nor on Windows."""
    return sys.platform not in ("darwin", "win32") and "forkserver" in multiprocessing.get_all_start_methods()


def is_child() -> bool:
    """Whether this process is a child of the fork server."""
    return _asker is not None


def tell(said: object) -> None:
    """From a child, say something to whoever waits for its result; a child that nobody waits for ends."""
    if _asker is not None:
        try:
            _asker.send((False, said))
        except OSError:
            raise SystemExit(1) from None


def in_child(task: Callable[..., T], *arguments: object, hear: Callable[[Any], object] | None = None) -> T:
    """Call `task` in a child and return what it returned; `hear` gets what the child tells meanwhile.

    An :class:`ExecutionError` where the child ends before its task does. A task catches its own exceptions.
    """
    process, here = start(task, *arguments)
    try:
        while True:
            is_result, said = here.recv()
            if is_result:
                result: T = said
                return result
            if hear is not None:
                hear(said)
    except EOFError:
        process.join(GRACE_S)
        raise ExecutionError(f"its process {_ended(process.exitcode)}") from None
    finally:
        here.close()
        for end in (lambda: None, process.terminate, process.kill):  # once it is done it ends by itself
            end()
            process.join(GRACE_S)
            if not process.is_alive():
                break


def start(task: Callable[..., object], *arguments: object) -> tuple[Any, Connection]:
    """Start a child that calls `task`: its process, and where it tells what it does and sends what it returned."""
    here, there = multiprocessing.Pipe(duplex=False)
    given = there, dict(os.environ), os.getcwd(), task, arguments
    process = _context().Process(target=_child, args=given)
    process.start()
    there.close()
    return process, here


def begin() -> None:
    """Start the fork server, which imports while this process does other things; else the first child starts it."""
    if is_safe():
        with contextlib.suppress(OSError):  # who asks for a child says it
            _context()
            forkserver.ensure_running()


@functools.cache
def _context() -> Any:
    made: Any = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOAD)
    folder = contextlib.ExitStack()  # of its socket: one that the next run removes where this process is killed
    place = folder.enter_context(socket_folder())
    multiprocessing.current_process()._config["tempdir"] = str(place)  # type: ignore[attr-defined]  # no public way
    atexit.register(folder.close)
    atexit.register(_stop, os.getpid())
    current = multiprocessing.current_process()
    if current.daemon:  # a worker of Dask; it waits for each of its children
        current.daemon = False
    return made


def _stop(owner: int) -> None:
    """End the fork server and wait for it: a command leaves no process behind, and the server's CPU is its own."""
    server: Any = forkserver._forkserver  # it has no public way
    if server._forkserver_pid is not None and os.getpid() == owner:  # not a process that this one forked
        os.kill(server._forkserver_pid, signal.SIGKILL)  # it holds nothing; to take its modules apart takes 0.1 s
        server._stop()


def _child(asker: Connection, environment: Mapping[str, str], folder: str, task: Any, arguments: Any) -> None:
    global _asker  # noqa: PLW0603  # one asker for each child
    _asker = asker
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which removes what is half made
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # whoever waits says it, or is gone
        asker.send((True, task(*arguments)))


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


# ---- Cells in this process -------------------------------------------------------------------------------------------

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
    outputs: list["NotebookNode"] | None = None
    failed: bool = False


class _Outputs:
    """What a cell displays, in order; it stands in the place of IPython's publisher of displays."""

    is_publishing = False  # IPython asks

    def __init__(self) -> None:
        self._by_id: dict[str, list[NotebookNode]] = {}
        self._of_cell: list[NotebookNode] = []

    def add(self, kind: str, **said: Any) -> "NotebookNode":
        """Another output of this cell; the notebook is validated as a whole, when it is written."""
        from nbformat import NotebookNode

        self._of_cell.append(NotebookNode(output_type=kind, **said))  # type: ignore[no-untyped-call]  # it has no types
        return self._of_cell[-1]

    def taken(self) -> list["NotebookNode"]:
        """All outputs since this was asked before."""
        taken, self._of_cell = self._of_cell, []
        return taken

    def publish(
        self, data: Any, metadata: Any = None, *, transient: Any = None, update: bool = False, **_: Any
    ) -> None:
        """Keep what ``display`` shows, or change what it has shown before."""
        shown, name = {"data": data, "metadata": metadata or {}}, (transient or {}).get("display_id")
        if update:
            for output in self._by_id.get(str(name), ()):
                output["data"], output["metadata"] = shown["data"], shown["metadata"]
            return
        output = self.add("display_data", **shown)
        if name:
            self._by_id.setdefault(name, []).append(output)

    def clear_output(self, wait: bool = False) -> None:
        """Forget what this cell showed so far."""
        self._of_cell.clear()

    def write(self, stream: str, text: str) -> None:
        """Keep what the cell prints: what follows in one stream is one output."""
        if self._of_cell and self._of_cell[-1].get("name") == stream:
            self._of_cell[-1].text += text
        elif text:
            self.add("stream", name=stream, text=text)


class _Stream(io.TextIOBase):
    """Standard output or error of the cells."""

    def __init__(self, name: str, outputs: _Outputs) -> None:
        self._name, self._outputs = name, outputs

    def write(self, text: str) -> int:
        self._outputs.write(self._name, text)
        return len(text)


def _shell(outputs: _Outputs) -> Any:
    """An IPython without terminal and kernel that gives everything to `outputs`."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    shell: Any = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    results = shell.displayhook

    def result(data: Any, metadata: Any = None) -> None:
        outputs.add("execute_result", data=data, metadata=metadata or {}, execution_count=results.prompt_count)

    def error(kind: Any, value: Any, lines: Any) -> None:
        outputs.add("error", ename=kind.__name__, evalue=str(value), traceback=lines)

    def nothing(*_: object) -> None:
        """Nobody looks at a prompt or a window."""

    shell.display_pub, shell._showtraceback, shell.enable_gui = outputs, error, nothing
    results.write_format_data, results.write_output_prompt = result, nothing
    return shell


def run_cells(cells: Sequence["NotebookNode"]) -> Iterator[CellRun]:
    """Run code cells one after the other, until one fails, each said before and after it ran."""
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    outputs = _Outputs()
    shell = _shell(outputs)
    for index, cell in enumerate(cells):
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        count = shell.execution_count
        yield CellRun(index, count)
        out, err = _Stream("stdout", outputs), _Stream("stderr", outputs)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            done = shell.run_cell(cell.source, store_history=True)
        failed = not done.success and CAN_FAIL not in cell.metadata.get("tags", ())
        yield CellRun(index, count, outputs.taken(), failed)
        if failed:
            return


# ---- papermill's engine ----------------------------------------------------------------------------------------------

NAME = "warm"


class WarmEngine:
    """Runs cells in a child of the fork server, or where this process is one, here; not derived from papermill's."""

    @classmethod
    def execute_notebook(cls, *given: Any, **options: Any) -> Any:
        """Run the notebook as every engine of papermill does."""
        from papermill.engines import Engine

        return Engine.execute_notebook.__func__(cls, *given, **options)

    @staticmethod
    def nb_kernel_name(nb: Any, name: str | None = None) -> str:
        """The kernel that the notebook names; it is not started."""
        return str(name or nb.metadata.kernelspec.name)

    @staticmethod
    def nb_language(nb: Any, language: str | None = None) -> str:
        """The language of the notebook, which papermill writes its parameters in."""
        return language or "python"

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **_: object) -> None:
        """Run the notebook, as papermill asks its engines to."""
        cells, now = nb_man.nb.cells, ""
        nb_man.nb.metadata["language_info"] = LANGUAGE

        def hear(run: CellRun) -> None:
            nonlocal now
            cell, now = cells[run.index], f"cell {run.count}"
            if run.outputs is None:
                nb_man.cell_start(cell, run.index)
                return
            cell.outputs, cell.execution_count = run.outputs, run.count
            if run.failed:
                nb_man.cell_exception(cell, cell_index=run.index)
            nb_man.cell_complete(cell, cell_index=run.index)

        if is_child():
            for run in run_cells(cells):
                hear(run)
                tell(run.count)
            return
        try:
            in_child(_told, cells, hear=hear)
        except ExecutionError as error:
            raise ExecutionError(f"{now}: {error}" if now else str(error)) from None


def _told(cells: Any) -> None:
    for run in run_cells(cells):
        tell(run)
