"""Recordings are made of frames, turned into frames, say what they are, and know how much of a window they cover."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from buildcompare.config.catalogue import read_catalogue
from buildcompare.config.errors import InputError
from buildcompare.recordings.recording import LabelSummary, Note, Recording, Series
from buildcompare.recordings.sources import pull, read
from prometheus_server import BASE_START, LENGTH_S, Prometheus
from pulling import at

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
    rps, goroutines = Recording.from_frame(TIDY.rename(columns={"time": column})).series
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
    recording = Recording.from_frame(frame)
    assert [(s.metric, s.unit) for s in recording.series] == [("rps", "requests/s"), ("own", "")]
    assert recording.series[0].times.tolist() == [START, START + 5, START + 10]
    assert (recording.window, recording.stop_known) == ((START, START + 10), False)
    assert recording.series[0].values.tolist() == [1, 2, 3]
    assert np.isnan(recording.series[1].values[0])


def test_a_frame_comes_back_long_and_within_its_window() -> None:
    frame = pd.DataFrame({"rps": np.arange(4.0)}, index=pd.to_timedelta([0, 5, 10, 15], unit="s"))
    lasting = pd.DataFrame({"P99 API times": pd.to_timedelta([120, 130, 140], unit="ms")}, index=[0, 5, 10])
    assert Recording.from_frame(lasting).series[0].values.tolist() == [0.12, 0.13, 0.14]
    recording = Recording.from_frame(frame, window=(5, 15), stop_known=True)
    assert recording.curve(recording.series[0]).to_dict() == {0.0: 1.0, 5.0: 2.0, 10.0: 3.0}
    assert recording.stop_known
    recording = Recording.from_frame(TIDY, catalogue=read_catalogue("mattermost"))
    found = recording.to_frame()
    assert list(found.columns) == ["metric", "labels", "elapsed_s", "value"]
    assert found["labels"].tolist() == ["instance=a"] * 2 + ["instance=b"] * 3
    assert (found["elapsed_s"].tolist(), found["value"].tolist()[2:]) == ([0, 5, 0, 5, 10], [7, 8, 9])
    assert recording.to_frame("label").empty


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
    with pytest.raises(InputError, match=rf"^{key}: expected .*, found .*{re.escape(found)}"):
        Recording.from_frame(frame)


def test_a_recording_says_what_it_is_in_six_lines() -> None:
    times = np.arange(0.0, 100.0, 5.0)
    series = tuple(Series(f"m{i}", f"M{i}", "", times, times) for i in range(50))
    labels = tuple(LabelSummary("api", f"h{i}", "avg", 1.0) for i in range(60))
    notes = tuple(Note("source", "x" * 500) for _ in range(9))
    lines = repr(Recording(series, (0.0, 95.0), True, labels, notes)).splitlines()
    assert lines[0] == "Recording(50 series of 50 metrics over 95 s from 1970-01-01T00:00:00Z)"
    assert lines[1] == "  m0, m1, m2, m3, m4, m5 and 44 more: 20 samples every 5 s"
    assert (lines[2], len(lines)) == ("  label values: api (60)", 6)
    assert max(map(len, lines)) < 120
    assert repr(Recording((), (0.0, 1.0), True)).count("\n") == 0


CSV = "timestamp,metric,value\n1,RPS,2\n"


def test_files_are_found_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.csv").write_text(CSV)
    (tmp_path / "l.csv").write_text("group,label,stat,value\napi,a,avg,1\n")
    monkeypatch.chdir(tmp_path)
    assert read("x.csv", labels="l.csv").label_summaries == (LabelSummary("api", "a", "avg", 1.0),)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"Grafana.*ltctl report generate.*found other JSON"):
        read("x.json")
    with pytest.raises(
        InputError, match="kind: expected one of grafana, ltctl, pgbench, sysstat, recorded, found 'csv'"
    ):
        read("x.csv", kind="csv")


def test_a_pull_by_its_address_and_times(prometheus: Prometheus) -> None:
    recording = pull(prometheus.url, at(BASE_START).isoformat(), at(BASE_START + LENGTH_S), step_s=10, threads=2)
    assert len(recording.graphs()) == 10
    assert recording.find("number-of-connected-devices", {}).step_s == 10  # type: ignore[union-attr]
    for start, end, more, said in (
        (at(BASE_START), at(BASE_START - 1), {}, "end` after `start`"),
        ("2024-01-01T00:00:00", at(0), {}, r"a time with its zone, .* found '2024-01-01T00:00:00'"),
        (at(0), at(1), {"threads": 0}, "threads: expected greater than or equal to 1, found the number 0"),
        (at(0), at(1), {"treads": 0}, "found the unknown key `treads`"),
    ):
        with pytest.raises(InputError, match=said):
            pull(prometheus.url, start, end, **more)
