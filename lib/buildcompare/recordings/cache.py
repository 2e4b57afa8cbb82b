"""Reads the runs of a comparison, and keeps what was pulled in ``data/recordings/<comparison>/<test>/<build>.parquet``.

Each file remembers what it was asked for: a changed window, address, step or query pulls anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run, Source
from buildcompare.config.project import resolve, root
from buildcompare.recordings.parquet import is_recording, read_head, read_recording, write_recording
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import record
from buildcompare.results.codes import Side

REQUEST = "request"
"""Key of the provenance under which a pulled recording keeps the hash of what was asked for."""


@dataclass(frozen=True)
class Slot:
    """The place of one pulled run; runs count from 1."""

    comparison: str
    test: str
    build: Side
    run: int

    @property
    def path(self) -> str:
        """Relative to the project's root."""
        name = self.build if self.run == 1 else f"{self.build}-{self.run}"
        return str(Path("data/recordings", self.comparison, self.test, f"{name}.parquet"))


def read_run(run: Run, source: Source, catalogue: Catalogue, slot: Slot, *, refresh: bool = False) -> Recording:
    """Read one run; what is pulled for it is kept in `slot`, and pulled again only with `refresh`."""
    if not run.is_pulled:
        return record(run, source, catalogue)
    request = _request(run, source, catalogue)
    kept = _kept(slot, request)
    if kept is None or refresh:
        recording = record(run, source, catalogue)
        write_recording(replace(recording, provenance={**recording.provenance, REQUEST: request}), root() / slot.path)
        kept = _kept(slot, request)
    if kept is None:
        raise InputError(file=slot.path, key="pulled recording", expected="what was just written", found="another file")
    return kept


def is_kept(slot: Slot, run: Run, source: Source, catalogue: Catalogue) -> bool:
    """Whether `run` was pulled before, by the metadata of its file alone."""
    import pyarrow.parquet as pq

    try:
        provenance = read_head(pq.read_schema(resolve(slot.path)))["provenance"]
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return False
    return bool(provenance.get(REQUEST) == _request(run, source, catalogue))


def _request(run: Run, source: Source, catalogue: Catalogue) -> str:
    """A hash of everything that decides what a server answers; how it is reached does not."""
    asked = {
        "window": [instant.isoformat() for instant in run.window or ()],
        "url": run.url or source.url,
        "kind": source.kind,
        "steps": {name: value for name, value in source.model_dump(mode="json").items() if name.endswith("step_s")},
        "catalogue": catalogue.model_dump(mode="json"),
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _kept(slot: Slot, request: str) -> Recording | None:
    """The recording in `slot`, if it answers `request`; a file that was not pulled is not ours to replace."""
    import pyarrow.parquet as pq

    file = resolve(slot.path)
    if not file.exists():
        return None
    try:
        contents = file.read_bytes()
        table = pq.ParquetFile(io.BytesIO(contents))
        recording = read_recording(table, slot.path) if is_recording(table) else None
    except (pa.ArrowException, OSError):
        recording = None
    if recording is None or REQUEST not in recording.provenance:
        expected = "a recording that was pulled before, or no file (name the comparison otherwise, or move it away)"
        raise InputError(file=slot.path, key="pulled recording", expected=expected, found="another file")
    if recording.provenance[REQUEST] != request:
        return None
    files = [{"path": slot.path, "sha256": hashlib.sha256(contents).hexdigest(), "bytes": len(contents)}]
    return replace(recording, provenance={**recording.provenance, "files": files})


@contextlib.contextmanager
def pull_progress(runs: int) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Show how far a pull of `runs` has come: yields a context to pull each in, made with the words to show."""
    if not runs:
        yield lambda words: contextlib.nullcontext()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not (console.is_terminal or console.is_jupyter)) as progress:
        task = progress.add_task("recordings", total=runs)

        @contextlib.contextmanager
        def step(words: str) -> Iterator[None]:
            progress.update(task, description=words)
            yield
            progress.advance(task)

        yield step
        progress.update(task, description="recordings")
        progress.refresh()  # in a notebook rich leaves the last but one state standing
