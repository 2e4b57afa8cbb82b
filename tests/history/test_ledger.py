"""The ledger's files: what is kept, replaced and refused."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from buildcompare.config.errors import InputError
from buildcompare.config.params import version_in
from buildcompare.history.chain import analyse_chain
from buildcompare.history.ledger import (
    Entry,
    LedgerBuild,
    LedgerTest,
    locked,
    read_ledger,
    record,
)
from buildcompare.history.view import ledger_text
from buildcompare.results.codes import Pair
from buildcompare.stats.noise import Noise

NOISE = Noise(0.018, math.inf, "catalogue")


def entry(name: str = "v1.1", **more: Any) -> Entry:
    data: dict[str, Any] = {
        "name": name,
        "position": 1,
        "base": LedgerBuild(label="v1.0.0", version="1.0.0"),
        "new": LedgerBuild(label="v1.1.0", version="1.1.0"),
        "tests": [LedgerTest(name="mysql_unbounded", type="unbounded", db_engine="mysql")],
        "source": "report",
        **more,
    }
    return Entry.model_validate(data)


def test_the_same_comparison_is_replaced_and_keeps_its_place(tmp_path: Path) -> None:
    record(tmp_path, [entry()])
    record(tmp_path, [entry("v1.2", position=2, base=LedgerBuild(label="a"), new=LedgerBuild(label="b"))])
    record(tmp_path, [entry(position=9, verdict="pass")])
    kept = read_ledger(tmp_path)
    assert [(e.name, e.position, e.verdict) for e in kept.chain] == [("v1.1", 1, "pass"), ("v1.2", 2, None)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v1.1.json", "v1.2.json"], "nothing half-written"


@pytest.mark.parametrize(
    ("other", "key", "found"),
    [
        (entry(new=LedgerBuild(label="v1.1.1", version="1.1.1")), "name", "that of v1.0.0 with v1.1.0"),
        (entry("V1.1"), "name", "that of v1.0.0"),
        (entry("v1.1-again"), "name", "the same comparison as 'v1.1'"),
        (entry(kind="study", position=None), "name", "that of v1.0.0"),
        (
            entry("v1.2", base=LedgerBuild(label="a"), new=LedgerBuild(label="b")),
            "position",
            "1 in both",
        ),
        (
            entry("v1.2", position=2, simulated=True, base=LedgerBuild(label="a"), new=LedgerBuild(label="b")),
            "v1.2",
            "a simulated one",
        ),
    ],
)
def test_another_comparison_is_not_overwritten(tmp_path: Path, other: Entry, key: str, found: str) -> None:
    record(tmp_path, [entry()])
    file = tmp_path / "v1.1.json"
    before = file.read_bytes()
    with pytest.raises(InputError) as fault:
        record(tmp_path, [other])
    assert fault.value.key == key
    assert found in fault.value.found
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"name": "other"}, "name"),
        ({"position": None}, "top level"),
        ({"position": "1"}, "position"),
        ({"tests": []}, "tests"),
        ({"more": 1}, "more"),
        ({"schema_version": 2}, "schema_version"),
        ({"base": {"label": "x", "version": "<b>"}}, "base.version"),
        (
            {"tests": [{"name": "a", "type": "unbounded", "supported_users": {"base": -1}}]},
            "tests[0].supported_users.base",
        ),
        ({"tests": [{"name": "../a", "type": "unbounded"}]}, "tests[0].name"),
    ],
)
def test_a_damaged_entry_is_named(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    record(tmp_path, [entry()])
    file = tmp_path / "v1.1.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(InputError) as fault:
        read_ledger(tmp_path)
    assert fault.value.file == str(file)
    assert fault.value.key == key


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"name": NaN}', "\x00"])
def test_what_is_no_entry_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "v1.1.json").write_text(text)
    with pytest.raises(InputError) as fault:
        read_ledger(tmp_path)
    assert fault.value.file == str(tmp_path / "v1.1.json")


def test_records_at_the_same_time_take_a_place_each(tmp_path: Path) -> None:
    def add(number: int) -> None:
        with locked(tmp_path):
            last = max((e.position or 0 for e in read_ledger(tmp_path).chain), default=0)
            base, new = (LedgerBuild(label=f"{side}-{number}") for side in ("base", "new"))
            record(tmp_path, [entry(f"r{number}", position=last + 1, base=base, new=new)])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(24)))
    assert sorted(e.position or 0 for e in read_ledger(tmp_path).chain) == list(range(1, 25))


def test_a_ledger_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can be written") as fault, locked(tmp_path / "file"):
        pass
    assert fault.value.key == "history"


def test_a_disk_that_is_full_in_between_leaves_the_ledger_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, [entry()])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    written: list[Path] = []
    write_bytes = Path.write_bytes

    def full(path: Path, *args: Any, **kw: Any) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        return write_bytes(path, *args, **kw)

    monkeypatch.setattr(Path, "write_bytes", full)
    other = entry("v1.2", position=2, base=LedgerBuild(label="a"), new=LedgerBuild(label="b"))
    with pytest.raises(InputError, match="No space left"):
        record(tmp_path, [entry(verdict="pass"), other])
    monkeypatch.undo()
    assert written
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_one_database_under_two_names_is_one_chain(tmp_path: Path) -> None:
    def measured(number: int, db: str) -> Entry:
        base, new = (LedgerBuild(label=f"v1.{n}.0", version=f"1.{n}.0") for n in (number, number + 1))
        users = Pair(1000.0, 1000.0)
        test = LedgerTest(name=f"{db}_unbounded", type="unbounded", db_engine=db, supported_users=users)
        return entry(f"v1.{number}", position=number, base=base, new=new, tests=[test])

    record(tmp_path, [measured(1, "postgres"), measured(2, "postgresql"), measured(3, "PostgreSQL")])
    steps = analyse_chain(read_ledger(tmp_path), NOISE).steps
    assert [row.same_version for step in steps.values() for row in step.drift if row.kind == "same_version"] == [
        True,
        True,
    ]


def test_two_entries_at_one_place_are_refused(tmp_path: Path) -> None:
    record(tmp_path, [entry()])
    file = tmp_path / "v1.1.json"
    (tmp_path / "v1.2.json").write_text(file.read_text().replace('"v1.1"', '"v1.2"'))
    with pytest.raises(InputError, match=r"v1\.1's"):
        read_ledger(tmp_path)


def test_no_ledger_yet_is_an_empty_one(tmp_path: Path) -> None:
    assert not read_ledger(tmp_path / "missing").entries
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(InputError, match="a folder"):
        read_ledger(file)
    with pytest.raises(InputError, match="a ledger with entries"):
        ledger_text(tmp_path / "missing", "mattermost")


@pytest.mark.parametrize(
    ("label", "version"),
    [
        ("v10.4.0-rc1", "10.4.0-rc1"),
        ("release-9.11.16", "9.11.16"),
        ("10.10", "10.10"),
        ("V1.2-RC3", "1.2-rc3"),
        ("master", None),
        ("1.2.3.4.5.6", "1.2.3.4.5.6"),
        ("build 7", None),
    ],
)
def test_the_version_in_a_label(label: str, version: str | None) -> None:
    assert version_in(label) == version
