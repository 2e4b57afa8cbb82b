"""Pack the data of an interactive chart of one metric for the browser."""

import base64
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

import numpy as np

from buildcompare.comparison.measure import TestView
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import MetricResult, RunResult
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.stats.levels import minute_means
from buildcompare.text.numbers import SHORT_UNITS, change, scales

WINDOWS = {"bounded": "steady", "unbounded": "last 30 min"}
"""Name of the steady window by type of test."""
BOTH_SUSTAINED = "both sustained {:,.0f}"
"""Label on a chart at the highest load that both builds sustained."""
Find: TypeAlias = Callable[[Recording], Series | None]
Header: TypeAlias = dict[str, Any]
"""JSON object that `chart.js` reads."""
Mark = TypedDict("Mark", {"side": Side | None, "from": tuple[float, float], "to": tuple[float, float], "text": str})
"""A line on a chart between two points (elapsed seconds, value)."""
MANTISSA_BITS = 16
"""Number of mantissa bits kept, of 23 in a 32-bit float. Relative errors are at most 8e-6; charts shrink by a third."""
MOST_SAMPLES = 5000
"""Maximum number of samples of a curve. Longer curves keep only the minimum and maximum of each short time span."""


def chart(
    test: TestView,
    metric: MetricResult,
    find: Find,
    *,
    title: str,
    alt: str,
    marks: Sequence[Mark] = (),
    wide: bool = False,
) -> dict[str, str]:
    """Pack the attributes of a ``<build-chart>`` element, which ``chart.js`` draws.

    Parameters
    ----------
    test
        The test with its recordings.
    metric, find
        The metric, and a function that returns its series in a recording, or None.
    title, alt
        Heading of the chart, and its description in words.
    marks
        Lines between the points ``from`` and ``to`` (elapsed seconds, value), with a ``text`` and a ``side`` (colour).
    wide
        If True, phases have names beside their colours.

    Returns
    -------
    dict
        ``group``: charts of one group share cursor, zoom, axis and hidden runs. ``data``: base64 of a zlib stream with
        the length of a JSON header (four bytes), the header, and the runs' values as 32-bit floats (NaN: not recorded).
    """
    header = header_of(metric.full_name, metric.unit, test.labels, title, alt) | {
        "window": WINDOWS[test.result.type],
        "wide": wide,
        "marks": list(marks),
        "events": [
            {"side": each.build, "run": each.run, "at": each.at_s, "text": f"{each.kind} {change(each.size_percent)}"}
            for each in test.result.events_of(metric)
        ],
    }
    floats: list[np.ndarray] = []
    for side in SIDES:
        for number, recording in enumerate(test.recordings[side], start=1):
            if (series := find(recording)) is not None and series.times.size:
                grid, arrays = _sampled(*recording.samples(series))
                floats += arrays
                run = {"side": side, "run": number, "users": _users(test, recording)}
                header["runs"].append({**run, **_of_run(test.result.runs[side][number - 1]), **grid})
    return {"group": group_of(test), "data": packed(header, floats)}


def over_loads(
    labels: Pair[str], metric: MetricResult, seen: MetricAtLoad, group: str, *, title: str, alt: str
) -> dict[str, str]:
    """Return the attributes of a chart of one metric over connected users; `title` and `alt` as in :func:`chart`."""
    most = max(float(users.max()) for users in (seen.users, *(seen.points[side][:, 0] for side in SIDES)))
    header = header_of(metric.full_name, metric.unit, labels, title, alt) | {
        "loads": {"most": most, "at": seen.at_users, "text": BOTH_SUSTAINED.format(seen.at_users)}
    }
    floats = []
    for side in SIDES:
        grid, arrays = _sampled(seen.users, seen.curves[side])
        users, values = seen.points[side][np.isfinite(seen.points[side]).all(axis=1)].T
        floats += [*arrays, rounded(half_widths(seen, side)), rounded(users), rounded(values)]
        header["runs"].append({"side": side, "run": 1, "users": [], "cloud": users.size, **grid})
    return {"group": f"{group}-load", "data": packed(header, floats)}


def half_widths(seen: MetricAtLoad, side: Side) -> np.ndarray:
    """Return, at each load, half the width of the 95 % interval of a curve's logarithm; values above 5 become 5."""
    return np.minimum(1.96 * seen.se_curves[side], 5.0)


def header_of(name: str, unit: str, labels: Pair[str], title: str, alt: str) -> Header:
    """Return the part of a header that all charts have."""
    words = {"title": title, "alt": alt, "name": name, "labels": dict(labels.items())}
    return {**words, "scales": scales(unit), "short": SHORT_UNITS.get(unit), "marks": [], "events": [], "runs": []}


def _of_run(result: RunResult) -> Header:
    """Return the header fields of a run: end of load, duration, window, onset of the ramp, and phases."""
    return {
        "until": result.stop_s or result.duration_s,
        "duration": result.duration_s,
        "window": result.window,
        "onset": result.ramp_up.onset_s,
        "phases": [[p.name.removeprefix("early_"), p.start_s, p.end_s] for p in result.phases],
    }


def group_of(test: TestView) -> str:
    """Name the group of a test's charts by the test's name and the SHA-256 of the first run of each build."""
    first = test.result.runs.base[:1] + test.result.runs.new[:1]
    return "-".join([test.result.name, *(run.samples_sha256[:6] for run in first)])


def packed(header: Mapping[str, Any], floats: Sequence[np.ndarray]) -> str:
    """Compress a header and 32-bit floats, and encode the result in base64."""
    text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)  # align the floats to 4 bytes
    values = np.concatenate(floats).astype("<f4").tobytes() if floats else b""
    packed = zlib.compress(len(text).to_bytes(4, "little") + text + values, 3)  # level 9 saves 1 % in 50 % more time
    return base64.b64encode(packed).decode("ascii")


def extremes(values: np.ndarray, piece: np.ndarray) -> np.ndarray:
    """Find the indices of each piece's minimum and maximum; `piece` (ascending) has the piece number of each value."""
    starts = np.flatnonzero(np.diff(piece, prepend=-1))
    number = np.cumsum(np.diff(piece, prepend=piece[0]) != 0)
    kept = []
    for extreme, missing in ((np.minimum, np.inf), (np.maximum, -np.inf)):
        filled = np.where(np.isfinite(values), values, missing)
        reached = np.flatnonzero(filled == extreme.reduceat(filled, starts)[number])
        kept.append(reached[np.searchsorted(reached, starts)])
    return np.union1d(*kept)


def _sampled(elapsed: np.ndarray, values: np.ndarray) -> tuple[Header, list[np.ndarray]]:
    """Encode a curve as header fields and arrays of floats; thin it if it has more than `MOST_SAMPLES` samples."""
    if values.size > MOST_SAMPLES:
        width = (elapsed[-1] - elapsed[0]) / (MOST_SAMPLES // 2)
        piece = np.minimum((elapsed - elapsed[0]) / width, MOST_SAMPLES // 2 - 1).astype(int)
        kept, means = extremes(values, piece), minute_means(elapsed, values)
        grid = {"step": width, "thinned": width, "size": kept.size, "timed": True, "minutes": means.size}
        return grid, [rounded(values[kept]), elapsed[kept], rounded(means)]
    step = float(np.median(np.diff(elapsed))) if elapsed.size > 1 else 1.0
    places = np.rint((elapsed - elapsed[0]) / step).astype(int)
    if np.abs(elapsed - elapsed[0] - places * step).max() > 0.01 * step or places[-1] > 4 * elapsed.size:
        return {"step": step, "size": values.size, "timed": True}, [rounded(values), elapsed]
    full = np.full(places[-1] + 1, np.nan)
    full[places] = values
    return {"start": float(elapsed[0]), "step": step, "size": full.size}, [rounded(full)]


def rounded(values: np.ndarray) -> np.ndarray:
    """Round values to 32-bit floats with `MANTISSA_BITS` bits in the mantissa; infinities become NaN."""
    drop = 23 - MANTISSA_BITS
    bits = np.where(np.isfinite(values), values, 0.0).astype("<f4").view("<u4")
    kept = ((bits + (1 << (drop - 1))) >> drop << drop).astype("<u4").view("<f4")
    return np.where(np.isfinite(values), kept, np.nan)


def _users(test: TestView, recording: Recording) -> list[int | None]:
    """Average the connected users over each minute of a run; return an empty list if the run has no curve of users."""
    load = test.catalogue.load
    series = recording.total(load.slug) if load else None
    if series is None or not series.times.size:
        return []
    means = minute_means(*recording.samples(series)).tolist()
    return [None if math.isnan(mean) else round(mean) for mean in means]
