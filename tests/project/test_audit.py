"""`make audit` asks a database of advisories about every locked package, and says plainly when it could not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

Record = dict[str, Any]


@contextmanager
def database(records: Sequence[Record], answer: bytes | None = None, status: int = 200) -> Iterator[str]:
    """A server that answers batches of queries from `records` in OSV's format, or else with `answer`; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            found = [{"vulns": ids} if (ids := _advisories(query, records)) else {} for query in asked]
            body = json.dumps({"results": found}).encode() if answer is None else answer
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body) or 4))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/querybatch"
        server.shutdown()


def _advisories(query: Record, records: Sequence[Record]) -> list[Record]:
    return [
        {"id": record["id"], "modified": record["modified"]}
        for record in records
        for affected in record["affected"]
        if affected["package"] == query["package"] and _affects(affected, query["version"])
    ]


def _affects(affected: Record, version: str) -> bool:
    """As OSV's schema says: named, or in one of its ranges, whose events are in order."""
    inside = version in affected.get("versions", ())
    for each in affected.get("ranges", ()):
        hit = False
        for ((kind, since),) in map(dict.items, each["events"]):
            if since == "0" or Version(version) >= Version(since):
                hit = kind == "introduced"
        inside |= hit
    return inside


def advisory(name: str, identity: str = "PYSEC-2026-1", **affected: Any) -> Record:
    package = {"name": name, "ecosystem": "PyPI"}
    return {"id": identity, "modified": "2026-01-01T00:00:00Z", "affected": [{"package": package, **affected}]}


def audit(project: Path, address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ".ci/audit.py", address]
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def pins(project: Path) -> dict[str, str]:
    lines = re.findall(r"^[^\s#].*", (project / "requirements.lock").read_text("utf-8"), flags=re.MULTILINE)
    return dict(line.split()[0].split("==", 1) for line in lines)


def test_an_advisory_for_a_pinned_version_fails(project: Path, pins: dict[str, str]) -> None:
    older = {"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": pins["pandas"]}]}
    open_ = {"type": "ECOSYSTEM", "events": [{"introduced": "1.0"}, {"fixed": f"{pins['pyarrow']}.post1"}]}
    records = [
        advisory("jinja2", versions=["3.1.2", pins["jinja2"]]),
        advisory("pandas", "PYSEC-2026-2", ranges=[older]),
        advisory("pyarrow", "PYSEC-2026-3", ranges=[open_]),
        advisory("no-package-of-ours", "PYSEC-2026-4", versions=[pins["jinja2"]]),
    ]
    with database(records) as address:
        done = audit(project, address)
    assert done.returncode == 1, done.stderr
    *found, total = done.stdout.splitlines()
    assert found == [
        f"jinja2 {pins['jinja2']}: https://osv.dev/vulnerability/PYSEC-2026-1",
        f"pyarrow {pins['pyarrow']}: https://osv.dev/vulnerability/PYSEC-2026-3",
    ]
    assert total.endswith("packages, 2 advisories")


def test_every_locked_package_is_asked_about_and_none_passes(project: Path, pins: dict[str, str]) -> None:
    with database([advisory(name, name, versions=[version]) for name, version in pins.items()]) as address:
        done = audit(project, address)
    told = {line.split(" ")[0] for line in done.stdout.splitlines()[:-1]}
    assert (done.returncode, told) == (1, set(pins))
    with database([advisory("jinja2", versions=["3.1.2"])]) as address:
        done = audit(project, address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("packages, 0 advisories\n")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"<html>no such page</html>", 404),
        (b"<html>a page</html>", 200),
        (b'{"results": []}', 200),
        (b'{"results": [' + b",".join([b'{"next_page_token": "x"}'] * 1_000) + b"]}", 200),
        (b'{"results": [' + b",".join([b"null"] * 1_000) + b"]}", 200),
        (b'{"code": 3, "message": "Invalid query."}', 200),
        (b"[]", 200),
        (b"", 200),  # cut: four bytes were promised
    ],
)
def test_an_answer_that_is_none_says_that_nothing_was_checked(project: Path, answer: bytes, status: int) -> None:
    with database([], answer, status) as address:
        done = audit(project, address)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith(f"make audit: nothing was checked: {address} could not be asked (")


def test_without_a_database_nothing_was_checked(project: Path) -> None:
    assert audit(project, "http://127.0.0.1:9/v1/querybatch").returncode == 4
