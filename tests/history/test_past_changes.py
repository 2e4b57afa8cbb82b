"""What the ledger keeps for the noise of later comparisons, and what of it a comparison may use."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from buildcompare.config.params import check_params
from buildcompare.config.yaml import yaml_text
from buildcompare.history import levels as levels_of_ledgers
from buildcompare.history.ledger import Ledger, entry_of, read_ledger, record
from buildcompare.history.levels import contrasts_in
from buildcompare.stats.noise import Contrasts
from support import analysed, command, refused, small_params, write_params, yaml_data


def recorded(params: dict[str, Any], folder: Path, count: int, **changes: Any) -> Ledger:
    """A ledger of `count` comparisons as that of `params`, of other builds and other runs, each on two databases.

    API times of both move by 10 % with the build, and a little apart.
    """
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
    found = contrasts_of(recorded(params, tmp_path, 3), params)
    times = found["bounded", "avg-api-times"]
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
