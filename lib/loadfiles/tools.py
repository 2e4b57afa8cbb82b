"""Read the files of load testers in pieces; the endpoint of each request becomes a label."""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import itemgetter
from typing import BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pyarrow import compute
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve
from buildcompare.recordings.files import InputFile, head_of, unpacked
from buildcompare.recordings.formats import Format
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import TESTED, FloatArray, LabelSummary, Note, Series, to_float
from loadfiles import logs
from loadfiles.request_log import (
    FAILURES,
    GROUP,
    MOST_NAMES,
    SETTLE_S,
    Intervals,
    RequestLog,
    aggregated,
    endpoint_of,
    in_seconds,
    labelled,
)
from loadfiles.summaries import NUMBERS

_TEXT = pa.dictionary(pa.int32(), pa.string())
_BLOCK, _ROWS = 4_000_000, 50_000  # bytes that are parsed, and requests that are counted, at a time
_TIMES, _FAILED = ("http_req_duration", "grpc_req_duration"), "http_req_failed"
TRANSACTION = r"^Number of samples in transaction : \d+"  # begins the message of JMeter's sums of samples
_SAMPLES = ("httpSample", "sample")
_Row: TypeAlias = tuple[str, float, float, bool, float]
"""One request: its name, when it began and how long it took in seconds, whether it failed, and users or NaN."""


class Tool(NamedTuple):
    """One format: how it is recognised by a file's first bytes, and its reader."""

    name: str
    recognise: Callable[[bytes], bool]
    read: Callable[[BinaryIO, InputFile, Catalogue], Recording]


# ---- Tables of requests ---------------------------------------------------------------------------------------------

_Types: TypeAlias = Mapping[str, pa.DataType | None]


def _csv(
    stream: BinaryIO, file: InputFile, types: _Types, *, optional: _Types | None = None, names: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `types` of a CSV, and those of `optional` that are there; `names` are used without a header."""
    line = head_of(str(file.path)).partition(b"\n")[0].decode("utf-8-sig", "replace")
    delimiter = max(",;\t", key=line.count)
    header = next(csv.reader([line], delimiter=delimiter))
    names = () if names and names[0] in header else names
    if names and len(header) != len(names):
        raise file.fault("columns", f"a header, or {len(names)} columns", f"{len(header)} columns")
    columns = names or header
    types = {**types, **{name: each for name, each in (optional or {}).items() if name in columns}}
    if odd := [name for name in types if columns.count(name) != 1]:
        raise file.fault("columns", f"the column {odd[0]} once", delimiter.join(header)[:80])
    yield from arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(block_size=_BLOCK, use_threads=False, column_names=names or None),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=False),
        convert_options=arrow_csv.ConvertOptions(
            include_columns=[*types], column_types={name: each for name, each in types.items() if each is not None}
        ),
    )


def _json_lines(stream: BinaryIO, types: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Yield the fields `types` of JSON lines piece by piece."""
    options = arrow_json.ParseOptions(explicit_schema=pa.schema(types), unexpected_field_behavior="ignore")
    yield from arrow_json.open_json(stream, arrow_json.ReadOptions(block_size=_BLOCK), options)


def _coded(log: RequestLog, name: Callable[..., str], *columns: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Number the endpoint of each row; `name` makes its name from the texts of `columns`."""
    texts = [column.dictionary.to_pylist() or [""] for column in columns]
    places = [column.indices.fill_null(0).to_numpy() for column in columns]
    shape = [len(each) for each in texts]
    used, row = np.unique(np.ravel_multi_index(places, shape), return_inverse=True)
    each_text = ([text[i] for i in at] for text, at in zip(texts, np.unravel_index(used, shape), strict=True))
    return log.codes(map(name, *each_text))[row]


def _seconds(times: pa.Array, per_s: float | None = None) -> FloatArray:
    """Convert times to seconds since 1970: dates, or numbers in units of 1 / `per_s` s (default: by their size)."""
    if pa.types.is_string(times.type):
        times = compute.replace_substring(times, "/", "-").cast(pa.timestamp("ns"))
    if pa.types.is_timestamp(times.type):
        times, per_s = times.cast(pa.timestamp("ns")).cast(pa.int64()), 1e9
    return in_seconds(_numbers(times)) if per_s is None else _numbers(times) / per_s


def _numbers(values: pa.Array) -> FloatArray:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _k6(batches: Iterable[Iterable[pa.Array]], log: RequestLog) -> None:
    """Count k6's points: metric, time, value (milliseconds for times), method and name."""
    for metric, at, value, *endpoint in batches:
        kinds, texts = metric.dictionary_encode(), [each.dictionary_encode() for each in endpoint]
        times, values, which = _seconds(at), _numbers(value), kinds.indices.to_numpy()
        for code, kind in enumerate(kinds.dictionary.to_pylist()):
            rows = np.flatnonzero(which == code)
            if kind == "vus":
                log.add_users(times[rows], values[rows])
            elif kind == "checks":
                log.add_checks(times[rows], values[rows])
            elif kind == "vus_max":
                log.most_users = max(log.most_users, float(values[rows].max()))
            elif kind == "dropped_iterations":
                log.dropped_s = min(log.dropped_s, float(times[rows].min()))
            elif kind in (*_TIMES, _FAILED):
                taken = pa.array(rows)
                codes = _coded(log, endpoint_of, *(each.take(taken) for each in texts))
                counted = {"failed": values[rows] > 0} if kind == _FAILED else {"elapsed_s": values[rows] / 1e3}
                log.add(times[rows], codes, **counted)


def count_k6_csv(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``k6 run --out csv=FILE``."""
    types = {"metric_name": _TEXT, "timestamp": None, "metric_value": pa.float64(), "method": _TEXT, "name": _TEXT}
    _k6((batch.columns for batch in _csv(stream, log.file, types)), log)


def count_k6_json(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``k6 run --out json=FILE``."""
    tags = pa.struct({"method": pa.string(), "name": pa.string()})
    data = pa.struct({"time": pa.timestamp("ns", "UTC"), "value": pa.float64(), "tags": tags})
    lines = _json_lines(stream, {"metric": pa.string(), "type": pa.string(), "data": data})
    points = (batch.filter(compute.equal(batch["type"], "Point")) for batch in lines)
    fields = (("time",), ("value",), ("tags", "method"), ("tags", "name"))
    _k6(((each["metric"], *(compute.struct_field(each["data"], at) for at in fields)) for each in points), log)


_JTL = re.findall(  # JMeter's columns by default
    r"\w+",
    "timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,failureMessage,bytes,sentBytes,"
    "grpThreads,allThreads,URL,Latency,IdleTime,Connect",
)


def count_jmeter_csv(stream: BinaryIO, log: RequestLog) -> None:
    """Count the JTL file of ``jmeter -n -l FILE`` as CSV; a sample that is part of another counts once."""
    file, nested = log.file, np.zeros(MOST_NAMES + 1)
    types = {"timeStamp": None, "elapsed": pa.float64(), "label": _TEXT, "success": pa.bool_()}
    optional = {"threadName": _TEXT, "allThreads": pa.float64(), "IdleTime": pa.float64(), "responseMessage": _TEXT}
    for batch in _csv(stream, file, types, optional=optional, names=_JTL):  # no header: `print_field_names=false`
        try:
            times = _seconds(batch["timeStamp"], 1e3)
        except pa.ArrowInvalid:
            raise file.fault("timeStamp", "milliseconds since 1970, or dates", str(batch["timeStamp"][0])) from None
        if batch["success"].null_count:
            raise file.fault("success", "true or false", "nothing")
        failed = ~batch["success"].to_numpy(zero_copy_only=False).astype(bool)
        codes = _coded(log, str, batch["label"])
        log.add(times, codes, elapsed_s=_numbers(batch["elapsed"]) / 1e3, failed=failed, rounded_s=1e-3)
        if "allThreads" in batch.schema.names:
            log.add_users(times, _numbers(batch["allThreads"]))
        if "responseMessage" in batch.schema.names:
            nested += np.bincount(codes, _nested(batch, times), nested.size)
    log.left_out = np.flatnonzero(nested > 0)


def _nested(batch: pa.RecordBatch, times: FloatArray) -> FloatArray:
    """Mark JMeter's transactions that hold samples, and parts of a page (``LABEL-NUMBER``), with 1, others with -1."""

    def fits(column: pa.DictionaryArray, pattern: str) -> npt.NDArray[np.bool_]:
        matched = compute.match_substring_regex(column.dictionary, pattern).take(column.indices)
        return np.asarray(matched.fill_null(False).to_numpy(zero_copy_only=False))

    sums, parts = fits(batch["responseMessage"], TRANSACTION), fits(batch["label"], r".-\d+$")
    start = np.rint(times * 1e3).astype(np.int64)
    if "threadName" in batch.schema.names:
        start += batch["threadName"].indices.fill_null(0).to_numpy().astype(np.int64) << 42
    lasted = [np.nan_to_num(_numbers(batch[name])) for name in ("elapsed", "IdleTime") if name in batch.schema.names]
    end = start + np.sum(lasted, axis=0).astype(np.int64)
    order, starts = np.lexsort((-end, start)), np.sort(start[~sums])
    reach, inside = np.maximum.accumulate(np.where(sums | parts, 0, end)[order]), np.empty(end.size, dtype=bool)
    inside[order] = reach >= end[order]
    holds = np.searchsorted(starts, end) > np.searchsorted(starts, start)
    return np.where(sums | parts, np.where(np.where(sums, holds, inside), 1.0, -1.0), 0.0)


def count_jmeter_xml(stream: BinaryIO, log: RequestLog) -> None:
    """Count the JTL file of JMeter as XML (expat 2.4.1 bounds entities); samples inside samples are their parts."""

    def requests() -> Iterator[_Row]:
        depth = 0
        for event, element in ElementTree.iterparse(stream, ("start", "end")):  # noqa: S314  # expat bounds entities
            depth += (1 if event == "start" else -1) if element.tag in _SAMPLES else 0
            if event == "end" and depth == 0 and element.tag in _SAMPLES:
                yield from map(request, _single(element))
                element.clear()

    def request(sample: ElementTree.Element) -> _Row:
        at, seconds = (to_float(sample.get(key, "")) / 1e3 for key in ("ts", "t"))
        if (success := sample.get("s", "")) not in ("true", "false"):
            raise log.file.fault("samples", "`s` of true or false", repr(success))
        users = to_float(threads) if (threads := sample.get("na", "")).isdecimal() else np.nan
        return sample.get("lb", ""), at, seconds, success == "false", users

    _count(requests(), log)


def _single(sample: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Yield the samples inside a transaction (without a message it was cut off), or else the sample itself."""
    inner, message = [each for each in sample if each.tag in _SAMPLES], sample.get("rm", "")
    if not re.match(TRANSACTION, message) and (message or not inner or sample.tag == "httpSample"):
        yield sample
        return
    for each in inner:
        yield from _single(each)


def _count(requests: Iterator[_Row], log: RequestLog) -> None:
    """Count single requests, as many at a time as fit in memory."""
    while rows := [*islice(requests, _ROWS)]:
        names, *columns = zip(*rows, strict=True)
        times, seconds, failed, users = map(np.array, columns)
        log.add(times, log.codes(names), elapsed_s=seconds, failed=failed, rounded_s=1e-3)
        log.add_users(times[np.isfinite(users)], users[np.isfinite(users)])


def count_gatling(stream: BinaryIO, log: RequestLog) -> None:
    """Count Gatling's ``simulation.log`` of version 2 to 3.11, text with four times a request up to 2.1, later two."""
    joined = list[tuple[float, int]]()

    def requests() -> Iterator[_Row]:
        for number, line in enumerate(stream, 1):
            try:
                fields = line.decode().rstrip("\r\n").split("\t")
                if fields[0] == "REQUEST":
                    end = next(i for i, word in enumerate(fields) if word in ("OK", "KO") and fields[i - 1].isdigit())
                    first = end - (4 if end > 6 and "".join(fields[end - 4 : end]).isdigit() else 2)
                    start, stop = to_float(fields[first]), to_float(fields[end - 1])
                    groups = ",".join(fields[max(first - 2, 1) : first - 1]).split(",")
                    name = " / ".join(filter(None, (*groups, fields[first - 1])))
                    yield name, start / 1e3, max(stop - start, 0) / 1e3, fields[end] == "KO", np.nan
                elif fields[0] == "USER" and line.endswith(b"\n"):
                    word = next(each for each in fields if each in ("START", "END"))
                    joined.append((to_float(fields[-1] or fields[-2]) / 1e3, 1 if word == "START" else -1))
            except (StopIteration, ValueError, IndexError):
                if not line.endswith(b"\n"):
                    log.notes = (Note("source", "the last line is cut off, and left out"),)
                    return
                found = repr(line[:80].decode("utf-8", "replace"))
                raise log.file.fault(f"line {number}", "a REQUEST or USER of Gatling", found) from None

    _count(requests(), log)
    times, changes = np.array(sorted(joined, key=itemgetter(0)), dtype=np.float64).reshape(-1, 2).T
    if not (times.size and _is_open(times, changes)):
        log.add_users(times, changes.cumsum())


def _is_open(times: FloatArray, changes: FloatArray) -> bool:
    """Whether users arrive in an open model and are no load: their number varies, and each stays only briefly."""
    users, length = changes.cumsum(), float(np.ptp(times))
    amid = users[np.searchsorted(times, times[0] + length * np.linspace(0.4, 0.8, 999), side="right") - 1]
    stay = users[:-1] @ np.diff(times) / max((changes > 0).sum(), 1)
    return bool(stay < length / 5 and amid.std() > amid.mean() / 20)


_VEGETA = ["timestamp", "code", "latency", "out", "in", "error", "body", "attack", "seq", "method", "url", "headers"]
_ATTACK = {"code": pa.int64(), "latency": pa.float64(), "method": pa.string(), "url": pa.string()}


def count_vegeta(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``vegeta encode``, JSON or (``--to csv``) CSV."""
    if head_of(str(log.file.path)).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        batches = _json_lines(stream, {"timestamp": pa.timestamp("ns", "UTC"), **_ATTACK})
    else:
        batches = _csv(stream, log.file, {"timestamp": pa.int64(), **_ATTACK}, names=_VEGETA)
    for batch in batches:
        codes, latency = _numbers(batch["code"]), _numbers(batch["latency"])
        endpoints = _coded(log, endpoint_of, *(batch[name].dictionary_encode() for name in ("method", "url")))
        failed = (codes < 200) | (codes >= 400)
        log.add(_seconds(batch["timestamp"], 1e9), endpoints, elapsed_s=latency / 1e9, failed=failed)


_HEY = {"response-time": pa.float64(), "status-code": pa.int64(), "offset": pa.float64()}


def count_hey(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``hey -o csv``: times since the start; durations have four decimals."""
    log.zero_s = TESTED[0]
    for batch in _csv(stream, log.file, _HEY):
        seconds, codes, start = (_numbers(batch[name]) for name in _HEY)
        endpoints, failed = np.repeat(log.codes(["all requests"]), seconds.size), (codes < 200) | (codes >= 400)
        log.add(start + log.zero_s, endpoints, elapsed_s=seconds, failed=failed, rounded_s=1e-4)


# ---- Locust: counts so far, by second and by endpoint ----------------------------------------------------------------

HISTORY, STATS = "_stats_history.csv", "_stats.csv"  # ends of the names of Locust's files of one run
BESIDE = (STATS, "_failures.csv", "_exceptions.csv")
SKIPPED = 3  # most seconds in a row that Locust may leave out; their requests are spread evenly over them
_SHARES = {"p50": "50%", "p95": "95%", "p99": "99%"}
_SUMS = ["Total Request Count", "Total Failure Count", "Total Average Response Time"]
_COUNTED = ["User Count", *_SUMS, *_SHARES.values()]
_WHOLE = ["Request Count", "Failure Count", "Average Response Time", *_SHARES.values()]


def read_locust(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
    """Read ``..._stats_history.csv`` of ``locust --csv``, sums so far; ``..._stats.csv`` beside it has endpoints."""
    table = _locust_table(stream, file, ["Timestamp", *_COUNTED])
    series: list[Series] = []
    window: tuple[float, float] | None = None
    table["total"] = table["Total Average Response Time"] * table["Total Request Count"]
    for label, rows in table.groupby(_endpoints(table), sort=False):
        numbers = rows.drop_duplicates(["Name", "Timestamp"], keep="last").set_index("Timestamp").sort_index()
        numbers = numbers[[*_COUNTED, "total"]]
        if len({*rows["Name"]}) > 1:
            numbers = numbers.groupby(level=0).sum()
            numbers[[*_SHARES.values()]] = np.nan  # percentiles cannot be combined
        if len(numbers) < 2:
            continue
        at = numbers.index.to_numpy()
        every = np.unique(np.concatenate([at, *(at[:-1][np.diff(at) > i] + i for i in range(1, SKIPPED + 1))]))
        filled = numbers.reindex(every).interpolate("index", limit=SKIPPED, limit_area="inside")
        seconds = numbers.combine_first(filled).dropna(subset="total")
        if label == "Aggregated":
            window = float(seconds.index[0]), float(seconds.index[-1])
            series += aggregated(_of_seconds(seconds), catalogue, users=seconds["User Count"].to_numpy()[1:])
        else:
            series += labelled(_of_seconds(seconds), str(label))
    if window is None:
        raise file.fault("rows", "at least two rows named Aggregated", "fewer")
    run, is_named, more = str(file.path).partition(HISTORY)
    files, summaries = [file.provenance], list[LabelSummary]()
    if is_named and not more and resolve(run + STATS).is_file():
        with _opened(run + STATS, "locust") as (whole, other):
            table = _locust_table(whole, other, _WHOLE)
        files.append(other.provenance)
        summaries += _locust_summaries(table)
        if not any(each.role == "label" for each in series):  # no `--csv-full-history`
            failed, at = table.groupby(_endpoints(table))["Failure Count"].sum() / np.ptp(window), series[0].times
            rates = {str(label): np.full(at.size, rate) for label, rate in failed.items() if label != "Aggregated"}
            series += (Series(*FAILURES, at, rate, "error", {GROUP: label}) for label, rate in rates.items())
    about = {"kind": "locust", "files": files, "rate_s": SETTLE_S}
    return Recording(tuple(series), window, True, tuple(summaries), provenance=about)


def _of_seconds(rows: pd.DataFrame) -> Intervals:
    """Take the differences between successive rows of sums so far."""
    counts = rows[[*_SUMS[:2], "total"]].diff()
    requests, failed, sums = counts.mask(counts[_SUMS[0]] < 0).to_numpy()[1:].T  # --reset-stats begins again
    at, shares = rows.index.to_numpy(dtype=float), rows[[*_SHARES.values()]].to_numpy()[1:].T / 1e3
    return Intervals(at[1:], np.diff(at), requests, sums / 1e3, failed, dict(zip(_SHARES, shares, strict=True)))


def _locust_table(stream: BinaryIO, file: InputFile, columns: list[str]) -> pd.DataFrame:
    types = dict.fromkeys({*columns} - {"Timestamp"}, pa.float64()) | dict.fromkeys(("Type", "Name"), pa.string())
    convert = arrow_csv.ConvertOptions(column_types=types, null_values=["", "N/A"])
    table: pd.DataFrame = arrow_csv.read_csv(stream, convert_options=convert).to_pandas()
    if missing := [name for name in ("Type", "Name", *columns) if name not in table]:
        raise file.fault("columns", f"the column {missing[0]!r}", ", ".join(map(str, table.columns[:6])))
    return table


def _endpoints(table: pd.DataFrame) -> pd.Series:
    """Name the endpoint of each row; names that differ only by ids and queries are one endpoint."""
    names = [*zip(table["Type"].fillna(""), table["Name"].fillna(""), strict=True)]
    stated, masked = pd.Series(map(" ".join, names), dtype=str).str.strip(), [endpoint_of(*each) for each in names]
    return stated.where(stated.groupby(masked).transform("nunique") == 1, masked).set_axis(table.index)


def _locust_summaries(table: pd.DataFrame) -> Iterator[LabelSummary]:
    """Yield requests, mean and percentiles of each endpoint."""
    for label, rows in table.groupby(_endpoints(table), sort=False):
        calls = rows["Request Count"]
        values = {"calls": calls.sum(), "avg": (rows["Average Response Time"] * calls).sum() / calls.sum() / 1e3}
        values |= {stat: rows[column].iloc[0] / 1e3 for stat, column in _SHARES.items() if len(rows) == 1}
        if "Aggregated" not in {*rows["Name"]}:
            yield from (LabelSummary(GROUP, str(label), stat, float(value)) for stat, value in values.items())


# ---- Formats by their first bytes ------------------------------------------------------------------------------------


def _begins(pattern: bytes) -> Callable[[bytes], bool]:
    return lambda head: re.match(rb"(?s)(?:\xef\xbb\xbf)?\s*+" + pattern, head) is not None


def _is_jmeter(head: bytes) -> bool:
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].strip()
    named = {b"timeStamp", b"elapsed", b"label"} <= {*re.split(rb"[,;\t]", line)}
    return named or re.match(rb"\d{13}([,;\t])\d+\1.*\1(true|false)\1", line) is not None


_REFUSED = (
    ("gatling", rb"\x00.{0,3}\x00.{0,40}?\d+\.\d+", "text (up to version 3.11)", "the binary log of a newer Gatling"),
    ("vegeta", rb".{0,9}\x03\x01\x01\x06Result", "the output of `vegeta encode`", "the results of `vegeta attack`"),
    ("vegeta", rb"Value\(ms\) +Percentile|Bucket +# +%", "`vegeta encode` or `vegeta report`", "a histogram"),
    ("oha", rb"(?:request-start,DNS,|Summary:\s+Success rate:)", "`--output-format json`", "another format"),
    ("k6", rb".{0,9999}?http_req_duration\.*: avg=", "`--out csv` or `--summary-export`", "k6's printed summary"),
    ("locust", rb'\[\s*\{.{0,999}"num_none_requests"|Type,Name,Req', "the history of `--csv`", "sums of the whole run"),
)
"""Tool, pattern of the first bytes, file to give instead, and name of the refused file."""


def _refusing(name: str, pattern: bytes, expected: str, found: str) -> Tool:
    def refuse(_: BinaryIO, file: InputFile, __: Catalogue) -> Recording:
        raise file.fault("format", expected, found)

    return Tool(name, _begins(pattern), refuse)


def _requests(name: str, recognise: Callable[[bytes], bool], count: Callable[[BinaryIO, RequestLog], None]) -> Tool:
    def read(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
        log = RequestLog(file)
        count(stream, log)
        return log.recording(catalogue, name)

    return Tool(name, recognise, read)


TOOLS = (
    _requests("k6", _begins(rb"metric_name,timestamp,metric_value"), count_k6_csv),
    _requests("k6", _begins(rb'\{(?=[^\n]*"type":\s*"(?:Metric|Point)")(?=[^\n]*"metric":)'), count_k6_json),
    _requests("jmeter", _is_jmeter, count_jmeter_csv),
    _requests("jmeter", _begins(rb"(?:<\?xml[^>]*>\s*)?<testResults\b"), count_jmeter_xml),
    Tool("locust", _begins(rb'"?Timestamp"?,"?User Count"?,'), read_locust),
    *(_refusing(*each) for each in _REFUSED),
    _requests("gatling", _begins(rb"(?:ASSERTION\t[^\n]*\n)*RUN\t"), count_gatling),
    _requests("vegeta", _begins(rb'\d{19},\d{1,3},\d+,\d+,\d+,|\{(?=[^\n]*"seq":)(?=[^\n]*"latency":)'), count_vegeta),
    _requests("hey", _begins(rb"response-time,DNS\+dialup,"), count_hey),
    *(Tool(name, _begins(pattern), read) for name, pattern, read in NUMBERS),
    Tool("logs", logs.is_log, logs.read_log),
)
"""The formats, in the order in which they are tried."""


class _Streamed(InputFile):
    """A file that is read in pieces: only its hash and size are kept."""

    @property
    def provenance(self) -> dict[str, object]:
        """Path, hash and size, for reports."""
        with resolve(str(self.path)).open("rb") as raw:
            return {"path": self.path, "sha256": hashlib.file_digest(raw, "sha256").hexdigest(), "bytes": raw.tell()}


@contextmanager
def _opened(path: str, tool: str) -> Iterator[tuple[BinaryIO, InputFile]]:
    """Open a file of a tool; errors of reading it become one line."""
    file = _Streamed(path, b"", b"")
    try:
        with unpacked(path) as stream:
            yield stream, file
    except InputError:
        raise
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise file.fault("gzip", "a whole gzip file", str(error)) from None
    except Exception as error:  # libraries raise errors of any type on damaged bytes
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise file.fault("contents", f"a file of {tool}", f"{kind}{error}"[:160]) from error


def read_requests(path: str, catalogue: Catalogue) -> Recording:
    """Read a file of a load tester."""
    tool = next(tool for tool in TOOLS if tool.recognise(head_of(path)))
    with _opened(path, tool.name) as (stream, file):
        return tool.read(stream, file, catalogue)


def parts(names: Iterable[str]) -> set[str]:
    """Names of files that are read with another: those of a run of Locust beside its history."""
    return {name.removesuffix(HISTORY) + end for name in names if name.endswith(HISTORY) for end in BESIDE}


FORMAT = Format(lambda head: any(tool.recognise(head) for tool in TOOLS), read_requests, parts)
