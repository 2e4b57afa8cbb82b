"""Read saved snapshots of Grafana dashboards, of all three generations.

- up to 6: ``panels[].snapshotData[]: {target, datapoints: [[value, ms], ...]}``
- 7 to 10: ``panels[].snapshotData[]: {name, fields: [{name, type, labels, config, values}]}``
- 11 on: ``panels[].targets[].snapshot[]: {schema: {fields}, data: {values, entities, nanos}}``

Times are in milliseconds; null means NaN. The panel's title names the metric. Values are converted from the panel's
unit (in a field's config, the panel's defaults and overrides, or up to 6 in its axes) to the catalogue's.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.units import LONGEST_NAME, NO_UNIT, unit_factor
from buildcompare.recordings.files import Curve, InputFile, series_of
from buildcompare.recordings.formats import FileSource
from buildcompare.recordings.frames import unit_in
from buildcompare.recordings.recording import FloatArray, Recording, span
from buildcompare.recordings.series import TESTED

EXPECTED = "a snapshot of a Grafana dashboard (JSON, may be gzipped)"
_ENTITIES = {"NaN": np.nan, "Inf": np.inf, "NegInf": -np.inf}
_Frame = tuple[Any, list[Any], list[Any]]  # header with the frame's name, fields, values by field
_Column = tuple[str, FloatArray, FloatArray, dict[str, str], str]  # name, times, values, labels, unit
MOST_REPEATS = 3  # most repeats in an override's pattern; with `LONGEST_NAME` it keeps a match below a second


def read_snapshot(file: InputFile, catalogue: Catalogue) -> Recording:
    """Read every curve of every panel, NaN included."""
    contents = file.json()
    dashboard = contents.get("dashboard", contents) if isinstance(contents, dict) else None
    if isinstance(dashboard, dict) and isinstance(dashboard.get("snapshotData"), dict):
        dashboard = dashboard["snapshotData"]
    panels = dashboard.get("panels", dashboard.get("rows")) if isinstance(dashboard, dict) else None
    if not isinstance(dashboard, dict) or not isinstance(panels, list):
        raise file.fault("dashboard.panels", EXPECTED, "no panels")
    series = series_of(file, _curves(file, panels, catalogue), catalogue, apart="panel")
    window = span(series)
    if window is None:
        raise file.fault("panels", "at least one panel with data", "none")
    origin = {"kind": "grafana", "dashboard": str(dashboard.get("title", "")), "files": [file.provenance]}
    return Recording(series, window, stop_known=False, provenance=origin)


SOURCE = FileSource(
    EXPECTED,
    read_snapshot,
    lambda contents: contents.lstrip()[:1] == b"{" and (b'"panels"' in contents or b'"rows"' in contents),
)


def _curves(file: InputFile, panels: list[Any], catalogue: Catalogue) -> Iterator[Curve]:
    for key, panel in _panels(panels, "panels"):
        try:
            columns = [column for frame in _frames(panel) for column in _columns(panel, *frame)]
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, re.error) as error:
            raise file.fault(key, "snapshot data as Grafana writes it", f"{type(error).__name__}: {error}") from None
        for name, times, values, labels, unit in columns:
            series_labels = {} if len(columns) == 1 else (labels or {"series": name})
            title = str(panel.get("title") or name or "unnamed")
            title, stated = unit_in(title, catalogue)
            factor = unit_factor(file.fault, f"{key} unit", unit, catalogue.find(title).unit)
            if stated:
                by_title = unit_factor(file.fault, f"{key} title", stated, catalogue.find(title).unit, is_suffix=True)
                if unit not in NO_UNIT and by_title != factor:
                    raise file.fault(f"{key} unit", f"the unit in the title ({stated})", repr(unit))
                factor = by_title
            yield Curve(title, times, values * factor, series_labels, partial("{0}".format, key))


def _unit_of(panel: Any, name: str, query: Any, unit_of_field: Any) -> str:
    """Find the unit of the series `name`: the panel's last override, else the field's, else the panel's."""
    config, unit = panel.get("fieldConfig") or {}, None
    for rule in config.get("overrides") or []:
        by, wanted = rule["matcher"]["id"], rule["matcher"].get("options")
        stated = [each.get("value") for each in rule.get("properties") or [] if each.get("id") == "unit"]
        meant = {"byName": wanted == name, "byFrameRefID": wanted == query, "byType": wanted == "number"}
        if stated and (meant.get(by) or (by == "byRegexp" and _fits(str(wanted), name))):
            unit = stated[-1]
    right = [each for each in panel.get("seriesOverrides") or [] if each.get("yaxis") == 2]
    axes = panel.get("yaxes") or [{}]
    axis = axes[-1] if any(_fits(str(each.get("alias", "")), name) for each in right) else axes[0]
    return str(unit or unit_of_field or (config.get("defaults") or {}).get("unit") or axis.get("format") or "")


def _fits(pattern: str, name: str) -> bool:
    """Test whether a name equals `pattern`, or matches it if slashes mark it as an expression."""
    between = re.fullmatch(r"/(.*)/[a-z]*", pattern, re.DOTALL)
    if between is None:
        return pattern == name
    if len(re.findall(r"[*+{]", between[1])) > MOST_REPEATS or re.search(r"\)[*+{]", between[1]):
        raise ValueError(f"an expression that may take very long: {pattern[:100]!r}")
    return re.search(between[1], name[:LONGEST_NAME]) is not None


def _panels(panels: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield every panel with its place, including panels inside rows."""
    for i, panel in enumerate(panels if isinstance(panels, list) else []):
        if isinstance(panel, dict):
            yield f"{key}[{i}]", panel
            yield from _panels(panel.get("panels"), f"{key}[{i}].panels")


def _frames(panel: Any) -> Iterator[_Frame]:
    """Yield the tables of a panel of any generation, without annotations."""
    for target in panel.get("targets") or []:
        for frame in target.get("snapshot") or []:
            if not _annotates(frame["schema"]):
                yield frame["schema"], frame["schema"]["fields"], _cells(frame["data"])
    for frame in panel.get("snapshotData") or []:
        if "datapoints" in frame:
            values, times = zip(*frame["datapoints"], strict=True) if frame["datapoints"] else ((), ())
            yield {"name": frame.get("target")}, [{"type": "number"}, {"type": "time"}], [values, times]
        elif not _annotates(frame):
            columns = [column.get("values") for column in frame["fields"]]
            plain = [each.get("buffer", each.get("values")) if isinstance(each, dict) else each for each in columns]
            yield frame, frame["fields"], plain  # values unwrapped from Grafana 7's form


def _annotates(frame: Any) -> bool:
    return (frame.get("meta") or {}).get("dataTopic") == "annotations"


def _cells(data: Any) -> list[Any]:
    """Return the columns of a frame with NaN, infinities and nanoseconds restored."""
    columns = [list(column) for column in data["values"]]
    for column, entities in zip(columns, data.get("entities") or [], strict=False):
        for kind, places in (entities or {}).items():
            for place in places:
                column[place] = _ENTITIES[kind]
    for column, nanos in zip(columns, data.get("nanos") or [], strict=False):
        for place, nano in enumerate(nanos or []):
            column[place] += nano / 1e6
    return columns


def _columns(panel: Any, frame: Any, fields: list[Any], cells: list[Any]) -> Iterator[_Column]:
    """Yield a curve for each column of numbers."""
    clock = next((i for i, column in enumerate(fields) if column.get("type") == "time"), None)
    if clock is None:
        return
    times = np.array(cells[clock] or [], dtype=np.float64) / 1e3
    for column, values in zip(fields, cells, strict=True):
        if column.get("type") == "number":
            config = column.get("config") or {}
            names = (config.get("displayNameFromDS"), config.get("displayName"), frame.get("name"), column.get("name"))
            labels = {str(key): str(value) for key, value in (column.get("labels") or {}).items()}
            name, numbers = str(next(filter(None, names), "")), np.array(values or [], dtype=np.float64)
            if odd := {*map(type, [*(values or []), *(cells[clock] or [])])} - {int, float, type(None)}:
                raise ValueError(f"numbers of the type {odd.pop().__name__}")
            if (times < TESTED[0]).any():
                raise ValueError("times before 2000 (they are milliseconds)")
            if numbers.size != times.size:
                raise ValueError(f"{numbers.size} values at {times.size} times")
            yield name, times, numbers, labels, _unit_of(panel, name, frame.get("refId"), config.get("unit"))
