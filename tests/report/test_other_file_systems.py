"""Recordings are read from, and reports written to, any file system of fsspec; without it nothing changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest

import buildcompare as bc
from buildcompare.config.errors import InputError
from buildcompare.config.remote import copied_back
from buildcompare.report.batch import Order, publish_one
from support import small_params, write_params


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
    with pytest.raises(InputError, match=r"memory://runs/base.csv: expected .*, found no such file"):
        bc.read("memory://runs/base.csv")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nonsense://bucket/x.csv", "nonsense://bucket/x.csv: expected an address that fsspec knows, found ValueError"),
        ("s3://me:hidden@bucket/x.csv", r"s3://\*\*\*@bucket/x.csv: expected an address without credentials"),
    ],
)
def test_other_addresses_are_refused(address: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        bc.read(address)
    assert "hidden" not in str(error.value)


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


@pytest.mark.slow
def test_a_report_is_made_from_there_and_put_there(tmp_path: Path) -> None:
    params = small_params(tmp_path / "data")
    write_params(tmp_path / "here.yaml", params)
    elsewhere = json.loads(json.dumps(params).replace(str(tmp_path / "data"), f"file://{tmp_path / 'data'}"))
    write_params(tmp_path / "there.yaml", elsewhere)
    address = f"file://{tmp_path}/out/there"
    there = publish_one(Order(tmp_path / "there.yaml", {"graphs": False}, address=address))
    here = publish_one(Order(tmp_path / "here.yaml", {"graphs": False, "output": tmp_path / "out/here"}))
    assert (here.code, there.code) == (0, 0), there.said
    assert f"{address}/report.html" in there.said
    made = [{str(each.relative_to(folder)) for each in folder.rglob("*")} for folder in (tmp_path / "out").iterdir()]
    assert made[0] == made[1]
    tests = [json.loads((tmp_path / "out" / name / "results.json").read_text())["tests"] for name in ("here", "there")]
    assert tests[0] == tests[1]
