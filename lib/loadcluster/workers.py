"""Publish reports on the workers of a Dask cluster, which get every input as bytes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from buildcompare.config.errors import ExecutionError, InputError, named
from buildcompare.config.project import resolve
from buildcompare.config.remote import is_remote
from buildcompare.report import processes
from buildcompare.report.batch import Order, Outcome, failed, guarded, publish_here, published


@contextlib.contextmanager
def cluster(address: str) -> Iterator[tuple[Callable[[Order], Outcome], int]]:
    """Connect to a Dask cluster; yield the function that publishes there, and its number of cores."""
    try:
        import distributed

        connect: Any = distributed.Client  # it has no types
        client = connect(address, timeout=10)
    except (ImportError, OSError, ValueError) as error:
        expected = "the address of a Dask scheduler, such as tcp://host:8786 (with buildcompare[dask] installed)"
        found = f"{address!r} ({str(error)[:100] or type(error).__name__})"
        raise InputError(file=None, key="--dask", expected=expected, found=found) from None
    with client:
        yield partial(publish_elsewhere, client.get_executor(pure=False)), sum(client.ncores().values())


@dataclass(frozen=True)
class Bundle:
    """All inputs of a report for a worker."""

    order: Order
    folder: str
    """Folder of the report on the local machine."""
    shown: str
    """Path of the params file in the project."""
    code: str
    files: dict[Path, bytes]
    """Files by their paths in the worker's folder, with README.md and results.json of the current report, if any."""


def publish_elsewhere(executor: Executor, order: Order) -> Outcome:
    """Publish a report that a worker of `executor` makes in a temporary folder from the sent bytes."""
    try:
        packed = processes.in_child(_pack, order)
        if isinstance(packed, Outcome):
            return packed
        outcome, files = executor.submit(_work, packed).result()
        return processes.in_child(_put, order, files, outcome) if outcome.code == 0 else outcome
    except ExecutionError as error:
        return failed(order.params, error)
    except Exception as error:  # a cluster that ends raises its library's errors
        return failed(order.params, f"{type(error).__name__}: {error}")


def _pack(order: Order) -> Bundle | Outcome:
    """Pull and check the inputs of a report; return an outcome instead if it is current or faulty."""
    from buildcompare.comparison import reading
    from buildcompare.comparison.inputs import code_sha256, files_of
    from buildcompare.config.kinds import kind_of
    from buildcompare.config.params import Comparison, params_of
    from buildcompare.config.yaml import read_yaml
    from buildcompare.history.ledger import ledger_of
    from buildcompare.report import publication, publish

    def pack(output: Path | None) -> Bundle | Outcome:
        document = read_yaml(order.params)
        kind = kind_of(document)
        params = kind.read(order.params) if kind else params_of(document, order.params)
        if isinstance(params, Comparison):
            reading.pull_recordings(params, quiet=True)
        folder, shown = publish.folder_of(order.params, output), publish.shown_as(order.params)
        if order.resume:
            ledger = ledger_of(params) if isinstance(params, Comparison) else None
            made_from = publish.made_from(params, ledger, order.params, folder, graphs=order.graphs)
            if made_from and (kept := publication.whole(folder, made_from)):
                return published(order, publish.Published(folder, kept, kept=True))
        inputs = {path: resolve(path).read_bytes() for path in files_of(params) if resolve(path).is_file()}
        inputs |= publish.pictures_of(params, folder)
        files = {_place(path): contents for path, contents in inputs.items()}
        files[_place(shown)] = order.params.read_bytes()
        stands = (folder / name for name in (publication.README, publication.RESULTS))
        files |= {Path("output", order.params.stem, each.name): each.read_bytes() for each in stands if each.is_file()}
        return Bundle(order, named(folder), shown, code_sha256(), files)

    return guarded(order, pack)


def _place(path: str) -> Path:
    """Return the place of an input in a worker's folder, where `resolve` looks for it."""
    if is_remote(path) or Path(path).is_absolute():
        return Path("copies", *path.lstrip("/").split("://", 1))
    return Path("root", path)


def _work(bundle: Bundle) -> tuple[Outcome, dict[Path, bytes]]:
    """Make a report on a worker; return its files by name."""
    if not processes.is_safe():
        return failed(bundle.order.params, "the worker cannot fork processes"), {}
    with tempfile.TemporaryDirectory(prefix="buildcompare-") as place:
        here = Path(place)
        _write(bundle.files, here)
        params, output = here / _place(bundle.shown), here / "output" / bundle.order.params.stem
        environment = {"BUILDCOMPARE_ROOT": str(here / "root"), "BUILDCOMPARE_COPIES": str(here / "copies")}
        order = replace(bundle.order, params=params, output=output, resume=False, refresh=False)
        try:
            outcome = processes.in_child(_made_there, order, environment, bundle.code)
        except ExecutionError as error:
            outcome = failed(params, error)
        printed = outcome.printed.replace(str(params), str(bundle.order.params)).replace(str(output), bundle.folder)
        made = {file.relative_to(output): file.read_bytes() for file in output.rglob("*") if file.is_file()}
        return replace(outcome, printed=printed), made if outcome.code == 0 else {}


def _write(files: Mapping[Path, bytes], folder: Path) -> None:
    for name, contents in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(contents)


def _made_there(order: Order, environment: dict[str, str], code: str) -> Outcome:
    from buildcompare.comparison.inputs import code_sha256

    if code_sha256() != code:
        return failed(order.params, "the worker has other code or other versions of packages")
    os.environ.update(environment)
    return publish_here(order)


def _put(order: Order, files: dict[Path, bytes], outcome: Outcome) -> Outcome:
    """Put the files of a worker in place, all or none."""
    from buildcompare.report import publication, publish

    def put(output: Path | None) -> Outcome:
        with publication.staged(publish.folder_of(order.params, output)) as staging:
            _write(files, staging)
        return outcome

    return guarded(order, put)
