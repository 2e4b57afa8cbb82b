"""The frames and the notebook of all releases: what they show is what the ledger holds."""

import math
from pathlib import Path

import nbformat
import papermill
import pytest

import buildcompare as bc
from buildcompare.history.ledger import Entry, record
from buildcompare.report.notebook import outputs_of
from buildcompare.results.codes import Pair
from ledgers import entry


def chain(levels: list[float]) -> list[Entry]:
    found = []
    for i, users in enumerate(levels, start=1):
        about = entry(
            f"r{i}", i, (f"1.{i - 1}", f"1.{i}"), {"mysql": (users, users * 1.01)}, setup={"Tool": f"v{i // 4}"}
        )
        test = about.tests[0].model_copy(update={"levels_of_runs": {"rps": Pair([1.0, 2.0], [4.0])}})
        found.append(about.model_copy(update={"tests": [test]}))
    return found


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Ten comparisons whose level doubles at the seventh."""
    record(tmp_path / "ledger", chain([1000.0] * 6 + [2000.0] * 4))
    return tmp_path / "ledger"


def test_levels_of_every_metric_with_their_intervals(ledger: Path) -> None:
    history = bc.read_history(ledger)
    levels = history.levels
    users = levels[levels["metric"] == "supported-users"]
    assert list(users["comparison"]) == [f"r{i}" for i in range(1, 11) for _ in range(2)]
    assert (list(users["side"]), list(users["build"])[:3]) == (["base", "new"] * 10, ["v1.0", "v1.1", "v1.1"])
    half = 2.200985 * math.log1p(0.019)  # the catalogue's 1.9 %, known with 11 degrees of freedom
    assert users["high"].iloc[0] == pytest.approx(1000 * math.exp(half))
    assert users["low"].iloc[0] == pytest.approx(1000 * math.exp(-half))
    rates = levels[levels["metric"] == "rps"]
    assert rates[["level", "runs"]].drop_duplicates().to_numpy().tolist() == [
        [pytest.approx(math.sqrt(2.0)), 2],
        [4.0, 1],
    ]
    base, new = rates.iloc[0], rates.iloc[1]
    ratio = math.log(new["high"] / new["level"]) / math.log(base["high"] / base["level"])
    assert ratio == pytest.approx(math.sqrt(2)), "the mean of two runs has a narrower interval"
    few = bc.read_history(ledger, last=2)
    assert list(few.steps) == ["r9", "r10"]
    assert few.variance() == history.variance(), "learned from all"


def test_the_ledger_of_the_environment(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HISTORY", str(ledger))
    assert repr(bc.read_history()) == f"<buildcompare.History: 10 comparisons and 0 studies in {ledger}>"


def test_a_catalogue_that_knows_no_noise_is_refused(tmp_path: Path) -> None:
    catalogue = tmp_path / "none.yaml"
    catalogue.write_text("metrics:\n  - {name: A, slug: a, unit: s, better: lower, query: a}\n")
    with pytest.raises(bc.InputError, match="run_sd_percent"):
        bc.read_history(tmp_path, catalogue=str(catalogue))


@pytest.mark.parametrize("filled", [True, False])
def test_the_notebook_runs(project: Path, tmp_path: Path, filled: bool) -> None:
    if filled:
        record(tmp_path / "ledger", chain([1000.0] * 6 + [2000.0] * 4))
    papermill.execute_notebook(
        str(project / "notebooks/history.ipynb"), str(tmp_path / "out.ipynb"),
        parameters={"history": str(tmp_path / "ledger")}, cwd=str(project / "notebooks"), progress_bar=False,
    )  # fmt: skip
    outputs = list(outputs_of(nbformat.read(tmp_path / "out.ipynb", as_version=4)))
    text = "".join(str(output.get("text", "")) + str(output.get("data", {})) for output in outputs)
    assert f"{10 if filled else 0} comparisons and 0 studies" in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) == (1 if filled else 0)
    assert ("2,020" in text, "The level jumped: v1.6 against v1.6 in r6: MySQL +98.0 %" in text) == (filled, filled)
    assert ("Too few comparisons to tell." in text) == (not filled)
