"""Publish many reports from one process tree: does anything grow?

    python benchmarks/soak.py 1000

publishes a small comparison so often, two at a time, and prints at ten moments what this process and its fork server
hold: memory, open files (sockets among them), processes, and what stands in the temporary folder. The first reports
fill caches; the last line compares the second tenth with the last.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from buildcompare.report.batch import Order, publish_many
from support import small_params, write_params

JOBS, LOOKS = 2, 10


def main(reports: int, folder: Path) -> None:
    """Publish `reports` into `folder` and print what is held."""
    params = write_params(folder / "x.yaml", small_params(folder / "data"))
    orders = [Order(params, {"output": folder / "out" / str(i % JOBS), "graphs": False}) for i in range(reports)]
    seen, every = [], max(reports // LOOKS, 1)
    print("reports  memory MB  files  sockets  processes  temporary")
    for done, (_, outcome) in enumerate(publish_many(orders, jobs=JOBS), start=1):
        if outcome.code:
            sys.exit(outcome.said)
        if done % every == 0:
            seen.append(held(Path(tempfile.gettempdir())))
            memory, files, sockets, processes, left = seen[-1]
            print(f"{done:7}  {memory:9.1f}  {files:5}  {sockets:7}  {processes:9}  {left:9}", flush=True)
    if len(seen) > 2:
        print("grown: " + ", ".join(f"{after - before:+.3g}" for before, after in zip(seen[1], seen[-1], strict=True)))


def held(temporary: Path) -> tuple[float, int, int, int, int]:
    """Memory (MB), open files, sockets, processes and temporary files of this process and those that stay."""
    own = Path("/proc/self")
    started = " ".join(each.read_text() for each in own.glob("task/*/children")).split()
    processes = [own, *(Path("/proc") / number for number in started)]  # a report under way is the fork server's child
    opened = [target(link) for process in processes for link in (process / "fd").iterdir()]
    pages = sum(int((process / "statm").read_text().split()[1]) for process in processes)
    sockets = sum(each.startswith("socket:") for each in opened)
    memory = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return memory, len(opened), sockets, len(processes), len(list(temporary.iterdir()))


def target(link: Path) -> str:
    """What an open file is; empty where it was closed meanwhile."""
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(int(sys.argv[1]), Path(sys.argv[2]))
    else:  # in a process of its own, whose temporary folder is removed once it has ended
        with tempfile.TemporaryDirectory(prefix="soak-") as place:
            (temporary := Path(place, "t")).mkdir()
            command = [sys.executable, __file__, *(sys.argv[1:] or ["1000"]), place]
            sys.exit(subprocess.run(command, env={**os.environ, "TMPDIR": str(temporary)}, check=False).returncode)
