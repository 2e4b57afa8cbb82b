"""Read an answer of Prometheus's query API from bytes to arrays, to the last bit.

The numbers of an answer are words between quotes to pyarrow, which rounds as float() does and is many times faster than
a JSON parser (benchmarks/pull.py).
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pydantic_core import from_json

from buildcompare.config.errors import InputError
from buildcompare.config.outside import one_line
from buildcompare.recordings.recording import FloatArray

MAX_PART = 64_000_000
"""Bound on what stands between two series, and on one series: 11,000 points take 500 kB."""
MAX_WORDS = 300
"""Characters of a server's words that are repeated."""
CHUNK = 1 << 19
"""Bytes that are parsed at a time."""
_PARSERS = 2  # chunks that are parsed while the next is read
_POOL = pa.system_memory_pool()
"""pyarrow's own gives memory back after each use, and gets it anew: page by page, which takes longer than parsing."""
_VALUES = b'"values":[['
"""Before the numbers of a series; it cannot occur in a JSON string, whose quotes would be escaped."""
_BETWEEN = b"],["
"""Parts two series, as it parts two pairs of a time and a value."""

Pairs = tuple[FloatArray, FloatArray]


class PassingError(Exception):
    """A fault that is worth another try, such as an answer that is not whole; the message says what was found."""

    wait_s = 0.0
    """What the server asks us to wait before that."""


class RefusedAnswerError(Exception):
    """A whole answer that reports an error; its argument is that answer."""


@dataclass(frozen=True)
class Answer:
    """The series of one query, each with its labels, and what the server had to say about it."""

    series: tuple[tuple[Mapping[str, str], FloatArray, FloatArray], ...]
    """Labels, times in seconds, values; the arrays may be shared and are read only."""
    warnings: tuple[str, ...] = ()

    @property
    def last(self) -> float:
        """The last value of the first series, such as the one value of a whole run; NaN without any."""
        return float(self.series[0][2][-1]) if self.series and self.series[0][2].size else float("nan")


def read_answer(chunks: Iterable[bytes], hide: Callable[[str], str] = str) -> Answer:
    """Read a range answer as it arrives, its words as `hide` makes them; a :class:`RefusedAnswerError` of an error."""
    waiting, around = bytearray(), bytearray()
    searched = begun = 0  # so far nothing begins in `waiting`; series that have begun
    numbers: list[Pairs] = []
    with ExitStack() as held:
        parsers: Executor | None = None
        later: deque[Callable[[], list[Pairs]]] = deque()
        for chunk in chunks:
            waiting += chunk
            done = 0
            places: list[tuple[int, int]] = []
            while (start := waiting.find(_VALUES, max(done, searched))) >= 0:
                first = start + len(_VALUES)
                # Up to the last ]] before a brace: a character that is rare is found many times faster.
                stop = waiting.find(b"}", first)
                brace = waiting.find(b"{", first, stop)
                end = waiting.rfind(b"]]", first, stop if brace < 0 else brace)
                if end < 0:
                    searched = start
                    break
                around += waiting[done:start] + b'"values":%d' % (begun + len(places))
                places.append((first, end))
                done = end + 2
            else:
                searched = len(waiting) - len(_VALUES)
            begun += len(places)
            text = _BETWEEN.join(memoryview(waiting)[first:end] for first, end in places)
            ends = [*itertools.accumulate(end - first + len(_BETWEEN) for first, end in places)]
            del waiting[:done]
            searched = max(searched - done, 0)
            if len(waiting) > MAX_PART:
                expected = f"series of at most {MAX_PART // 1_000_000} MB"
                raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
            if places:
                parse = partial(_pairs, text, ends)
                if len(chunk) >= CHUNK:
                    parsers = parsers or held.enter_context(ThreadPoolExecutor(_PARSERS, "parse"))
                    later.append(parsers.submit(parse).result)
                else:  # what comes last, often all of it: here and now, without the cost of a thread
                    later.append(parse().copy)
            if len(later) > _PARSERS:
                numbers += later.popleft()()
        for parsed in later:
            numbers += parsed()
    if _VALUES in waiting:
        raise PassingError("JSON that ends early")
    return _answer(bytes(around + waiting), numbers, hide)


@cache
def start_parser() -> None:
    """Parse something while the server works: the first use in a process takes 10 ms."""
    _pairs(b'1,"2"', [8])


def _pairs(text: bytes, ends: Sequence[int]) -> list[Pairs]:
    """Times and values of series ``1,"2"],[3,"4"`` that stop at `ends`, _BETWEEN included, which stands between two."""
    try:
        quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord('"'))
        stops = np.searchsorted(quotes, ends)
        if quotes[-1] != len(text) - 1 or (stops % 2).any():
            raise ValueError("others than pairs")
        offsets = np.append(0, quotes)
        offsets[1::2] += 1  # words 1, 3, 5 are values without their quotes; those between hold the times
        bits = pa.py_buffer(b"\xaa" * (quotes.size // 8 + 1))
        values = compute.cast(_words(quotes.size, offsets, text, bits), pa.float64(), memory_pool=_POOL).buffers()[1]
        even = pa.Array.from_buffers(pa.int64(), quotes.size // 2, [None, pa.py_buffer(np.arange(0, quotes.size, 2))])
        numbers = np.frombuffer(values, np.float64, quotes.size)[1::2].copy()
        _, starts, between = compute.take(_words(quotes.size, offsets, text), even, memory_pool=_POOL).buffers()
        starts, between = np.frombuffer(starts, np.int64), between.to_pybytes()
        found: list[Pairs] = []
        first, known = 0, b""
        for last in (stops // 2).tolist():
            text_of = between[starts[first] : starts[last]].removeprefix(b'"' + _BETWEEN)
            if text_of != known or not found:
                known, times = text_of, (_times if len(text_of) < CHUNK else _times.__wrapped__)(text_of)
            if times.shape != (last - first,):
                raise ValueError("others than pairs")
            found.append((times, numbers[first:last]))
            first = last
        return found
    except (ValueError, TypeError, IndexError, OverflowError):  # pyarrow's among them
        starts = [0, *ends]
        texts = [text[start : end - len(_BETWEEN)] for start, end in itertools.pairwise(starts)]
        return [_of_json(json_object(b'{"values":[[' + each + b"]]}")) for each in texts]


def _words(count: int, offsets: np.ndarray, text: bytes, valid: pa.Buffer | None = None) -> pa.LargeStringArray:
    return pa.LargeStringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text), valid)


@lru_cache(8)
def _times(text: bytes) -> FloatArray:
    """The times of ``1,""],[3,"``, shared: most answers to one set of questions have the same."""
    read = from_json(b"[" + text.removesuffix(b',"').replace(b',""],[', b",") + b"]")
    if None in read:
        raise ValueError("a time that is null")
    times = np.array(read, np.float64)
    times.flags.writeable = False
    return times


def json_object(text: bytes) -> dict[str, Any]:
    """One JSON object; a :class:`PassingError` of anything else."""
    try:
        data = from_json(text.decode())
    except UnicodeDecodeError as error:
        raise PassingError(f"bytes that are not UTF-8 (byte {error.start})") from None
    except ValueError as error:
        raise PassingError(f"JSON that {'ends early' if 'EOF' in str(error) else 'is damaged'} ({error})") from None
    if not isinstance(data, dict):
        raise PassingError("JSON that is no object")
    return data


def _answer(text: bytes, numbers: list[Pairs], hide: Callable[[str], str]) -> Answer:
    data = json_object(text)
    if data.get("status") == "error":
        raise RefusedAnswerError(text)
    found = []
    try:
        if data.get("isPartial"):
            raise PassingError("one that the server calls partial: some of its stores did not answer")
        notes = [*(data.get("warnings") or ()), *(data.get("infos") or ())]
        if data["data"]["resultType"] != "matrix":
            raise PassingError(f"a result of the type {one_line(hide(str(data['data']['resultType'])), 40)!r}")
        for row in data["data"]["result"]:
            labels = {hide(str(key)): hide(str(value)) for key, value in row["metric"].items()}
            if "values" in row:
                found.append((labels, *(_of_json(row) if isinstance(row["values"], list) else numbers[row["values"]])))
            else:
                notes.append("native histograms were left out: ask for histogram_quantile() or an average of them")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise PassingError(f"JSON of another form ({type(error).__name__})") from None
    return Answer(tuple(found), tuple(dict.fromkeys(one_line(hide(str(note)), MAX_WORDS) for note in notes)))


def _of_json(row: Mapping[str, Any]) -> Pairs:
    """Numbers that the JSON parser has read."""
    try:
        times, values = np.array([[float(time), float(value)] for time, value in row["values"]]).reshape(-1, 2).T.copy()
    except (ValueError, TypeError, OverflowError) as error:
        raise PassingError(f"JSON that is damaged ({type(error).__name__})") from None
    return times, values
