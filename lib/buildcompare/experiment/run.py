"""Run an experiment: what must be there is checked, then cell by cell, its state on disk after each."""

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from buildcompare.comparison import artefacts
from buildcompare.config.catalogue import slugify
from buildcompare.config.errors import InputError
from buildcompare.config.project import root, write_files, writing
from buildcompare.config.yaml import Strict
from buildcompare.experiment.cell import RECORDING, CellError, end_group, run_cell, said_by, tear_down
from buildcompare.experiment.matrix import Cell, Matrix, cells, hider
from buildcompare.text.sentences import say

STATE, CELLS, GROUPS = "state.json", "cells", "groups.yaml"


class CellState(Strict):
    """What is known of a cell that was begun."""

    status: Literal["running", "done", "failed"]
    seconds: float = 0.0
    fault: str | None = None
    start: str | None = None
    """Of the command; with `end` what was pulled from a Prometheus."""
    end: str | None = None
    result: dict[str, Any] = Field(default_factory=dict)
    """Its numbers (`values`), or the file of pgbench that holds them, relative to its folder."""
    processes: list[tuple[int, str]] = Field(default_factory=list)
    """While it runs: the number of each process that was started, and where and when."""


class State(Strict):
    """The whole of an experiment, as it is on disk after every step."""

    key: str
    facts: dict[str, list[str]] = Field(default_factory=dict)
    """Of the machine; several where it changed between two starts."""
    cells: dict[str, CellState] = Field(default_factory=dict)
    """By the name of the cell."""


@dataclass(frozen=True)
class Ended:
    """An experiment whose cells have all been run."""

    folder: Path
    state: State
    params: Path
    """The params file of what was found (:func:`write_params`)."""
    scraped: tuple[Path, ...] = ()
    """Those of what a Prometheus recorded (:func:`write_scraped`)."""

    @property
    def failed(self) -> list[str]:
        """Names of the cells that failed."""
        return [name for name, each in self.state.cells.items() if each.status == "failed"]


def run(matrix: Matrix, folder: Path, *, report: Callable[[str], object] = print, retry: bool = False) -> Ended:
    """Run all cells that were not run yet, in their order; with `retry`, those that failed once more.

    Parameters
    ----------
    matrix
        The experiment.
    folder
        Where its state, a folder for each cell, and the params file of what was found are kept.
    report
        Called with a line for each cell: how it went, and how long the others will take.

    Raises
    ------
    InputError
        Before the first cell: something that must be there is not, or the folder is another experiment's.
    """
    with writing(folder, "output", "a folder that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        state = _read(matrix, folder)
        check(matrix, folder)
        for name, value in facts(matrix, folder).items():
            known = state.facts.setdefault(name, [])
            if value not in known:
                known.append(value)
        order = cells(matrix)
        for cell in order:
            known_cell = state.cells.get(cell.name)
            if known_cell and known_cell.status == "running":
                _clear(matrix, cell, folder, known_cell)
            if not known_cell or known_cell.status == "running" or (retry and known_cell.status == "failed"):
                _run(matrix, cell, folder, state)
                report(_progress(cell, order, state))
        return Ended(folder, state, write_params(matrix, folder, state), write_scraped(matrix, folder, state))


def check(matrix: Matrix, folder: Path) -> None:
    """Refuse to start without credentials, targets, and whatever the checks ask for."""
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
        code, said = said_by(command.filled({"root": str(root())}), folder)
        if code:
            raise _fault(matrix, ("checks", i), "a command that succeeds", f"exit code {code}: {hider(matrix)(said)}")
    if matrix.source is not None:
        from buildcompare.recordings.prometheus_client import Client

        with contextlib.closing(Client(matrix.source, str(matrix.source.url))) as client:
            client.server()


def facts(matrix: Matrix, folder: Path) -> dict[str, str]:
    """What the cells run on, for the setup table; what the machine does not tell is left out."""

    def first(file: str, key: str = "") -> str:
        try:
            lines = Path(file).read_text("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.partition(":")[2].strip() if key else line for line in lines if line.startswith(key)), "")

    found = {
        "Kernel": f"{platform.system()} {platform.release()}",
        "CPU": first("/proc/cpuinfo", "model name") or platform.processor(),
        "Cores": str(os.cpu_count() or ""),
        "Memory": first("/proc/meminfo", "MemTotal"),
        "CPU governor": first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }
    for name, command in matrix.versions.items():
        code, said = said_by(command.filled({"root": str(root())}), folder)
        found[name] = "" if code else said
    return {name: value for name, value in found.items() if value}


def write_params(matrix: Matrix, folder: Path, state: State) -> Path:
    """Write the params file that ``notebooks/variants.ipynb`` reads: every cell that is done, and what they ran on.

    A repeat is a block: its cells ran one after another, so what drifts slowly is shared by them. The file is called
    like the experiment, as its report's folder will be.
    """
    runs, fits = [], _fits(folder / CELLS)
    for cell in cells(matrix):
        known = state.cells.get(cell.name)
        if known and known.status == "done":
            result, place = dict(known.result), folder / CELLS / cell.name
            if "pgbench" in result:
                result["pgbench"] = _named(place / result["pgbench"])
            left = {"artefacts": [_named(place)]} if fits else {}
            runs.append({"levels": dict(cell.levels), "block": str(cell.repeat), **result, **left})
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
    """Write what `calibrate` and `report` read of the recordings that a Prometheus gave, where the cells have them.

    ``groups.yaml`` holds the runs of each combination as repeated runs. Where two variants are all that there is, a
    params file of two builds is called like the experiment: the baseline as base, and a test for each workload.
    """
    if matrix.source is None:
        return ()
    found: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for cell in cells(matrix):
        known = state.cells.get(cell.name)
        if known and known.status == "done":
            run = {"recording": _named(folder / CELLS / cell.name / RECORDING)}
            found.setdefault(tuple(cell.levels.values()), []).append(run)
    shared = {"metrics": matrix.scraped, "source": {"kind": "recorded"}}
    groups = [
        {"name": "-".join(map(slugify, levels)), "type": "bounded", "runs": runs}
        for levels, runs in sorted(found.items())
        if len(runs) > 1
    ]
    written = [_write(folder / GROUPS, {**shared, "groups": groups})] if groups else []
    if [len(levels) for levels in matrix.treatments.values()] != [2] or not found:
        return tuple(written)
    [(factor, levels)] = matrix.treatments.items()
    base = matrix.baseline.get(factor, levels[0])
    new = next(level for level in levels if level != base)
    tests = []
    for chosen in itertools.product(*(matrix.factors[name] for name in matrix.workload)):
        task = dict(zip(matrix.workload, chosen, strict=True))
        sides = [found.get(tuple({**task, factor: level}[name] for name in matrix.factors)) for level in (base, new)]
        if all(sides):
            name = "-".join(slugify(f"{each} {level}") for each, level in task.items()) or matrix.name
            tests.append({"name": name, "type": "bounded", "base": sides[0], "new": sides[1]})
    if tests:
        labels = {"base": {"label": f"{factor} {base}"}, "new": {"label": f"{factor} {new}"}}
        params = {"name": matrix.name, **labels, **shared, "tests": tests, "setup": _setup(matrix, state)}
        written.append(_write(folder / f"{matrix.name}.yaml", params))
    return tuple(written)


def _setup(matrix: Matrix, state: State) -> dict[str, str]:
    """The rows of the setup table: what the matrix states, the machine's facts, the order, and what failed."""
    facts = {name: " → ".join(values) for name, values in state.facts.items()}
    failed = {name: each.fault for name, each in state.cells.items() if each.status == "failed"}
    told = {say("experiment", "failed_row"): say("experiment", "failed_cells", failed)} if failed else {}
    done = sum(each.status == "done" for each in state.cells.values())
    return {**matrix.setup, **facts, say("experiment", "order_row"): say("experiment", "order", matrix, done), **told}


def _named(file: Path) -> str:
    """A path as a params file names it: from the project's root where it lies there."""
    return str(file.relative_to(root()) if file.is_relative_to(root()) else file)


def _write(file: Path, params: dict[str, Any]) -> Path:
    write_files({file: yaml.safe_dump(params, sort_keys=False, allow_unicode=True)})
    return file


def _fits(folder: Path) -> bool:
    """Whether a report may carry all that the cells left behind."""
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return len(sizes) <= artefacts.MAX_FILES and sum(sizes) <= artefacts.MAX_BYTES


def _run(matrix: Matrix, cell: Cell, folder: Path, state: State) -> None:
    place = folder / CELLS / cell.name
    if place.exists():
        shutil.rmtree(place)
    place.mkdir(parents=True)
    processes: list[tuple[int, str]] = []

    def keep(known: CellState) -> None:
        state.cells[cell.name] = known
        write_files({folder / STATE: json.dumps(state.model_dump(mode="json"), indent=1, ensure_ascii=False)})

    def told(process: int) -> None:
        processes.append((process, _born(process)))
        keep(CellState(status="running", processes=list(processes)))

    keep(CellState(status="running"))
    began = time.monotonic()
    try:
        found: dict[str, Any] = {"status": "done", **run_cell(matrix, cell, place, told)}
    except CellError as error:
        found = {"status": "failed", "fault": str(error)}
    keep(CellState(seconds=time.monotonic() - began, **found))


def _clear(matrix: Matrix, cell: Cell, folder: Path, known: CellState) -> None:
    """End what an interrupted cell left running, and tear it down: it is run again as a whole."""
    for process, born in known.processes:
        if born and _born(process) == born:
            end_group(process)
    place = folder / CELLS / cell.name
    place.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(CellError):  # its set-up may not have come so far
        tear_down(matrix, cell, place, lambda _: None)


def _born(process: int) -> str:
    """On which machine and when a process was started, as the system counts it; empty where there is none.

    On Linux that is since the machine was started, and among the processes of one container.
    """
    try:
        since = Path(f"/proc/{process}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')} {since}"
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(process)], capture_output=True, text=True, check=False)
    return asked.stdout.strip() and f"{platform.node()} {asked.stdout.strip()}"


def _read(matrix: Matrix, folder: Path) -> State:
    """The state of the folder; an :class:`InputError` where it is that of another experiment."""
    file = folder / STATE
    if not file.exists():
        if any(each.name != "lock" for each in folder.iterdir()):
            expected = "a new or empty folder, or one of this experiment"
            raise InputError(file=folder, key="output", expected=expected, found="other files")
        return State(key=matrix.key)
    try:
        state = State.model_validate_json(file.read_bytes(), strict=False)
    except (ValidationError, OSError):
        raise InputError(file=file, key=None, expected="the state of an experiment", found="something else") from None
    if state.key != matrix.key:
        expected = "the experiment that this folder was begun with"
        raise InputError(file=file, key=None, expected=expected, found="another matrix (give it a folder of its own)")
    return state


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second run out of the folder."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(file=folder, key="output", expected="no other run at work in it", found="one") from None
        yield


def _progress(cell: Cell, order: list[Cell], state: State) -> str:
    known = [state.cells[each.name] for each in order if each.name in state.cells]
    left = len(order) - len(known)
    seconds = sum(each.seconds for each in known) / len(known) * left
    return say("experiment", "progress", cell, state.cells[cell.name], len(known), len(order), seconds)


def _fault(matrix: Matrix, location: tuple[str | int, ...], expected: str, found: str) -> InputError:
    return matrix.fault_at(location, InputError(file=None, key=None, expected=expected, found=found))
