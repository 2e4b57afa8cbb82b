"""What an interactive chart of one metric is drawn from: every sample of both builds, packed for the browser."""

import base64
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from buildcompare.comparison.analysis import TestView
from buildcompare.history.releases import LevelSeries
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import MetricResult, RunResult
from buildcompare.results.codes import SIDES, Pair, Side
from buildcompare.text.numbers import SHORT_UNITS, change, scales
from buildcompare.text.sentences import say

WINDOWS = {"bounded": "steady", "unbounded": "last 30 min"}
"""What the window of a test is called where it is shaded."""
PHASES = {"early_bumps": "bumps"}
"""What a phase is called where it is not its name."""
BOTH_SUSTAINED = "both sustained {:,.0f}"
"""What is written at the load at which builds are compared."""
MANTISSA_BITS = 16
"""Of the 23 of a 32-bit float: a value is off by 8 parts in a million at most, and its chart takes a third less."""


def chart(
    test: TestView,
    metric: MetricResult,
    labels: Mapping[str, str] | None,
    *,
    title: str,
    alt: str,
    marks: Sequence[dict[str, Any]] = (),
    wide: bool = False,
    find: Callable[[Recording], Series | None] | None = None,
) -> dict[str, str]:
    """Attributes of the element that ``chart.js`` makes a chart of.

    Parameters
    ----------
    test
        The test with its recordings.
    metric, labels
        The metric, and which of its series; without `labels` the sum of them.
    title, alt
        The chart's heading, and what it shows in words.
    marks
        Lines from ``from`` to ``to`` (elapsed seconds and value) with a ``text``, in the colour of a ``side``.
    wide
        Whether phases are named beside their colours.
    find
        What finds the series of a run that is drawn, instead of `labels`.

    Returns
    -------
    dict
        ``group``: the charts that share cursor, zoom and choices; ``data``: base64 of a zlib stream of a JSON header
        (its length first, in four bytes) and of the runs' values as 32-bit floats, NaN where none was recorded.
    """
    curves: list[tuple[Side, int, RunResult, Recording, Series]] = []
    for side in SIDES:
        for number, recording in enumerate(test.recordings[side], start=1):
            if find is not None:
                series = find(recording)
            else:
                series = recording.total(metric.slug) if labels is None else recording.find(metric.slug, labels)
            if series is not None and series.times.size:
                result = test.result.runs[side][number - 1]
                curves.append((side, number, result, recording, series))
    header = _header(metric, test.labels, title, alt) | {
        "window": WINDOWS[test.result.type],
        "wide": wide,
        "marks": list(marks),
        "events": [
            {"side": each.build, "run": each.run, "at": each.at_s, "text": f"{each.kind} {change(each.size_percent)}"}
            for each in test.result.events_of(metric)
        ],
    }
    floats: list[np.ndarray] = []
    for side, number, result, recording, series in curves:
        grid, arrays = _sampled(*recording.samples(series))
        floats += arrays
        header["runs"].append(
            {
                "side": side,
                "run": number,
                "until": result.stop_s or result.duration_s,
                "duration": result.duration_s,
                "window": result.window,
                "onset": result.ramp_up.onset_s,
                "phases": [[PHASES.get(p.name, p.name), p.start_s, p.end_s] for p in result.phases],
                "users": _users(test, recording),
                **grid,
            }
        )
    return {"group": group_of(test), "data": _packed(header, floats)}


def over_loads(
    labels: Pair[str], metric: MetricResult, seen: MetricAtLoad, group: str, *, title: str, alt: str
) -> dict[str, str]:
    """Attributes of the element of a metric of both builds over connected users; `title`, `alt` as of :func:`chart`."""
    most = max(float(users.max()) for users in (seen.users, *(seen.points[side][:, 0] for side in SIDES)))
    header = _header(metric, labels, title, alt) | {
        "loads": {"most": most, "at": seen.at_users, "text": BOTH_SUSTAINED.format(seen.at_users)}
    }
    floats = []
    for side in SIDES:
        grid, arrays = _sampled(seen.users, seen.curves[side])
        users, values = seen.points[side][np.isfinite(seen.points[side]).all(axis=1)].T
        floats += [*arrays, _rounded(half_widths(seen, side)), _rounded(users), _rounded(values)]
        header["runs"].append({"side": side, "run": 1, "users": [], "cloud": users.size, **grid})
    return {"group": f"{group}-load", "data": _packed(header, floats)}


def over_releases(
    series: LevelSeries, releases: Sequence[Mapping[str, Any]], group: str, changes: Mapping[int, str]
) -> dict[str, str]:
    """Attributes of the element of a metric over releases; `group` as of :func:`chart`.

    `releases`: of each ``name``, ``href`` of its report (None: it has none), titles of ``base`` and ``new``, ``note``;
    `changes`: what is written at which place.
    """
    header: dict[str, Any] = {
        "title": say("figures", "releases_title", series),
        "alt": say("figures", "releases_alt", series, [each["name"] for each in releases]),
        "name": series.name,
        "scales": scales(series.unit),
        "short": SHORT_UNITS.get(series.unit),
        "labels": {side: side for side in SIDES},
        "releases": list(releases),
        "changes": [{"at": at, "text": text} for at, text in sorted(changes.items())],
        "events": [],
        "marks": [],
        "runs": [],
    }
    floats = []
    for number, side in enumerate(SIDES):
        values, counts = series.levels[:, number], series.runs[:, number]
        if np.isfinite(values).any():
            floats.append(_rounded(values))
            run: dict[str, Any] = {"side": side, "run": 1, "size": values.size, "start": 0, "step": 1, "users": []}
            run |= {"half": series.half} | ({} if (counts == 1).all() else {"counts": counts.tolist()})
            header["runs"].append(run)
    return {"group": group, "data": _packed(header, floats)}


def half_widths(seen: MetricAtLoad, side: Side) -> np.ndarray:
    """Half of the 95 % interval of a curve's logarithm at each load; what is wider than any picture is cut."""
    return np.minimum(1.96 * seen.se_curves[side], 5.0)


def _header(metric: MetricResult, labels: Pair[str], title: str, alt: str) -> dict[str, Any]:
    return {
        "title": title,
        "alt": alt,
        "name": metric.full_name,
        "scales": scales(metric.unit),
        "short": SHORT_UNITS.get(metric.unit),
        "labels": dict(labels.items()),
        "marks": [],
        "events": [],
        "runs": [],
    }


def group_of(test: TestView) -> str:
    """The name of what the charts of a test share: another report of a test of this name is another group."""
    first = test.result.runs.base[:1] + test.result.runs.new[:1]
    return "-".join([test.result.name, *(run.samples_sha256[:6] for run in first)])


def _packed(header: Mapping[str, Any], floats: Sequence[np.ndarray]) -> str:
    """Base64 of a zlib stream of the header and of 32-bit floats."""
    text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-len(text) % 4)  # the floats begin at a multiple of their size
    values = np.concatenate(floats).astype("<f4").tobytes() if floats else b""
    packed = zlib.compress(len(text).to_bytes(4, "little") + text + values, 3)  # 9 takes half as long again for 1 %
    return base64.b64encode(packed).decode("ascii")


def _sampled(elapsed: np.ndarray, values: np.ndarray) -> tuple[dict[str, Any], list[np.ndarray]]:
    """A curve on its grid of equal steps, missing samples NaN; with its own times where it has no such grid."""
    step = float(np.median(np.diff(elapsed))) if elapsed.size > 1 else 1.0
    places = np.rint((elapsed - elapsed[0]) / step).astype(int)
    if np.abs(elapsed - elapsed[0] - places * step).max() > 0.01 * step or places[-1] > 4 * elapsed.size:
        return {"step": step, "size": values.size, "timed": True}, [_rounded(values), elapsed]
    full = np.full(places[-1] + 1, np.nan)
    full[places] = values
    return {"start": float(elapsed[0]), "step": step, "size": full.size}, [_rounded(full)]


def _rounded(values: np.ndarray) -> np.ndarray:
    """Values as 32-bit floats of `MANTISSA_BITS`, infinities as NaN."""
    drop = 23 - MANTISSA_BITS
    bits = np.where(np.isfinite(values), values, 0.0).astype("<f4").view("<u4")
    kept = ((bits + (1 << (drop - 1))) >> drop << drop).astype("<u4").view("<f4")
    return np.where(np.isfinite(values), kept, np.nan)


def _users(test: TestView, recording: Recording) -> list[int | None]:
    """Mean connected users of each minute of a run; empty where nobody recorded them."""
    load = test.catalogue.load
    series = recording.total(load.slug) if load else None
    if series is None or not series.times.size:
        return []
    elapsed, users = recording.samples(series)
    minutes, finite = (elapsed // 60).astype(int), np.isfinite(users)
    counts = np.bincount(minutes[finite])
    means = np.bincount(minutes[finite], users[finite]) / np.maximum(counts, 1)
    return [round(mean) if count else None for mean, count in zip(means.tolist(), counts.tolist(), strict=True)]
