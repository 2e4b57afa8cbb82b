"""The ledger on the published history. Values are computed here from the table, never listed."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from buildcompare.config.catalogue import read_catalogue
from buildcompare.history.ledger import Ledger, LedgerBuild, read_ledger
from buildcompare.history.setup import SETUP_COLUMNS
from buildcompare.history.view import History, analyse_ledger
from buildcompare.text.numbers import change
from loadfiles.comparisons import import_table

MARGIN = 5.0


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
def looked(ledger: Ledger) -> History:
    return analyse_ledger(ledger, read_catalogue("mattermost"))


@pytest.fixture(scope="module")
def lines(looked: History) -> dict[str, list[str]]:
    """The sentences about each comparison."""
    assert looked.margin_percent == MARGIN
    return {str(name): list(rows["sentence"]) for name, rows in looked.statements.groupby("comparison")}


def minor(version: object) -> str | None:
    return LedgerBuild.of(str(version)).minor


def users(table: pd.DataFrame, release: str, db: str, side: str) -> float:
    (value,) = table.loc[(table["release"] == release) & (table["db"] == db), f"su_{side}"]
    return float(value)


@pytest.mark.parametrize("release", ["v10.3", "v10.7", "v10.9", "v10.11"])
def test_jumps_stand_beside_the_setup(lines: dict[str, list[str]], looked: History, real: Path, release: str) -> None:
    assert any(row.jump for row in looked.steps[release].drift)
    rows = pd.read_csv(real / "comparisons/history.csv", dtype=str)
    chain = list(dict.fromkeys(rows.loc[rows["monthly"] == "yes", "release"]))
    before = chain[chain.index(release) - 1]
    columns = {name: title for name, title in SETUP_COLUMNS.items() if name not in ("duration", "max_active_users")}
    old, new = (rows[rows["release"] == name].iloc[0] for name in (before, release))
    known = [c for c in columns if isinstance(old[c], str) and isinstance(new[c], str)]
    expected = {columns[c] for c in known if old[c] != new[c]}
    found = looked.steps[release].setup_differences
    assert {row.setting for row in found if row.kind == "changed"} == expected
    assert {row.setting for row in found if row.kind == "not_recorded"} == {
        columns[c] for c in columns if c not in known
    }
    told = lines[release]
    setup = next(i for i, text in enumerate(told) if "Setup, compared with" in text)
    level = next(i for i, text in enumerate(told) if "The level jumped" in text)
    assert setup < level, "what may explain a drift stands above it"
    assert ("none recorded" in told[setup]) == (not expected)
    assert ("no setup difference is recorded" in told[level], release == "v10.7") == (not expected, not expected)


def test_errors_that_changed_most(lines: dict[str, list[str]], looked: History, real: Path, project: Path) -> None:
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
        (name, change.test.name): math.log1p(change.delta_percent / 100)
        for name, each in looked.steps.items()
        for change in each.errors
    }
    assert (found, len(expected)) == (pytest.approx(expected), 8)
    text = "\n".join(lines["v10.1"])
    (row,) = rows[
        (rows["release"] == "v10.1") & (rows["db"] == "postgresql") & (rows["test_type"] == "bounded")
    ].itertuples()
    told = f"{row.errors_new:,.0f} errors with v10.1.0-rc1 against {row.errors_base:,.0f} with v10.0.0"
    assert f"{told}, {change(row.errors_delta_pct)}" in text
    docs = (project / "docs/history.md").read_text("utf-8")
    assert f"{len(found)} of {len(rows)} tests" in docs
    assert change(row.errors_delta_pct) in docs


def test_what_is_between_comparisons_is_more_than_between_runs(looked: History, table: pd.DataFrame) -> None:
    monthly = table[table["monthly"] == "yes"].sort_values("order")
    for between in looked.chain.between:
        own = monthly[monthly["db"] == between.db_engine]
        pairs = zip(own.iloc[:-1].itertuples(), own.iloc[1:].itertuples(), strict=True)
        assert between.links == sum(minor(a.new_version) == minor(b.base_version) for a, b in pairs)
        assert between.sd_percent > 2 * 1.8
    assert looked.chain.repeats.df == 4, "two versions on two databases, measured twice in one study"
    assert looked.chain.repeats.ci_low < 1.8 < looked.chain.repeats.ci_high, "the borrowed deviation of one run"


def test_the_docs_say_what_is_computed(looked: History, table: pd.DataFrame, project: Path) -> None:
    docs = " ".join((project / "docs/history.md").read_text("utf-8").split())
    by_db = {row.db_engine: row for row in looked.chain.between}
    postgres, mysql = by_db["postgresql"], by_db["mysql"]
    assert f"{postgres.sd_percent:.1f} % on Postgres ({postgres.links} pairs) and" in docs
    assert f"and {mysql.sd_percent:.0f} % on MySQL ({mysql.links})" in docs
    pairs = [
        row for each in looked.steps.values() for row in each.drift if row.kind == "same_version" and row.same_version
    ]
    beyond = {db: sum(abs(p.delta_percent or 0) > MARGIN for p in pairs if p.db_engine == db) for db in by_db}
    assert f"{beyond['postgresql']} and {beyond['mysql']} differ by more than 5 %" in docs
    for row in (row for row in pairs if row.jump and row.db_engine == "postgresql"):
        size = f"{row.delta_percent:+.0f} %".replace("-", "−")
        assert f"{row.comparison} ({size}" in docs
    repeats = looked.chain.repeats
    assert f"{repeats.sd_percent:.1f} % ({repeats.ci_low:.1f} to {repeats.ci_high:.1f} %, four degrees" in docs
    (loss,) = [change for test, change in looked.steps["v10.10"].changes if test.name == "mysql_unbounded" and change]
    interval = "{:.1f} to {:.1f} %".format(*loss.interval()).replace("-", "−")
    assert f"{-loss.delta_percent:.2f} % fewer users than v10.9.1 on MySQL ({interval})" in docs
    for db, name in (("mysql", "MySQL"), ("postgresql", "Postgres")):
        rc, base, new = (
            users(table, *at) for at in (("v10.3", db, "new"), ("v10.4", db, "base"), ("v10.4", db, "new"))
        )
        drift, both = (change(100 * (value / rc - 1)) for value in (base, new))
        assert f"| {name} | {rc:.0f} | {base:.0f} | **{drift}** | {new:.0f} | {both} |" in docs
