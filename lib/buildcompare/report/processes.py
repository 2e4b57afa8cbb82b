"""Run functions in children of a fork server; the children share the server's imports but no state.

The server is a fresh Python that imports :mod:`buildcompare.report.preload` once. It starts no thread, so it can be
forked safely.
"""

import atexit
import contextlib
import functools
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from buildcompare.config.errors import ExecutionError
from buildcompare.config.project import locked, short_parent, socket_folder

T = TypeVar("T")
PRELOAD = ["buildcompare.report.preload", "buildcompare.api"]
LEAST_MEMORY = 4_000_000_000  # minimum memory limit of a child in bytes; it includes memory that threads reserve
GRACE_S = 5.0
"""Seconds to wait for a child process to end by itself. After SIGTERM, it gets the same time before it is killed."""
_asker: Connection | None = None  # in a child: pipe to the process that waits for its result


def is_safe() -> bool:
    """Test whether forking is safe. Forking is unsafe where Python spawns children by default (Windows and macOS)."""
    methods = multiprocessing.get_all_start_methods()  # Python lists its default first
    return methods[0] != "spawn" and "forkserver" in methods


def is_child() -> bool:
    """Test whether this process is a child of the fork server."""
    return _asker is not None


def tell(cell: int) -> None:
    """Send the number of a cell to the process that waits for this child; end the child if that process is gone."""
    if _asker is not None:
        try:
            _asker.send((False, cell))
        except OSError:
            raise SystemExit(1) from None


def in_child(
    task: Callable[..., T], *arguments: object, hear: Callable[[int], object] | None = None, share: float = 1.0
) -> T:
    """Call `task` in a child and return its result; `hear` gets the number of each notebook cell that the child runs.

    The child may use the fraction `share` of the machine's memory, but at least `LEAST_MEMORY`. A child that
    needs more gets a MemoryError, before the system kills other processes.

    If the child ends before its task is done, an :class:`ExecutionError` is raised. A task must catch all exceptions.
    """
    here, there = multiprocessing.Pipe(duplex=False)
    most = int(max(share * memory(), min(memory(), LEAST_MEMORY)))
    process = _context().Process(target=_child, args=(there, dict(os.environ), os.getcwd(), most, task, arguments))
    process.start()
    there.close()
    cell = 0
    try:
        while True:
            is_result, message = here.recv()
            if is_result:
                result: T = message
                return result
            cell = message
            if hear is not None:
                hear(cell)
    except EOFError:
        process.join(GRACE_S)
        code = process.exitcode
        ended = f"was ended by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
        raise ExecutionError(f"{f'cell {cell}: ' if cell else ''}its process {ended}") from None
    finally:
        here.close()
        for end in (lambda: None, process.terminate, process.kill):  # the first step waits for a normal end
            end()
            process.join(GRACE_S)
            if not process.is_alive():
                break


def memory() -> int:
    """Return the memory that this machine or this container may use, in bytes."""
    least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):  # raised outside a container, or in one without a memory limit
        least = min(least, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return least


def begin() -> None:
    """Start the fork server early, so that it imports in the background; otherwise the first `in_child` starts it."""
    if is_safe():
        with contextlib.suppress(OSError):  # the first child raises the error again
            _context()


@functools.cache
def _context() -> Any:
    made: Any = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOAD)
    with socket_folder():  # called only to remove the folders of killed processes
        folder = Path(tempfile.mkdtemp(prefix="bc-", dir=short_parent()))
    lock = contextlib.ExitStack()
    lock.enter_context(locked(folder))
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        forkserver.ensure_running()  # the server's socket goes into `tempfile.tempdir`
    finally:
        tempfile.tempdir = before
    # `folder` is removed at exit, after multiprocessing (priority -100) has removed its own folder inside `folder`.
    util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=-101)
    atexit.register(lock.close)
    multiprocessing.current_process().daemon = False  # Dask workers are daemons, which may not have children
    return made


def _child(
    asker: Connection, environment: Mapping[str, str], folder: str, most: int, task: Any, arguments: Any
) -> None:
    global _asker  # noqa: PLW0603  # one asker for each child
    _asker = asker
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    import resource  # late import: Windows has no such module (and no fork server)

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # exit normally, so that exit handlers remove partial files
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):  # interrupted, or the waiting process has ended
        asker.send((True, task(*arguments)))
