"""Every command on hostile input in a terminal: no escape sequence of the data's reaches it."""

import json
from pathlib import Path

import pytest

import fuzzing
from support import in_a_terminal, small_params, write_params

SEQUENCES = {
    "title": "\x1b]0;owned\x07", "clipboard": "\x1b]52;c;b3duZWQ=\x07", "alternate screen": "\x1b[?1049h",
    "cleared screen": "\x1b[2J\x1b[3J", "cursor": "\x1b[7;7H", "colour": "\x1b[41m", "mouse": "\x1b[?1000h",
    "device": "\x1bP+q544e\x1b\\", "one byte": "\x9b41m", "back": "\r\x08",
}  # fmt: skip
EVIL = "".join(SEQUENCES.values())


@pytest.mark.slow
def test_no_command_lets_data_steer_the_terminal(tmp_path: Path) -> None:
    """Names of files, metrics, labels and builds, tables, JSON, and a server's words."""
    evil = json.dumps(EVIL)[1:-1]
    params = small_params(tmp_path / "data")
    params["tests"] = params["tests"][:1]
    for run in (params["tests"][0]["base"], params["tests"][0]["new"]):
        with Path(run["recording"]).open("a", encoding="utf-8", newline="") as stream:
            stream.write(f'2024-01-01T00:00:00Z,"{EVIL}",1\n2024-01-01T00:00:05Z,"{EVIL}",2\n')
        with Path(run["labels"]).open("a", encoding="utf-8", newline="") as stream:
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
        ["report", good, "--all", "--no-graphs", "--output", tmp_path / "out/good"],
        ["report", odd],
        ["compare", recording, named],
        ["compare", recording, recording, "--new-name", EVIL, "--all"],
        ["batch", odd, tmp_path / f"{EVIL[:3]}none.yaml", "--output", tmp_path / "out"],
        ["pull", odd],
        ["calibrate", odd, "--output", tmp_path / "made.json"],
        ["history", ledger],
        ["history", ledger, "--only", EVIL],
        ["history-import", tmp_path / "odd.csv", "--output", tmp_path / "other"],
        ["index", "--output", tmp_path / "out", "--history", tmp_path / EVIL.replace("/", "")],
        ["export", tmp_path / "odd.json", "--openmetrics", tmp_path / "x"],
        ["plan", odd],
        ["run", tmp_path / "matrix.yaml", "--output", tmp_path / "cells"],
        [EVIL],
    ]
    everything = ""
    for command in commands:
        code, said = in_a_terminal(*command)
        assert code in (0, 3, 4), said
        assert not [name for name, sequence in SEQUENCES.items() if sequence in said], (command, ascii(said))
        assert "Traceback" not in said
        everything += said
    assert r"\x1b]0;owned\x07" in everything
