"""Recordings in Parquet: one row per series, zstd, and everything else in the file's metadata.

A label summary is a row too, with one value and no times. Regular times are a start and a step; irregular
ones are written out, so that what is read equals what was written to the last bit.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from buildcompare.config.errors import InputError
from buildcompare.recordings.recording import FloatArray, LabelSummary, Note, Recording, Series

FORMAT = "buildcompare-recording-1"
MAX_SERIES = 100_000
"""Bound on the rows of a recording, each of which becomes objects."""
_KEY = b"buildcompare"
_SCHEMA = pa.schema(
    [
        ("metric", pa.string()),
        ("name", pa.string()),
        ("unit", pa.string()),
        ("role", pa.string()),
        ("stat", pa.string()),
        ("labels", pa.string()),
        ("start", pa.float64()),
        ("step", pa.float64()),
        ("times", pa.list_(pa.float64())),
        ("values", pa.list_(pa.float64())),
    ]
)


def write_recording(recording: Recording, file: Path) -> None:
    """Write `recording` to `file`, whole or not at all."""
    rows = [_series_row(series) for series in recording.series]
    rows += [_summary_row(summary) for summary in recording.label_summaries]
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
        pq.write_table(
            table,
            beside,
            compression="zstd",
            compression_level=9,
            use_dictionary=["role", "unit", "stat", "metric", "name"],
            column_encoding={
                "values.list.element": "BYTE_STREAM_SPLIT",
                "times.list.element": "BYTE_STREAM_SPLIT",
            },
        )
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)


def is_recording(file: pq.ParquetFile) -> bool:
    """Whether an open Parquet file was written by :func:`write_recording`."""
    return _KEY in (file.schema_arrow.metadata or {})


def read_recording(source: pq.ParquetFile, file: str | Path) -> Recording:
    """Read what :func:`write_recording` wrote (`file` is named in errors)."""
    try:
        head = json.loads(source.schema_arrow.metadata[_KEY])
        if head["format"] != FORMAT:
            raise InputError(file=file, key="format", expected=FORMAT, found=repr(head["format"]))
        if source.metadata.num_rows > MAX_SERIES:
            found = f"{source.metadata.num_rows:,}"
            raise InputError(file=file, key="series", expected=f"at most {MAX_SERIES:,}", found=found)
        rows = _columns(source)
        series, summaries = [], []
        for row in rows:
            if row["role"] == "summary":
                summaries.append(LabelSummary(row["metric"], row["name"], row["stat"], float(row["values"][0])))
            else:
                series.append(_series(row))
        return Recording(
            series=tuple(series),
            window=(float(head["window"][0]), float(head["window"][1])),
            stop_known=bool(head["stop_known"]),
            label_summaries=tuple(summaries),
            notes=tuple(Note(kind, text) for kind, text in head["notes"]),
            provenance=head["provenance"],
        )
    except (KeyError, TypeError, ValueError, IndexError, pa.ArrowException) as error:
        raise InputError(
            file=file, key="contents", expected="a whole recording", found=f"{type(error).__name__}: {error}"
        ) from None


def _columns(source: pq.ParquetFile) -> list[dict[str, Any]]:
    """Rows as dicts whose lists are numpy arrays."""
    table = source.read().combine_chunks()
    plain = [n for n in table.column_names if n not in ("times", "values")]
    rows: list[dict[str, Any]] = table.select(plain).to_pylist()
    for name in ("times", "values"):
        column = table.column(name)
        for row, scalar in zip(rows, column, strict=True):
            row[name] = None if not scalar.is_valid else scalar.values.to_numpy(zero_copy_only=False)
    return rows


def _series(row: dict[str, Any]) -> Series:
    values = np.asarray(row["values"], dtype=np.float64)
    times = row["times"]
    if times is None:
        times = _grid(row["start"], row["step"], values.size)
    return Series(
        metric=row["metric"],
        name=row["name"],
        unit=row["unit"],
        times=np.asarray(times, dtype=np.float64),
        values=values,
        role=row["role"],
        labels=json.loads(row["labels"]),
        stat=row["stat"],
    )


def _grid(start: float | None, step: float | None, size: int) -> FloatArray:
    if size == 0:
        return np.empty(0)
    return np.float64(start) + np.arange(size) * np.float64(step)


def _series_row(series: Series) -> dict[str, Any]:
    start = float(series.times[0]) if series.times.size else None
    step = 0.0 if series.times.size == 1 else None if start is None else float(series.times[1] - series.times[0])
    regular = np.array_equal(_grid(start, step, series.times.size), series.times)
    return {
        "metric": series.metric,
        "name": series.name,
        "unit": series.unit,
        "role": series.role,
        "stat": series.stat,
        "labels": json.dumps(dict(series.labels), sort_keys=True),
        "start": start if regular else None,
        "step": step if regular else None,
        "times": None if regular else series.times,
        "values": series.values,
    }


def _summary_row(summary: LabelSummary) -> dict[str, Any]:
    return {
        "metric": summary.group,
        "name": summary.label,
        "unit": "",
        "role": "summary",
        "stat": summary.stat,
        "labels": "{}",
        "values": np.array([summary.value]),
    }
