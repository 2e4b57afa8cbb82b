"""Recordings from tables: our own Parquet, or samples as Parquet, CSV or gzipped CSV.

A table of samples has the columns ``timestamp``, ``metric`` and ``value``; every other column is a label
that tells several series of one metric apart. Label values may stand in a second CSV with the columns
``group``, ``label``, ``stat`` and ``value``.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run
from buildcompare.recordings.digitised import digitised_note
from buildcompare.recordings.files import InputFile, check_times, read_input
from buildcompare.recordings.parquet import is_recording, read_recording
from buildcompare.recordings.recording import FloatArray, LabelSummary, Recording, Series

COLUMNS = ("timestamp", "metric", "value")
LABEL_COLUMNS = ("group", "label", "stat", "value")
EXPECTED = "a recording: Parquet, or a CSV with the columns timestamp, metric, value (may be gzipped)"
EXPECTED_LABELS = "a CSV with the columns group, label, stat, value (may be gzipped)"
MAX_COLUMNS = 50
MAX_VALUES = 20_000_000
"""Bound on a Parquet file's values, which its own size does not bound: 20 hours of 1,000 series take 14 million."""
MAX_TEXT = 10_000
"""Bound on the length of a name or label in a Parquet file, where a few bytes may stand for many copies."""
MAX_TEXT_IN_ALL = 100_000_000
_PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class RecordedSource:
    """Reads ``run.recording``, and ``run.labels`` beside it."""

    catalogue: Catalogue

    def record(self, run: Run) -> Recording:
        """Every sample of the table, NaN included, and every label value."""
        file = read_input(run.recording or "", expected=EXPECTED)
        recording = self._read(file)
        if run.labels is None:
            return recording
        if recording.label_summaries:
            raise _fault(file, "labels", "no `labels` beside a recording that holds its own", repr(run.labels))
        labels = read_input(run.labels, expected=EXPECTED_LABELS)
        provenance = dict(recording.provenance)
        provenance["files"] = [file.provenance, labels.provenance]
        return replace(recording, label_summaries=recording.label_summaries + _summaries(labels), provenance=provenance)

    def _read(self, file: InputFile) -> Recording:
        if file.contents.startswith(_PARQUET_MAGIC):
            table = _open_parquet(file)
            if is_recording(table):
                recording = read_recording(table, file.path)
                return replace(
                    recording, provenance={**recording.provenance, "kind": "recorded", "files": [file.provenance]}
                )
            frame = _parquet_frame(table, file)
        else:
            frame = _csv_frame(file, COLUMNS)
        series = tuple(self._series(file, frame))
        ends = [(s.times[0], s.times[-1]) for s in series]
        return Recording(
            series=series,
            window=(float(min(start for start, _ in ends)), float(max(end for _, end in ends))),
            stop_known=False,
            notes=digitised_note(series),
            provenance={"kind": "recorded", "files": [file.provenance]},
        )

    def _series(self, file: InputFile, frame: pd.DataFrame) -> list[Series]:
        times, values = _times(file, frame["timestamp"]), _numbers(file, frame["value"])
        names = [column for column in frame.columns if column not in ("timestamp", "value")]
        found: list[Series] = []
        for key, indices in frame.groupby(names, sort=False, dropna=False).indices.items():
            rows = np.asarray(indices)
            name, *labels = key if isinstance(key, tuple) else (key,)
            if not isinstance(name, str) or not name:
                raise _fault(file, f"metric, line {rows[0] + 2}", "a metric's name", "nothing")
            order = rows[np.argsort(times[rows], kind="stable")]
            twice = np.flatnonzero(np.diff(times[order]) == 0)
            if twice.size:
                line = int(order[twice[0] + 1]) + 2
                raise _fault(file, f"line {line}", f"one value of {name} at each time", "a second one")
            metric = self.catalogue.find(name)
            own = {k: str(v) for k, v in zip(names[1:], labels, strict=True)}
            if any(s.metric == metric.slug and s.name != name and dict(s.labels) == own for s in found):
                own["series"] = name  # two names of one metric: both are kept
            check_times(file.path, name, times[order])
            found.append(
                Series(
                    metric=metric.slug,
                    name=name,
                    unit=metric.unit,
                    times=times[order],
                    values=values[order],
                    labels=own,
                )
            )
        return found


def _open_parquet(file: InputFile) -> pq.ParquetFile:
    """Open a Parquet file whose values fit, with texts left as the dictionary that they are stored as."""
    try:
        table = pq.ParquetFile(io.BytesIO(file.contents))
        groups = [table.metadata.row_group(i) for i in range(table.metadata.num_row_groups)]
        values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
        if max(values, table.metadata.num_rows) > MAX_VALUES:
            raise _fault(file, "values", f"at most {MAX_VALUES:,}", f"{max(values, table.metadata.num_rows):,}")
        schema = table.schema_arrow
        texts = [name for name in schema.names if _is_text(schema.field(name).type)]
        table = pq.ParquetFile(io.BytesIO(file.contents), read_dictionary=texts)
        for name in texts:
            _check_texts(file, name, table)
    except (pa.ArrowException, OSError) as error:
        raise _fault(file, None, "a whole Parquet file", str(error).splitlines()[0][:120]) from None
    return table


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _check_texts(file: InputFile, name: str, table: pq.ParquetFile) -> None:
    for chunk in table.read(columns=[name]).column(name).chunks:
        words = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
        longest = pc.max(pc.utf8_length(words)).as_py() or 0
        if longest > MAX_TEXT:
            raise _fault(file, name, f"texts of at most {MAX_TEXT:,} characters", f"one of {longest:,}")
        if longest * len(chunk) > MAX_TEXT_IN_ALL:
            raise _fault(file, name, f"texts of at most {MAX_TEXT_IN_ALL:,} characters in all", "more")


def _parquet_frame(table: pq.ParquetFile, file: InputFile) -> pd.DataFrame:
    try:
        frame: pd.DataFrame = table.read().to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise _fault(file, None, "a whole Parquet file", str(error).splitlines()[0][:120]) from None
    texts = frame.select_dtypes("category").columns
    return _checked(file, frame.astype(dict.fromkeys(texts, "str")), COLUMNS)


def _csv_frame(file: InputFile, columns: tuple[str, ...]) -> pd.DataFrame:
    """Every field as text; a row with more or fewer fields than the header is a fault."""
    expected = f"a CSV with the columns {', '.join(columns)}"
    try:
        header = next(csv.reader(file.contents.split(b"\n", 1)[0].decode("utf-8-sig").splitlines()), [])
        if len(header) > MAX_COLUMNS:
            raise _fault(file, "columns", f"at most {MAX_COLUMNS}", str(len(header)))
        table = pa.csv.read_csv(
            io.BytesIO(file.contents),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=False
            ),
        )
    except UnicodeDecodeError as error:
        raise _fault(file, f"byte {error.start}", "text in UTF-8", "bytes that are not") from None
    except (pa.ArrowException, csv.Error) as error:
        raise _fault(file, None, expected, " ".join(str(error).split())[:120]) from None
    return _checked(file, table.to_pandas(), columns)


def _checked(file: InputFile, frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise _fault(file, "columns", ", ".join(columns), ", ".join(map(repr, list(frame.columns)[:8])) or "none")
    if frame.empty:
        raise _fault(file, "rows", "at least one", "none")
    others = [column for column in frame.columns if column not in columns]
    return frame[[*columns[:1], *columns[1:2], *others, *columns[2:]]]


def _times(file: InputFile, column: pd.Series) -> FloatArray:
    """Seconds since 1970. Text without a zone is UTC; numbers are seconds."""
    seconds = _seconds(column)
    if seconds is not None:
        bad = np.flatnonzero(~np.isfinite(seconds))
        if bad.size:
            raise _fault(file, f"timestamp, line {bad[0] + 2}", "a time", repr(column.iloc[bad[0]]))
        return seconds
    parsed = pd.to_datetime(column, utc=True, format="ISO8601", errors="coerce")
    bad = np.flatnonzero(parsed.isna().to_numpy())
    if bad.size:
        raise _fault(
            file, f"timestamp, line {bad[0] + 2}", "a time such as 2024-01-01T00:00:00Z", repr(column.iloc[bad[0]])
        )
    nanoseconds = parsed.dt.as_unit("ns").astype("int64").to_numpy()
    return nanoseconds / 1e9


def _seconds(column: pd.Series) -> FloatArray | None:
    """The column as numbers, or None where it holds dates."""
    if pd.api.types.is_datetime64_any_dtype(column):
        return None
    try:
        return _floats(column)
    except (TypeError, ValueError):
        return None


def _numbers(file: InputFile, column: pd.Series) -> FloatArray:
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=np.float64)
    filled = column.where(column != "", "nan")
    try:
        return _floats(filled)
    except ValueError:
        bad = next(i for i, text in enumerate(filled) if not _is_number(text))
        raise _fault(file, f"value, line {bad + 2}", "a number or NaN", repr(filled.iloc[bad])) from None


def _floats(column: pd.Series) -> FloatArray:
    """Python's own float parsing: exact to the last bit, unlike the CSV reader's fast one."""
    return np.array([float(text) for text in column], dtype=np.float64)


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def _summaries(file: InputFile) -> tuple[LabelSummary, ...]:
    frame = _csv_frame(file, LABEL_COLUMNS)
    values = _numbers(file, frame["value"])
    rows = zip(frame["group"], frame["label"], frame["stat"], values, strict=True)
    found = {(group, label, stat): LabelSummary(group, label, stat, float(v)) for group, label, stat, v in rows}
    if len(found) < len(frame):
        line = int(np.flatnonzero(frame.duplicated(["group", "label", "stat"]).to_numpy())[0]) + 2
        raise _fault(file, f"line {line}", "one value for each group, label and stat", "a second one")
    return tuple(found.values())


def _fault(file: InputFile, key: str | None, expected: str, found: str) -> InputError:
    return InputError(file=file.path, key=key, expected=expected, found=found)
