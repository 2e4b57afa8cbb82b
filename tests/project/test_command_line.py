"""What the command line does for a person, for a build server, and with hostile input in a terminal."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import buildcompare as bc
import fuzzing
from buildcompare import __main__ as command_line
from buildcompare.config.errors import ExecutionError
from buildcompare.findings.verdict import opening
from buildcompare.report import markdown, processes, publication
from buildcompare.report import publish as run_report
from buildcompare.report.batch import Order, Outcome
from buildcompare.report.terminal import lines
from buildcompare.results import Results
from buildcompare.results.base import Label
from buildcompare.results.codes import SIDES, FailOn
from support import command as run
from support import in_a_terminal, refused, small_params, users_curve, write_params


@pytest.mark.slow
def test_a_report_is_published_and_said_where(tmp_path: Path) -> None:
    params_file = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    files = ["--markdown", tmp_path / "comment.md", "--junit", tmp_path / "junit.xml"]
    summary = tmp_path / "summary.md"
    done = run(
        "report", params_file, "--output", tmp_path / "out", *files, COLUMNS="120", GITHUB_STEP_SUMMARY=str(summary)
    )
    assert done.exit_code == 0
    assert str(tmp_path / "out" / "report.html") in done.stdout
    results = Results.model_validate_json((tmp_path / "out/results.json").read_text("utf-8"))
    assert f"{params_file}: {opening(results).title}." in done.stdout
    assert lines(results, width=120) in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == publication.MADE
    assert (tmp_path / "comment.md").read_text("utf-8") == markdown.comment(results)
    assert summary.read_text("utf-8") == markdown.comment(results) + "\n"
    assert (tmp_path / "junit.xml").read_bytes() == (tmp_path / "out/junit.xml").read_bytes()


@pytest.mark.slow
def test_bad_data_that_the_kernel_meets_is_told_in_one_line_with_its_place(tmp_path: Path) -> None:
    params = small_params(tmp_path / "data")
    empty = tmp_path / "empty.csv"
    empty.write_bytes(b"")
    params["tests"][1]["new"] = {"recording": str(empty)}
    file = write_params(tmp_path / "x.yaml", params)
    said = refused("report", file, "--output", tmp_path / "out")
    place = re.escape(f"{file}: tests[1].new.recording (line ")
    assert re.fullmatch(rf"buildcompare: {place}.*empty.csv: expected a recording.*found an empty file\n", said)
    assert not (tmp_path / "out").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("verdict", "fail_on", "code"),
    [
        ("regression", None, 0), ("regression", "regression", 1), ("regression", "inconclusive", 1),
        ("inconclusive", "regression", 0), ("inconclusive", "inconclusive", 2), ("invalid", "regression", 2),
        ("pass", "regression,invalid,errors,inconclusive", 0), ("invalid", "errors, invalid", 2),
        ("regression", "invalid", 0), ("inconclusive", "regression,invalid,errors", 0), ("failed", None, 4),
        ("a fault of ours", "regression", 4),
    ],
)  # fmt: skip
def test_exit_codes(monkeypatch: pytest.MonkeyPatch, verdict: str, fail_on: str | None, code: int) -> None:
    def publish(params: Path, **_: Any) -> run_report.Published:
        if verdict in ("failed", "a fault of ours"):
            raise ExecutionError("the kernel died") if verdict == "failed" else ZeroDivisionError
        builds = {side: Label(label=side) for side in SIDES}
        empty: Any = {"simulated": False, "tests": [], "findings": [], "suggestions": []}
        results: Any = {"verdict": verdict, **empty, **builds}
        return run_report.Published(params, Results.model_construct(**results))

    monkeypatch.setattr(processes, "is_safe", lambda: False)  # published where a test can stand in for their parts
    monkeypatch.setattr(run_report, "publish", publish)
    done = run("report", "x.yaml", *(["--fail-on", fail_on] if fail_on else []))
    assert (done.exit_code, "ZeroDivisionError" in done.stderr) == (code, verdict == "a fault of ours")


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


def test_help_explains_every_command_and_the_exit_codes() -> None:
    text = run("--help").stdout
    for word in ("report", "batch", "simulate", "schema", "Exit codes", "3 bad input"):
        assert word in text
    assert json.loads(run("schema").stdout)["title"] == "Results"


def frame(level: float, seed: int) -> pd.DataFrame:
    users = users_curve(1000.0, ramp_s=600.0, hold_s=2400.0)
    rng = np.random.default_rng(seed)
    values = {
        "Avg API times": level * rng.lognormal(0, 0.05, users.size),
        "RPS": users / 10 + rng.normal(0, 0.5, users.size),
    }
    return pd.DataFrame({"Number of Connected Devices": users, **values}, 1733911200 + 5 * np.arange(users.size))


def csv(file: Path, level: float, seed: int = 1) -> Path:
    file.parent.mkdir(exist_ok=True)
    frame(level, seed).to_csv(file, index_label="Time", sep=";", decimal=",")
    return file


def test_two_files_give_table_page_and_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, new = csv(tmp_path / "v1.0.csv", 0.010), csv(tmp_path / "v1.1.csv", 0.020, seed=2)
    monkeypatch.setattr(sys, "argv", ["buildcompare", "compare", str(base), str(new)])
    done = run("compare", base, new, "--users", 1000, "--html", tmp_path / "x.html", "--json", tmp_path / "x.json")
    assert (done.exit_code, done.stderr) == (0, "")
    result = bc.compare(str(base), str(new), users=1000, labels=("v1.0", "v1.1"))
    assert done.stdout.startswith(f"{base} (1 run); {new} (1 run)\n")
    assert lines(result.results, width=120) in done.stdout
    assert "Base v1.0, new v1.1.\n✗ Regression: Avg API times +" in done.stdout
    assert done.stdout.endswith(f"The report is {tmp_path / 'x.html'}\nThe report is {tmp_path / 'x.json'}\n")
    written, expected = json.loads((tmp_path / "x.json").read_text("utf-8")), json.loads(result.to_json())
    assert written["provenance"].pop("run")["command"] == f"python -m buildcompare compare {base} {new}"
    expected["provenance"].pop("run")
    assert written == expected
    page = (tmp_path / "x.html").read_text("utf-8")
    assert ("Regression: Avg API times" in page, "make lab" in page) == (True, False)  # there is no params file


def test_options_reach_the_comparison_and_the_exit_code(tmp_path: Path) -> None:
    base, new = csv(tmp_path / "a/run.csv", 0.010), csv(tmp_path / "b/run.csv", 0.020, seed=2)
    assert run("compare", base, new, "--fail-on", "regression").exit_code == 1
    named = run("compare", base, new, "--base-name", "one", "--new-name", "two", "--type", "unbounded", COLUMNS="80")
    assert ("Base one, new two.\n" in named.stdout, "Unbounded: " in named.stdout) == (True, True)
    assert max(map(len, named.stdout.splitlines()[1:])) <= 80
    quiet = run("compare", base, new, "--quiet", "--fail-on", "inconclusive", "--json", tmp_path / "x.json")
    assert (quiet.exit_code, quiet.output, (tmp_path / "x.json").exists()) == (1, "", True)
    refused("compare", base, new, "--metrics", "nobody")
    refused("compare", base, new, "--html", tmp_path)


def test_a_folder_of_repeated_runs(tmp_path: Path) -> None:
    for i in (1, 2):
        csv(tmp_path / f"old/run-{i}.csv", 0.010, seed=i)
        csv(tmp_path / f"newer/run-{i}.csv", 0.010, seed=i + 2)
    (tmp_path / "old/notes.md").touch()
    (tmp_path / "old/run-1.labels.csv").write_text("group,label,stat,value\napi,getPost,avg,0.01\n")
    done = run("compare", tmp_path / "old", tmp_path / "newer", "--json", tmp_path / "x.json")
    assert "old (2 runs); " in done.stdout
    assert "Base old, new newer.\n" in done.stdout
    written = json.loads((tmp_path / "x.json").read_text("utf-8"))
    assert [len(written["tests"][0]["runs"][side]) for side in ("base", "new")] == [2, 2]
    assert [row["only_in"] for row in written["tests"][0]["labels"]] == ["base"]


def test_a_folder_of_grafanas_panels_is_one_run(tmp_path: Path) -> None:
    for name, level in (("base", 0.010), ("new", 0.020)):
        (tmp_path / name).mkdir()
        for metric, values in frame(level, 3).items():
            unit = " ms" if metric == "Avg API times" else ""
            rows = (f"{time * 1000},{value * (1000 if unit else 1)}{unit}" for time, value in values.items())
            text = "\ufeff" + "\r\n".join(['"Time","Value"', *rows, ""])
            (tmp_path / name / f"{metric}-data-2024-12-11 11_30_00.csv").write_text(text, "utf-8")
    done = run("compare", tmp_path / "base", tmp_path / "new", "--users", 1000)
    assert "base (1 run); " in done.stdout
    assert re.search(r"\nAvg API times +[\d.]+ ms +[\d.]+ ms +\+100 %", done.stdout)


def test_builds_are_called_as_their_recordings_say(project: Path, tmp_path: Path) -> None:
    report = {key: {"a": "1"} for key in ("AvgStoreTimes", "P99StoreTimes", "AvgAPITimes", "P99APITimes")}
    report |= {"StartTime": "2024-01-01T00:00:00Z", "EndTime": "2024-01-01T01:00:00Z", "Graphs": None}
    for name, label in (("x", "v10.3"), ("y", "v10.4")):
        (tmp_path / f"{name}.out").write_text(json.dumps({**report, "Label": label}))
    assert "Base v10.3, new v10.4.\n" in run("compare", tmp_path / "x.out", tmp_path / "y.out").stdout


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, r"x: expected files of recordings \(\.csv, .*\), found none"),
        ({"a.csv": "time,rps\n0,1\n", "b.csv": "time,rps\n0,2\n", "c.csv": "time,heap\n0,1\n"},
         "found rps in 2 of 3 files"),
        ({"a.csv": "time,rps\n0,1\n5,1\n", "b.csv": "time,heap\n90,1\n95,2\n"}, "found parts that do not overlap"),
        ({"a.csv": "time;rps\n0;1,234\n"}, r"x/a\.csv: rps, line 2: expected a number with one meaning"),
    ],
    ids=["nothing", "neither", "not at one time", "a fault in a file"],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_a_line(tmp_path: Path, files: dict[str, str], said: str) -> None:
    (tmp_path / "x").mkdir()
    for name, text in files.items():
        (tmp_path / "x" / name).write_text(text)
    assert re.search(said, refused("compare", tmp_path / "x", csv(tmp_path / "new.csv", 0.01)))
    missing = refused("compare", tmp_path / "no\x1bwhere.csv", tmp_path / "x")
    assert r"no\x1bwhere.csv: expected a recording: Parquet, or a CSV with the columns" in missing
    assert missing.endswith("found no such file\n")


@pytest.mark.slow
def test_a_terminal_shows_progress_and_colours_a_pipe_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = write_params(tmp_path / "small.yaml", small_params(tmp_path / "data"))
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    code, seen = in_a_terminal("report", params, "--output", tmp_path / "out")
    assert (code, "Traceback" in seen, [*(tmp_path / "t").iterdir()]) == (0, False, [])
    assert "comparison.ipynb, cell " in seen
    assert re.search(r"\x1b\[1;\d\dm\S+ (Pass|Cannot tell|Regression|Invalid test)", seen)
    files = (tmp_path / f"data/bounded-{each}.csv" for each in ("base", "new"))
    command = [sys.executable, "-m", "buildcompare", "compare", *files]
    piped = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert b"\x1b" not in piped.stdout + piped.stderr
    assert b"Avg API times" in piped.stdout


SEQUENCES = {
    "title": "\x1b]0;owned\x07", "clipboard": "\x1b]52;c;b3duZWQ=\x07", "alternate screen": "\x1b[?1049h",
    "cleared screen": "\x1b[2J\x1b[3J", "cursor": "\x1b[7;7H", "colour": "\x1b[41m", "mouse": "\x1b[?1000h",
    "device": "\x1bP+q544e\x1b\\", "one byte": "\x9b41m", "back": "\r\x08",
}  # fmt: skip
EVIL = "".join(SEQUENCES.values())


@pytest.mark.slow
def test_no_command_lets_data_steer_the_terminal(tmp_path: Path) -> None:
    evil = json.dumps(EVIL)[1:-1]
    params = small_params(tmp_path / "data")
    params["tests"] = params["tests"][:1]
    for side in (params["tests"][0]["base"], params["tests"][0]["new"]):
        with Path(side["recording"]).open("a", encoding="utf-8", newline="") as stream:
            stream.write(f'2024-01-01T00:00:00Z,"{EVIL}",1\n2024-01-01T00:00:05Z,"{EVIL}",2\n')
        with Path(side["labels"]).open("a", encoding="utf-8", newline="") as stream:
            stream.write(f'api,"{EVIL}",avg,0.5\n')
    good = write_params(tmp_path / "good.yaml", params)
    recording = params["tests"][0]["base"]["recording"]
    odd = tmp_path / f"odd{EVIL.replace('/', '')}.yaml"
    odd.write_text(f'base: {{label: "{evil}"}}\n"{evil}": 1\n')
    named = tmp_path / f"odd{EVIL.replace('/', '')}.csv"
    named.write_text(f"a,{EVIL}\n")
    (tmp_path / "odd.csv").write_text(fuzzing.seed("past-table").decode().replace("v9.6", f'"{EVIL}"'))
    (tmp_path / "odd.json").write_text(json.dumps({**fuzzing.ENTRY, "kind": EVIL, EVIL: 1}))
    ledger = tmp_path / "ledger"
    ledger.mkdir()
    (ledger / "x.json").write_text(json.dumps({**fuzzing.ENTRY, "setup": {EVIL: EVIL}, "servers": [EVIL]}))
    (tmp_path / "matrix.yaml").write_bytes(fuzzing.MATRIX.replace(b"simple", json.dumps(EVIL).encode()))
    commands = [
        ["report", good, "--all", "--no-graphs", "--output", tmp_path / "out/good"], ["report", odd],
        ["compare", recording, named], ["compare", recording, recording, "--new-name", EVIL, "--all"],
        ["batch", odd, tmp_path / f"{EVIL[:3]}none.yaml", "--output", tmp_path / "out"], ["pull", odd],
        ["calibrate", odd, "--output", tmp_path / "made.json"], ["history", ledger],
        ["history", ledger, "--only", EVIL], ["history-import", tmp_path / "odd.csv", "--output", tmp_path / "other"],
        ["index", "--output", tmp_path / "out", "--history", tmp_path / EVIL.replace("/", "")],
        ["export", tmp_path / "odd.json", "--openmetrics", tmp_path / "x"], ["plan", odd],
        ["run", tmp_path / "matrix.yaml", "--output", tmp_path / "cells"], [EVIL],
    ]  # fmt: skip
    everything = ""
    for each in commands:
        code, said = in_a_terminal(*each)
        assert code in (0, 3, 4), said
        assert not [name for name, sequence in SEQUENCES.items() if sequence in said], (each, ascii(said))
        assert "Traceback" not in said
        everything += said
    assert r"\x1b]0;owned\x07" in everything
