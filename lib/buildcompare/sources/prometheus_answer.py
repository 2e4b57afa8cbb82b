"""What does an answer of the query API hold? From its bytes to arrays, quickly and to the last bit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from buildcompare.recording import FloatArray

_VALUES = b'"values":[['
"""Cannot occur inside of a JSON string: its quotes would be escaped."""
_NUMERIC = b"0123456789+-.eEInfNa,"
_PUNCTUATION = b'[]"'


class BrokenAnswerError(Exception):
    """Bytes that are no whole answer; the message says what they are instead."""


@dataclass(frozen=True)
class Answer:
    """The series of one query, each with its labels, and what the server had to say about it."""

    series: tuple[tuple[Mapping[str, str], FloatArray, FloatArray], ...]
    """Labels, times in seconds, values."""
    warnings: tuple[str, ...] = ()


def read_answer(body: bytes | bytearray) -> Answer:
    """Read a range answer: numbers by numpy, all that stands around them by the JSON parser.

    Raises
    ------
    BrokenAnswerError
        Where `body` is not a whole answer.
    """
    head, *pieces = bytes(body).split(_VALUES)
    skeleton, numbers = [head], []
    for i, piece in enumerate(pieces):
        end = piece.find(b"]]")
        pairs = None if end < 0 else _pairs(piece[:end])
        if pairs is None:
            return read_answer_plainly(body)
        numbers.append(pairs)
        skeleton += [b'"values":', str(i).encode(), piece[end + 2 :]]
    return _answer(_json(b"".join(skeleton)), numbers)


def read_answer_plainly(body: bytes | bytearray) -> Answer:
    """The same by the JSON parser alone: slower, and the reference."""
    return _answer(_json(bytes(body)), None)


def _pairs(text: bytes) -> FloatArray | None:
    """``1,"2"],[3,"4"`` as an array of shape (n, 2), or None where it is not of this form."""
    plain = text.translate(None, _PUNCTUATION)
    if plain.translate(None, _NUMERIC):
        return None
    count = text.count(b"],[") + 1
    if text.count(b'"') != 2 * count or plain.count(b",") != 2 * count - 1:
        return None
    try:
        numbers = np.fromstring(plain, dtype=np.float64, sep=",")
    except (ValueError, DeprecationWarning):
        return None
    return numbers.reshape(count, 2) if numbers.size == 2 * count else None


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


def _answer(data: dict[str, Any], numbers: list[FloatArray] | None) -> Answer:
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
            found.append((labels, np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BrokenAnswerError(f"JSON of another form ({type(error).__name__})") from None
    return Answer(tuple(found), tuple(dict.fromkeys(one_line(str(note)) for note in notes)))


def _pairs_plainly(values: list[Any]) -> FloatArray:
    return np.array([(float(time), float(value)) for time, value in values], dtype=np.float64).reshape(-1, 2)


def one_line(text: str, limit: int = 300) -> str:
    """`text` as one printable line of at most `limit` characters."""
    line = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in text)).strip()
    return line if len(line) <= limit else line[: limit - 3] + "..."
