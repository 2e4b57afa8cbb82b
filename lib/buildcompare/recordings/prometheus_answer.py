"""Read an answer of Prometheus's query API from bytes to arrays, to the last bit.

pyarrow parses the numbers: it rounds as float() does, and needs a seventh of a JSON parser's time (benchmarks/pull.py).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute
from pydantic_core import from_json

from buildcompare.config.errors import InputError
from buildcompare.config.outside import one_line
from buildcompare.recordings.series import FloatArray

BATCH = 1 << 19  # bytes that are parsed at a time
MAX_PART = 64_000_000  # bound on the bytes of one series: 11,000 points take 500 kB
MAX_WORDS = 300  # bound on the characters that are kept of a server's message
_VALUES = b'"values":[['  # before the numbers of a series; no JSON string contains it, because quotes are escaped there

Pairs = tuple[FloatArray, FloatArray]


class PassingError(Exception):
    """A fault that may pass, such as a truncated answer; the message says what was found."""


class RefusedAnswerError(Exception):
    """A complete answer that reports an error; the argument is its text."""


@dataclass(frozen=True)
class Answer:
    """The series of one query, each with its labels, and the server's warnings."""

    series: tuple[tuple[Mapping[str, str], FloatArray, FloatArray], ...]
    """Labels, times (s since 1970) and values; series may share an array, so it must not be changed."""
    warnings: tuple[str, ...] = ()

    @property
    def last(self) -> float:
        """The last value of the first series, for queries with one value; NaN if empty."""
        return float(self.series[0][2][-1]) if self.series and self.series[0][2].size else float("nan")


def read_answer(chunks: Iterable[bytes], hide: Callable[[str], str] = str) -> Answer:
    """Parse a range answer while it arrives; `hide` is applied to all its text.

    Raises
    ------
    PassingError
        If the answer is truncated, damaged or partial.
    RefusedAnswerError
        If the server reports an error.
    InputError
        If a series is larger than `MAX_PART`.
    """
    around, pairs = bytearray(), list[Pairs]()
    waiting, size = [b""], 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= max(BATCH, len(waiting[0])):  # or the time to search a long series would grow with its square
            waiting, size = [_take_series(b"".join(waiting), around, pairs)], 0
            if len(waiting[0]) > MAX_PART:
                expected = f"series of at most {MAX_PART // 1_000_000} MB"
                raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
    around += _take_series(b"".join(waiting), around, pairs)
    return _answer(bytes(around), pairs, hide)


def _take_series(text: bytes, around: bytearray, pairs: list[Pairs]) -> bytes:
    """Append complete series to `pairs` and the JSON between them to `around`; return the unread rest."""
    *parts, rest = text.split(b"]]")
    for part in parts:
        before, found, numbers = part.rpartition(_VALUES)
        if found:
            around += before + b'"values":%d' % len(pairs)
            pairs.append(_parsed(numbers, pairs[-1][0] if pairs else None))
        else:
            around += part + b"]]"
    return rest


def _parsed(text: bytes, usual: FloatArray | None) -> Pairs:
    """Parse the times and values of one series, ``1,"2"],[3,"4"``; `usual` are the times that most series have."""
    try:
        words = compute.split_pattern(pa.array([text.translate(None, b'[]"')], pa.large_string()), ",").flatten()
        times, values = words.cast(pa.float64()).to_numpy().reshape(-1, 2).T.copy()
        if np.isfinite(times).all() and text.count(b'"],[') == times.size - 1 and text.count(b'"') == 2 * times.size:
            return (times if usual is None or not np.array_equal(times, usual) else usual), values
    except ValueError:  # pyarrow's errors are subclasses
        pass
    return _of_json(json_object(b'{"values":[[' + text + b"]]}"))


def json_object(text: bytes) -> Any:
    """Parse one JSON object; raise a :class:`PassingError` for anything else."""
    try:
        data = from_json(text.decode())
    except UnicodeDecodeError as error:
        raise PassingError(f"bytes that are not UTF-8 (byte {error.start})") from None
    except ValueError as error:
        raise PassingError(f"JSON that {'ends early' if 'EOF' in str(error) else 'is damaged'} ({error})") from None
    if not isinstance(data, dict):
        raise PassingError("JSON that is no object")
    return data


def _answer(text: bytes, pairs: list[Pairs], hide: Callable[[str], str]) -> Answer:
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
                found.append((labels, *(_of_json(row) if isinstance(row["values"], list) else pairs[row["values"]])))
            else:
                notes.append("native histograms were left out: ask for histogram_quantile() or an average of them")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise PassingError(f"JSON of another form ({type(error).__name__})") from None
    return Answer(tuple(found), tuple(dict.fromkeys(one_line(hide(str(note)), MAX_WORDS) for note in notes)))


def _of_json(row: Any) -> Pairs:
    """Times and values that the JSON parser has read: slower, for any spelling."""
    try:
        times, values = np.array([[float(time), float(value)] for time, value in row["values"]]).reshape(-1, 2).T.copy()
    except (ValueError, TypeError, OverflowError) as error:
        raise PassingError(f"JSON that is damaged ({type(error).__name__})") from None
    return times, values
