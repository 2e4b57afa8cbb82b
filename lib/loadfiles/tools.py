"""Read the files of load testers: requests of k6, JMeter, Locust, Gatling and vegeta, and summaries; pyperf's results.

A file of any size is read in pieces. The endpoint of each request becomes a label.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import re
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any, BinaryIO, NamedTuple

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
from buildcompare.recordings.files import Format, InputFile, head_of, unpacked
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import FloatArray, LabelSummary, Series
from loadfiles import logs, pyperf
from loadfiles.request_log import (
    GROUP,
    SETTLE_S,
    Intervals,
    RequestLog,
    aggregated,
    endpoint_of,
    labelled,
)
from loadfiles.summaries import SUMMARIES

_TEXT = pa.dictionary(pa.int32(), pa.string())
_BLOCK = 4_000_000  # bytes
_ROWS = 50_000
_TIMES = ("http_req_duration", "grpc_req_duration")
_FAILED = "http_req_failed"
TRANSACTION = r"Number of samples in transaction : (\d+)"
"""Begins the message of JMeter's sums of samples."""
CUT_OFF = 0.1
"""Largest part of the samples of transactions that the end of a file may lack."""
_SAMPLES = ("httpSample", "sample")


class Tool(NamedTuple):
    """One format: how it is recognised by a file's first bytes, and its reader."""

    name: str
    recognise: Callable[[bytes], bool]
    read: Callable[[BinaryIO, InputFile, Catalogue], Recording]


# ---- Tables of requests ---------------------------------------------------------------------------------------------


def _header(file: InputFile) -> tuple[str, list[str]]:
    """Return the delimiter of a CSV, and the cells of its first line."""
    line = head_of(str(file.path)).partition(b"\n")[0].decode("utf-8-sig", "replace")
    delimiter = max(",;\t", key=line.count)
    return delimiter, next(csv.reader([line], delimiter=delimiter))


def _batches(
    stream: BinaryIO, file: InputFile, types: Mapping[str, pa.DataType | None], *, names: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the columns `types` of a CSV piece by piece; `names` are those of a file without a header."""
    delimiter, header = _header(file)
    if odd := [name for name in types if (names or header).count(name) != 1]:
        raise file.fault("columns", f"the column {odd[0]} once", delimiter.join(header)[:80])
    try:
        yield from arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(block_size=_BLOCK, use_threads=False, column_names=names),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=False),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=[*types], column_types={name: each for name, each in types.items() if each is not None}
            ),
        )
    except pa.ArrowInvalid as error:
        raise file.fault("rows", "a whole table", " ".join(str(error).split())[:160]) from None


def _json_batches(stream: BinaryIO, file: InputFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the fields of `schema` of JSON lines piece by piece."""
    options = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        yield from arrow_json.open_json(stream, arrow_json.ReadOptions(block_size=_BLOCK), options)
    except pa.ArrowInvalid as error:
        raise file.fault("lines", "JSON lines of the tool", " ".join(str(error).split())[:160]) from None


def _coded(log: RequestLog, name: Callable[..., str], *columns: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Number the endpoint of each row, which `name` makes of the texts of `columns`."""
    texts = [column.dictionary.to_pylist() or [""] for column in columns]
    places = [column.indices.fill_null(0).to_numpy() for column in columns]
    shape = [len(each) for each in texts]
    used, row = np.unique(np.ravel_multi_index(places, shape), return_inverse=True)
    each_text = ([text[i] for i in at] for text, at in zip(texts, np.unravel_index(used, shape), strict=True))
    return log.codes(map(name, *each_text))[row]


def _seconds(times: pa.Array, unit: float | None = None) -> FloatArray:
    """Convert times to seconds since 1970: dates, or numbers in `unit` seconds (by default what their size tells)."""
    if pa.types.is_string(times.type):
        times = compute.replace_substring(times, "/", "-").cast(pa.timestamp("ns"))
    if pa.types.is_timestamp(times.type):
        return np.asarray(times.cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy(zero_copy_only=False) / 1e9)
    seconds = np.asarray(times.to_numpy(zero_copy_only=False), dtype=np.float64)
    if unit is None:
        unit = 1e-3 ** np.round(np.log10(seconds[:1].max(initial=1.0) / 10**9.2).clip(0) / 3)
    return seconds * unit


def _numbers(values: pa.Array) -> FloatArray:
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def _k6_points(batches: Iterable[Iterable[pa.Array]], log: RequestLog) -> None:
    """Count k6's points: metric, time, value (milliseconds for times), method and name."""
    for batch in batches:
        metric, at, value, method, name = batch
        metric, method, name = (each.dictionary_encode() for each in (metric, method, name))
        times, values, which = _seconds(at), _numbers(value), metric.indices.to_numpy()
        for code, text in enumerate(metric.dictionary.to_pylist()):
            rows = np.flatnonzero(which == code)
            if text == "vus":
                log.add_users(times[rows], values[rows])
            elif text in (*_TIMES, _FAILED):
                taken = pa.array(rows)
                codes = _coded(log, endpoint_of, method.take(taken), name.take(taken))
                counted = {"failed": values[rows] > 0} if text == _FAILED else {"elapsed_s": values[rows] / 1e3}
                log.add(times[rows], codes, **counted)


def count_k6_csv(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``k6 run --out csv=FILE``."""
    types = {"metric_name": _TEXT, "timestamp": None, "metric_value": pa.float64(), "method": _TEXT, "name": _TEXT}
    _k6_points(([batch[name] for name in types] for batch in _batches(stream, log.file, types)), log)


def count_k6_json(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``k6 run --out json=FILE``."""
    tags = pa.struct([("method", pa.string()), ("name", pa.string())])
    data = pa.struct([("time", pa.timestamp("ns", "UTC")), ("value", pa.float64()), ("tags", tags)])
    schema = pa.schema([("metric", pa.string()), ("type", pa.string()), ("data", data)])
    lines = _json_batches(stream, log.file, schema)
    points = (batch.filter(compute.equal(batch["type"], "Point")) for batch in lines)
    fields = (("time",), ("value",), ("tags", "method"), ("tags", "name"))
    _k6_points(([each["metric"], *(compute.struct_field(each["data"], at) for at in fields)] for each in points), log)


_JTL = re.findall(
    r"\w+",
    "timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,failureMessage,bytes,sentBytes,"
    "grpThreads,allThreads,URL,Latency,IdleTime,Connect",
)
"""Columns of JMeter by default."""


def count_jmeter_csv(stream: BinaryIO, log: RequestLog) -> None:
    """Count the JTL file of ``jmeter -n -l FILE`` as CSV; transactions count only where their samples are missing."""
    file, sums, parts, kept = log.file, list[pa.RecordBatch](), 0, 0
    _, header = _header(file)
    names = None if "timeStamp" in header else _JTL  # `print_field_names=false`
    types = {"timeStamp": None, "elapsed": pa.float64(), "label": _TEXT, "success": pa.bool_()}
    optional = {"allThreads": pa.float64(), "responseMessage": _TEXT}
    types |= {name: type_ for name, type_ in optional.items() if name in (names or header)}

    def count(batch: pa.RecordBatch) -> None:
        try:
            times = _seconds(batch["timeStamp"], 1e-3)
        except pa.ArrowInvalid:
            raise file.fault("timeStamp", "milliseconds since 1970, or dates", str(batch["timeStamp"][0])) from None
        if batch["success"].null_count:
            raise file.fault("success", "true or false", "nothing")
        elapsed, success = _numbers(batch["elapsed"]), batch["success"].to_numpy(zero_copy_only=False)
        log.add(times, _coded(log, str, batch["label"]), elapsed_s=elapsed / 1e3, failed=~success.astype(bool))
        if "allThreads" in types:
            log.add_users(times, _numbers(batch["allThreads"]))

    for batch in _batches(stream, file, types, names=names):
        rows = batch
        if "responseMessage" in types:
            texts, places = batch["responseMessage"].dictionary.to_pylist(), batch["responseMessage"].indices
            held = [int((re.match(TRANSACTION, text or "") or ("", 0))[1]) for text in texts] or [0]
            held_by_row = np.array(held)[places.fill_null(0).to_numpy()]
            if held_by_row.any():
                sums.append(batch.filter(pa.array(held_by_row > 0)))
                rows = batch.filter(pa.array(held_by_row == 0))
                parts += int(held_by_row.sum())
        kept += rows.num_rows
        count(rows)
    for batch in sums if parts - kept > CUT_OFF * parts else ():
        count(batch)


def _single(sample: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Yield the samples of a transaction, which without a message was cut off, or the sample with all that it holds."""
    inner, message = [each for each in sample if each.tag in _SAMPLES], sample.get("rm", "")
    if not re.match(TRANSACTION, message) and (message or not inner or sample.tag == "httpSample"):
        yield sample
        return
    for each in inner:
        yield from _single(each)


def _jmeter_samples(stream: BinaryIO, file: InputFile, keys: Iterable[str]) -> Iterator[list[str]]:
    """Yield the attributes `keys` of each sample; samples inside samples are parts of them."""
    depth = 0
    try:
        # expat bounds what entities may grow to, since its version 2.4.1.
        for event, element in ElementTree.iterparse(stream, ("start", "end")):  # noqa: S314
            if element.tag not in _SAMPLES:
                continue
            depth += 1 if event == "start" else -1
            if event == "end" and depth == 0:
                yield from ([each.get(key, "") for key in keys] for each in _single(element))
                element.clear()
    except ElementTree.ParseError as error:
        raise file.fault("XML", "a whole document", str(error)) from None


def count_jmeter_xml(stream: BinaryIO, log: RequestLog) -> None:
    """Count the JTL file of JMeter as XML."""
    keys = ("ts", "t", "s", "lb", "na")
    for table in _tables(_jmeter_samples(stream, log.file, keys), keys):
        try:
            times, elapsed = (np.asarray(table[key], dtype=np.float64) / 1e3 for key in ("ts", "t"))
        except ValueError as error:
            raise log.file.fault("samples", "numbers in `ts` and `t`", str(error)[:80]) from None
        log.add(times, log.codes(table["lb"]), elapsed_s=elapsed, failed=(table["s"] != "true").to_numpy())
        if not table["s"].isin(["true", "false"]).all():
            raise log.file.fault("samples", "`s` of true or false", repr(table["s"].iloc[0]))
        threads = pd.to_numeric(table["na"], errors="coerce")
        log.add_users(times[threads.notna()], threads.dropna().to_numpy(dtype=np.float64))


def _tables(rows: Iterator[Any], columns: Iterable[str]) -> Iterator[pd.DataFrame]:
    """Yield rows as tables that fit in memory."""
    while table := [*islice(rows, _ROWS)]:
        yield pd.DataFrame(table, columns=[*columns])


def _text_lines(stream: BinaryIO, file: InputFile) -> Iterator[tuple[int, str]]:
    text = io.TextIOWrapper(stream, "utf-8")
    try:
        yield from enumerate(text, 1)
    except UnicodeDecodeError as error:
        raise file.fault(None, "text in UTF-8", f"byte {error.start} of a piece that is not") from None
    finally:
        text.detach()  # the caller closes the stream


def count_gatling(stream: BinaryIO, log: RequestLog) -> None:
    """Count Gatling's ``simulation.log`` of version 2 to 3.9, text with four times a request up to 2.1, later two."""
    joined = list[tuple[float, int]]()

    def requests() -> Iterator[tuple[str, float, float, bool]]:
        for number, line in _text_lines(stream, log.file):
            fields = line.rstrip("\r\n").split("\t")
            try:
                if fields[0] == "REQUEST":
                    end = next(at for at, word in enumerate(fields) if word in ("OK", "KO") and at > 2)
                    first = end - (4 if end > 6 and "".join(fields[end - 4 : end]).isdigit() else 2)
                    start, stop = int(fields[first]), int(fields[end - 1])
                    group = fields[first - 2] if first > 2 and not fields[first - 2].isdigit() else ""
                    name = " / ".join(part for part in (group.replace(",", " / "), fields[first - 1]) if part)
                    yield name, start / 1e3, max(stop - start, 0) / 1e3, fields[end] == "KO"
                elif fields[0] == "USER":
                    word = next(each for each in fields if each in ("START", "END"))
                    joined.append((int(fields[-1] or fields[-2]) / 1e3, 1 if word == "START" else -1))
            except (StopIteration, ValueError, IndexError):
                raise log.file.fault(f"line {number}", "a REQUEST or USER of Gatling", repr(line[:80])) from None

    for table in _tables(requests(), ("name", "start", "elapsed", "failed")):
        start, elapsed, failed = (table[name].to_numpy() for name in ("start", "elapsed", "failed"))
        log.add(start, log.codes(table["name"]), elapsed_s=elapsed, failed=failed)
    active = pd.DataFrame(sorted(joined, key=itemgetter(0)), columns=["time", "change"], dtype=np.float64)
    log.add_users(active["time"].to_numpy(), active["change"].cumsum().to_numpy())


_VEGETA = ["timestamp", "code", "latency", "out", "in", "error", "body", "attack", "seq", "method", "url", "headers"]


def count_vegeta_csv(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``vegeta encode --to csv``."""
    types = {"timestamp": pa.int64(), "code": pa.int64(), "latency": pa.float64(), "method": _TEXT, "url": _TEXT}
    _vegeta(_batches(stream, log.file, types, names=_VEGETA), log)


def count_vegeta_json(stream: BinaryIO, log: RequestLog) -> None:
    """Count the file of ``vegeta encode``."""
    types = {"timestamp": pa.timestamp("ns", "UTC"), "code": pa.int64(), "latency": pa.float64()}
    types |= {"method": pa.string(), "url": pa.string()}
    _vegeta(_json_batches(stream, log.file, pa.schema(types)), log)


def _vegeta(batches: Iterable[pa.RecordBatch], log: RequestLog) -> None:
    for batch in batches:
        codes, latency = (batch[name].to_numpy(zero_copy_only=False) for name in ("code", "latency"))
        endpoints = _coded(log, endpoint_of, *(batch[name].dictionary_encode() for name in ("method", "url")))
        failed = (codes < 200) | (codes >= 400)
        log.add(_seconds(batch["timestamp"], 1e-9), endpoints, elapsed_s=latency / 1e9, failed=failed)


# ---- Locust: counts so far, by second and by endpoint ----------------------------------------------------------------

HISTORY, STATS = "_stats_history.csv", "_stats.csv"
"""Ends of the names of Locust's files of one run."""
BESIDE = (STATS, "_failures.csv", "_exceptions.csv")
_SHARES = {"p50": "50%", "p95": "95%", "p99": "99%"}
_SUMS = ("Total Request Count", "Total Failure Count", "Total Average Response Time")
_NUMBERS = dict.fromkeys(("User Count", *_SUMS, *_SHARES.values()), "float64")
SKIPPED = 3
"""Most seconds in a row that Locust may leave out; what happened meanwhile is spread over them."""
_WHOLE = ("Type", "Name", "Request Count", "Failure Count", "Average Response Time", *_SHARES.values())


def read_locust(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
    """Read ``..._stats_history.csv`` of ``locust --csv``; requests and means are differences of its sums so far."""
    table = _locust_table(stream, file, ("Timestamp", "User Count", "Type", "Name", *_SUMS, *_SHARES.values()))
    series: list[Series] = []
    window: tuple[float, float] | None = None
    table["total"] = table["Total Average Response Time"] * table["Total Request Count"]
    for label, rows in table.groupby(_endpoints(table), sort=False):
        numbers = rows.drop_duplicates(["Name", "Timestamp"], keep="last").astype(_NUMBERS).set_index("Timestamp")
        several = len({*rows["Name"]}) > 1
        stated = numbers[[*_NUMBERS, "total"]].groupby(level=0).sum() if several else numbers.sort_index()
        if len(stated) < 2:
            continue
        stated.loc[:, [*_SHARES.values()] if several else []] = np.nan  # percentiles cannot be combined
        at = stated.index.to_numpy()
        every = np.unique(np.concatenate([at, *(at[:-1][np.diff(at) > i] + i for i in range(1, SKIPPED + 1))]))
        filled = stated[[*_NUMBERS, "total"]].reindex(every).interpolate("index", limit=SKIPPED, limit_area="inside")
        seconds = stated.combine_first(filled).dropna(subset="total")
        if label == "Aggregated":
            window = float(seconds.index[0]), float(seconds.index[-1])
            series += aggregated(_of_seconds(seconds), catalogue, users=seconds["User Count"].to_numpy()[1:])
        else:
            series += labelled(_of_seconds(seconds), str(label))
    if window is None:
        raise file.fault("rows", "at least two of the name Aggregated", "fewer")
    provenance = {"kind": "locust", "files": [file.provenance], "rate_s": SETTLE_S}
    return Recording(tuple(series), window, stop_known=True, provenance=provenance)


def _of_seconds(rows: pd.DataFrame) -> Intervals:
    """Take what happened between two rows of sums so far."""
    counts = rows[[*_SUMS[:2], "total"]].diff()
    requests, failed, sums = counts.mask(counts[_SUMS[0]] < 0).to_numpy()[1:].T  # --reset-stats begins again
    at = rows.index.to_numpy(dtype=float)
    return Intervals(
        at[1:],
        np.diff(at),
        requests,
        sums / 1e3,
        failed,
        {stat: rows[name].to_numpy()[1:] / 1e3 for stat, name in _SHARES.items()},
    )


def _locust_table(stream: BinaryIO, file: InputFile, columns: Iterable[str]) -> pd.DataFrame:
    try:
        table = pd.read_csv(stream, na_values=["N/A"], dtype={"Type": str, "Name": str})
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise file.fault("rows", "a table of Locust", str(error)[:160]) from None
    if missing := [name for name in columns if name not in table]:
        raise file.fault("columns", f"the column {missing[0]!r}", ", ".join(map(str, table.columns[:6])))
    return table


def _endpoints(table: pd.DataFrame) -> pd.Series:
    """Name the endpoint of each row; names that differ only by ids and queries are one endpoint."""
    names = [*zip(table["Type"].fillna(""), table["Name"].fillna(""), strict=True)]
    stated, masked = pd.Series(map(" ".join, names), dtype=str).str.strip(), [endpoint_of(*each) for each in names]
    return stated.where(stated.groupby(masked).transform("nunique") == 1, masked).set_axis(table.index)


def locust_summaries(stream: BinaryIO, file: InputFile) -> tuple[LabelSummary, ...]:
    """Read requests, mean and percentiles of each endpoint from ``..._stats.csv``."""
    table = _locust_table(stream, file, _WHOLE)
    summaries = list[LabelSummary]()
    for label, rows in table.groupby(_endpoints(table), sort=False):
        if (rows["Name"] == "Aggregated").any():
            continue
        calls = rows["Request Count"]
        values = {"calls": calls.sum(), "avg": (rows["Average Response Time"] * calls).sum() / calls.sum() / 1e3}
        values |= {stat: rows[column].iloc[0] / 1e3 for stat, column in _SHARES.items() if len(rows) == 1}
        summaries += [LabelSummary(GROUP, str(label), stat, float(value)) for stat, value in values.items()]
    return tuple(summaries)


# ---- Formats by their first bytes ------------------------------------------------------------------------------------


def _begins(pattern: bytes) -> Callable[[bytes], bool]:
    return lambda head: re.match(rb"(?s)(?:\xef\xbb\xbf)?\s*" + pattern, head) is not None


def _is_jmeter(head: bytes) -> bool:
    line = head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].strip()
    named = {b"timeStamp", b"elapsed", b"label"} <= {*re.split(rb"[,;\t]", line)}
    return named or re.match(rb"\d{13},\d+,.*,(true|false),", line) is not None


_K6_JSON = rb'\{(?=[^\n]*"type":\s*"(?:Metric|Point)")(?=[^\n]*"metric":)'
_REFUSED = (
    ("gatling", rb"\x00.{0,3}\x00.{0,40}?\d+\.\d+", "text (up to version 3.9)", "the binary log of a newer Gatling"),
    ("vegeta", rb".{0,9}\x03\x01\x01\x06Result", "what `vegeta encode` makes of it", "the results of `vegeta attack`"),
    ("vegeta", rb"Value\(ms\) +Percentile|Bucket +# +%", "`vegeta encode` or `vegeta report`", "a histogram"),
    ("hey", rb"response-time,DNS\+dialup,", "what hey prints without `-o csv`", "times without dates"),
    ("k6", rb".{0,9999}?http_req_duration\.*: avg=", "`--out csv` or `--summary-export`", "what k6 prints"),
    ("locust", rb"Type,Name,Request Count,", "`..._stats_history.csv` beside it", "sums of the whole run"),
)
"""Tool, pattern, what is read instead, and what such a file is."""


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
    _requests("k6", _begins(_K6_JSON), count_k6_json),
    _requests("jmeter", _is_jmeter, count_jmeter_csv),
    _requests("jmeter", _begins(rb"(?:<\?xml[^>]*>\s*)?<testResults\b"), count_jmeter_xml),
    Tool("locust", _begins(rb'"?Timestamp"?,"?User Count"?,'), read_locust),
    *(_refusing(*each) for each in _REFUSED),
    _requests("gatling", _begins(rb"(?:ASSERTION\t[^\n]*\n)*RUN\t"), count_gatling),
    _requests("vegeta", _begins(rb"\d{19},\d{1,3},\d+,\d+,\d+,"), count_vegeta_csv),
    _requests("vegeta", _begins(rb'\{(?=[^\n]*"seq":)(?=[^\n]*"latency":)(?=[^\n]*"url":)'), count_vegeta_json),
    Tool("pyperf", _begins(pyperf.PATTERN), pyperf.read_pyperf),
    *(Tool(name, _begins(pattern), read) for name, pattern, read in SUMMARIES),
    Tool("logs", logs.is_log, logs.read_log),
)
"""The formats, in the order in which they are tried."""


class _Streamed(InputFile):
    """A file that is read in pieces: only its hash and size are kept."""

    @property
    def provenance(self) -> dict[str, object]:
        """Path, hash and size, for reports."""
        with resolve(str(self.path)).open("rb") as raw:
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
            return {"path": self.path, "sha256": digest, "bytes": raw.tell()}


def is_of_load_tester(head: bytes) -> bool:
    """Recognise the file of a load tester by its first bytes, unpacked."""
    return any(tool.recognise(head) for tool in TOOLS)


def read_requests(path: str, catalogue: Catalogue) -> Recording:
    """Read a file of a load tester."""
    file = _Streamed(path, b"", b"")
    tool = next(tool for tool in TOOLS if tool.recognise(head_of(path)))
    try:
        with unpacked(path) as stream:
            recording = tool.read(stream, file, catalogue)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise file.fault("gzip", "a whole gzip file", str(error)) from None
    except InputError:
        raise
    except Exception as error:  # libraries raise errors of any type on damaged bytes
        expected = f"a file of {tool.name}"
        raise file.fault("contents", expected, f"{type(error).__name__}: {error}"[:160]) from error
    beside = path.removesuffix(HISTORY) + STATS
    if path.endswith(HISTORY) and resolve(beside).is_file():
        with unpacked(beside) as stream:
            other = _Streamed(beside, b"", b"")
            summaries = locust_summaries(stream, other)
        files = [*recording.provenance["files"], other.provenance]
        provenance = {**recording.provenance, "files": files}
        recording = replace(recording, label_summaries=summaries, provenance=provenance)
    return recording


def parts(names: Iterable[str]) -> set[str]:
    """Names of the files in a folder that belong to another: all of a run of Locust but its history."""
    runs = [name.removesuffix(HISTORY) for name in names if name.endswith(HISTORY)]
    return {run + end for run in runs for end in BESIDE}


FORMAT = Format(is_of_load_tester, read_requests, parts)
