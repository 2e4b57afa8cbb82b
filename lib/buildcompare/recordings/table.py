"""Read recordings from tables: buildcompare's Parquet, and samples as Parquet or text (CSV, may be gzipped).

buildcompare's Parquet has a row for each series or label summary; the file's metadata hold the rest. Regular times are
stored as a start and a step, irregular times one by one. Writing and reading changes no bit. The seal, a checksum of
all bytes, detects damage. Files of other programs are read only within size limits.
"""

from __future__ import annotations

import csv
import hashlib
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
import pyarrow.compute as pc
from pyarrow import csv as pa_csv
from pyarrow.parquet import ParquetFile, ParquetWriter
from pydantic import BaseModel, Field, FiniteFloat, TypeAdapter

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.outside import everywhere, shown
from buildcompare.config.project import write_files
from buildcompare.config.units import split_unit
from buildcompare.recordings import frames
from buildcompare.recordings.files import MAX_COLUMNS, InputFile, read_input
from buildcompare.recordings.formats import FileSource
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import FloatArray, LabelSummary, Note, NoteKind, Role, Series, span

LABEL_COLUMNS = ("group", "label", "stat", "value")
EXPECTED = f"a recording: Parquet, or a CSV with the columns {frames.EXPECTED_COLUMNS} (may be gzipped)"
EXPECTED_OURS = "a recording that this project wrote"
FORMAT = "buildcompare-recording-2"  # format of new files, which contain a checksum (seal); format 1 has none
NO_CHECKSUM = Note(
    "source", "Its file was written by an earlier version, without a checksum: damage to it would not be noticed."
)
MAX_SERIES = 100_000  # maximum rows of a recording, because each row becomes several objects in memory
MAX_VALUES = 20_000_000
"""Maximum number of values in a Parquet file without our checksum. A small compressed file may hold far more values.
For comparison: 1,000 series over 20 hours, with a sample every 5 s, have 14 million values."""
MAX_TEXT, MAX_TEXT_IN_ALL = 10_000, 100_000_000
"""Maximum characters of one text, and of all texts of a column, because a small compressed file may hold long texts."""
THREADS = False
"""Whether pyarrow uses threads. Its threads abort 1 process in 30 (SIGABRT) when they release memory at exit."""
KEY = b"buildcompare"  # key of buildcompare's metadata in a file's schema
_SEAL, _EMPTY = "buildcompare.sha256", "0" * 64
_SEALED = re.compile(re.escape(_SEAL.encode()) + rb".{1,3}([0-9a-f]{64})", re.DOTALL)
"""Pattern of the checksum (seal) in the raw bytes of a file. The checksum is verified before the file is parsed."""
_LABELS = TypeAdapter(dict[str, str])
_TEXTS = ("metric", "name", "unit", "role", "stat", "labels")
_SCHEMA = pa.schema(
    [(name, pa.string()) for name in _TEXTS]
    + [("start", pa.float64()), ("step", pa.float64())]
    + [("times", pa.list_(pa.float64())), ("values", pa.list_(pa.float64()))]
)


def read_table(file: InputFile, catalogue: Catalogue) -> Recording:
    """Read a table of samples, or a recording in buildcompare's Parquet, NaN included."""
    origin: dict[str, object] = {"kind": "recorded", "files": [file.provenance]}
    if file.contents.startswith(b"PAR1"):
        table = open_table(file)
        if KEY in (table.schema.metadata or {}):
            recording = read_recording(table, file)
            return replace(recording, provenance={**recording.provenance, **origin})
        frame: pd.DataFrame = table.to_pandas()
        index = "__index_level_0__"  # pandas' name of an unnamed index
        if frames.clock_of(frame.columns) is None and pd.api.types.is_datetime64_any_dtype(frame.get(index, object)):
            frame = frame.rename(columns={index: "timestamp"})
    else:
        frame = _read_delimited(
            file, frames.EXPECTED_COLUMNS, lambda header: len(header) > 1 and frames.clock_of(header) is not None
        )
    series, notes = frames.read_frame(frame, catalogue, file)
    window = span(series)
    assert window is not None  # read_frame refuses an empty table
    return Recording(series, window, stop_known=False, notes=notes, provenance=origin)


def is_text(contents: bytes) -> bool:
    """Test whether a file could be a text table. Empty files, JSON, Parquet and workbooks are excluded."""
    return contents.lstrip()[:1] not in (b"{", b"[", b"") and not contents.startswith((b"PAR1", b"PK\x03\x04"))


SOURCE = FileSource(EXPECTED, read_table, lambda contents: contents.lstrip()[:1] not in (b"{", b"["))


def with_labels(recording: Recording, path: str) -> Recording:
    """Add the label values of the table at `path` to a recording; refuse a recording that already has some."""
    files = recording.provenance["files"]
    if recording.label_summaries:
        expected = "no `labels` where the recording holds a table of labels"
        raise InputError(file=str(files[0]["path"]), key="labels", expected=expected, found=repr(path))
    names = ", ".join(LABEL_COLUMNS)
    file = read_input(path, expected=f"a CSV with the columns {names} (may be gzipped)")
    frame = _read_delimited(file, names, {*LABEL_COLUMNS}.issubset)
    split = frame["stat"].astype(object).map(split_unit)
    frame = frame.assign(stat=split.str[0])
    twice = np.flatnonzero(frame.duplicated(["group", "label", "stat"]))
    if twice.size:
        place = f"line {frame.index[twice[0]]}"
        raise file.fault(place, "one value for each group, label and stat", "a second one")
    frame = frames.with_decimal_points(frame, ["value"], file)
    values = pd.Series(index=frame.index, dtype=np.float64)
    beside = [
        frame[name].str.strip() for name in frame if name not in LABEL_COLUMNS and frames.states_units(frame[name])
    ]
    for (stat, *stated), part in frame.groupby([frame["stat"], split.str[1], *beside]):
        unit = "calls" if stat == "calls" else "seconds"
        values[part.index] = frames.numbers_of(part["value"], file, unit, stated=[*map(str, stated)])[0]
    rows = zip(frame["group"], frame["label"], frame["stat"], values.tolist(), strict=True)
    provenance = {**recording.provenance, "files": [*files, file.provenance]}
    return replace(recording, label_summaries=tuple(LabelSummary(*row) for row in rows), provenance=provenance)


def _read_delimited(file: InputFile, expected: str, fits: Callable[[list[str]], bool]) -> pd.DataFrame:
    """Read every field of a delimited file as text, with the line numbers of the file as the index.

    The separator is comma, semicolon or tab: the one that splits the header into columns that `fits` accepts. The text
    `expected` describes these columns in messages.
    """
    contents = _as_utf8(file)
    lines = io.BytesIO(contents)
    marked = re.match(rb"sep=[^\r\n]*\r?\n", contents, re.IGNORECASE) and lines.readline()  # skip `sep=`
    try:
        line = lines.readline().decode("utf-8-sig")
        headers = {mark: next(csv.reader(line.splitlines(), delimiter=mark), []) for mark in ",;\t"}
        separators = [mark for mark, header in headers.items() if fits([name.strip() for name in header])]
        header = headers[separators[0]] if len(separators) == 1 else max(headers.values(), key=len)
        if len(header) > MAX_COLUMNS:
            raise file.fault("columns", f"at most {MAX_COLUMNS}", str(len(header)))
        if len(separators) != 1:
            raise file.fault("columns", expected, ", ".join(map(repr, header[:8])) or "none")
        names = [name.strip() for name in header]
        if twice := sorted({name for name in names if name and names.count(name) > 1}):
            raise file.fault("columns", "each name once", f"{twice[0]!r} twice")
        table = pa_csv.read_csv(
            pa.BufferReader(contents),
            pa_csv.ReadOptions(column_names=names, skip_rows=2 if marked else 1, use_threads=THREADS),
            pa_csv.ParseOptions(delimiter=separators[0], newlines_in_values=True),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False),
        )
    except UnicodeDecodeError as error:
        expected = "text in UTF-8 (spreadsheets: save as 'CSV UTF-8')"
        raise file.fault(f"byte {error.start}", expected, "other bytes") from None
    except (pa.ArrowException, csv.Error) as error:
        raise file.fault(None, f"a CSV with the columns {expected}", " ".join(str(error).split())[:120]) from None
    if not table.num_rows:
        raise file.fault("rows", "at least one", "none")
    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)  # Python strings need 20 times the memory
    empty = [i for i, name in enumerate(names) if i and not name and not (frame.iloc[:, i] != "").any()]
    frame = frame.iloc[:, [i for i in range(len(names)) if i not in empty]]  # drop columns made by trailing separators
    frame = frame.set_axis(pd.RangeIndex(frame.shape[0]) + (3 if marked else 2), axis=0)
    frame.attrs[frames.SEPARATOR] = separators[0]
    return frame


def _as_utf8(file: InputFile) -> bytes:
    if file.contents.startswith(b"PK\x03\x04"):
        raise file.fault(None, "a CSV (spreadsheets: save as 'CSV UTF-8')", "a workbook")
    if file.contents[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return file.contents.removeprefix(b"\xef\xbb\xbf")
    try:
        return file.contents.decode("utf-16").encode()
    except UnicodeDecodeError as error:
        place, expected = f"byte {error.start}", "text in UTF-16, as the first bytes say"
        raise file.fault(place, expected, "other bytes") from None


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def sealed(table: pa.Table, **options: Any) -> bytes:
    """Return `table` as Parquet that contains its own SHA-256, computed with 64 zeros in place of the hash."""
    stream = io.BytesIO()
    with ParquetWriter(stream, table.schema, write_page_checksum=True, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_SEAL: _EMPTY})
    before, seal, after = _parts(stream.getvalue()) or (b"", b"", b"")
    return before + hashlib.sha256(before + seal + after).hexdigest().encode() + after


def is_whole(contents: bytes) -> bool | None:
    """Whether a file matches the SHA-256 that it contains (its seal); None for a file without a seal."""
    parts = _parts(contents)
    return parts and hashlib.sha256(parts[0] + _EMPTY.encode() + parts[2]).hexdigest().encode() == parts[1]


def _parts(contents: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the bytes before, in and after a file's seal (its own SHA-256); None if the file has no seal."""
    matches = [*_SEALED.finditer(contents)]  # the seal is the last match; earlier matches are values in the table
    if contents[:4] != b"PAR1" or not matches:
        return None
    start, end = matches[-1].span(1)
    return contents[:start], contents[start:end], contents[end:]


def open_table(file: InputFile, *, only_schema: bool = False) -> pa.Table:
    """Read a Parquet file, or only its schema; raise an :class:`InputError` if the file is damaged or too large."""
    whole = is_whole(file.contents)
    if whole is False:
        raise damaged(file)
    try:
        if whole is None:
            return _read_foreign(file)
        opened = ParquetFile(io.BytesIO(file.contents))
        return opened.schema_arrow.empty_table() if only_schema else opened.read(use_threads=THREADS)
    except MemoryError:
        raise file.fault(None, "a Parquet file that takes less memory", "one that takes more") from None
    except InputError:
        raise
    except Exception as error:  # pyarrow raises errors of many kinds on malformed bytes
        found = (str(error) or type(error).__name__).splitlines()[0][:120]
        raise file.fault(None, "a whole Parquet file", found) from None


def damaged(file: InputFile) -> InputError:
    """Return the error for a sealed file that does not match its seal."""
    expected = "the checksum of the file (copy it again, or pull with --refresh)"
    return file.fault("checksum", expected, "another: the file is damaged")


def _read_foreign(file: InputFile) -> pa.Table:
    """Read a Parquet file without a seal; check its number of values, page checksums and text lengths."""
    opened = ParquetFile(io.BytesIO(file.contents), page_checksum_verification=True)
    schema, metadata = opened.schema_arrow, opened.metadata
    names, is_ours = schema.names, KEY in (schema.metadata or {})
    if len(names) > MAX_COLUMNS or len({*names}) < len(names):
        found = str(len(names)) if len(names) > MAX_COLUMNS else "one twice"
        raise file.fault("columns", f"at most {MAX_COLUMNS}, each once", found)
    # Count rows times columns, because pyarrow aborts if it counts the values of a column with broken statistics.
    rows = max(metadata.num_rows, sum(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)))
    if rows * len(names) > MAX_VALUES:
        raise file.fault("values", f"at most {MAX_VALUES:,}", f"{rows * len(names):,}")
    if (nested := next((each for each in schema if pa.types.is_nested(each.type)), None)) is not None and not is_ours:
        raise file.fault(nested.name, "a column of numbers, texts or times", str(nested.type)[:60])
    texts = [column.name for column in schema if _is_text(column.type)]
    opened = ParquetFile(io.BytesIO(file.contents), read_dictionary=texts, page_checksum_verification=True)
    table = opened.read(use_threads=THREADS)
    for name, chunk in ((each, chunk) for each in texts for chunk in table.column(each).chunks):
        longest = pc.max(pc.utf8_length(chunk.dictionary)).as_py() or 0
        if longest > MAX_TEXT or longest * len(chunk) > MAX_TEXT_IN_ALL:
            expected = f"texts of at most {MAX_TEXT:,} characters, and {MAX_TEXT_IN_ALL:,} characters in all"
            raise file.fault(name, expected, f"{len(chunk):,} of up to {longest:,}")
    table.validate(full=True)
    return table if is_ours else pa.table({name: _plain(table.column(name)) for name in names})


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cast a column to a type that samples may have: number, boolean, text, duration, or timestamp without zone."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):  # drop the zone; microseconds cover every year
        return column.cast(pa.timestamp("us"), safe=False)
    if pa.types.is_duration(kind):
        return column.cast(pa.duration("us"), safe=False)
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    is_plain = (pa.types.is_primitive(kind) or pa.types.is_null(kind)) and not pa.types.is_temporal(kind)
    return column if is_plain or _is_text(kind) else column.cast(pa.string())


# ---- buildcompare's Parquet -----------------------------------------------------------------------------------------


def write_recording(recording: Recording, file: Path) -> None:
    """Write `recording`, except its measurements and session, to `file`; a failure leaves no partial file."""
    rows: list[dict[str, object]] = []
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
    contents = sealed(
        pa.Table.from_pylist(rows, schema=schema),
        compression="zstd",
        compression_level=9,
        use_dictionary=["role", "unit", "stat", "metric", "name"],
        column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in ("times", "values")},
    )
    write_files({file: contents})


class Head(BaseModel, strict=True):
    """Metadata of a recording in buildcompare's Parquet."""

    format: Literal["buildcompare-recording-2", "buildcompare-recording-1"]
    window: Annotated[tuple[FiniteFloat, FiniteFloat], Field(strict=False)]
    stop_known: bool
    notes: list[Annotated[tuple[NoteKind, str], Field(strict=False)]]
    provenance: dict[str, object]


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
        columns = [rows[name].to_pylist() for name in (*_TEXTS, "start", "step")]
        samples = zip(rows["times"].to_pandas(), rows["values"].to_pandas(), strict=True)
        for (stated, values), *texts, start, step in zip(samples, *columns, strict=True):
            row = dict(zip(_TEXTS, texts, strict=True))
            if row["role"] == "summary":
                summaries.append(LabelSummary(row["metric"], row["name"], row["stat"], float(values[0])))
            elif row["role"] not in roles:
                raise file.fault("role", f"one of {', '.join(roles)}, summary", repr(row["role"]))
            else:
                row["labels"] = _LABELS.validate_json(row["labels"])
                times = _grid(start, step, values.size) if stated is None else np.array(stated)  # None: regular times
                series.append(Series(times=times, values=np.array(values), **row))
    except (KeyError, TypeError, ValueError, IndexError) as error:  # pyarrow's and pydantic's errors are ValueErrors
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


def _clock(times: FloatArray) -> dict[str, object]:
    """Encode regular times as a start and a step, irregular times as a list."""
    if times.size == 0:
        return {}
    start, step = float(times[0]), float(times[1] - times[0]) if times.size > 1 else 0.0
    regular = np.array_equal(_grid(start, step, times.size), times)
    return {"start": start, "step": step} if regular else {"times": times}


def _grid(start: float, step: float, size: int) -> FloatArray:
    if not size:
        return np.empty(0)
    if not np.isfinite([start, step, start + step * size]).all():
        raise ValueError(f"a grid from {start} by {step}")
    return start + np.arange(size, dtype=np.float64) * step
