"""Run an experiment: check its conditions, then run cell by cell and keep the state on disk after each."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from buildcompare.comparison import artefacts
from buildcompare.config.catalogue import slugify
from buildcompare.config.errors import InputError
from buildcompare.config.project import root, write_files, writing
from buildcompare.config.yaml import Strict, yaml_text
from buildcompare.text.sentences import say
from labmatrix.experiment.cell import RECORDING, CellError, end_group, first_line, run_cell, tear_down
from labmatrix.experiment.matrix import Cell, Matrix, cells, hider

STATE, CELLS, GROUPS = "state.json", "cells", "groups.yaml"


class CellState(Strict):
    """State of a cell that was started."""

    status: Literal["running", "done", "failed"]
    seconds: float = 0.0
    fault: str | None = None
    start: str | None = None
    """Start of the command; `start` and `end` are the window pulled from a Prometheus."""
    end: str | None = None
    result: dict[str, object] = Field(default_factory=dict)
    """Numbers of the cell (`values`), or the path of pgbench's output in the cell's folder (`pgbench`)."""
    processes: list[tuple[int, str]] = Field(default_factory=list)
    """Running processes: process id, and where and when each was started."""


class State(Strict):
    """State of an experiment, written to disk after every step."""

    key: str
    facts: dict[str, list[str]] = Field(default_factory=dict)
    """Facts about the machine; several values where it changed between two starts."""
    cells: dict[str, CellState] = Field(default_factory=dict)
    """Cell name -> state."""


@dataclass(frozen=True)
class Ended:
    """A finished experiment."""

    folder: Path
    state: State
    params: Path
    """Params file of the results (:func:`write_params`)."""
    scraped: tuple[Path, ...] = ()
    """Params files of the recordings from a Prometheus (:func:`write_scraped`)."""

    @property
    def failed(self) -> list[str]:
        """Names of failed cells."""
        return [name for name, each in self.state.cells.items() if each.status == "failed"]


def run(matrix: Matrix, folder: Path, *, report: Callable[[str], object] = print, retry: bool = False) -> Ended:
    """Run all remaining cells in order; with `retry`, failed ones again.

    Parameters
    ----------
    matrix
        The experiment.
    folder
        Folder for the state, one folder per cell, and the params file of the results.
    report
        Called with one line per cell: its outcome, and the time that the others will take.

    Raises
    ------
    InputError
        Before the first cell, if a condition is not met or the folder belongs to another experiment.
    """
    with writing(folder, "output", "a folder that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        state = _read(matrix, folder)
        check(matrix, folder)
        for name, value in facts(matrix, folder).items():
            values = state.facts.setdefault(name, [])
            if value not in values:
                values.append(value)
        order = cells(matrix)
        for cell in order:
            before = state.cells.get(cell.name)
            if before and before.status == "running":
                _clear(matrix, cell, folder, before)
            if not before or before.status == "running" or (retry and before.status == "failed"):
                _run(matrix, cell, folder, state)
                report(_progress(cell, order, state))
        return Ended(folder, state, write_params(matrix, folder, state), write_scraped(matrix, folder, state))


def check(matrix: Matrix, folder: Path) -> None:
    """Raise InputError unless all credentials, targets and checks are in order."""
    for i, name in enumerate(matrix.credentials):
        if not os.environ.get(name):
            raise _fault(matrix, ("credentials", i), "an environment variable that is set", f"{name} without a value")
    for i, target in enumerate(matrix.targets):
        host, _, port = target.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, OverflowError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise _fault(matrix, ("targets", i), "a target that answers", f"{target}: {why}") from None
    for i, command in enumerate(matrix.checks):
        code, line = first_line(command.filled({"root": str(root())}), folder)
        if code:
            raise _fault(matrix, ("checks", i), "a command that succeeds", f"exit code {code}: {hider(matrix)(line)}")
    if matrix.source is not None:
        from buildcompare.recordings.prometheus_client import Client

        with contextlib.closing(Client(matrix.source, str(matrix.source.url))) as client:
            client.server()


def facts(matrix: Matrix, folder: Path) -> dict[str, str]:
    """Facts about the machine and versions, for the setup table; unknown ones are left out."""

    def first(file: str, key: str = "") -> str:
        try:
            lines = Path(file).read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.partition(":")[2].strip() if key else line for line in lines if line.startswith(key)), "")

    rows = {
        "Kernel": f"{platform.system()} {platform.release()}",
        "CPU": first("/proc/cpuinfo", "model name") or platform.processor(),
        "Cores": str(os.cpu_count() or ""),
        "Memory": first("/proc/meminfo", "MemTotal"),
        "CPU governor": first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
    for name, command in matrix.versions.items():
        code, line = first_line(command.filled({"root": str(root())}), folder)
        rows[name] = "" if code else line
    return {name: value for name, value in rows.items() if value}


def write_params(matrix: Matrix, folder: Path, state: State) -> Path:
    """Write the params file that ``notebooks/variants.ipynb`` reads: the finished cells and their setup.

    A repeat is a block: its cells ran one after another, so they share slow drift. The file has the experiment's name,
    and so will the report's folder.
    """
    runs, fits = [], _fits(folder / CELLS)
    for cell in cells(matrix):
        ended = state.cells.get(cell.name)
        if ended and ended.status == "done":
            result, place = dict(ended.result), folder / CELLS / cell.name
            if "pgbench" in result:
                result["pgbench"] = _named(place / str(result["pgbench"]))
            kept = {"artefacts": [_named(place)]} if fits else {}
            runs.append({"levels": dict(cell.levels), "block": str(cell.repeat), **result, **kept})
    params = {
        "name": matrix.name,
        "factors": matrix.factors,
        "workload": matrix.workload,
        "baseline": {name: matrix.baseline.get(name, levels[0]) for name, levels in matrix.treatments.items()},
        **({"metrics": matrix.metrics} if matrix.metrics else {}),
        "operations": {
            name: each.model_dump(mode="json", exclude_none=True) for name, each in matrix.operations.items()
        },
        "runs": runs,
        "setup": _setup(matrix, state),
    }
    return _write(folder / f"{matrix.name}-variants.yaml", params)


def write_scraped(matrix: Matrix, folder: Path, state: State) -> tuple[Path, ...]:
    """Write the files that `calibrate` and `report` read, if the cells have recordings from a Prometheus.

    ``groups.yaml`` holds the runs of each combination as repeated runs. An experiment with just two variants also gets
    a params file of two builds with its name: the baseline is the base, and each workload is a test.
    """
    if matrix.source is None:
        return ()
    by_levels: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for cell in cells(matrix):
        ended = state.cells.get(cell.name)
        if ended and ended.status == "done":
            run = {"recording": _named(folder / CELLS / cell.name / RECORDING)}
            by_levels.setdefault(tuple(cell.levels.values()), []).append(run)
    shared = {"metrics": matrix.scraped, "source": {"kind": "recorded"}}
    groups = [
        {"name": "-".join(map(slugify, levels)), "type": "bounded", "runs": runs}
        for levels, runs in sorted(by_levels.items())
        if len(runs) > 1
    ]
    written = [_write(folder / GROUPS, {**shared, "groups": groups})] if groups else []
    if [len(levels) for levels in matrix.treatments.values()] != [2] or not by_levels:
        return tuple(written)
    [(factor, levels)] = matrix.treatments.items()
    base = matrix.baseline.get(factor, levels[0])
    new = next(level for level in levels if level != base)
    tests = []
    for chosen in itertools.product(*(matrix.factors[name] for name in matrix.workload)):
        task = dict(zip(matrix.workload, chosen, strict=True))
        sides = [
            by_levels.get(tuple({**task, factor: level}[name] for name in matrix.factors)) for level in (base, new)
        ]
        if all(sides):
            name = "-".join(slugify(f"{each} {level}") for each, level in task.items()) or matrix.name
            tests.append({"name": name, "type": "bounded", "base": sides[0], "new": sides[1]})
    if tests:
        labels = {"base": {"label": f"{factor} {base}"}, "new": {"label": f"{factor} {new}"}}
        params = {"name": matrix.name, **labels, **shared, "tests": tests, "setup": _setup(matrix, state)}
        written.append(_write(folder / f"{matrix.name}.yaml", params))
    return tuple(written)


def _setup(matrix: Matrix, state: State) -> dict[str, str]:
    """Rows of the setup table: statements of the matrix, facts of the machine, order, and failed cells."""
    facts = {name: " → ".join(values) for name, values in state.facts.items()}
    failed = {name: each.fault for name, each in state.cells.items() if each.status == "failed"}
    last = {say("experiment", "failed_row"): say("experiment", "failed_cells", failed)} if failed else {}
    done = sum(each.status == "done" for each in state.cells.values())
    return {**matrix.setup, **facts, say("experiment", "order_row"): say("experiment", "order", matrix, done), **last}


def _named(file: Path) -> str:
    """Path for a params file: relative to the project's root if it lies below it."""
    return str(file.relative_to(root()) if file.is_relative_to(root()) else file)


def _write(file: Path, params: Mapping[str, object]) -> Path:
    write_files({file: yaml_text(params)})
    return file


def _fits(folder: Path) -> bool:
    """Whether the cells' files are within the limits of a report's artefacts."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return len(sizes) <= artefacts.MAX_FILES and sum(sizes) <= artefacts.MAX_BYTES


def _run(matrix: Matrix, cell: Cell, folder: Path, state: State) -> None:
    place = folder / CELLS / cell.name
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    processes: list[tuple[int, str]] = []

    def keep(now: CellState) -> None:
        state.cells[cell.name] = now
        write_files({folder / STATE: json.dumps(state.model_dump(mode="json"), indent=1, ensure_ascii=False)})

    def started(process: int) -> None:
        processes.append((process, _born(process)))
        keep(CellState(status="running", processes=list(processes)))

    keep(CellState(status="running"))
    began = time.monotonic()
    try:
        result = run_cell(matrix, cell, place, started)
        ended = CellState(status="done", result=dict(result.numbers), start=result.start, end=result.end)
    except CellError as error:
        ended = CellState(status="failed", fault=str(error))
    keep(ended.model_copy(update={"seconds": time.monotonic() - began}))


def _clear(matrix: Matrix, cell: Cell, folder: Path, before: CellState) -> None:
    """End the processes of an interrupted cell and tear it down: it will run again as a whole."""
    for process, born in before.processes:
        if born and _born(process) == born:
            end_group(process)
    place = folder / CELLS / cell.name
    place.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(CellError):  # its set-up may not have finished
        tear_down(matrix, cell, place, lambda _: None)


def _born(process: int) -> str:
    """Machine and start time of a process, so that a reused process id is noticed; empty if there is no such process.

    On Linux: boot, process namespace (container) and start time since boot.
    """
    try:
        since = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {since}"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    ps = subprocess.run(["ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True, check=False)
    return ps.stdout.strip() and f"{platform.node()} {ps.stdout.strip()}"


def _read(matrix: Matrix, folder: Path) -> State:
    """Read the folder's state; InputError if it belongs to another experiment."""
    file = folder / STATE
    if not file.exists():
        if any(each.name != "lock" for each in folder.iterdir()):
            expected = "a new or empty folder, or one of this experiment"
            raise InputError(file=folder, key="output", expected=expected, found="other files")
        return State(key=matrix.key)
    try:
        state = State.model_validate_json(file.read_bytes(), strict=False)
    except (ValidationError, OSError):
        raise InputError(file=file, key=None, expected="the state that `run` wrote", found="another file") from None
    if state.key != matrix.key:
        expected = "the matrix that was started in this folder (or a new folder)"
        raise InputError(file=file, key=None, expected=expected, found="another matrix")
    return state


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder against a second run."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(file=folder, key="output", expected="a folder not in use", found="one in use") from None
        yield


def _progress(cell: Cell, order: list[Cell], state: State) -> str:
    ended = [state.cells[each.name] for each in order if each.name in state.cells]
    seconds = sum(each.seconds for each in ended) / len(ended) * (len(order) - len(ended))
    return say("experiment", "progress", cell, state.cells[cell.name], len(ended), len(order), seconds)


def _fault(matrix: Matrix, location: tuple[str | int, ...], expected: str, found: str) -> InputError:
    return matrix.fault_at(location, InputError(file=None, key=None, expected=expected, found=found))
