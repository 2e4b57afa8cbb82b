"""Kill a command at random moments: what stands afterwards is the state before it or after it, and no litter.

    python tests/stress/kills.py 200

Kills `report`, `report --record`, `batch`, `history-import`, `calibrate`, `index`, `pull` and `run` that often in all,
from an empty and from an earlier state (`run` continues the same state). States are compared byte by byte, except for
times. Each output (a report's folder, a ledger, a pulled file) must be whole, before or after. Each killed command is
then run to its end: the state must be that of a command that nobody killed, without any further file.
"""

import atexit
import contextlib
import functools
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests"))

from buildcompare.figures import unpacked  # noqa: E402
from serving import Answer, matrix, serving  # noqa: E402
from support import small_params, write_params  # noqa: E402  # the tests' own parts

State = dict[str, dict[str, str]]
"""By unit (a report's folder, a ledger, a file), the hash of each of its files."""
Making = Callable[[Path, bool], tuple[list[str], list[str]]]
"""Writes the inputs, those of the earlier state or the others, and says what is run and which outputs are units."""


def main(kills: int, names: list[str]) -> int:
    """Kill each command `kills / len(names)` times; 1 where a state was neither, or something was left."""
    rng, wrong = random.Random(1), 0
    print(f"{'command':16} kills  before its end  before  after  neither  unlike after the next run  litter")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            counts, said = tried(COMMANDS[name], Path(folder), max(kills // len(names), 1), rng)
        print(f"{name:16} {counts}", *said[:5], sep="\n    " if said else "", flush=True)
        wrong += len(said)
    return 1 if wrong else 0


def tried(make: Making, folder: Path, kills: int, rng: random.Random) -> tuple[str, list[str]]:
    out = folder / "out"
    earlier, units = make(folder, True)
    run(earlier, folder)
    shutil.copytree(out, folder / "earlier", symlinks=True)
    first = state(out, units)
    command, units = make(folder, False)
    takes_s, afters, there = 0.0, [], set()
    for start in (None, folder / "earlier"):  # what it makes of nothing and of the earlier state, and once more of that
        shutil.rmtree(out)
        shutil.copytree(start, out, symlinks=True) if start else out.mkdir()
        for _ in range(2):
            started = time.monotonic()
            run(command, folder)
            takes_s, there = time.monotonic() - started, there | listed(folder)
            afters.append(state(out, units))
    early = was = became = unlike = 0
    neither, litter = [], []
    for kill in range(kills):
        shutil.rmtree(out)
        out.mkdir()
        if kill % 2:
            shutil.copytree(folder / "earlier", out, symlinks=True, dirs_exist_ok=True)
        before, after = (first, afters[2]) if kill % 2 else ({unit: {} for unit in units}, afters[0])
        process = subprocess.Popen(
            command, cwd=PROJECT, env=environment(folder), start_new_session=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(rng.uniform(0.0 if kill % 4 < 2 else 0.8 * takes_s, takes_s))  # every second near its end
        early += process.poll() is None
        with contextlib.suppress(ProcessLookupError):  # it was done before
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        found = state(out, units)
        for unit in units:
            if found[unit] not in (before[unit], after[unit]):
                odd = sorted(name for name in found[unit].keys() | after[unit].keys()
                             if found[unit].get(name) != after[unit].get(name))  # fmt: skip
                neither.append(f"kill {kill}, {'of' if kill % 2 else 'without'} an earlier state: {unit}: {odd[:4]}")
        was += found == before
        became += found == after
        for left in (folder / "tmp").glob("bc-*"):  # only those of an hour ago are known to be nobody's
            os.utime(left, (0, 0))
        run(command, folder)
        if state(out, units) not in afters:
            unlike += 1
            neither.append(f"kill {kill}: other contents after the next run")
        if left_over := sorted(listed(folder) - there):
            litter.append(f"kill {kill}: {left_over[:4]}")
    counts = f"{kills:5}  {early:14}  {was:6}  {became:5}  {len(neither) - unlike:7}  {unlike:25}  {len(litter):6}"
    return counts, [*neither, *litter]


def state(out: Path, units: list[str]) -> State:
    found: State = {}
    for unit in units:
        place = out / unit
        files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
        shown = [path for path in files if not any(part.startswith(".") for part in path.relative_to(out).parts)]
        found[unit] = {str(path.relative_to(out)): hashlib.sha256(contents(path)).hexdigest() for path in shown}
    return found


def contents(file: Path) -> bytes:
    text = file.read_bytes()
    if file.suffix == ".ipynb":
        with contextlib.suppress(ValueError):  # not whole: as it is
            notebook = json.loads(text)
            notebook["metadata"].pop("papermill")
            for cell in notebook["cells"]:
                cell["metadata"].pop("papermill", None)
                cell.pop("id")  # papermill's
                for output in cell.get("outputs", ()):
                    for kind, held in output.get("data", {}).items():
                        if isinstance(held, dict) and "packed" in held:
                            output["data"][kind] = json.loads(unpacked(held["packed"]))
            text = json.dumps(notebook).encode()
    return re.sub(rb'("created": ?"|Made )\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ', rb"\1now", text)


def listed(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for place in ("out", "tmp") for path in (folder / place).rglob("*")}


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=PROJECT, env=environment(folder), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")


def environment(folder: Path) -> dict[str, str]:
    for name in ("tmp", "out"):
        (folder / name).mkdir(exist_ok=True)
    root = {"BUILDCOMPARE_ROOT": str(folder / "root")} if (folder / "root").exists() else {}
    return {**os.environ, **root, "TMPDIR": str(folder / "tmp")}


def asked(*arguments: Any) -> list[str]:
    return [sys.executable, "-m", "buildcompare", *map(str, arguments)]


def small(folder: Path, earlier: bool, **more: Any) -> dict[str, Any]:
    params = small_params(folder / "data", **more)
    test = params["tests"][0]
    if earlier:
        test["base"], test["new"] = test["new"], test["base"]
    return {**params, "tests": [test]}


def a_report(folder: Path, earlier: bool, *more: str) -> tuple[list[str], list[str]]:
    params = small(folder, earlier, history=str(folder / "out/ledger"))
    file = write_params(folder / "small.yaml", params)
    return asked("report", file, "--output", folder / "out/report", *more), ["report", *(["ledger"] if more else [])]


def a_batch(folder: Path, earlier: bool) -> tuple[list[str], list[str]]:
    files = [write_params(folder / f"{name}.yaml", small(folder, earlier, name=name)) for name in ("a", "b")]
    return asked("batch", *files, "--jobs", 2, "--no-graphs", "--output", folder / "out"), ["a", "b"]


def an_import(folder: Path, earlier: bool) -> tuple[list[str], list[str]]:
    rows = ["release,monthly,order,base_label,new_label,db,test_type,su_base,su_new"]
    new = 900 if earlier else 950
    rows += [f"r{i},yes,{i + 1},v1.{i}.0,v1.{i + 1}.0,mysql,unbounded,{900 + i},{new + i}" for i in range(30)]
    (folder / "past.csv").write_text("\n".join(rows))
    return asked("history-import", folder / "past.csv", "--output", folder / "out/ledger"), ["ledger"]


def a_calibration(folder: Path, earlier: bool) -> tuple[list[str], list[str]]:
    test = small(folder, earlier)["tests"][0]
    groups = [{"name": "a", "type": "bounded", "runs": [test["base"], test["new"]]}]
    file = write_params(folder / "groups.yaml", {"source": {"kind": "recorded"}, "groups": groups})
    return asked("calibrate", file, "--output", folder / "out/made.json"), ["made.json"]


def an_index(folder: Path, earlier: bool) -> tuple[list[str], list[str]]:
    shutil.rmtree(folder / "ledger", ignore_errors=True)
    importing, _ = an_import(folder, earlier)
    run([*importing[:-1], str(folder / "ledger")], folder)
    return asked("index", "--output", folder / "out", "--history", folder / "ledger"), ["index.html"]


LEVEL = [1.0]
"""The first value of the server's one series."""


def answer(path: str, asked: dict[str, list[str]]) -> Answer:
    if "query" not in asked:
        return 404, {}, b""
    start, end, step = (float(asked[name][0]) for name in ("start", "end", "step"))
    values = [[start + i * step, str(LEVEL[0] + i)] for i in range(int((end - start) / step) + 1)]
    return matrix({"job": "a"}, values)


@functools.cache
def served() -> str:
    until_the_end = contextlib.ExitStack()
    atexit.register(until_the_end.close)
    return until_the_end.enter_context(serving(answer))


def a_pull(folder: Path, earlier: bool) -> tuple[list[str], list[str]]:
    LEVEL[0] = 1.0 if earlier else 1e6
    (folder / "root").mkdir(exist_ok=True)
    shutil.copytree(PROJECT / "params", folder / "root/params", dirs_exist_ok=True)
    if not (data := folder / "root/data").exists():
        data.mkdir()
        (folder / "out").mkdir(exist_ok=True)
        (data / "recordings").symlink_to(folder / "out")
    window = [{"start": f"2024-01-01T0{i}:00:00Z", "end": f"2024-01-01T0{i}:30:00Z"} for i in (1, 2)]
    params = {
        "name": "pulled", "base": {"label": "a"}, "new": {"label": "b"},
        "source": {"kind": "prometheus", "url": served()},
        "tests": [{"name": "t", "type": "bounded", "base": window[0], "new": window[1]}],
    }  # fmt: skip
    file = write_params(folder / "pulled.yaml", params)
    return asked("pull", file, "--refresh"), [f"pulled/t/{side}.parquet" for side in ("base", "new")]


def a_run(folder: Path, _: bool) -> tuple[list[str], list[str]]:
    matrix = {
        "factors": {"size": [1, 2, 3]}, "seed": 7, "repeats": 2,
        "command": {"shell": "sleep 0.1; echo speed = 1{size}.5"}, "metrics": None,
        "result": {"values": {"speed": "^speed = (.+)$"}},
        "operations": {"speed": {"unit": "requests/s", "better": "higher"}},
    }  # fmt: skip
    file = write_params(folder / "matrix.yaml", matrix)
    return asked("run", file, "--output", folder / "out/made"), ["made/matrix-variants.yaml"]


COMMANDS: dict[str, Making] = {
    "report": a_report, "report --record": lambda folder, earlier: a_report(folder, earlier, "--record"),
    "batch": a_batch, "history-import": an_import, "calibrate": a_calibration, "index": an_index, "pull": a_pull,
    "run": a_run,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, sys.argv[2:] or [*COMMANDS]))
