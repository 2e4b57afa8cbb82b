"""Recordings from saved snapshots of Grafana dashboards, of all three generations.

- up to 6: ``panels[].snapshotData[]: {target, datapoints: [[value, ms], ...]}``
- 7 to 10: ``panels[].snapshotData[]: {name, fields: [{name, type, labels, config, values}]}``
- 11 on: ``panels[].targets[].snapshot[]: {schema: {fields}, data: {values, entities, nanos}}``

Times are milliseconds, NaN became null. A panel's title names the metric. What a panel says of its unit (of a field's
config, of the panel's defaults and overrides, up to 6 of its axes) converts the values into the catalogue's.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import Curve, FileSource, InputFile, series_of
from buildcompare.recordings.recording import FloatArray, Recording, span

EXPECTED = "a snapshot of a Grafana dashboard (JSON, may be gzipped)"
_ENTITIES = {"NaN": np.nan, "Inf": np.inf, "NegInf": -np.inf}
_Frame = tuple[dict[str, Any], list[dict[str, Any]], list[Any]]  # what names it, its fields, the values of each
_Named = tuple[str, FloatArray, FloatArray, dict[str, str], str]  # name, times, values, labels, unit
_SIZES = ("", "k", "m", "g", "t", "p")
_PER_SECOND = ("cps", "eps", "mps", "ops", "reqps", "rps", "wps", "iops", "recps", "rowsps")
_PER_MINUTE = ("cpm", "epm", "mpm", "opm", "reqpm", "rpm", "wpm", "recpm", "rowspm")
UNITS: dict[str, tuple[str, float]] = {
    "ns": ("seconds", 1e-9),
    "µs": ("seconds", 1e-6),
    "us": ("seconds", 1e-6),
    "ms": ("seconds", 1e-3),
    "s": ("seconds", 1.0),
    "m": ("seconds", 60.0),
    "h": ("seconds", 3600.0),
    "d": ("seconds", 86400.0),
    "dtdurationms": ("seconds", 1e-3),
    "clockms": ("seconds", 1e-3),
    "timeticks": ("seconds", 1e-2),
    **dict.fromkeys(("dtdurations", "dthms", "dtdhms", "clocks"), ("seconds", 1.0)),
    "percent": ("percent", 1.0),
    "percentunit": ("percent", 100.0),
    **{f"{size}bytes": ("bytes", 1024.0**i) for i, size in enumerate(_SIZES)},
    **{f"dec{size}bytes": ("bytes", 1e3**i) for i, size in enumerate(_SIZES)},
    "bits": ("bytes", 0.125),
    "decbits": ("bytes", 0.125),
    "Bps": ("bytes/s", 1.0),
    "binBps": ("bytes/s", 1.0),
    **{f"{size.upper()}Bs": ("bytes/s", 1e3**i) for i, size in enumerate(_SIZES) if size},
    **{f"{size.upper()}iBs": ("bytes/s", 1024.0**i) for i, size in enumerate(_SIZES) if size},
    **dict.fromkeys(_PER_SECOND, ("events/s", 1.0)),
    **dict.fromkeys(_PER_MINUTE, ("events/s", 1.0 / 60.0)),
}
"""Grafana's units (its `valueFormats/categories.ts`): what each measures, and how much of that one of it is."""
MOST_REPEATS, LONGEST_NAME = 3, 200  # of an override's expression, and of what it is held against: a second at most
SUFFIXES: dict[str, tuple[str, float]] = {
    **{name: UNITS[name] for name in ("ns", "µs", "us", "ms", "s")},
    "μs": UNITS["µs"],
    "min": ("seconds", 60.0),
    **dict.fromkeys(("hour", "hours"), ("seconds", 3600.0)),
    **dict.fromkeys(("day", "days"), ("seconds", 86400.0)),
    "%": ("percent", 1.0),
    **{
        f"{size}B{per}": (f"bytes{per}", 1e3**i)
        for per in ("", "/s")
        for i, size in enumerate(("", "k", "M", "G", "T"))
    },
    **{f"{size}iB{per}": (f"bytes{per}", 1024.0**i) for per in ("", "/s") for i, size in enumerate("KMGT", 1)},
    **{size: ("", 1e3**i) for i, size in enumerate(("K", "Mil", "Bil", "Tri"), 1)},
    **{
        f"{size} {what}/{per}".strip(): ("events/s", 1e3**i / seconds)
        for i, size in enumerate(("", "K", "M", "B", "T"))
        for what in ("c", "ops", "req", "rd", "wr", "io", "evt", "mpx", "rec", "rows")
        for per, seconds in (("s", 1.0), ("min", 60.0), ("m", 60.0))
    },
}
"""The units behind Grafana's values, as people see and export them; K, Mil and so on count."""
NO_UNIT = ("", "none", "short", "locale", "sishort", "string", "sci")


def read_snapshot(file: InputFile, catalogue: Catalogue) -> Recording:
    """Every curve of every panel, NaN included."""
    contents = file.json()
    dashboard = contents.get("dashboard", contents) if isinstance(contents, dict) else None
    if isinstance(dashboard, dict) and isinstance(dashboard.get("snapshotData"), dict):
        dashboard = dashboard["snapshotData"]
    panels = dashboard.get("panels", dashboard.get("rows")) if isinstance(dashboard, dict) else None
    if not isinstance(dashboard, dict) or not isinstance(panels, list):
        raise file.fault("dashboard.panels", EXPECTED, "no panels")
    # Another panel of the same title may have a series like it: both are kept.
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
            raise file.fault(key, "snapshot data of a known form", f"{type(error).__name__}: {error}") from None
        for name, times, values, labels, unit in columns:
            own = {} if len(columns) == 1 else (labels or {"series": name})
            title = str(panel.get("title") or name or "unnamed")
            factor = _factor(file, key, unit, catalogue.find(title).unit)
            yield Curve(title, times, values * factor, own, partial("{0}".format, key))


def _unit_of(panel: dict[str, Any], name: str, query: Any, own: Any) -> str:
    """The unit of the series `name` of a query: the panel's last override of it, else its `own`, else the panel's."""
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
    return str(unit or own or (config.get("defaults") or {}).get("unit") or axis.get("format") or "")


def _fits(pattern: str, name: str) -> bool:
    """Whether a name is `pattern`, or found by it where it is an expression between slashes."""
    between = re.fullmatch(r"/(.*)/[a-z]*", pattern, re.DOTALL)
    if between is None:
        return pattern == name
    if len(re.findall(r"[*+{]", between[1])) > MOST_REPEATS or re.search(r"\)[*+{]", between[1]):
        raise ValueError(f"an expression that may take very long: {pattern[:100]!r}")
    return re.search(between[1], name[:LONGEST_NAME]) is not None


def _factor(file: InputFile, key: str, stated: str, unit: str) -> float:
    """What takes a value from the unit that a panel states to the catalogue's."""
    if stated in NO_UNIT or not unit:
        return 1.0
    wanted = _measure(unit)
    measured, factor = UNITS.get(stated, ("", 1.0))
    if measured != wanted:
        fits = [name for name, (measure, _) in UNITS.items() if measure == wanted]
        raise file.fault(f"{key} unit", f"a unit of {unit} ({', '.join(fits) or 'none'}), or none", repr(stated))
    return factor


def _measure(unit: str) -> str:
    """What a unit of the catalogue measures, of the measures that Grafana's units have."""
    usual = {"percent of one core": "percent"}.get(unit, unit)
    counted = "events/s" if unit.endswith("/s") else ""  # goroutines, users: none of Grafana's units
    return usual if usual in {measure for measure, _ in UNITS.values()} else counted


def suffix_factor(file: InputFile, key: str, suffix: str, unit: str) -> float:
    """What takes a value from the unit behind it, as in ``12.5 ms``, to that of the catalogue (`unit`)."""
    measured, factor = SUFFIXES.get(suffix, (None, 1.0))
    if measured is None or (measured and unit and measured != _measure(unit)):
        fits = [name for name, (measure, _) in SUFFIXES.items() if measure and measure == _measure(unit)]
        raise file.fault(
            key, f"a number, or one in {unit or 'a known unit'} ({', '.join(fits) or 'none'})", repr(suffix)
        )
    return factor


def _panels(panels: Any, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every panel, those inside rows too."""
    for i, panel in enumerate(panels if isinstance(panels, list) else []):
        if isinstance(panel, dict):
            yield f"{key}[{i}]", panel
            yield from _panels(panel.get("panels"), f"{key}[{i}].panels")


def _frames(panel: dict[str, Any]) -> Iterator[_Frame]:
    """The tables of a panel, whatever the generation, without annotations."""
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
            yield frame, frame["fields"], plain  # Grafana 7 wrapped the values


def _annotates(frame: dict[str, Any]) -> bool:
    return (frame.get("meta") or {}).get("dataTopic") == "annotations"


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


def _columns(
    panel: dict[str, Any], frame: dict[str, Any], fields: list[dict[str, Any]], cells: list[Any]
) -> Iterator[_Named]:
    """One curve for each column of numbers."""
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
            if numbers.size != times.size:
                raise ValueError(f"{numbers.size} values at {times.size} times")
            yield name, times, numbers, labels, _unit_of(panel, name, frame.get("refId"), config.get("unit"))
