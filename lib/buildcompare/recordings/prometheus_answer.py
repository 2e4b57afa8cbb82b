"""What does an answer of the query API hold? From its bytes to arrays, as they arrive and to the last bit."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buildcompare.recordings.recording import FloatArray

_VALUES = b'"values":[['
_OPENING = b":[["
"""Cannot occur inside of a JSON string: its quotes would be escaped."""
_END = b'"]]'
_BATCH = 1 << 18
"""Bytes that are parsed at a time: enough for the cost of a call not to count, and little beside the arrays."""

_PARSERS, _AHEAD = 2, 6
"""Threads that parse a large answer, and batches that may wait for them: reading is faster."""

Pairs = tuple[FloatArray, FloatArray]
Batch = tuple[list[bytes], list[Pairs]]
"""What stands around the numbers of the series, one more than those; and their numbers."""
Place = tuple[int, int]
"""Of the numbers of a series: their first byte, and the one behind their last."""


class BrokenAnswerError(Exception):
    """Bytes that are no whole answer; the message says what they are instead."""


class RefusedAnswerError(Exception):
    """A whole answer that reports an error: its type and its words."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(f"{kind}: {words}")
        self.kind, self.words = kind, words


@dataclass(frozen=True)
class Answer:
    """The series of one query, each with its labels, and what the server had to say about it."""

    series: tuple[tuple[Mapping[str, str], FloatArray, FloatArray], ...]
    """Labels, times in seconds, values; the arrays may be shared and are read only."""
    warnings: tuple[str, ...] = ()


class AnswerReader:
    """Reads a range answer as it arrives: numbers by pyarrow, all that stands around them by the JSON parser.

    Batches of a large answer are parsed beside the reading, in order; the text of numbers is dropped as soon as they
    are read, so that the answer is never held twice. Close it where it was not finished.
    """

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._pool: ThreadPoolExecutor | None = None
        self._parsing: deque[Future[Batch]] = deque()
        self._skeleton: list[bytes] = []
        self._numbers: list[Pairs] = []
        self._times: FloatArray = np.empty(0)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises
        ------
        BrokenAnswerError
            Where they, or those before, cannot belong to an answer.
        """
        self._waiting += chunk
        if len(self._waiting) >= _BATCH:
            end = self._waiting.rfind(_END + b"}") + len(_END) + 1
            if end <= len(_END):  # no server writes it so
                end = self._waiting.rfind(_END) + len(_END)
            if end >= len(_END):  # outside of numbers: neither within them nor in what begins them is such an end
                batch = bytes(memoryview(self._waiting)[:end])
                del self._waiting[:end]
                self._pool = self._pool or ThreadPoolExecutor(_PARSERS, thread_name_prefix="parse")
                self._parsing.append(self._pool.submit(_parsed, batch))
                self._keep_all_but(_AHEAD)

    def finish(self) -> Answer:
        """The answer, once all of it was fed.

        Raises
        ------
        BrokenAnswerError
            Where it is not whole.
        RefusedAnswerError
            Where it is a whole answer that reports an error.
        """
        self._keep_all_but(0)
        self._keep(_parsed(bytes(self._waiting)))
        self.close()
        return _answer(_json(b"".join(self._skeleton)), self._numbers)

    def close(self) -> None:
        """Let go of everything that waits."""
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _keep_all_but(self, last: int) -> None:
        while len(self._parsing) > last:
            self._keep(self._parsing.popleft().result())

    def _keep(self, batch: Batch) -> None:
        around, numbers = batch
        for text, pairs in zip(around, numbers, strict=False):
            self._skeleton += [text, b":", str(len(self._numbers)).encode()]
            self._numbers.append(self._shared(*pairs))
        self._skeleton.append(around[-1])

    def _shared(self, times: FloatArray, values: FloatArray) -> Pairs:
        """The same; where the times are those of the series before, they are kept once."""
        if not np.array_equal(times, self._times):
            self._times = times.copy()
        return self._times, values


def read_answer(body: bytes | bytearray) -> Answer:
    """Read a range answer that is there as a whole; raises as :meth:`AnswerReader.finish` does."""
    with closing(AnswerReader()) as reader:
        reader.feed(bytes(body))
        return reader.finish()


def read_answer_plainly(body: bytes | bytearray) -> Answer:
    """The same by the JSON parser alone: slower, and the reference."""
    return _answer(_json(bytes(body)), None)


def _parsed(batch: bytes) -> Batch:
    places = _places(batch, b"}")
    columns = _columns(batch, places)
    if columns is None:  # not as servers write it: with something else behind the numbers, or blanks between them
        places = _places(batch, _END)
        columns = _columns(batch, places) or [_pairs_of_json(batch[first:end]) for first, end in places]
    ends = [0, *(end + 2 for _, end in places)]
    starts = [*(first - len(_OPENING) for first, _ in places), len(batch)]
    return [batch[end:start] for end, start in zip(ends, starts, strict=True)], columns


def _places(batch: bytes, before: bytes) -> list[Place]:
    """Where the numbers of each series stand, ``1,"2"],[3,"4"``, looking for their end at the next of `before`.

    Nothing stands behind them but a brace, as servers write it, and a single character is found many times faster.
    """
    places = []
    first = batch.find(_VALUES) + len(_VALUES)
    while first >= len(_VALUES):
        end = batch.find(before, first) + (1 if before == _END else -2)
        if end <= first:
            break
        places.append((first, end))
        first = batch.find(_VALUES, end) + len(_VALUES)
    return places


def _columns(batch: bytes, places: list[Place]) -> list[Pairs] | None:
    """Times and values of each place; None unless all of them have the form ``1,"2"],[3,"4"``, with ``]]`` behind."""
    if not places:
        return []
    characters = np.frombuffer(batch, np.uint8)
    quotes = np.flatnonzero(characters == ord('"')).astype(np.int32)
    firsts, ends = np.array(places, np.int32).T
    cuts = np.searchsorted(quotes, [firsts, ends])
    own = [quotes[low:high] for low, high in cuts.T]
    if any(each.size == 0 or each.size % 2 for each in own):
        return None
    inside = np.concatenate(own) if len(own) > 1 else own[0]
    opening, closing = inside[0::2], inside[1::2]
    behind = np.cumsum([each.size // 2 for each in own])  # the first pair behind each place
    bounds = np.empty((opening.size, 4), np.int32)  # of the time, and of the value
    bounds[1:, 0] = closing[:-1] + 4
    bounds[[0, *behind[:-1]], 0] = firsts
    bounds[:, 1], bounds[:, 2], bounds[:, 3] = opening - 1, opening + 1, closing
    inner = np.delete(closing, behind - 1)
    if (
        (closing[behind - 1] != ends - 1).any()
        or (characters[bounds[:, 1]] != ord(",")).any()
        or any((characters[inner + i] != character).any() for i, character in enumerate(b"],[", start=1))
        or any(batch[end : end + 2] != b"]]" for end in ends)
    ):
        return None
    try:
        numbers = _floats(batch, bounds)
        times, values = numbers[:, 0].copy(), numbers[:, 1].copy()  # apart: times are mostly dropped
    except pa.ArrowInvalid:
        return None
    return [(times[low:high], values[low:high]) for low, high in pairwise([0, *behind])]


def _floats(text: bytes, bounds: npt.NDArray[np.int32]) -> FloatArray:
    """The numbers of `text` between each two `bounds`, rounded correctly as float() does; NaN and +Inf are known.

    Shape (n, 2) from (n, 4). pyarrow parses an array of strings many times faster than anything else here does, and
    lets other threads run. Its strings lie one behind the other, so every second of them is what stands between two
    numbers.
    """
    between = pa.StringArray.from_buffers(bounds.size - 1, pa.py_buffer(bounds), pa.py_buffer(text))
    seconds = np.arange(0, bounds.size, 2, dtype=np.int32)
    numbers = between.take(pa.Array.from_buffers(pa.int32(), seconds.size, [None, pa.py_buffer(seconds)]))
    found = numbers.cast(pa.float64())
    return np.frombuffer(found.buffers()[1], np.float64, len(found), found.offset * 8).reshape(-1, 2)


def _pairs_of_json(text: bytes) -> Pairs:
    try:
        return _pairs_plainly(json.loads(b"[[" + text + b"]]"))
    except (ValueError, TypeError) as error:
        raise BrokenAnswerError(f"JSON that is damaged ({type(error).__name__})") from None


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


def _answer(data: dict[str, Any], numbers: list[Pairs] | None) -> Answer:
    if data.get("status") == "error":
        raise RefusedAnswerError(one_line(str(data.get("errorType", "")), 40), one_line(str(data.get("error", ""))))
    notes = [*(data.get("warnings") or ()), *(data.get("infos") or ())]
    found = []
    try:
        if data["data"]["resultType"] != "matrix":
            raise BrokenAnswerError(f"a result of the type {str(data['data']['resultType'])[:40]!r}")
        for row in data["data"]["result"]:
            labels = {str(key): str(value) for key, value in row["metric"].items()}
            if "values" not in row:
                notes.append("native histograms were left out: ask for histogram_quantile() or an average of them")
                continue
            values = row["values"]
            pairs = _pairs_plainly(values) if numbers is None or isinstance(values, list) else numbers[values]
            found.append((labels, *pairs))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BrokenAnswerError(f"JSON of another form ({type(error).__name__})") from None
    return Answer(tuple(found), tuple(dict.fromkeys(one_line(str(note)) for note in notes)))


def _pairs_plainly(values: list[Any]) -> Pairs:
    pairs = np.array([(float(time), float(value)) for time, value in values], dtype=np.float64).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def one_line(text: str, limit: int = 300) -> str:
    """`text` as one printable line of at most `limit` characters."""
    line = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()
    return line if len(line) <= limit else line[: limit - 3] + "..."
