"""Bytes for every reader: files that are right, changed by chance, and what once broke a reader (tests/corpus)."""

from __future__ import annotations

import gzip
import io
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from buildcompare.config.errors import BuildcompareError
from buildcompare.config.params import read_params
from buildcompare.recordings import table
from buildcompare.recordings.prometheus_client import PassingError, RefusedAnswerError, read_answer
from buildcompare.recordings.recording import Recording, Series
from buildcompare.recordings.sources import read

CORPUS = Path(__file__).parent / "corpus"
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 5, 1e308, 1e-320, float("nan"), float("inf"), 10**400, "", "x", "\ud800", "\x1b[31m", "\0",
    "1_000", "9999-12-31", [], [[]], {}, {"a": []}, [1, 2, 3],
)  # fmt: skip
PARTS = (b"\x00", b"\xff", b"\x1b[2J", b"\xed\xa0\x80", b"9" * 400, b'"', b"[" * 5_000)
HANGS_S = 10.0


def right(folder: Path) -> dict[str, bytes]:
    """One whole input of each kind, by the reader that takes it."""
    times = 1.7e9 + 5.0 * np.arange(8)
    table.write_recording(
        Recording((Series("rps", "RPS", "", times, times),), (times[0], times[-1]), True), folder / "o"
    )
    foreign = io.BytesIO()
    pq.write_table(pa.table({"timestamp": times, "metric": ["rps"] * 8, "value": times}), foreign)
    ltctl = {key: {"a": 1.0} for key in ("AvgStoreTimes", "P99StoreTimes", "AvgAPITimes", "P99APITimes")}
    points = [[t, "1"] for t in times]
    window = {"StartTime": "2023-11-14T22:13:20Z", "EndTime": "2023-11-14T22:14:20Z"}
    fields = [{"type": "time", "values": [1e12, 2e12]}, {"type": "number", "values": [1, 2], "labels": {"a": "b"}}]
    panels = [{"title": "RPS", "snapshotData": [{"fields": fields}]}]
    answer = {"metric": {"a": "b"}, "values": points}
    params = (Path(__file__).parents[1] / "params/v9.6.0-rc1.yaml").read_bytes()
    return {
        "ours": (folder / "o").read_bytes(),
        "parquet": foreign.getvalue(),
        "csv": b"timestamp,metric,value,host\n1,rps,1,a\n2,rps,2,a\n",
        "ltctl": json.dumps({**window, **ltctl, "Graphs": [{"Name": "RPS", "Values": points}]}).encode(),
        "grafana": json.dumps({"dashboard": {"panels": panels}}).encode(),
        "answer": json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [answer]}}).encode(),
        "params": params,
    }


def changed(contents: bytes, rng: random.Random) -> bytes:
    """The same with some of it changed, cut, doubled or packed; JSON also by one of its values."""
    if contents[:1] == b"{" and rng.random() < 0.6:
        return _with_an_odd_value(contents, rng)
    made = bytearray(contents)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(5):
            case 0 if at < len(made):
                made[at] ^= 1 << rng.randrange(8)
            case 1:
                made[at : at + rng.choice((1, 4, 64))] = b""
            case 2:
                made[at:at] = made[at : at + 40] * rng.choice((1, 3, 200))
            case 3:
                made[at:at] = rng.choice(
                    (b"\x00", b"\xff", b"\x1b[2J", b"\xed\xa0\x80", b"9" * 400, b'"', b"[" * 5_000)
                )
            case _:
                made[at:] = made[at:][::-1] if rng.random() < 0.1 else made[at:]
    return gzip.compress(bytes(made)) if rng.random() < 0.05 else bytes(made)


def _with_an_odd_value(contents: bytes, rng: random.Random) -> bytes:
    whole = json.loads(contents)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            places.append((value, key))
            walk(value[key])

    walk(whole)
    holder, key = rng.choice(places)
    holder[key] = rng.choice(ODD)
    return json.dumps(whole).encode()


def swallow(kind: str, contents: bytes, folder: Path) -> None:
    """Give `contents` to the reader of `kind`, which makes a recording or an error of ours of it within seconds."""
    started, said = time.monotonic(), ""
    try:
        if kind == "answer":
            read_answer([contents[:100], contents[100:]])
        elif kind == "params":
            (folder / "x.yaml").write_bytes(contents)
            read_params(folder / "x.yaml")
        else:
            (folder / "x").write_bytes(contents)
            said = repr(read(folder / "x"))
    except BuildcompareError as error:
        said = str(error)
        assert "\n" not in said
        assert len(said) < 6_000
    except (PassingError, RefusedAnswerError):
        pass
    assert all(c.isprintable() or c == "\n" for c in said), ascii(said)
    assert time.monotonic() - started < HANGS_S
