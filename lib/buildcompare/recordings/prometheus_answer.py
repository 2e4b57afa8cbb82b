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
from buildcompare.recordings.recording import FloatArray

BATCH = 1 << 19
"""Bytes that are parsed at a time."""
MAX_PART = 64_000_000
"""Bound on the bytes of one series: 11,000 points take 500 kB."""
MAX_WORDS = 300
"""Bound on the characters that are kept of a server's message."""
_VALUES = b'"values":[['
"""Before the numbers of a series; no JSON string contains it, because quotes are escaped there."""

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
    waiting, size, enough = list[bytes](), 0, BATCH
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size >= enough:
            waiting, size = [_take_series(b"".join(waiting), around, pairs)], 0
            enough = max(BATCH, len(waiting[0]))  # or the time to search it would grow with its square
            if enough > MAX_PART:
                expected = f"series of at most {MAX_PART // 1_000_000} MB"
                raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
    around += _take_series(b"".join(waiting), around, pairs)
    return _answer(bytes(around), pairs, hide)


def _take_series(text: bytes, around: bytearray, pairs: list[Pairs]) -> bytes:
    """Append complete series to `pairs` and the JSON between them to `around`; return the unread rest."""
    rest, *parts = text.split(_VALUES)
    texts = list[bytes]()
    for i, part in enumerate(parts):
        # Search backwards from a brace: "]" is so frequent that a forward search for "]]" takes several times as long.
        stop = part.find(b"}")
        brace = part.find(b"{", 0, max(stop, 0))
        end = part.rfind(b"]]", 0, stop if brace < 0 else brace) if stop >= 0 else -1
        if end < 0:
            rest = b"".join((rest, _VALUES, _VALUES.join(parts[i:])))
            break
        around += rest + b'"values":%d' % (len(pairs) + len(texts))
        texts.append(part[:end])
        rest = part[end + 2 :]
    if texts:
        try:
            pairs += _parsed(texts)
        except (ValueError, TypeError):  # pyarrow's errors are subclasses
            pairs += [_of_json(json_object(b'{"values":[[' + each + b"]]}")) for each in texts]
    return rest


def _parsed(texts: list[bytes]) -> list[Pairs]:
    """Times and values of series, each written as ``1,"2"],[3,"4"``; a ValueError if one is written otherwise."""
    text = b"".join([b"],[" + each for each in texts])
    words = compute.split_pattern(pa.array([text], pa.large_string()), '"').flatten()
    if words[-1].as_py():
        raise ValueError("not a quote at the end")
    even = np.arange(0, len(words) - 1, 2)  # the words `],[1,` and `],[3,`; the values stand between them
    heads = words.take(pa.array(even))
    values = words.take(pa.array(even + 1)).cast(pa.float64()).to_numpy()
    found: list[Pairs] = []
    first, last_heads, times = 0, None, values
    for each in texts:
        size = each.count(b'"') // 2
        these = heads.slice(first, size)
        if last_heads is None or not these.equals(last_heads):  # series of a query nearly always share their times
            times = compute.utf8_slice_codeunits(these, 3, -1).cast(pa.float64()).to_numpy()
            framed = compute.and_(compute.starts_with(these, "],["), compute.ends_with(these, ","))
            if not (compute.all(framed).as_py() and np.isfinite(times).all()):
                raise ValueError("others than pairs")
            last_heads = these
        found.append((times, values[first : first + size]))
        first += size
    return found


def json_object(text: bytes) -> dict[str, Any]:
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


def _of_json(row: Mapping[str, Any]) -> Pairs:
    """Times and values that the JSON parser has read: slower, for any spelling."""
    try:
        times, values = np.array([[float(time), float(value)] for time, value in row["values"]]).reshape(-1, 2).T.copy()
    except (ValueError, TypeError, OverflowError) as error:
        raise PassingError(f"JSON that is damaged ({type(error).__name__})") from None
    return times, values
