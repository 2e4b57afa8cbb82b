"""Snapshots of every generation of Grafana give the series that they were made from."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import buildcompare as bc
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.params import Run, Source
from buildcompare.recordings.sources import record

CATALOGUE = read_catalogue("mattermost")
TIMES = 1733911200.0 + 5.0 * np.arange(200)
MILLISECONDS: list[float] = (TIMES * 1000).tolist()
RNG = np.random.default_rng(3)
RPS = np.where(np.arange(200) % 50 == 7, np.nan, RNG.normal(900, 30, 200))
HEAP = {"app-0": RNG.normal(8e8, 1e7, 200), "app-1": RNG.normal(9e8, 1e7, 200)}


def null(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def points(target: str, values: np.ndarray, times: np.ndarray = TIMES) -> dict[str, Any]:
    return {"target": target, "datapoints": [*map(list, zip(null(values), (1000 * times).tolist(), strict=True))]}


def old() -> dict[str, Any]:
    heap = {"title": "Heap In Use", "snapshotData": [points(name, values) for name, values in HEAP.items()]}
    row = {"type": "row", "collapsed": False, "panels": [heap]}
    return {"dashboard": {"title": "x", "panels": [{"title": "RPS", "snapshotData": [points("rps", RPS)]}, row]}}


def field(name: str, kind: str, values: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "config": {}, **({} if values is None else {"values": values}), **more}


def middle() -> dict[str, Any]:
    time = field("Time", "time", MILLISECONDS)
    rps = [time, field("RPS", "number", null(RPS))]
    heaps = {name: field("Value", "number", of.tolist(), labels={"instance": name}) for name, of in HEAP.items()}
    frames = [{"refId": "A", "name": name, "fields": [time, heap]} for name, heap in heaps.items()]
    noted = [field("time", "time", [1.0]), field("n", "number", [1.0])]
    notes = {"meta": {"dataTopic": "annotations"}, "fields": noted}
    panels = [
        {"title": "RPS", "snapshotData": [{"refId": "A", "fields": rps}, notes]},
        {"title": "Heap In Use", "snapshotData": frames},
        {"type": "row", "title": "collapsed", "panels": []},
    ]
    return {"meta": {"isSnapshot": True}, "dashboard": {"panels": panels}}


def new() -> dict[str, Any]:
    def frame(fields: list[dict[str, Any]], values: list[Any], holes: list[int]) -> dict[str, Any]:
        entities = [None, {"NaN": holes}] if holes else []
        return {"schema": {"fields": fields}, "data": {"values": values, "entities": entities}}

    holes = np.flatnonzero(np.isnan(RPS)).tolist()
    rps = frame([field("Time", "time"), field("Value", "number")], [MILLISECONDS, null(RPS)], holes)
    labelled = {name: field("Value", "number", labels={"instance": name}) for name in HEAP}
    heap = [frame([field("Time", "time"), labelled[n]], [MILLISECONDS, v.tolist()], []) for n, v in HEAP.items()]
    panels = [
        {"title": title, "targets": [{"queryType": "snapshot", "snapshot": snapshot}]}
        for title, snapshot in (("RPS", [rps]), ("Heap In Use", heap))
    ]
    return {"dashboard": {"panels": panels}}


def read(tmp_path: Path, contents: Any) -> bc.Recording:
    file = tmp_path / "snapshot.json"
    file.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    return record(Run(snapshot=str(file)), Source(kind="grafana"), CATALOGUE)


@pytest.mark.parametrize("generation", [old, middle, new], ids=["up to 6", "7 to 10", "11 on"])
def test_a_snapshot_gives_the_series_that_it_was_made_from(tmp_path: Path, generation: Any) -> None:
    recording = read(tmp_path, generation())
    rps, *heaps = recording.series
    assert [each.metric for each in recording.series] == ["rps", "heap-in-use", "heap-in-use"]
    assert all(np.array_equal(each.times, TIMES) for each in recording.series)
    assert np.array_equal(rps.values, RPS, equal_nan=True)
    found = {next(iter(heap.labels.values())): heap.values.tolist() for heap in heaps}
    assert found == {name: values.tolist() for name, values in HEAP.items()}
    assert (recording.window, recording.stop_known) == ((TIMES[0], TIMES[-1]), False)


def test_infinities_and_fractions_of_milliseconds_come_back(tmp_path: Path) -> None:
    snapshot = new()
    data = snapshot["dashboard"]["panels"][0]["targets"][0]["snapshot"][0]["data"]
    data["entities"] = [None, {"Inf": [0], "NegInf": [1], "NaN": np.flatnonzero(np.isnan(RPS)).tolist()}]
    data["nanos"] = [[500_000] + [0] * 199, None]
    rps = read(tmp_path, snapshot).series[0]
    assert (rps.values[0], rps.values[1]) == (np.inf, -np.inf)
    assert rps.times[0] == pytest.approx(TIMES[0] + 0.0005, abs=1e-6)


def test_two_panels_of_one_title_are_both_kept(tmp_path: Path) -> None:
    snapshot = old()
    snapshot["dashboard"]["panels"] *= 2
    assert len({json.dumps(dict(s.labels)) for s in read(tmp_path, snapshot).series if s.metric == "rps"}) == 2


def in_unit(generation: str, title: str, unit: str) -> dict[str, Any]:
    values, times = [2.0] * 3, MILLISECONDS[:3]
    if generation in ("old", "right axis"):
        data = [points("new a", np.array(values), TIMES[:3])]
        axes = [{"format": unit}, {"format": "dB"}]
        panel: dict[str, Any] = {"title": title, "snapshotData": data, "yaxes": axes}
        if generation == "right axis":
            panel |= {"yaxes": axes[::-1], "seriesOverrides": [{"alias": "/^new/", "yaxis": 2}, {"alias": "/old/"}]}
        return {"panels": [panel]}
    own = field("Value", "number", values, config={"unit": unit} if generation == "field" else {})
    panel = {"title": title, "snapshotData": [{"fields": [field("Time", "time", times), own]}]}
    if generation == "panel":
        panel["fieldConfig"] = {"defaults": {"unit": unit}, "overrides": []}
    if generation.startswith("by"):
        wanted = {"byName": "Value", "byRegexp": "/^V/", "byType": "number"}[generation]
        override = {"matcher": {"id": generation, "options": wanted}, "properties": [{"id": "unit", "value": unit}]}
        other = {"matcher": {"id": "byName", "options": "Other"}, "properties": [{"id": "unit", "value": "dB"}]}
        panel["fieldConfig"] = {"defaults": {"unit": "dB"}, "overrides": [override, other]}
    return {"panels": [panel]}


@pytest.mark.parametrize("generation", ["old", "right axis", "panel", "byName", "byRegexp", "byType", "field"])
@pytest.mark.parametrize(
    ("title", "unit", "value"),
    [
        ("Avg API times", "ms", 0.002), ("P99 API times", "s", 2.0), ("CPU Utilization", "percentunit", 200.0),
        ("Heap In Use", "mbytes", 2.0 * 1024**2), ("RPS", "reqpm", 2.0 / 60.0),
        ("RPS (req/min)", "none", 2.0 / 60.0), ("Goroutines In Use", "none", 2.0),
        ("Of nobody's catalogue", "ms", 2.0),
    ],
)  # fmt: skip
def test_the_unit_of_a_panel_converts(tmp_path: Path, generation: str, title: str, unit: str, value: float) -> None:
    (series,) = read(tmp_path, in_unit(generation, title, unit)).series
    assert series.values == pytest.approx([value] * 3, rel=1e-12)


SLOW = in_unit("byRegexp", "RPS", "reqps")
SLOW["panels"][0]["fieldConfig"]["overrides"][0]["matcher"]["options"] = "/(a+)+$/"


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        (SLOW, r"panels\[0\].*an expression that may take very long"),
        ("{", "EOF while parsing"),
        (in_unit("byRegexp", "P99 API times (ms)", "s"), "the unit in the title"),
        ("[]", "no panels"),
        ({"dashboard": {"panels": []}}, "none"),
        ({"dashboard": {"panels": [{"title": "RPS", "snapshotData": [{"datapoints": [1]}]}]}}, "TypeError"),
        ({"dashboard": {"panels": [{"snapshotData": [{"datapoints": [[1, 2e12], [2, 2e12]]}]}]}}, "a second one"),
        ({"dashboard": {"panels": [{"snapshotData": [{"datapoints": [["1_0", 2e12]]}]}]}}, "numbers of the type str"),
        ({"dashboard": {"panels": [{"snapshotData": [{"datapoints": [[1, 1733911200]]}]}]}}, "times before 2000"),
    ],
)
def test_what_is_no_snapshot(tmp_path: Path, contents: Any, found: str) -> None:
    with pytest.raises(bc.InputError, match=found):
        read(tmp_path, contents)
