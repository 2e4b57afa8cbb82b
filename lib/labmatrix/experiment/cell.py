"""Run one cell in its own folder: set-up, command with background commands, wait for results, tear-down."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from buildcompare.comparison import artefacts
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import BuildcompareError, InputError
from buildcompare.config.params import Run
from buildcompare.config.yaml import checked
from labmatrix.experiment.matrix import OUTPUT, Cell, Command, Matrix, filled, hider
from labmatrix.params import VariantRun

ENDS_S = 10.0
"""Seconds that a program has to end after a signal."""
RECORDING = "recording.parquet"
"""File name of the recording from a Prometheus, in the cell's folder."""
MAX_OUTPUT = 64_000_000  # bytes of an output that patterns search


class CellError(BuildcompareError):
    """A cell failed; the message names the step and the cause."""


Started = Callable[[int], object]
"""Called with the id of each started process, so that it can be ended after a crash."""


@dataclass(frozen=True)
class CellResult:
    """Result of a cell and the window in which its command ran."""

    numbers: Mapping[str, object]
    """``values``: name -> number; or ``pgbench``: path of the output in the cell's folder."""
    start: str
    end: str


def run_cell(matrix: Matrix, cell: Cell, folder: Path, started: Started) -> CellResult:
    """Run a cell. The tear-down always runs; a :class:`CellError` names the step that failed."""
    values = cell.values(folder)
    try:
        try:
            for command in matrix.set_up:
                _run(command.filled(values), folder, "set-up", matrix.timeout_s, started)
            start = dt.datetime.now(dt.UTC).isoformat()
            with _beside(matrix.beside, values, folder, started):
                _run(matrix.command.filled(values), folder, "command", matrix.timeout_s, started, output=OUTPUT)
                if matrix.ready is not None:
                    _wait(matrix, values, folder, started)
            end = dt.datetime.now(dt.UTC).isoformat()
            _collect(matrix, values, folder)
            numbers = _numbers(matrix, cell, values, folder)
        except BaseException:
            with contextlib.suppress(CellError):  # the first fault is the one to report
                tear_down(matrix, cell, folder, started)
            raise
        tear_down(matrix, cell, folder, started)
        _pull(matrix, {"start": start, "end": end}, folder)
        return CellResult(numbers, start, end)
    finally:
        if matrix.credentials:
            _hide(folder, hider(matrix))


def tear_down(matrix: Matrix, cell: Cell, folder: Path, started: Started) -> None:
    """Run all commands of the tear-down, even after one fails."""
    failed = []
    for command in matrix.tear_down:
        try:
            _run(command.filled(cell.values(folder)), folder, "tear-down", matrix.timeout_s, started)
        except CellError as error:
            failed.append(error)
    if failed:
        raise failed[0]


def first_line(command: Sequence[str], folder: Path, timeout_s: float = 60.0) -> tuple[int, str]:
    """Exit code of a command, and the first line of its output; after a failure the last line of its errors."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except (OSError, ValueError) as error:
        return 127, getattr(error, "strerror", None) or str(error)
    except subprocess.TimeoutExpired:
        return 124, f"nothing within {timeout_s:g} s"
    texts = [text.decode("utf-8", "replace").strip() for text in (done.stdout, done.stderr)]
    chosen = texts[1] or texts[0] if done.returncode else texts[0] or texts[1]
    return done.returncode, (chosen.splitlines() or [""])[-1 if done.returncode else 0][:200]


def end_group(process: int, signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)) -> None:
    """Send signals to a process group, one after the other, until all its processes have ended."""
    for each in signals:
        with contextlib.suppress(OSError):
            os.killpg(process, each)
            until = time.monotonic() + ENDS_S
            while time.monotonic() < until:
                os.killpg(process, 0)  # fails once the group is empty
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)
                time.sleep(0.02)


def _start(command: Sequence[str], folder: Path, what: str, output: str, started: Started) -> subprocess.Popen[bytes]:
    with (folder / output).open("ab") as out, (folder / "errors.txt").open("ab") as errors:
        try:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True
            )
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise CellError(f"{what}: {command[0]}: {why}") from None
    try:
        started(process.pid)
    except BaseException:  # such as a signal while the state is saved
        _end(process)
        raise
    return process


def _end(
    process: subprocess.Popen[bytes], signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL)
) -> None:
    end_group(process.pid, signals)
    process.wait()


def _run(command: Sequence[str], folder: Path, what: str, timeout_s: float, started: Started, output: str = "") -> None:
    process = _start(command, folder, what, output or f"{what}.txt", started)
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise CellError(f"{what}: {command[0]} took more than {timeout_s:g} s") from None
    finally:
        if process.poll() is None:
            _end(process)
    if code:
        raise CellError(f"{what}: {command[0]} ended with exit code {code}")


@contextlib.contextmanager
def _beside(
    commands: Mapping[str, Command], values: Mapping[str, str], folder: Path, started: Started
) -> Iterator[None]:
    """Run background programs during the block, then end them by SIGINT: iostat and mpstat then complete their JSON."""
    processes = []
    try:
        for output, command in commands.items():
            processes.append(_start(command.filled(values), folder, f"beside: {output}", output, started))
        yield
    finally:
        for process in processes:
            _end(process, (signal.SIGINT, signal.SIGTERM, signal.SIGKILL))


def _wait(matrix: Matrix, values: Mapping[str, str], folder: Path, started: Started) -> None:
    """Wait until the output of the command, or of the command that polls, matches the pattern."""
    ready = matrix.ready
    assert ready is not None
    until = time.monotonic() + ready.within_s
    while True:
        output = OUTPUT
        if ready.command is not None:
            output = "ready.txt"
            (folder / output).unlink(missing_ok=True)
            with contextlib.suppress(CellError):  # the program may not answer yet
                _run(ready.command.filled(values), folder, "ready", ready.within_s, started, output=output)
        if (folder / output).exists() and re.search(ready.pattern, _text(folder / output), re.MULTILINE):
            return
        if ready.command is None or time.monotonic() + ready.every_s > until:
            raise CellError(f"ready: {output} holds no {ready.pattern!r}")
        time.sleep(ready.every_s)


def _collect(matrix: Matrix, values: Mapping[str, str], folder: Path) -> None:
    """Copy artefacts that lie elsewhere into the cell's folder."""
    paths = [str(folder / filled(each, values)) for each in matrix.artefacts]
    try:
        elsewhere = [path for path in paths if not Path(path).is_relative_to(folder)]
        artefacts.copy(artefacts.listed(elsewhere, PurePosixPath(artefacts.FOLDER)), folder)
        list(artefacts.listed(set(paths) - set(elsewhere), PurePosixPath(artefacts.FOLDER)))  # raises if one is missing
    except InputError as error:
        raise CellError(f"artefacts: {error}") from None


def _numbers(matrix: Matrix, cell: Cell, values: Mapping[str, str], folder: Path) -> Mapping[str, object]:
    """Path of the result file, or the numbers that the patterns match in it; checked to be readable by a report."""
    result = matrix.result
    file = folder / filled(result.file, values)
    if not file.is_file() or not file.stat().st_size:
        raise CellError(f"result: {result.file} is missing or empty")
    if not result.values:
        _check(matrix, cell, {"pgbench": str(file)})
        return {"pgbench": filled(result.file, values)}
    numbers, text = {}, _text(file)
    for name, pattern in result.values.items():
        match = re.search(pattern, text, re.MULTILINE)
        try:
            numbers[name] = float(match[match.re.groups] if match else "")
        except ValueError:
            raise CellError(f"result: {result.file} holds no number at {pattern!r}") from None
    _check(matrix, cell, {"values": numbers})
    return {"values": numbers}


def _check(matrix: Matrix, cell: Cell, result: Mapping[str, object]) -> None:
    """Read the result as the report will; CellError if it cannot."""
    from labmatrix.compare import of_run  # late: it takes time to import

    try:
        run = checked(VariantRun, {"levels": dict(cell.levels), **result})
        list(of_run(run, matrix.factors, read_catalogue("pgbench")))  # readability does not depend on the catalogue
    except InputError as error:
        raise CellError(f"result: {error}") from None


def _pull(matrix: Matrix, window: Mapping[str, str], folder: Path) -> None:
    """Pull the cell's window from the Prometheus and keep the recording."""
    if matrix.source is None:
        return
    from buildcompare.recordings.prometheus import pull_run  # late: the client takes time to import
    from buildcompare.recordings.table import write_recording

    try:
        pulled = pull_run(checked(Run, dict(window)), matrix.source, read_catalogue(matrix.scraped))
    except BuildcompareError as error:
        raise CellError(f"source: {error}") from None
    write_recording(pulled, folder / RECORDING)


def _hide(folder: Path, hide: Callable[[str], str]) -> None:
    """Remove credentials from the cell's files, which are published."""
    for file in folder.iterdir():
        if file.is_file() and not file.is_symlink():
            contents = file.read_bytes()
            clean = hide(contents.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
            if clean != contents:
                file.write_bytes(clean)


def _text(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(MAX_OUTPUT).decode("utf-8", "replace")
