"""The ledger on the published history, and its refusals. Values are computed here from the table, never listed."""

from __future__ import annotations

import csv
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from buildcompare import __main__ as command_line
from buildcompare.analysis.run_to_run import Noise, RunToRun
from buildcompare.errors import InputError
from buildcompare.findings import history as findings_history
from buildcompare.history.at_hand import SupportedUsersNoise
from buildcompare.history.ledger import (
    BothUsers,
    Entry,
    Ledger,
    LedgerBuild,
    LedgerTest,
    alone,
    minor,
    read_ledger,
    record,
    version_in,
)
from buildcompare.history.look_back import LookBack, Step, look_back
from buildcompare.history.table import import_table, read_table
from buildcompare.history.text import ledger_text, step_lines
from buildcompare.metrics import read_catalogue
from buildcompare.results import Drift, HistoryResult
from buildcompare.wording import change

MARGIN = 5.0
NOISE = Noise(0.018, math.inf, "borrowed")


@pytest.fixture(scope="module")
def table(real: Path) -> pd.DataFrame:
    """The unbounded tests of the published history."""
    rows = pd.read_csv(real / "comparisons/history.csv", dtype={"order": "Int64"})
    return rows[rows["test_type"] == "unbounded"]


@pytest.fixture(scope="module")
def ledger(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    folder = tmp_path_factory.mktemp("ledger") / "mattermost"
    import_table(real / "comparisons/history.csv", folder)
    return read_ledger(folder)


@pytest.fixture(scope="module")
def looked(ledger: Ledger) -> LookBack:
    known = SupportedUsersNoise.of(read_catalogue("mattermost"), RunToRun())
    assert known.noise is not None
    return look_back(ledger.chain, known.noise, ledger.studies)


def step(looked: LookBack, name: str) -> Step:
    return next(step for step in looked.steps if step.entry.name == name)


def users(table: pd.DataFrame, release: str, db: str, side: str) -> float:
    (value,) = table.loc[(table["release"] == release) & (table["db"] == db), f"su_{side}"]
    return float(value)


def rows_of(looked: LookBack, name: str, kind: str) -> dict[str, Drift]:
    return {f"{row.db_engine}_{row.side}": row for row in step(looked, name).drift if row.kind == kind}


# ---- What the ledger states on the published history ----------------------------------------------------------------


def test_every_published_comparison_is_kept(ledger: Ledger, table: pd.DataFrame) -> None:
    monthly = table[table["monthly"] == "yes"]
    assert [entry.name for entry in ledger.chain] == list(dict.fromkeys(monthly.sort_values("order")["release"]))
    kept = {
        (entry.position, test.db_engine, *(getattr(test.supported_users, side) for side in ("base", "new")))
        for entry in ledger.chain
        for test in entry.tests
        if test.supported_users is not None
    }
    assert kept == set(monthly[["order", "db", "su_base", "su_new"]].itertuples(index=False, name=None))


def test_studies_stay_out_of_the_chain(ledger: Ledger, looked: LookBack, table: pd.DataFrame) -> None:
    studies = {
        "-".join(part for part in (row.release, row.run) if isinstance(part, str))
        for row in table[table["monthly"] == "study"].itertuples()
    }
    assert {entry.name for entry in ledger.studies} == studies
    told = {row.comparison for step in looked.steps for row in step.drift}
    told |= {row.against for step in looked.steps for row in step.drift}
    assert not told & studies


def test_postgres_below_mysql_and_not_for_the_first_time(looked: LookBack, table: pd.DataFrame) -> None:
    rows = rows_of(looked, "v10.4", "between_databases")
    said = {}
    for side in ("base", "new"):
        percent = 100 * (users(table, "v10.4", "postgresql", side) / users(table, "v10.4", "mysql", side) - 1)
        assert rows[f"postgresql_{side}"].delta_percent == pytest.approx(percent)
        said[side] = percent
    assert (round(said["base"], 1), round(said["new"], 1)) == (-7.9, -2.7), "what the published report says"
    monthly = table[table["monthly"] == "yes"]
    wide = monthly.pivot_table(index="order", columns="db", values=["su_base", "su_new"], sort=True)
    names = monthly.drop_duplicates("order").set_index("order")["release"]
    below = {
        names[order]
        for order, row in wide.iterrows()
        if order < 18 and any(row[f"su_{side}", "postgresql"] < row[f"su_{side}", "mysql"] for side in ("base", "new"))
    }
    earlier = rows["postgresql_base"].earlier
    assert {each.comparison for each in earlier} == below
    assert below, "the published report says `for the first time`"
    text = next(text for text in step_lines(step(looked, "v10.4"), looked, MARGIN) if "unlike in" in text)
    assert "Postgres supports fewer users than MySQL" in text
    for value in said.values():
        assert change(value) in text
    assert all(name in text for name in below)


@pytest.mark.parametrize(("db", "published"), [("mysql", -10.5), ("postgresql", -24.3)])
def test_the_same_version_in_the_next_comparison(
    looked: LookBack, table: pd.DataFrame, db: str, published: float
) -> None:
    before = users(table, "v10.3", db, "new")
    level = rows_of(looked, "v10.4", "same_version")[f"{db}_base"]
    percent = 100 * (users(table, "v10.4", db, "base") / before - 1)
    assert level.delta_percent == pytest.approx(percent)
    assert round(percent, 1) == published
    assert level.ci_high is not None
    assert level.ci_high < 0
    text = next(text for text in step_lines(step(looked, "v10.4"), looked, MARGIN) if text.startswith("The level"))
    assert "v10.3.0 against v10.3.0-rc1 in v10.3" in text
    assert change(percent) in text
    assert "the setup changed too (Load-test version)" in text
    # The seed's figures for it are those of the new build, in MySQL and in Postgres.
    other = rows_of(looked, "v10.4", "previous_new")[f"{db}_new"]
    assert other.delta_percent == pytest.approx(100 * (users(table, "v10.4", db, "new") / before - 1))
    assert round(other.delta_percent or 0, 1) == {"mysql": -10.2, "postgresql": -19.7}[db]


@pytest.mark.parametrize("release", ["v10.3", "v10.7", "v10.9", "v10.11"])
def test_level_jumps_stand_beside_the_setup(looked: LookBack, real: Path, release: str) -> None:
    assert any(row.jump for row in step(looked, release).drift)
    rows = pd.read_csv(real / "comparisons/history.csv", dtype=str)
    chain = list(dict.fromkeys(rows.loc[rows["monthly"] == "yes", "release"]))
    before = chain[chain.index(release) - 1]
    columns = {
        "load_test_version": "Load-test version",
        "app_instances": "App instances",
        "agent_instances": "Agent instances",
        "proxy_instance": "Proxy Instance",
        "db_instances": "DB instances",
        "dataset": "Dataset",
    }
    old, new = (rows[rows["release"] == name].iloc[0] for name in (before, release))
    known = [c for c in columns if isinstance(old[c], str) and isinstance(new[c], str)]
    expected = {columns[c] for c in known if old[c] != new[c]}
    found = step(looked, release).setup_differences
    assert {row.setting for row in found if row.kind == "changed"} == expected
    assert {row.setting for row in found if row.kind == "not_recorded"} == {
        columns[c] for c in columns if c not in known
    }
    lines = list(step_lines(step(looked, release), looked, MARGIN))
    setup = next(i for i, text in enumerate(lines) if text.startswith("Setup, compared with"))
    level = next(i for i, text in enumerate(lines) if text.startswith("The level jumped"))
    assert setup < level, "what may explain a drift stands above it"
    assert ("none recorded" in lines[setup]) == (not expected)
    assert ("no setup difference is recorded" in lines[level]) == (not expected)
    assert (release == "v10.7") == (not expected)


def test_jumps_are_few(looked: LookBack) -> None:
    jumped = [each.entry.name for each in looked.steps if any(row.jump for row in each.drift)]
    assert {"v10.3", "v10.7", "v10.9", "v10.11"} <= set(jumped)
    assert len(jumped) <= len(looked.steps) / 5, "a jump at every other release would say nothing"


def test_a_loss_that_nobody_wrote_about(looked: LookBack, table: pd.DataFrame) -> None:
    percent = 100 * (users(table, "v10.10", "mysql", "new") / users(table, "v10.10", "mysql", "base") - 1)
    assert round(percent, 2) == -7.48
    assert step(looked, "v10.10").within["mysql_unbounded"].percent == pytest.approx(percent)
    text = next(text for text in step_lines(step(looked, "v10.10"), looked, MARGIN) if text.startswith("Unbounded"))
    assert change(percent) in text
    assert text.endswith("Nobody wrote about it.")
    told = [
        text for each in looked.steps for text in step_lines(each, looked, MARGIN) if "Published with other" in text
    ]
    assert any(text.startswith("Unbounded MySQL: v8.0.0-rc1") for text in told)


def test_errors_that_changed_as_never_else(looked: LookBack, real: Path, project: Path) -> None:
    rows = pd.read_csv(real / "comparisons/history.csv")
    rows = rows[(rows["monthly"] == "yes") & (rows["errors_base"] > 0) & (rows["errors_new"] > 0)]
    load = (rows["su_new"] / rows["su_base"]).where(rows["test_type"] == "unbounded", 1.0)
    rows = rows.assign(change=np.log(rows["errors_new"] / rows["errors_base"] / load)).dropna(subset=["change"])
    expected = {}
    for _, test in rows.groupby(["db", "test_type"]):
        deviation = 1.4826 * test["change"].abs().median()
        far = test[(test["change"].abs() > 3.6 * deviation) & (test["change"].abs() > math.log(1.5))]
        expected |= {(row.release, f"{row.db}_{row.test_type}"): row.change for row in far.itertuples()}
    found = {
        (step.entry.name, name): math.log1p(each.percent / 100)
        for step in looked.steps
        for name, each in step.errors.items()
    }
    assert found == pytest.approx(expected)
    assert len(expected) == 8
    (step,) = (step for step in looked.steps if step.entry.name == "v10.1")
    text = "\n".join(step_lines(step, looked, MARGIN))
    (row,) = rows[
        (rows["release"] == "v10.1") & (rows["db"] == "postgresql") & (rows["test_type"] == "bounded")
    ].itertuples()
    told = f"{row.errors_new:,.0f} errors with v10.1.0-rc1 against {row.errors_base:,.0f} with v10.0.0"
    assert f"{told}, {change(row.errors_delta_pct)}" in text
    docs = (project / "docs/history.md").read_text("utf-8")
    assert f"{len(found)} of {len(rows)} tests" in docs
    assert change(row.errors_delta_pct) in docs


def test_what_is_between_comparisons_is_more_than_between_runs(looked: LookBack, table: pd.DataFrame) -> None:
    monthly = table[table["monthly"] == "yes"].sort_values("order")
    for between in looked.between:
        own = monthly[monthly["db"] == between.db_engine]
        pairs = zip(own.iloc[:-1].itertuples(), own.iloc[1:].itertuples(), strict=True)
        same = [(a, b) for a, b in pairs if minor(str(a.new_version)) == minor(str(b.base_version))]
        assert between.links == len(same)
        assert between.sd_percent is not None
        assert between.sd_percent > 2 * 1.8
    assert looked.repeats is not None
    assert looked.repeats.df == 4, "two versions on two databases, measured twice in one study"
    assert looked.repeats.ci_low < 1.8 < looked.repeats.ci_high, "the borrowed deviation of one run"


def test_every_number_of_a_sentence_is_in_its_evidence(looked: LookBack) -> None:
    for each in looked.steps:
        for finding in findings_history.find(_history(looked, each), each.drift, each.setup_differences):
            evidence = json.dumps(finding.model_dump()["evidence"])
            values = [abs(float(v)) for v in _numbers(evidence)]
            for said in _numbers(_without_names(finding.text, each)):
                value = abs(float(said))
                digits = len(said.partition(".")[2])
                assert value == 95 or any(
                    round(v, digits) == value or float(f"{v:.2g}") == value or float(f"{v:.3g}") == value
                    for v in values
                ), (said, finding.text)


def _history(looked: LookBack, each: Step) -> HistoryResult:
    return HistoryResult(
        ledger="x",
        comparisons=1,
        studies=0,
        entries_sha256="",
        before=each.before.name if each.before else None,
        reason="first",
        margin_percent=MARGIN,
        between=list(looked.between),
    )


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", text))


def _without_names(text: str, each: Step) -> str:
    """Without names, versions and settings, whose digits are no figures."""
    if text.startswith("Setup"):
        return ""
    return re.sub(r"v\d+(\.\d+)+(-rc\d+)?", "", text)


# ---- Importing a table ----------------------------------------------------------------------------------------------

HEADER = (
    "release,run,monthly,order,base_label,new_label,base_version,new_version,db,test_type,su_base,su_new,delta_pct,"
    "errors_base,users,load_test_version,dataset,users_inc,threshold_cpu"
)
GOOD = {
    "release": "v1.1",
    "run": "",
    "monthly": "yes",
    "order": "1",
    "base_label": "v1.0.0",
    "new_label": "v1.1.0-rc1",
    "base_version": "1.0.0",
    "new_version": "1.1.0-rc1",
    "db": "mysql",
    "test_type": "unbounded",
    "su_base": "1000",
    "su_new": "1100",
    "delta_pct": "10.0",
    "errors_base": "3",
    "users": "",
    "load_test_version": "v2",
    "dataset": "d",
    "users_inc": "8",
    "threshold_cpu": "0.85",
}


def write_table(folder: Path, *rows: dict[str, str], header: str = HEADER) -> Path:
    file = folder / "history.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, header.split(","), extrasaction="ignore")
        writer.writeheader()
        writer.writerows([{**GOOD, **row} for row in rows])
    return file


def test_a_table_becomes_entries(tmp_path: Path) -> None:
    (entry,) = read_table(
        write_table(tmp_path, {}, {"db": "postgresql", "su_base": "", "su_new": "900", "delta_pct": ""})
    )
    assert (entry.name, entry.position, entry.base.version, entry.new.minor) == ("v1.1", 1, "1.0.0", "1.1")
    assert entry.setup == {"Load-test version": "v2", "Dataset": "d"}
    assert entry.coordinator == {"users_inc": 8.0, "threshold_cpu": 0.85}
    assert [test.supported_users for test in entry.tests] == [BothUsers(base=1000, new=1100), BothUsers(new=900)]


@pytest.mark.parametrize(
    ("row", "key", "found"),
    [
        ({"su_base": "=1+1"}, "line 2, su_base", "'=1+1'"),
        ({"su_base": "abc"}, "line 2, su_base", "'abc'"),
        ({"su_base": "0"}, "line 2, su_base", "'0'"),
        ({"su_base": "-5"}, "line 2, su_base", "'-5'"),
        ({"su_base": "nan"}, "line 2, su_base", "'nan'"),
        ({"su_base": "1e999"}, "line 2, su_base", "'1e999'"),
        ({"su_base": "1,000"}, "line 2, su_base", "'1,000'"),
        ({"su_base": "9" * 400}, "line 2, su_base", "'999"),
        ({"delta_pct": "-19.7"}, "line 2, delta_pct", "-19.7"),
        ({"errors_base": "-1"}, "line 2, errors_base", "-1"),
        ({"users": "7500.5"}, "line 2, users", "'7500.5'"),
        ({"release": ""}, "line 2, release", "none"),
        ({"release": "../../etc"}, "line 2, release", "'../../etc'"),
        ({"release": "=cmd|' /C calc'!A0"}, "line 2, release", "formula"),
        ({"load_test_version": '=HYPERLINK("http://x")'}, "line 2, load_test_version", "formula"),
        ({"dataset": "@SUM(A1)"}, "line 2, dataset", "formula"),
        ({"dataset": "+cmd"}, "line 2, dataset", "formula"),
        ({"dataset": "two\nlines"}, "dataset", "two"),
        ({"monthly": "no"}, "line 2, monthly", "'no'"),
        ({"order": ""}, "line 2, order", "none"),
        ({"order": "1.5"}, "line 2, order", "'1.5'"),
        ({"monthly": "study"}, "line 2, order", "1"),
        ({"test_type": "soak"}, "line 2, test_type", "'soak'"),
        ({"db": ""}, "line 2, db", "none"),
        ({"db": "my sql/.."}, "line 2, db", "'my sql/..'"),
        ({"base_version": "ten"}, "line 2, base_version", "'ten'"),
        ({"users_inc": "x"}, "line 2, users_inc", "'x'"),
        ({"base_label": "x" * 300}, "line 2: base.label", "xxx"),
    ],
)
def test_a_cell_at_fault_is_named(tmp_path: Path, row: dict[str, str], key: str, found: str) -> None:
    file = write_table(tmp_path, row)
    with pytest.raises(InputError) as fault:
        import_table(file, tmp_path / "ledger")
    assert fault.value.file == str(file)
    assert key in str(fault.value.key)
    assert found in fault.value.found
    assert not (tmp_path / "ledger").exists()


@pytest.mark.parametrize(
    ("rows", "key", "found"),
    [
        (({}, {}), "line 3, db, test_type", "mysql_unbounded as on line 2"),
        (({}, {"release": "v1.2"}), "line 3, order", "1, which is v1.1's"),
        (({}, {"db": "postgresql", "new_label": "v1.2"}), "line 3, new_label", "'v1.1.0-rc1' on line 2"),
        (({}, {"db": "postgresql", "load_test_version": "v3"}), "line 3, load_test_version", "'v2' on line 2"),
    ],
)
def test_rows_that_contradict_each_other_are_named(
    tmp_path: Path, rows: tuple[dict[str, str], ...], key: str, found: str
) -> None:
    with pytest.raises(InputError) as fault:
        read_table(write_table(tmp_path, *rows))
    assert fault.value.key == key
    assert found in fault.value.found


def test_spellings_that_nobody_misreads_are_read(tmp_path: Path) -> None:
    plain = read_table(write_table(tmp_path, {"delta_pct": "10"}))
    for delta in ("10.0", "+10.00", "10 %", "10.000%"):
        assert read_table(write_table(tmp_path, {"delta_pct": delta})) == plain
    (less,) = read_table(write_table(tmp_path, {"su_new": "964", "delta_pct": "\u22123.6 %"}))
    assert less.tests[0].supported_users == BothUsers(base=1000, new=964)
    assert read_table(write_table(tmp_path, {"su_new": "964.4", "delta_pct": "-3.5"})), "cut off at its last digit"
    with pytest.raises(InputError, match="delta_pct"):
        read_table(write_table(tmp_path, {"su_new": "964", "delta_pct": "-3.4"}))
    with pytest.raises(InputError, match="delta_pct"):
        read_table(write_table(tmp_path, {"su_new": "964", "delta_pct": "3.6"}))
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
            with pytest.raises(InputError, match="su_base"):
                read_table(file)


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        (b"", "no release, monthly"),
        (b"release,db\nv1,mysql\n", "no monthly, order"),
        (HEADER.encode() + b"\n", "none"),
        (HEADER.encode() + b"\nv1.1,yes\n", "2"),
        ((HEADER + ",db\n").encode(), "'db' twice"),
        (b"\xff\xfe\x00", "bytes that are no UTF-8"),
        (HEADER.encode() + b'\n"v1', "unexpected end of data"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path: Path, contents: bytes, found: str) -> None:
    file = tmp_path / "history.csv"
    file.write_bytes(contents)
    with pytest.raises(InputError) as fault:
        read_table(file)
    assert found in fault.value.found
    with pytest.raises(InputError):
        read_table(tmp_path / "missing.csv")


# ---- The ledger's files ---------------------------------------------------------------------------------------------


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
    (file,) = record(tmp_path, [entry()])
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
    (file,) = record(tmp_path, [entry()])
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
        with alone(tmp_path):
            last = max((e.position or 0 for e in read_ledger(tmp_path).chain), default=0)
            base, new = (LedgerBuild(label=f"{side}-{number}") for side in ("base", "new"))
            record(tmp_path, [entry(f"r{number}", position=last + 1, base=base, new=new)])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(24)))
    assert sorted(e.position or 0 for e in read_ledger(tmp_path).chain) == list(range(1, 25))


def test_a_ledger_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can be written") as fault, alone(tmp_path / "file"):
        pass
    assert fault.value.key == "history"


def test_a_disk_that_is_full_in_between_leaves_the_ledger_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, [entry()])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    written: list[Path] = []
    write_text = Path.write_text

    def full(path: Path, *args: Any, **kw: Any) -> int:
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        return write_text(path, *args, **kw)

    monkeypatch.setattr(Path, "write_text", full)
    other = entry("v1.2", position=2, base=LedgerBuild(label="a"), new=LedgerBuild(label="b"))
    with pytest.raises(InputError, match="No space left"):
        record(tmp_path, [entry(verdict="pass"), other])
    monkeypatch.undo()
    assert written
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_one_database_under_two_names_is_one_chain(tmp_path: Path) -> None:
    def measured(number: int, db: str) -> Entry:
        base, new = (LedgerBuild(label=f"v1.{n}.0", version=f"1.{n}.0") for n in (number, number + 1))
        users = BothUsers(base=1000.0, new=1000.0)
        test = LedgerTest(name=f"{db}_unbounded", type="unbounded", db_engine=db, supported_users=users)
        return entry(f"v1.{number}", position=number, base=base, new=new, tests=[test])

    record(tmp_path, [measured(1, "postgres"), measured(2, "postgresql"), measured(3, "PostgreSQL")])
    steps = look_back(read_ledger(tmp_path).chain, NOISE).steps
    assert [row.same_version for step in steps for row in step.drift if row.kind == "same_version"] == [True, True]


def test_two_entries_at_one_place_are_refused(tmp_path: Path) -> None:
    (file,) = record(tmp_path, [entry()])
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


def test_the_command_line_imports_and_tells(real: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "ledger")
    done = CliRunner().invoke(command_line.app, ["history-import", str(real / "comparisons/history.csv"), "-o", out])
    assert done.exit_code == 0
    assert "34 comparisons and 3 studies" in done.stdout
    told = CliRunner().invoke(command_line.app, ["history", out])
    assert told.exit_code == 0
    assert "v10.7: v10.7.0-rc1 against v10.6.1" in told.stdout
    bad = CliRunner().invoke(command_line.app, ["history-import", str(tmp_path / "no.csv"), "-o", out])
    assert bad.exit_code == 3


def test_the_docs_say_what_is_computed(looked: LookBack, table: pd.DataFrame, project: Path) -> None:
    """docs/history.md states figures of the published history: each is made again here."""
    docs = " ".join((project / "docs/history.md").read_text("utf-8").split())
    by_db = {row.db_engine: row for row in looked.between}
    postgres, mysql = by_db["postgresql"], by_db["mysql"]
    assert f"{postgres.sd_percent:.1f} % on Postgres ({postgres.links} pairs) and" in docs
    assert f"and {mysql.sd_percent:.0f} % on MySQL ({mysql.links})" in docs
    pairs = [row for each in looked.steps for row in each.drift if row.kind == "same_version" and row.same_version]
    beyond = {db: sum(abs(p.delta_percent or 0) > MARGIN for p in pairs if p.db_engine == db) for db in by_db}
    assert f"{beyond['postgresql']} and {beyond['mysql']} differ by more than 5 %" in docs
    for row in (row for row in pairs if row.jump and row.db_engine == "postgresql"):
        size = f"{row.delta_percent:+.0f} %".replace("-", "−")
        assert f"{row.comparison} ({size}" in docs
    repeats = looked.repeats
    assert repeats is not None
    assert f"{repeats.sd_percent:.1f} % ({repeats.ci_low:.1f} to {repeats.ci_high:.1f} %, four degrees" in docs
    loss = step(looked, "v10.10").within["mysql_unbounded"]
    interval = f"{loss.low:.1f} to {loss.high:.1f} %".replace("-", "−")
    assert f"{-loss.percent:.2f} % fewer users than v10.9.1 on MySQL ({interval})" in docs
    for db, name in (("mysql", "MySQL"), ("postgresql", "Postgres")):
        rc, base, new = (
            users(table, *at) for at in (("v10.3", db, "new"), ("v10.4", db, "base"), ("v10.4", db, "new"))
        )
        drift, both = (change(100 * (value / rc - 1)) for value in (base, new))
        assert f"| {name} | {rc:.0f} | {base:.0f} | **{drift}** | {new:.0f} | {both} |" in docs
