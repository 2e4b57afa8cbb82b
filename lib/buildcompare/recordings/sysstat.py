"""Recordings from the operating system's statistics: iostat and mpstat (JSON), vmstat and sar (text).

A series is named by its tool and column, such as ``iostat r/s``, with the device as a label. A clock time without a
zone is taken as UTC; of a date with slashes the file must
say whether the month stands first: by a number above 12, or a clock of 12 hours. What iostat and vmstat print
first is the mean since the machine started, and left out.
"""

import datetime as dt
import math
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import Curve, FileSource, InputFile, series_of
from buildcompare.recordings.recording import FloatArray, Recording, span

EXPECTED = "statistics of sysstat: iostat -t or mpstat in JSON (-o JSON), vmstat -t or sar as text"
_LABELS = ("CPU", "DEV", "IFACE", "INTR", "TTY", "FILESYSTEM")  # columns of sar that name what a row is of
_DATE = re.compile(
    r"(?P<y>\d{4})[-年](?P<m>\d\d)[-月](?P<d>\d\d)|(?P<us_m>\d\d)/(?P<us_d>\d\d)/(?P<us_y>\d\d(?:\d\d)?)"
    r"|(?P<de_d>\d\d)\.(?P<de_m>\d\d)\.(?P<de_y>\d\d(?:\d\d)?)"
)
_CLOCK = re.compile(r"(\d\d)[:時时](\d\d)[:分](\d\d)秒?(?: (AM|PM))?(?:([+-]\d\d):?(\d\d))?")
_SLASHED = re.compile(rb"\b(\d\d)/(\d\d)/\d\d(?:\d\d)?\b")
_DAY_S = 86_400.0
_Labels = tuple[tuple[str, str], ...]


class _Row(NamedTuple):
    """Numbers of one time, each under its name, and where they stand."""

    seconds: float
    place: int
    labels: _Labels
    names: tuple[str, ...]
    values: Sequence[float]


def read_sysstat(file: InputFile, catalogue: Catalogue) -> Recording:
    """Every column of numbers as a series."""
    if file.contents.lstrip()[:1] == b"{":
        where, (tool, rows) = "sysstat.hosts[0].statistics[{}]", _json(file)
    else:
        where = "line {}"
        lines = file.contents.decode("utf-8", errors="replace").splitlines()
        tool, rows = ("vmstat", _vmstat(file, lines)) if "procs" in lines[0] else ("sar", _sar(file, lines))
    tables: dict[tuple[_Labels, tuple[str, ...]], tuple[array[float], ...]] = {}
    for row in rows:
        if row.names:
            times, places, values = tables.setdefault((row.labels, row.names), (array("d"), array("d"), array("d")))
            times.append(row.seconds)
            places.append(row.place)
            values.extend(row.values)
    samples: dict[tuple[str, _Labels], list[FloatArray]] = {}
    for (labels, names), table in tables.items():
        at, place, numbers = map(np.asarray, table)
        for name, column in zip(names, numbers.reshape(-1, len(names)).T, strict=True):
            samples.setdefault((f"{tool} {name}", labels), []).append(np.array([at, place, column]))
    series = series_of(file, [_curve(*key, np.hstack(parts), where) for key, parts in samples.items()], catalogue)
    window = span(series)
    if window is None:
        raise file.fault("line 1", EXPECTED, "no sample after the first, which counts from the machine's start")
    origin = {"kind": "sysstat", "rate_s": max(each.step_s for each in series), "files": [file.provenance]}
    return Recording(series, window, stop_known=False, provenance=origin)


def _curve(name: str, labels: _Labels, samples: FloatArray, where: str) -> Curve:
    """Of times, places and values; `where` says what the number of a place counts."""
    times, places, values = samples
    return Curve(name, times, values, dict(labels), lambda i: where.format(int(places[i])))


def _json(file: InputFile) -> tuple[str, Iterator[_Row]]:
    try:
        (host,) = file.json()["sysstat"]["hosts"]
        statistics = host["statistics"]
        disks = any("disk" in each for each in statistics)
        return ("iostat" if disks else "mpstat"), _of_json(file, host, statistics, first=int(disks))
    except (KeyError, TypeError, ValueError) as error:
        raise file.fault("sysstat.hosts", f"{EXPECTED}, of one machine", f"{type(error).__name__}: {error}") from None


def _of_json(file: InputFile, host: Mapping[str, Any], statistics: list[Any], first: int) -> Iterator[_Row]:
    before = 0.0
    for i, each in enumerate(statistics[first:], start=first):
        place = f"sysstat.hosts[0].statistics[{i}]"
        try:
            stamp = str(each["timestamp"]) if "timestamp" in each else ""
            before = _time(file, place, str(host.get("date", "")), stamp, before)
            parts: list[tuple[dict[str, str], dict[str, Any]]] = [({}, each.get("avg-cpu", {}))]
            parts += [({"device": str(disk.pop("disk_device"))}, disk) for disk in map(dict, each.get("disk", ()))]
            parts += [({}, cpu) for cpu in map(dict, each.get("cpu-load", ())) if str(cpu.pop("cpu")) in ("all", "-1")]
            for labels, numbers in parts:
                yield _Row(before, i, tuple(labels.items()), tuple(numbers), [*map(float, numbers.values())])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise file.fault(place, "numbers by their names", f"{type(error).__name__}: {error}") from None


def _vmstat(file: InputFile, lines: list[str]) -> Iterator[_Row]:
    names: tuple[str, ...] = ()
    since_start, before = True, 0.0
    for number, line in enumerate(lines, start=1):
        cells, place = line.split(), f"line {number}"
        if not cells or "procs" in line:
            continue
        if cells[:2] == ["r", "b"]:
            names = tuple(name for name in cells if name.islower())  # then a zone, with -t
            continue
        stamp = " ".join(cells[len(names) :])
        numbers = _numbers(file, place, names, cells[: len(names)])
        before = _time(file, place, stamp, stamp, before)
        if not since_start:
            yield _Row(before, number, (), names, numbers)
        since_start = False


def _sar(file: InputFile, lines: list[str]) -> Iterator[_Row]:
    names: list[str] = []
    date = lines[0]
    last: dict[tuple[str, ...], float] = {}  # by table: each begins again at the first sample
    for number, line in enumerate(lines[1:], start=2):
        cells, place = line.split(), f"line {number}"
        if line.startswith("Linux "):  # each file of a day begins so
            date = line
            continue
        if not cells or not cells[0][0].isdigit() or "LINUX RESTART" in line:  # averages, in any language
            continue
        clock = 2 if cells[1:2] in (["AM"], ["PM"]) else 1
        rest = cells[clock:]
        if rest and not any(re.fullmatch(r"-?[\d.,]+", cell) for cell in rest):
            names = rest
            continue
        if len(rest) != len(names):
            raise file.fault(place, f"{len(names)} columns, as in the line of their names", str(len(rest)))
        key = tuple(names)
        labels = {name.casefold(): cell for name, cell in zip(names, rest, strict=True) if name in _LABELS}
        told = tuple(name for name in names if name not in _LABELS)
        before = last[key] = _time(file, place, date, " ".join(cells[:clock]), last.get(key, 0.0))
        cells = [cell for name, cell in zip(names, rest, strict=True) if name not in _LABELS]
        numbers = _numbers(file, place, told, cells)
        if labels.get("cpu", "all") == "all":
            labels.pop("cpu", None)
            yield _Row(before, number, tuple(labels.items()), told, numbers)


def _numbers(file: InputFile, place: str, names: Sequence[str], cells: Sequence[str]) -> list[float]:
    try:
        return [float(cell.replace(",", ".")) for _, cell in zip(names, cells, strict=True)]
    except ValueError:
        raise file.fault(place, f"{len(names)} numbers", repr(" ".join(cells)[:60])) from None


def _time(file: InputFile, place: str, date: str, stamp: str, before: float) -> float:
    """Seconds since 1970 of a date and a clock, of which the first may stand in either; past midnight a day later."""
    slashed = _DATE.search(stamp) or _DATE.search(date)
    day_first = False
    if slashed and slashed["us_m"] and _CLOCK.search(stamp):
        reading = _reading(file.contents)
        if reading is None and slashed["us_m"] != slashed["us_d"] and not stamp.endswith(("AM", "PM")):
            expected = "a date of one reading (sysstat prints such with S_TIME_FORMAT=ISO)"
            raise file.fault(place, expected, repr(slashed[0]))
        day_first = reading == "day"
    try:
        found = _instant(date, stamp, day_first=day_first)
    except ValueError as error:
        raise file.fault(place, "a date and a time", f"{stamp[:40]!r} ({error})") from None
    if found is None:
        expected = "the time of each sample (iostat and vmstat print it with -t; any with LC_ALL=C)"
        raise file.fault(place, expected, repr(stamp[:40]) if stamp else "none")
    seconds, dated = found
    if seconds < before and not dated:  # past midnight
        seconds += _DAY_S * math.ceil((before - seconds) / _DAY_S)
    return seconds


@lru_cache(maxsize=1)
def _reading(contents: bytes) -> str | None:
    """What stands first in the dates with slashes of a file; None where both the day and the month may."""
    first, second = (max(map(int, each), default=0) for each in (zip(*_SLASHED.findall(contents), strict=True)))
    return "month" if second > 12 else "day" if first > 12 else None


@lru_cache(maxsize=100)  # rows of one time follow each other
def _instant(date: str, stamp: str, *, day_first: bool) -> tuple[float, bool] | None:
    """Seconds since 1970, and whether `stamp` has its date; None where there is no date or no clock."""
    own, clock = _DATE.search(stamp), _CLOCK.search(stamp)
    day = own or _DATE.search(date)
    if day is None or clock is None:
        return None
    year, month, of_month = (int(next(filter(None, day.group(each, f"us_{each}", f"de_{each}")))) for each in "ymd")
    if day_first:
        month, of_month = of_month, month
    hour, minute, second = (int(part) for part in clock.group(1, 2, 3))
    hour = hour % 12 + (12 if clock[4] == "PM" else 0) if clock[4] else hour
    zone = dt.timedelta(hours=int(clock[5]), minutes=int(clock[5][0] + clock[6])) if clock[5] else dt.timedelta()
    of_century = year + (2000 if year < 100 else 0)
    instant = dt.datetime(of_century, month, of_month, hour, minute, second, tzinfo=dt.timezone(zone))
    return instant.timestamp(), own is not None


SOURCE = FileSource(
    EXPECTED,
    read_sysstat,
    lambda contents: re.match(rb'\s*\{\s*"sysstat"|-*procs-* -|Linux \S+ \(', contents) is not None,
)
