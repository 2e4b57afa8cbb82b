"""Read recordings from tables: buildcompare's Parquet, and samples as Parquet or text (CSV, may be gzipped).

buildcompare's Parquet has a row for each series or label summary; the file's metadata hold the rest. Regular times are
stored as a start and a step, others one by one. A round trip changes no bit.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
from pydantic import BaseModel, Field, FiniteFloat, TypeAdapter

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.outside import everywhere, shown
from buildcompare.config.project import write_files
from buildcompare.recordings.files import MAX_COLUMNS, FileSource, InputFile, read_input
from buildcompare.recordings.frames import (
    EXPECTED_COLUMNS,
    SEPARATOR,
    clock_of,
    numbers_of,
    read_frame,
    with_decimal_points,
)
from buildcompare.recordings.parquet import KEY, THREADS, damaged, is_whole, open_table, sealed
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import FloatArray, LabelSummary, Note, NoteKind, Role, Series, span

LABEL_COLUMNS = ("group", "label", "stat", "value")
EXPECTED = f"a recording: Parquet, or a CSV with the columns {EXPECTED_COLUMNS} (may be gzipped)"
EXPECTED_OURS = "a recording that this project wrote"
FORMAT = "buildcompare-recording-2"
"""Format of new files, which carry a seal; format 1 has none."""
NO_CHECKSUM = Note(
    "source", "Its file was written by an earlier version, without a checksum: damage to it would not be noticed."
)
MAX_SERIES = 100_000
"""Most rows of a recording; it protects memory, as each row becomes several objects."""
_LABELS = TypeAdapter(dict[str, str])
_TEXTS = ("metric", "name", "unit", "role", "stat", "labels")
_SCHEMA = pa.schema(
    [(name, pa.string()) for name in _TEXTS]
    + [("start", pa.float64()), ("step", pa.float64())]
    + [("times", pa.list_(pa.float64())), ("values", pa.list_(pa.float64()))]
)


def read_table(file: InputFile, catalogue: Catalogue) -> Recording:
    """Read every sample of a table, NaN included."""
    origin: dict[str, object] = {"kind": "recorded", "files": [file.provenance]}
    if file.contents.startswith(b"PAR1"):
        table = open_table(file)
        if KEY in (table.schema.metadata or {}):
            recording = read_recording(table, file)
            return replace(recording, provenance={**recording.provenance, **origin})
        frame: pd.DataFrame = table.to_pandas()
    else:
        frame = _read_delimited(file, EXPECTED_COLUMNS, _fits)
    series, notes = read_frame(frame, catalogue, file)
    window = span(series)
    assert window is not None  # no table is empty
    return Recording(series, window, stop_known=False, notes=notes, provenance=origin)


def _fits(header: list[str]) -> bool:
    return len(header) > 1 and clock_of(header) is not None


def is_text(contents: bytes) -> bool:
    """Test by its first bytes whether a file may be a table of text, not JSON, Parquet or a workbook."""
    return contents.lstrip()[:1] not in (b"{", b"[", b"") and not contents.startswith((b"PAR1", b"PK\x03\x04"))


SOURCE = FileSource(EXPECTED, read_table, lambda contents: contents.lstrip()[:1] not in (b"{", b"["))


def with_labels(recording: Recording, path: str) -> Recording:
    """Add the label values of the table at `path` to a recording."""
    files = recording.provenance["files"]
    if recording.label_summaries:
        expected = "no `labels` beside a recording that holds its own"
        raise InputError(file=str(files[0]["path"]), key="labels", expected=expected, found=repr(path))
    names = ", ".join(LABEL_COLUMNS)
    file = read_input(path, expected=f"a CSV with the columns {names} (may be gzipped)")
    frame = _read_delimited(file, names, {*LABEL_COLUMNS}.issubset)
    twice = np.flatnonzero(frame.duplicated(["group", "label", "stat"]))
    if twice.size:
        place = f"line {frame.index[twice[0]]}"
        raise file.fault(place, "one value for each group, label and stat", "a second one")
    values = numbers_of(with_decimal_points(frame, ["value"], file)["value"], file, "seconds")
    rows = zip(frame["group"], frame["label"], frame["stat"], map(float, values), strict=True)
    provenance = {**recording.provenance, "files": [*files, file.provenance]}
    return replace(recording, label_summaries=tuple(LabelSummary(*row) for row in rows), provenance=provenance)


def _read_delimited(file: InputFile, expected: str, fits: Callable[[list[str]], bool]) -> pd.DataFrame:
    """Read every field as text, with the file's lines as the index.

    The separator is comma, semicolon or tab, whichever splits the header so that `fits` accepts it; `expected`
    describes such a header in messages.
    """
    from pyarrow import csv as pa_csv  # imported late: only CSV files need it

    contents = _as_utf8(file)
    lines = io.BytesIO(contents)
    marked = re.match(rb"sep=[^\r\n]*\r?\n", contents, re.IGNORECASE) and lines.readline()  # for spreadsheets
    try:
        line = lines.readline().decode("utf-8-sig")
        headers = {mark: next(csv.reader(line.splitlines(), delimiter=mark), []) for mark in ",;\t"}
        separators = [mark for mark, header in headers.items() if fits([name.strip() for name in header])]
        header = headers[separators[0]] if len(separators) == 1 else max(headers.values(), key=len)
        if len(header) > MAX_COLUMNS:
            raise file.fault("columns", f"at most {MAX_COLUMNS}", str(len(header)))
        if len(separators) != 1:
            raise file.fault("columns", expected, ", ".join(map(repr, header[:8])) or "none")
        if twice := sorted({name for name in header if name and header.count(name) > 1}):
            raise file.fault("columns", "each name once", f"{twice[0]!r} twice")
        names = [name.strip() for name in header]
        table = pa_csv.read_csv(
            pa.BufferReader(contents),
            pa_csv.ReadOptions(column_names=names, skip_rows=2 if marked else 1, use_threads=THREADS),
            pa_csv.ParseOptions(delimiter=separators[0], newlines_in_values=True),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
        )
    except UnicodeDecodeError as error:
        expected = "text in UTF-8 (spreadsheets: save as 'CSV UTF-8')"
        raise file.fault(f"byte {error.start}", expected, "bytes that are not") from None
    except (pa.ArrowException, csv.Error) as error:
        raise file.fault(None, f"a CSV with the columns {expected}", " ".join(str(error).split())[:120]) from None
    if not table.num_rows:
        raise file.fault("rows", "at least one", "none")
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)  # Python's strings need 20 times the memory
    empty = [i for i, name in enumerate(names) if i and not name and not (frame.iloc[:, i] != "").any()]
    frame = frame.iloc[:, [i for i in range(len(names)) if i not in empty]]  # a separator ends each line
    frame = frame.set_axis(pd.RangeIndex(frame.shape[0]) + (3 if marked else 2), axis=0)
    frame.attrs[SEPARATOR] = separators[0]
    return frame


def _as_utf8(file: InputFile) -> bytes:
    if file.contents.startswith(b"PK\x03\x04"):
        raise file.fault(None, "a CSV (spreadsheets: save as 'CSV UTF-8')", "a workbook")
    if file.contents[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return file.contents.removeprefix(b"\xef\xbb\xbf")
    try:
        return file.contents.decode("utf-16").encode()
    except UnicodeDecodeError as error:
        place, expected = f"byte {error.start}", "text in UTF-16, as its first bytes say"
        raise file.fault(place, expected, "bytes that are not") from None


# ---- buildcompare's Parquet -----------------------------------------------------------------------------------------


def write_recording(recording: Recording, file: Path) -> None:
    """Write `recording` to `file`, whole or not at all."""
    rows: list[dict[str, Any]] = []
    for series in recording.series:
        row = {name: getattr(series, name) for name in _TEXTS} | _clock(series.times)
        rows.append({**row, "labels": json.dumps(dict(series.labels), sort_keys=True), "values": series.values})
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
    schema = _SCHEMA.with_metadata({KEY: json.dumps(head, sort_keys=True).encode()})
    encoding = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in ("times", "values")}
    kept: dict[str, Any] = {"use_dictionary": ["role", "unit", "stat", "metric", "name"], "column_encoding": encoding}
    table = pa.Table.from_pylist(rows, schema=schema)
    write_files({file: sealed(table, compression="zstd", compression_level=9, **kept)})


class Head(BaseModel, strict=True):
    """Metadata of a recording in buildcompare's Parquet."""

    format: Literal["buildcompare-recording-2", "buildcompare-recording-1"]
    window: Annotated[tuple[FiniteFloat, FiniteFloat], Field(strict=False)]
    stop_known: bool
    notes: list[Annotated[tuple[NoteKind, str], Field(strict=False)]]
    provenance: dict[str, Any]


def read_head(table: pa.Table, file: InputFile) -> Head:
    """Read the metadata of the recording in `file`."""
    try:
        head = Head.model_validate_json((table.schema.metadata or {})[KEY])
    except (KeyError, ValueError) as error:
        raise file.fault("contents", EXPECTED_OURS, str(error)) from None
    if head.format == FORMAT and not is_whole(file.contents):
        raise damaged(file)
    return head


def read_recording(table: pa.Table, file: InputFile) -> Recording:
    """Read the recording that :func:`write_recording` wrote to `file`."""
    head = read_head(table, file)
    if table.num_rows > MAX_SERIES:
        raise file.fault("series", f"at most {MAX_SERIES:,}", f"{table.num_rows:,}")
    try:
        rows = table.cast(_SCHEMA.with_metadata(table.schema.metadata))
        nulls = [name for name in (*_TEXTS, "values") if rows[name].null_count]
        if nulls:
            raise file.fault(nulls[0], "a value in each row", "none")
        series, summaries, roles = [], [], get_args(Role)
        texts, clock = (
            (rows[name].to_pylist() for name in _TEXTS),
            (rows[name].to_numpy() for name in ("start", "step")),
        )
        samples = _lists(rows["times"]), _lists(rows["values"])
        for *told, start, step, times, values in zip(*texts, *clock, *samples, strict=True):
            own = dict(zip(_TEXTS, told, strict=True))
            if own["role"] == "summary":
                summaries.append(LabelSummary(own["metric"], own["name"], own["stat"], float(values[0])))
            elif own["role"] not in roles:
                raise file.fault("role", f"one of {', '.join(roles)}, summary", repr(own["role"]))
            else:
                own |= {"values": values, "labels": _LABELS.validate_json(own["labels"])}
                series.append(Series(times=_grid(start, step, values.size) if times is None else times, **own))
    except (KeyError, TypeError, ValueError, IndexError) as error:  # pyarrow's and pydantic's are ValueErrors
        raise file.fault("contents", EXPECTED_OURS, f"{type(error).__name__}: {error}") from None
    notes = [Note(kind, text) for kind, text in head.notes]
    return Recording(
        series=tuple(series),
        window=head.window,
        stop_known=head.stop_known,
        label_summaries=tuple(summaries),
        notes=tuple(notes if head.format == FORMAT else [*notes, NO_CHECKSUM]),
        provenance=everywhere(head.provenance, shown),
    )


def _lists(column: pa.ChunkedArray) -> list[FloatArray | None]:
    """Convert a column of lists to arrays, None for null; a missing value is NaN."""
    lists = column.combine_chunks()
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    parts = np.split(lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64), ends[:-1])
    return [part if valid else None for part, valid in zip(parts, lists.is_valid().to_pylist(), strict=True)]


def _clock(times: FloatArray) -> dict[str, Any]:
    """Encode regular times as start and step, others as a list."""
    if times.size == 0:
        return {}
    start, step = float(times[0]), float(times[1] - times[0]) if times.size > 1 else 0.0
    regular = np.array_equal(_grid(start, step, times.size), times)
    return {"start": start, "step": step} if regular else {"times": times}


def _grid(start: float, step: float, size: int) -> FloatArray:
    if size and not np.isfinite([start, step]).all():
        raise ValueError(f"a grid from {start} by {step}")
    return start + np.arange(size, dtype=np.float64) * step
