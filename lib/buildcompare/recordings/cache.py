"""Keeps what was pulled from a server: a recording is pulled once, whole or not at all, and read from then on.

``data/recordings/<comparison>/<test>/<build>.parquet`` (``<build>-2.parquet`` and so on for repeated runs). Each file
remembers what it was asked for; a changed window, address, step or query pulls anew. A pull that was interrupted goes
on with the runs that are still missing.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run, Source
from buildcompare.config.project import resolve, root
from buildcompare.recordings.parquet import is_recording, read_recording, write_recording
from buildcompare.recordings.recording import Recording

FOLDER = Path("data/recordings")
REQUEST = "request"
"""Key of the provenance under which a pulled recording keeps the hash of what was asked for."""


@dataclass(frozen=True)
class Slot:
    """The place of one pulled run."""

    comparison: str
    test: str
    build: str
    run: int
    """Counted from 1."""

    @property
    def path(self) -> str:
        """Relative to the project's root."""
        name = self.build if self.run == 1 else f"{self.build}-{self.run}"
        return str(FOLDER / self.comparison / self.test / f"{name}.parquet")


def request_of(run: Run, source: Source, catalogue: Catalogue) -> str:
    """A hash of everything that decides what a server answers; how it is reached does not."""
    asked = {
        "window": [instant.isoformat() for instant in run.window or ()],
        "url": run.url or source.url,
        "kind": source.kind,
        "steps": {name: value for name, value in source.model_dump(mode="json").items() if name.endswith("step_s")},
        "catalogue": catalogue.model_dump(mode="json"),
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def cached(slot: Slot, request: str) -> Recording | None:
    """The recording in `slot`, if it answers `request`.

    Raises
    ------
    InputError
        Where something stands there that was not pulled: it is not ours to replace.
    """
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
        raise InputError(
            file=slot.path,
            key="pulled recording",
            expected="a recording that was pulled before, or no file (name the comparison otherwise, or move it away)",
            found="another file",
        )
    if recording.provenance[REQUEST] != request:
        return None
    files = [{"path": slot.path, "sha256": hashlib.sha256(contents).hexdigest(), "bytes": len(contents)}]
    return replace(recording, provenance={**recording.provenance, "files": files})


def keep(slot: Slot, recording: Recording, request: str) -> Recording:
    """Write what was pulled into `slot`, whole, and give it back as it will be read."""
    write_recording(replace(recording, provenance={**recording.provenance, REQUEST: request}), root() / slot.path)
    kept = cached(slot, request)
    if kept is None:
        raise InputError(file=slot.path, key="pulled recording", expected="what was just written", found="another file")
    return kept
