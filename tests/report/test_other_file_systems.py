"""Recordings, reports and ledgers on file systems of fsspec: in memory, and on an FTP server, which is farther away.

An FTP server has less than an object store: a file is seen before it is whole, and times are seconds.
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

import buildcompare as bc
from buildcompare.config.remote import copied_back, fetched_folder, written
from buildcompare.history.ledger import record
from buildcompare.report.batch import Order
from ledgers import entry
from loadcluster.workers import publish_elsewhere
from prometheus_server import free_port
from support import command, refused, small_params, write_params

FTP_PYTHON = "/usr/bin/python3"  # Debian's, of which python3-pyftpdlib is


@pytest.fixture
def memory() -> Any:
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/", recursive=True)


def test_a_recording_is_read_as_it_is_now(memory: Any, tmp_path: Path) -> None:
    small_params(tmp_path)
    csv = (tmp_path / "bounded-base.csv").read_bytes()
    memory.pipe("/runs/base.csv", csv)
    there, here = bc.read("memory://runs/base.csv"), bc.read(tmp_path / "bounded-base.csv")
    assert there.samples_sha256 == here.samples_sha256
    memory.pipe("/runs/base.csv", csv.rsplit(b"\n", 40)[0])
    assert bc.read("memory://runs/base.csv").samples_sha256 != here.samples_sha256
    memory.rm("/runs/base.csv")
    with pytest.raises(bc.InputError, match=r"memory://runs/base.csv: expected .*, found no such file"):
        bc.read("memory://runs/base.csv")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense://bucket/x.csv", "nonsense://bucket/x.csv: expected an address that fsspec knows, found ValueError"),
        ("abfs://bucket/x.csv", "abfs://bucket/x.csv: expected the package of .*, found none: Install adlfs to access"),
        ("s3://me:hidden@bucket/x.csv", r"s3://\*\*\*@bucket/x.csv: expected an address without credentials"),
        ("s3://me:hid/hidden@bucket/x.csv", r"s3://\*\*\*@bucket/x.csv: expected an address without credentials"),
        (
            "simplecache::s3://hidden@bucket/x.csv",
            r"simplecache::s3://\*\*\*@bucket/x.csv: expected an address without",
        ),
        ("https://host/x.csv?token=hidden", "https://host/x.csv: expected an address without credentials or a query"),
    ],
)
def test_other_addresses_are_refused(address: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(bc.InputError, match=said) as error:
        bc.read(address)
    params = write_params(tmp_path / "p.yaml", {**small_params(tmp_path / "data"), "history": address})
    commands = (
        ["history", address], ["index", "--output", address], ["calibrate", str(params), "--output", address],
        ["plan", str(params)], ["plan", address], ["history-import", address, "--output", str(tmp_path / "l")],
    )  # fmt: skip
    outputs = [command(*each) for each in commands]
    assert [done.exit_code for done in outputs] == [3, 3, 3, 3, 3, 3]
    assert "hidden" not in "".join([str(error.value), *(done.output for done in outputs)])


def test_a_folder_is_replaced_once_all_of_it_is_made(memory: Any) -> None:
    for name in ("results.json", "gone.txt", "mine/notes.txt"):
        memory.pipe(f"/reports/x/{name}", name.encode())

    def killed() -> None:
        with copied_back("memory://reports/x") as here:
            (here / "results.json").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        killed()
    assert memory.cat("/reports/x/results.json") == b"results.json"
    with copied_back("memory://reports/x") as here:
        (here / "results.json").write_text("new")
        (here / "gone.txt").unlink()
    assert {name: memory.cat(name) for name in memory.find("/reports/x")} == {
        "/reports/x/results.json": b"new", "/reports/x/mine/notes.txt": b"mine/notes.txt"
    }  # fmt: skip


def test_a_report_is_not_whole_while_its_files_are_put(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("results.json", "report.html", "junit.xml"):
        memory.pipe(f"/reports/x/{name}", b"old")
    stood, put_file = [], type(memory).put_file

    def watched(self: Any, lpath: str, rpath: str, **known: Any) -> None:
        stood.append((rpath.rpartition("/")[2], memory.exists("/reports/x/junit.xml")))
        put_file(self, lpath, rpath, **known)

    monkeypatch.setattr(type(memory), "put_file", watched)
    with copied_back("memory://reports/x"):
        pass
    assert (stood, memory.exists("/reports/x/junit.xml")) == ([], True)
    with copied_back("memory://reports/x") as here:
        (here / "results.json").write_text("new")
        (here / "report.html").write_text("new")
    assert stood == [("report.html", False), ("results.json", False), ("junit.xml", False)]
    assert memory.cat("/reports/x/junit.xml") == b"old"


def test_a_file_is_put_there_once_it_is_made(memory: Any, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), written("memory://made/c.json") as here:
        here.write_text(str(1 / 0))
    assert not memory.exists("/made/c.json")
    for address in ("memory://made/c.json", str(tmp_path / "c.json")):
        with written(address) as here:
            here.write_text("whole")
    assert memory.cat("/made/c.json") == (tmp_path / "c.json").read_bytes() == b"whole"


@pytest.fixture(scope="module")
def ftp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    asked = [FTP_PYTHON, "-c", "import pyftpdlib"]
    if shutil.which(FTP_PYTHON) is None or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("python3-pyftpdlib is not installed")
    folder, port = tmp_path_factory.mktemp("ftp"), free_port()
    command = [FTP_PYTHON, "-m", "pyftpdlib", "-w", "-i", "127.0.0.1", "-p", str(port), "-d", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while True:
        try:
            fsspec.filesystem("ftp", host="127.0.0.1", port=port).ls("/")
            break
        except OSError:
            assert server.poll() is None, "it ended"
            assert time.monotonic() < until, "no FTP server"
            time.sleep(0.1)
    yield f"ftp://127.0.0.1:{port}", folder
    server.kill()
    server.wait()


def test_a_ledger_there_is_read_and_not_written(memory: Any, tmp_path: Path) -> None:
    record(tmp_path, [entry("x")])
    memory.pipe("/l/x.json", (tmp_path / "x.json").read_bytes())
    here = fetched_folder("memory://l")
    assert [*bc.read_history(here).steps] == [*bc.read_history("memory://l").steps] == ["x"]
    with pytest.raises(bc.InputError, match="memory://l: history: expected a local folder, found an address"):
        record(here, [entry("y", 2, ("1.1.0", "1.2.0"))])
    assert memory.find("/l") == ["/l/x.json"]


@pytest.mark.slow
def test_a_batch_its_ledger_and_its_index_stand_there(ftp: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = ftp
    params = {**small_params(tmp_path / "data"), "history": f"{address}/ledger"}
    asked = [str(write_params(tmp_path / f"r{i}.yaml", {**params, "name": f"r{i}"})) for i in range(2)]
    record(folder / "ledger", [entry("earlier", builds=("0.8.0", "0.9.0"))])
    said = refused("report", asked[0], "--record", "-o", f"{address}/out/r0")
    assert "found an address (read only)" in said
    batch = ("batch", *asked, "--output", f"{address}/out", "--no-graphs")
    made = command(*batch)
    assert (made.exit_code, f"{address}/out/r1/report.html" in made.output) == (0, True), made.output
    page = folder / "out/r1/report.html"
    before = page.stat().st_mtime_ns
    again = command(*batch)
    assert "2 of them unchanged" in again.output
    (folder / "out/r1/mine.txt").write_text("notes")
    (folder / "out/r1/junit.xml").unlink()
    with ThreadPoolExecutor(1) as worker:  # as a cluster's, by bytes alone
        orders = [Order(Path(each), f"{address}/out/{Path(each).stem}", graphs=None, resume=True) for each in asked]
        elsewhere = [publish_elsewhere(worker, order) for order in orders]
    assert [(each.code, each.kept) for each in elsewhere] == [(0, True), (0, False)], elsewhere
    assert f"{address}/out/r1/report.html" in elsewhere[1].printed
    assert page.stat().st_mtime_ns > before
    assert {"mine.txt", "junit.xml", "results.json"} <= {each.name for each in (folder / "out/r1").iterdir()}
    shown = command("index", "--output", f"{address}/out")
    assert f"{address}/out/index.html: " in shown.output
    assert shown.exit_code == 0
    html = (folder / "out/index.html").read_text("utf-8")
    assert 'href="r0/report.html"' in html
    assert 'href="r1/results.json"' in html
    assert "/buildcompare-" not in html + page.read_text("utf-8"), "copies have no names"
    assert "earlier: " in command("history", f"{address}/ledger").output
    (folder / "out/r1/results.json").unlink()
    bad = command("batch", asked[1], "--output", f"{address}/out")
    assert f"{address}/out/r1: output: expected a new or empty folder" in bad.output
