"""Load testers on a real HTTP server: is a planted slowdown found, and are identical builds called different?

    python benchmarks/tools.py [--tools locust k6 vegeta hey] [--pairs 20] [--seconds 10] [--folder FOLDER]

The new build's /search waits 30 % longer, and 1 % of its requests fail. Printed for each tool on the PATH: the first
finding, the change found, whether errors are called, and of how many identical pairs one is called a regression. Three
runs stand against three; a pair shares three runs with the next one. Recordings in FOLDER are used again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from multiprocessing.queues import Queue
from pathlib import Path

import buildcompare as bc

RUNS, USERS = 3, 5
WAITS_S = {"/search": 0.2, "/items": 0.125, "/cart": 0.15}  # long beside what clients on a busy machine add
SLOWER, FAILED = 1.3, 0.01
K6 = """import http from 'k6/http';
export default function () { for (const path of %s) http.get('%s' + path); }
"""
LOCUST = """from locust import HttpUser, task
class User(HttpUser):
    @task
    def every(self):
        for path in %s:
            self.client.get(path)
"""
JMETER = """<jmeterTestPlan version="1.2" properties="5.0" jmeter="5.5"><hashTree>
<TestPlan guiclass="TestPlanGui" testclass="TestPlan" testname="plan"/><hashTree>
<ThreadGroup guiclass="ThreadGroupGui" testclass="ThreadGroup" testname="users">
<elementProp name="ThreadGroup.main_controller" elementType="LoopController">
<boolProp name="LoopController.continue_forever">false</boolProp><intProp name="LoopController.loops">-1</intProp>
</elementProp><stringProp name="ThreadGroup.num_threads">%d</stringProp>
<boolProp name="ThreadGroup.scheduler">true</boolProp><stringProp name="ThreadGroup.duration">%d</stringProp>
</ThreadGroup><hashTree>%s</hashTree></hashTree></hashTree></jmeterTestPlan>
"""
SAMPLE = """<HTTPSamplerProxy guiclass="HttpTestSampleGui" testclass="HTTPSamplerProxy" testname="%s">
<elementProp name="HTTPsampler.Arguments" elementType="Arguments"/>
<stringProp name="HTTPSampler.protocol">http</stringProp><stringProp name="HTTPSampler.domain">%s</stringProp>
<stringProp name="HTTPSampler.port">%s</stringProp><stringProp name="HTTPSampler.path">%s</stringProp>
<stringProp name="HTTPSampler.method">GET</stringProp><boolProp name="HTTPSampler.use_keepalive">true</boolProp>
</HTTPSamplerProxy><hashTree/>
"""


def serve(port: Queue[int], *, slower: bool) -> None:
    """Answer every request after a wait that depends on its path."""
    rng = random.Random(1)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                more = SLOWER if slower and path == "/search" else 1.0
                await asyncio.sleep(WAITS_S.get(path, 0.0) * more * rng.lognormvariate(0.0, 0.2))
                status = "500 Error" if slower and rng.random() < FAILED else "200 OK"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok".encode())
                await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@contextlib.contextmanager
def server(*, slower: bool) -> Iterator[str]:
    """Serve one build; yields its address."""
    port: Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=serve, args=(port,), kwargs={"slower": slower}, daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port.get(timeout=30)}"
    finally:
        process.terminate()
        process.join()


def record(tool: str, address: str, place: Path, seconds: int) -> None:
    """Record one run into a folder."""
    paths = [*WAITS_S]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "k6.js").write_text(K6 % (paths, address))
        (work / "locustfile.py").write_text(LOCUST % paths)
        (work / "targets").write_text("".join(f"GET {address}{path}\n" for path in paths))
        host, port = address.removeprefix("http://").split(":")
        samples = "".join(SAMPLE % (path, host, port, path) for path in paths)
        (work / "plan.jmx").write_text(JMETER % (USERS, seconds, samples))
        attack = f"vegeta attack -rate 60 -duration {seconds}s -targets targets | vegeta encode --to csv > made/run.csv"
        locust = f"locust --headless -u {USERS} -r {USERS} -t {seconds}s --host {address} --csv made/run --only-summary"
        command = {
            "k6": f"k6 run --quiet --vus {USERS} --duration {seconds}s --out csv=made/run.csv k6.js",
            "locust": f"{locust} --csv-full-history || test -s made/run_stats.csv",  # 1 where requests failed
            "jmeter": "jmeter -n -t plan.jmx -l made/run.jtl",
            "vegeta": attack,
            "hey": f"hey -z {seconds}s -c {USERS} {address}/search > made/run.txt",
        }[tool]
        (work / "made").mkdir()
        subprocess.run(["bash", "-c", command], cwd=work, check=True, capture_output=True)
        place.mkdir(parents=True)
        for file in (work / "made").iterdir():
            if file.stat().st_size and not file.name.endswith(("failures.csv", "exceptions.csv")):
                shutil.copy(file, place / f"{place.name}-{file.name}")


def compared(base: list[Path], new: list[Path]) -> bc.Result:
    """Compare runs, each in its folder; rates are those of one second."""
    return bc.compare(base, new, catalogue="http", rate_s=1.0, labels=("base", "new"))


def main(tools: list[str], pairs: int, seconds: int, folder: Path) -> None:
    """Record what is missing, and print a row for each tool."""
    for tool in tools:
        if shutil.which(tool) is None:
            print(f"{tool}: left out, as it is not on the PATH")
            continue
        runs: dict[str, list[Path]] = {}
        for build, count in (("same", RUNS * (pairs + 1)), ("slower", RUNS)):
            runs[build] = [folder / tool / f"{build}-{i:03d}" for i in range(count)]
            with server(slower=build == "slower") as address:
                for place in runs[build]:
                    if not place.exists():
                        record(tool, address, place, seconds)
        found = compared(runs["same"][:RUNS], runs["slower"])
        first = found.results.findings[0]
        rows = (
            found.labels.query("stat == 'avg' and label.str.contains('search')") if len(found.labels) else found.metrics
        )
        change = rows["delta_percent"].iloc[0]
        failing = [row for test in found.results.tests for row in (*test.metrics, *test.errors)]
        errors = any(
            row.status == "regression" and row.slug in ("successful-requests", "failed-requests") for row in failing
        )
        print(f"{tool}: {first.text}\n  change {change:+.1f} %, errors {'called' if errors else 'MISSED'}", flush=True)
        false = 0
        for i in range(0, RUNS * pairs, RUNS):
            pair = runs["same"][i : i + 2 * RUNS]  # in turn, as docs/ci.md says
            result = compared(pair[::2], pair[1::2])
            kinds = [str(each.kind) for each in result.results.findings]
            called = result.verdict == "regression" or "label_changed" in kinds
            false += called
            if called:
                print(f"  identical pair {i // RUNS}: {result.results.findings[0].text}")
        print(f"  identical pairs called a regression: {false} of {pairs}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", nargs="*", default=["locust", "k6", "vegeta", "hey"])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        sys.exit(main(given.tools, given.pairs, given.seconds, given.folder or Path(name)))
