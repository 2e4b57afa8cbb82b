"""Recordings in Parquet: one row per series or label summary, and everything else in the file's metadata.

Regular times are a start and a step, irregular ones are written out: what is read equals what was written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from buildcompare.config.errors import InputError
from buildcompare.recordings.recording import FloatArray, LabelSummary, Note, Recording, Series

if TYPE_CHECKING:
    import pyarrow.parquet as pq

FORMAT = "buildcompare-recording-1"
MAX_SERIES = 100_000
"""Bound on the rows of a recording, each of which becomes objects."""
_KEY = b"buildcompare"
_TEXTS = ("metric", "name", "unit", "role", "stat", "labels")
_SCHEMA = pa.schema(
    [(name, pa.string()) for name in _TEXTS]
    + [("start", pa.float64()), ("step", pa.float64())]
    + [("times", pa.list_(pa.float64())), ("values", pa.list_(pa.float64()))]
)


def write_recording(recording: Recording, file: Path) -> None:
    """Write `recording` to `file`, whole or not at all."""
    import pyarrow.parquet as pq

    rows = [_series_row(series) for series in recording.series]
    for each in recording.label_summaries:
        row = {"metric": each.group, "name": each.label, "unit": "", "role": "summary", "stat": each.stat}
        rows.append({**row, "labels": "{}", "values": np.array([each.value])})
    head = {
        "format": FORMAT,
        "window": list(recording.window),
        "stop_known": recording.stop_known,
        "notes": [[note.kind, note.text] for note in recording.notes],
        "provenance": dict(recording.provenance),
    }
    schema = _SCHEMA.with_metadata({_KEY: json.dumps(head, sort_keys=True).encode()})
    table = pa.Table.from_pylist(rows, schema=schema)
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        encoding = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in ("times", "values")}
        kept = {"use_dictionary": ["role", "unit", "stat", "metric", "name"], "column_encoding": encoding}
        pq.write_table(table, beside, compression="zstd", compression_level=9, **kept)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def is_recording(file: pq.ParquetFile) -> bool:
    """Whether an open Parquet file was written by :func:`write_recording`."""
    return _KEY in (file.schema_arrow.metadata or {})


def read_head(schema: pa.Schema) -> dict[str, Any]:
    """What a file that :func:`write_recording` wrote says of its recording beside the series."""
    return dict(json.loads((schema.metadata or {})[_KEY]))


def read_recording(source: pq.ParquetFile, file: str | Path) -> Recording:
    """Read what :func:`write_recording` wrote (`file` is named in errors)."""
    try:
        head = read_head(source.schema_arrow)
        if head["format"] != FORMAT:
            raise InputError(file=file, key="format", expected=FORMAT, found=repr(head["format"]))
        if source.metadata.num_rows > MAX_SERIES:
            found = f"{source.metadata.num_rows:,}"
            raise InputError(file=file, key="series", expected=f"at most {MAX_SERIES:,}", found=found)
        table = source.read().combine_chunks()
        rows = table.drop_columns(["times", "values"]).to_pylist()
        for name in ("times", "values"):  # as arrays of numpy
            for row, scalar in zip(rows, table.column(name), strict=True):
                row[name] = scalar.values.to_numpy(zero_copy_only=False) if scalar.is_valid else None
        series, summaries = [], []
        for row in rows:
            if row["role"] == "summary":
                summaries.append(LabelSummary(row["metric"], row["name"], row["stat"], float(row["values"][0])))
            else:
                values = np.asarray(row["values"], dtype=np.float64)
                times = _grid(row["start"], row["step"], values.size) if row["times"] is None else row["times"]
                own = {**{name: row[name] for name in _TEXTS}, "labels": json.loads(row["labels"])}
                series.append(Series(times=np.asarray(times, dtype=np.float64), values=values, **own))
        return Recording(
            series=tuple(series),
            window=(float(head["window"][0]), float(head["window"][1])),
            stop_known=bool(head["stop_known"]),
            label_summaries=tuple(summaries),
            notes=tuple(Note(kind, text) for kind, text in head["notes"]),
            provenance=head["provenance"],
        )
    except (KeyError, TypeError, ValueError, IndexError, pa.ArrowException) as error:
        found = f"{type(error).__name__}: {error}"
        raise InputError(file=file, key="contents", expected="a whole recording", found=found) from None


def _grid(start: float | None, step: float | None, size: int) -> FloatArray:
    return np.float64(start) + np.arange(size) * np.float64(step) if size else np.empty(0)


def _series_row(series: Series) -> dict[str, Any]:
    times = series.times
    start = float(times[0]) if times.size else None
    step = float(times[1] - times[0]) if times.size > 1 else None if start is None else 0.0
    regular = np.array_equal(_grid(start, step, times.size), times)
    return {
        **{name: getattr(series, name) for name in _TEXTS},
        "labels": json.dumps(dict(series.labels), sort_keys=True),
        "start": start if regular else None,
        "step": step if regular else None,
        "times": None if regular else times,
        "values": series.values,
    }
