"""The notebook and the figure of all releases: what they show is what the ledger holds."""

from __future__ import annotations

import html
import math
import re
import shutil
from itertools import pairwise
from pathlib import Path

import nbformat
import papermill
import pytest

from buildcompare.config.errors import InputError
from buildcompare.figures import FIGURE_MIME
from buildcompare.figures import base as figures
from buildcompare.history.ledger import Entry, LedgerBuild, LedgerTest, record
from buildcompare.history.view import HistoryView, open_history
from buildcompare.report.index import releases
from buildcompare.report.sections import outputs_of
from buildcompare.results.codes import Pair, Verdict


def chain(levels: list[float], *, name: str = "r") -> list[Entry]:
    return [
        Entry(
            name=f"{name}{i}",
            position=i,
            base=LedgerBuild(label=f"1.{i - 1}", version=f"1.{i - 1}"),
            new=LedgerBuild(label=f"1.{i}", version=f"1.{i}"),
            tests=[
                LedgerTest(
                    name="mysql_unbounded",
                    type="unbounded",
                    db_engine="mysql",
                    supported_users=Pair(users, users * 1.01),
                )
            ],
            setup={"Tool": f"v{i // 4}"},
            source="report",
        )
        for i, users in enumerate(levels, start=1)
    ]


@pytest.fixture
def view(tmp_path: Path) -> HistoryView:
    """Ten comparisons whose level doubles at the seventh."""
    record(tmp_path / "ledger", chain([1000.0] * 6 + [2000.0] * 4))
    return open_history({"history": str(tmp_path / "ledger")})


def test_the_table_of_levels(view: HistoryView) -> None:
    assert view.databases == ["mysql"]
    table = view.levels("mysql")
    assert list(table["comparison"]) == [f"r{i}" for i in range(1, 11) for _ in range(2)]
    assert list(table["side"]) == ["base", "new"] * 10
    jumped = table[table["jump"]]
    assert list(jumped["comparison"]) == ["r7"]
    assert jumped["drift_percent"].item() == pytest.approx(100 * (2000 / 1010 - 1))
    assert table["drift_percent"].notna().sum() == 9, "each base but the first"
    half = 2.200985 * math.log1p(0.019)  # the catalogue's 1.9 %, known with 11 degrees of freedom
    assert table["high"].iloc[0] == pytest.approx(1000 * math.exp(half))
    assert table["low"].iloc[0] == pytest.approx(1000 * math.exp(-half))
    changed = table.loc[(table["side"] == "base") & table["setup_changed"].astype(bool), "comparison"]
    assert list(changed) == ["r4", "r8"]


def test_the_figure_says_what_it_shows(view: HistoryView) -> None:
    figure = figures.levels(view.levels("mysql"), "mysql")
    assert "jumped at r7 +98.0 %" in figure.alt
    assert "from 1,000 to 2,020" in figure.alt
    assert "MySQL: the level jumped at r7" in figure.svg
    assert figure.svg.count("setup changed before it") == 1
    assert "var(--base" in figure.svg
    assert "var(--ink" in figure.svg


def test_a_figure_without_jumps_or_names_that_could_be_markup(tmp_path: Path) -> None:
    record(tmp_path / "ledger", chain([1000.0, 1000.0], name="a_b"))
    view = open_history({"history": str(tmp_path / "ledger")})
    figure = figures.levels(view.levels("mysql"), "mysql")
    assert "too few comparisons" in figure.alt
    assert "too few comparisons" in figure.svg
    assert "a_b2" in figure.svg


def test_a_quiet_chain_is_said_to_be_quiet_once_a_jump_could_be_seen(tmp_path: Path) -> None:
    record(tmp_path / "ledger", chain([1000.0, 1010.0, 990.0, 1000.0, 1020.0, 1000.0]))
    view = open_history({"history": str(tmp_path / "ledger")})
    assert "The level never jumped." in figures.levels(view.levels("mysql"), "mysql").alt


@pytest.mark.slow
def test_a_long_chain_grows_wide_and_stays_small(tmp_path: Path) -> None:
    record(tmp_path / "ledger", chain([1000.0 + i for i in range(200)]))
    view = open_history({"history": str(tmp_path / "ledger")})
    svg = figures.levels(view.levels("mysql"), "mysql").svg
    assert len(svg) < 1_000_000
    named = [int(number) for number in re.findall(r">r(\d+)</text>", svg)]
    assert 80 < len(named) < 200, "names that would lie on each other are left out"
    assert len({b - a for a, b in pairwise(named)}) == 1


def test_a_catalogue_that_knows_no_noise_is_refused(tmp_path: Path) -> None:
    catalogue = tmp_path / "none.yaml"
    catalogue.write_text("metrics:\n  - {name: A, slug: a, unit: s, better: lower, query: a}\n")
    with pytest.raises(InputError):
        open_history({"history": str(tmp_path), "metrics": str(catalogue)})


def test_every_release_is_listed_with_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    shutil.copytree(project / "params/metrics", tmp_path / "params/metrics")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    entries = chain([1000.0] * 6 + [2000.0])
    study = entries[0].model_copy(update={"name": "s", "kind": "study", "position": None})
    hostile = entries[1].model_copy(update={"base": LedgerBuild(label="<b>x</b>")})
    judged = entries[2].model_copy(update={"verdict": Verdict.REGRESSION})
    record(tmp_path / "data/history/mattermost", [entries[0], hostile, judged, *entries[3:], study])
    (tmp_path / "reports/r3").mkdir(parents=True)
    (tmp_path / "reports/r3/report.html").write_text("")
    view = open_history({})
    page = releases(view).html
    cells = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in page.split("<tr")[2:]]
    table = {words[0].split()[0]: words for row in cells if (words := [words_of(cell) for cell in row])}
    assert list(table) == ["r7", "r6", "r5", "r4", "r3", "r2", "r1", "s"]
    assert table["s"][0] == "s study v1.0 → v1.1"
    assert table["r7"][3].endswith("jump since r6")
    drawn = view.levels("mysql").set_index(["comparison", "side"])
    for side in ("base", "new"):
        assert f"{drawn.loc[('r7', side), 'users']:,.0f}" in table["r7"][2]
    assert re.search(r"MySQL: [\d,]+ \u2192 [\d,]+, \S+ % \(\S+ to \S+ %\)", table["s"][2])
    assert table["s"][3] == table["s"][4] == "–"
    assert {words[1].removeprefix("✗").strip() for words in table.values()} == {"not judged", "Regression"}
    assert page.count("<a href") == 1
    assert '<a href="../reports/r3/report.html">report' in page
    assert "<b>x</b>" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page


def words_of(cell: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", re.sub("</?div", " <", cell))).split())


@pytest.mark.slow
def test_a_ledger_to_be_has_empty_tables(tmp_path: Path) -> None:
    view = open_history({"history": str(tmp_path / "none")})
    assert (view.databases, view.variance(), len(view.statements())) == ([], [], 0)
    assert "Comparison" in releases(view).html
    assert "<a href" not in releases(view).html


@pytest.mark.parametrize("filled", [True, False])
def test_the_notebook_runs(project: Path, tmp_path: Path, filled: bool) -> None:
    if filled:
        record(tmp_path / "ledger", chain([1000.0] * 6 + [2000.0] * 4))
    papermill.execute_notebook(
        str(project / "notebooks/history.ipynb"),
        str(tmp_path / "out.ipynb"),
        parameters={"history": str(tmp_path / "ledger")},
        cwd=str(project / "notebooks"),
        progress_bar=False,
    )
    notebook = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    outputs = list(outputs_of(notebook))
    text = "".join(str(output.get("text", "")) for output in outputs)
    shown = [output for output in outputs if FIGURE_MIME in output.get("metadata", {})]
    assert f"{10 if filled else 0} comparisons" in text
    assert len(shown) == (1 if filled else 0)
    assert ("The level jumped: v1.6 against v1.6 in r6: MySQL +98.0 %" in text) == filled
    assert ("Too few comparisons to tell." in text) == (not filled)
