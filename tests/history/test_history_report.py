"""A report beside its ledger: what it reads, what it shows, and what it records only when it is told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from buildcompare import __main__ as command_line
from buildcompare.comparison import analysis as workbench
from buildcompare.config.params import check_params
from buildcompare.history.ledger import Entry, LedgerBuild, LedgerTest, entry_of, place_in_words, read_ledger, record
from buildcompare.history.setup import plain_text, setup_differences
from buildcompare.history.table import import_table
from buildcompare.report import publish as run_report
from buildcompare.report import sections
from buildcompare.results import Results, dumps
from buildcompare.results.codes import NoHistory, Pair
from support import real_params, small_params, write_params


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_line.app, list(arguments))


def earlier(name: str, position: int, versions: tuple[str, str], users: tuple[float, float], **more: Any) -> Entry:
    return Entry(
        name=name,
        position=position,
        base=LedgerBuild(label=f"v{versions[0]}", version=versions[0]),
        new=LedgerBuild(label=f"v{versions[1]}", version=versions[1]),
        tests=[
            LedgerTest(
                name="postgresql_unbounded",
                type="unbounded",
                db_engine="postgresql",
                supported_users=Pair(*users),
            )
        ],
        **{"source": "report", **more},
    )


def bench_of(params: dict[str, Any]) -> workbench.Analysis:
    checked = check_params(params)
    return workbench.analyse(checked, workbench.read_recordings(checked))


@pytest.fixture
def small(tmp_path: Path) -> dict[str, Any]:
    """A comparison of v1.0.0 with v1.1.0, some 1,000 users on both, with a ledger to be."""
    setup = {"Load-test version": "[`v2.0`](https://example.org)", "Dataset": "12M posts"}
    return small_params(tmp_path / "data", history=str(tmp_path / "ledger"), setup=setup)


def test_without_a_ledger_nothing_is_said(tmp_path: Path) -> None:
    bench = bench_of(small_params(tmp_path / "data"))
    assert bench.results.history is None
    assert not [finding for finding in bench.results.findings if finding.id.startswith("history.")]
    assert "earlier comparisons" not in sections.setup(bench).html


def test_an_empty_ledger_is_said(small: dict[str, Any]) -> None:
    bench = bench_of(small)
    assert bench.results.history is not None
    assert bench.results.history.reason == NoHistory.NO_EARLIER
    assert "no earlier comparison" in sections.setup(bench).html


def test_a_drift_and_what_may_explain_it(small: dict[str, Any], tmp_path: Path) -> None:
    old = {"load-test  Version": "v1.9", "Dataset": "12M posts", "Notes": "<script>alert(1)</script>"}
    record(tmp_path / "ledger", [earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (1200, 1300), setup=old)])
    results = bench_of(small).results
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
    html = sections.setup(bench_of(small)).html
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "Load-test version" in html


def test_a_quiet_past_is_quiet(small: dict[str, Any], tmp_path: Path) -> None:
    same = {"Load-test version": "`v2.0`", "Dataset": "12M posts"}
    record(tmp_path / "ledger", [earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (1000, 1005), setup=same)])
    results = bench_of(small).results
    assert not [finding for finding in results.findings if finding.id.startswith("history.")]
    assert results.drift
    assert results.suggestions == [], "neither a drift nor a setup to go back to"
    assert all(row.kind == "not_recorded" for row in results.setup_differences)


def test_only_what_was_before_counts(small: dict[str, Any], tmp_path: Path) -> None:
    """A report that is made again stands where it was recorded, not at the end of the chain."""
    chain = [
        earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (1000, 1000)),
        earlier("r1.1", 2, ("1.0.0", "1.1.0"), (1000, 1000)),
        earlier("r1.2", 3, ("1.1.0", "1.2.0"), (2000, 2000)),
    ]
    record(tmp_path / "ledger", chain)
    history = bench_of(small).results.history
    assert history is not None
    assert (history.before, history.comparisons) == ("r1.0", 1)


def test_a_study_is_not_held_against_the_chain(small: dict[str, Any], tmp_path: Path) -> None:
    study = earlier("s", 1, ("1.0.0", "1.1.0"), (1000, 1000)).model_copy(update={"kind": "study", "position": None})
    record(tmp_path / "ledger", [earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (2000, 2000)), study])
    results = bench_of(small).results
    assert results.history is not None
    assert results.history.reason == NoHistory.STUDY
    assert not results.drift


def test_simulated_and_measured_do_not_mix(small: dict[str, Any], tmp_path: Path) -> None:
    record(tmp_path / "ledger", [earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (2000, 2000), simulated=True)])
    results = bench_of(small).results
    assert results.history is not None
    assert results.history.before is None


def test_a_name_that_is_taken_is_said_before_anything_is_run(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path / "ledger", [earlier("imported", 1, ("1.0.0", "1.1.0"), (1000.0, 1000.0))])
    monkeypatch.setattr(run_report, "execute", lambda *_, **__: pytest.fail("a kernel was started"))
    monkeypatch.setattr(workbench, "pull_recordings", lambda *_, **__: pytest.fail("recordings were pulled"))
    file = write_params(tmp_path / "small.yaml", small)
    refused = run("report", str(file), "-o", str(tmp_path / "out"), "--record")
    assert refused.exit_code == 3
    assert "the same comparison as 'imported'" in refused.stderr
    assert not (tmp_path / "out").exists()


def test_recording_says_where(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    chain = [("a", "1.8", "1.9"), ("b", "1.10", "1.11"), ("late", "1.9", "1.10"), ("c", "1.11", "1.12")]
    record(folder, [earlier(n, i + 1, (f"{b}.0", f"{w}.0"), (1.0, 1.0)) for i, (n, b, w) in enumerate(chain)])
    record(
        folder, [earlier("s", 1, ("1.0.0", "1.9.1"), (1.0, 1.0)).model_copy(update={"kind": "study", "position": None})]
    )
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
    assert run("report", str(file), "-o", out).exit_code == 0
    assert not (tmp_path / "ledger").exists()
    assert run("report", str(file), "-o", out, "--record").exit_code == 0
    (kept,) = read_ledger(tmp_path / "ledger").entries
    results = Results.model_validate(json.loads((tmp_path / "out/results.json").read_text("utf-8")))
    users = next(test.supported_users for test in results.tests if test.supported_users)
    kept_users = next(test.supported_users for test in kept.tests if test.supported_users)
    assert (kept_users.base, kept_users.new) == (users.base, users.new)
    assert (kept.name, kept.position, kept.verdict, kept.source) == ("small", 1, results.verdict, "report")
    assert kept.setup == small["setup"]
    assert kept.coordinator == {"users_inc": 8.0, "users_dec": 8.0, "rest_s": 2.0}
    file = write_params(tmp_path / "other.yaml", {**small, "new": {"label": "v9.9.9"}})
    before = (tmp_path / "out/results.json").read_bytes()
    refused = run("report", str(file), "-o", out, "--record")
    assert refused.exit_code == 3
    assert "small.json: name: expected the comparison of v1.0.0 with v9.9.9" in refused.stderr
    assert (tmp_path / "out/results.json").read_bytes() == before
    assert [entry.new.label for entry in read_ledger(tmp_path / "ledger").entries] == ["v1.1.0"]


def test_a_damaged_ledger_starts_nothing(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "execute", lambda *_, **__: pytest.fail("a kernel was started"))
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger/x.json").write_text("{}")
    done = run("report", str(write_params(tmp_path / "small.yaml", small)), "-o", str(tmp_path / "out"))
    assert done.exit_code == 3
    assert "x.json" in done.stderr
    assert not (tmp_path / "out").exists()


def test_any_setup_can_be_held_against_the_ledger(small: dict[str, Any], tmp_path: Path) -> None:
    odd = {"": "empty", "long": "x" * 5000, "`marks`": "$ <b> | \\", "Load-test version": ""}
    record(tmp_path / "ledger", [earlier("r1.0", 1, ("0.9.0", "1.0.0-rc1"), (1000, 1000), setup=dict(odd))])
    bench = bench_of({**small, "setup": odd})
    assert not [row for row in bench.results.setup_differences if row.kind == "changed"]
    assert bench.results.history is not None
    before = bench.results.history.entries_sha256
    record(tmp_path / "ledger", [earlier("r0.9", 7, ("0.8.0", "0.9.0-rc1"), (1000, 1000))])
    history = bench_of({**small, "setup": odd}).results.history
    assert history is not None
    assert history.entries_sha256 != before, "what was read is part of the provenance"


def test_record_needs_a_ledger(tmp_path: Path) -> None:
    file = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    done = run("report", str(file), "-o", str(tmp_path / "out"), "--record")
    assert done.exit_code == 3
    assert "history: expected the folder of a ledger" in done.stderr
    assert run("report", str(file), "--study").exit_code == 3


def test_the_published_v10_4_beside_its_past(real: Path, tmp_path: Path) -> None:
    """The report that a seed is about, with the published history as its ledger."""
    import_table(real / "comparisons/history.csv", tmp_path / "ledger")
    params = real_params(real, "v10.4", "v10.3.0", "v10.4.0-rc1", name="v10.4.0-rc1", history=str(tmp_path / "ledger"))
    params["tests"] = [test for test in params["tests"] if test["type"] == "unbounded"]
    params["setup"] = {"Load-test version": "[`v1.24.0`](https://example.org/v1.24.0)"}
    results = bench_of(params).results
    assert results.history is not None
    assert (results.history.before, results.history.comparisons) == ("v10.3", 17)
    text = next(finding.whole for finding in results.findings if finding.kind == "level_drift")
    assert "v10.3.0 against v10.3.0-rc1 in v10.3" in text
    assert "MySQL −10.5 %" in text
    assert "Postgres −24.3 %" in text
    setup = next(finding.whole for finding in results.findings if finding.kind == "setup_differences")
    assert "Load-test version v1.23.0 → v1.24.0" in setup
    order = [finding.kind for finding in results.findings]
    assert order.index("setup_differences") < order.index("level_drift")
    databases = next(finding.whole for finding in results.findings if finding.kind == "between_databases")
    assert "−7.9 % with v10.3.0" in databases
    assert "−2.7 % with v10.4.0-rc1" in databases
    assert Results.model_validate(json.loads(dumps(results))) == results


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


# ---- Looks ----------------------------------------------------------------------------------------------------------


def test_a_look_with_more_runs_is_judged_by_what_is_left_to_spend(tmp_path: Path, small: dict[str, Any]) -> None:
    alone = bench_of(small).results
    assert [(test.looks, test.level) for test in alone.tests] == [([(1, 1)], 0.05)] * len(alone.tests)
    again = {**small, "tests": [{**test, "base": [test["base"], test["base"]]} for test in small["tests"]]}
    first = look(small, tmp_path)
    assert [test.looks for test in first.tests] == [[]] * len(first.tests)
    assert bench_of(small).results.tests[0].level == 0.05, "the same runs again are no further look"

    second = bench_of(again).results
    assert second.tests[0].looks == [(1, 1), (2, 1)]
    assert second.tests[0].level < 0.02
    told = [each for each in second.findings if each.kind == "looks"]
    assert [each.text.partition(". ")[0] for each in told] == [
        "Every test: this is look 2 at its runs (1, then 2 and 1 of each build)."
    ]
    unknown = bench_of({**again, "history": None}).results
    wide, narrow = second.tests[0].metrics[0], unknown.tests[0].metrics[0]
    assert wide.p_value == narrow.p_value
    assert (wide.ci_low or 0.0) < (narrow.ci_low or 0.0)

    kept = look(again, tmp_path)
    assert kept.tests[0].looks == [(1, 1)]
    assert bench_of(again).results.tests[0].looks == [(1, 1), (2, 1)]
    assert {*look(small, tmp_path).tests[0].all_looks} == {(1, 1), (2, 1)}, "a look is not unseen by fewer runs"


def look(params: dict[str, Any], folder: Path) -> Entry:
    """The entry of a comparison after it was recorded."""
    bench = bench_of(params)
    record(folder / "ledger", [entry_of(bench.params, bench.results.tests, position=1)])
    return read_ledger(folder / "ledger").entries[0]


def test_with_planned_runs_the_first_look_shares_in_the_error(small: dict[str, Any]) -> None:
    planned = bench_of({**small, "planned_runs": 4}).results
    assert planned.tests[0].level < 0.001
    assert "4 runs of each build are planned" in next(each.text for each in planned.findings if each.kind == "looks")
    assert bench_of({**small, "planned_runs": 1}).results.tests[0].level == 0.05
