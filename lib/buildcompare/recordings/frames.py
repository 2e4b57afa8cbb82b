"""Turn a table of samples (a user's DataFrame or a file's text columns) into series in the catalogue's units.

Ambiguous numbers and times are refused with a message that names the possible meanings.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.units import base_unit, is_unit, split_unit, unit_factor
from buildcompare.recordings.files import MAX_GRAPHS, Curve, InputFile, series_of
from buildcompare.recordings.series import LATEST, TESTED, FloatArray, Note, Series

EXPECTED_COLUMNS = "timestamp, metric, value, or a time and a column for each metric"
MAX_LABELS = 47
EARLIEST = 1e8  # March 1973 in seconds since 1970; smaller times count from the start of the run
LEAST_STEP_S, LONGEST_STEP_S, LONGEST_RUN_S = 0.1, 60.0, 90_000.0  # limits of elapsed times whose unit may be assumed
_UNLESS = {
    "rows": "it is an index",
    "clock": "they are dates or times of day, as 1059 or 45637",
    "minutes": "they are minutes or hours",
    "year": "they count from another year than 1970",
}
SEPARATOR = "separator"  # key in a frame's `attrs` for the separator of its text file
FEW_DIGITS = 7  # maximum digits of values read off a plot; computed averages and rates have sixteen
DIGITISED = Note(
    "digitised",
    "read off a plot, as its counts are no whole numbers: fast movements are smoothed, and where two lines cross one "
    "hides the other",
)
_NO_VALUE = ("", "null", "undefined", "None", "NA", "N/A", "<NA>", "-")
_CLOCK = re.compile(
    r"(?:|[@_]?timestamp|date|_?time|date[ _]?time|ts|epoch|unix[ _]?(?:time(?:stamp)?)?|elapsed(?:[ _]time)?)"
    r"(?:[ _]?[(\[]?(?:(ms|s|us|µs|ns)|secs?|seconds?|utc|gmt)[)\]]?)?"
)
_ELAPSED = re.compile(r"elapsed(?:[ _(]+(?:time|s|secs?|seconds|ms|mins?|minutes)\)?)*")
_UNITS = re.compile(r"(?:(?:value|metric)[_ ]?)?units?([_ ](of|name).*)?|uom|einheit(en)?|unité|unidad")
_ZONE = re.compile(r"time[ _-]?zone|(?:.*[ _-])?tz(?:info|[ _-]?name)?|(?:utc|gmt)[ _-]?offset|zeitzone")
_OF_ZONE = re.compile(
    r"(?:Africa|America|Asia|Atlantic|Australia|Europe|Pacific)/\w+|(?:UTC|GMT)[+-]\d.*|[+-]\d\d:\d\d|CES?T|[ECMP][SD]T"
)
STATUS = ("code", "status", "status_code", "http_status", "http_status_code", "http_response_status_code", "grpc_code")
"""Labels that may hold the status of a request. Only the first label with a known status is used."""
BAD = (
    "(?i)5..|err(or)?s?|server_?error|fail.*|.*exception|time_?out|unavailable|internal|unknown|deadline.*|aborted"
    "|data_?loss|resource_?exhausted"
)
GOOD = "(?i)[123]..|ok|succe.*|complete.*|done|accepted|pass.*|hit"
"""Patterns of the statuses that count as errors (`BAD`) and as successes (`GOOD`)."""
_STATED = re.compile(f"{GOOD}|4..|{BAD.removeprefix('(?i)')}")
_REQUESTS = re.compile(
    r"(?i)(.*(?:requests?|reqs|responses?|calls?|quer(?:y|ies)|transactions?|rpcs?|handled))"
    r"(|_total|_per_second|(?:_duration)?(?:_seconds)?_count)"
)
_INDEX = re.compile(r"|index|Unnamed: ?\d+|__index_level_0__|level_0")
"""Names that pandas gives to a column that was the index of a table."""
_SECONDS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}
_DIGITS = r"(?:(?:19[7-9]|20\d)\d{0}{1}?(?:[0-5]\d){{0,2}}|\d\d{0}{1}[0-5]\d)".format(
    r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])", r"(?:[01]\d|2[0-3])"
)
"""Pattern of a date written as digits, such as 202412111000 or 2412111000."""
_SERIALS = 36_526.0, 73_051.0
"""Start of the years 2000 and 2100 as day numbers of a spreadsheet, in which 1970-01-01 is day 25,569."""
_DAY_OR_MONTH = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})\b(.*)")
_GRAFANA_NAME = re.compile(r"(.+)-data(?:-as-\w+)?-\d{4}-\d\d-\d\d.*\.csv(?:\.gz)?")
"""File name of a CSV that Grafana exports from a panel: the panel's title and the time of the export."""
_NUMBER = r"^\s*(?P<number>[+-]?[\d.,]*\d[.,]?(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s.,\x00][^\x00]*)?$"
"""Pattern of a number, with a decimal point or comma, and its unit. RE2 runs it: ``\\d`` matches only ASCII digits."""
_PLAIN = r"(?i)^\s*[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|nan|inf|infinity)\s*$"
_READINGS = {
    decimal: rf"^[+-]?(?:\d*(?:\{decimal}\d*)?(?:[eE][+-]?\d+)?|[1-9]\d{{0,2}}(?:\{group}\d{{3}})+(?:\{decimal}\d*)?)$"
    for decimal, group in ((".", ","), (",", "."))
}
"""Decimal mark -> pattern of numbers that use this mark for decimals and the other mark for thousands."""


def read_frame(
    frame: pd.DataFrame, catalogue: Catalogue, file: InputFile | None = None
) -> tuple[tuple[Series, ...], tuple[Note, ...]]:
    """Read the series of a table, with notes on counters and on values that seem to be read off a plot.

    Parameters
    ----------
    frame
        Tidy (time, metric, value, labels) or wide (a column for each metric, the time in a column or the index).
    catalogue
        Catalogue with the units of the metrics.
    file
        File of the table, for messages; None for a user's frame.
    """
    if file is None:
        file = InputFile(None, b"", b"")
        frame = frame.rename(columns={"time": "timestamp"})
        named = clock_of([frame.index.name or "unnamed"]) is not None
        is_numbered = isinstance(frame.index, pd.RangeIndex) and frame.index.step == 1 and not named
        timed = clock_of(frame.columns) if pd.api.types.is_integer_dtype(frame.index) else "timestamp" in frame.columns
        if not {"metric", "value"} <= {*frame.columns} and not timed:  # the frame is wide: one column per metric
            if is_numbered or frame.index.nlevels > 1:
                expected = "times: a column `timestamp`, or an index of seconds or dates; or the numbers of a "
                expected += 'benchmark without times: frame.to_dict("list")'
                raise file.fault("index", expected, f"an index of rows or of levels, {frame.index[:1].tolist()}")
            frame = frame.set_axis(frame.columns.map(str), axis=1).rename_axis(index="timestamp", columns=None)
            frame = frame.drop(columns=[name for name, column in frame.items() if _counts_rows(column)])
            frame = frame.melt(var_name="metric", value_name=0, ignore_index=False)  # a column may be named "value"
            frame = frame.reset_index().rename(columns={0: "value"})
        frame = frame.reset_index(drop=True)
    clock = clock_of(frame.columns)
    counted = [name for name, column in frame.items() if name != clock and _counts_rows(column)]
    series = series_of(file, _curves(frame.drop(columns=counted), file, catalogue), catalogue)
    stated = {each.name for each in series if (metric := catalogue.find(each.name)).known and metric.unit}
    counters = dict.fromkeys(each.name for each in series if each.name not in stated and _counts_up(each))
    note = Note("source", f"counters: the rate per second of {', '.join(counters)} is compared")
    series = tuple(_rate(each) if each.name in counters else each for each in series)
    series = (*series, *_errors(series, catalogue))
    return series, (*_digitised(series), *([note] if counters else []))


def _counts_rows(column: pd.Series) -> bool:
    """Whether a column only numbers the rows, or is a second time column with numbers that never fall."""
    if _CLOCK.fullmatch(str(column.name).casefold()) or _ELAPSED.fullmatch(str(column.name).casefold()):
        return pd.to_numeric(column, errors="coerce").is_monotonic_increasing and column.iloc[0] != column.iloc[-1]
    return bool(_INDEX.fullmatch(str(column.name))) and column.is_unique


def _counts_up(series: Series) -> bool:
    """Test for a counter: a name like ``x_total``, no negative value, few falls (at most 1 %, or 3 to near zero)."""
    values = series.values[~np.isnan(series.values)]
    named = re.search("_(total|(seconds|bytes)_(count|sum|bucket))$", series.name)
    if not named or values.size < 2 or not np.all(np.isfinite(values) & (values >= 0.0)):
        return False
    rises, restarted = np.diff(values), values[1:][values[1:] < values[:-1]]
    usual = float(np.median(rises[rises >= 0.0])) if (rises >= 0.0).any() else 0.0
    return restarted.size <= 0.01 * rises.size or (restarted.size <= 3 and bool((restarted <= 2.0 * usual).all()))


def _rate(series: Series) -> Series:
    """Turn a counter into its rate per second; a fall counts as a restart of the counter from zero."""
    rises = np.diff(series.values)
    rates = np.where(rises < 0.0, series.values[1:], rises) / np.diff(series.times)
    return replace(series, times=series.times[1:], values=rates, unit=f"{series.unit or 1}/s")


def clock_of(columns: Iterable[object]) -> str | None:
    """Return the name of the time column, such as ``time_ms`` ("" for an unnamed first column); None if unclear."""
    names = list(map(str, columns))
    matches = [name for name in names if name and _CLOCK.fullmatch(name.strip().casefold())]
    ranks = [("epoch", "unix", "elapsed"), ("epoch", "unix"), ()]  # prefixes to skip: first three, then two, then none
    sure = next(filter(None, ([n for n in matches if not n.casefold().startswith(rank)] for rank in ranks)), [])
    return sure[0] if len(sure) == 1 else "" if not sure and names[:1] == [""] else None


def _curves(frame: pd.DataFrame, file: InputFile, catalogue: Catalogue) -> Iterator[Curve]:
    """Yield the curves of a tidy or a wide table."""
    clock = clock_of(frame.columns)
    columns = {str(column).casefold(): column for column in frame.columns}
    if clock is None or frame.shape[1] < 2 or ("metric" in columns and "value" not in columns):
        raise file.fault("columns", EXPECTED_COLUMNS, ", ".join(map(repr, list(frame.columns)[:8])) or "none")
    if frame.empty:
        raise file.fault("rows", "at least one", "none")
    metric = columns.get("metric", columns.get("series"))
    is_tidy = metric is not None and "value" in columns
    values = [columns["value"]] if is_tidy else [column for column in frame.columns if column != clock]
    if SEPARATOR in frame.attrs:
        frame = with_decimal_points(frame, values, file, clock=clock)
    times = _times(frame[clock], file)
    zone = next((each for name, each in columns.items() if _ZONE.fullmatch(name) or _is_of_zones(frame[each])), None)
    if zone and not ({*frame[zone].astype(str)} <= {"", "UTC", "GMT", "Z"} or _is_zoned(frame[clock]).all()):
        expected = "times in UTC, or with their zone (2024-01-01T10:00:00+01:00)"
        raise file.fault(str(zone), expected, f"{frame[clock].iloc[0]} in {frame[zone].iloc[0]}")
    if not is_tidy:
        yield from _wide(frame[values], times, file, catalogue)
        return
    labels = [column for column in frame.columns if column not in (clock, metric, zone, *values)]
    units = {str(column) for name, column in columns.items() if _UNITS.fullmatch(name)}
    seen = set[tuple[object, ...]]()
    if len(labels) > MAX_LABELS:
        raise file.fault("columns", f"at most {MAX_LABELS} beside a metric and its value", str(len(labels)))
    groups = frame.groupby([metric, *labels], sort=False, dropna=False, observed=True)
    if groups.ngroups > MAX_GRAPHS:  # checked before the slow loop below
        raise file.fault("metrics", f"at most {MAX_GRAPHS} series to draw", f"{groups.ngroups:,}")
    if (numbers := _all_numbers(frame[values[0]])) is not None:  # fast path: no value has a unit
        frame = frame.assign(**{values[0]: numbers})
    for key, indices in groups.indices.items():
        rows = np.sort(indices)
        name, *own = key if isinstance(key, tuple) else (key,)
        if not isinstance(name, str) or not name:
            raise file.fault(f"metric, {_row(file, frame.index, rows[0])}", "a metric's name", "nothing")
        column = frame[values[0]].iloc[rows]
        given = ((str(label), text) for label, text in zip(labels, own, strict=True) if text != "" and pd.notna(text))
        texts = {label: str(text).removesuffix(".0") if isinstance(text, float) else str(text) for label, text in given}
        name, in_name = unit_in(name.strip(), catalogue)
        unit, beside = catalogue.find(name).unit, []
        for label, text in [*texts.items()]:
            stated = text.strip().removesuffix("nan")
            if (is_unit(stated, unit) or not stated or unit) if label in units else unit and is_unit(stated, unit):
                beside.append(stated)
                del texts[label]
        read, unit = numbers_of(column, file, unit, stated=(in_name, *beside))
        if (name, *texts.items()) in seen:
            raise file.fault(f"{metric}, {_row(file, frame.index, rows[0])}", f"one unit of {name}", "a second one")
        seen.add((name, *texts.items()))
        yield Curve(name, times[rows], read, texts, partial(_row, file, column.index), unit)


def _errors(series: Sequence[Series], catalogue: Catalogue) -> Iterator[Series]:
    """For each unlisted metric of requests by status, yield the sum of its errors, unless `series` has this sum."""
    for name in dict.fromkeys(each.name for each in series):
        same, of = [each for each in series if each.name == name], _REQUESTS.fullmatch(name)
        texts = [[each.labels.get(label, "").removesuffix(".0") for each in same] for label in STATUS]
        status = next((each for each in texts if any(map(_STATED.fullmatch, each))), None)
        if of is None or status is None or catalogue.find(name).known:
            continue
        made = f"{of[1]}_errors{'_total' if of[2].endswith(('_total', '_count')) else of[2]}"
        times = max((each.times for each in same), key=len)
        values = np.zeros(times.size)
        for each, text in zip(same, status, strict=True):
            finite = np.isfinite(each.values)
            if re.fullmatch(BAD, text) and finite.any():
                values += np.interp(times, each.times[finite], each.values[finite], left=0.0, right=0.0)
        if all(each.name != made for each in series):
            yield Series(catalogue.find(made).slug, made, same[0].unit, times, values)


def _wide(frame: pd.DataFrame, times: FloatArray, file: InputFile, catalogue: Catalogue) -> Iterator[Curve]:
    """Yield each column as a curve, named after the column, or after the panel for unlisted columns from Grafana."""
    grafana = _GRAFANA_NAME.fullmatch(Path(file.path or "").name)
    title, of_title = unit_in(grafana[1].strip(), catalogue) if grafana else (None, "")
    for column in map(str, frame.columns):
        name, unit = unit_in(column, catalogue)
        metric = name if catalogue.find(name).known else title or (None if name.casefold() == "value" else name)
        if not metric:
            expected = "a metric's name (or a file named as Grafana does: 'P99 API times-data-2024-12-11 10_00_00.csv')"
            raise file.fault("columns", expected, repr(column))
        labels = {"series": column} if metric != name and frame.shape[1] > 1 else {}
        legend = split_unit(column)[1] if column[-1:] in (")", "]") else ""
        stated = (unit,) if metric == name else (of_title, legend)
        values, base = numbers_of(frame[column], file, catalogue.find(metric).unit, stated=stated)
        yield Curve(metric, times, values, labels, partial(_row, file, frame.index), base)


def unit_in(column: str, catalogue: Catalogue) -> tuple[str, str]:
    """Split a header such as ``P99 API times (ms)`` into name and unit if the metric is listed; else no unit."""
    name, unit = split_unit(column)
    if unit and unit.casefold() != "min" and catalogue.find(name).known:  # `_min` is a minimum
        return name, unit
    whole, parts = catalogue.find(column), re.fullmatch(r"(.{1,200}?)\s*[(\[{]([^()\[\]{}]+)[)\]}]", column)
    base = catalogue.find(parts[1]) if parts else whole
    is_other = whole.known and (whole.name == column or whole.slug != base.slug)
    return (parts[1], parts[2]) if parts and base.known and not is_other else (column, "")


def states_units(column: pd.Series) -> bool:
    """Whether a column states the units of the values in another column: its name says so, or all cells are units."""
    cells = {*column.astype(str).str.strip()} - {""}
    is_named = _UNITS.fullmatch(str(column.name).casefold()) is not None
    return is_named or (bool(cells) and all(is_unit(cell, "") for cell in cells))


def _digitised(series: Sequence[Series]) -> tuple[Note, ...]:
    """Return a note if counts, such as users, are mostly fractions with few digits, like values read off a plot."""
    counted = ("users", "goroutines")  # servers export both as whole numbers
    values = [each.values[np.isfinite(each.values) & (each.values != 0)] for each in series if each.unit in counted]
    moving = np.concatenate([np.empty(0), *values])
    if moving.size == 0 or np.mean(moving != np.rint(moving)) <= 0.5:
        return ()
    scaled = moving * 10.0 ** (FEW_DIGITS - 1 - np.floor(np.log10(np.abs(moving))))
    return (DIGITISED,) if np.mean(np.abs(scaled - np.rint(scaled)) < 1e-3) > 0.99 else ()


def _row(file: InputFile, rows: pd.Index, index: int) -> str:
    """Name a row of the data for messages, such as ``line 3`` of a file or ``row 3`` of a frame."""
    return f"{'row' if file.path is None else 'line'} {rows[index]}"


# ---- Times ----------------------------------------------------------------------------------------------------------


def _times(column: pd.Series, file: InputFile) -> FloatArray:
    """Convert times to seconds since 1970 or since the run's start; text without a zone is UTC.

    The unit of numbers comes from the params or the column's name. If neither states a unit, large numbers have the
    unit that gives plausible dates, and small numbers are seconds since the run's start. Ambiguous times are refused.
    """
    name, place = str(column.name), partial(_row, file, column.index)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "m":
        return np.asarray(column.dt.total_seconds())
    column = column.dt.to_timestamp() if isinstance(column.dtype, pd.PeriodDtype) else column
    numbers = None if pd.api.types.is_datetime64_any_dtype(column) else _all_numbers(column)
    if numbers is None:
        return _instants(column, file, place)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise file.fault(f"{name}, {place(bad[0])}", "a time", repr(column.iloc[bad[0]]))
    named = _CLOCK.fullmatch(name.strip().casefold())
    low, high = (numbers.min(), numbers.max()) if numbers.size else (0.0, 0.0)
    steps = np.diff(np.unique(numbers))
    stated, step = named[1] if named else None, float(np.median(steps)) if steps.size else 0.0
    fits = [unit for unit, size in _SECONDS.items() if EARLIEST * size <= low and high < LATEST * size]
    near = [unit for unit, size in _SECONDS.items() if TESTED[0] * size <= low and high < TESTED[1] * size]
    unit, other = stated or [*fits, "s"][0], ""
    if all(re.fullmatch(_DIGITS, f"{each:.0f}") for each in (low, high)) and (numbers % 100 < 60).all():
        other = "date"
    elif _SERIALS[0] <= low and high < _SERIALS[1] and step < 0.5:
        other = "days"
    elif stated and stated not in fits and near:
        other = near[0]
    elif fits and not near and not stated and file.path is not None:
        other = "year"
    elif not stated and not fits and file.path is not None:
        is_index = not name and step == 1.0
        is_clock = low > max(600.0, 10.0 * (high - low)) or ((numbers % 100 < 60).all() and (steps == step + 40).any())
        other = "rows" if is_index else "ms" if step > LONGEST_STEP_S or high - low > LONGEST_RUN_S else ""
        other = other or ("clock" if is_clock else "minutes" if 0.0 < step < LEAST_STEP_S else "")
    if other and not file.time_unit:
        either = f"unless {_UNLESS[other]}" if other in _UNLESS else f"or `time_unit: {other}`"
        expected = f"times with one meaning (set `time_unit: {unit}` in `source`, {either})"
        raise file.fault(name or "column 1", expected, f"{low:.15g} to {high:.15g} in steps of {step:.6g}")
    unit = file.time_unit or unit
    if unit == "days":
        return np.asarray(np.round((numbers - 25_569.0) * 86_400.0, 3))
    if unit == "date":
        texts = pd.Series(np.char.mod("%.0f", numbers), column.index, name=name)
        is_short = re.fullmatch(r"(?!19|20).{10}", texts.iloc[0])
        form = "%y%m%d%H%M" if is_short else "%Y%m%d%H%M%S"[: len(texts.iloc[0]) - 2]
        return _instants(pd.to_datetime(texts, format=form, errors="coerce").astype(str), file, place)
    return numbers / _SECONDS[unit]


def _is_of_zones(column: pd.Series) -> bool:
    return all(part.astype(str).str.fullmatch(_OF_ZONE.pattern).all() for part in (column[:1], column))


def _is_zoned(times: pd.Series) -> npt.NDArray[np.bool_]:
    """Tell for each time whether its zone is known; the zone of a number is UTC."""
    if pd.api.types.is_numeric_dtype(times):
        return np.ones(len(times), dtype=bool)
    return np.asarray(times.astype(str).str.contains(r"^[\d.]+$|.{10}.*(?:Z|[+-])"))


def _instants(column: pd.Series, file: InputFile, place: Callable[[int], str]) -> FloatArray:
    """Convert dates in ISO 8601 to seconds since 1970. If no date has a zone, all are UTC; a mixture is refused."""
    codes, unique = pd.factorize(column, use_na_sentinel=False)
    texts = pd.Series(unique)
    if str(texts.iloc[0])[-1:] in ("C", "T", "z"):
        texts = texts.astype(str).str.replace(r"(?: ?\+00:?00)? ?(?:UTC|GMT|z)$", "Z", regex=True)
    dates = pd.to_datetime(texts, utc=True, format="ISO8601", errors="coerce")

    def fault(bad: Any, expected: str) -> None:
        rows = np.flatnonzero(np.asarray(bad)[codes])
        if rows.size:
            text = column.iloc[rows[0]]
            days = _DAY_OR_MONTH.fullmatch(str(text)) if expected == "a time such as " else None
            pairs = (days.group(1, 2), days.group(2, 1)) if days else ()
            either = [f"{days[3]}-{b:0>2}-{a:0>2}{days[4]}" for a, b in pairs if int(b) <= 12] if days else []
            expected += (" or ".join(dict.fromkeys(either)) or "2024-01-01T00:00:00Z") if expected[-1] == " " else ""
            raise file.fault(f"{column.name}, {place(rows[0])}", expected, repr(text))

    fault(dates.isna(), "a time such as ")
    zoned = _is_zoned(texts)
    if zoned.any():
        fault(~zoned, "a time with its zone, as others have")
    seconds = np.asarray(dates.dt.as_unit("us").astype("int64").to_numpy() / 1e6)[codes]  # nanoseconds overflow in 2262
    hours, steps = seconds // 3600 % 24, np.diff(seconds)
    half_days = (np.abs(steps + 41_400.0) <= 1_800.0) & (hours.min() >= 1) & (hours.max() <= 12)
    is_alone = unique.size == seconds.size and np.count_nonzero(steps < 0) == 1  # distinct times that decrease once
    hour = (steps <= -3_000.0) & (steps >= -3_600.0) & is_alone
    for marks, expected in ((half_days, "24-hour times"), (hour, "each hour once")):
        if marks.any() and not zoned.any():
            back = int(np.argmax(marks))
            found = f"{column.iloc[back + 1]} after {column.iloc[back]}"
            raise file.fault(f"{column.name}, {place(back + 1)}", f"{expected} (or times with their zone)", found)
    return seconds


# ---- Numbers --------------------------------------------------------------------------------------------------------


def numbers_of(
    column: pd.Series, file: InputFile, unit: str = "", *, stated: Sequence[str] = ()
) -> tuple[FloatArray, str]:
    """Convert cells to numbers in `unit`, with NaN for empty cells; `stated` holds the units stated outside the cells.

    Also return the unit of the numbers: `unit`, or if it is empty, the base unit of the first unit stated or in a cell.
    """
    if column.dtype.kind == "m":
        column, stated = column.dt.total_seconds(), (*stated, "s")
    place = partial(_row, file, column.index)
    factors: dict[str, float] = {}

    def factor_of(key: str, text: str) -> float:
        factors[text] = unit_factor(file.fault, f"{column.name}, {key}", text, unit, is_suffix=True)
        if stated and len({*factors.values()}) > 1:
            raise file.fault(f"{column.name}, {key}", "one unit", " and ".join(map(repr, factors)))
        return factors[text]

    stated = [text for text in stated if text]
    factor = [1.0, *(factor_of("unit", text) for text in stated)][-1]
    if (numbers := _all_numbers(column)) is not None:
        return numbers * factor, unit or base_unit(next(iter(factors), ""))
    texts = _texts(column)
    bare, parts = np.asarray(pc.match_substring_regex(texts, _PLAIN)), pc.extract_regex(texts, _NUMBER)
    suffixes = np.asarray(pc.fill_null(pc.utf8_trim_whitespace(pc.struct_field(parts, "unit")), ""), dtype=object)
    digits = pc.if_else(bare, texts, pc.fill_null(pc.struct_field(parts, "number"), "none"))
    bad = np.flatnonzero(~np.asarray(pc.match_substring_regex(digits, _PLAIN)) | (~bare & (suffixes == "")))
    if bad.size:
        raise file.fault(f"{column.name}, {place(bad[0])}", "a number or NaN", repr(column.iloc[bad[0]]))
    values = _cast(digits).copy()  # Arrow's memory is read-only
    for suffix in pd.unique(suffixes[~bare]):
        rows = np.flatnonzero(~bare & (suffixes == suffix))
        values[rows] *= factor_of(place(rows[0]), suffix)
    alone = np.flatnonzero(bare & np.isfinite(values) & (values != 0))
    if alone.size and not stated:
        expected = "a unit after each value, as in other rows"
        raise file.fault(f"{column.name}, {place(alone[0])}", expected, repr(column.iloc[alone[0]]))
    values[bare] *= factor
    return values, unit or base_unit(next(iter(factors), ""))


def with_decimal_points(
    frame: pd.DataFrame, columns: Sequence[str], file: InputFile, *, clock: str | None = None
) -> pd.DataFrame:
    """Rewrite the numbers in text columns, and in the time column `clock` if numeric, with a point as decimal mark.

    A file is refused if its marks conflict, or if all are ambiguous, as in ``1,234``, which may be 1.234 or 1234.
    """
    if frame.attrs[SEPARATOR] == "," and b'"' not in file.contents:  # no cell can contain a comma
        return frame
    if clock is not None and all(part.str.fullmatch(r"[\d.,]+").all() for part in (frame[clock][:1], frame[clock])):
        columns = [*columns, clock]
    if frame.attrs[SEPARATOR] == "," and not any(frame[each].str.contains(",", regex=False).any() for each in columns):
        return frame
    cells = pd.concat({column: frame[column] for column in columns})
    parts = cells.str.extract(_NUMBER)
    heads = parts["number"].dropna()
    heads = heads[heads.str.contains("[.,]")]
    fits = {mark: heads.str.contains(pattern) for mark, pattern in _READINGS.items()}
    sure = [mark for mark in fits if fits[mark].all()]
    if heads.empty or (sure == ["."] and not heads.str.contains(",", regex=False).any()):
        return frame
    if len(sure) == 2:
        (column, line), text = heads.index[0], heads.iloc[0]
        mark = "," if "," in text else "."
        expected = f"a number with one meaning ({text.replace(mark, '.')} or {text.replace(mark, '')})"
        raise file.fault(f"{column}, line {line}", expected, repr(text))
    if not sure:
        mark = max(fits, key=lambda each: int(fits[each].sum()))
        (column, line), like = heads[~fits[mark]].index[0], heads[fits[mark]]
        expected = f"one decimal mark, as in {like.iloc[0]!r} of line {like.index[0][1]}" if len(like) else "a number"
        raise file.fault(f"{column}, line {line}", expected, repr(heads[column, line]))
    (decimal,), group = sure, "," if sure == ["."] else "."
    numbers = parts["number"].str.replace(group, "", regex=False).str.replace(decimal, ".", regex=False)
    cells = (numbers + parts["unit"].fillna("")).fillna(cells)
    return frame.assign(**{column: cells.loc[column] for column in columns})


def _texts(column: pd.Series, *, clean: bool = True) -> pa.ChunkedArray:
    """Convert the cells of a column to text; `clean` strips blanks, and turns cells such as ``NA`` into ``nan``."""
    texts = pa.array([*map(str, column)] if pd.api.types.is_object_dtype(column) else column).cast(pa.string())
    texts = pc.fill_null(texts, "nan")
    return pc.if_else(pc.is_in(texts, pa.array(_NO_VALUE)), "nan", pc.utf8_trim_whitespace(texts)) if clean else texts


def _all_numbers(column: pd.Series) -> FloatArray | None:
    """Convert a column to numbers, with NaN for empty cells; return None if a cell is not a plain number."""
    if column.dtype.kind == "m":  # durations are no plain numbers
        return None
    if pd.api.types.is_numeric_dtype(column):
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    for clean in (False, True):  # clean only if parsing fails: cleaning doubles the time, and most columns need none
        with contextlib.suppress(ValueError):
            return _cast(_texts(column, clean=clean))
    return None


def _cast(texts: pa.ChunkedArray) -> FloatArray:
    """Parse numbers to the same bits as `float`; other text, ``1_000`` and digits outside ASCII raise a ValueError."""
    numbers = np.asarray(pc.cast(texts, "float64"))
    if np.isnan(numbers).any() and pc.any(pc.match_substring(texts, "(")).as_py():
        raise ValueError("nan(1), which Arrow takes for NaN")
    return numbers
