"""Drift and errors in chains whose truth is known, and in the published history, computed here from its table."""

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.history.chain import ErrorChange, measure_repeats
from buildcompare.history.ledger import Entry, Ledger, LedgerBuild, LedgerTest, read_ledger, record
from buildcompare.history.setup import SETUP_COLUMNS
from buildcompare.history.view import History, analyse_ledger
from buildcompare.results.codes import Pair
from buildcompare.results.history import BetweenComparisons
from buildcompare.text.numbers import change
from ledgers import entry
from loadfiles.comparisons import import_table

SD, DF = math.log1p(0.019), 11  # of one run's supported users, in the catalogue


def chain(levels: Sequence[float | None]) -> list[Entry]:
    """Comparison i measures version i as its base at levels[i], and version i + 1 as its new at the same level."""
    return entries([levels], [levels])


def entries(
    base: Any, new: Any, *, versions: Mapping[int, tuple[str | None, str | None]] | None = None, runs: int = 1
) -> list[Entry]:
    found = []
    for i in range(len(base[0])):
        pair = (versions or {}).get(i, (f"1.{i}", f"1.{i + 1}"))
        tests = [
            LedgerTest(name=f"t{row}", type="unbounded", supported_users=Pair(b[i], n[i]), runs=Pair(runs, runs))
            for row, (b, n) in enumerate(zip(base, new, strict=True))
        ]
        found.append(entry(f"c{i}", i + 1, pair, tests=tests))
    return found


def past_of(comparisons: Sequence[Entry]) -> bc.History:
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder), comparisons)
        return bc.read_history(folder, last=None)


def same_version(comparisons: Sequence[Entry]) -> tuple[pd.DataFrame, BetweenComparisons]:
    """The rows of same_version (each comparison's base beside the earlier new), and what is between comparisons."""
    past = past_of(comparisons)
    return past.drift.query("kind == 'same_version'").set_index("comparison"), past.chain.between[0]


def drift_of(comparisons: Sequence[Entry]) -> pd.DataFrame:
    return same_version(comparisons)[0]


def compared(before: float, value: float, runs: int = 1) -> pd.Series:
    return drift_of(entries([[before, value]], [[before, value]], runs=runs)).iloc[0]


def test_a_change_has_the_interval_of_two_single_runs() -> None:
    change = compared(8638.0, 6537.0)
    half = stats.t.ppf(0.975, DF) * SD * math.sqrt(2.0)
    center = math.log(6537 / 8638)
    assert change["delta_percent"] == pytest.approx(100 * (6537 / 8638 - 1))
    assert change["ci_low"] == pytest.approx(100 * math.expm1(center - half))
    assert change["ci_high"] == pytest.approx(100 * math.expm1(center + half))
    assert (change["before"], change["value"]) == (8638.0, 6537.0)
    assert change["p_value"] == pytest.approx(2 * stats.t.sf(abs(center) / (SD * math.sqrt(2.0)), DF))


def test_repeated_runs_narrow_the_interval() -> None:
    single, repeated = compared(100.0, 103.0), compared(100.0, 103.0, 4)
    assert single["ci_low"] < 0 < repeated["ci_low"]
    half, quarter = (math.log1p(each["ci_high"] / 100) - math.log(1.03) for each in (single, repeated))
    assert quarter == pytest.approx(half / 2)


def test_a_quiet_chain_has_no_jump_and_one_jump_is_found() -> None:
    quiet = 10_000 * np.exp(np.random.default_rng(1).normal(0, SD, 20))
    assert not drift_of(chain(quiet))["jump"].any()
    quiet[12:] *= 1.5
    found = drift_of(chain(quiet))
    assert [*found.index[found["jump"]]] == ["c12"]
    assert found.loc["c12", "delta_percent"] == pytest.approx(50, abs=10)


def test_the_deviation_between_comparisons_is_found_despite_jumps() -> None:
    steps = np.random.default_rng(3).normal(0, 0.08, 60)
    steps[[10, 30, 50]] += (0.8, -0.8, 0.8)
    tests = chain(10_000 * np.exp(np.cumsum(steps)))
    drift, between = same_version(tests)
    assert math.log1p(between.sd_percent / 100) == pytest.approx(0.08, rel=0.25)
    found = {*drift.index[drift["jump"]]}
    assert found >= {"c10", "c30", "c50"}
    assert len(found) <= 4, "of sixty links, one may be an outlier by chance"


def test_the_deviation_is_no_less_than_two_single_runs_and_few_links_call_no_jump() -> None:
    _, between = same_version(chain([10_000.0] * 10))
    assert between.sd_percent == pytest.approx(100 * math.expm1(SD * math.sqrt(2)))
    found, between = same_version(chain([10_000.0, 10_000.0, 20_000.0]))
    assert (between.sd_percent, between.links) == (None, 2)
    assert not found["jump"].any()
    assert found["z"].isna().all()


def test_tests_without_a_database_are_told_by_their_names() -> None:
    first, second, third = chain([5000.0, 900.0, 5010.0])
    other = second.model_copy(update={"tests": [second.tests[0].model_copy(update={"name": "search"})]})
    assert drift_of([first, other, third])["delta_percent"].round(1).tolist() == [0.2]


def test_other_versions_are_compared_but_are_no_drift() -> None:
    base = [10_000.0] * 4 + [20_000.0, 10_000.0] * 2
    other = {4: ("1.7", "1.5"), 6: (None, "1.7")}  # the base of c4 is not what c3 called new
    found, between = same_version(entries([base], [[10_000.0] * 8], versions=other))
    assert not found.loc["c4", "same_version"]
    assert not found.loc["c6", "same_version"]
    assert found.loc["c4", "delta_percent"] == pytest.approx(100)
    assert not found["jump"].any()
    assert between.links == 5


@pytest.mark.parametrize(("before", "here", "says"), [
    (Pair(1, 3), Pair(0, 0), "begin without early bumps in 1 test, unlike both builds in c0"),
    (Pair(0, 0), Pair(1, 1), "begin with early bumps in 1 test, unlike both builds in c0"),
    (Pair(1, 0), Pair(0, 0), None),
])  # fmt: skip
def test_early_bumps_that_come_or_go_in_both_builds_are_stated(
    before: Pair[int], here: Pair[int], says: str | None
) -> None:
    comparisons = [
        each.model_copy(update={"tests": [each.tests[0].model_copy(update={"early_bumps": bumps})]})
        for each, bumps in zip(chain([10_000.0, 10_000.0]), (before, here), strict=True)
    ]
    statements = " ".join(past_of(comparisons).statements["sentence"])
    assert says in statements if says else "early bumps" not in statements


def test_a_comparison_recorded_late_does_not_break_the_chain() -> None:
    levels = chain([10_000.0, 10_100.0, 5_000.0, 10_200.0])

    def linked(order: list[int]) -> list[tuple[str, str, bool]]:
        placed = (levels[i].model_copy(update={"position": place}) for place, i in enumerate(order, start=1))
        found, _ = same_version([*placed])
        return list(zip(found.index, found["against"], found["same_version"], strict=True))

    assert linked([0, 1, 3, 2]) == [("c1", "c0", True), ("c3", "c1", False), ("c2", "c1", True)]
    assert linked([0, 2, 1, 3]) == [("c2", "c0", False), ("c1", "c0", True), ("c3", "c2", True)]


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.parametrize(("links", "chains"), [(5, 200), (33, 60)])
def test_chains_whose_batches_scatter_rarely_have_a_false_jump_and_show_a_true_one(links: int, chains: int) -> None:
    """Batches of tests lie 8 % apart, as the published ones do; the true step halves the level."""
    rng = np.random.default_rng(20_000)
    levels = 10_000 * np.exp(rng.normal(size=(1, chains, links + 1)) * 0.08 / math.sqrt(2))
    drawn = levels * np.exp(rng.normal(size=(2, chains, links + 1)) * SD)
    quiet = drift_of(entries(*drawn))
    assert quiet.loc[quiet["jump"], "test"].nunique() <= 0.09 * chains
    at = links // 2 + 1
    drawn[:, :, at:] /= 2
    assert drift_of(entries(*drawn)).loc[f"c{at}", "jump"].sum() >= 0.85 * chains


def test_repeats_are_pooled_within_groups() -> None:
    groups = [[100.0, 104.0], [200.0, 198.0, 205.0], [50.0]]
    found = measure_repeats(groups)
    squares = sum(float(np.var(np.log(group), ddof=1)) * (len(group) - 1) for group in groups[:2])
    assert found.df == 3
    expected = [math.sqrt(squares / 3), *(math.sqrt(squares / stats.chi2.ppf(p, 3)) for p in (0.975, 0.025))]
    percents = [100 * math.expm1(sd) for sd in expected]
    assert (found.sd_percent, found.ci_low, found.ci_high) == pytest.approx(tuple(percents))
    assert measure_repeats([[100.0], [104.0]]) is None


def drawn(seed: int, count: int, sd: float = 0.07) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.uniform(1_500, 8_000, count)
    return base, base * np.exp(rng.normal(size=count) * sd)


def changes(
    tests: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    kind: str = "bounded",
    loads: Mapping[int, tuple[float, float]] | None = None,
) -> list[tuple[str, ErrorChange]]:
    """What a chain of tests finds, by the errors of both builds; `loads`: users of unbounded tests, if not one."""
    chain = []
    for i in range(len(next(iter(tests.values()))[0])):
        users = Pair(*(loads or {}).get(i, (1.0, 1.0))) if kind == "unbounded" else None
        counted = [
            {"name": name, "type": kind, "supported_users": users, "errors": Pair(base[i], new[i])}
            for name, (base, new) in tests.items()
        ]
        builds = {side: {"label": f"{side} {i}"} for side in ("base", "new")}
        chain.append(entry(f"c{i}", i + 1, tests=counted, **builds))
    return [(name, change) for name, step in past_of(chain).steps.items() for change in step.errors]


def test_nothing_is_said_of_a_chain_in_which_nothing_happened() -> None:
    assert not changes({f"t{seed}": drawn(seed, 30) for seed in range(30_000, 30_100)})
    few = {"t": (np.full(9, 3.0), np.array([[2.0, 3.0, 5.0][i % 3] for i in range(9)]))}
    assert not changes(few, kind="unbounded"), "single errors are chance"


def test_errors_that_triple_are_found() -> None:
    chains = {f"t{seed}": drawn(seed, 30) for seed in range(30_000, 30_100)}
    for _, new in chains.values():
        new[12] *= 3.0
    found = [(name, change.test.name) for name, change in changes(chains)]
    assert {name for name, _ in found} == {"c12"}
    assert len(found) >= 99


@pytest.mark.parametrize("load", [1.0, 2.0])
def test_errors_count_relative_to_the_load(load: float) -> None:
    base, new = drawn(1, 20)
    base[3], new[3] = 2_000.0, 4_000.0
    found = changes({"t": (base, new)}, kind="unbounded", loads={3: (5_000.0, 5_000.0 * load)})
    assert [name for name, _ in found] == ([] if load == 2.0 else ["c3"])
    assert [each.delta_percent for _, each in found] == pytest.approx([100.0] * len(found))
    assert [each.usual_percent for _, each in found] == pytest.approx([100 * math.expm1(0.07)] * len(found), rel=0.5)
    bounded = changes({"t": (base, new)})
    assert [name for name, _ in bounded] == ["c3"], "in a bounded test both builds serve the same users"


def test_too_few_comparisons_or_none_with_errors_in_both_builds_say_nothing() -> None:
    base, new = drawn(1, 4)
    base[0], new[0] = 100.0, 100_000.0
    for counts in ((base, new), (np.zeros(9), np.full(9, 5.0))):
        assert not changes({"t": counts}, kind="unbounded")


MARGIN = 5.0


@pytest.fixture(scope="module")
def table(real: Path) -> pd.DataFrame:
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
