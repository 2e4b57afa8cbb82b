"""Kill a command at random moments: what stands afterwards is the state before it or after it, and no litter.

    python benchmarks/kills.py 200

prints, for each of `report`, `report --record`, `history-import`, `calibrate` and `index`, how many of its
kills came before its end, how many states were neither before nor after, and what was left once it had run to its end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

from support import small_params, write_params  # noqa: E402  # the tests' own parts


def main(kills: int) -> None:
    """Kill each command `kills / 5` times."""
    rng = random.Random(1)
    print(f"{'command':16} kills  before its end  neither before nor after  litter")
    for name in COMMANDS:
        with tempfile.TemporaryDirectory() as folder:
            report(name, *tried(name, Path(folder), max(kills // len(COMMANDS), 1), rng))


def report(name: str, kills: int, early: int, between: list[str], litter: list[str]) -> None:
    """Print a row, and each state that was neither."""
    print(f"{name:16} {kills:5}  {early:14}  {len(between):24}  {len(litter)}", flush=True)
    for line in [*between, *litter][:5]:
        print(f"    {line}")


def tried(name: str, folder: Path, kills: int, rng: random.Random) -> tuple[int, int, list[str], list[str]]:
    """Kill one command so often, each time from the state before it."""
    output, command = COMMANDS[name](folder)
    started = time.monotonic()
    run(command, folder)
    takes_s, after = time.monotonic() - started, state(output)
    early, between = 0, []
    for kill in range(kills):
        shutil.rmtree(output, ignore_errors=True)
        if kill % 2:  # there is one already, which must stay or be replaced
            run(command, folder)
        before = state(output)
        process = subprocess.Popen(
            command, cwd=PROJECT, env=environment(folder), start_new_session=True, stdout=subprocess.DEVNULL
        )
        time.sleep(rng.uniform(0.0, takes_s))
        early += process.poll() is None
        with contextlib.suppress(ProcessLookupError):  # it was done before
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        found = state(output)
        if set(found) not in (set(before), set(after)):
            between.append(f"kill {kill}: {sorted(set(found) ^ set(after))[:4]}")
    run(command, folder)
    litter = [str(path) for path in folder.rglob(".*") if path.suffix in (".part", ".making", ".old")]
    litter += [str(path) for path in (folder / "tmp").iterdir() if path.suffix == ".json"]
    return kills, early, between, litter


def state(output: Path) -> dict[str, str]:
    """The files of an output that a reader would see, each with its hash."""
    files = [path for path in output.rglob("*") if path.is_file() and not hidden(path.relative_to(output))]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def hidden(path: Path) -> bool:
    """Whether it is one that is still being made."""
    return any(part.startswith(".") for part in path.parts)


def run(command: list[str], folder: Path) -> None:
    """Run a command to its end."""
    done = subprocess.run(command, cwd=PROJECT, env=environment(folder), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")


def environment(folder: Path) -> dict[str, str]:
    """With a folder of temporary files that nobody else uses."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder / "tmp")}


def asked(*arguments: Any) -> list[str]:
    """A command line."""
    return [sys.executable, "-m", "buildcompare", *map(str, arguments)]


def a_report(folder: Path, *more: str) -> tuple[Path, list[str]]:
    """One test, published; with --record in a ledger too."""
    params = small_params(folder / "data", history=str(folder / "out/ledger"))
    file = write_params(folder / "small.yaml", {**params, "tests": params["tests"][:1]})
    return folder / "out", asked("report", file, "--output", folder / "out/report", *more)


def an_import(folder: Path) -> tuple[Path, list[str]]:
    """Ten comparisons into a ledger."""
    for i in range(10):
        params = small_params(
            folder / "data", name=f"r{i}", base={"label": f"v1.{i}.0"}, new={"label": f"v1.{i + 1}.0"}
        )
        write_params(folder / f"past/r{i}.yaml", {**params, "tests": params["tests"][:1]})
    return folder / "out", asked("history-import", folder / "past", "--output", folder / "out/ledger")


def a_calibration(folder: Path) -> tuple[Path, list[str]]:
    """What repeated runs teach."""
    test = small_params(folder / "data")["tests"][0]
    groups = [{"name": "a", "type": "bounded", "runs": [test["base"], test["new"]]}]
    file = write_params(folder / "groups.yaml", {"source": {"kind": "recorded"}, "groups": groups})
    return folder / "out", asked("calibrate", file, "--output", folder / "out/made.json")


def an_index(folder: Path) -> tuple[Path, list[str]]:
    """The page of all releases."""
    a_report(folder)
    return folder / "out", asked("index", "--output", folder / "out")


COMMANDS = {
    "report": a_report,
    "report --record": lambda folder: a_report(folder, "--record"),
    "history-import": an_import,
    "calibrate": a_calibration,
    "index": an_index,
}
"""By name, what makes its inputs in a folder and says where its output goes."""

if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
