"""Every command on hostile input in a real terminal (tmux): no escape sequence of the data's is obeyed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fuzzing
from support import small_params, write_params

SEQUENCES = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "alternate screen": "\x1b[?1049h",
    "cleared screen": "\x1b[2J\x1b[3J",
    "cursor": "\x1b[7;7H",
    "colour": "\x1b[41m",
    "mouse": "\x1b[?1000h",
    "device": "\x1bP+q544e\x1b\\",
    "one byte": "\x9b41m",
    "back": "\r\x08",
}
EVIL = "".join(SEQUENCES.values())
STATE = "#{pane_title}|#{alternate_on}|#{mouse_any_flag}|#{wrap_flag}|#{insert_flag}|#{cursor_flag}|#{buffer_size}"
Screen = Callable[[str], tuple[str, str, str, str]]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    """What a terminal is after a script: its state, its clipboard, all its lines with colours, what it was sent."""
    if shutil.which("tmux") is None:
        pytest.skip("no tmux")
    tmux = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]

    def ask(*arguments: str) -> str:
        return subprocess.run([*tmux, *arguments], capture_output=True, text=True, check=False).stdout

    def after(script: str) -> tuple[str, str, str, str]:
        (tmp_path / "script").write_text(script)
        (sent := tmp_path / "sent").write_bytes(b"")
        for _ in range(100):  # the server before may still be ending
            ask("new-session", "-d", "-x", "120", "-y", "50", "-s", "t", "bash --norc --noprofile")
            if ask("list-sessions"):
                break
            time.sleep(0.1)
        ask("set-option", "-g", "set-clipboard", "on")
        ask("set-option", "-g", "history-limit", "10000")
        ask("pipe-pane", "-t", "t", f"cat >> {sent}")
        ask("send-keys", "-t", "t", f"sh {tmp_path}/script; tmux -S {tmp_path}/tmux wait-for -S done", "Enter")
        ask("wait-for", "done")
        state, buffers = ask("display-message", "-p", "-t", "t", STATE).strip(), ask("list-buffers").strip()
        lines = ask("capture-pane", "-p", "-e", "-t", "t", "-S", "-", "-E", "-")
        for _ in range(100):
            if b"\nlast" in sent.read_bytes() or b"last\r" in sent.read_bytes():
                break
            time.sleep(0.1)
        ask("kill-server")
        return state, buffers, lines, sent.read_bytes().decode("utf-8", "replace")

    yield after
    ask("kill-server")


def test_the_watch_itself_sees_them(screen: Screen) -> None:
    """Each sequence, sent as it is, changes what the next test looks at."""
    quiet = screen("echo first; echo last")
    for name in ("title", "clipboard", "alternate screen", "colour", "mouse"):
        seen = screen(f"echo first; printf %s {shlex.quote(SEQUENCES[name])}; echo last")
        assert seen[0], "a terminal was there"
        assert seen[:2] != quiet[:2] or "\x1b[41m" in seen[2], name
        assert SEQUENCES[name] in seen[3]


@pytest.mark.slow
def test_no_command_lets_data_steer_the_terminal(screen: Screen, tmp_path: Path) -> None:
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
    (tmp_path / "odd.csv").write_text(fuzzing.PAST.decode().replace("v9.6", f'"{EVIL}"'))
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
        ["history-pack", tmp_path / EVIL.replace("/", "")],
        ["index", "--output", tmp_path / "out", "--history", tmp_path / EVIL.replace("/", "")],
        ["export", tmp_path / "odd.json", "--openmetrics", tmp_path / "x"],
        ["plan", odd],
        ["run", tmp_path / "matrix.yaml", "--output", tmp_path / "cells"],
        [EVIL],
    ]
    lines = [shlex.join([sys.executable, "-m", "buildcompare", *map(str, command)]) for command in commands]
    ended = [f"{line}; echo code $?" for line in lines]
    state, buffers, shown, sent = screen("\n".join(["echo first", *ended, "echo last"]))
    quiet = screen("echo first; echo last")
    *each, _ = re.split(r"code ([034])\r\n", sent)
    assert len(each) == 2 * len(commands)
    for command, said in zip(commands, each[::2], strict=True):
        assert not [name for name, sequence in SEQUENCES.items() if sequence in said], (command, ascii(said))
        assert "Traceback" not in said
    assert (state, buffers) == quiet[:2]
    assert "\nfirst\n" in shown  # nothing was cleared
    assert "\nlast\n" in shown
    assert r"\x1b]0;owned\x07" in sent
