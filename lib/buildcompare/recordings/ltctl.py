"""Recordings from the files of mattermost-load-test-ng's ``ltctl report generate`` (JSON, often gzipped)."""

import datetime as dt
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import FileSource, InputFile, check_times, parse_json
from buildcompare.recordings.recording import FloatArray, LabelSummary, Recording, Series

EXPECTED = "a report of `ltctl report generate` (JSON, may be gzipped)"
_TABLES = {f"{stat}{name}Times": (name.lower(), stat.lower()) for name in ("Store", "API") for stat in ("Avg", "P99")}


def read_report(file: InputFile, catalogue: Catalogue) -> Recording:
    """Every graph and every label value of the file, NaN included."""
    report = parse_json(file)
    if not isinstance(report, dict):
        raise file.fault(None, EXPECTED, f"JSON that holds {type(report).__name__}")
    for key in ("StartTime", "EndTime", *_TABLES):
        if key not in report:
            raise file.fault(key, f"{EXPECTED} with this key", "no such key")
    window = (_instant(file, report, "StartTime"), _instant(file, report, "EndTime"))
    if window[1] <= window[0]:
        raise file.fault("EndTime", f"a time after StartTime ({report['StartTime']})", str(report["EndTime"]))
    return Recording(
        series=_series(file, report.get("Graphs"), catalogue),
        window=window,
        stop_known=True,
        label_summaries=tuple(_summaries(file, report)),
        provenance={"kind": "ltctl", "label": str(report.get("Label", "")), "files": [file.provenance]},
    )


SOURCE = FileSource(EXPECTED, read_report, lambda contents: contents.lstrip()[:1] == b"{" and b'"Graphs"' in contents)


def _instant(file: InputFile, report: dict[str, Any], key: str) -> float:
    try:
        instant = dt.datetime.fromisoformat(report[key])
    except (TypeError, ValueError):
        raise file.fault(key, "a time in RFC 3339", repr(report[key])) from None
    if instant.tzinfo is None:
        raise file.fault(key, "a time with its zone", repr(report[key]))
    return instant.timestamp()


def _series(file: InputFile, graphs: Any, catalogue: Catalogue) -> tuple[Series, ...]:
    if not isinstance(graphs, (list, type(None))):
        raise file.fault("Graphs", "a list or null", type(graphs).__name__)
    found: dict[str, Series] = {}
    for i, graph in enumerate(graphs or []):
        if not isinstance(graph, dict) or not isinstance(graph.get("Name"), str):
            raise file.fault(f"Graphs[{i}].Name", "text", "none")
        name = graph["Name"]
        metric = catalogue.find(name)
        times, values = _points(file, f"Graphs[{i}].Values", graph.get("Values") or [])
        first = found.get(metric.slug)
        labels = {} if first is None else {"series": name if name != first.name else str(i)}
        key = metric.slug if first is None else f"{metric.slug} {name} {i}"
        found[key] = Series(metric.slug, name, metric.unit, times, values, labels=labels)
    return tuple(found.values())


def _points(file: InputFile, key: str, points: Any) -> tuple[FloatArray, FloatArray]:
    if not isinstance(points, list):
        raise file.fault(key, "a list or null", type(points).__name__)
    rows = []
    for i, point in enumerate(points):
        try:
            time, value = point
            rows.append((float(time), float(value)))
        except (TypeError, ValueError, OverflowError):
            raise file.fault(f"{key}[{i}]", '[unix seconds, "value"]', repr(point)[:60]) from None
    times, values = np.array(rows, dtype=np.float64).reshape(-1, 2).T.copy()
    check_times(file.path, key, times)
    backwards = np.flatnonzero(np.diff(times) <= 0)
    if backwards.size:
        at = int(backwards[0]) + 1
        raise file.fault(f"{key}[{at}]", f"a time after {times[at - 1]}", str(times[at]))
    return times, values


def _summaries(file: InputFile, report: dict[str, Any]) -> list[LabelSummary]:
    summaries: list[LabelSummary] = []
    for key, (group, stat) in _TABLES.items():
        table = report[key]
        if not isinstance(table, (dict, type(None))):
            raise file.fault(key, "labels with values", type(table).__name__)
        for label, value in (table or {}).items():
            try:
                label.encode()  # JSON can hold halves of characters
                summaries.append(LabelSummary(group, label, stat, float(value)))
            except (TypeError, ValueError, OverflowError):
                raise file.fault(f"{key}.{label!a}", "text with seconds as text", repr(value)[:60]) from None
    return summaries
