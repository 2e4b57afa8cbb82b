"""Recordings from tables: our own Parquet; samples as Parquet, CSV or gzipped CSV; and frames of pandas.

Our own Parquet has one row per series or label summary, and everything else in the file's metadata. Regular times are a
start and a step, irregular ones are written out: what is read equals what was written.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
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
from buildcompare.recordings.delimited import (
    NUMBER,
    SEPARATOR,
    clock_of,
    grafana_title,
    instants_of,
    metric_of,
    plain_numbers,
    read_delimited,
    seconds_of,
    unit_in,
)
from buildcompare.recordings.files import MAX_GRAPHS, Curve, FileSource, InputFile, read_input, series_of
from buildcompare.recordings.grafana import suffix_factor
from buildcompare.recordings.parquet import damaged, is_whole, open_table, sealed
from buildcompare.recordings.recording import (
    FloatArray,
    LabelSummary,
    Note,
    NoteKind,
    Recording,
    Role,
    Series,
    span,
)

LABEL_COLUMNS = ("group", "label", "stat", "value")
EXPECTED_COLUMNS = "timestamp, metric, value, or a time and a column for each metric"
EXPECTED = f"a recording: Parquet, or a CSV with the columns {EXPECTED_COLUMNS} (may be gzipped)"
MAX_LABELS = 47
_NOTHING = ("", "null", "undefined")
"""What stands for no value."""
EXPECTED_OURS = "a recording that this project wrote"
FEW_DIGITS = 7
"""Whoever reads a plot writes down a few digits; an average or a rate that was computed has sixteen."""
DIGITISED = Note(
    "digitised",
    "read off a plot, as its counts are no whole numbers: fast movements are smoothed, and where two lines cross one "
    "hides the other",
)
FORMAT = "buildcompare-recording-2"
"""What is written, always with a seal; the format before it had none."""
NO_CHECKSUM = Note(
    "source", "Its file was written by an earlier version, without a checksum: damage to it would not be noticed."
)
MAX_SERIES = 100_000
"""Bound on the rows of a recording, each of which becomes objects."""
_KEY = b"buildcompare"
_LABELS = TypeAdapter(dict[str, str])
_TEXTS = ("metric", "name", "unit", "role", "stat", "labels")
_SCHEMA = pa.schema(
    [(name, pa.string()) for name in _TEXTS]
    + [("start", pa.float64()), ("step", pa.float64())]
    + [("times", pa.list_(pa.float64())), ("values", pa.list_(pa.float64()))]
)


def read_table(file: InputFile, catalogue: Catalogue) -> Recording:
    """Every sample of the table, NaN included."""
    origin: dict[str, object] = {"kind": "recorded", "files": [file.provenance]}
    if not file.contents.startswith(b"PAR1"):
        return _recording(read_delimited(file, EXPECTED_COLUMNS, _fits), catalogue, file, origin)
    table = open_table(file)
    if _KEY in (table.schema.metadata or {}):
        recording = read_recording(table, file)
        return replace(recording, provenance={**recording.provenance, **origin})
    frame: pd.DataFrame = table.to_pandas()
    return _recording(frame, catalogue, file, origin)


def _fits(header: list[str]) -> bool:
    return len(header) > 1 and clock_of(header) is not None


SOURCE = FileSource(EXPECTED, read_table, lambda contents: contents.lstrip()[:1] not in (b"{", b"["))


def with_labels(recording: Recording, path: str) -> Recording:
    """`recording` with the label values of the table at `path`."""
    files = recording.provenance["files"]
    if recording.label_summaries:
        expected = "no `labels` beside a recording that holds its own"
        raise InputError(file=str(files[0]["path"]), key="labels", expected=expected, found=repr(path))
    names = ", ".join(LABEL_COLUMNS)
    file = read_input(path, expected=f"a CSV with the columns {names} (may be gzipped)")
    frame = read_delimited(file, names, {*LABEL_COLUMNS}.issubset)
    twice = np.flatnonzero(frame.duplicated(["group", "label", "stat"]))
    if twice.size:
        raise file.fault(_row(file, frame.index, twice[0]), "one value for each group, label and stat", "a second one")
    values = _numbers(plain_numbers(frame[["value"]], file)["value"], file, "seconds")
    rows = zip(frame["group"], frame["label"], frame["stat"], map(float, values), strict=True)
    provenance = {**recording.provenance, "files": [*files, file.provenance]}
    return replace(recording, label_summaries=tuple(LabelSummary(*row) for row in rows), provenance=provenance)


def recording_of_frame(frame: pd.DataFrame, catalogue: Catalogue) -> Recording:
    """What :meth:`Recording.from_frame` returns, with the window of its samples."""
    frame = frame.rename(columns={"time": "timestamp"})
    if not {"metric", "value"} <= {*frame.columns} and "timestamp" not in frame.columns:  # wide
        frame = frame.set_axis(frame.columns.map(str), axis=1).rename_axis(index="timestamp", columns=None)
        frame = frame.melt(var_name="metric", ignore_index=False).reset_index()
    return _recording(frame.reset_index(drop=True), catalogue, InputFile(None, b"", b""), {"kind": "frame"})


def _recording(frame: pd.DataFrame, catalogue: Catalogue, file: InputFile, provenance: dict[str, object]) -> Recording:
    series = series_of(file, _curves(frame, file, catalogue), catalogue)
    window = span(series)
    assert window is not None  # no table is empty
    return Recording(series, window, stop_known=False, notes=_digitised(series), provenance=provenance)


def _curves(frame: pd.DataFrame, file: InputFile, catalogue: Catalogue) -> Iterator[Curve]:
    """The curves of a table: a sample in each row, or the times in one column and a metric in each other one."""
    clock = clock_of(frame.columns)
    known = {str(column).casefold(): column for column in frame.columns}
    if clock is None or frame.shape[1] < 2 or ("metric" in known and "value" not in known):
        raise file.fault("columns", EXPECTED_COLUMNS, ", ".join(map(repr, list(frame.columns)[:8])) or "none")
    if frame.empty:
        raise file.fault("rows", "at least one", "none")
    metric = known.get("metric", known.get("series"))
    is_long = metric is not None and "value" in known
    values = [known["value"]] if is_long else [column for column in frame.columns if column != clock]
    if SEPARATOR in frame.attrs:
        numbers = [*values, *([clock] if frame[clock].str.fullmatch(r"[\d.,]+").all() else [])]
        frame = frame.assign(**plain_numbers(frame[numbers], file))
    times = _times(frame[clock], file)
    if not is_long:
        yield from _wide(frame[values], times, file, catalogue)
        return
    labels = [column for column in frame.columns if column not in (clock, metric, *values)]
    if len(labels) > MAX_LABELS:
        raise file.fault("columns", f"at most {MAX_LABELS} beside a metric and its value", str(len(labels)))
    groups = frame.groupby([metric, *labels], sort=False, dropna=False, observed=True)
    if groups.ngroups > MAX_GRAPHS:  # before the work
        raise file.fault("metrics", f"at most {MAX_GRAPHS} series to draw", f"{groups.ngroups:,}")
    for key, indices in groups.indices.items():
        rows = np.asarray(indices)
        name, *own = key if isinstance(key, tuple) else (key,)
        if not isinstance(name, str) or not name:
            raise file.fault(f"metric, {_row(file, frame.index, rows[0])}", "a metric's name", "nothing")
        told = dict(zip(map(str, labels), map(str, own), strict=True))
        column = frame[values[0]].iloc[rows]
        read = _numbers(column, file, catalogue.find(name).unit)
        yield Curve(name, times[rows], read, told, partial(_row, file, column.index))


def _wide(frame: pd.DataFrame, times: FloatArray, file: InputFile, catalogue: Catalogue) -> Iterator[Curve]:
    """A curve for each column, named by its header or, of a panel of Grafana's, by the file's name."""
    title = grafana_title(file.path)
    for column in map(str, frame.columns):
        name, stated = unit_in(column, catalogue)
        found = metric_of(name, title, catalogue)
        if not found:
            expected = "a metric's name (or a file named as Grafana does: 'P99 API times-data-2024-12-11 10_00_00.csv')"
            raise file.fault("columns", expected, repr(column))
        labels = {"series": column} if found != name and frame.shape[1] > 1 else {}
        values = _numbers(frame[column], file, catalogue.find(found).unit, stated=stated)
        yield Curve(found, times, values, labels, partial(_row, file, frame.index))


def _digitised(series: Sequence[Series]) -> tuple[Note, ...]:
    """The note for series that were read off a plot, which counts that are no whole numbers give away."""
    counted = ("users", "goroutines")  # servers export whole numbers of them
    values = [each.values[np.isfinite(each.values) & (each.values != 0)] for each in series if each.unit in counted]
    moving = np.concatenate([np.empty(0), *values])
    if moving.size == 0 or np.mean(moving != np.rint(moving)) <= 0.5:
        return ()
    scaled = moving * 10.0 ** (FEW_DIGITS - 1 - np.floor(np.log10(np.abs(moving))))
    return (DIGITISED,) if np.mean(np.abs(scaled - np.rint(scaled)) < 1e-3) > 0.99 else ()


def _times(column: pd.Series, file: InputFile) -> FloatArray:
    """Seconds since 1970; text without a zone is UTC."""
    name, place = str(column.name), partial(_row, file, column.index)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "m":
        return np.asarray(column.dt.total_seconds())
    try:
        seconds = _floats(column)
    except (TypeError, ValueError):
        return instants_of(column, name, file, place)
    bad = np.flatnonzero(~np.isfinite(seconds))
    if bad.size:
        raise file.fault(f"{name}, {place(bad[0])}", "a time", repr(column.iloc[bad[0]]))
    return seconds_of(seconds, name, file)


def _numbers(column: pd.Series, file: InputFile, unit: str = "", *, stated: str = "") -> FloatArray:
    """Values in `unit`, from the unit behind each or `stated` by their header; a text without a value is NaN."""
    place = partial(_row, file, column.index)
    factor = suffix_factor(file, f"{column.name}, header", stated, unit) if stated else 1.0
    with contextlib.suppress(TypeError, ValueError):
        return _floats(column) * factor
    values, bare = np.empty(len(column)), []
    for i, text in enumerate(column):
        key, number = f"{column.name}, {place(i)}", NUMBER.fullmatch(str(text).strip())
        try:
            values[i] = float("nan" if text in _NOTHING else _plain(text)) * factor
            bare += [i] if np.isfinite(values[i]) and values[i] else []
        except (TypeError, ValueError):
            if number is None or not number[2]:
                raise file.fault(key, "a number or NaN", repr(text)) from None
            values[i] = float(number[1]) * suffix_factor(file, key, number[2].strip(), unit)
    if bare and not stated:
        expected = "a unit behind each value, as others have"
        raise file.fault(f"{column.name}, {place(bare[0])}", expected, repr(column.iloc[bare[0]]))
    return values


def _floats(column: pd.Series) -> FloatArray:
    """Numbers as they are; texts by Python's own parser: exact to the last bit, unlike the CSV reader's fast one."""
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return column.replace(dict.fromkeys(_NOTHING, "nan")).map(_plain).to_numpy(dtype=object).astype(np.float64)


def _plain(text: Any) -> Any:
    """A value that is no text, or a number as other programs write it too: Python reads `1_000` and other digits."""
    if isinstance(text, str) and ("_" in text or not text.isascii()):
        raise ValueError(text)
    return text


def _row(file: InputFile, rows: pd.Index, index: int) -> str:
    """Where one of these `rows` stands: in a line of a file, or in a row of a frame."""
    return f"{'row' if file.path is None else 'line'} {rows[index]}"


# ---- Our own Parquet ------------------------------------------------------------------------------------------------


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
    schema = _SCHEMA.with_metadata({_KEY: json.dumps(head, sort_keys=True).encode()})
    encoding = {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in ("times", "values")}
    kept: dict[str, Any] = {"use_dictionary": ["role", "unit", "stat", "metric", "name"], "column_encoding": encoding}
    table = pa.Table.from_pylist(rows, schema=schema)
    write_files({file: sealed(table, compression="zstd", compression_level=9, **kept)})


class Head(BaseModel, strict=True):
    """What our Parquet says of its recording beside the series."""

    format: Literal["buildcompare-recording-2", "buildcompare-recording-1"]
    window: Annotated[tuple[FiniteFloat, FiniteFloat], Field(strict=False)]
    stop_known: bool
    notes: list[Annotated[tuple[NoteKind, str], Field(strict=False)]]
    provenance: dict[str, Any]


def read_head(table: pa.Table, file: InputFile) -> Head:
    """What the table of `file` says of its recording beside the series."""
    try:
        head = Head.model_validate_json((table.schema.metadata or {})[_KEY])
    except (KeyError, ValueError) as error:
        raise file.fault("contents", EXPECTED_OURS, str(error)) from None
    if head.format == FORMAT and not is_whole(file.contents):
        raise damaged(file)
    return head


def read_recording(table: pa.Table, file: InputFile) -> Recording:
    """The recording in a table that :func:`write_recording` wrote to `file`."""
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
    """The array of each row, None where there is none; a value that is missing in one is NaN."""
    lists = column.combine_chunks()
    ends = np.cumsum(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
    parts = np.split(lists.flatten().to_numpy(zero_copy_only=False).astype(np.float64), ends[:-1])
    return [part if valid else None for part, valid in zip(parts, lists.is_valid().to_pylist(), strict=True)]


def _clock(times: FloatArray) -> dict[str, Any]:
    """Regular times as their start and step; others written out."""
    if times.size == 0:
        return {}
    start, step = float(times[0]), float(times[1] - times[0]) if times.size > 1 else 0.0
    regular = np.array_equal(_grid(start, step, times.size), times)
    return {"start": start, "step": step} if regular else {"times": times}


def _grid(start: float, step: float, size: int) -> FloatArray:
    if size and not np.isfinite([start, step]).all():
        raise ValueError(f"a grid from {start} by {step}")
    return start + np.arange(size, dtype=np.float64) * step
