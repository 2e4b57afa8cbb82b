"""A table of earlier comparisons becomes a ledger: one row for each test, checked cell by cell before anything is kept.

The columns are those of a published history of comparisons (docs/history.md lists them). A row that two people could
read in two ways is refused with its line.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buildcompare.config.errors import InputError
from buildcompare.config.params import SLUG
from buildcompare.config.yaml import checked
from buildcompare.history.ledger import Entry, alone, record, version_in

REQUIRED = ("release", "monthly", "order", "base_label", "new_label", "db", "test_type", "su_base", "su_new")
SETUP_COLUMNS = {
    "load_test_version": "Load-test version",
    "dataset": "Dataset",
    "duration": "Bounded - duration",
    "max_active_users": "Unbounded - MaxActiveUsers",
    "app_instances": "App instances",
    "agent_instances": "Agent instances",
    "proxy_instance": "Proxy Instance",
    "db_instances": "DB instances",
}
"""Columns that become rows of the setup, named as in published reports."""
COORDINATOR_COLUMNS = ("users_inc", "users_dec", "rest_s")
THRESHOLD = "threshold_"
"""Columns whose name starts so hold alert thresholds."""
DELTA_TOLERANCE = 0.01
"""A stated change (percent) may be rounded or cut off at its last digit, or at two; else it is of other figures."""
DELIMITERS = (",", ";", "\t")
MAX_BYTES = 20_000_000
_FORMULA = re.compile(r"^[=@\t\r]|^[+-](?![\d.])")
_THOUSANDS = re.compile(r"\d{1,3}\.\d{3}")
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,9})?")


@dataclass(frozen=True)
class _Row:
    """One line of the table."""

    file: Path
    line: int
    cells: Mapping[str, str]
    commas: bool = True
    """Whether cells are separated by commas: where they are not, a point may be one between thousands."""

    def text(self, column: str) -> str:
        """A cell without the space around it; empty where the table lacks the column."""
        value = self.cells.get(column, "").strip()
        if _FORMULA.match(value):
            raise self.fault(
                column, "text or a plain number", f"what a spreadsheet takes for a formula, {value[:60]!r}"
            )
        if any(ord(char) < 32 for char in value):
            raise self.fault(column, "text on one line", repr(value[:60]))
        return value

    def needed(self, column: str) -> str:
        value = self.text(column)
        if not value:
            raise self.fault(column, "a value", "none")
        return value

    def number(self, column: str) -> float | None:
        value = self.text(column)
        if not value:
            return None
        if not _NUMBER.fullmatch(value):
            raise self.fault(column, "a plain number such as 6537 or 0.5", repr(value[:60]))
        return float(value)

    def whole(self, column: str) -> int | None:
        value = self.number(column)
        if value is not None and (value != math.floor(value) or value <= 0):
            raise self.fault(column, "a positive whole number", repr(self.text(column)))
        return None if value is None else int(value)

    def percent(self, column: str) -> tuple[float, float] | None:
        """A change in percent with sign or percent sign, and how far it may be rounded or cut off."""
        value = self.text(column).replace("\u2212", "-").removesuffix("%").strip()
        if not value:
            return None
        plain = value.removeprefix("+")
        if not _NUMBER.fullmatch(plain):
            raise self.fault(column, "a change in percent such as -3.64", repr(self.text(column)[:60]))
        return float(plain), max(DELTA_TOLERANCE, 10.0 ** -len(plain.partition(".")[2]))

    def positive(self, column: str) -> float | None:
        value = self.number(column)
        if value is not None and value <= 0:
            raise self.fault(column, "a positive number", repr(self.text(column)))
        if not self.commas and _THOUSANDS.fullmatch(self.text(column)):
            raise self.fault(column, "a number that is not read in two ways", repr(self.text(column)))
        return value

    def one_of(self, column: str, known: Sequence[str]) -> str:
        value = self.needed(column).casefold()
        if value not in known:
            raise self.fault(column, f"one of {', '.join(known)}", repr(self.text(column)[:60]))
        return value

    def fault(self, column: str, expected: str, found: str) -> InputError:
        return InputError(file=self.file, key=f"line {self.line}, {column}", expected=expected, found=found)


def import_table(file: Path, folder: Path) -> list[Entry]:
    """Record every comparison of a table in the ledger at `folder`; nothing is written where a row is at fault.

    Raises
    ------
    InputError
        With file, line and column; or as :func:`buildcompare.history.ledger.record` does.
    """
    entries = read_table(file)
    with alone(folder):
        record(folder, entries)
    return entries


def read_table(file: Path) -> list[Entry]:
    """Every comparison of a table: the chain in its order, then the studies.

    Raises
    ------
    InputError
        With file, line and column.
    """
    rows = _rows(file)
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(_name(row), []).append(row)
    entries = [_entry(name, group) for name, group in groups.items()]
    placed: dict[int, str] = {}
    for entry in entries:
        if entry.position is not None and placed.setdefault(entry.position, entry.name) != entry.name:
            found = f"{entry.position}, which is {placed[entry.position]}'s"
            raise groups[entry.name][0].fault("order", "a place of its own for each release", found)
    return sorted(entries, key=lambda entry: (entry.position is None, entry.position or 0))


def _rows(file: Path) -> list[_Row]:
    expected = "a table of comparisons (CSV, UTF-8)"
    try:
        if file.stat().st_size > MAX_BYTES:
            found = f"{file.stat().st_size:,} bytes"
            raise InputError(file=file, key=None, expected=f"{expected}, at most {MAX_BYTES:,} bytes", found=found)
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(file=file, key=None, expected=expected, found="bytes that are no UTF-8") from None
    except OSError as error:
        raise InputError(file=file, key=None, expected=expected, found=error.strerror or str(error)) from None
    delimiter = _delimiter(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check_header(file, header)
        rows = []
        for cells in reader:
            line = reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise InputError(file=file, key=f"line {line}", expected=f"{len(header)} cells", found=f"{len(cells)}")
            rows.append(_Row(file, line, dict(zip(header, cells, strict=True)), delimiter == ","))
    except csv.Error as error:
        raise InputError(file=file, key=f"line {reader.line_num}", expected=expected, found=str(error)) from None
    if not rows:
        raise InputError(file=file, key=None, expected="a row for each test", found="none")
    return rows


def _delimiter(text: str) -> str:
    """What separates the names in the first line; cells must still be plain numbers, with a point."""
    first = text.partition("\n")[0]
    return max(DELIMITERS, key=first.count)


def _check_header(file: Path, header: Sequence[str]) -> None:
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise InputError(
            file=file, key="line 1", expected=f"the columns {', '.join(REQUIRED)}", found=f"no {', '.join(missing)}"
        )
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise InputError(file=file, key="line 1", expected="each column once", found=f"{twice[0]!r} twice")


def _name(row: _Row) -> str:
    """What a comparison is called: its release, and the run of a study that was run more than once."""
    name = "-".join(part for part in (row.needed("release"), row.text("run")) if part)
    if not SLUG.fullmatch(name):
        raise row.fault("release", "letters, digits, '.', '_' and '-', at most 100 of them", repr(name[:60]))
    return name


def _entry(name: str, rows: Sequence[_Row]) -> Entry:
    first = rows[0]
    seen: dict[tuple[str, str], _Row] = {}
    for row in rows:
        key = (row.needed("db").casefold(), row.one_of("test_type", ("bounded", "unbounded")))
        if key in seen:
            raise row.fault(
                "db, test_type", f"each test of {name} once", f"{'_'.join(key)} as on line {seen[key].line}"
            )
        seen[key] = row
    kind = "monthly" if first.one_of("monthly", ("yes", "study")) == "yes" else "study"
    shared = (
        "monthly",
        "order",
        "base_label",
        "new_label",
        "base_version",
        "new_version",
        "load_test_version",
        "dataset",
    )
    for row in rows:
        for column in shared:
            if row.text(column) != first.text(column):
                found = f"{row.text(column)[:60]!r}, but {first.text(column)[:60]!r} on line {first.line}"
                raise row.fault(column, f"the same in every row of {name}", found)
    order = first.whole("order")
    if (kind == "monthly") != (order is not None):
        raise first.fault(
            "order", "a place for a monthly comparison, and none for a study", first.text("order") or "none"
        )
    data = {
        "name": name,
        "kind": kind,
        "position": order,
        "base": _build(first, "base"),
        "new": _build(first, "new"),
        "tests": [_test(row) for row in rows],
        "setup": {title: _words(value) for column, title in SETUP_COLUMNS.items() if (value := _shared(rows, column))},
        "coordinator": _coordinator(rows),
        "source": first.file.name,
    }
    try:
        return checked(Entry, data)
    except InputError as error:
        raise InputError(
            file=first.file, key=f"line {first.line}: {error.key}", expected=error.expected, found=error.found
        ) from None


def _build(row: _Row, side: str) -> dict[str, str | None]:
    label, version = row.needed(f"{side}_label"), row.text(f"{side}_version")
    if version and version_in(version) != version.removeprefix("v").casefold():
        raise row.fault(f"{side}_version", "a version such as 10.4.0-rc1", repr(version[:60]))
    return {"label": label, "version": version_in(version or label)}


def _test(row: _Row) -> dict[str, Any]:
    db, kind = row.needed("db").casefold(), row.needed("test_type").casefold()
    users = {side: row.positive(f"su_{side}") for side in ("base", "new")}
    stated = row.percent("delta_pct")
    if stated is not None and users["base"] and users["new"]:
        computed = 100.0 * (users["new"] / users["base"] - 1.0)
        if abs(computed - stated[0]) > stated[1]:
            raise row.fault("delta_pct", f"{computed:.3f}, as su_base and su_new say", f"{stated[0]}")
    errors = {side: row.number(f"errors_{side}") for side in ("base", "new")}
    for side, count in errors.items():
        if count is not None and count < 0:
            raise row.fault(f"errors_{side}", "no negative count", f"{count:g}")
    written = {side: row.positive(f"readme_su_{side}") for side in ("base", "new")}
    if not SLUG.fullmatch(f"{db}_{kind}"):
        raise row.fault("db", "the name of a database", repr(db[:60]))
    told = "readme_su_base" in row.cells and kind == "unbounded"
    return {
        "name": f"{db}_{kind}",
        "type": kind,
        "db_engine": db,
        "users": row.whole("users"),
        "supported_users": users if any(users.values()) else None,
        "errors": errors if any(count is not None for count in errors.values()) else None,
        "written": written if told else None,
    }


def _shared(rows: Sequence[_Row], column: str) -> str:
    """A setting of the whole comparison, which some rows may leave out."""
    values = [row.text(column) for row in rows]
    named = [(row, value) for row, value in zip(rows, values, strict=True) if value]
    for row, value in named:
        if value != named[0][1]:
            found = f"{value[:60]!r}, but {named[0][1][:60]!r} on line {named[0][0].line}"
            raise row.fault(column, "the same in every row of a comparison", found)
    return named[0][1] if named else ""


def _words(setting: str) -> str:
    """A setting as reports write it: ``90 minutes`` of ``90m``."""
    minutes = re.fullmatch(r"(\d+)m", setting)
    return f"{minutes[1]} minutes" if minutes else setting


def _coordinator(rows: Sequence[_Row]) -> dict[str, float]:
    columns = [*COORDINATOR_COLUMNS, *(name for name in rows[0].cells if name.startswith(THRESHOLD))]
    settings: dict[str, float] = {}
    for column in columns:
        if _shared(rows, column):
            row = next(row for row in rows if row.text(column))
            value = row.number(column)
            if value is not None:
                settings[column] = value
    return settings
