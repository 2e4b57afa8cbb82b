"""A table of earlier comparisons becomes a ledger: one row for each test, checked cell by cell before anything is kept.

The columns are those of a published history of comparisons (docs/history.md lists them). A row that two people could
read in two ways is refused with its line.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buildcompare.config.errors import InputError
from buildcompare.config.params import SLUG
from buildcompare.config.yaml import checked
from buildcompare.history.ledger import Entry, locked, record, version_in
from buildcompare.results.codes import SIDES

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
THRESHOLD = "threshold_"  # columns whose name starts so hold alert thresholds
DELTA_TOLERANCE = 0.01
"""A stated change (percent) may be rounded or cut off at its last digit, or at two; else it is of other figures."""
DELIMITERS = (",", ";", "\t")
MAX_BYTES = 20_000_000
_FORMULA = re.compile(r"^[=@\t\r]|^[+-](?![\d.])")
_THOUSANDS = re.compile(r"\d{1,3}\.\d{3}")
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,9})?")


@dataclass(frozen=True)
class _Row:
    """One line of the table; where `commas` separate no cells, a point may be one between thousands."""

    file: Path
    line: int
    cells: Mapping[str, str]
    commas: bool

    def text(self, column: str, *, needed: bool = False) -> str:
        """A cell without the space around it; empty where the table lacks the column."""
        value = self.cells.get(column, "").strip()
        if _FORMULA.match(value):
            found = f"what a spreadsheet takes for a formula, {value[:60]!r}"
            raise self.fault(column, "text or a plain number", found)
        if any(ord(char) < 32 for char in value):
            raise self.fault(column, "text on one line", repr(value[:60]))
        if needed and not value:
            raise self.fault(column, "a value", "none")
        return value

    def one_of(self, column: str, *known: str) -> str:
        value = self.text(column, needed=True).casefold()
        if value not in known:
            raise self.fault(column, f"one of {', '.join(known)}", repr(value[:60]))
        return value

    def number(self, column: str, expected: str = "", fits: Callable[[float], bool] = math.isfinite) -> float | None:
        text = self.text(column)
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            raise self.fault(column, "a plain number such as 6537 or 0.5", repr(text[:60]))
        if not fits(float(text)):
            raise self.fault(column, expected, repr(text))
        return float(text)

    def whole(self, column: str) -> int | None:
        value = self.number(column, "a positive whole number", lambda value: value > 0 and value.is_integer())
        return None if value is None else int(value)

    def positive(self, column: str) -> float | None:
        value = self.number(column, "a positive number", lambda value: value > 0)
        if not self.commas and _THOUSANDS.fullmatch(self.text(column)):
            raise self.fault(column, "a number that is not read in two ways", repr(self.text(column)))
        return value

    def fault(self, column: str, expected: str, found: str) -> InputError:
        return InputError(file=self.file, key=f"line {self.line}, {column}", expected=expected, found=found)


def import_table(file: Path, folder: Path) -> list[Entry]:
    """Record every comparison of a table in the ledger at `folder`; nothing is written where a row is at fault."""
    entries = read_table(file)
    with locked(folder):
        record(folder, entries)
    return entries


def read_table(file: Path) -> list[Entry]:
    """Every comparison of a table: the chain in its order, then the studies. Errors name file, line and column."""
    groups: dict[str, list[_Row]] = {}
    for row in _rows(file):
        # What a comparison is called: its release, and the run of a study that was run more than once.
        name = "-".join(part for part in (row.text("release", needed=True), row.text("run")) if part)
        if not SLUG.fullmatch(name):
            raise row.fault("release", "letters, digits, '.', '_' and '-', at most 100 of them", repr(name[:60]))
        groups.setdefault(name, []).append(row)
    placed: dict[int | None, str] = {}
    entries = []
    for name, rows in groups.items():
        entry = _entry(name, rows)
        if entry.position is not None and placed.setdefault(entry.position, name) != name:
            found = f"{entry.position}, which is {placed[entry.position]}'s"
            raise rows[0].fault("order", "a place of its own for each release", found)
        entries.append(entry)
    return sorted(entries, key=lambda entry: (entry.position is None, entry.position or 0))


def _rows(file: Path) -> Iterator[_Row]:
    expected = "a table of comparisons (CSV, UTF-8)"

    def fault(found: str, key: str | None = None, expected: str = expected) -> InputError:
        return InputError(file=file, key=key, expected=expected, found=found)

    try:
        if file.stat().st_size > MAX_BYTES:
            raise fault(f"{file.stat().st_size:,} bytes", expected=f"{expected}, at most {MAX_BYTES:,} bytes")
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise fault("bytes that are no UTF-8") from None
    except OSError as error:
        raise fault(error.strerror or str(error)) from None
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise fault(str(error), f"line {reader.line_num}") from None
    header = [name.strip() for name in lines[0][1]] if lines else []
    missing = [name for name in REQUIRED if name not in header]
    if missing:
        raise fault(f"no {', '.join(missing)}", "line 1", f"the columns {', '.join(REQUIRED)}")
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise fault(f"{twice[0]!r} twice", "line 1", "each column once")
    if not lines[1:]:
        raise fault("none", expected="a row for each test")
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise fault(f"{len(cells)}", f"line {line}", f"{len(header)} cells")
        yield _Row(file, line, dict(zip(header, cells, strict=True)), delimiter == ",")


def _entry(name: str, rows: Sequence[_Row]) -> Entry:
    first = rows[0]
    tests: dict[str, tuple[int, dict[str, Any]]] = {}
    for row in rows:
        test = _test(row)
        line, _ = tests.setdefault(test["name"], (row.line, test))
        if line != row.line:
            raise row.fault("db, test_type", f"each test of {name} once", f"{test['name']} as on line {line}")
    for column in ("monthly", "order", *(f"{side}_{each}" for side in SIDES for each in ("label", "version"))):
        _shared(rows, column, everywhere=True)
    kind = "monthly" if first.one_of("monthly", "yes", "study") == "yes" else "study"
    order = first.whole("order")
    if (kind == "monthly") != (order is not None):
        expected = "a place for a monthly comparison, and none for a study"
        raise first.fault("order", expected, first.text("order") or "none")
    settings = {title: _shared(rows, column) for column, title in SETUP_COLUMNS.items()}
    columns = [*COORDINATOR_COLUMNS, *(column for column in first.cells if column.startswith(THRESHOLD))]
    named = [(column, row) for column in columns for row in rows if _shared(rows, column) and row.text(column)]
    data = {
        "name": name,
        "kind": kind,
        "position": order,
        "base": _build(first, "base"),
        "new": _build(first, "new"),
        "tests": [test for _, test in tests.values()],
        "setup": {title: re.sub(r"^(\d+)m$", r"\1 minutes", value) for title, value in settings.items() if value},
        "coordinator": {column: row.number(column) for column, row in named},
        "source": first.file.name,
    }
    try:
        return checked(Entry, data)
    except InputError as error:
        key = f"line {first.line}: {error.key}"
        raise InputError(file=first.file, key=key, expected=error.expected, found=error.found) from None


def _build(row: _Row, side: str) -> dict[str, str | None]:
    label, version = row.text(f"{side}_label", needed=True), row.text(f"{side}_version")
    if version and version_in(version) != version.removeprefix("v").casefold():
        raise row.fault(f"{side}_version", "a version such as 10.4.0-rc1", repr(version[:60]))
    return {"label": label, "version": version_in(version or label)}


def _test(row: _Row) -> dict[str, Any]:
    db, kind = row.text("db", needed=True).casefold(), row.one_of("test_type", "bounded", "unbounded")
    if not SLUG.fullmatch(f"{db}_{kind}"):
        raise row.fault("db", "the name of a database", repr(db[:60]))
    users = {side: row.positive(f"su_{side}") for side in SIDES}
    stated = row.text("delta_pct").replace("\u2212", "-").removesuffix("%").strip().removeprefix("+")
    if users["base"] and users["new"] and stated:
        if not _NUMBER.fullmatch(stated):
            raise row.fault("delta_pct", "a change in percent such as -3.64", repr(row.text("delta_pct")[:60]))
        computed = 100.0 * (users["new"] / users["base"] - 1.0)
        if abs(computed - float(stated)) > max(DELTA_TOLERANCE, 10.0 ** -len(stated.partition(".")[2])):
            raise row.fault("delta_pct", f"{computed:.3f}, as su_base and su_new say", f"{float(stated)}")
    errors = {side: row.number(f"errors_{side}", "no negative count", lambda count: count >= 0) for side in SIDES}
    written = {side: row.positive(f"readme_su_{side}") for side in SIDES}
    return {
        "name": f"{db}_{kind}",
        "type": kind,
        "db_engine": db,
        "users": row.whole("users"),
        "supported_users": users if any(users.values()) else None,
        "errors": errors if any(count is not None for count in errors.values()) else None,
        "written": written if "readme_su_base" in row.cells and kind == "unbounded" else None,
    }


def _shared(rows: Sequence[_Row], column: str, *, everywhere: bool = False) -> str:
    """What a whole comparison says in a column, which some rows may leave out, unless it stands `everywhere`."""
    said = [(row, value) for row in rows if (value := row.text(column)) or everywhere]
    for row, value in said:
        if value != said[0][1]:
            found = f"{value[:60]!r}, but {said[0][1][:60]!r} on line {said[0][0].line}"
            raise row.fault(column, "the same in every row of a comparison", found)
    return said[0][1] if said else ""
