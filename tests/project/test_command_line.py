"""What the command line does for a person and for a build server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from buildcompare import __main__ as command_line
from buildcompare.config.errors import ExecutionError
from buildcompare.findings.verdict import opening
from buildcompare.report import processes, publication
from buildcompare.report import publish as run_report
from buildcompare.report.batch import Order, Outcome
from buildcompare.report.terminal import lines
from buildcompare.results import Results
from buildcompare.results.base import Label
from buildcompare.results.codes import SIDES, FailOn
from support import small_params, write_params


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_line.app, list(arguments))


@pytest.fixture
def params_file(tmp_path: Path) -> Path:
    return write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))


@pytest.mark.slow
def test_a_report_is_published_and_said_where(
    params_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    done = run("report", str(params_file), "--output", str(tmp_path / "out"))
    assert done.exit_code == 0
    assert str(tmp_path / "out" / "report.html") in done.stdout
    results = Results.model_validate_json((tmp_path / "out/results.json").read_text("utf-8"))
    assert f"{params_file}: {opening(results).title}." in done.stdout
    assert lines(results, width=120) in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == publication.MADE


@pytest.mark.usefixtures("in_this_process")
def test_bad_params_start_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "execute", lambda *_, **__: pytest.fail("a kernel was started"))
    file = write_params(tmp_path / "x.yaml", {"base": {"label": 1.0}})
    done = run("report", str(file), "--output", str(tmp_path / "out"))
    assert done.exit_code == 3
    assert done.stderr.count("\n") == 1
    assert str(file) in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_bad_data_that_the_kernel_meets_is_told_in_one_line_with_its_place(tmp_path: Path) -> None:
    params = small_params(tmp_path / "data")
    empty = tmp_path / "empty.csv"
    empty.write_bytes(b"")
    params["tests"][1]["new"] = {"recording": str(empty)}
    file = write_params(tmp_path / "x.yaml", params)
    done = run("report", str(file), "--output", str(tmp_path / "out"))
    assert done.exit_code == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"buildcompare: {file}: tests[1].new.recording (line ")
    assert f"{empty}: expected a recording" in done.stderr
    assert "found an empty file" in done.stderr
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_batch_goes_on_and_exits_with_the_worst(params_file: Path, tmp_path: Path) -> None:
    bad = write_params(tmp_path / "bad.yaml", {})
    done = run("batch", str(bad), str(params_file), "--output", str(tmp_path / "out"))
    assert done.exit_code == 3
    assert (tmp_path / "out/small/report.html").exists()
    assert not (tmp_path / "out/bad").exists()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are published where a test can stand in for their parts."""
    monkeypatch.setattr(processes, "is_safe", lambda: False)


def fake(monkeypatch: pytest.MonkeyPatch, verdict: str) -> None:
    def publish(params: Path, **_: Any) -> run_report.Published:
        if verdict == "failed":
            raise ExecutionError("the kernel died")
        builds = {side: Label(label=side) for side in SIDES}
        results: Any = {
            "verdict": verdict,
            "simulated": False,
            "tests": [],
            "findings": [],
            "suggestions": [],
            **builds,
        }
        return run_report.Published(params, Results.model_construct(**results))

    monkeypatch.setattr(run_report, "publish", publish)


@pytest.mark.parametrize(
    ("verdict", "fail_on", "code"),
    [
        ("regression", None, 0),
        ("regression", "regression", 1),
        ("regression", "inconclusive", 1),
        ("inconclusive", "regression", 0),
        ("inconclusive", "inconclusive", 2),
        ("invalid", "regression", 2),
        ("invalid", "inconclusive", 2),
        ("pass", "inconclusive", 0),
        ("pass", "regression,invalid,errors,inconclusive", 0),
        ("invalid", "regression,invalid", 2),
        ("invalid", "errors, invalid", 2),
        ("regression", "invalid", 0),
        ("inconclusive", "regression,invalid,errors", 0),
        ("failed", None, 4),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, verdict: str, fail_on: str | None, code: int) -> None:
    fake(monkeypatch, verdict)
    assert run("report", "x.yaml", *(["--fail-on", fail_on] if fail_on else [])).exit_code == code


@pytest.mark.parametrize(("codes", "worst"), [((0, 4, 3), 4), ((3, 1), 3), ((0, 2, 1), 1), ((0, 2), 2), ((0, 0), 0)])
def test_the_worst_of_a_batch(monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], worst: int) -> None:
    words: dict[int, frozenset[FailOn]] = {1: frozenset({"regression"}), 2: frozenset({"invalid"})}

    def publish_many(orders: list[Order], **_: object) -> Iterator[tuple[Order, Outcome]]:
        for order, code in zip(orders, codes, strict=True):
            yield order, Outcome(0 if code in words else code, "done", words.get(code, frozenset()))

    monkeypatch.setattr(command_line, "publish_many", publish_many)
    assert run("batch", *(f"{i}.yaml" for i in range(len(codes))), "--fail-on", "inconclusive").exit_code == worst


@pytest.mark.parametrize(
    "arguments",
    [["report"], ["report", "x", "--fail-on", "regression,bogus"], ["no-such-command"], ["batch", "a/x", "b/x"]],
)
def test_a_wrong_use_is_bad_input(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 3


@pytest.mark.usefixtures("in_this_process")
def test_a_fault_of_ours_is_an_execution_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_report, "publish", lambda *_, **__: 1 / 0)
    done = run("report", "x.yaml", "--fail-on", "regression")
    assert done.exit_code == 4
    assert "ZeroDivisionError" in done.stderr


def test_help_explains_every_command_and_the_exit_codes() -> None:
    text = run("--help").stdout
    for word in ("report", "batch", "simulate", "schema", "Exit codes", "3 bad input"):
        assert word in text


def test_the_schema_is_printed() -> None:
    assert json.loads(run("schema").stdout)["title"] == "Results"
