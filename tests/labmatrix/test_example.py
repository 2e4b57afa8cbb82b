"""`make example`: recorded here at a small scale, and what the bundled recording of it says of identical runs."""

import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import buildcompare as bc
from buildcompare.comparison.analysis import analyse
from buildcompare.comparison.reading import read_recordings
from buildcompare.config.catalogue import read_catalogue
from buildcompare.results import Results
from loadfiles.comparisons import import_comparisons
from prometheus_server import needed
from support import yaml_data

CHANGES = {
    "time-per-transaction", "rows-per-transaction", "cpu", "active-backends", "longest-transaction", "locks-held",
}  # fmt: skip
"""What a missing index costs: the rows that are read instead, the time that this takes, and what is held meanwhile."""
CALLED = ("regression", "improvement")


@pytest.fixture
def script(project: Path) -> list[str]:
    if not [*Path("/usr/lib/postgresql").glob("*/bin/initdb")] or not shutil.which("pgbench"):
        pytest.skip("no PostgreSQL server is installed")
    for name in ("prometheus", "prometheus-postgres-exporter", "prometheus-node-exporter"):
        needed(name, name)
    return [str(project / "params/example/example.sh"), sys.executable]


def left_over(folder: Path) -> list[str]:
    commands = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(process.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue  # it ended
    return [*map(str, folder.iterdir()), *(each for each in commands if str(folder) in each)]


@pytest.fixture
def temporary() -> Iterator[Path]:
    folder = Path("/tmp") / f"example-{os.getpid()}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_it_finds_the_missing_index_and_nothing_else(script: list[str], temporary: Path, tmp_path: Path) -> None:
    small = ["--repeats", "2", "--seconds", "32"]
    places = ["--output", str(tmp_path / "out"), "--report", str(tmp_path / "report")]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        [*script, *small, *places], env=environment, capture_output=True, text=True, timeout=290, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_over(temporary) == []
    results = Results.model_validate_json((tmp_path / "report/results.json").read_text("utf-8"))
    assert not results.simulated
    [test] = results.tests
    rows = {row.slug: row for row in test.metrics}
    assert (test.validity.status, len(rows)) == ("valid", len(read_catalogue("postgresql").metrics))
    found = rows["rows-per-transaction"]
    assert (found.status, len(found.levels.base), len(found.levels.new)) == ("regression", 2, 2)
    assert (found.base, found.new) == (pytest.approx(21, abs=1), pytest.approx(5001, abs=1))
    averages = [row for row in test.labels if row.stat == "avg"]
    [slowest] = [row for row in averages if row.label.startswith("select sum(amount) from orders")]
    assert slowest.delta_percent > 100
    twins = {"rows-written": "transactions"}  # each transaction writes one row: they are one call
    other = {twins.get(slug, slug) for slug, row in rows.items() if row.status in CALLED and slug not in CHANGES}
    assert len(other) <= 2, "of ten at 5 %: three or more in 1 of 90 runs"
    assert yaml_data((tmp_path / "out/groups.yaml").read_text("utf-8"))["groups"][0]["name"] == "missing"


@pytest.mark.slow
def test_an_interrupt_leaves_nothing_behind(script: list[str], temporary: Path, tmp_path: Path) -> None:
    command = [*script, "--output", str(tmp_path / "out"), "--report", str(tmp_path / "report")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, "TMPDIR": str(temporary)}, stdout=log, stderr=log, start_new_session=True
        )
        until = time.monotonic() + 60
        while not [*tmp_path.glob("out/cells/*/output.txt")]:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    assert left_over(temporary) == []
    assert not (tmp_path / "report").exists()


def test_what_is_missing_is_named_with_its_package(project: Path, tmp_path: Path) -> None:
    for name in ("dirname", "ls", "sort", "tail", "tr", "id"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    bash, script = str(shutil.which("bash")), str(project / "params/example/example.sh")
    done = subprocess.run([bash, script], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "expected on the PATH the programs" in done.stderr
    assert "prometheus-node-exporter" in done.stderr.splitlines()[1]
    assert "sudo apt-get install" in done.stderr
    odd = subprocess.run([bash, script, "python3", "--repeat", "2"], capture_output=True, text=True, check=False)
    assert (odd.returncode, "found --repeat 2" in odd.stderr) == (3, True)
    short = subprocess.run([bash, script, "python3", "--seconds", "9"], capture_output=True, text=True, check=False)
    assert (short.returncode, "at least 1 repeat and 32 seconds" in short.stderr) == (3, True)


@pytest.mark.untraced
def test_identical_runs_are_called_in_five_of_a_hundred_at_most(project: Path) -> None:
    rates = [*runpy.run_path(str(project / "benchmarks/example.py"))["rates"](40)]
    assert len(rates) == 13
    for each in rates:
        assert each.judged >= 8 * each.draws
        assert each.called <= 0.05 * each.judged, each


def test_calibration_and_ledger_of_identical_runs_tell_the_same(project: Path, tmp_path: Path) -> None:
    params = bc.read_params(project / "params/missing-index.yaml")
    assert len(import_comparisons(project / "params/example/identical", tmp_path / "ledger")) == 8
    by_ledger = params.model_copy(update={"calibration": None, "history": str(tmp_path / "ledger")})
    for asked, source in ((params, "calibration"), (by_ledger, "ledger")):
        results = analyse(asked, read_recordings(asked)).results
        assert (results.verdict, results.simulated) == ("regression", False)
        called = {row.slug: row.noise_source for row in results.tests[0].metrics if row.status in CALLED}
        assert {*called} == {"time-per-transaction", "rows-per-transaction"}
        assert called["time-per-transaction"] == source
        assert not results.drift
