"""Bytes for every reader: files that are right, changed by chance, and what once broke a reader (tests/corpus)."""

import contextlib
import gzip
import io
import json
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

import buildcompare as bc
from buildcompare.calibration.file import read_calibration
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Source
from buildcompare.config.yaml import checked, read_yaml
from buildcompare.history.ledger import read_ledger
from buildcompare.profiles.stacks import read_profile
from buildcompare.recordings import sources, table
from buildcompare.recordings.files import read_input
from buildcompare.recordings.prometheus_answer import PassingError, RefusedAnswerError, read_answer
from buildcompare.recordings.recording import Series
from buildcompare.report.markdown import BLOCKS, markers, put_written, read_written
from investigation.comments import keep_comment
from labmatrix.experiment import run as experiment
from labmatrix.experiment.matrix import cells, read_matrix
from labmatrix.params import read_variants
from loadcalibrate.learn import CalibrationSpec
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
EXAMPLE = bc.Recording((Series("rps", "RPS", "", TIMES, TIMES),), (TIMES[0], TIMES[-1]), True)
SEEDS = Path(__file__).parent / "seeds"
"""Small whole files, named `KIND-WHAT` by the reader that takes them."""


def seed(name: str) -> bytes:
    return (SEEDS / name).read_bytes()


ENTRY: dict[str, Any] = json.loads(seed("entry-report"))
PPROF, MATRIX = seed("profile-pprof"), seed("matrix-modes")
END = "\nby *hand*\n<!-- hand-written end"


def cut(name: str, lines: int = 12) -> bytes:
    contents = (CORPUS.parent / "load_tools" / name).read_bytes()
    text = gzip.decompress(contents) if name.endswith(".gz") else contents
    return b"".join(text.splitlines(keepends=True)[:lines])


def right(folder: Path) -> dict[str, list[bytes]]:
    table.write_recording(EXAMPLE, folder / "o")
    head = pq.read_table(folder / "o").schema.metadata[b"buildcompare"]
    foreign = io.BytesIO()
    pq.write_table(pa.table({"timestamp": TIMES, "metric": ["rps"] * 8, "value": TIMES}), foreign)
    whole = {
        "ours": [(folder / "o").read_bytes()],
        "pulled": [(folder / "o").read_bytes()],
        "head": [head],
        "parquet": [foreign.getvalue()],
        "profile": [gzip.compress(PPROF)],
        "k6.csv": [cut("k6.csv.gz")],
        "k6.json": [cut("k6.json.gz")],
        "k6-summary": [cut("k6-summary.json", 1000)],
        "jmeter.csv": [cut("jmeter.jtl.gz")],
        "locust": [cut("locust/base/run1_stats_history.csv")],
        "gatling": [cut("gatling.log.gz", 40)],
        "vegeta.csv": [cut("vegeta.csv.gz", 3)],
        "vegeta.json": [cut("vegeta.json.gz", 3)],
        "params": [(PROJECT / "params/v9.6.0-rc1.yaml").read_bytes(), (PROJECT / "docs/template.yaml").read_bytes()],
        "catalogue": [(PROJECT / "params/metrics/pgbench.yaml").read_bytes()],
        "variants": [(PROJECT / "params/azbench.yaml").read_bytes()[:1500].rsplit(b"  - levels", 1)[0]],
        "results": [json.dumps(a_report()).encode()],
        "written": ["\n".join(["# x", *map(markers, BLOCKS)]).replace("\n<!-- hand-written end", END).encode()],
    }
    for file in sorted(SEEDS.iterdir()):
        whole.setdefault(file.name.partition("-")[0], []).append(file.read_bytes())
    return whole


def a_report() -> dict[str, Any]:
    files = (CORPUS.parent / f"load_tools/locust/{build}/run1_stats_history.csv" for build in ("base", "new"))
    results: dict[str, Any] = json.loads(bc.compare(*files).to_json())
    (test,) = results["tests"]
    test |= {"metrics": test["metrics"][:1], "labels": test["labels"][:2]}
    return results


def _kept(path: Path, contents: bytes) -> str:
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


RECORDINGS = (
    "ours", "parquet", "csv", "ltctl", "grafana", "pgbench", "sysstat", "k6.csv", "k6.json", "k6-summary", "jmeter.csv",
    "jmeter.xml", "locust", "gatling", "vegeta.csv", "vegeta.json", "vegeta.txt", "vegeta", "oha", "wrk", "hey", "logs",
    "pyperf",
)  # fmt: skip
READERS: dict[str, Callable[[Path, bytes], str]] = {
    **dict.fromkeys(RECORDINGS, lambda path, _: repr(bc.read(path))),
    "pulled": _kept, "head": _head, "labels": _labels, "answer": _answer, "state": _state, "results": _results,
    "written": _written,
    "profile": lambda path, _: repr(len(read_profile(str(path)).stacks)),
    "params": lambda path, _: repr(len(bc.read_params(path).tests)),
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
        doubled = bytes(made[at : at + rng.choice((1, 40))]) * rng.choice((1, 3, 200, 9_000))
        cut, put = rng.choice(((1, flipped), (rng.choice((1, 4, 64)), b""), (0, doubled), (0, rng.choice(PARTS))))
        made[at : at + cut] = put
    return gzip.compress(bytes(made)) if rng.random() < 0.05 else bytes(made)


def restructured(contents: bytes, rng: random.Random) -> bytes | None:
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
    return sum(os.times()[:4])
