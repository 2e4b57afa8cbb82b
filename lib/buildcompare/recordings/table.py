"""Recordings from tables: our own Parquet; samples as Parquet, CSV or gzipped CSV; and frames of pandas.

Our own Parquet has one row per series or label summary, and everything else in the file's metadata. Regular times are a
start and a step, irregular ones are written out: what is read equals what was written.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.recordings.files import FileSource, InputFile, check_times, read_input
from buildcompare.recordings.recording import FloatArray, LabelSummary, Note, Recording, Series

if TYPE_CHECKING:
    import pyarrow.parquet as pq

COLUMNS = ("timestamp", "metric", "value")
LABEL_COLUMNS = ("group", "label", "stat", "value")
EXPECTED = "a recording: Parquet, or a CSV with the columns timestamp, metric, value (may be gzipped)"
MAX_COLUMNS = 50
MAX_VALUES = 20_000_000
"""Bound on a Parquet file's values, which its own size does not bound: 20 hours of 1,000 series take 14 million."""
MAX_TEXT, MAX_TEXT_IN_ALL = 10_000, 100_000_000
"""Bounds on the characters of names in a Parquet file, where a few bytes may stand for many copies."""
FEW_DIGITS = 7
"""Whoever reads a plot writes down a few digits; an average or a rate that was computed has sixteen."""
DIGITISED = Note(
    "digitised",
    "read off a plot, as its counts are no whole numbers: fast movements are smoothed, and where two lines cross one "
    "hides the other",
)
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


def read_table(file: InputFile, catalogue: Catalogue) -> Recording:
    """Every sample of the table, NaN included."""
    origin: dict[str, object] = {"kind": "recorded", "files": [file.provenance]}
    if not file.contents.startswith(b"PAR1"):
        return _recording(_csv_frame(file, COLUMNS), catalogue, file.path, origin)
    try:
        table = _open_parquet(file)
        if is_recording(table):
            recording = read_recording(table, file.path)
            return replace(recording, provenance={**recording.provenance, **origin})
        frame: pd.DataFrame = table.read().to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise file.fault(None, "a whole Parquet file", str(error).splitlines()[0][:120]) from None
    texts = frame.select_dtypes("category").columns
    frame = _checked(frame.astype(dict.fromkeys(texts, "str")), COLUMNS, file.path)
    return _recording(frame, catalogue, file.path, origin)


SOURCE = FileSource(EXPECTED, read_table, lambda contents: contents.lstrip()[:1] not in (b"{", b"["))


def with_labels(recording: Recording, path: str) -> Recording:
    """`recording` with the label values of the table at `path`."""
    files = recording.provenance["files"]
    assert isinstance(files, list)  # it was read from a file
    if recording.label_summaries:
        expected = "no `labels` beside a recording that holds its own"
        raise InputError(file=str(files[0]["path"]), key="labels", expected=expected, found=repr(path))
    file = read_input(path, expected="a CSV with the columns group, label, stat, value (may be gzipped)")
    frame = _csv_frame(file, LABEL_COLUMNS)
    twice = np.flatnonzero(frame.duplicated(["group", "label", "stat"]))
    values = _numbers(frame["value"], path)
    if twice.size:
        raise file.fault(f"line {twice[0] + 2}", "one value for each group, label and stat", "a second one")
    rows = zip(frame["group"], frame["label"], frame["stat"], map(float, values), strict=True)
    provenance = {**recording.provenance, "files": [*files, file.provenance]}
    return replace(recording, label_summaries=tuple(LabelSummary(*row) for row in rows), provenance=provenance)


def recording_of_frame(frame: pd.DataFrame, catalogue: Catalogue) -> Recording:
    """What :meth:`Recording.from_frame` returns, with the window of its samples."""
    frame = frame.rename(columns={"time": "timestamp"})
    if not {"metric", "value"} <= {*frame.columns} and "timestamp" not in frame.columns:  # wide
        frame = frame.set_axis([str(column) for column in frame.columns], axis=1).rename_axis(None, axis=1)
        frame = frame.rename_axis("timestamp").reset_index()
        frame = frame.melt("timestamp", var_name="metric", value_name="value")
    frame = _checked(frame.reset_index(drop=True), COLUMNS, None)
    return _recording(frame.astype({"metric": object}), catalogue, None, {"kind": "frame"})


def _recording(frame: pd.DataFrame, catalogue: Catalogue, path: str | None, provenance: dict[str, object]) -> Recording:
    series = tuple(_series(frame, catalogue, path))
    window = float(min(s.times[0] for s in series)), float(max(s.times[-1] for s in series))
    return Recording(series, window, stop_known=False, notes=_digitised(series), provenance=provenance)


def _series(frame: pd.DataFrame, catalogue: Catalogue, path: str | None) -> list[Series]:
    times, values = _times(frame["timestamp"], path), _numbers(frame["value"], path)
    names = [column for column in frame.columns if column not in ("timestamp", "value")]
    found: list[Series] = []
    for key, indices in frame.groupby(names, sort=False, dropna=False).indices.items():
        rows = np.asarray(indices)
        name, *labels = key if isinstance(key, tuple) else (key,)
        if not isinstance(name, str) or not name:
            raise _fault(path, f"metric, {_row(rows[0], path)}", "a metric's name", "nothing")
        order = rows[np.argsort(times[rows], kind="stable")]
        twice = np.flatnonzero(np.diff(times[order]) == 0)
        if twice.size:
            raise _fault(path, _row(order[twice[0] + 1], path), f"one value of {name} at each time", "a second one")
        check_times(path, name, times[order])
        metric = catalogue.find(name)
        own = {str(k): str(v) for k, v in zip(names[1:], labels, strict=True)}
        if any(s.metric == metric.slug and s.name != name and dict(s.labels) == own for s in found):
            own["series"] = name  # two names of one metric: both are kept
        found.append(Series(metric.slug, name, metric.unit, times[order], values[order], labels=own))
    return found


def _digitised(series: Sequence[Series]) -> tuple[Note, ...]:
    """The note for series that were read off a plot, which counts that are no whole numbers give away."""
    counted = ("users", "goroutines")  # servers export whole numbers of them
    values = [each.values[np.isfinite(each.values) & (each.values != 0)] for each in series if each.unit in counted]
    moving = np.concatenate([np.empty(0), *values])
    if moving.size == 0 or np.mean(moving != np.rint(moving)) <= 0.5:
        return ()
    scaled = moving * 10.0 ** (FEW_DIGITS - 1 - np.floor(np.log10(np.abs(moving))))
    return (DIGITISED,) if np.mean(np.abs(scaled - np.rint(scaled)) < 1e-3) > 0.99 else ()


def _open_parquet(file: InputFile) -> pq.ParquetFile:
    """Open a Parquet file whose values fit, with texts left as the dictionary that they are stored as."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(io.BytesIO(file.contents))
    groups = [table.metadata.row_group(i) for i in range(table.metadata.num_row_groups)]
    cells = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    values = max(cells, table.metadata.num_rows)
    if values > MAX_VALUES:
        raise file.fault("values", f"at most {MAX_VALUES:,}", f"{values:,}")
    texts = [column.name for column in table.schema_arrow if _is_text(column.type)]
    table = pq.ParquetFile(io.BytesIO(file.contents), read_dictionary=texts)
    for name in texts:
        for chunk in table.read(columns=[name]).column(name).chunks:
            words = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
            longest = pc.max(pc.utf8_length(words)).as_py() or 0
            if longest > MAX_TEXT:
                raise file.fault(name, f"texts of at most {MAX_TEXT:,} characters", f"one of {longest:,}")
            if longest * len(chunk) > MAX_TEXT_IN_ALL:
                raise file.fault(name, f"texts of at most {MAX_TEXT_IN_ALL:,} characters in all", "more")
    return table


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _csv_frame(file: InputFile, columns: tuple[str, ...]) -> pd.DataFrame:
    """Every field as text; a row with more or fewer fields than the header is a fault."""
    from pyarrow import csv as pa_csv  # late: not every use of the library reads a CSV

    try:
        header = next(csv.reader(file.contents.split(b"\n", 1)[0].decode("utf-8-sig").splitlines()), [])
        if len(header) > MAX_COLUMNS:
            raise file.fault("columns", f"at most {MAX_COLUMNS}", str(len(header)))
        as_text = dict.fromkeys(header, pa.string())
        table = pa_csv.read_csv(
            io.BytesIO(file.contents),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(column_types=as_text, strings_can_be_null=False),
        )
    except UnicodeDecodeError as error:
        raise file.fault(f"byte {error.start}", "text in UTF-8", "bytes that are not") from None
    except (pa.ArrowException, csv.Error) as error:
        expected = f"a CSV with the columns {', '.join(columns)}"
        raise file.fault(None, expected, " ".join(str(error).split())[:120]) from None
    return _checked(table.to_pandas(), columns, file.path)


def _checked(frame: pd.DataFrame, columns: tuple[str, ...], path: str | None) -> pd.DataFrame:
    """The frame with its own columns around those of labels."""
    if not {*columns} <= {*frame.columns}:
        raise _fault(path, "columns", ", ".join(columns), ", ".join(map(repr, list(frame.columns)[:8])) or "none")
    if frame.empty:
        raise _fault(path, "rows", "at least one", "none")
    others = [column for column in frame.columns if column not in columns]
    return frame[[*columns[:2], *others, *columns[2:]]]


def _times(column: pd.Series, path: str | None) -> FloatArray:
    """Seconds since 1970; text without a zone is UTC."""
    expected = "a time"
    try:
        elapsed = isinstance(column.dtype, np.dtype) and column.dtype.kind == "m"
        seconds: FloatArray = column.dt.total_seconds().to_numpy() if elapsed else _floats(column)
    except (TypeError, ValueError):
        expected = "a time such as 2024-01-01T00:00:00Z"
        parsed = pd.to_datetime(column, utc=True, format="ISO8601", errors="coerce")
        seconds = np.where(parsed.isna(), np.nan, parsed.dt.as_unit("ns").astype("int64").to_numpy() / 1e9)
    bad = np.flatnonzero(~np.isfinite(seconds))
    if bad.size:
        raise _fault(path, f"timestamp, {_row(bad[0], path)}", expected, repr(column.iloc[bad[0]]))
    return seconds


def _numbers(column: pd.Series, path: str | None) -> FloatArray:
    """Values; a text without any is NaN."""
    if pd.api.types.is_numeric_dtype(column):
        return _floats(column)
    values: list[float] = []
    for text in column:
        try:
            values.append(float("nan" if text == "" else text))
        except (TypeError, ValueError):
            raise _fault(path, f"value, {_row(len(values), path)}", "a number or NaN", repr(text)) from None
    return np.array(values)


def _floats(column: pd.Series) -> FloatArray:
    """Numbers as they are; texts by Python's own parser: exact to the last bit, unlike the CSV reader's fast one."""
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.array([float(text) for text in column], dtype=np.float64)


def _row(index: int, path: str | None) -> str:
    """Where a row stands: a file's line, behind its header, or a frame's row."""
    return f"row {index}" if path is None else f"line {index + 2}"


def _fault(path: str | None, key: str, expected: str, found: str) -> InputError:
    return InputError(file=path, key=key, expected=expected, found=found)


# ---- Our own Parquet ------------------------------------------------------------------------------------------------


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
        series, summaries = [], []
        for row in source.read().to_pandas().to_dict("records"):
            values = np.asarray(row["values"], dtype=np.float64)
            if row["role"] == "summary":
                summaries.append(LabelSummary(row["metric"], row["name"], row["stat"], float(values[0])))
            else:
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
    row = {name: getattr(series, name) for name in _TEXTS}
    row |= {"labels": json.dumps(dict(series.labels), sort_keys=True), "values": series.values}
    times = series.times
    if times.size == 0:
        return row
    start, step = float(times[0]), float(times[1] - times[0]) if times.size > 1 else 0.0
    regular = np.array_equal(_grid(start, step, times.size), times)
    return row | ({"start": start, "step": step} if regular else {"times": times})
