"""Parse an answer of Prometheus's query API from bytes into arrays, exact to the last bit.

pyarrow parses the numbers: it rounds as float() does, and needs a tenth of a JSON parser's time (benchmarks/pull.py).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic_core import from_json

from buildcompare.config.errors import InputError
from buildcompare.config.outside import one_line
from buildcompare.recordings.series import FloatArray, to_float

BATCH = 1 << 19  # bytes that are parsed at a time
MAX_PART = 64_000_000  # maximum bytes of one series: 11,000 points take 500 kB
MAX_WORDS = 300  # maximum characters that are kept of a server's message
_VALUES = b',"values":[['  # precedes a series' samples; JSON strings cannot contain it: their quotes are escaped
_BEFORE, _AFTER = (int.from_bytes(letters, "little") for letters in (b',"', b'"],['))  # what surrounds a value
_PARTIAL = re.compile(r"\b(?:partial|incomplete|truncated|not exhaustive|rpc error)\b", re.IGNORECASE)

Pairs = tuple[FloatArray, FloatArray]
IndexArray = npt.NDArray[np.intp]


class PassingError(Exception):
    """A fault that may be temporary, such as a truncated answer; the message says what was found."""


class RefusedAnswerError(Exception):
    """A complete answer that reports an error; the exception's argument is the text of the answer."""


@dataclass(frozen=True)
class Answer:
    """The series of one query, each with its labels, and the server's warnings."""

    series: tuple[tuple[Mapping[str, str], FloatArray, FloatArray], ...]
    """Labels, times (s since 1970) and values of each series. Never change an array: series may share it."""
    warnings: tuple[str, ...] = ()

    @property
    def last(self) -> float:
        """The last value of the first series, for queries with one value; NaN if there is none."""
        return float(self.series[0][2][-1]) if self.series and self.series[0][2].size else float("nan")


def read_answer(chunks: Iterable[bytes], hide: Callable[[str], str] = str) -> Answer:
    """Parse the answer to a range query while it arrives; `hide` is applied to its labels and warnings.

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
        if size >= max(BATCH, len(waiting[0])):  # parsing rescans all unread bytes, so wait until they have doubled
            waiting, size = [_take_series(b"".join(waiting), around, pairs)], 0
            if len(waiting[0]) > MAX_PART:
                expected = f"series of at most {MAX_PART // 1_000_000} MB"
                raise InputError(file=None, key="source.step_s", expected=expected, found="a larger one")
    around += _take_series(b"".join(waiting), around, pairs)
    return _answer(bytes(around), pairs, hide)


def _take_series(text: bytes, around: bytearray, pairs: list[Pairs]) -> bytes:
    """Append complete series to `pairs` and the JSON between them to `around`; return the unread rest."""
    view, series, start = memoryview(text), list[memoryview](), 0
    while (end := text.find(b"}", start)) >= 0:
        if text.startswith(_VALUES, start) and text.endswith(b"]]", start, end) and text.find(b"{", start, end) < 0:
            around += b',"values":%d}' % (len(pairs) + len(series))
            series.append(view[start + len(_VALUES) : end - 2])
        else:
            around += view[start : end + 1]
        start = end + 1
    if series:
        pairs += _parsed(series, pairs[-1][0] if pairs else np.empty(0))
    return text[start:]


def _parsed(series: list[memoryview], usual: FloatArray) -> Iterator[Pairs]:
    """Parse series like ``1,"2"],[3,"4"`` to times and values; series with equal times may share an array."""
    text = b"],[".join([*series, b""])
    quotes = np.flatnonzero(np.frombuffer(text, np.uint8) == ord('"'))
    try:
        numbers = _numbers(text, quotes[::2], quotes[1::2])
    except ValueError:  # pyarrow's errors are subclasses of ValueError
        yield from (_of_json(json_object(b'{"values":[[' + each + b"]]}")) for each in series)
        return
    ends = [0, *np.searchsorted(quotes[1::2], np.cumsum([len(each) + 3 for each in series]))]
    for one in map(slice, ends, ends[1:]):
        times, values = (each[one] for each in numbers)
        usual = usual if np.array_equal(times, usual) else times
        yield usual, values


def _numbers(text: bytes, opening: IndexArray, closing: IndexArray) -> Pairs:
    """Parse times and values in ``1,"2"],[3,"4"],[`` (quotes at `opening` and `closing`), or raise a ValueError."""
    letters = np.frombuffer(text, np.uint8)
    if not 0 < opening.size == closing.size or closing[-1] + 4 != letters.size or b"(" in text:
        raise ValueError("samples that are cut off, or nan(1), which Arrow takes for NaN")
    before, after = (np.ndarray(letters.size - n + 1, f"<u{n}", text, strides=(1,)) for n in (2, 4))
    if (before[opening - 1] != _BEFORE).any() or (after[closing] != _AFTER).any():
        raise ValueError("other letters between numbers")
    offsets = np.full(4 * closing.size + 1, letters.size, np.int32)  # starts: time, separator, value, separator
    offsets[0], offsets[4:-1:4] = 0, closing[:-1] + 4
    offsets[1::4], offsets[2::4], offsets[3::4] = opening - 1, opening + 1, closing
    is_number = np.full(closing.size // 2 + 1, 0b01010101, np.uint8)  # bitmap: Arrow parses only times and values
    buffers = [pa.py_buffer(each) for each in (is_number, offsets, text)]
    words = pa.Array.from_buffers(pa.string(), offsets.size - 1, buffers)
    numbers = np.frombuffer(words.cast(pa.float64()).buffers()[1], count=offsets.size - 1)
    if not np.isfinite(numbers[::4]).all():
        raise ValueError("times that are not finite")
    return numbers[::4].copy(), numbers[2::4].copy()


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
    series = []
    try:
        warned = [str(each) for each in data.get("warnings") or () if _PARTIAL.search(str(each))]
        named = [key for part in (data, data["data"]) for key in part if part[key] and "partial" in key.casefold()]
        if warned or named:  # Thanos warns of partial answers; VictoriaMetrics, M3 and others mark them in a field
            raise PassingError("one that the server calls partial: some of its stores did not answer")
        notes = [*(data.get("warnings") or ()), *(data.get("infos") or ())]
        if data["data"]["resultType"] != "matrix":
            raise PassingError(f"a result of the type {one_line(hide(str(data['data']['resultType'])), 40)!r}")
        for row in data["data"]["result"]:
            labels = {hide(str(key)): hide(str(value)) for key, value in row["metric"].items()}
            if "values" in row:
                series.append((labels, *(_of_json(row) if isinstance(row["values"], list) else pairs[row["values"]])))
            else:
                notes.append("native histograms were left out: ask for histogram_quantile() or an average of them")
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise PassingError(f"JSON of another form ({type(error).__name__})") from None
    return Answer(tuple(series), tuple(dict.fromkeys(one_line(hide(str(note)), MAX_WORDS) for note in notes)))


def _of_json(row: Any) -> Pairs:
    """Convert times and values that the JSON parser read; this is slower than pyarrow, but reads any spelling."""
    try:
        pairs = [[float(time), to_float(value)] for time, value in row["values"]]
        times, values = np.array(pairs).reshape(-1, 2).T.copy()
    except (ValueError, TypeError, OverflowError) as error:
        raise PassingError(f"JSON that is damaged ({type(error).__name__})") from None
    return times, values
