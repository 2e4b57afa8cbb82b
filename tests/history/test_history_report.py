"""A report beside its ledger, what it reads, shows and records, and the frames and the notebook of all releases."""

import json
import math
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

import buildcompare as bc
from buildcompare.comparison import reading
from buildcompare.history.ledger import Entry, entry_of, place_in_words, read_ledger, record
from buildcompare.history.setup import plain_text, setup_differences
from buildcompare.report import publish as run_report
from buildcompare.report import sections
from buildcompare.report.notebook import outputs_of
from buildcompare.results import Results
from buildcompare.results.codes import NoHistory, Pair
from ledgers import entry
from support import analysed, command, refused, small_params, write_params


def earlier(name: str, position: int | None, builds: tuple[str, str], users: tuple[float, float], **more: Any) -> Entry:
    return entry(name, position, builds, {"postgresql": users}, **more)


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    setup = {"Load-test version": "[`v2.0`](https://example.org)", "Dataset": "12M posts"}
    return small_params(tmp_path / "data", history=str(tmp_path / "ledger"), setup=setup)


def test_a_drift_and_what_may_explain_it(small: dict[str, Any], tmp_path: Path) -> None:
    old = {"load-test  Version": "v1.9", "Dataset": "12M posts", "Notes": "<script>alert(1)</script>"}
    record(tmp_path / "ledger", [earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (1200, 1300), setup=old)])
    results = analysed(small).results
    (level,) = [row for row in results.drift if row.kind == "same_version"]
    assert (level.against, level.before, level.same_version) == ("r1.0", 1300, True)
    assert level.delta_percent == pytest.approx(100 * (1000 / 1300 - 1), abs=0.5)
    assert level.setup_changed == ["Load-test version"]
    changed = [row for row in results.setup_differences if row.kind == "changed"]
    assert [(row.setting, row.before, row.now) for row in changed] == [("Load-test version", "v1.9", "v2.0")]
    kinds = [finding.kind for finding in results.findings if finding.id.startswith("history.")]
    assert kinds == ["setup_differences", "level_drift", "previous_new"]
    severity = {finding.kind: finding.severity for finding in results.findings}
    assert severity["setup_differences"] == severity["level_drift"] == "warning"
    (suggestion,) = [each for each in results.suggestions if each.kind == "former_setup"]
    assert "Repeat Unbounded Postgres of v1.0.0 on the setup of r1.0 (Load-test version v1.9)" in suggestion.text
    assert f"drift of −{-(level.delta_percent or 0):.1f} %" in suggestion.text
    html = sections.setup(analysed(small)).html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "Load-test version" in html


def test_a_quiet_past_is_quiet(small: dict[str, Any], tmp_path: Path) -> None:
    same = {"Load-test version": "`v2.0`", "Dataset": "12M posts"}
    record(tmp_path / "ledger", [earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (1000, 1005), setup=same)])
    results = analysed(small).results
    assert not [finding for finding in results.findings if finding.id.startswith("history.")]
    assert results.drift
    assert results.suggestions == [], "neither a drift nor a setup to go back to"
    assert all(row.kind == "not_recorded" for row in results.setup_differences)


FIRST = earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (2000, 2000))
ITSELF = earlier("r1.1", 2, ("1.0.0", "1.1.0"), (1000, 1000))
LATER = earlier("r1.2", 3, ("1.1.0", "1.2.0"), (2000, 2000))
STUDY = earlier("s", None, ("1.0.0", "1.1.0"), (1000, 1000))
SIMULATED = FIRST.model_copy(update={"simulated": True})


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        ([], (None, 0, NoHistory.NO_EARLIER)),
        ([FIRST, ITSELF, LATER], ("r1.0", 1, None)),  # a report that is made again keeps its place
        ([FIRST, STUDY], (None, 0, NoHistory.STUDY)),
        ([SIMULATED], (None, 0, NoHistory.NO_EARLIER)),  # the recordings are measured
    ],
)
def test_only_what_was_before_counts(small: Any, tmp_path: Path, recorded: list[Entry], found: tuple[Any, ...]) -> None:
    record(tmp_path / "ledger", recorded)
    bench = analysed(small)
    history = bench.results.history
    assert (history.before, history.comparisons, history.reason) == found
    assert bool(bench.results.drift) == (history.reason is None)
    assert ("no earlier comparison" in sections.setup(bench).html) == (history.reason == NoHistory.NO_EARLIER)


def test_what_cannot_be_recorded_is_said_at_once(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def said(params: dict[str, Any], *more: str) -> str:
        return refused("report", write_params(tmp_path / "small.yaml", params), "-o", tmp_path / "out", *more)

    monkeypatch.setattr(run_report, "execute", lambda *_, **__: pytest.fail("a kernel was started"))
    monkeypatch.setattr(reading, "pull_recordings", lambda *_, **__: pytest.fail("recordings were pulled"))
    assert "history: expected the folder of a ledger" in said({**small, "history": None}, "--record")
    assert "--study: expected --record" in said(small, "--study")
    record(tmp_path / "ledger", [earlier("imported", 1, ("1.0.0", "1.1.0"), (1000.0, 1000.0))])
    assert "an entry 'imported' that compares" in said(small, "--record")
    (tmp_path / "ledger/x.json").write_text("{}")
    assert "x.json" in said(small)
    assert not (tmp_path / "out").exists()


def test_recording_says_where(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    chain = [("a", "1.8", "1.9"), ("b", "1.10", "1.11"), ("late", "1.9", "1.10"), ("c", "1.11", "1.12")]
    record(folder, [earlier(n, i + 1, (f"{b}.0", f"{w}.0"), (1.0, 1.0)) for i, (n, b, w) in enumerate(chain)])
    record(folder, [earlier("s", None, ("1.0.0", "1.9.1"), (1.0, 1.0))])
    words = {name: place_in_words(read_ledger(folder), name) for name in ("a", "b", "late", "c", "s")}
    assert "a, 1 of 4 in the chain." in words["a"]
    assert "stands after" not in words["b"] + words["c"], "1.11 is later than 1.9"
    assert "late, 3 of 4 in the chain. It stands after b, of a later version" in words["late"]
    assert "a study outside the chain" in words["s"]


@pytest.mark.slow
def test_only_record_records(small: dict[str, Any], tmp_path: Path) -> None:
    small["tests"] = [test for test in small["tests"] if test["type"] == "unbounded"]
    file = write_params(tmp_path / "small.yaml", small)
    out = str(tmp_path / "out")
    assert command("report", file, "-o", out).exit_code == 0
    assert not (tmp_path / "ledger").exists()
    assert command("report", file, "-o", out, "--record").exit_code == 0
    (kept,) = read_ledger(tmp_path / "ledger").entries
    results = Results.model_validate(json.loads((tmp_path / "out/results.json").read_text("utf-8")))
    users = next(test.supported_users for test in results.tests if test.supported_users)
    kept_users = next(test.supported_users for test in kept.tests if test.supported_users)
    assert (kept_users.base, kept_users.new) == (users.base, users.new)
    assert (kept.name, kept.position, kept.verdict, kept.source) == ("small", 1, results.verdict, "report")
    assert (kept.setup, kept.coordinator) == (small["setup"], {"users_inc": 8.0, "users_dec": 8.0, "rest_s": 2.0})
    file = write_params(tmp_path / "other.yaml", {**small, "new": {"label": "v9.9.9"}})
    before = (tmp_path / "out/results.json").read_bytes()
    said = refused("report", file, "-o", out, "--record")
    assert "small.json: name: expected the comparison of v1.0.0 with v9.9.9" in said
    assert (tmp_path / "out/results.json").read_bytes() == before
    assert [entry.new.label for entry in read_ledger(tmp_path / "ledger").entries] == ["v1.1.0"]


def test_settings_are_compared_as_words() -> None:
    assert plain_text("[`v1.24.0`](https://example.org/v1.24.0) **now**") == "v1.24.0 now"
    old = earlier("a", 1, ("1.0.0", "1.1.0"), (1, 1), setup={"DB instances": "2 x `r7g`", "Posts": "12,000,000"})
    new = earlier("b", 2, ("1.1.0", "1.2.0"), (1, 1), setup={"db Instances": "2 x r7g", "Posts": "12000000"})
    assert not setup_differences(old, new)
    coordinator = {"users_inc": 8.0, "threshold_cpu": 85.0}
    old = old.model_copy(update={"coordinator": coordinator, "servers": ["prometheus 2.1"]})
    new = new.model_copy(update={"coordinator": {"users_inc": 6.0}, "servers": ["prometheus 3.0"]})
    found = {row.setting: (row.before, row.now, row.kind) for row in setup_differences(old, new)}
    assert found == {
        "Coordinator - users added per step": ("8", "6", "changed"),
        "Metrics server": ("prometheus 2.1", "prometheus 3.0", "changed"),
        "Alert threshold - cpu": ("85", None, "not_recorded"),
    }


def test_a_look_with_more_runs_is_judged_by_what_is_left_to_spend(tmp_path: Path, small: dict[str, Any]) -> None:
    alone = analysed(small).results
    assert [(test.looks, test.level) for test in alone.tests] == [([(1, 1)], 0.05)] * len(alone.tests)
    again = {**small, "tests": [{**test, "base": [test["base"], test["base"]]} for test in small["tests"]]}
    first = look(small, tmp_path)
    assert [test.looks for test in first.tests] == [[]] * len(first.tests)
    assert analysed(small).results.tests[0].level == 0.05, "the same runs again are no further look"
    second = analysed(again).results
    assert second.tests[0].looks == [(1, 1), (2, 1)]
    assert second.tests[0].level < 0.02
    told = [each for each in second.findings if each.kind == "looks"]
    assert [each.text.partition(". ")[0] for each in told] == [
        "Every test: this is look 2 at its runs (1, then 2 and 1 of each build)."
    ]
    unknown = analysed({**again, "history": None}).results
    wide, narrow = second.tests[0].metrics[0], unknown.tests[0].metrics[0]
    assert wide.p_value == narrow.p_value
    assert (wide.ci_low or 0.0) < (narrow.ci_low or 0.0)
    kept = look(again, tmp_path)
    assert (kept.tests[0].looks, analysed(again).results.tests[0].looks) == ([(1, 1)], [(1, 1), (2, 1)])
    assert {*look(small, tmp_path).tests[0].all_looks} == {(1, 1), (2, 1)}, "a look is not unseen by fewer runs"


def look(params: dict[str, Any], folder: Path) -> Entry:
    bench = analysed(params)
    record(folder / "ledger", [entry_of(bench.params, bench.results.tests, position=1)])
    return read_ledger(folder / "ledger").entries[0]


def test_with_planned_runs_the_first_look_shares_in_the_error(small: dict[str, Any]) -> None:
    planned = analysed({**small, "planned_runs": 4}).results
    assert planned.tests[0].level < 0.001
    assert "4 runs of each build are planned" in next(each.text for each in planned.findings if each.kind == "looks")
    assert analysed({**small, "planned_runs": 1}).results.tests[0].level == 0.05


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
