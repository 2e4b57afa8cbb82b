"""CPU seconds of a finished report: alone, in a batch, and by the commands papermill and nbconvert, all in one run.

    python benchmarks/report.py [--repeats 1] [--profile]

The reference runs the same notebook in a kernel and converts it once to HTML. CPU is that of all processes of a
command; wall time beside it holds only on an idle machine. `--profile` prints instead where the CPU of one warm report
goes.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PARAMS = PROJECT / "params/v10.4.0-rc1.yaml"
BATCH = 8
PROFILE = """
import cProfile, pstats, sys
import buildcompare.report.preload, buildcompare.api
from pathlib import Path
from buildcompare.report import processes, publish
processes.is_child = lambda: True
profile = cProfile.Profile()
profile.runcall(publish.publish, Path(sys.argv[1]), output=Path(sys.argv[2]))
pstats.Stats(profile).sort_stats("cumulative").print_stats(60)
"""


SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of Linux: processes whose parent ended become children of this one


def seconds(*commands: list[str]) -> tuple[float, float]:
    """CPU and wall seconds of commands, one after the other, with those of fork servers that outlive them."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    before, since = os.times(), time.monotonic()
    for command in commands:
        subprocess.run(command, check=True, cwd=PROJECT, capture_output=True)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, time.monotonic() - since


def run(folder: Path) -> dict[str, tuple[float, float]]:
    """CPU and wall seconds per finished report of each way."""
    python = [sys.executable, "-m"]
    ours = [*python, "buildcompare"]
    eight = [folder / f"{i}.yaml" for i in range(BATCH)]
    for file in eight:
        file.write_text(PARAMS.read_text("utf-8"), "utf-8")
    many = [*ours, "batch", *map(str, eight), "--output", str(folder / "batch"), "--again"]
    kernel = [*ours, "report", str(PARAMS), "--output", str(folder / "kernel"), "--engine", "kernel"]
    out = folder / "out.ipynb"
    asked = ["-p", "params_file", str(PARAMS), "-p", "command", "papermill", "-k", "python3"]
    papermill = [*python, "papermill", "notebooks/comparison.ipynb", str(out), *asked]
    nbconvert = [*python, "nbconvert", "--to", "buildcompare_html", str(out)]
    timed = {
        "papermill and nbconvert": seconds(papermill, nbconvert),
        "report --engine kernel": seconds(kernel),
        "report": seconds([*ours, "report", str(PARAMS), "--output", str(folder / "alone")]),
        "report --no-graphs": seconds([*ours, "report", str(PARAMS), "--output", str(folder / "alone"), "--no-graphs"]),
    }
    for name, more in ((f"batch of {BATCH}", []), (f"batch of {BATCH} --no-graphs", ["--no-graphs"])):
        cpu, wall = seconds([*many, *more])
        timed[name] = cpu / BATCH, wall / BATCH
    return timed


def profile() -> None:
    """Print where the CPU of one warm report goes."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", PROFILE, str(PARAMS), f"{folder}/out"], check=True, cwd=PROJECT)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # byte code and templates are compiled once, not by every command
    if given.profile:
        profile()
        return
    with tempfile.TemporaryDirectory() as folder:
        runs = [run(Path(folder)) for _ in range(given.repeats)]
    reference = statistics.median(each["papermill and nbconvert"][0] for each in runs)
    print(f"{'per finished report of four tests':34} {'CPU s':>7} {'of reference':>13} {'wall / CPU':>11}")
    for name in runs[0]:
        cpu = statistics.median(each[name][0] for each in runs)
        wall = statistics.median(each[name][1] for each in runs)
        print(f"{name:34} {cpu:7.2f} {cpu / reference:13.2f} {wall / cpu:11.2f}")


if __name__ == "__main__":
    main()
