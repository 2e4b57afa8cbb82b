"""Publish many reports with one command, kill it in the middle, start it again: does anything grow, is anything lost?

    python tests/stress/soak.py 1000

Publishes that many small comparisons, two at a time. Prints at 18 moments the CPU of each report since the moment
before, and memory, open files, processes and temporary files of the command and its fork server. After the kill the
finished reports must stay as they are, and the others are made once. A line after each half compares its last moments
with its first; those of what is held begin with the second, as the first reports fill caches.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "tests"))

from support import small_params, write_params  # noqa: E402  # the tests' own parts

LOOKS = 20
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass(frozen=True)
class Held:
    cpu_s: float
    command_mb: float
    server_mb: float
    files: int
    sockets: int
    processes: int
    temporary: int


def main(reports: int) -> None:
    with tempfile.TemporaryDirectory(prefix="soak-") as place:
        folder = Path(place)
        (folder / "t").mkdir()
        params = small_params(folder / "data")
        files = [write_params(folder / "params" / f"c{i:04}.yaml", params) for i in range(reports)]
        print("reports  CPU s each  command MB  fork server MB  files  sockets  processes  temporary")
        half(files, folder, reports // 2)
        finished = stamps(folder)
        half(files, folder, None)
        both = stamps(folder)
        again = sum(both.get(name) != stamp for name, stamp in finished.items())
        left = [each.name for each in (folder / "out").iterdir() if each.name not in {file.stem for file in files}]
        print(f"finished before the kill: {len(finished)}, made twice: {again}, in the end: {len(both)} of {reports}")
        print(f"left beside the reports: {left or 'nothing'}")


def half(files: list[Path], folder: Path, kill_at: int | None) -> None:
    command = [sys.executable, "-m", "buildcompare", "batch", *map(str, files), "--output", str(folder / "out")]
    done, seen, every = 0, list[Held](), max(len(files) // LOOKS, 1)
    before = len(stamps(folder))
    environment = {**os.environ, "TMPDIR": str(folder / "t"), "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, "--no-graphs", "--jobs", "2"], cwd=PROJECT, env=environment, start_new_session=True,
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        at = 0.0
        for _ in (line for line in process.stdout or () if "report.html" in line):
            done += 1
            if before < done < len(files) and done % every == 0:
                now = held(process.pid, folder / "t")
                if seen:
                    cells = f"{(now.cpu_s - at) / every:10.2f}  {now.command_mb:10.1f}  {now.server_mb:14.1f}"
                    counts = f"{now.files:5}  {now.sockets:7}  {now.processes:9}  {now.temporary:9}"
                    print(f"{done:7}  {cells}  {counts}", flush=True)
                seen.append(now)
                at = now.cpu_s
            if done == kill_at:
                os.killpg(process.pid, signal.SIGKILL)
                break
        started = time.monotonic()
        while process.poll() is None and time.monotonic() - started < 30:
            time.sleep(0.1)
    if len(seen) > 6:
        rates = [seen[i + 3].cpu_s - seen[i].cpu_s for i in (0, len(seen) - 4)]
        grown = ", ".join(f"{b - a:+.3g}" for a, b in zip(astuple(seen[1])[1:], astuple(seen[-1])[1:], strict=True))
        print(f"CPU of a report, last against first: {rates[1] / rates[0]:.3f}; grown: {grown}", flush=True)


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for file in (folder / "out").glob("[!.]*/results.json"):
        about = file.stat()
        found[file.parent.name] = about.st_ino, about.st_mtime_ns
    return found


def held(command: int, temporary: Path) -> Held:
    own = Path("/proc", str(command))
    servers = [Path("/proc", number) for number in sorted(children(own))]
    open_files = [target for each in (own, *servers) for target in opened(each)]
    memory = [int((each / "statm").read_text().split()[1]) * PAGE_MB for each in (own, *servers)]
    sockets = sum(each.startswith("socket:") for each in open_files)
    cpu_s = sum(ticks(each) for each in (own, *servers)) * TICK_S
    return Held(
        cpu_s, memory[0], sum(memory[1:]), len(open_files), sockets, 1 + len(servers), len(list(temporary.iterdir()))
    )


def children(process: Path) -> set[str]:
    return {number for task in process.glob("task/*/children") for number in task.read_text().split()}


def ticks(process: Path) -> int:
    return sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))


def opened(process: Path) -> Iterator[str]:
    with suppress(FileNotFoundError):
        for link in (process / "fd").iterdir():
            with suppress(FileNotFoundError):
                yield str(link.readlink())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ["1000"]))
