"""Read an answer of Prometheus's query API from its bytes to arrays, as they arrive and to the last bit.

The numbers are lines of a CSV to pyarrow, which rounds as float() does and is many times faster than a JSON parser
(benchmarks/pull.py); all that stands around them is read by Python's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from buildcompare.recordings.recording import FloatArray

_VALUES = b'"values":[['
"""Before the numbers of a series; it cannot occur in a JSON string, whose quotes would be escaped."""
_TYPES = pa.schema([("time", pa.float64()), ("value", pa.float64())])
_LINES = csv.ParseOptions(ignore_empty_lines=False)
_CONVERTED = csv.ConvertOptions(column_types=_TYPES, null_values=[])

Pairs = tuple[FloatArray, FloatArray]


class BrokenAnswerError(Exception):
    """Bytes that are no whole answer; the message says what they are instead."""


class RefusedAnswerError(Exception):
    """A whole answer that reports an error; its arguments are that error's type and words."""


@dataclass(frozen=True)
class Answer:
    """The series of one query, each with its labels, and what the server had to say about it."""

    series: tuple[tuple[Mapping[str, str], FloatArray, FloatArray], ...]
    """Labels, times in seconds, values; the arrays may be shared and are read only."""
    warnings: tuple[str, ...] = ()


def read_answer(chunks: Iterable[bytes]) -> Answer:
    """Read a range answer as it arrives; :class:`RefusedAnswerError` where it reports an error."""
    waiting, around = bytearray(), bytearray()
    numbers: list[Pairs] = []
    for chunk in chunks:
        waiting += chunk
        done, texts = 0, []
        while (start := waiting.find(_VALUES, done)) >= 0:
            first = start + len(_VALUES)
            end = waiting.find(b"]]", first)
            if end < 0:
                break
            around += waiting[done:start] + b'"values":%d' % (len(numbers) + len(texts))
            texts.append(bytes(waiting[first:end]))
            done = end + 2
        del waiting[:done]
        for times, values in _parsed(texts) or [_of_json(_json(b'{"values":[[' + text + b"]]}")) for text in texts]:
            alike = numbers and np.array_equal(times, numbers[-1][0])
            numbers.append((numbers[-1][0] if alike else times.copy(), values))  # kept once
    if _VALUES in waiting:
        raise BrokenAnswerError("JSON that ends early")
    return _answer(_json(bytes(around + waiting)), numbers)


def _parsed(texts: list[bytes]) -> list[Pairs] | None:
    """Times and values of each series; None unless all of them have the form ``1,"2"],[3,"4"``: lines of a CSV."""
    text = pa.py_buffer(b"\n".join(texts).replace(b"],[", b"\n"))
    try:
        table = csv.read_csv(text, csv.ReadOptions(column_names=_TYPES.names), _LINES, _CONVERTED)
    except pa.ArrowInvalid:
        return None
    ends = np.cumsum([each.count(b"[") + 1 for each in texts])[:-1]
    times, values = (np.split(column.to_numpy(), ends) for column in table.columns)
    return list(zip(times, values, strict=True))


def _json(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text.decode())
    except UnicodeDecodeError as error:
        raise BrokenAnswerError(f"bytes that are not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = "that ends early" if error.pos >= len(text) - 1 or "Unterminated" in error.msg else "that is damaged"
        raise BrokenAnswerError(f"JSON {where} ({error.msg})") from None
    except RecursionError:
        raise BrokenAnswerError("JSON with too many nested levels") from None
    if not isinstance(data, dict):
        raise BrokenAnswerError("JSON that is no object")
    return data


def _answer(data: dict[str, Any], numbers: list[Pairs]) -> Answer:
    if data.get("status") == "error":
        raise RefusedAnswerError(*_said(data))
    notes = [*(data.get("warnings") or ()), *(data.get("infos") or ())]
    found = []
    try:
        if data["data"]["resultType"] != "matrix":
            raise BrokenAnswerError(f"a result of the type {str(data['data']['resultType'])[:40]!r}")
        for row in data["data"]["result"]:
            labels = {str(key): str(value) for key, value in row["metric"].items()}
            if "values" in row:
                found.append((labels, *(_of_json(row) if isinstance(row["values"], list) else numbers[row["values"]])))
            else:
                notes.append("native histograms were left out: ask for histogram_quantile() or an average of them")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BrokenAnswerError(f"JSON of another form ({type(error).__name__})") from None
    return Answer(tuple(found), tuple(dict.fromkeys(one_line(str(note)) for note in notes)))


def _of_json(row: Mapping[str, Any]) -> Pairs:
    """Numbers that the JSON parser has read."""
    try:
        pairs = np.array([(float(time), float(value)) for time, value in row["values"]], dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise BrokenAnswerError(f"JSON that is damaged ({type(error).__name__})") from None
    times, values = pairs.reshape(-1, 2).T.copy()
    return times, values


def error_of(body: bytes) -> tuple[str, str] | None:
    """Type and words of an error that the query API itself reports."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _said(data) if isinstance(data, dict) and data.get("status") == "error" else None


def _said(data: Mapping[str, Any]) -> tuple[str, str]:
    return one_line(str(data.get("errorType", "")), 40), one_line(str(data.get("error", "")))


def one_line(text: str, limit: int = 300) -> str:
    """`text` as one printable line of at most `limit` characters."""
    line = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()
    return line if len(line) <= limit else line[: limit - 3] + "..."
