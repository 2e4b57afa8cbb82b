"""What a source gives is what its file or frame holds, to the last bit; what is no recording is refused by name."""

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

import buildcompare as bc
import fuzzing
from buildcompare.config.catalogue import read_catalogue
from buildcompare.recordings import files
from buildcompare.recordings.recording import LabelSummary, Note, Series
from prometheus_server import BASE_START, LENGTH_S, Prometheus
from pulling import at
from support import test_folders

CATALOGUE = read_catalogue("mattermost")
REPORT: dict[str, Any] = json.loads(fuzzing.seed("ltctl-report"))


def same(values: np.ndarray, expected: np.ndarray) -> bool:
    return values.dtype == expected.dtype and values.tobytes() == expected.tobytes()


def test_published_reports_are_read_without_loss(real: Path) -> None:
    points = read = 0
    for file in sorted((real / "ceiling").glob("*.out.gz")):
        if not (text := gzip.decompress(file.read_bytes())):
            continue
        expected = json.loads(text)
        recording = bc.read(file, catalogue=CATALOGUE, kind="ltctl")
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


def report(tmp_path: Path, **change: Any) -> bc.Recording:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(REPORT | change))
    return bc.read(file, catalogue=CATALOGUE, kind="ltctl")


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
    with pytest.raises(bc.InputError, match=rf": {re.escape(key)}: expected .*, found .*{found}"):
        report(tmp_path, **change)


def test_published_recordings_are_read_without_loss(real: Path) -> None:
    read = points = 0
    for folder in test_folders(real):
        for side in ("base", "new"):
            table = pd.read_csv(folder / f"{side}.csv.gz")
            labels = pd.read_csv(folder / f"{side}.labels.csv.gz", na_values={"value": [""]}, keep_default_na=False)
            files = folder / f"{side}.csv.gz", folder / f"{side}.labels.csv.gz"
            recording = bc.read(files[0], catalogue=CATALOGUE, kind="recorded", labels=files[1])
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
        series = bc.read(file, catalogue=CATALOGUE, kind="recorded").series[0]
        assert (series.values.size, series.values.sum()) == (110_000, 110_000 * 109_999 / 2 + 55_000)
    file.write_bytes(gzip.compress(head + 2 * rows.encode()))
    with pytest.raises(bc.InputError, match=r"size: expected at most 3 MB unpacked \(a table\), found more"):
        bc.read(file, catalogue=CATALOGUE, kind="recorded")
    file.write_bytes(gzip.compress(b'{"Graphs": [' + b"1," * 1_000_000))
    with pytest.raises(bc.InputError, match="size: expected at most 1 MB unpacked, found more"):
        bc.read(file)


def test_a_table_keeps_gaps_nan_order_and_labels(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text(
        "timestamp,metric,value,instance\n"
        "2024-01-01T00:00:10Z,rps,3,a\n2024-01-01T00:00:00Z,rps,1,a\n2024-01-01T00:00:30Z,rps,,a\n"
        "2024-01-01T00:00:00Z,rps,7,b\n2024-01-01T00:00:00Z,my metric,NaN,\n"
    )
    first, second, other = bc.read(file, catalogue=CATALOGUE, kind="recorded").series
    assert (first.times - first.times[0]).tolist() == [0.0, 10.0, 30.0]
    assert same(first.values, np.array([1.0, 3.0, np.nan]))
    assert (dict(first.labels), dict(second.labels)) == ({"instance": "a"}, {"instance": "b"})
    assert (second.values.tolist(), other.metric) == ([7.0], "my-metric")
    assert np.isnan(other.values[0])


def test_a_window_cuts_a_file(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("timestamp,metric,value\n" + "".join(f"{t},rps,{t}\n" for t in range(0, 100, 10)))

    def within(start: str, end: str) -> bc.Recording:
        run = {"recording": str(file), "start": start, "end": end}
        about = {"base": {"label": "a"}, "new": {"label": "b"}, "source": {"kind": "recorded"}}
        tests = [{"name": "t", "type": "bounded", "base": run, "new": run}]
        return bc.compare(bc.parameters(name="x", tests=tests, **about)).recordings["t"]["base"][0]

    recording = within("1970-01-01T00:00:30Z", "1970-01-01T00:01:00Z")
    curve = recording.curve(recording.series[0])
    assert (curve.index.tolist(), curve.tolist()) == ([0.0, 10.0, 20.0, 30.0], [30.0, 40.0, 50.0, 60.0])
    with pytest.raises(bc.InputError, match=r"overlaps the data \(1970-01-01T00:00:00.* to 1970-01-01T00:01:30"):
        within("1971-01-01T00:00:00Z", "1972-01-01T00:00:00Z")


def test_a_format_of_another_package_is_read(project: Path, tmp_path: Path) -> None:
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


START = pd.Timestamp("2024-12-11T10:00:00Z").timestamp()
TIDY = pd.DataFrame(
    {
        "time": [0, 5, 0, 5, 10],
        "metric": ["RPS", "RPS", "goroutines-in-use", "goroutines-in-use", "goroutines-in-use"],
        "value": [1.5, np.nan, 7, 8, 9],
        "instance": ["a", "a", "b", "b", "b"],
    }
)


@pytest.mark.parametrize("column", ["time", "timestamp"])
def test_a_tidy_frame(column: str) -> None:
    rps, goroutines = bc.Recording.from_frame(TIDY.rename(columns={"time": column})).series
    assert (rps.metric, rps.name, rps.unit, dict(rps.labels)) == ("rps", "RPS", "requests/s", {"instance": "a"})
    assert (rps.times.tolist(), rps.values.tolist()) == ([0, 5], pytest.approx([1.5, np.nan], nan_ok=True))
    assert goroutines.values.tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    "index",
    [
        [START, START + 5.0, START + 10.0],
        *((np.array([START, START + 5, START + 10]) * size).astype(np.int64) for size in (1.0, 1e3, 1e6, 1e9)),
        pd.to_datetime([START, START + 5, START + 10], unit="s", utc=True),
        pd.to_datetime([START, START + 5, START + 10], unit="s"),
        ["2024-12-11T10:00:00Z", "2024-12-11T10:00:05Z", "2024-12-11T10:00:10Z"],
    ],
)
def test_a_wide_frame(index: object) -> None:
    frame = pd.DataFrame({"RPS": [1, 2, 3], "own": [np.nan, 5.5, 6]}, index=index)  # type: ignore[arg-type]
    recording = bc.Recording.from_frame(frame)
    assert [(s.metric, s.unit) for s in recording.series] == [("rps", "requests/s"), ("own", "")]
    assert recording.series[0].times.tolist() == [START, START + 5, START + 10]
    assert (recording.window, recording.stop_known) == ((START, START + 10), False)
    assert recording.series[0].values.tolist() == [1, 2, 3]
    assert np.isnan(recording.series[1].values[0])


def test_a_frame_comes_back_long_and_within_its_window() -> None:
    frame = pd.DataFrame({"rps": np.arange(4.0)}, index=pd.to_timedelta([0, 5, 10, 15], unit="s"))
    lasting = pd.DataFrame({"P99 API times": pd.to_timedelta([120, 130, 140], unit="ms")}, index=[0, 5, 10])
    assert bc.Recording.from_frame(lasting).series[0].values.tolist() == [0.12, 0.13, 0.14]
    recording = bc.Recording.from_frame(frame, window=(5, 15), stop_known=True)
    assert recording.curve(recording.series[0]).to_dict() == {0.0: 1.0, 5.0: 2.0, 10.0: 3.0}
    assert recording.stop_known
    recording = bc.Recording.from_frame(TIDY, catalogue=read_catalogue("mattermost"))
    found = recording.to_frame()
    assert list(found.columns) == ["metric", "labels", "elapsed_s", "value"]
    assert found["labels"].tolist() == ["instance=a"] * 2 + ["instance=b"] * 3
    assert (found["elapsed_s"].tolist(), found["value"].tolist()[2:]) == ([0, 5, 0, 5, 10], [7, 8, 9])
    assert recording.to_frame("label").empty


def test_a_sum_counts_instances_that_end_or_begin_in_mid_run() -> None:
    def agent(name: str, start: float, end: float, without: float = -1.0) -> pd.DataFrame:
        at = np.arange(start, end, 10.0)
        return pd.DataFrame({"time": at[at != without], "metric": "users", "value": 250.0}).assign(instance=name)

    whole = bc.Recording.from_frame(pd.concat([agent("a", 0, 1200, 50), agent("b", 0, 600), agent("c", 800, 1200)]))
    users = whole.curve(whole.total("users"))  # type: ignore[arg-type]  # there is one
    assert (users[590.0], users[700.0], users[900.0], 50.0 in users.index) == (500.0, 250.0, 500.0, False)


@pytest.mark.parametrize(
    ("frame", "key", "found"),
    [
        (TIDY.assign(value="fast"), "value, row 0", "'fast'"),
        (TIDY.assign(time=[0, None, 1, 2, 3]), "timestamp, row 1", "nan"),
        (TIDY.assign(time=["noon"] * 5), "timestamp, row 0", "'noon'"),
        (TIDY.assign(time=0), "row 1", "a second one"),
        (TIDY.assign(time=[9e9, 1, 2, 3, 4]), "row 0", "of RPS (milliseconds or finer?)"),
        (TIDY.assign(metric=""), "metric, row 0", "nothing"),
        (TIDY.drop(columns="value"), "columns", "'timestamp', 'metric', 'instance'"),
        (TIDY.iloc[:0], "rows", "none"),
        (pd.DataFrame({"rps": [1, 2]}, index=[3, 3]), "row 1", "a second one"),
    ],
    ids=range(9),
)
def test_a_fault_in_a_frame_is_named(frame: pd.DataFrame, key: str, found: str) -> None:
    with pytest.raises(bc.InputError, match=rf"^{key}: expected .*, found .*{re.escape(found)}"):
        bc.Recording.from_frame(frame)


def test_a_recording_says_what_it_is_in_six_lines() -> None:
    times = np.arange(0.0, 100.0, 5.0)
    series = tuple(Series(f"m{i}", f"M{i}", "", times, times) for i in range(50))
    labels = tuple(LabelSummary("api", f"h{i}", "avg", 1.0) for i in range(60))
    notes = tuple(Note("source", "x" * 500) for _ in range(9))
    lines = repr(bc.Recording(series, (0.0, 95.0), True, labels, notes)).splitlines()
    assert lines[0] == "Recording(50 series of 50 metrics over 95 s from 1970-01-01T00:00:00Z)"
    assert lines[1] == "  m0, m1, m2, m3, m4, m5 and 44 more: 20 samples every 5 s"
    assert (lines[2], len(lines)) == ("  label values: api (60)", 6)
    assert max(map(len, lines)) < 120
    assert repr(bc.Recording((), (0.0, 1.0), True)).count("\n") == 0


CSV = "timestamp,metric,value\n1,RPS,2\n"


def test_files_are_found_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_text(CSV)
    (tmp_path / "l.csv").write_text("group,label,stat,value\napi,a,avg,1\n")
    monkeypatch.chdir(tmp_path)
    assert bc.read("x.csv", labels="l.csv").label_summaries == (LabelSummary("api", "a", "avg", 1.0),)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(bc.InputError, match=r"Grafana.*ltctl report generate.*found other JSON"):
        bc.read("x.json")
    with pytest.raises(
        bc.InputError, match="kind: expected one of grafana, ltctl, pgbench, sysstat, recorded, found 'csv'"
    ):
        bc.read("x.csv", kind="csv")


def test_a_pull_by_its_address_and_times(prometheus: Prometheus) -> None:
    recording = bc.pull(prometheus.url, at(BASE_START).isoformat(), at(BASE_START + LENGTH_S), step_s=10, threads=2)
    assert len(recording.graphs()) == 10
    assert recording.find("number-of-connected-devices", {}).step_s == 10  # type: ignore[union-attr]
    for start, end, more, said in (
        (at(BASE_START), at(BASE_START - 1), {}, "end` after `start`"),
        ("2024-01-01T00:00:00", at(0), {}, r"a time with its zone, .* found '2024-01-01T00:00:00'"),
        (at(0), at(1), {"threads": 0}, "threads: expected greater than or equal to 1, found the number 0"),
        (at(0), at(1), {"treads": 0}, "found the unknown key `treads`"),
    ):
        with pytest.raises(bc.InputError, match=said):
            bc.pull(prometheus.url, start, end, **more)
