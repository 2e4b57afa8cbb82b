"""Read an answer of Prometheus's query API from its bytes to arrays, as they arrive and to the last bit.

By hand: 300 kB of 8 series take 0.7 ms so, 1.9 ms by pyarrow's CSV reader, more by the JSON parser (benchmarks/pull.py)
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from buildcompare.recordings.recording import FloatArray

_VALUES, _END = b'"values":[[', b'"]]'
"""Around the numbers of a series; the first cannot occur in a JSON string, whose quotes would be escaped."""
_BATCH = 1 << 18
"""Bytes that are parsed at a time: enough for the cost of a call not to count, and little beside the arrays."""
_PARSERS, _AHEAD = 2, 6
"""Threads that parse a large answer, and batches that may wait for them: reading is faster."""

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


class AnswerReader:
    """Reads a range answer as it arrives: numbers by pyarrow, all that stands around them by the JSON parser.

    Batches of a large answer are parsed beside the reading, in order. Close it where it was not finished.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._pool: ThreadPoolExecutor | None = None
        self._parsing: deque[Future[tuple[list[bytes], list[Pairs]]]] = deque()
        self._skeleton: list[bytes] = []
        self._numbers: list[Pairs] = []
        self._times: FloatArray = np.empty(0)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes; raises :class:`BrokenAnswerError` where those before cannot belong to an answer."""
        self._waiting += chunk
        if len(self._waiting) >= _BATCH:
            # Outside of numbers: neither within them nor in what begins them is such an end.
            end = self._waiting.rfind(_END + b"}") + len(_END) + 1
            if end <= len(_END):  # no server writes it so
                end = self._waiting.rfind(_END) + len(_END)
            if end >= len(_END):
                batch = bytes(memoryview(self._waiting)[:end])
                del self._waiting[:end]
                self._pool = self._pool or ThreadPoolExecutor(_PARSERS, thread_name_prefix="parse")
                self._parsing.append(self._pool.submit(_parsed, batch))
                self._keep_all_but(_AHEAD)

    def finish(self) -> Answer:
        """The answer, once all of it was fed; :class:`RefusedAnswerError` where it reports an error."""
        self._keep_all_but(0)
        self._keep(*_parsed(bytes(self._waiting)))
        self.close()
        return _answer(_json(b"".join(self._skeleton)), self._numbers)

    def close(self) -> None:
        """Let go of everything that waits."""
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _keep_all_but(self, last: int) -> None:
        while len(self._parsing) > last:
            self._keep(*self._parsing.popleft().result())

    def _keep(self, around: list[bytes], numbers: list[Pairs]) -> None:
        for text, (times, values) in zip(around, numbers, strict=False):
            self._skeleton.append(text + b'"values":%d' % len(self._numbers))
            if not np.array_equal(times, self._times):  # times like those of the series before are kept once
                self._times = times.copy()
            self._numbers.append((self._times, values))
        self._skeleton.append(around[-1])


def _parsed(batch: bytes) -> tuple[list[bytes], list[Pairs]]:
    """What stands around the numbers of the series in a batch, one more than those; and their numbers."""
    head, *parts = batch.split(_VALUES)
    for quick in (True, False):  # nothing but a brace stands behind numbers, as servers write it, and is found soonest
        ends = [part.find(b"}") - 2 if quick else part.find(b"]]") for part in parts]
        whole = all(part[end : end + 2] == b"]]" for part, end in zip(parts, ends, strict=True))
        texts = [part[:end] for part, end in zip(parts, ends, strict=True)]
        columns = _columns(texts) if whole else None
        if columns is not None:
            break
    if not whole:
        raise BrokenAnswerError("JSON that ends early")
    columns = columns or [_pairs(_json(b'{"values":[[' + text + b"]]}")) for text in texts]
    return [head, *(part[end + 2 :] for part, end in zip(parts, ends, strict=True))], columns


def _columns(texts: list[bytes]) -> list[Pairs] | None:
    """Times and values of each text; None unless all of them have the form ``1,"2"],[3,"4"``."""
    if not texts:
        return []
    text = b"],[".join(texts)
    characters = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(characters == ord('"')).astype(np.int32)
    if quotes.size == 0 or quotes.size % 2 or quotes[-1] != len(text) - 1:
        return None
    opening, closing = quotes[0::2], quotes[1::2]
    bounds = np.empty((opening.size, 4), np.int32)  # of the time, and of the value
    bounds[0, 0], bounds[1:, 0] = 0, closing[:-1] + 4
    bounds[:, 1], bounds[:, 2], bounds[:, 3] = opening - 1, opening + 1, closing
    between = [(opening - 1, ","), *((closing[:-1] + i, char) for i, char in enumerate("],[", start=1))]
    if any((characters[places] != ord(char)).any() for places, char in between):
        return None
    # pyarrow parses an array of strings many times faster than anything else here, rounds as float() does, and lets
    # other threads run. Its strings lie one behind the other: every second one is what stands between two numbers.
    strings = pa.StringArray.from_buffers(bounds.size - 1, pa.py_buffer(bounds), pa.py_buffer(text))
    seconds = np.arange(0, bounds.size, 2, dtype=np.int32)
    picked = strings.take(pa.Array.from_buffers(pa.int32(), seconds.size, [None, pa.py_buffer(seconds)]))
    try:
        found = picked.cast(pa.float64())
    except pa.ArrowInvalid:
        return None
    numbers = np.frombuffer(found.buffers()[1], np.float64, len(found), found.offset * 8).reshape(-1, 2)
    times, values = numbers[:, 0].copy(), numbers[:, 1].copy()  # apart: times are mostly dropped
    ends = np.cumsum([len(each) + 3 for each in texts])
    return [(times[low:high], values[low:high]) for low, high in pairwise([0, *np.searchsorted(closing, ends)])]


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
                found.append((labels, *(_pairs(row) if isinstance(row["values"], list) else numbers[row["values"]])))
            else:
                notes.append("native histograms were left out: ask for histogram_quantile() or an average of them")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BrokenAnswerError(f"JSON of another form ({type(error).__name__})") from None
    return Answer(tuple(found), tuple(dict.fromkeys(one_line(str(note)) for note in notes)))


def _pairs(row: Mapping[str, Any]) -> Pairs:
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
