"""Recordings from saved snapshots of Grafana dashboards, of all three generations.

- up to 6: ``panels[].snapshotData[]: {target, datapoints: [[value, ms], ...]}``
- 7 to 10: ``panels[].snapshotData[]: {name, fields: [{name, type, labels, config, values}]}``
- 11 on: ``panels[].targets[].snapshot[]: {schema: {fields}, data: {values, entities, nanos}}``

Times are milliseconds, NaN became null. A panel's title names the metric.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import FileSource, InputFile, parse_json
from buildcompare.recordings.recording import FloatArray, Recording, Series

EXPECTED = "a snapshot of a Grafana dashboard (JSON, may be gzipped)"
_ENTITIES = {"NaN": np.nan, "Inf": np.inf, "NegInf": -np.inf}
_Curve = tuple[str, FloatArray, FloatArray, dict[str, str]]  # name, times, values, labels


def read_snapshot(file: InputFile, catalogue: Catalogue) -> Recording:
    """Every curve of every panel, NaN included."""
    contents = parse_json(file)
    dashboard = contents.get("dashboard", contents) if isinstance(contents, dict) else None
    if isinstance(dashboard, dict) and isinstance(dashboard.get("snapshotData"), dict):
        dashboard = dashboard["snapshotData"]
    panels = dashboard.get("panels", dashboard.get("rows")) if isinstance(dashboard, dict) else None
    if not isinstance(dashboard, dict) or not isinstance(panels, list):
        raise file.fault("dashboard.panels", EXPECTED, "no panels")
    series: list[Series] = []
    for key, panel in _panels(panels, "panels"):
        for one in _series(file, key, panel, catalogue):
            # Another panel of the same title may have a series like it: both are kept.
            alike = sum(
                other.metric == one.metric
                and {name: value for name, value in other.labels.items() if name != "panel"} == dict(one.labels)
                for other in series
            )
            series.append(replace(one, labels={**one.labels, "panel": str(alike + 1)}) if alike else one)
    filled = [one.times for one in series if one.times.size]
    if not filled:
        raise file.fault("panels", "at least one panel with data", "none")
    return Recording(
        series=tuple(series),
        window=(float(min(t[0] for t in filled)), float(max(t[-1] for t in filled))),
        stop_known=False,
        provenance={"kind": "grafana", "dashboard": str(dashboard.get("title", "")), "files": [file.provenance]},
    )


SOURCE = FileSource(
    EXPECTED,
    read_snapshot,
    lambda contents: contents.lstrip()[:1] == b"{" and (b'"panels"' in contents or b'"rows"' in contents),
)


def _series(file: InputFile, key: str, panel: dict[str, Any], catalogue: Catalogue) -> Iterator[Series]:
    try:
        curves = list(_curves(panel))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise file.fault(key, "snapshot data of a known form", f"{type(error).__name__}: {error}") from None
    title = panel.get("title") or ""
    for curve, times, values, labels in curves:
        name = str(title or curve)
        metric = catalogue.find(name or "unnamed")
        own = {} if len(curves) == 1 else (labels or {"series": curve})
        order = np.argsort(times, kind="stable")
        if np.any(np.diff(times[order]) <= 0):
            raise file.fault(key, "one value at each time", f"a second one in {curve!r}")
        yield Series(metric.slug, name, metric.unit, times[order], values[order], labels=own)


def _panels(panels: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every panel, those inside rows too."""
    for i, panel in enumerate(panels if isinstance(panels, list) else []):
        if isinstance(panel, dict):
            yield f"{key}[{i}]", panel
            yield from _panels(panel.get("panels"), f"{key}[{i}].panels")


def _curves(panel: dict[str, Any]) -> Iterator[_Curve]:
    for target in panel.get("targets") or []:
        for frame in target.get("snapshot") or []:
            if (frame["schema"].get("meta") or {}).get("dataTopic") != "annotations":
                yield from _columns(frame["schema"].get("name"), frame["schema"]["fields"], _cells(frame["data"]))
    for frame in panel.get("snapshotData") or []:
        if "datapoints" in frame:
            points = frame["datapoints"] or []
            times = np.array([time for _, time in points], dtype=np.float64) / 1e3
            yield (str(frame.get("target", "")), times, _numbers([value for value, _ in points]), {})
        elif (frame.get("meta") or {}).get("dataTopic") != "annotations":
            columns = [column.get("values") for column in frame["fields"]]
            plain = [each.get("buffer", each.get("values")) if isinstance(each, dict) else each for each in columns]
            yield from _columns(frame.get("name"), frame["fields"], plain)  # Grafana 7 wrapped the values


def _cells(data: dict[str, Any]) -> list[Any]:
    """The columns of a frame with the values that JSON cannot hold put back."""
    columns = [list(column) for column in data["values"]]
    for column, entities in zip(columns, data.get("entities") or [], strict=False):
        for kind, places in (entities or {}).items():
            for place in places:
                column[place] = _ENTITIES[kind]
    for column, nanos in zip(columns, data.get("nanos") or [], strict=False):
        for place, nano in enumerate(nanos or []):
            column[place] += nano / 1e6
    return columns


def _columns(name: Any, fields: list[dict[str, Any]], cells: list[Any]) -> Iterator[_Curve]:
    """One curve for each column of numbers."""
    clock = next((i for i, column in enumerate(fields) if column.get("type") == "time"), None)
    if clock is None:
        return
    times = np.array(cells[clock] or [], dtype=np.float64) / 1e3
    for i, column in enumerate(fields):
        if column.get("type") == "number":
            config = column.get("config") or {}
            shown = config.get("displayNameFromDS") or config.get("displayName") or name or column.get("name")
            labels = {str(key): str(value) for key, value in (column.get("labels") or {}).items()}
            yield (str(shown or ""), times, _numbers(cells[i] or []), labels)


def _numbers(values: Any) -> FloatArray:
    return np.array([np.nan if value is None else float(value) for value in values], dtype=np.float64)
