"""What a source gives is what its file holds, to the last bit; what is no recording is refused by name."""

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fuzzing
from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.params import Run, Source
from buildcompare.recordings import files
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import read, record
from support import test_folders

LTCTL, RECORDED = Source(kind="ltctl"), Source(kind="recorded")
CATALOGUE = read_catalogue("mattermost")
REPORT: dict[str, Any] = json.loads(fuzzing.seed("ltctl-report"))


def same(values: np.ndarray, expected: np.ndarray) -> bool:
    """Equal to the last bit, NaN included."""
    return values.dtype == expected.dtype and values.tobytes() == expected.tobytes()


def test_published_reports_are_read_without_loss(real: Path) -> None:
    points = read = 0
    for file in sorted((real / "ceiling").glob("*.out.gz")):
        if not (text := gzip.decompress(file.read_bytes())):
            continue
        expected = json.loads(text)
        recording = record(Run(report=str(file)), LTCTL, CATALOGUE)
        read += 1
        assert [series.name for series in recording.series] == [graph["Name"] for graph in expected["Graphs"]]
        for series, graph in zip(recording.series, expected["Graphs"], strict=True):
            assert same(series.times, np.array([float(t) for t, _ in graph["Values"]]))
            assert same(series.values, np.array([float(v) for _, v in graph["Values"]]))
            points += len(graph["Values"])
        tables = {("store", "avg"): "AvgStoreTimes", ("store", "p99"): "P99StoreTimes"}
        tables |= {("api", "avg"): "AvgAPITimes", ("api", "p99"): "P99APITimes"}
        for (group, stat), key in tables.items():
            found = {s.label: s.value for s in recording.label_summaries if (s.group, s.stat) == (group, stat)}
            assert found == pytest.approx({k: float(v) for k, v in expected[key].items()}, rel=0, abs=0, nan_ok=True)
        start, end = (pd.Timestamp(expected[key]).timestamp() for key in ("StartTime", "EndTime"))
        assert recording.window == pytest.approx((start, end), rel=0, abs=1e-6)
    assert (read, points > 1_400_000) == (39, True)


def report(tmp_path: Path, **change: Any) -> Recording:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(REPORT | change))
    return record(Run(report=str(file)), LTCTL, CATALOGUE)


def test_a_small_report_in_detail(tmp_path: Path) -> None:
    recording = report(tmp_path)
    rps, users, unknown = recording.series
    assert (rps.metric, users.metric, unknown.metric) == ("rps", "number-of-connected-devices", "something-new")
    assert rps.times.tolist() == [1704067200.0, 1704067205.25, 1704067215.0]
    assert same(rps.values, np.array([1.5, np.nan, np.inf]))
    assert (users.times.size, CATALOGUE.find("Something new").better) == (0, "neutral")
    assert (recording.stop_known, recording.duration_s, recording.coverage(rps).finite) == (True, 60.0, 1)
    without = report(tmp_path, Graphs=None)
    assert (without.series, len(without.label_summaries)) == ((), 3)


@pytest.mark.parametrize(
    ("change", "key", "found"),
    [
        ({"StartTime": None}, "StartTime", "None"),
        ({"StartTime": "2024-01-01T00:00:00"}, "StartTime", "2024-01-01T00:00:00"),
        ({"AvgAPITimes": []}, "AvgAPITimes", "list"),
        ({"AvgAPITimes": {"a": "fast"}}, "AvgAPITimes.a", "fast"),
        ({"Graphs": {}}, "Graphs", "keys with values"),
        ({"Graphs": [{"Values": []}]}, "Graphs[0]", "no such key"),
        ({"Graphs": [{"Name": "RPS", "Values": [[1, "1"], [2, "x"]]}]}, "Graphs[0].Values[1][1]", "'x'"),
        ({"Graphs": [{"Name": "RPS", "Values": [[1, "1"], [1, "2"]]}]}, "Graphs[0].Values[1]", "1.0"),
        ({"Graphs": [{"Name": "RPS", "Values": [5]}]}, "Graphs[0].Values[0]", "5"),
    ],
)
def test_a_fault_in_a_report_is_named(tmp_path: Path, change: dict[str, Any], key: str, found: str) -> None:
    with pytest.raises(InputError, match=rf": {re.escape(key)}: expected .*, found .*{found}"):
        report(tmp_path, **change)


def test_published_recordings_are_read_without_loss(real: Path) -> None:
    read = points = 0
    for folder in test_folders(real):
        for side in ("base", "new"):
            table = pd.read_csv(folder / f"{side}.csv.gz")
            labels = pd.read_csv(folder / f"{side}.labels.csv.gz", na_values={"value": [""]}, keep_default_na=False)
            run = Run(recording=str(folder / f"{side}.csv.gz"), labels=str(folder / f"{side}.labels.csv.gz"))
            recording = record(run, RECORDED, CATALOGUE)
            read += 1
            assert {s.name for s in recording.series} == set(table["metric"])
            for series in recording.series:
                expected = table[table["metric"] == series.name]
                seconds = pd.to_datetime(expected["timestamp"]).map(pd.Timestamp.timestamp).to_numpy()
                assert same(series.times, seconds)
                assert same(series.values, expected["value"].to_numpy())
                points += len(expected)
            found = {(s.group, s.label, s.stat): s.value for s in recording.label_summaries}
            assert found == {(r.group, r.label, r.stat): r.value for r in labels.itertuples()}
    assert (read, points > 1_400_000) == (136, True)


def test_a_table_may_be_larger_than_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 1_500_000)
    monkeypatch.setattr(files, "MAX_TABLE_BYTES", 3_000_000)
    rows = "".join(f"{1733911200 + i},rps,{i}.5\n" for i in range(110_000))
    for name, contents in (("x.csv", rows.encode()), ("x.csv.gz", gzip.compress(rows.encode()))):
        file = tmp_path / name
        head = b"timestamp,metric,value\n"
        file.write_bytes(gzip.compress(head) + contents if name.endswith("gz") else head + contents)
        series = record(Run(recording=str(file)), RECORDED, CATALOGUE).series[0]
        assert (series.values.size, series.values.sum()) == (110_000, 110_000 * 109_999 / 2 + 55_000)
    file.write_bytes(gzip.compress(head + 2 * rows.encode()))
    with pytest.raises(InputError, match=r"size: expected at most 3 MB unpacked \(a table\), found more"):
        record(Run(recording=str(file)), RECORDED, CATALOGUE)
    file.write_bytes(gzip.compress(b'{"Graphs": [' + b"1," * 1_000_000))
    with pytest.raises(InputError, match="size: expected at most 1 MB unpacked, found more"):
        read(file)


def test_a_table_keeps_gaps_nan_order_and_labels(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(
        "timestamp,metric,value,instance\n"
        "2024-01-01T00:00:10Z,rps,3,a\n2024-01-01T00:00:00Z,rps,1,a\n2024-01-01T00:00:30Z,rps,,a\n"
        "2024-01-01T00:00:00Z,rps,7,b\n2024-01-01T00:00:00Z,my metric,NaN,\n"
    )
    first, second, other = record(Run(recording=str(file)), RECORDED, CATALOGUE).series
    assert (first.times - first.times[0]).tolist() == [0.0, 10.0, 30.0]
    assert same(first.values, np.array([1.0, 3.0, np.nan]))
    assert (dict(first.labels), dict(second.labels)) == ({"instance": "a"}, {"instance": "b"})
    assert (second.values.tolist(), other.metric) == ([7.0], "my-metric")
    assert np.isnan(other.values[0])


def test_a_window_cuts_a_file(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("timestamp,metric,value\n" + "".join(f"{t},rps,{t}\n" for t in range(0, 100, 10)))
    run = Run(recording=str(file), start="1970-01-01T00:00:30Z", end="1970-01-01T00:01:00Z")
    recording = record(run, RECORDED, CATALOGUE)
    curve = recording.curve(recording.series[0])
    assert (curve.index.tolist(), curve.tolist()) == ([0.0, 10.0, 20.0, 30.0], [30.0, 40.0, 50.0, 60.0])
    outside = Run(recording=str(file), start="1971-01-01T00:00:00Z", end="1972-01-01T00:00:00Z")
    with pytest.raises(InputError, match=r"overlaps the data \(1970-01-01T00:00:00.* to 1970-01-01T00:01:30"):
        record(outside, RECORDED, CATALOGUE)


def test_a_format_of_another_package_is_read(project: Path, tmp_path: Path) -> None:
    """The worked example of docs/extending.md, installed beside the library."""
    module, registration = re.findall(
        r"^```(?:python|toml)\n(.*?)^```$", (project / "docs/extending.md").read_text("utf-8"), re.M | re.S
    )[:2]
    (tmp_path / "ourformat.py").write_text(module)
    (tmp_path / "ours-1.dist-info").mkdir()
    (tmp_path / "ours-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1\n")
    entry_point = registration.replace("project.entry-points.", "").replace('"', "")
    (tmp_path / "ours-1.dist-info/entry_points.txt").write_text(entry_point)
    (tmp_path / "run.log").write_text("".join(f'{{"at": {1733911200 + i}, "latency_ms": 41.{i}}}\n' for i in range(3)))
    code = "import buildcompare as bc; [each] = bc.read('run.log').series; print(each.metric, *each.values)"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "latency-ms 41.0 41.1 41.2\n", done.stderr
