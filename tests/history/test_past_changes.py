"""What the ledger keeps for the noise of later comparisons, and what of it a comparison may use."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from buildcompare import __main__ as command_line
from buildcompare.comparison.analysis import analyse, read_recordings
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import check_params
from buildcompare.config.yaml import yaml_text
from buildcompare.history import changes
from buildcompare.history.changes import past_changes
from buildcompare.history.ledger import Ledger, entry_of, read_ledger, record
from buildcompare.results import Results
from buildcompare.stats.noise import ENOUGH_COMPARISONS, PastChanges
from support import small_params, write_params, yaml_data

CATALOGUE = read_catalogue("mattermost")


def of(params: dict[str, Any]) -> Results:
    checked = check_params(params)
    return analyse(checked, read_recordings(checked)).results


def recorded(params: dict[str, Any], folder: Path, count: int, **changes: Any) -> Ledger:
    """A ledger of `count` comparisons as that of `params`, of other builds and other runs, some percent apart."""
    entry, entries = entry_of(check_params(params), of(params).tests, position=1), []
    for i in range(count):
        data = json.loads(entry.model_dump_json())
        data |= {
            "name": f"past-{i}",
            "position": i + 1,
            "base": {"label": f"b{i}"},
            "new": {"label": f"n{i}"},
        } | changes
        for test in data["tests"]:
            test["samples"] = [f"{i}"]
            levels = test["levels_of_runs"]["avg-api-times"]
            levels["new"] = [levels["base"][0] * math.exp((-1) ** i * 0.004 * (i % 3))]
        entries.append(type(entry).model_validate_json(json.dumps(data)))
    record(folder, entries)
    return read_ledger(folder)


def changes_of(ledger: Ledger, params: dict[str, Any], samples: set[str] = frozenset()) -> PastChanges:  # type: ignore[assignment]
    return past_changes(ledger, check_params(params), samples, CATALOGUE, simulated=False)


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return small_params(tmp_path_factory.mktemp("data"), setup={"Dataset": "12M posts", "Load-test version": "1"})


def test_an_entry_keeps_what_every_run_measured(params: dict[str, Any]) -> None:
    results = of(params)
    entry = entry_of(check_params(params), results.tests, position=1)
    for kept, test in zip(entry.tests, results.tests, strict=True):
        row = next(each for each in test.metrics if each.slug == "avg-api-times")
        assert kept.levels_of_runs["avg-api-times"] == row.levels
        assert [*row.levels.base] == [row.base]
        window = test.runs.new[0].window
        assert window is not None
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


def test_the_changes_of_other_comparisons_are_learned_from(params: dict[str, Any], tmp_path: Path) -> None:
    found = changes_of(recorded(params, tmp_path, 3), params)
    times = found["bounded", "avg-api-times"]
    assert times["seconds"].tolist() == [times["seconds"][0]] * 3
    assert times["seconds"].min() > 600
    assert times["log_ratio"].tolist() == pytest.approx([(-1) ** i * 0.004 * i for i in range(3)], abs=1e-9)
    assert len(found["unbounded", CATALOGUE.load.slug if CATALOGUE.load else ""]) == 3  # of the supported users
    assert (found["equal_load", "rps"]["se_log"] > 0).all()


def test_a_comparison_teaches_nothing_about_itself(params: dict[str, Any], tmp_path: Path) -> None:
    ledger = recorded(params, tmp_path, 3)
    itself = {**params, "base": {"label": "b1"}, "new": {"label": "n1"}}
    assert changes_of(ledger, itself)["bounded", "avg-api-times"]["comparison"].tolist() == [0, 2]
    left = changes_of(ledger, params, {"2"})["bounded", "avg-api-times"]
    assert left["comparison"].tolist() == [0, 1], "a run of the third is compared here, under another name"


@pytest.mark.parametrize(
    ("setup", "same"),
    [
        ({"Dataset": "12M posts", "Load-test version": "2"}, True),
        ({"Dataset": "1M posts", "Load-test version": "1"}, False),
        ({}, True),  # not stated: nobody said that it is another one
    ],
)
def test_another_setup_is_told_apart(params: dict[str, Any], tmp_path: Path, setup: dict[str, str], same: bool) -> None:
    found = changes_of(recorded(params, tmp_path, 2, setup=setup), params)
    assert {*pd.concat(found.values())["same_setup"]} == {float(same)}


def test_a_report_says_which_noise_it_used(params: dict[str, Any], tmp_path: Path) -> None:
    without = of(params)
    recorded(params, tmp_path, ENOUGH_COMPARISONS)
    results = of({**params, "history": str(tmp_path)})
    for test, before in zip(results.tests, without.tests, strict=True):
        row = next(each for each in test.metrics if each.slug == "avg-api-times")
        alone = next(each for each in before.metrics if each.slug == "avg-api-times")
        assert (row.noise_source, row.noise_comparisons) == ("ledger", ENOUGH_COMPARISONS)
        assert (alone.noise_source, alone.noise_comparisons) == ("catalogue", 0)
        assert row.run_sd_percent is not None
        assert alone.run_sd_percent is not None
        assert row.run_sd_percent < alone.run_sd_percent / 3


def command(*arguments: object) -> Result:
    return CliRunner().invoke(command_line.app, [str(each) for each in arguments])


def test_a_folder_of_params_files_is_imported(params: dict[str, Any], tmp_path: Path) -> None:
    folder, ledger = tmp_path / "past", tmp_path / "ledger"
    for name, new in (("b", "v1.10.0"), ("a", "v1.9.0")):
        given = {**params, "name": name, "base": {"label": "v1.8.0"}, "new": {"label": new}, "history": str(ledger)}
        folder.mkdir(exist_ok=True)
        write_params(folder / f"{name}.yaml", given)
    done = command("history-import", folder, "--output", ledger)
    assert done.exit_code == 0, done.output
    assert "2 comparisons and 0 studies recorded" in done.output
    assert [entry.name for entry in read_ledger(ledger).chain] == ["a", "b"]
    assert all(test.levels_of_runs for entry in read_ledger(ledger).entries for test in entry.tests)


def test_one_damaged_comparison_of_a_folder_records_none(params: dict[str, Any], tmp_path: Path) -> None:
    folder, ledger = tmp_path / "past", tmp_path / "ledger"
    folder.mkdir()
    write_params(folder / "good.yaml", {**params, "name": "good"})
    bad = yaml_data(yaml_text({**params, "name": "bad", "new": {"label": "v2"}}))
    bad["tests"][0]["new"]["recording"] = str(tmp_path / "missing.csv")
    write_params(folder / "bad.yaml", bad)
    done = command("history-import", folder, "--output", ledger)
    assert done.exit_code == 3
    assert "missing.csv" in done.output
    assert not list(ledger.glob("*.json"))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "expected params files (*.yaml), found none" in command("history-import", empty, "-o", ledger).output


def test_of_a_long_chain_the_latest_teach(
    params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = recorded(params, tmp_path, 6)
    every = changes_of(ledger, params)
    monkeypatch.setattr(changes, "NEWEST", 2)
    latest = changes_of(ledger, params)
    assert latest.keys() == every.keys()
    assert {*pd.concat(every.values())["comparison"]} == {*range(6)}
    assert {*pd.concat(latest.values())["comparison"]} == {4, 5}
