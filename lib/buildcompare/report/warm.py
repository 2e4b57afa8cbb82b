"""Run a function in a process of its own that is forked from one which has imported everything (the fork server).

The fork server is a fresh Python that imports :mod:`buildcompare.report.preload` once and starts no thread, so that
forking it is safe. A child has the environment and the working folder of whoever asked for it, and no state of others.
"""

import atexit
import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from buildcompare.config.errors import ExecutionError
from buildcompare.config.project import short_parent

T = TypeVar("T")
PRELOAD = ["buildcompare.report.preload", "buildcompare.api"]
GRACE_S = 5.0
"""How long a child may take to tidy up once nobody waits for it."""
_asker: Connection | None = None  # in a child: who waits for its result


def is_safe() -> bool:
    """Whether processes can be forked here: not on macOS, whose system libraries do not survive it, nor on Windows."""
    return sys.platform not in ("darwin", "win32") and "forkserver" in multiprocessing.get_all_start_methods()


def is_child() -> bool:
    """Whether this process is such a child."""
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


@functools.cache
def _context() -> Any:
    made: Any = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(PRELOAD)
    usual, tempfile.tempdir = tempfile.tempdir, str(short_parent())
    try:
        util.get_temp_dir()  # made here and kept: the fork server's socket stands in it
    finally:
        tempfile.tempdir = usual
    atexit.register(_stop)
    current = multiprocessing.current_process()
    if current.daemon:  # a worker of Dask; it waits for each of its children
        current.daemon = False
    return made


def _stop() -> None:
    """End the fork server and wait for it: a command leaves no process behind, and the server's CPU is its own."""
    forkserver._forkserver._stop()  # type: ignore[attr-defined]  # it has no public way


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
