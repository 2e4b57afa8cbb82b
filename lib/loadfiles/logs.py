"""Read logs of JSON lines: how often each message stands in them, numbers and ids masked, secrets hidden."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, BinaryIO

import numpy as np
import pandas as pd

from buildcompare.config.catalogue import Catalogue, unit_of_label
from buildcompare.labels.tables import OTHERS as RARE
from buildcompare.recordings.files import InputFile
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import FloatArray, Series
from loadfiles.request_log import in_seconds, span_of

GROUP, BY_USER, TOTAL = "logs", "logs by user", "Log messages"
MOST_MESSAGES = 150  # rarer ones are counted together as `OTHERS`
OTHERS, UNREAD = f"{RARE}messages)", "(lines that are no JSON)"
LONGEST = 200  # characters of a message; longer ones are cut
STEP_S, SHORT_S, SHORT_STEP_S = 60, 600, 10  # messages are counted by minute, in logs below ten minutes by ten seconds
_MESSAGES, _TIMES = ("msg", "message", "event"), ("time", "ts", "timestamp", "@timestamp", "t")
_USERS = ("user_id", "userId", "user", "username", "uid")
_SECRET = re.compile(
    r"(?i)(?<![\w-])(?=[\w-]*?(?:passwo?r?d|secret|token|api[-_]?key|credential|authoriz|cookie))([\w-]++[\"']?\s*+[:=]\s*+)"
    r"(?:(?:bearer|basic)\s+)?(?:\"[^\"]*\"|'[^']*'|\S+)|\b(bearer\s+)\S+"
)
_ADDRESS = re.compile(r"(?<![\w.+-])[\w.+-]++@[\w-]++\.[\w.]+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_ID = re.compile(r"(?i)\b(?=[\w-]*\d)(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|[\w-]{20,})\b")
_NUMBER = re.compile(r"\d+(?:[.:,]\d+)*")


def masked(message: str) -> str:
    """Hide secrets and mask what differs from line to line.

    Examples
    --------
    >>> masked("user 42 at 10.0.0.1:8065 failed after 1.5 s, token=abc")
    'user # at # failed after # s, token={secret}'
    """
    text = _SECRET.sub(lambda found: f"{found[1] or found[2]}{{secret}}", " ".join(message[: 5 * LONGEST].split()))
    return _NUMBER.sub("#", _ID.sub("{id}", _ADDRESS.sub("{address}", text)))[:LONGEST]


def is_log(head: bytes) -> bool:
    """Recognise a log by its first line: an object with a message and a time."""
    return None not in _fields(head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")[0])[:2]


def _fields(line: bytes) -> list[Any]:
    """Message, time and user of a line; None where it has none."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        data = None
    stated = data.get if isinstance(data, dict) else {}.get
    return [
        next((stated(key) for key in keys if isinstance(stated(key), (str, int, float))), None)
        for keys in (_MESSAGES, _TIMES, _USERS)
    ]


def read_log(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
    """Count the messages of a log; a line without a time gets the time of the previous line.

    Where most lines name a user, messages are counted for each user that stands in the log at that time.
    """
    times, codes, users = list[Any](), list[int](), list[int]()
    code_of: dict[str, int] = {}
    names_of_users: dict[Any, int] = {None: -1}
    for raw in stream:
        if not raw.strip():
            continue
        message, at, user = _fields(raw)
        codes.append(code_of.setdefault(UNREAD if message is None else masked(str(message)), len(code_of)))
        times.append(times[-1] if at is None and times else at)
        users.append(names_of_users.setdefault(user, len(names_of_users) - 1))
    seconds = _seconds(times, file)
    start, end = span_of(seconds, file)
    step = STEP_S if end - start >= SHORT_S else SHORT_STEP_S
    ends = np.arange(start + step, end + 1e-6, step)
    if ends.size < 2:
        raise file.fault("times", f"a log of at least {2 * step} s", f"{end - start:.0f} s")
    names, most = [*code_of, OTHERS], [code for code, _ in Counter(codes).most_common(MOST_MESSAGES)]
    code = np.where(np.isin(codes, most), codes, len(code_of))
    place, user_of = ((seconds - start) // step).astype(np.int64), np.array(users)
    by_user = np.mean(user_of >= 0) > 0.5
    pairs = np.unique(place[user_of >= 0] * len(names_of_users) + user_of[user_of >= 0])
    active = np.bincount(pairs // len(names_of_users), minlength=ends.size + 1)[: ends.size]

    def rate(of: Any) -> FloatArray:
        return np.asarray(np.bincount(place[of], minlength=ends.size + 1)[: ends.size] * (60.0 / step))

    def label(each: int) -> Series:
        group = BY_USER if by_user else GROUP
        rates = rate(code == each) / (np.maximum(active, 1) if by_user else 1)
        return Series(group, names[each], unit_of_label(group), ends, rates, role="label", stat="avg")

    total = Series(catalogue.find(TOTAL).slug, TOTAL, "messages/min", ends, rate(code >= 0))
    provenance = {"kind": GROUP, "files": [file.provenance], "rate_s": float(step)}
    return Recording((total, *map(label, np.unique(code))), (start, end), stop_known=True, provenance=provenance)


def _seconds(times: list[Any], file: InputFile) -> FloatArray:
    """Convert times to seconds since 1970: ISO 8601, or numbers of seconds or finer."""
    try:
        if isinstance(times[0], str):
            dates = pd.to_datetime(pd.Series(times), utc=True, format="ISO8601")
            return np.asarray((dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds(), dtype=np.float64)
        return in_seconds(np.asarray(times, dtype=np.float64))
    except (ValueError, TypeError, OverflowError) as error:
        raise file.fault("times", "times in ISO 8601, or numbers of one unit", str(error)[:100]) from None
