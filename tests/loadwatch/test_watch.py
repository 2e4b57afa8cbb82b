"""The command `watch` and `bc.watch`: a replay to its decision, what is done then, and what is said of faulty input."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import buildcompare as bc
from buildcompare.results import Results
from serving import Answer, serving
from support import command

PARAMS = "params/v10.4.0-rc1.yaml"


@pytest.fixture
def place(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own with the bundled comparison."""
    for name in ("params", "data", "notebooks"):
        (tmp_path / name).symlink_to(project / name) if name != "data" else (tmp_path / name).mkdir()
    (tmp_path / "data/recordings").symlink_to(project / "data/recordings")
    monkeypatch.setenv("BUILDCOMPARE_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture
def sent() -> Iterator[tuple[str, list[bytes]]]:
    """An address, and what is posted there."""
    bodies: list[bytes] = []

    def take(method: str, path: str, body: bytes) -> Answer:
        bodies.append(body)
        return 204, {}, b""

    with serving(lambda path, asked: (404, {}, b""), take) as url:
        yield url, bodies


watched = partial(command, "watch")


@pytest.mark.slow
def test_a_replay_ends_with_a_decision_a_report_and_one_command(place: Path, sent: tuple[str, list[bytes]]) -> None:
    url, bodies = sent
    act = ["--page", str(place / "page.html"), "--on-stop", "wc -l", "--webhook", url]
    replay = ["--replay", PARAMS, "--test", "mysql_bounded", "--speed", "1e9", "--every", "900"]
    done = watched(*replay, *act)
    assert (done.exit_code, done.output.count("running")) == (10, 4), done.output
    assert "cannot change the verdict (Pass)" in done.output
    (decision,) = map(json.loads, bodies)
    assert (decision["code"], decision["verdict"], decision["at_s"]) == ("stop_enough", "pass", 4500.0)
    kept = place / "data/watch/v10.4.0-rc1/mysql_bounded/on-stop.txt"
    assert int(kept.read_text()) > 10
    page = (place / "page.html").read_text()
    assert ("http-equiv" in page, page.count("<build-chart") >= 3) == (False, True)
    report = place / "reports/v10.4.0-rc1-mysql_bounded-watch"
    results = Results.model_validate_json((report / "results.json").read_text())
    assert results.comments[0].startswith("Stopped early, 75 min after the start")
    assert results.tests[0].runs.new[0].duration_s == 4500.0
    assert results.tests[0].runs.base[0].duration_s == 5445.0


def test_looks_are_shown_as_they_come() -> None:
    shown = []
    settings = {"replay": True, "speed": 1e9, "every_s": 2250.0, "report": False}
    ended = bc.watch(
        PARAMS, "mysql_bounded", show=lambda decision, compared: shown.append((decision, compared)), **settings
    )
    assert [each.code for each, _ in shown] == ["running", "stop_enough"]
    assert (ended.decision, ended.report, ended.said) == (shown[-1][0], None, ())
    assert shown[-1][1].result.name == "mysql_bounded"
    again = bc.watch(
        PARAMS, "mysql_bounded", **settings | {"replay": "data/recordings/v10.4.0-rc1/mysql_bounded/new.parquet"}
    )
    assert again.decision == ended.decision, "a recording beside the base of a params file"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ([PARAMS, "--test", "none"], "test: expected one of mysql_bounded, "),
        (["--replay", "run.parquet"], "PARAMS: expected a params file that names the base, found --replay run.parquet"),
        (["--replay", PARAMS, "--speed", "0"], "speed: expected a number above 0, found 0"),
        ([PARAMS, "--on-stop", "kill 'it"], "on_stop: expected a command, found kill 'it (No closing quotation)"),
        ([PARAMS, "--on-stop", "no-such"], "on_stop: expected a program that can be run, found no-such"),
        ([PARAMS, "--webhook", "host/hook"], "webhook: expected an address with http:// or https://, found host/hook"),
        ([PARAMS], "new: expected `start` and `end` of a run that still goes on, or --replay, found data/recordings"),
    ],
)
def test_faults_name_file_key_and_what_was_found(arguments: list[str], fault: str) -> None:
    done = watched(*arguments)
    assert (done.exit_code, fault in done.output) == (3, True), done.output
