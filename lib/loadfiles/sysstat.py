"""Read the operating system's statistics: iostat, mpstat and sar (by sadf) as JSON, vmstat as text.

A series is named by its tool and column, such as ``iostat r/s``; a device or interface is a label. Clocks without a
zone are UTC. The first sample of iostat and vmstat, a mean since the machine started, is left out.
"""

import datetime as dt
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import Curve, InputFile, series_of
from buildcompare.recordings.formats import FileSource
from buildcompare.recordings.recording import Recording, span
from buildcompare.recordings.series import to_float

EXPECTED = "statistics as JSON (iostat -t -x -o JSON 5; mpstat -o JSON 5; sadf -j FILE for sar), or vmstat -t as text"
_LABELS = {"disk_device": "device", "disk-device": "device"}
_LABELS |= {name: name for name in ("iface", "intr", "name", "number", "filesystem", "mountpoint")}
"""Keys of texts that name a row's device -> label. Of processors only the mean of all is read."""
_STAMP = re.compile(
    r"(?:(?:(\d{4})-(\d\d)-(\d\d)|(\d\d)/(\d\d)/(\d\d(?:\d\d)?))[T ])?"
    r"(\d\d):(\d\d):(\d\d)(?: (AM|PM))?(?:([+-]\d\d):?(\d\d))?"
)
_DAY_S = 86_400.0
_Row = tuple[float, int, dict[str, str], dict[str, float]]
"""Seconds since 1970, place in the file, labels, and numbers by column."""


def read_sysstat(file: InputFile, catalogue: Catalogue) -> Recording:
    """Read every column of numbers as a series."""
    if file.contents.lstrip()[:1] == b"{":
        where, (tool, rows) = "sysstat.hosts[0].statistics[{}]", _json(file)
    elif b"procs" in file.contents[:100]:
        where, tool, rows = "line {}", "vmstat", _vmstat(file)
    else:
        raise file.fault("line 1", EXPECTED, "other text")
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[float, int, float]]] = defaultdict(list)
    for seconds, place, labels, numbers in rows:
        for name, number in numbers.items():
            samples[f"{tool} {name}", tuple(labels.items())].append((seconds, place, number))
    curves = []
    for (name, pairs), columns in samples.items():
        times, places, values = np.array(columns).T
        curves.append(Curve(name, times, values, dict(pairs), [where.format(int(each)) for each in places].__getitem__))
    series = series_of(file, curves, catalogue)
    window = span(series)
    if window is None:
        raise file.fault("line 1", EXPECTED, "no sample after the first, which counts from the machine's start")
    origin = {"kind": "sysstat", "rate_s": max(each.step_s for each in series), "files": [file.provenance]}
    return Recording(series, window, stop_known=False, provenance=origin)


def _json(file: InputFile) -> tuple[str, Iterator[_Row]]:
    try:
        (host,) = file.json()["sysstat"]["hosts"]
        statistics = list(host["statistics"])
        disks = any("avg-cpu" in each or "disk" in each for each in statistics)
        tool = "sar" if "file-date" in host else "iostat" if disks else "mpstat"
        return tool, _rows(file, str(host.get("date", "")), statistics, first=int(tool == "iostat"))
    except (KeyError, TypeError, ValueError) as error:
        raise file.fault("sysstat.hosts", f"{EXPECTED}, of one machine", f"{type(error).__name__}: {error}") from None


def _rows(file: InputFile, date: str, statistics: list[Any], first: int) -> Iterator[_Row]:
    before = 0.0
    for i, each in enumerate(statistics[first:], start=first):
        place = f"sysstat.hosts[0].statistics[{i}]"
        try:
            stamp = each.get("timestamp", "")
            if isinstance(stamp, dict):  # of sadf
                if not stamp["utc"]:
                    raise file.fault(place, "times in UTC (sadf -j without -t or -T)", repr(stamp["time"]))
                stamp = f"{stamp['date']} {stamp['time']}"
            before = _time(file, place, stamp, date, before)
            yield from ((before, i, labels, numbers) for labels, numbers in _tables(each, {}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise file.fault(place, "numbers by their names", f"{type(error).__name__}: {error}") from None


def _tables(value: Any, labels: dict[str, str]) -> Iterator[tuple[dict[str, str], dict[str, float]]]:
    """Yield the tables of one sample at any depth, each with its labels and its numbers by column."""
    for each in value if isinstance(value, list) else ():
        yield from _tables(each, labels)
    if isinstance(value, dict) and value.get("cpu", "all") in ("all", "-1"):
        parts = {key: part for key, part in value.items() if key not in ("cpu", "timestamp")}
        labels = labels | {_LABELS[key]: str(part) for key, part in parts.items() if key in _LABELS}
        plain = {key: part for key, part in parts.items() if key not in _LABELS and not isinstance(part, dict | list)}
        if odd := [key for key, number in plain.items() if type(number) not in (int, float)]:
            raise ValueError(f"{odd[0]}: {plain[odd[0]]!r}")
        yield labels, {key: float(number) for key, number in plain.items()}
        for part in parts.values():
            yield from _tables(part, labels)


def _vmstat(file: InputFile) -> Iterator[_Row]:
    names: list[str] = []
    before, count = 0.0, 0
    for number, line in enumerate(file.contents.decode("utf-8", errors="replace").splitlines(), start=1):
        cells, place = line.split(), f"line {number}"
        if not cells or "procs" in line:
            continue
        if cells[:2] == ["r", "b"]:
            names = [name for name in cells if name.islower()]
            if (zone := "".join(cells[len(names) :])) not in ("", "UTC", "GMT"):
                raise file.fault(place, "times in UTC (TZ=UTC vmstat -t)", zone)
            continue
        try:
            numbers = dict(zip(names, map(to_float, cells[: len(names)]), strict=True))
        except ValueError:
            raise file.fault(place, f"{len(names)} numbers", repr(line[:60])) from None
        before = _time(file, place, " ".join(cells[len(names) :]), "", before)
        count += 1
        if count > 1:
            yield before, number, {}, numbers


def _time(file: InputFile, place: str, stamp: str, date: str, before: float) -> float:
    """Seconds since 1970 of a time stamp, or of a clock time on the file's `date` (past midnight: on later days)."""
    is_dated = "/" in stamp or "-" in stamp[:5]
    match = _STAMP.fullmatch(stamp if is_dated else f"{date} {stamp}")
    if match is None or not (match[1] or match[4]):
        expected = "the date and time of each sample (iostat and vmstat print them with -t, all with S_TIME_FORMAT=ISO)"
        raise file.fault(place, expected, repr(f"{date} {stamp}".strip()[:40]) if stamp else "none")
    year, month, day = map(int, match.group(1, 2, 3) if match[1] else match.group(6, 4, 5))
    if match[4] and max(month, day) <= 12 and month != day and not match[10]:
        raise file.fault(place, "a date with one meaning (sysstat prints such with S_TIME_FORMAT=ISO)", repr(match[0]))
    month, day = (day, month) if match[4] and month > 12 else (month, day)
    hour, minute, second = map(int, match.group(7, 8, 9))
    hour = hour % 12 + (12 if match[10] == "PM" else 0) if match[10] else hour
    zone = dt.timedelta(hours=int(match[11]), minutes=int(match[11][0] + match[12])) if match[11] else dt.timedelta()
    try:
        instant = dt.datetime(year + 2000 * (year < 100), month, day, hour, minute, second, tzinfo=dt.timezone(zone))
    except ValueError as error:
        raise file.fault(place, "a date and a time", f"{match[0][:40]!r} ({error})") from None
    days = 0 if is_dated else max(math.ceil((before - instant.timestamp()) / _DAY_S), 0)
    if days and (before - instant.timestamp()) % _DAY_S < 1.1 * 3600.0:  # set back, as where summer time ends
        raise file.fault(place, "times that increase (past midnight: that begin again)", f"{stamp} after a later one")
    return instant.timestamp() + days * _DAY_S


_LIKE = re.compile(rb'\s*\{\s*"sysstat"|-*procs-* -|Linux \S+ \(')
SOURCE = FileSource(EXPECTED, read_sysstat, lambda contents: _LIKE.match(contents) is not None)
