"""Tables of text as programs export them: what separates their columns, and how their times and numbers are written.

What can be read in two ways is refused, and the message names both ways: nothing is guessed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import LATEST, InputFile
from buildcompare.recordings.parquet import THREADS
from buildcompare.recordings.recording import FloatArray

MAX_COLUMNS = 250
"""Bound on the columns of a table: a report draws at most 200 series."""
EARLIEST = 1e8
"""March 1973, in seconds since 1970: smaller numbers count from the start of the run."""
LONGEST_STEP_S = 500.0
"""A run is sampled more often than this: elapsed times further apart are milliseconds, or are they?"""
_CLOCK = re.compile(
    r"(?:|timestamp|date|time|date[ _]?time|ts|elapsed(?:[ _]time)?)(?:[ _]?[(\[]?(ms|s|us|µs|ns)[)\]]?)?"
)
_SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}
_DAY_OR_MONTH = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})\b(.*)")
_GRAFANA_NAME = re.compile(r"(.+)-data(?:-as-\w+)?-\d{4}-\d\d-\d\d.*\.csv(?:\.gz)?")
"""How Grafana names a panel's CSV: the panel's title, and when it was saved."""
NUMBER = re.compile(r"([+-]?[\d.,]*\d[.,]?(?:[eE][+-]?\d+)?)(\s*[^\d\s.,].*)?")
"""A number however its marks are meant, and its unit."""
SEPARATOR = "separator"
"""Key of a frame's attributes under which it keeps what separates its columns."""
_READINGS = {
    decimal: re.compile(
        rf"[+-]?(?:\d*(?:\{decimal}\d*)?(?:[eE][+-]?\d+)?|[1-9]\d{{0,2}}(?:\{group}\d{{3}})+(?:\{decimal}\d*)?)"
    )
    for decimal, group in ((".", ","), (",", "."))
}
"""By decimal mark, the numbers that can be read with it; the other mark then groups thousands."""


def read_delimited(file: InputFile, expected: str, fits: Callable[[list[str]], bool]) -> pd.DataFrame:
    """Every field as text, with the file's lines as the index; `fits` says whether a header is the `expected` one.

    The separator is the one of comma, semicolon and tab with which the header fits.
    """
    from pyarrow import csv as pa_csv  # late: not every use of the library reads a CSV

    contents = _as_utf8(file)
    marked = re.match(rb"sep=[^\r\n]*\r?\n", contents, re.IGNORECASE)  # for spreadsheets
    contents = contents[marked.end() :] if marked else contents
    try:
        line = contents.split(b"\n", 1)[0].decode("utf-8-sig")
        headers = {mark: next(csv.reader(line.splitlines(), delimiter=mark), []) for mark in ",;\t"}
        found = [mark for mark, header in headers.items() if fits([name.strip() for name in header])]
        header = headers[found[0]] if len(found) == 1 else max(headers.values(), key=len)
        if len(header) > MAX_COLUMNS:
            raise file.fault("columns", f"at most {MAX_COLUMNS}", str(len(header)))
        if len(found) != 1:
            raise file.fault("columns", expected, ", ".join(map(repr, header[:8])) or "none")
        if twice := sorted({name for name in header if name and header.count(name) > 1}):
            raise file.fault("columns", "each name once", f"{twice[0]!r} twice")
        table = pa_csv.read_csv(
            io.BytesIO(contents),
            read_options=pa_csv.ReadOptions(
                column_names=[name.strip() for name in header], skip_rows=1, use_threads=THREADS
            ),
            parse_options=pa_csv.ParseOptions(delimiter=found[0], newlines_in_values=True),
            convert_options=pa_csv.ConvertOptions(
                column_types={name.strip(): pa.string() for name in header}, strings_can_be_null=False
            ),
        )
    except UnicodeDecodeError as error:
        expected = "text in UTF-8 (spreadsheets: save as 'CSV UTF-8')"
        raise file.fault(f"byte {error.start}", expected, "bytes that are not") from None
    except (pa.ArrowException, csv.Error) as error:
        raise file.fault(None, f"a CSV with the columns {expected}", " ".join(str(error).split())[:120]) from None
    frame = pd.DataFrame(table.to_pandas())
    empty = [i for i, name in enumerate(frame.columns) if i and not name and not frame.iloc[:, i].any()]
    frame = frame.iloc[:, [i for i in range(frame.shape[1]) if i not in empty]]  # a separator at the end of each line
    if frame.empty:
        raise file.fault("rows", "at least one", "none")
    frame = frame.set_axis(pd.RangeIndex(frame.shape[0]) + (3 if marked else 2), axis=0)
    frame.attrs[SEPARATOR] = found[0]
    return frame


def _as_utf8(file: InputFile) -> bytes:
    if file.contents.startswith(b"PK\x03\x04"):
        raise file.fault(None, "a CSV (spreadsheets: save as 'CSV UTF-8')", "a workbook")
    if file.contents[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return file.contents.removeprefix(b"\xef\xbb\xbf")
    try:
        return file.contents.decode("utf-16").encode()
    except UnicodeDecodeError as error:
        raise file.fault(
            f"byte {error.start}", "text in UTF-16, as its first bytes say", "bytes that are not"
        ) from None


def clock_of(columns: Iterable[object]) -> str | None:
    """The one column of times by its name, such as ``timestamp``, ``Time`` or ``time_ms``; None without or with two."""
    names = list(map(str, columns))
    named = [name for name in names if name and _CLOCK.fullmatch(name.strip().casefold())]
    sure = [name for name in named if not name.casefold().startswith("elapsed")] or named
    return sure[0] if len(sure) == 1 else "" if not sure and names[:1] == [""] else None


def grafana_title(path: str | None) -> str | None:
    """The panel's title, of a file that is named as Grafana names it."""
    named = _GRAFANA_NAME.fullmatch(Path(path or "").name)
    return named[1].strip() if named else None


def metric_of(column: str, title: str | None, catalogue: Catalogue) -> str | None:
    """The metric of a column: by its own name where the catalogue knows it, else by the panel's title."""
    if catalogue.find(column).known:
        return column
    return title or (None if column.casefold() == "value" else column)


def unit_in(column: str, catalogue: Catalogue) -> tuple[str, str]:
    """The metric and the unit of a header such as ``P99 API times (ms)``, where the catalogue knows that metric."""
    named = re.fullmatch(r"(.+?)\s*[(\[]([^()\[\]]+)[)\]]", column)
    told = named and catalogue.find(named[1]).known and not catalogue.find(column).known
    return (named[1], named[2]) if named and told else (column, "")


def plain_numbers(frame: pd.DataFrame, file: InputFile) -> pd.DataFrame:
    """Numbers in text with a point as their decimal mark, whichever the file of `frame` uses.

    Where every number of the file may be read with a point and with a comma as its decimal mark, as ``1,234``, none is.
    """
    cells = frame.stack()  # noqa: PD013  # melt refuses a column named as its own
    if frame.attrs[SEPARATOR] == "," and not cells.str.contains(",", regex=False).any():
        return frame
    heads = cells.str.extract(f"^(?:{NUMBER.pattern})$")[0].dropna()
    heads = heads[heads.str.contains("[.,]")]
    fits = {mark: heads.str.fullmatch(pattern) for mark, pattern in _READINGS.items()}
    sure = [mark for mark in fits if fits[mark].all()]
    if heads.empty or (sure == ["."] and not heads.str.contains(",", regex=False).any()):
        return frame
    if len(sure) == 2:
        (line, column), text = heads.index[0], heads.iloc[0]
        mark = "," if "," in text else "."
        expected = f"a number of one reading ({text.replace(mark, '.')} or {text.replace(mark, '')})"
        raise file.fault(f"{column}, line {line}", expected, repr(text))
    if not sure:
        mark = max(fits, key=lambda each: fits[each].sum())
        (line, column), like = heads[~fits[mark]].index[0], heads[fits[mark]]
        expected = f"one decimal mark, as in {like.iloc[0]!r} of line {like.index[0][0]}" if len(like) else "a number"
        raise file.fault(f"{column}, line {line}", expected, repr(heads[line, column]))
    (decimal,) = sure

    def plain(text: str) -> str:
        number = NUMBER.fullmatch(text)
        group = "," if decimal == "." else "."
        return number[1].replace(group, "").replace(decimal, ".") + (number[2] or "") if number else text

    return frame.map(plain)


def seconds_of(numbers: FloatArray, column: str, file: InputFile) -> FloatArray:
    """Times in seconds, by the unit in the column's name, or else by their size: since 1970 no number has two units.

    Small numbers are seconds since the run's start, unless they lie so far apart that they may be milliseconds.
    """
    named = _CLOCK.fullmatch(column.strip().casefold())
    low, high = (numbers.min(), numbers.max()) if numbers.size else (0.0, 0.0)
    if named and named[1]:
        return numbers / _SECONDS[named[1]]
    for size in sorted({*_SECONDS.values()}):
        if EARLIEST * size <= low and high < LATEST * size:
            return numbers / size
    step = float(np.median(np.diff(np.unique(numbers)))) if low < high < EARLIEST else 0.0
    if step > LONGEST_STEP_S and file.path is not None:
        expected = f"times of one unit (a column named {column or 'time'}_s or {column or 'time'}_ms)"
        raise file.fault(column, expected, f"steps of {step:g}, in seconds or milliseconds")
    return numbers


def instants_of(texts: pd.Series, column: str, file: InputFile, place: Callable[[int], str]) -> FloatArray:
    """Dates in ISO 8601 as seconds since 1970; those without a zone are UTC, and a file has them with or without."""
    parsed = pd.to_datetime(texts, utc=True, format="ISO8601", errors="coerce")
    bad = np.flatnonzero(parsed.isna())
    if bad.size:
        text = str(texts.iloc[bad[0]])
        days = _DAY_OR_MONTH.fullmatch(text)
        either = (
            [f"{days[3]}-{b:0>2}-{a:0>2}{days[4]}" for a, b in (days.group(1, 2), days.group(2, 1))] if days else []
        )
        possible = [each for each in dict.fromkeys(either) if int(each[5:7]) <= 12]
        expected = "a time such as " + (" or ".join(possible) or "2024-01-01T00:00:00Z")
        raise file.fault(f"{column}, {place(bad[0])}", expected, repr(texts.iloc[bad[0]]))
    zoned = texts.astype(str).str[10:].str.contains("Z|[+-]").to_numpy()
    if zoned.any() and not zoned.all():
        first = int(np.flatnonzero(~zoned)[0])
        raise file.fault(f"{column}, {place(first)}", "a time with its zone, as others have", repr(texts.iloc[first]))
    return np.asarray(parsed.dt.as_unit("us").astype("int64").to_numpy() / 1e6)  # in nanoseconds 2300 is too late
