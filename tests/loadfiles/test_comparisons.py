"""A table of earlier comparisons becomes a ledger, or the cell at fault is named."""

import csv
import re
from pathlib import Path

import pytest

import buildcompare as bc
from buildcompare.results.codes import Pair
from loadfiles.comparisons import import_table, read_table
from support import command, refused

HEADER = (
    "release,run,monthly,order,base_label,new_label,base_version,new_version,db,test_type,su_base,su_new,delta_pct,"
    "errors_base,users,load_test_version,dataset,users_inc,threshold_cpu"
)
ROW = "v1.1,,yes,1,v1.0.0,v1.1.0-rc1,1.0.0,1.1.0-rc1,mysql,unbounded,1000,1100,10.0,3,,v2,d,8,0.85"
GOOD = dict(zip(HEADER.split(","), ROW.split(","), strict=True))


def write_table(folder: Path, *rows: dict[str, str], header: str = HEADER) -> Path:
    file = folder / "history.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, header.split(","), extrasaction="ignore")
        writer.writeheader()
        writer.writerows([{**GOOD, **row} for row in rows])
    return file


def test_a_table_becomes_entries(tmp_path: Path) -> None:
    second = {"db": "postgresql", "su_base": "", "su_new": "900", "delta_pct": ""}
    (entry,) = read_table(write_table(tmp_path, {}, second))
    assert (entry.name, entry.position, entry.base.version, entry.new.minor) == ("v1.1", 1, "1.0.0", "1.1")
    assert entry.setup == {"Load-test version": "v2", "Dataset": "d"}
    assert entry.coordinator == {"users_inc": 8.0, "threshold_cpu": 0.85}
    assert [test.supported_users for test in entry.tests] == [Pair(1000, 1100), Pair(None, 900)]


@pytest.mark.parametrize(("rows", "key", "found"), [
    ([{"su_base": "=1+1"}], "line 2, su_base", "'=1+1'"),
    ([{"su_base": "1,000"}], "line 2, su_base", "'1,000'"),
    ([{"su_base": "9" * 400}], "line 2, su_base", "'999"),
    ([{"delta_pct": "-19.7"}], "line 2, delta_pct", "-19.7"),
    ([{"users": "7500.5"}], "line 2, users", "'7500.5'"),
    ([{"release": ""}], "line 2, release", "none"),
    ([{"release": "../../etc"}], "line 2, release", "'../../etc'"),
    ([{"release": "=cmd|' /C calc'!A0"}], "line 2, release", "formula"),
    ([{"load_test_version": '=HYPERLINK("http://x")'}], "line 2, load_test_version", "formula"),
    ([{"dataset": "two\nlines"}], "dataset", "two"),
    ([{"monthly": "no"}], "line 2, monthly", "'no'"),
    ([{"monthly": "study"}], "line 2, order", "1"),
    ([{"test_type": "soak"}], "line 2, test_type", "'soak'"),
    ([{"db": ""}], "line 2, db", "none"),
    ([{"base_label": "x" * 300}], "line 2, base_label", "xxx"),
    ([{}, {}], "line 3, db, test_type", "mysql_unbounded as on line 2"),
    ([{}, {"release": "v1.2"}], "line 3, order", "1, which is v1.1's"),
    ([{}, {"db": "postgresql", "new_label": "v1.2"}], "line 3, new_label", "'v1.1.0-rc1' on line 2"),
    ([{}, {"db": "postgresql", "load_test_version": "v3"}], "line 3, load_test_version", "'v2' on line 2"),
])  # fmt: skip
def test_a_fault_is_named(tmp_path: Path, rows: list[dict[str, str]], key: str, found: str) -> None:
    file = write_table(tmp_path, *rows)
    with pytest.raises(bc.InputError, match=rf"^{file}: .*{key}.*: expected .*, found .*{re.escape(found)}"):
        import_table(file, tmp_path / "ledger")
    assert not (tmp_path / "ledger").exists()


def test_a_table_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = write_table(tmp_path, {"db": ""})
    with file.open("a", encoding="utf-8") as out:
        out.write("\n" * 100_000)
    with pytest.raises(bc.InputError, match="at most 100,000 rows"):
        read_table(file)


def test_spellings_that_nobody_misreads_are_read(tmp_path: Path) -> None:
    plain = read_table(write_table(tmp_path, {"delta_pct": "10"}))
    for delta in ("10.0", "+10.00", "10 %", "10.000%"):
        assert read_table(write_table(tmp_path, {"delta_pct": delta})) == plain
    (less,) = read_table(write_table(tmp_path, {"su_new": "964", "delta_pct": "\u22123.6 %"}))
    assert less.tests[0].supported_users == Pair(1000, 964)
    assert read_table(write_table(tmp_path, {"su_new": "964.4", "delta_pct": "-3.5"})), "cut off at its last digit"
    for delta in ("-3.4", "3.6"):
        with pytest.raises(bc.InputError, match="delta_pct"):
            read_table(write_table(tmp_path, {"su_new": "964", "delta_pct": delta}))
    upper = read_table(write_table(tmp_path, {"monthly": "Yes", "test_type": "Unbounded", "db": "MySQL"}))
    assert upper == read_table(write_table(tmp_path, {}))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_separators_are_seen_and_their_numbers_stay_strict(tmp_path: Path, delimiter: str) -> None:
    file = write_table(tmp_path, {})
    plain = read_table(file)
    with file.open(newline="", encoding="utf-8") as open_file:
        rows = list(csv.reader(open_file))
    for change_of, fine in (("", True), ("1.000,5", False), ("1.000", False), ("1000,5", False), ("1,000", False)):
        changed = [row[:] for row in rows]
        if change_of:
            changed[1][rows[0].index("su_base")] = change_of
        with file.open("w", newline="", encoding="utf-8-sig") as open_file:
            csv.writer(open_file, delimiter=delimiter).writerows(changed)
        if fine:
            assert read_table(file) == plain
        else:
            with pytest.raises(bc.InputError, match="su_base"):
                read_table(file)


@pytest.mark.parametrize(("contents", "found"), [
    (b"", "no release, monthly"),
    (b"release,db\nv1,mysql\n", "no monthly, order"),
    (HEADER.encode() + b"\n", "none"),
    (HEADER.encode() + b"\nv1.1,yes\n", "2"),
    ((HEADER + ",db\n").encode(), "'db' twice"),
    (b"\xff\xfe\x00", "bytes that are no UTF-8"),
    (HEADER.encode() + b'\n"v1', "unexpected end of data"),
])  # fmt: skip
def test_what_is_no_such_table_is_refused(tmp_path: Path, contents: bytes, found: str) -> None:
    file = tmp_path / "history.csv"
    file.write_bytes(contents)
    with pytest.raises(bc.InputError, match=f"found .*{found}"):
        read_table(file)


def test_the_command_line_imports_and_tells(real: Path, tmp_path: Path) -> None:
    out = tmp_path / "ledger"
    done = command("history-import", real / "comparisons/history.csv", "-o", out)
    assert (done.exit_code, "34 comparisons and 3 studies" in done.stdout) == (0, True)
    told = command("history", out)
    assert (told.exit_code, "v10.7: v10.7.0-rc1 against v10.6.1" in told.stdout) == (0, True)
    refused("history-import", tmp_path / "no.csv", "-o", out)
