"""Tables of text as people have them come back as they were written, or are refused with what would be right."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildcompare.config.errors import InputError
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import read

START = 1733911200
NAMES = ["RPS", "P99 API times", "my own"]
Form = tuple[str, Callable[[pd.DataFrame], "str | bytes"]]


def wide(frame: pd.DataFrame, times: int | str, sep: str = ",", name: str = "Time") -> str:
    """A column for each metric; `times` are so many in a second, or written like this."""
    at = pd.to_datetime(frame.index, unit="s").strftime(times) if isinstance(times, str) else frame.index * times
    return frame.set_axis(pd.Index(at, name=name)).to_csv(sep=sep, decimal="," if sep == ";" else ".")


def long(frame: pd.DataFrame, sep: str = ",", names: tuple[str, str, str] = ("timestamp", "metric", "value")) -> str:
    table = frame.melt(ignore_index=False, var_name="m", value_name="v").reset_index(names="t")
    return table.set_axis(list(names), axis=1).to_csv(index=False, sep=sep, decimal="," if sep == ";" else ".")


def grafana(frame: pd.DataFrame) -> str:
    """The panel inspector's "series joined by time", every header in quotes."""
    lines = wide(frame, 1000).splitlines()
    lines[0] = ",".join(f'"{name}"' for name in lines[0].split(","))
    return "\r\n".join([*lines, "", ""])


FORMS: dict[str, Callable[[pd.DataFrame], str | bytes]] = {
    "long": long,
    "long, decimal commas": lambda frame: long(frame, ";"),
    "wide, seconds": lambda frame: wide(frame, 1),
    "wide, an index of pandas' without a name": lambda frame: wide(frame, 1, name=""),
    "wide, milliseconds": lambda frame: wide(frame, 1000, name="timestamp"),
    "wide, zone": lambda frame: wide(frame, "%Y-%m-%dT%H:%M:%SZ"),
    "wide, other zone": lambda frame: wide(frame.set_axis(frame.index + 3600), "%Y-%m-%d %H:%M:%S+01:00"),
    "wide, no zone": lambda frame: wide(frame, "%Y-%m-%d %H:%M:%S"),
    "wide, decimal commas, BOM": lambda frame: b"\xef\xbb\xbf" + wide(frame, 1, ";").encode(),
    "wide, tabs, UTF-16": lambda frame: wide(frame, 1000, "\t").encode("utf-16"),
    "spreadsheet's first line": lambda frame: "sep=;\r\n" + wide(frame, "%Y-%m-%dT%H:%M:%SZ", ";"),
    "separators at the end": lambda frame: wide(frame, 1, ";").replace("\n", ";\n"),
    "Grafana, joined by time": grafana,
    "Grafana before 7, series as rows": lambda frame: long(frame, ";", ("Time", "Series", "Value")).replace(",", "."),
}


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Samples at whole seconds; 0.5 is in every one, so that no mark of its numbers has two readings."""
    steps = draw(st.lists(st.integers(1, 400), min_size=2, max_size=12))
    number = st.floats(allow_nan=True, allow_infinity=False, allow_subnormal=False) | st.floats(-9999, 9999)
    values = {name: [0.5, *draw(st.lists(number, min_size=len(steps), max_size=len(steps)))] for name in NAMES}
    return pd.DataFrame(values, index=START + np.cumsum([0, *steps]))


def read_text(text: str | bytes, name: str = "run.csv") -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(file)


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=15)
@given(frame=frames())
def test_a_frame_reads_back_equal_from_every_form(form: str, frame: pd.DataFrame) -> None:
    found, expected = read_text(FORMS[form](frame)), Recording.from_frame(frame)
    assert [series.name for series in found.series] == NAMES
    for one, other in zip(found.series, expected.series, strict=True):
        assert (one.metric, one.unit, dict(one.labels)) == (other.metric, other.unit, {})
        assert one.times.tobytes() == other.times.tobytes()
        assert np.array_equal(one.values, other.values, equal_nan=True)


def test_a_panel_of_grafana_is_named_by_its_file() -> None:
    text = '"Time","Value"\r\n2024-12-11 10:00:00,250 ms\r\n2024-12-11 10:00:05,1.25 s\r\n2024-12-11 10:00:10,\r\n'
    (series,) = read_text(text, "P99 API times-data-2024-12-11 10_00_00.csv").series
    assert (series.metric, series.name, dict(series.labels)) == ("p99-api-times", "P99 API times", {})
    assert series.values[:2].tolist() == [0.25, 1.25]
    assert np.isnan(series.values[2])


def test_legends_of_a_panel_tell_its_series_apart() -> None:
    text = 'Time,"{instance=""app-0""}",app-1,RPS\n1733911200000,1.2 GB,900 MiB,"1,200 req/s"\n'
    name = "Heap In Use-data-as-joinbyfield-2024-12-11 10_00_00.csv"
    heaps, rps = read_text(text, name).series[:2], read_text(text, name).series[2]
    assert [heap.metric for heap in heaps] == ["heap-in-use", "heap-in-use"]
    assert [heap.labels["series"] for heap in heaps] == ['{instance="app-0"}', "app-1"]
    assert [heap.values[0] for heap in heaps] == [1.2e9, 900 * 1024.0**2]
    assert (rps.metric, dict(rps.labels)) == ("rps", {})


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["0,5", "1,234"], [0.5, 1.234]),
        (["1.234,5", "12,25"], [1234.5, 12.25]),
        (['"1,234.5"', '"1,234"'], [1234.5, 1234.0]),
        (["1,234,567"], [1234567.0]),
        (["1.5", "1234.567"], [1.5, 1234.567]),
        (["5E-05", "1,5E-05"], [5e-5, 1.5e-5]),
        (["1,5 ms", "20 ms"], [0.0015, 0.02]),
        (["1.2 K", "3 K"], [1200.0, 3000.0]),
        (["null", "undefined", "7"], [np.nan, np.nan, 7.0]),
    ],
    ids=str,
)
def test_numbers_of_one_reading(cells: list[str], values: list[float]) -> None:
    text = "time;Avg API times\n" + "".join(f"{i * 5};{cell}\n" for i, cell in enumerate(cells))
    assert read_text(text).series[0].values.tolist() == pytest.approx(values, nan_ok=True, rel=1e-15)


@pytest.mark.parametrize(
    ("header", "times", "second"),
    [
        ("time_ms", ("0", "5000"), 5.0), ("elapsed (s)", ("0", "5000"), 5000.0), ("timestamp", ("0", "5.5"), 5.5),
        ("timestamp", ("1970-01-01 00:00:00", "1970-01-01T00:00:05.500"), 5.5),
    ],
)  # fmt: skip
def test_times_may_have_units_and_fractions(header: str, times: tuple[str, str], second: float) -> None:
    assert read_text(f"{header},RPS\n{times[0]},1\n{times[1]},2\n").series[0].times.tolist() == [0.0, second]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,RPS\n31.12.2024 10:00,1\n", r"expected a time such as 2024-12-31 10:00, found"),
        ("time,Avg API times (MB)\n0,5\n", r"unit: expected a number, or one in seconds \(ns, .*\), found 'MB'"),
        ("timestamp,metric,value\n1,rps,1\nnan,rps,2\n", "timestamp, line 3: expected a time, found 'nan'"),
        ("timestamp,metric,value\n1,,1\n", "metric, line 2: expected a metric's name, found nothing"),
        ("time,metric,value,unit\n1,P99 API times,1,ms\n2,P99 API times,1,s\n", "one unit of P99 API times"),
        ('timestamp,metric,value\n1,"rps,1\n', "expected a CSV with the columns"),
        (b"\xff\xfet", r"expected text in UTF-16, as the first bytes say"),
    ],
)
def test_what_has_no_reading_is_refused(text: str | bytes, said: str) -> None:
    """Faults of docs/input-faults.md are tested in tests/config."""
    with pytest.raises(InputError, match=rf"\A.*{said}.*\Z"):
        read_text(text)
