"""The ledger's files: what is kept, replaced and refused, and what later comparisons learn of noise from them."""

import itertools
import json
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import buildcompare as bc
from buildcompare.config.errors import ADDRESSES
from buildcompare.config.params import check_params, version_in
from buildcompare.config.yaml import yaml_text
from buildcompare.history import levels as levels_of_ledgers
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, entry_of, read_ledger, record
from buildcompare.history.levels import contrasts_in
from buildcompare.stats.noise import Contrasts
from ledgers import entry
from support import analysed, command, killed_at, refused, small_params, write_params, yaml_data

OTHERS = {"base": {"label": "a"}, "new": {"label": "b"}}
"""Builds of another comparison."""


def numbered(number: int, **more: Any) -> Entry:
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
    with pytest.raises(bc.InputError, match=rf"(^|: ){key}: expected .*, found .*{found}"):
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
    with pytest.raises(bc.InputError, match=f"^{re.escape(f'{file}: {key}: expected')}"):
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
    with pytest.raises(bc.InputError, match="No space left"):
        record(tmp_path, [entry("v1.1", verdict="pass"), other])
    monkeypatch.undo()
    assert written
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_one_database_under_two_names_is_one_chain(tmp_path: Path) -> None:
    spelled = enumerate(("postgres", "postgresql", "PostgreSQL"), start=1)
    levels = (1000.0, 1000.0)
    record(tmp_path, [entry(f"v1.{i}", i, (f"1.{i}.0", f"1.{i + 1}.0"), {db: levels}) for i, db in spelled])
    assert [len(step.same_version) for step in bc.read_history(tmp_path).steps.values()] == [0, 1, 1]


def test_only_a_local_folder_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not read_ledger(tmp_path / "missing").entries
    (tmp_path / "file").write_text("")
    with pytest.raises(bc.InputError, match="history: expected a folder that can be written"):
        record(tmp_path / "file", [entry("v1.1")])
    monkeypatch.setitem(ADDRESSES, tmp_path / "copy", "s3://bucket/ledger")
    with pytest.raises(bc.InputError, match="s3://bucket/ledger: history: expected a local folder"):
        record(tmp_path / "copy", [entry("v1.1")])


def test_the_version_in_a_label() -> None:
    versions = {
        "v10.4.0-rc1": "10.4.0-rc1", "release-9.11.16": "9.11.16", "10.10": "10.10", "V1.2-RC3": "1.2-rc3",
        "master": None, "1.2.3.4.5.6": "1.2.3.4.5.6", "build 7": None, "v1.4.0-12-gabc1234": None,
        "1.4.0-SNAPSHOT": None, "go1.21 v3.0": "3.0", "PostgreSQL 16.4 / v11.1.0": "11.1.0", "10.4 or 10.5": None,
    }  # fmt: skip
    assert {label: version_in(label) for label in versions} == versions


def recorded(params: dict[str, Any], folder: Path, count: int, **changes: Any) -> Ledger:
    """A ledger of `count` comparisons like that of `params`, on two databases whose times move by 10 % together."""
    entry, entries = entry_of(check_params(params), analysed(params).results.tests, position=1), []
    for i in range(count):
        data = json.loads(entry.model_dump_json())
        data |= {
            "name": f"past-{i}", "position": i + 1, "base": {"label": f"b{i}"}, "new": {"label": f"n{i}"},
        } | changes  # fmt: skip
        data["tests"] += [{**test, "name": f"second_{test['name']}", "db_engine": "mysql"} for test in data["tests"]]
        for number, test in enumerate(data["tests"]):
            test["samples"] = [f"{i} {number}"]
            apart = 0.1 * (-1) ** i + (0.002 if number < len(data["tests"]) / 2 else -0.002)
            times = {"base": [0.02], "new": [0.02 * math.exp(apart)]}
            test["levels_of_runs"] = {**test["levels_of_runs"], "avg-api-times": times}
        entries.append(type(entry).model_validate_json(json.dumps(data)))
    record(folder, entries)
    return read_ledger(folder)


def contrasts_of(ledger: Ledger, params: dict[str, Any], samples: set[str] = frozenset()) -> Contrasts:  # type: ignore[assignment]
    return contrasts_in(ledger, check_params(params), samples, simulated=False)


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return small_params(tmp_path_factory.mktemp("data"), setup={"Dataset": "12M posts", "Load-test version": "1"})


def test_an_entry_keeps_what_every_run_measured(params: dict[str, Any]) -> None:
    results = analysed(params).results
    entry = entry_of(check_params(params), results.tests, position=1)
    for kept, test in zip(entry.tests, results.tests, strict=True):
        row = next(each for each in test.metrics if each.slug == "avg-api-times")
        assert (kept.levels_of_runs["avg-api-times"], [*row.levels.base]) == (row.levels, [row.base])
        window = test.runs.new[0].window
        assert kept.windows_s.new == [window[1] - window[0]]
        assert kept.samples == [run.samples_sha256 for run in (*test.runs.base, *test.runs.new)]
        if row.load_adjusted:
            kept_at_load = kept.at_load["avg-api-times"]
            assert (kept_at_load.base, kept_at_load.within_se_log) == (
                row.load_adjusted.base,
                row.load_adjusted.within_se_log,
            )
    assert entry.tests[1].at_load
    assert not entry.tests[0].at_load


def test_a_shared_change_of_the_build_is_no_noise(params: dict[str, Any], tmp_path: Path) -> None:
    times = contrasts_of(recorded(params, tmp_path, 3), params)["bounded", "avg-api-times"]
    assert times["comparison"].tolist() == [0, 0, 1, 1, 2, 2]
    assert times["squares"].tolist() == pytest.approx([0.002**2 / 2] * 6)  # per run
    assert times["df"].tolist() == [0.5] * 6
    twice = {side: {"label": f"v1 of this, run {run}"} for run, side in enumerate(("base", "new"))}
    (tmp_path / "again").mkdir()
    whole = contrasts_of(recorded(params, tmp_path / "again", 1, **twice), params)["bounded", "avg-api-times"]
    assert whole["squares"].tolist() == pytest.approx([0.102**2 / 2, 0.098**2 / 2])
    assert whole["df"].tolist() == [1.0] * 2, "two runs of one build: nothing changed"


def test_a_comparison_teaches_nothing_about_itself(params: dict[str, Any], tmp_path: Path) -> None:
    ledger = recorded(params, tmp_path, 3)
    itself = {**params, "base": {"label": "b1"}, "new": {"label": "n1"}}
    assert len(contrasts_of(ledger, itself)["bounded", "avg-api-times"]) == 4
    left = contrasts_of(ledger, params, {"2 0"})["bounded", "avg-api-times"]
    assert {*left["comparison"]} == {0, 1}, "a run of the third is compared here, under another name"


@pytest.mark.parametrize(
    ("setup", "teaches"),
    [
        ({"Dataset": "12M posts", "Load-test version": "2"}, True),
        ({"Dataset": "1M posts", "Load-test version": "1"}, False),
        ({}, True),  # not stated: nobody said that it is another one
    ],
)
def test_another_setup_is_none(params: dict[str, Any], tmp_path: Path, setup: dict[str, str], teaches: bool) -> None:
    assert bool(contrasts_of(recorded(params, tmp_path, 2, setup=setup), params)) == teaches


def test_a_report_says_which_noise_it_used(params: dict[str, Any], tmp_path: Path) -> None:
    without = analysed(params).results
    recorded(params, tmp_path, 8)
    results = analysed({**params, "history": str(tmp_path)}).results
    for test, before in zip(results.tests, without.tests, strict=True):
        row, alone = (
            next(each for each in rows if each.slug == "avg-api-times") for rows in (test.metrics, before.metrics)
        )
        assert (row.noise_source, alone.noise_source, alone.noise_comparisons) == ("catalogue", "catalogue", 0)
        assert row.noise_comparisons == (8 if test.type == "bounded" else 0)
        assert (row.run_sd_percent < 0.8 * alone.run_sd_percent) == (test.type == "bounded")
        if test.supported_users:
            assert test.supported_users == before.supported_users, "its noise comes from repeats and the catalogue"


def test_a_folder_of_params_files_is_imported(params: dict[str, Any], tmp_path: Path) -> None:
    folder, ledger = tmp_path / "past", tmp_path / "ledger"
    for name, new in (("b", "v1.10.0"), ("a", "v1.9.0")):
        given = {**params, "name": name, "base": {"label": "v1.8.0"}, "new": {"label": new}, "history": str(ledger)}
        folder.mkdir(exist_ok=True)
        write_params(folder / f"{name}.yaml", given)
    done = command("history-import", folder, "--output", ledger)
    assert done.exit_code == 0, done.output
    assert "2 comparisons and 0 studies recorded" in done.output
    assert [entry.name for entry in read_ledger(ledger).entries] == ["a", "b"]
    assert all(test.levels_of_runs for entry in read_ledger(ledger).entries for test in entry.tests)


def test_one_damaged_comparison_of_a_folder_records_none(params: dict[str, Any], tmp_path: Path) -> None:
    folder, ledger = tmp_path / "past", tmp_path / "ledger"
    folder.mkdir()
    write_params(folder / "good.yaml", {**params, "name": "good"})
    bad = yaml_data(yaml_text({**params, "name": "bad", "new": {"label": "v2"}}))
    bad["tests"][0]["new"]["recording"] = str(tmp_path / "missing.csv")
    write_params(folder / "bad.yaml", bad)
    assert "missing.csv" in refused("history-import", folder, "--output", ledger)
    assert not list(ledger.glob("*.json"))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "expected params files (*.yaml), found none" in refused("history-import", empty, "-o", ledger)


def test_of_a_chain_the_latest_teach(params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = recorded(params, tmp_path, 6)
    assert len(contrasts_of(ledger, params)["bounded", "avg-api-times"]) == 12
    monkeypatch.setattr(levels_of_ledgers, "NEWEST", 2)
    assert len(contrasts_of(ledger, params)["bounded", "avg-api-times"]) == 4
