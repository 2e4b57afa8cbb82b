"""Recordings from the files of mattermost-load-test-ng's ``ltctl report generate`` (JSON, often gzipped)."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run
from buildcompare.recordings.files import InputFile, check_times, parse_json, read_input
from buildcompare.recordings.recording import FloatArray, LabelSummary, Recording, Series

EXPECTED = "a report of `ltctl report generate` (JSON, may be gzipped)"
_TABLES = {
    "AvgStoreTimes": ("store", "avg"),
    "P99StoreTimes": ("store", "p99"),
    "AvgAPITimes": ("api", "avg"),
    "P99APITimes": ("api", "p99"),
}


@dataclass(frozen=True)
class LtctlSource:
    """Reads ``run.report``."""

    catalogue: Catalogue

    def record(self, run: Run) -> Recording:
        """Every graph and every label value of the file, NaN included."""
        file = read_input(run.report or "", expected=EXPECTED)
        report = _parse(file)
        window = (_instant(file, report, "StartTime"), _instant(file, report, "EndTime"))
        if window[1] <= window[0]:
            raise _fault(file, "EndTime", f"a time after StartTime ({report['StartTime']})", str(report["EndTime"]))
        return Recording(
            series=self._series(file, report),
            window=window,
            stop_known=True,
            label_summaries=_summaries(file, report),
            provenance={"kind": "ltctl", "label": str(report.get("Label", "")), "files": [file.provenance]},
        )

    def _series(self, file: InputFile, report: dict[str, Any]) -> tuple[Series, ...]:
        graphs = report.get("Graphs")
        if graphs is None:
            return ()
        if not isinstance(graphs, list):
            raise _fault(file, "Graphs", "a list or null", type(graphs).__name__)
        found: dict[str, Series] = {}
        for i, graph in enumerate(graphs):
            if not isinstance(graph, dict) or not isinstance(graph.get("Name"), str):
                raise _fault(file, f"Graphs[{i}].Name", "text", "none")
            metric = self.catalogue.find(graph["Name"])
            times, values = _points(file, f"Graphs[{i}].Values", graph.get("Values"))
            taken = metric.slug in found
            key = f"{metric.slug} {graph['Name']} {i}" if taken else metric.slug
            labels = {"series": graph["Name"] if graph["Name"] != found[metric.slug].name else str(i)} if taken else {}
            found[key] = Series(metric.slug, graph["Name"], metric.unit, times, values, labels=labels)
        return tuple(found.values())


def _parse(file: InputFile) -> dict[str, Any]:
    report = parse_json(file)
    if not isinstance(report, dict):
        raise _fault(file, None, EXPECTED, f"JSON that holds {type(report).__name__}")
    missing = [key for key in ("StartTime", "EndTime", *_TABLES) if key not in report]
    if missing:
        raise _fault(file, missing[0], f"{EXPECTED} with this key", "no such key")
    return report


def _instant(file: InputFile, report: dict[str, Any], key: str) -> float:
    text = report[key]
    try:
        instant = dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise _fault(file, key, "a time in RFC 3339", repr(text)) from None
    if instant.tzinfo is None:
        raise _fault(file, key, "a time with its zone", repr(text))
    return instant.timestamp()


def _points(file: InputFile, key: str, points: Any) -> tuple[FloatArray, FloatArray]:
    if points is None:
        return np.empty(0), np.empty(0)
    try:
        times = np.array([float(time) for time, _ in points])
        values = np.array([float(value) for _, value in points])
    except (TypeError, ValueError, OverflowError):
        bad = next((i for i, point in enumerate(points) if not _is_point(point)), 0) if isinstance(points, list) else 0
        raise _fault(
            file, f"{key}[{bad}]", '[unix seconds, "value"]', repr(points[bad])[:60] if points else ""
        ) from None
    check_times(file.path, key, times)
    backwards = np.flatnonzero(np.diff(times) <= 0)
    if backwards.size:
        at = int(backwards[0]) + 1
        raise _fault(file, f"{key}[{at}]", f"a time after {times[at - 1]}", str(times[at]))
    return times, values


def _is_point(point: Any) -> bool:
    try:
        time, value = point
        float(time)
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _summaries(file: InputFile, report: dict[str, Any]) -> tuple[LabelSummary, ...]:
    summaries: list[LabelSummary] = []
    for key, (group, stat) in _TABLES.items():
        table = report[key]
        if not isinstance(table, dict):
            if table is None:
                continue
            raise _fault(file, key, "labels with values", type(table).__name__)
        for label, value in table.items():
            try:
                label.encode()  # JSON can hold halves of characters
                summaries.append(LabelSummary(group, label, stat, float(value)))
            except (TypeError, ValueError, OverflowError):
                raise _fault(file, f"{key}.{label!a}", "text with seconds as text", repr(value)[:60]) from None
    return tuple(summaries)


def _fault(file: InputFile, key: str | None, expected: str, found: str) -> InputError:
    return InputError(file=file.path, key=key, expected=expected, found=found)
