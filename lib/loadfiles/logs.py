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
from buildcompare.recordings.files import LATEST, TESTED, InputFile
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.series import FloatArray, Series
from loadfiles.request_log import LONGEST_RUN_S

GROUP, BY_USER, TOTAL = "logs", "logs by user", "Log messages"
MOST_MESSAGES = 150
"""Most messages; rarer ones are counted together as `OTHERS`."""
OTHERS, UNREAD = f"{RARE}messages)", "(lines that are no JSON)"
LONGEST = 200
"""Longest message, in characters; longer ones are cut."""
STEP_S, SHORT_S, SHORT_STEP_S = 60, 600, 10
"""Messages are counted by minute, in logs below ten minutes by ten seconds."""
_MESSAGES, _TIMES = ("msg", "message", "event"), ("time", "ts", "timestamp", "@timestamp", "t")
_USERS = ("user_id", "userId", "user", "username", "uid")
_SECRET = re.compile(
    r"(?i)\b((?:[\w-]*(?:password|passwd|secret|token|api[-_]?key|credential)[\w-]*|authorization|cookie)[\"']?\s*[:=]\s*)"
    r"(?:(?:bearer|basic)\s+)?(?:\"[^\"]*\"|'[^']*'|\S+)|\b(bearer\s+)\S+"
)
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_ID = re.compile(r"(?i)\b(?=[\w-]*\d)(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}|[\w-]{20,})\b")
_NUMBER = re.compile(r"\d+(?:[.:,]\d+)*")


def masked(message: str) -> str:
    """Hide secrets and mask what differs from line to line.

    Examples
    --------
    >>> masked("user 42 at 10.0.0.1:8065 failed after 1.5 s, token=abc")
    'user # at # failed after # s, token={secret}'
    """
    text = _SECRET.sub(lambda found: f"{found[1] or found[2]}{{secret}}", " ".join(message.split()))
    return _NUMBER.sub("#", _ID.sub("{id}", _ADDRESS.sub("{address}", text)))[:LONGEST]


def is_log(head: bytes) -> bool:
    """Recognise a log by its first line: an object with a message and a time."""
    try:
        first = json.loads(head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and _of(first, _MESSAGES) is not None and _of(first, _TIMES) is not None


def _of(line: Any, keys: tuple[str, ...]) -> Any:
    return next((line[key] for key in keys if isinstance(line.get(key), (str, int, float))), None)


def read_log(stream: BinaryIO, file: InputFile, catalogue: Catalogue) -> Recording:
    """Count the messages of a log; a line without a time gets the time of the previous line.

    Where most lines name a user, messages are counted for each user that stands in the log at that time.
    """
    times: list[Any] = []
    codes: list[int] = []
    users: list[int] = []
    known: dict[str, int] = {}
    names_of_users: dict[Any, int] = {None: -1}
    for raw in stream:
        try:
            line = json.loads(raw)
            of = line if isinstance(line, dict) else {}
        except (ValueError, RecursionError):
            of = {}
        message, at, user = (_of(of, keys) for keys in (_MESSAGES, _TIMES, _USERS))
        if not raw.strip():
            continue
        codes.append(known.setdefault(UNREAD if message is None else masked(str(message)), len(known)))
        times.append(times[-1] if at is None and times else at)
        users.append(names_of_users.setdefault(user, len(names_of_users) - 1))
    seconds = _seconds(times, file)
    start, end = float(seconds.min()), float(seconds.max())
    if end - start > LONGEST_RUN_S:
        raise file.fault("times", f"a log of at most {LONGEST_RUN_S // 86_400} days", f"{end - start:,.0f} s")
    step = STEP_S if end - start >= SHORT_S else SHORT_STEP_S
    ends = np.arange(start + step, end + 1e-6, step)
    if ends.size < 2:
        raise file.fault("times", f"a log of at least {2 * step} s", f"{end - start:.0f} s")
    names, most = [*known, OTHERS], [code for code, _ in Counter(codes).most_common(MOST_MESSAGES)]
    code = np.where(np.isin(codes, most), codes, len(known))
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
    labels = map(label, np.unique(code))
    provenance = {"kind": GROUP, "files": [file.provenance], "rate_s": float(step)}
    return Recording((total, *labels), (start, end), stop_known=True, provenance=provenance)


def _seconds(times: list[Any], file: InputFile) -> FloatArray:
    """Convert times to seconds since 1970: ISO 8601, or numbers of seconds or finer."""
    try:
        if isinstance(times[0], str):
            found = pd.to_datetime(pd.Series(times), utc=True, format="ISO8601")
            seconds = np.asarray((found - pd.Timestamp(0, tz="UTC")).dt.total_seconds(), dtype=np.float64)
        else:
            seconds = np.asarray(times, dtype=np.float64)
            while LATEST <= seconds.max() < np.inf:  # milliseconds or finer
                seconds = seconds / 1000.0
    except (ValueError, TypeError, OverflowError) as error:
        raise file.fault("times", "times in ISO 8601, or numbers of one unit", str(error)[:100]) from None
    if not ((seconds >= TESTED[0]) & (seconds < TESTED[1])).all():
        extremes = f"{seconds.min():.12g} to {seconds.max():.12g} s"
        raise file.fault("times", "times of one unit between 2000 and 2037", extremes)
    return seconds
