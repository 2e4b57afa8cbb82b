"""Import earlier comparisons into a ledger: a folder of params files, or a table with one row per test.

docs/history.md lists the columns. An ambiguous row is an error that names its line.
"""

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from buildcompare.comparison.analysis import analyse
from buildcompare.comparison.reading import read_recordings
from buildcompare.config.errors import InputError
from buildcompare.config.params import SLUG, VERSION, read_params, version_in
from buildcompare.config.project import read_text
from buildcompare.config.yaml import checked
from buildcompare.history.ledger import Entry, entry_of, record
from buildcompare.history.setup import COORDINATOR_COLUMNS, SETUP_COLUMNS
from buildcompare.results.codes import SIDES

REQUIRED = ("release", "monthly", "order", "base_label", "new_label", "db", "test_type", "su_base", "su_new")
THRESHOLD = "threshold_"  # prefix of columns with alert thresholds
DELTA_TOLERANCE = 0.01
"""Largest difference, percent, between a stated change and the computed one; one unit of its last digit if larger."""
DELIMITERS = (",", ";", "\t")
MAX_BYTES, MAX_ROWS = 20_000_000, 100_000  # bounds of a table; Mattermost's has two hundred rows
_NUMBER = r"[0-9]{1,12}(\.[0-9]{1,9})?"
_USERS = [f"{figure}_{side}" for figure in ("su", "readme_su") for side in SIDES]
_CELLS = {
    **dict.fromkeys(("release", "base_label", "new_label"), (".{1,200}", "a value of at most 200 characters")),
    **dict.fromkeys(("run", "delta_pct", *SETUP_COLUMNS), (".*", "text")),
    **dict.fromkeys(("base_version", "new_version"), (f"(v?(?i:{VERSION}))?", "a version such as 10.4.0-rc1")),
    "monthly": ("(?i)yes|study", "one of yes, study"),
    "db": ("(?i)[a-z0-9][a-z0-9._-]{0,59}", "the name of a database"),
    "test_type": ("(?i)bounded|unbounded", "one of bounded, unbounded"),
    **dict.fromkeys(("order", "users"), (r"((?=.*[1-9])\d{1,12}(\.0{1,9})?)?", "a positive whole number")),
    **dict.fromkeys(("errors_base", "errors_new"), (f"({_NUMBER})?", "a plain number, not negative")),
    **dict.fromkeys(_USERS, (f"((?=.*[1-9]){_NUMBER})?", "a positive plain number such as 6537 or 0.5")),
    **dict.fromkeys((*COORDINATOR_COLUMNS, THRESHOLD), (f"(-?{_NUMBER})?", "a plain number such as 6537 or 0.5")),
}
"""Column -> pattern of its cells, and expected value for errors. Other columns are ignored."""
_FORMULA = re.compile(r"^[=@\t\r]|^[+-](?![\d.])")
_THOUSANDS = re.compile(r"\d{1,3}\.\d{3}")
_SAME_IN_ALL = ("monthly", "order", "base_label", "new_label", "base_version", "new_version")


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of the table; cells are stripped."""

    file: Path
    line: int
    cells: Mapping[str, str]
    """Column -> its cell."""

    def __getitem__(self, column: str) -> str:
        return self.cells.get(column, "")

    def number(self, column: str) -> float | None:
        """Number in a cell, an integer if whole; None if the cell is empty."""
        number = float(self[column] or "nan")
        return None if math.isnan(number) else int(number) if number.is_integer() else number

    def pair(self, figure: str) -> dict[str, float | None]:
        return {side: self.number(f"{figure}_{side}") for side in SIDES}

    def fault(self, column: str, expected: str, found: str) -> InputError:
        return InputError(file=self.file, key=f"line {self.line}, {column}", expected=expected, found=found)


def import_table(file: Path, folder: Path) -> list[Entry]:
    """Record every comparison of a table in the ledger at `folder`, or none if a row has a fault."""
    entries = read_table(file)
    record(folder, entries)
    return entries


def read_table(file: Path) -> list[Entry]:
    """Read all comparisons of a table: the chain in its order, then the studies. Errors name file, line and column."""
    groups: dict[str, list[_Row]] = {}
    for row in _rows(file):
        _check_cells(row)
        # A study that was run more than once has a name for each run.
        name = "-".join(part for part in (row["release"], row["run"]) if part)
        if not SLUG.fullmatch(name):
            raise row.fault("release", "letters, digits, '.', '_' and '-', at most 100 of them", repr(name[:60]))
        groups.setdefault(name, []).append(row)
    placed: dict[int | None, str] = {}
    entries = []
    for name, rows in groups.items():
        entry = _entry(name, rows)
        if entry.position is not None and placed.setdefault(entry.position, name) != name:
            found = f"{entry.position}, which is {placed[entry.position]}'s"
            raise rows[0].fault("order", "a different number for each release", found)
        entries.append(entry)
    return sorted(entries, key=lambda entry: (entry.position is None, entry.position or 0))


def _rows(file: Path) -> Iterator[_Row]:
    expected = "a table of comparisons (CSV, UTF-8)"
    fault = partial(InputError, file=file, expected=expected)
    text = read_text(file, expected, max_bytes=MAX_BYTES)
    if text.count("\n") > MAX_ROWS:
        raise fault(key=None, expected=f"at most {MAX_ROWS:,} rows (several tables may be imported)", found="more")
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise fault(key=f"line {reader.line_num}", found=str(error)) from None
    header = lines[0][1] if lines else []
    if missing := ", ".join(name for name in REQUIRED if name not in header):
        raise fault(key="line 1", expected=f"the columns {', '.join(REQUIRED)}", found=f"no {missing}")
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise fault(key="line 1", expected="each column once", found=f"{twice[0]!r} twice")
    if not lines[1:]:
        raise fault(key=None, expected="a row for each test", found="none")
    for line, cells in lines[1:]:
        if len(cells) != len(header):
            raise fault(key=f"line {line}", expected=f"{len(header)} cells", found=f"{len(cells)}")
        row = _Row(file, line, dict(zip(header, cells, strict=True)))
        for column in _USERS:
            if delimiter != "," and _THOUSANDS.fullmatch(row[column]):  # the point may separate thousands
                raise row.fault(column, "a number with one meaning (1.234 may be 1234)", repr(row[column]))
        yield row


def _check_cells(row: _Row) -> None:
    for column, cell in row.cells.items():
        if fault := _wrong(column, cell):
            raise row.fault(column, *fault)
    users, stated = row.pair("su"), row["delta_pct"].replace("\u2212", "-")
    stated = stated.removesuffix("%").strip().removeprefix("+")
    if users["base"] and users["new"] and stated:
        if not re.fullmatch(f"-?{_NUMBER}", stated):
            raise row.fault("delta_pct", "a change in percent such as -3.64", repr(row["delta_pct"][:60]))
        computed = 100.0 * (users["new"] / users["base"] - 1.0)
        if abs(computed - float(stated)) > max(DELTA_TOLERANCE, 10.0 ** -len(stated.partition(".")[2])):
            raise row.fault("delta_pct", f"the change from su_base to su_new, {computed:.3f}", f"{float(stated)}")
    if (row["monthly"].casefold() == "yes") != bool(row["order"]):
        raise row.fault("order", "a number for a monthly comparison, an empty cell for a study", row["order"] or "none")


def _wrong(column: str, cell: str) -> tuple[str, str] | None:
    """Return the expected and the actual value if a cell does not fit its column."""
    pattern, expected = _CELLS.get(THRESHOLD if column.startswith(THRESHOLD) else column, ("", ""))
    if not expected:
        return None
    if _FORMULA.match(cell):
        return "text or a plain number", f"what a spreadsheet takes for a formula, {cell[:60]!r}"
    if any(char < " " for char in cell):
        return "text on one line", repr(cell[:60])
    return None if re.fullmatch(pattern, cell) else (expected, repr(cell[:60]) if cell else "none")


def _entry(name: str, rows: Sequence[_Row]) -> Entry:
    first = rows[0]
    tests: dict[str, _Row] = {}
    first_rows: dict[str, _Row] = {}  # column of the whole comparison -> first row with a value
    coordinator = [*COORDINATOR_COLUMNS, *(name for name in first.cells if name.startswith(THRESHOLD))]
    settings = [name for name in (*SETUP_COLUMNS, *coordinator) if name in first.cells]
    for row in rows:
        test = f"{row['db']}_{row['test_type']}".casefold()
        if (other := tests.setdefault(test, row)) is not row:
            raise row.fault("db, test_type", f"each test of {name} once", f"{test} as on line {other.line}")
        for column in (*_SAME_IN_ALL, *settings):  # settings may be left out of some rows
            if row[column] or column in _SAME_IN_ALL:
                other = first_rows.setdefault(column, row)
                if row[column] != other[column]:
                    found = f"{row[column][:60]!r}, but {other[column][:60]!r} on line {other.line}"
                    raise row.fault(column, "the same in every row of a comparison", found)
    setup = {title: first_rows[column][column] for column, title in SETUP_COLUMNS.items() if column in first_rows}
    data: dict[str, object] = {
        "name": name,
        "kind": "monthly" if first["order"] else "study",
        "position": first.number("order"),
        "tests": [_test(name, row) for name, row in tests.items()],
        "setup": {title: re.sub(r"^(\d+)m$", r"\1 minutes", value) for title, value in setup.items()},
        "coordinator": {column: first_rows[column].number(column) for column in coordinator if column in first_rows},
        "source": first.file.name,
    }
    for side in SIDES:
        label = first[f"{side}_label"]
        data[side] = {"label": label, "version": version_in(first[f"{side}_version"] or label)}
    return checked(Entry, data, file=first.file)


def _test(name: str, row: _Row) -> dict[str, object]:
    kind, users, errors = row["test_type"].casefold(), row.pair("su"), row.pair("errors")
    return {
        "name": name,
        "type": kind,
        "db_engine": row["db"].casefold(),
        "users": row.number("users"),
        "supported_users": users if any(users.values()) else None,
        "errors": errors if {*errors.values()} != {None} else None,
        "written": row.pair("readme_su") if "readme_su_base" in row.cells and kind == "unbounded" else None,
    }


def import_comparisons(folder: Path, ledger: Path) -> list[Entry]:
    """Analyse the comparison of every params file in `folder`, and record all of them in a ledger, or none.

    Comparisons are ordered by the new build's label: v9.2 before v9.10-rc1, and v9.10-rc1 before v9.10.
    """
    files = sorted(file for pattern in ("*.yaml", "*.yml") for file in folder.glob(pattern))
    if not files:
        raise InputError(file=folder, key="FOLDER", expected="params files (*.yaml)", found="none")
    asked = [read_params(file).model_copy(update={"history": None}) for file in files]
    after = {".": 1, "": 0}  # v9.10.1 follows v9.10, which follows v9.10-rc1
    parts = re.compile(r"(\D*)(\d*)").findall
    asked.sort(key=lambda each: [(after.get(text[:1], -1), text, int(n or 0)) for text, n in parts(each.new.label)])
    entries = []
    for params in asked:
        made = analyse(params, read_recordings(params)).results
        entries.append(entry_of(params, made.tests, position=1, simulated=made.simulated, verdict=made.verdict))
    record(ledger, entries, at_end=True)
    return entries
