"""The ledger's files: what is kept, replaced and refused."""

import itertools
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import buildcompare as bc
from buildcompare.config.errors import ADDRESSES, InputError
from buildcompare.config.params import version_in
from buildcompare.history.ledger import Entry, LedgerBuild, read_ledger, record
from ledgers import entry
from support import command, killed_at

OTHERS = {"base": {"label": "a"}, "new": {"label": "b"}}
"""Builds of another comparison."""


def numbered(number: int, **more: Any) -> Entry:
    """A comparison of builds of its own, every fifth a study."""
    builds = {side: {"label": f"{side}-{number}"} for side in ("base", "new")}
    return entry(f"r{number}", None if number % 5 == 4 else number + 1, **{**builds, **more})


def test_the_same_comparison_is_replaced_and_keeps_its_place(tmp_path: Path) -> None:
    record(tmp_path, [entry("v1.1")])
    record(tmp_path, [entry("v1.2", 2, **OTHERS)])
    record(tmp_path, [entry("v1.1", 9, verdict="pass")])
    kept = read_ledger(tmp_path)
    assert [(e.name, e.position, e.verdict) for e in kept.entries] == [("v1.1", 1, "pass"), ("v1.2", 2, None)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v1.1.json", "v1.2.json"], "nothing half-written"


@pytest.mark.parametrize(
    ("other", "key", "found"),
    [
        (entry("v1.1", new=LedgerBuild(label="v1.1.1", version="1.1.1")), "name", "that of v1.0.0 with v1.1.0"),
        (entry("V1.1"), "name", "that of v1.0.0"),
        (entry("v1.1-again"), "name", "an entry 'v1.1' that compares"),
        (entry("v1.1", None), "name", "that of v1.0.0"),
        (entry("v1.2", **OTHERS), "position", "1 in both"),
        (entry("v1.2", 2, simulated=True, **OTHERS), "v1.2", "a simulated one"),
    ],
)
def test_another_comparison_is_not_overwritten(tmp_path: Path, other: Entry, key: str, found: str) -> None:
    record(tmp_path, [entry("v1.1")])
    file = tmp_path / "v1.1.json"
    before = file.read_bytes()
    with pytest.raises(InputError, match=rf"(^|: ){key}: expected .*, found .*{found}"):
        record(tmp_path, [other])
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (before, [file])


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"position": None}, "top level"),
        ({"position": "1"}, "position"),
        ({"tests": []}, "tests"),
        ({"schema_version": 2}, "schema_version"),
        ({"base": {"label": "x", "version": "<b>"}}, "base.version"),
        ({"tests": [{"name": "../a", "type": "unbounded"}]}, "tests[0].name"),
    ],
)
def test_a_damaged_entry_is_named(tmp_path: Path, change: dict[str, Any], key: str) -> None:
    record(tmp_path, [entry("v1.1")])
    file = tmp_path / "v1.1.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(InputError, match=f"^{re.escape(f'{file}: {key}: expected')}"):
        print(read_ledger(tmp_path).entries)


def test_records_at_the_same_time_take_a_place_each_and_readers_lose_none(tmp_path: Path) -> None:
    done, faults = threading.Event(), []

    def look() -> None:
        seen: set[str] = set()
        while not done.is_set():
            now = {*read_ledger(tmp_path).by_name}
            faults.extend(seen - now)
            seen = now

    with ThreadPoolExecutor(8) as threads:
        readers = [threads.submit(look) for _ in range(2)]
        entries = (numbered(5 * number) for number in range(24))
        list(threads.map(lambda each: record(tmp_path, [each], at_end=True), entries))
        done.set()
        assert [reader.result() for reader in readers] == [None, None]
    assert (faults, [each.position for each in read_ledger(tmp_path).entries]) == ([], list(range(1, 25)))


def test_killed_at_any_step_a_ledger_is_as_before_or_after(tmp_path: Path) -> None:
    """Several entries are recorded at once, some again; the next run leaves nothing of the killed one."""
    entries = [numbered(number) for number in range(6)]
    again = [numbered(number, verdict="regression") for number in range(3)] + [numbered(6), numbered(7)]
    outcomes = set()
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        record(folder, entries)
        killed = killed_at(step, partial(record, folder, again))
        left = read_ledger(folder).entries
        outcomes.add(tuple((each.name, each.verdict) for each in left))
        record(folder, entries[5:])
        assert {*folder.iterdir()} == {folder / f"{each.name}.json" for each in left}
        assert [each.name for each in read_ledger(folder).entries] == [each.name for each in left]
        if not killed:
            break
    assert len(outcomes) == 2
    assert step > 6


def test_the_newest_are_printed_and_any_by_its_name(tmp_path: Path) -> None:
    record(tmp_path, [numbered(number) for number in range(10)])

    def printed(*more: str) -> str:
        return command("history", tmp_path, *more).output

    lines = printed("--last", "1").splitlines()
    headings = [line.partition(":")[0] for line in lines if " against " in line and not line.startswith("-")]
    assert headings == ["r8", "r4 (study)"]
    assert f"Shown are the newest 2 of 10 comparisons. The others: `python -m buildcompare history {tmp_path}" in (
        " ".join(lines)
    )
    assert "\nr3: " in printed("--only", "r3")
    assert "r8: " not in printed("--only", "r3")
    assert printed("--last", "0") == printed()
    assert "expected the name of a comparison, found 'r99'" in printed("--only", "r99")
    assert "a ledger with entries" in command("history", tmp_path / "none").output


def test_a_full_disk_leaves_the_ledger_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, [entry("v1.1")])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    written: list[Path] = []
    write_bytes = Path.write_bytes

    def full(path: Path, *args: Any, **kw: Any) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        return write_bytes(path, *args, **kw)

    monkeypatch.setattr(Path, "write_bytes", full)
    other = entry("v1.2", 2, **OTHERS)
    with pytest.raises(InputError, match="No space left"):
        record(tmp_path, [entry("v1.1", verdict="pass"), other])
    monkeypatch.undo()
    assert written
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_one_database_under_two_names_is_one_chain(tmp_path: Path) -> None:
    spelled = enumerate(("postgres", "postgresql", "PostgreSQL"), start=1)
    levels = (1000.0, 1000.0)
    record(tmp_path, [entry(f"v1.{i}", i, (f"1.{i}.0", f"1.{i + 1}.0"), {db: levels}) for i, db in spelled])
    steps = bc.read_history(tmp_path).steps.values()
    assert [len(step.same_version) for step in steps] == [0, 1, 1]


def test_only_a_local_folder_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not read_ledger(tmp_path / "missing").entries
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="history: expected a folder that can be written"):
        record(tmp_path / "file", [entry("v1.1")])
    monkeypatch.setitem(ADDRESSES, tmp_path / "copy", "s3://bucket/ledger")
    with pytest.raises(InputError, match="s3://bucket/ledger: history: expected a local folder"):
        record(tmp_path / "copy", [entry("v1.1")])


def test_the_version_in_a_label() -> None:
    versions = {
        "v10.4.0-rc1": "10.4.0-rc1", "release-9.11.16": "9.11.16", "10.10": "10.10", "V1.2-RC3": "1.2-rc3",
        "master": None, "1.2.3.4.5.6": "1.2.3.4.5.6", "build 7": None,
    }  # fmt: skip
    assert {label: version_in(label) for label in versions} == versions
