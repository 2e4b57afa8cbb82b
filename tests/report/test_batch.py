"""Batches: what stands is kept, and a cluster gives what this machine gives, whoever is killed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from buildcompare.findings.verdict import shortcomings
from buildcompare.history.ledger import record
from buildcompare.report import processes
from buildcompare.report.batch import Order, publish_many, publish_one
from buildcompare.results import Results
from ledgers import entry
from support import refused, small_params, write_params

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("asked")
    params = small_params(folder / "data")
    asked = [write_params(folder / f"r{i}.yaml", {**params, "name": f"r{i}"}) for i in range(2)]
    lines = ("number of clients: 4", "number of transactions actually processed: 9", "latency average = 6.0 ms")
    for disk in ("managed", "ephemeral"):
        tps = [f"tps = {600 + i}.0 (without initial connection time)" for i in range(3)]
        (folder / f"{disk}.txt").write_text("\n".join(line for each in tps for line in (*lines, each)))
    runs = [{"levels": {"disk": disk}, "pgbench": str(folder / f"{disk}.txt")} for disk in ("managed", "ephemeral")]
    factors = {"disk": ["managed", "ephemeral"]}
    matrix = {"name": "m", "factors": factors, "baseline": {"disk": "managed"}, "metrics": "pgbench", "runs": runs}
    return [*asked, write_params(folder / "m.yaml", matrix)]


def orders(asked: list[Path], output: Path) -> list[Order]:
    return [Order(file, output / file.stem, graphs=None, resume=True) for file in asked]


@pytest.fixture(scope="module")
def made_here(asked: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("here")
    assert [outcome.code for _, outcome in publish_many(orders(asked, output), jobs=2)] == [0, 0, 0]
    return output


def results(folder: Path) -> tuple[bytes, str]:
    made = (folder / "results.json").read_bytes()
    before, run, after = re.split(rb'(?ms)^  "run": (\{.*?^  \})', made)
    return before + after, json.loads(run)["inputs_sha256"]


def test_what_stands_is_kept_until_something_changes(asked: list[Path], made_here: Path) -> None:
    (order, *_) = orders(asked, made_here)
    page = made_here / "r0/report.html"
    before = page.stat().st_mtime_ns
    kept = publish_one(order)
    assert kept.kept
    results = Results.model_validate_json((made_here / "r0/results.json").read_bytes())
    assert (kept.shortcomings, page.stat().st_mtime_ns) == (shortcomings(results), before)
    csv = asked[0].parent / "data/bounded-new.csv"
    text = csv.read_text()
    changes = (
        lambda: csv.write_text(text + "\n"),
        (made_here / "r0/junit.xml").unlink,
        lambda: write_params(asked[0], {**small_params(asked[0].parent / "data"), "name": "r0", "comments": ["x"]}),
    )
    for change in changes:
        change()
        assert not publish_one(order).kept
    assert publish_one(order).kept
    assert not publish_one(replace(order, graphs="svg")).kept
    ledger = asked[0].parent / "ledger"
    write_params(asked[0], {**small_params(asked[0].parent / "data"), "name": "r0", "history": str(ledger)})
    assert [publish_one(order).kept for _ in range(2)] == [False, True]
    record(ledger, [entry("before")])
    assert not publish_one(order).kept
    write_params(asked[0], {**small_params(asked[0].parent / "data"), "name": "r0"})
    assert publish_one(order).code == 0


def test_a_report_that_takes_too_much_memory_is_named(
    asked: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LEAST_MEMORY", 250_000_000)
    outcome = publish_one(orders(asked, tmp_path)[0], share=0.0)
    assert (outcome.code, outcome.printed) == (
        4, f"buildcompare: {asked[0]}: expected a report that takes less memory, found one that takes more"
    )  # fmt: skip


def test_a_matrix_is_kept_until_a_file_changes(asked: list[Path], made_here: Path) -> None:
    order = orders(asked, made_here)[2]
    assert publish_one(order).kept
    file = asked[2].parent / "managed.txt"
    before = file.read_text()
    file.write_text(before.replace("600.0", "500.0"))
    assert not publish_one(order).kept
    (made_here / "m/variants.ipynb").unlink()
    assert not publish_one(order).kept
    file.write_text(before)
    assert (publish_one(order).kept, publish_one(order).kept) == (False, True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    file = tmp_path / "scheduler.json"
    started = []

    def start(kind: str, *more: str) -> subprocess.Popen[str]:
        folder = tmp_path / f"{kind}-{len(started)}"
        folder.mkdir()
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", str(file), *more]
        env = {**os.environ, "TMPDIR": str(folder), "OPENBLAS_NUM_THREADS": "1"}
        env.pop("BUILDCOMPARE_ROOT", None)
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "text": True}
        started.append(subprocess.Popen(command, cwd=folder, env=env, **quiet))
        return started[-1]

    start("scheduler", "--port", "0", "--no-dashboard", "--host", "127.0.0.1")
    workers = [start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard") for _ in range(3)]
    while not (file.exists() and file.read_text()):
        time.sleep(0.05)
    yield json.loads(file.read_text())["address"], workers
    for process in started:
        process.kill()
        process.wait()


def test_a_cluster_makes_the_same_though_a_worker_is_killed(
    asked: list[Path], made_here: Path, cluster: tuple[str, list[subprocess.Popen[str]]], tmp_path: Path
) -> None:
    address, workers = cluster
    shutil.copytree(made_here / "r0", tmp_path / "out/r0")
    picture, readme = asked[0].parent / "seen.png", tmp_path / "out/r0/README.md"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    marker = "<!-- hand-written begin: comments -->\n"
    readme.write_text(readme.read_text("utf-8").replace(marker, f"{marker}![seen]({picture})\n"), "utf-8")
    command = [sys.executable, "-m", "buildcompare", "batch", *map(str, asked), "--output", str(tmp_path / "out")]
    batch = subprocess.Popen([*command, "--no-graphs", "--dask", address], stdout=subprocess.PIPE, text=True)
    busy = tmp_path / "worker-1"
    while not list(busy.glob("**/buildcompare-*")) and batch.poll() is None:
        time.sleep(0.05)
    assert batch.poll() is None, "no worker was at work"
    workers[0].send_signal(signal.SIGKILL)
    said, _ = batch.communicate(timeout=120)
    assert batch.returncode == 0, said
    assert said.count(f"The report is {tmp_path / 'out'}") == 3
    for file in asked:
        found, expected = (results(place / file.stem) for place in (tmp_path / "out", made_here))
        assert found[0] == expected[0]
        assert (found[1] == expected[1]) is (file.stem != "r0")  # what people wrote belongs to it
        names = {path.name for path in (tmp_path / "out" / file.stem).iterdir()}
        assert names == {path.name for path in (made_here / file.stem).iterdir()}
    assert "data:image/png;base64,iVBORw0KGgo=" in (tmp_path / "out/r0/report.html").read_text("utf-8")
    assert f"![seen]({picture})" in readme.read_text("utf-8")
    (order, *_) = orders(asked, tmp_path / "out")
    assert publish_one(order).kept
    picture.write_bytes(b"\x89PNG\r\n\x1a\n another")
    assert not publish_one(order).kept


def test_a_cluster_that_is_not_there_is_bad_input(asked: list[Path], tmp_path: Path) -> None:
    said = refused("batch", asked[0], "--output", tmp_path, "--dask", "nonsense://x")
    assert "--dask: expected the address of a Dask scheduler" in said
