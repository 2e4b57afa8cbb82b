"""Bytes for every reader: files that are right, changed by chance, and what once broke a reader (tests/corpus)."""

import contextlib
import functools
import gzip
import io
import json
import operator
import os
import random
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

import buildcompare as bc
from buildcompare.calibration.learn import CalibrationSpec, read_calibration
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Source, read_params
from buildcompare.config.yaml import checked, read_yaml
from buildcompare.history.ledger import read_ledger
from buildcompare.profiles.stacks import read_profile
from buildcompare.recordings import sources, table
from buildcompare.recordings.files import read_input
from buildcompare.recordings.prometheus_answer import PassingError, RefusedAnswerError, read_answer
from buildcompare.recordings.recording import Recording, Series
from buildcompare.report.markdown import BLOCKS, markers, put_written, read_written
from buildcompare.results import Results
from investigation.comments import keep_comment
from labmatrix.experiment import run as experiment
from labmatrix.experiment.matrix import cells, read_matrix
from labmatrix.params import read_variants
from loadexport import export
from loadfiles.comparisons import read_table

PROJECT = Path(__file__).parents[1]
CORPUS = Path(__file__).parent / "corpus"
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 5, 1e308, 1e-320, float("nan"), float("inf"), 10**400, "", "x", "\ud800", "\x1b[31m", "\0",
    "1_000", "9999-12-31", [], [[]], {}, {"a": []}, [1, 2, 3],
)  # fmt: skip
TOKENS = (
    b"0", b"-1", b"1e308", b"nan", b"NaN", b"1733911200000", b"45637.5", b"202412111000", b"ms", b"s", b"unit", b"%",
    b"timestamp", b"2024-12-11T10:00:00Z", b"12:00:00", b"AM", b"EST", b"true", b"null", b"9" * 30, b"\xc2\xb5s", b"",
)  # fmt: skip
"""What stands in files, where something else is expected."""
PARTS = (b"\x00", b"\xff", b"\x1b[2J", b"\xed\xa0\x80", b"9" * 400, b'"', b"[" * 5_000)
HANGS_S = 10.0
"""CPU seconds that one input may take."""
TURNS = ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI")
TIMES = 1.7e9 + 5.0 * np.arange(8)
EXAMPLE = Recording((Series("rps", "RPS", "", TIMES, TIMES),), (TIMES[0], TIMES[-1]), True)
SUMMARY = b"""\
pgbench (15.4)
transaction type: <builtin: select only>
scaling factor: 50
query mode: prepared
number of clients: 8
number of threads: 4
maximum number of tries: 3
duration: 30 s
number of transactions actually processed: 1202211
number of failed transactions: 12 (0.001%)
latency average = 0.200 ms (including failures)
initial connection time = 12.345 ms
tps = 40086.123456 (without initial connection time)
"""
PROGRESS = b"""\
progress: 5.0 s, 540.2 tps, lat 7.210 ms stddev 2.715, 0 failed
progress: 10.0 s, 554.8 tps, lat 7.010 ms stddev 2.615, 0 failed
"""
LOG = b"0 199 2241 0 1175850568 995598\n0 200 2465 0 1175850568 998079\n1 1 3000 0 1175850569 608\n"
VMSTAT = b"""\
procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu----- -----timestamp-----
 r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st                 UTC
 3  0      0 21333016  56404 2989900    0    0   237  1210  518 1599 70  5 24  0  0 2024-03-01 16:08:08
 4  1      0 21333016  56404 2989900    0    0     0     8  575  152 60  1 39  0  0 2024-03-01 16:08:10
"""
PPROF = (  # sample_type, two texts for it, a function, a location of it, a sample there
    b"\x0a\x04\x08\x01\x10\x02" + b"\x32\x00\x32\x03cpu\x32\x02ns\x32\x04main"
    b"\x2a\x04\x08\x01\x10\x03" + b"\x22\x06\x08\x01\x22\x02\x08\x01" + b"\x12\x06\x0a\x01\x01\x12\x01\x05"
)
GROUPS = b"""\
source: {kind: recorded}
groups:
  - name: a
    type: bounded
    runs: [{recording: a.csv}, {recording: b.csv, start: "2024-01-01T00:00:00Z", end: "2024-01-02T00:00:00Z"}]
"""
MATRIX = b"""\
name: modes
factors: {mode: [simple, prepared], clients: [1, 8]}
workload: [clients]
repeats: 2
seed: 7
targets: ["127.0.0.1:5432"]
command: [pgbench, -M, "{mode}", -c, "{clients}", bench]
beside: {iostat.json: {shell: "iostat -o JSON 5"}}
ready: {pattern: "^tps = (.*)"}
result: {values: {tps: "tps = ([0-9.]+)"}}
"""
PAST = b"""\
release,monthly,order,base_label,new_label,db,test_type,su_base,su_new,errors_base,delta_pct,dataset
v9.6,yes,1,v9.5.0,v9.6.0-rc1,mysql,unbounded,9230,9219,3,-0.119,large
v9.6,yes,1,v9.5.0,v9.6.0-rc1,postgresql,bounded,,,0,,large
study,study,,a,b,mysql,bounded,,,,,
"""
ENTRY: dict[str, Any] = {
    "schema_version": 1, "name": "x", "kind": "monthly", "position": 1, "base": {"label": "v9.5.0", "version": "9.5.0"},
    "new": {"label": "v9.6.0", "version": "9.6.0"}, "verdict": "pass", "source": "report", "setup": {"Dataset": "a|b"},
    "coordinator": {"rest_s": 2.0}, "servers": ["v9"],
    "tests": [{
        "name": "t", "type": "unbounded", "db_engine": "mysql", "users": 900,
        "supported_users": {"base": 9230.0, "new": 9219.5}, "errors": {"base": 3}, "looks": [[1, 1]],
        "levels_of_runs": {"rps": {"base": [1.5], "new": [2.5]}}, "within_se_log": {"rps": 0.1},
        "at_load": {"rps": {"users": 900.0, "base": 1.0, "new": 2.0, "within_se_log": 0.1}}, "misread": ["rps"],
        "windows_s": {"base": [60.0], "new": [60.0]}, "samples": ["00ff"], "written": {"base": 9230, "new": None},
    }],
}  # fmt: skip
CALIBRATION = {
    "method": 7, "metrics": "mattermost", "self_check": {"metrics": {"rows": 2, "called": 0}},
    "groups": [{
        "name": "a", "type": "bounded", "at_load": {"rps": [0.1, 0.01, 3.0]},
        "runs": [{"inputs": ["a.csv"], "ids": ["00ff"], "metrics": {"rps": [1.5, 0.1, None]},
                  "labels": {"api": {"avg": {"getPost": [0.1, None]}}}, "no_change": {"rps": 3.0}}] * 2,
    }],
}  # fmt: skip
END = "\nby *hand*\n<!-- hand-written end"
COMMENTED = b"""\
base: {label: a}
new: {label: b}
source: {kind: recorded}
comments: # those of
  - 'an analyst'
tests:
  - {name: t, type: bounded, base: {recording: a.csv}, new: {recording: b.csv}}
"""


def of_load_testers() -> dict[str, list[bytes]]:
    """Small files of load testers, by format."""
    recorded = CORPUS.parent / "load_tools"

    def cut(name: str, lines: int = 12) -> bytes:
        contents = (recorded / name).read_bytes()
        text = gzip.decompress(contents) if name.endswith(".gz") else contents
        return b"".join(text.splitlines(keepends=True)[:lines])

    sample = b'<httpSample t="15" ts="1760000000000" s="true" lb="a" na="5"><httpSample t="1" lb="b"/></httpSample>'
    values = b'{"metadata":{"name":"b"},"runs":[{"values":[0.1,0.2]}]}'
    return {
        "k6.csv": [cut("k6.csv.gz")],
        "k6.json": [cut("k6.json.gz")],
        "k6-summary": [(recorded / "k6-summary.json").read_bytes()],
        "jmeter.csv": [cut("jmeter.jtl.gz")],
        "jmeter.xml": [b'<?xml version="1.0"?>\n<testResults version="1.2">' + 3 * sample + b"</testResults>"],
        "locust": [cut("locust/base/run1_stats_history.csv")],
        "gatling": [cut("gatling.log.gz", 40)],
        "vegeta.csv": [cut("vegeta.csv.gz", 3)],
        "vegeta.json": [cut("vegeta.json.gz", 3)],
        "vegeta.txt": [b"Requests [total, rate]  3, 5.0\nLatencies [mean, 50]  2ms, 1.5s\nSuccess [ratio]  99.0%\n"],
        "vegeta": [b'{"latencies":{"mean":20000000,"50th":18000000,"95th":4e7,"99th":5e7},"rate":50.0,"success":0.99}'],
        "oha": [b'{"summary":{"successRate":0.9,"average":0.02,"requestsPerSec":5},"latencyPercentiles":{"p50":0.01}}'],
        "wrk": [b"Running 6s test @ http://a/\n    Latency    20.00ms\n  300 requests in 6.00s, 1MB read\n"],
        "hey": [
            b"Summary:\n  Total:\t6.0 secs\n  Average:\t0.0200 secs\n  Requests/sec:\t50.0\n  [200]\t9 responses\n"
        ],
        "logs": [b"".join(b'{"ts":%d,"msg":"a %d"}\n' % (1_760_000_000 + i, i) for i in range(0, 60, 10))],
        "pyperf": [b'{"benchmarks":[' + values + b'],"version":"1.0"}'],
    }


def right(folder: Path) -> dict[str, list[bytes]]:
    """Whole inputs of each kind, by the reader that takes them."""
    table.write_recording(EXAMPLE, folder / "o")
    head = pq.read_table(folder / "o").schema.metadata[b"buildcompare"]
    foreign = io.BytesIO()
    pq.write_table(pa.table({"timestamp": TIMES, "metric": ["rps"] * 8, "value": TIMES}), foreign)
    ltctl = {key: {"a": 1.0} for key in ("AvgStoreTimes", "P99StoreTimes", "AvgAPITimes", "P99APITimes")}
    points = [[t, "1"] for t in TIMES]
    window = {"StartTime": "2023-11-14T22:13:20Z", "EndTime": "2023-11-14T22:14:20Z"}
    fields = [{"type": "time", "values": [1e12, 2e12]}, {"type": "number", "values": [1, 2], "labels": {"a": "b"}}]
    data = {"values": [[1e12, 2e12], [1, None]], "entities": [None, {"NaN": [1]}]}
    target = {"snapshot": [{"schema": {"fields": fields}, "data": data}]}
    panels = [{"title": "RPS", "snapshotData": [{"fields": fields}]}, {"title": "P99", "targets": [target]}]
    answer = {"metric": {"a": "b"}, "values": points}
    asked = {"warnings": ["a"], "data": {"resultType": "matrix", "result": [answer]}}
    disk = {"disk_device": "vda", "r/s": 1.5, "util": 30.0}
    stamps = [{"timestamp": f"03/01/2024 04:00:0{i} PM", "avg-cpu": {"user": 1.0 * i}, "disk": [disk]} for i in (0, 1)]
    cpu = [{"timestamp": "04:00:01 PM", "cpu-load": [{"cpu": "all", "usr": 1.5}]}]
    sadf = [{"timestamp": {"date": "2024-03-01", "time": "04:00:01", "utc": 1}, "network": {"net-dev": [
        {"iface": "eth0", "rxkB": 1.5}]}}]  # fmt: skip

    def text(*values: Any) -> list[bytes]:
        return [json.dumps(value).encode() for value in values]

    return {
        **of_load_testers(),
        "ours": [(folder / "o").read_bytes()],
        "pulled": [(folder / "o").read_bytes()],
        "head": [head],
        "parquet": [foreign.getvalue()],
        "csv": [
            b"timestamp,metric,value,host\n1,rps,1,a\n2,rps,2,a\n",
            b"\xef\xbb\xbfTime;P99 API times (ms);RPS\n2024-01-01 00:00:00;1,5 ms;2\n2024-01-01 00:00:05;1,25;3\n",
            "time_ms\tA\n1700000000000\t1e3\n".encode("utf-16"),
        ],
        "labels": [b"group,label,stat,value\napi,getPost,avg,0.1\napi,getPost,p99,0.5\n"],
        "ltctl": text({**window, **ltctl, "Graphs": [{"Name": "RPS", "Values": points}]}),
        "grafana": text({"dashboard": {"panels": panels}}),
        "pgbench": [SUMMARY, PROGRESS, LOG],
        "sysstat": [VMSTAT, *text(*({"sysstat": {"hosts": [host]}} for host in (
            {"date": "03/13/24", "statistics": stamps}, {"date": "2024-03-01", "statistics": cpu},
            {"file-date": "2024-03-01", "statistics": sadf})))],
        "profile": [b"main;f (a.py:1);g 12\nmain 1\n", PPROF, gzip.compress(PPROF)],
        "answer": text({"status": "success", **asked}, {"status": "error", "errorType": "x", "error": "y"}),
        "params": [(PROJECT / "params/v9.6.0-rc1.yaml").read_bytes(), (PROJECT / "docs/template.yaml").read_bytes()],
        "comments": [COMMENTED],
        "catalogue": [(PROJECT / "params/metrics/pgbench.yaml").read_bytes()],
        "variants": [(PROJECT / "params/azbench.yaml").read_bytes()[:1500].rsplit(b"  - levels", 1)[0]],
        "matrix": [MATRIX],
        "state": text({"key": "k", "facts": {"Kernel": ["6"]}, "cells": {"c": {
            "status": "done", "seconds": 1.5, "result": {"values": {"tps": 5.0}}, "processes": [[5, "x"]]}}}),
        "groups": [GROUPS],
        "calibration": text(CALIBRATION),
        "entry": text(ENTRY),
        "past": [PAST],
        "results": text(a_report()),
        "written": ["\n".join(["# x", *map(markers, BLOCKS)]).replace("\n<!-- hand-written end", END).encode()],
    }  # fmt: skip


def a_report() -> dict[str, Any]:
    """A small results.json: a golden one cut short, with a text for each sentence that golden ones leave out."""
    results: dict[str, Any] = json.loads((CORPUS.parent / "golden/v11.1.0-rc2/results.json").read_text("utf-8"))
    test = results["tests"][0]
    test["metrics"], test["labels"] = test["metrics"][:1], []
    results |= {"tests": [test], "findings": results["findings"][:2], "suggestions": [], "plan": []}
    try:
        Results.model_validate_json(json.dumps(results))
    except ValidationError as error:
        for fault in error.errors():
            holder = functools.reduce(operator.getitem, fault["loc"][:-1], results)
            key = fault["loc"][-1]
            holder[key] = {} if key == "run" else "words" if key in ("text", "detail", "verdict_rule") else None
    return results


def _kept(path: Path, contents: bytes) -> str:
    """As what was pulled is read, but for the server: where the file is no answer it would be asked."""
    slot = sources.Slot("c", "t", "base", 1)
    run = checked(Run, {"start": "2023-11-14T22:13:20Z", "end": "2023-11-14T22:14:20Z"})
    asked = checked(Source, {"kind": "prometheus", "url": "http://localhost"})
    place = path.parent / slot.path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(contents)
    file = read_input(str(place), expected="a recording")
    table.read_head(table.open_table(file, only_schema=True), file)
    sources.is_kept(slot, run, asked, read_catalogue("mattermost"))
    return repr(table.read_recording(table.open_table(file), file))


def _head(path: Path, contents: bytes) -> str:
    """What stands in a recording of ours beside its series, under a seal that is right."""
    made = pa.table({"metric": ["rps"]}).replace_schema_metadata({b"buildcompare": contents})
    if b"-1" not in contents:  # as a file of an earlier version
        table.write_recording(EXAMPLE, path)
        made = pq.read_table(path).replace_schema_metadata({b"buildcompare": contents})
    path.write_bytes(table.sealed(made))
    return repr(bc.read(path))


def _labels(path: Path, contents: bytes) -> str:
    (path.parent / "x.csv").write_bytes(b"timestamp,metric,value\n1,rps,1\n2,rps,2\n")
    return repr(bc.read(path.parent / "x.csv", labels=path))


def _answer(path: Path, contents: bytes) -> str:
    read_answer([contents[:100], contents[100:]])
    return ""


def _state(path: Path, contents: bytes) -> str:
    matrix = path.with_name("matrix.yaml")
    matrix.write_bytes(MATRIX)
    place = path.parent / "experiment"
    place.mkdir(exist_ok=True)
    known = read_matrix(matrix)
    (place / experiment.STATE).write_bytes(contents.replace(b'"k"', json.dumps(known.key).encode()))
    return repr(len(experiment._read(known, place).cells))


def _ledger(path: Path, contents: bytes, name: str) -> str:
    place = path.parent / "ledger"
    place.mkdir(exist_ok=True)
    (place / name).write_bytes(contents)
    ledger = read_ledger(place)
    entries = ledger.entries
    return repr((len(entries), ledger.next_position, [ledger.find(each) is None for each in entries]))


def _results(path: Path, contents: bytes) -> str:
    results = export.read_results(path)
    export.openmetrics(results)
    return "".join(export.statsd_lines(results))


def _written(path: Path, contents: bytes) -> str:
    put_written("# made\n" + markers("comments"), read_written(path))
    return ""


READERS: dict[str, Callable[[Path, bytes], str]] = {
    **dict.fromkeys(
        ("ours", "parquet", "csv", "ltctl", "grafana", "pgbench", "sysstat", *of_load_testers()),
        lambda path, _: repr(bc.read(path)),
    ),
    "pulled": _kept, "head": _head, "labels": _labels, "answer": _answer, "state": _state, "results": _results,
    "written": _written,
    "profile": lambda path, _: repr(len(read_profile(str(path)).stacks)),
    "params": lambda path, _: repr(len(read_params(path).tests)),
    "comments": lambda path, _: repr(keep_comment(path, 'a "comment": # of mine')),
    "catalogue": lambda path, _: repr(len(read_catalogue(str(path)).metrics)),
    "variants": lambda path, _: repr(len(read_variants(path).runs)),
    "matrix": lambda path, _: repr(len(cells(read_matrix(path)))),
    "groups": lambda path, _: repr(len(checked(CalibrationSpec, read_yaml(path)).groups)),
    "calibration": lambda path, _: repr(len(read_calibration(str(path), "mattermost").repeated_runs())),
    "entry": lambda path, contents: _ledger(path, contents, "x.json"),
    "past": lambda path, _: repr(len(read_table(path))),
}  # fmt: skip
"""By kind, what is done with a file of such bytes."""
YAML = ("params", "comments", "catalogue", "variants", "matrix", "groups")


def changed(contents: bytes, rng: random.Random) -> bytes:
    """The same with some of it changed, cut, doubled or packed, or with its structure kept and a part of it changed."""
    if rng.random() < 0.4 and (other := restructured(contents, rng)):
        return other
    if contents[:1] == b"{" and rng.random() < 0.6:
        lines = contents.splitlines() if b"}\n{" in contents else [contents]
        at = rng.randrange(len(lines))
        return b"\n".join([*lines[:at], with_an_odd_value(lines[at], rng), *lines[at + 1 :]])
    made = bytearray(contents)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(made) + 1)
        flipped = bytes(each ^ 1 << rng.randrange(8) for each in made[at : at + 1])
        doubled = bytes(made[at : at + 40]) * rng.choice((1, 3, 200))
        cut, put = rng.choice(((1, flipped), (rng.choice((1, 4, 64)), b""), (0, doubled), (0, rng.choice(PARTS))))
        made[at : at + cut] = put
    return gzip.compress(bytes(made)) if rng.random() < 0.05 else bytes(made)


def restructured(contents: bytes, rng: random.Random) -> bytes | None:
    """A file that its format's library still reads, with parts exchanged, doubled or replaced; None of other kinds."""
    if contents[:4] == b"PAR1":
        with contextlib.suppress(pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError):
            return _other_parquet(pq.read_table(io.BytesIO(contents), page_checksum_verification=True), rng)
        return None
    if contents == PPROF:
        with contextlib.suppress(ValueError, IndexError):  # no message was left
            return _other_message(contents, rng)
    if contents[:1] == b"{" or b"\0" in contents[:200] or contents[:2] == b"\x1f\x8b":
        return None
    tokens = re.split(rb"([^\w.]+)", contents)  # texts at even places, what separates them at odd ones
    for _ in range(rng.choice((1, 2, 5))):
        here, there = (rng.randrange(len(tokens) // 2 + 1) * 2 - rng.choice((0, 0, 0, 1)) for _ in range(2))
        way = rng.randrange(4)
        if way < 2:
            tokens[here], tokens[there] = (tokens[there], tokens[here] if way else tokens[there])
        else:
            tokens[here] = rng.choice(TOKENS) if way == 2 else tokens[here] * rng.choice((2, 50))
    return b"".join(tokens)


def _other_parquet(table: pa.Table, rng: random.Random) -> bytes:
    """Columns exchanged, doubled, cast, emptied or with one odd value; other metadata, encodings and row groups."""
    place = rng.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    way = rng.randrange(6)
    if way == 0:
        table = table.rename_columns(rng.sample(table.column_names, table.num_columns))
    elif way == 1:
        table = table.append_column(rng.choice((name, "unit", "timestamp", "")), column)
    elif way == 2:
        kinds = (pa.string(), pa.int8(), pa.timestamp("ns", "Asia/Tokyo"), pa.duration("s"), pa.date32(), pa.float16())
        table = table.set_column(place, name, column.cast(rng.choice(kinds), safe=False))
    elif way == 3 and table.num_rows:
        values = column.to_pylist()
        values[rng.randrange(len(values))] = rng.choice((None, values[0], *ODD))
        table = table.set_column(place, name, pa.array(values))
    elif way == 4:
        table = table.replace_schema_metadata({rng.choice((b"pandas", b"buildcompare")): json.dumps(rng.choice(ODD))})
    else:
        table = pa.concat_tables([table.slice(0, rng.choice((0, 1, 8)))] * rng.choice((1, 3)))
    sink = io.BytesIO()
    codec, rows = rng.choice(("none", "snappy", "zstd", "gzip")), rng.choice((1, 3, 100))
    pq.write_table(table, sink, compression=codec, row_group_size=rows, use_dictionary=rng.random() < 0.5)
    return sink.getvalue()


def _other_message(contents: bytes, rng: random.Random) -> bytes:
    """A protobuf whose fields (two bytes and their contents) are exchanged, doubled, nested or of another number."""
    fields, place = list[bytes](), 0
    while place < len(contents):
        size = 2 + (contents[place + 1] if contents[place] & 7 == 2 else 0)
        fields.append(contents[place : place + size])
        place += size
    for _ in range(rng.choice((1, 2, 4))):
        here = rng.randrange(len(fields))
        head, *rest = fields[here]
        odd = rng.choice((b"\x00", b"\x7f", b"\xff" * 9 + b"\x01", b"\x80\x80\x01"))
        inner = bytes(rest[1:]) + bytes([rng.choice((8, 16, 24, 10))]) + odd
        nested = _other_message(bytes(rest[1:]), rng) if len(rest) > 2 and rest[1] & 7 in (0, 2) else inner
        fields[here : here + 1] = rng.choice(
            (
                [fields[here]] * rng.choice((2, 500)),
                [bytes([rng.randrange(1, 16) << 3 | head & 7, *rest])],
                [bytes([head, min(len(inner), 127)]) + inner],
                [bytes([head, len(nested)]) + nested] if len(nested) < 128 else [],
                rng.choices(fields, k=2),
            )
        )
    return b"".join(fields)


def with_an_odd_value(contents: bytes, rng: random.Random) -> bytes:
    """JSON with one of its values, or one of its keys, replaced."""
    whole = json.loads(contents)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            places.append((value, key))
            walk(value[key])

    walk(whole)
    holder, key = rng.choice(places)
    way = rng.randrange(6)
    if way == 0 and isinstance(holder, dict):
        holder[str(rng.choice(ODD))] = holder.pop(key)
    elif way == 1:
        del holder[key]
    else:
        holder[key] = rng.choice(places)[0] if way == 2 else rng.choice(ODD)
    try:
        return json.dumps(whole).encode()
    except (ValueError, RecursionError):  # a value was put into itself
        return contents


def swallow(kind: str, contents: bytes, folder: Path) -> None:
    """Give `contents` to the reader of `kind`, which makes something or an error of ours of it within seconds."""
    started, said, fault = cpu_s(), "", None
    path = folder / ("x.yaml" if kind in YAML else "x")
    path.write_bytes(contents)
    try:
        said = READERS[kind](path, contents)
    except bc.BuildcompareError as error:
        said, fault = str(error), error
    except (PassingError, RefusedAnswerError):
        pass
    if fault is not None:
        assert "\n" not in said
        assert len(said) < 6_000
    kinds = {kind for c in {*said} - {"\n"} for kind in (unicodedata.category(c), unicodedata.bidirectional(c))}
    assert not kinds & {"Cc", "Cs", "Zl", "Zp", *TURNS}, ascii(said)
    assert cpu_s() - started < HANGS_S


def cpu_s() -> float:
    """CPU seconds of this process and of those that it started and saw end: on a busy machine a clock says nothing."""
    return sum(os.times()[:4])
