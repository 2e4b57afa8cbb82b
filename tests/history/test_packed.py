"""A ledger as JSON files, as a Parquet file, and as both: the same ledger, whatever happens in between."""

from __future__ import annotations

import itertools
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from buildcompare import __main__ as command_line
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import check_params
from buildcompare.history import dataset, ledger
from buildcompare.history.chain import analyse_chain, compare_to_ledger, supported_users_noise
from buildcompare.history.ledger import Entry, locked, pack, read_ledger, record
from buildcompare.history.past import past_changes
from buildcompare.stats.noise import PastChanges
from support import killed_at, small_params

CATALOGUE = read_catalogue("mattermost")
NOISE, _ = USERS = supported_users_noise(CATALOGUE)
METRICS = ("avg-api-times", "p99-api-times", "rps", "heap-in-use{host=a}")


def drawn(number: int, **more: Any) -> Entry:
    """A comparison in which now and then something is missing, repeated or read off a plot."""
    rng = np.random.default_rng(number)

    def levels(count: int, scale: float = 1.0) -> list[float]:
        return (scale * np.exp(rng.normal(0.0, 0.05, count))).tolist()

    def pair(scale: float) -> dict[str, float | None]:
        return {"base": None if rng.random() < 0.1 else levels(1, scale)[0], "new": levels(1, scale)[0]}

    tests = []
    for db in ("mysql", "postgresql") if rng.random() < 0.9 else ("postgresql", "postgres"):
        for kind in ("bounded", "unbounded"):
            base, new = (int(rng.integers(1, 4)) for _ in range(2))
            test: dict[str, Any] = {"name": f"{db}_{kind}", "type": kind, "db_engine": db, "users": 5000}
            test |= {"runs": {"base": base, "new": new}, "misread": ["rps"] * (rng.random() < 0.3)}
            test |= {"levels_of_runs": {key: {"base": levels(base), "new": levels(new)} for key in METRICS}}
            test |= {"within_se_log": {METRICS[0]: 0.01}, "windows_s": {"base": levels(base, 1800.0), "new": []}}
            test |= {"samples": [f"{number}-{db}-{kind}"], "errors": pair(3000.0), "looks": [[1, 1]]}
            if kind == "unbounded":
                seen = {"users": 800.0, "base": levels(1)[0], "new": levels(1)[0], "within_se_log": 0.02}
                test |= {"supported_users": pair(9000.0), "at_load": {"rps": seen}, "written": pair(9000.0)}
            tests.append(test)
    study = number % 9 == 8
    data: dict[str, Any] = {"name": f"r{number}", "kind": "study" if study else "monthly", "tests": tests}
    data |= {"position": None if study else number + 1, "source": "report", "servers": ["p 1"], "verdict": "pass"}
    for side, version in (("base", number), ("new", number + 1)):
        data[side] = {"label": f"v1.{version}.0", "version": f"1.{version}.0"} if version % 7 else {"label": f"x{side}"}
    data["base"] |= {"label": f"{data['base']['label']} of {number}"}
    data |= {"setup": {"Tool": f"v{number // 4}", "Dataset": "12M"}, "coordinator": {"users_inc": 8.0}}
    return Entry.model_validate({**data, **more})


ENTRIES = [drawn(number) for number in range(40)]


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """One ledger as JSON, as Parquet, and as both."""
    folders = [tmp_path / name for name in ("loose", "packed", "mixed")]
    record(folders[0], ENTRIES)
    for folder, count in ((folders[1], 40), (folders[2], 25)):
        folder.mkdir()
        record(folder, ENTRIES[:count])
        pack(read_ledger(folder))
        record(folder, ENTRIES[count:])
    assert [len(list(folder.glob("*.json"))) for folder in folders] == [40, 0, 15]
    return folders


def plain(changes: PastChanges) -> dict[object, list[str]]:
    return {key: sorted(map(repr, each)) for key, each in changes.items()}


def test_every_form_of_a_ledger_says_the_same(three: list[Path], tmp_path: Path) -> None:
    assert NOISE is not None
    params = check_params(small_params(tmp_path / "data", setup={"Tool": "v3", "Dataset": "12M"}))
    said = []
    for folder in three:
        found = read_ledger(folder)
        assert found.read() == {entry.name: entry for entry in ENTRIES}
        assert found.read(["r3", "r30"]) == {entry.name: entry for entry in (ENTRIES[3], ENTRIES[30])}
        assert found.next_position == 40 + 1
        assert found.find(ENTRIES[27]) == ENTRIES[27]
        changes = past_changes(found, params, {"3-mysql-bounded"}, CATALOGUE, simulated=False)
        past = compare_to_ledger(found, params, [], USERS, simulated=False)
        said.append((analyse_chain(found, NOISE), plain(changes), past[0].entries_sha256, past[1:]))
    assert said[0] == said[1] == said[2]
    few = analyse_chain(read_ledger(three[2]), NOISE, newest=3, named=["r1"])
    assert [*few.steps] == ["r1", "r37", "r38", "r39", "r17", "r26", "r35"], "the last of the chain, the first studies"
    assert few.steps["r38"] == said[0][0].steps["r38"]
    assert few.between == said[0][0].between


def test_packed_entries_become_json_again(three: list[Path]) -> None:
    before = {file.name: file.read_bytes() for file in three[0].glob("*.json")}
    for folder, moved in zip(three[1:], (40, 25), strict=True):
        done = CliRunner().invoke(command_line.app, ["history-pack", str(folder), "--undo"])
        assert f"{moved} entries moved out of" in done.output
        assert {file.name: file.read_bytes() for file in folder.glob("*.json")} == before
        assert not (folder / dataset.FILE).exists()
    done = CliRunner().invoke(command_line.app, ["history-pack", str(three[0] / "missing")])
    assert (done.exit_code, (three[0] / "missing").exists()) == (3, False)


def test_a_packed_comparison_is_recorded_again_at_its_place(three: list[Path]) -> None:
    again = drawn(5, position=41, verdict="regression")
    record(three[1], [again])
    kept = read_ledger(three[1]).read(["r5"])["r5"]
    assert (kept.position, kept.verdict, len(read_ledger(three[1]).chain)) == (6, "regression", 36)
    assert kept.tests[0].looks == [look for look in ENTRIES[5].tests[0].all_looks if look != tuple(again.tests[0].runs)]
    with pytest.raises(InputError, match=r"that of v1\.6\.0 of 6"):
        record(three[1], [drawn(7, name="r6")])
    with pytest.raises(InputError, match="1 in both"):
        record(three[1], [drawn(50, position=1)])
    moved = (three[1] / "r5.json").read_text().replace('"r5"', '"r50"').replace(": 6,", ": 3,")
    (three[1] / "r50.json").write_text(moved)
    with pytest.raises(InputError, match="3 in both"):
        read_ledger(three[1])


def test_many_files_are_packed_when_one_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_FILES", 3)
    assert record(tmp_path, ENTRIES[:3]) == 0
    assert record(tmp_path, ENTRIES[3:4]) == 4
    assert [file.name for file in tmp_path.iterdir()] == [dataset.FILE]
    assert record(tmp_path, ENTRIES[4:5]) == 0
    assert sorted(read_ledger(tmp_path).read()) == [f"r{i}" for i in range(5)]


def test_nothing_is_lost_between_writers_readers_and_packing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_FILES", 4)
    done, faults = threading.Event(), []

    def look() -> None:
        seen: set[str] = set()
        while not done.is_set():
            now = {*read_ledger(tmp_path).read()}
            faults.extend(seen - now)
            seen = now

    def add(entry: Entry) -> None:
        with locked(tmp_path):
            record(tmp_path, [entry])

    with ThreadPoolExecutor(6) as threads:
        readers = [threads.submit(look) for _ in range(2)]
        list(threads.map(add, ENTRIES))
        done.set()
        assert [reader.result() for reader in readers] == [None, None]
    assert faults == []
    assert read_ledger(tmp_path).read() == {entry.name: entry for entry in ENTRIES}


def test_packing_that_is_stopped_in_between_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, ENTRIES[:6])
    unlink, removed = Path.unlink, []

    def stopped(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".json" and len(removed) == 2:
            raise KeyboardInterrupt
        removed.append(path.suffix == ".json")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", stopped)
    with pytest.raises(KeyboardInterrupt):
        pack(read_ledger(tmp_path))
    monkeypatch.undo()
    assert 0 < len(list(tmp_path.glob("*.json"))) < 6
    assert read_ledger(tmp_path).read() == {entry.name: entry for entry in ENTRIES[:6]}
    pack(read_ledger(tmp_path))
    assert not list(tmp_path.glob("*.json"))
    assert read_ledger(tmp_path).read() == {entry.name: entry for entry in ENTRIES[:6]}


@pytest.mark.parametrize("kind", ["recorded", "packed", "unpacked"])
def test_killed_at_any_step_a_ledger_is_as_before_or_after(kind: str, tmp_path: Path) -> None:
    """Also where many entries are recorded at once; the next run leaves nothing of the killed one."""
    before = {entry.name: entry for entry in ENTRIES[:6]}
    again = [drawn(number, verdict="regression") for number in range(3)] + ENTRIES[6:9]
    found = set()
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        record(folder, ENTRIES[:6])
        if kind == "unpacked":
            pack(read_ledger(folder))
        written: dict[str, str | bytes] = {f"{name}.json": ledger._json(entry) for name, entry in before.items()}
        if kind == "recorded":
            written = {f"{entry.name}.json": ledger._json(entry) for entry in again}
        elif kind == "unpacked":
            written[dataset.FILE] = b""
        else:
            table = read_ledger(folder).table(dataset.SCHEMA.names)
            written = {**dict.fromkeys(written, b""), dataset.FILE: dataset.contents(table)}
        was_killed = killed_at(step, partial(ledger._write, folder, written))
        entries = read_ledger(folder).read()
        found.add(tuple(sorted((name, entry.verdict) for name, entry in entries.items())))
        assert set(entries) in ({*before}, {*before} | {entry.name for entry in again})
        with locked(folder):
            pass
        assert not [file for file in folder.rglob(".*") if file.name != ledger.LOCK]
        assert read_ledger(folder).read() == entries
        if not was_killed:
            break
    assert len(found) == (2 if kind == "recorded" else 1)
    assert step > 6


def test_the_newest_are_printed_and_any_by_its_name(three: list[Path]) -> None:
    def printed(*more: str) -> str:
        return CliRunner().invoke(command_line.app, ["history", str(three[1]), *more]).output

    lines = printed("--last", "2").splitlines()
    assert [line.partition(":")[0] for line in lines if " against " in line and not line.startswith("-")] == [
        "r38", "r39", "r17 (study)", "r26 (study)",
    ]  # fmt: skip
    assert "Shown are the newest 4 of 40 comparisons" in "\n".join(lines)
    assert f"history {three[1]} --last N` or `--only NAME`" in "\n".join(lines)
    assert "\nr4: " in printed("--only", "r4")
    assert "r39: " not in printed("--only", "r4")
    assert printed("--last", "0") == printed()
    assert math.isclose(len(printed().split("\n\n")), 41)
    assert "expected the name of a comparison, found 'r99'" in printed("--only", "r99")
