"""Tables of text as people have them are read as they were meant, or are refused with what would be right."""

import datetime as dt
import io
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

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
    at = pd.to_datetime(frame.index, unit="s").strftime(times) if isinstance(times, str) else frame.index * times
    return frame.set_axis(pd.Index(at, name=name)).to_csv(sep=sep, decimal="," if sep == ";" else ".")


def long(frame: pd.DataFrame, sep: str = ",", names: tuple[str, str, str] = ("timestamp", "metric", "value")) -> str:
    table = frame.melt(ignore_index=False, var_name="m", value_name="v").reset_index(names="t")
    return table.set_axis(list(names), axis=1).to_csv(index=False, sep=sep, decimal="," if sep == ";" else ".")


def grafana(frame: pd.DataFrame) -> str:
    lines = wide(frame, 1000).splitlines()
    lines[0] = ",".join(f'"{name}"' for name in lines[0].split(","))
    return "\r\n".join([*lines, "", ""])


FORMS: dict[str, Callable[[pd.DataFrame], str | bytes]] = {
    "long": long,
    "long, behind a default index of pandas'": lambda frame: pd.read_csv(io.StringIO(long(frame)), dtype=str).to_csv(),
    "wide, behind an index": lambda frame: frame.reset_index(names="time").to_csv(),
    "long, decimal commas": lambda frame: long(frame, ";"), "wide, seconds": lambda frame: wide(frame, 1),
    "wide, an index of pandas' without a name": lambda frame: wide(frame, 1, name=""),
    "wide, milliseconds": lambda frame: wide(frame, 1000, name="timestamp"),
    "wide, zone": lambda frame: wide(frame, "%Y-%m-%dT%H:%M:%SZ"),
    "wide, other zone": lambda frame: wide(frame.set_axis(frame.index + 3600), "%Y-%m-%d %H:%M:%S+01:00"),
    "wide, no zone": lambda frame: wide(frame, "%Y-%m-%d %H:%M:%S"),
    "wide, decimal commas, BOM": lambda frame: b"\xef\xbb\xbf" + wide(frame, 1, ";").encode(),
    "wide, tabs, UTF-16": lambda frame: wide(frame, 1000, "\t").encode("utf-16"),
    "spreadsheet's first line": lambda frame: "sep=;\r\n" + wide(frame, "%Y-%m-%dT%H:%M:%SZ", ";"),
    "separators at the end": lambda frame: wide(frame, 1, ";").replace("\n", ";\n"), "Grafana, joined by time": grafana,
    "Grafana before 7, series as rows": lambda frame: long(frame, ";", ("Time", "Series", "Value")).replace(",", "."),
}  # fmt: skip


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Samples at whole seconds; 0.5 is in every one, so that no mark of its numbers has two readings."""
    steps = draw(st.lists(st.integers(1, 400), min_size=2, max_size=12))
    number = st.floats(allow_nan=True, allow_infinity=False, allow_subnormal=False) | st.floats(-9999, 9999)
    values = {name: [0.5, *draw(st.lists(number, min_size=len(steps), max_size=len(steps)))] for name in NAMES}
    return pd.DataFrame(values, index=START + np.cumsum([0, *steps]))


def read_text(text: str | bytes, time_unit: str | None = None, name: str = "run.csv") -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(file, time_unit=time_unit)


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
    (series,) = read_text(text, name="P99 API times-data-2024-12-11 10_00_00.csv").series
    assert (series.metric, series.name, dict(series.labels)) == ("p99-api-times", "P99 API times", {})
    assert series.values == pytest.approx([0.25, 1.25, np.nan], nan_ok=True)


def test_legends_of_a_panel_tell_its_series_apart() -> None:
    text = 'Time,"{instance=""app-0""}",app-1,RPS\n1733911200000,1.2 GB,900 MiB,"1,200 req/s"\n'
    name = "Heap In Use-data-as-joinbyfield-2024-12-11 10_00_00.csv"
    assert read_text("Time,app-0 (MB)\n0,1\n", name=name).series[0].values == [1e6]
    heaps, rps = read_text(text, name=name).series[:2], read_text(text, name=name).series[2]
    assert [heap.metric for heap in heaps] == ["heap-in-use", "heap-in-use"]
    assert [heap.labels["series"] for heap in heaps] == ['{instance="app-0"}', "app-1"]
    assert [heap.values[0] for heap in heaps] == [1.2e9, 900 * 1024.0**2]
    assert (rps.metric, dict(rps.labels)) == ("rps", {})


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["0,5", "1,234"], [0.5, 1.234]), (["1.234,5", "12,25"], [1234.5, 12.25]), (["1,234,567"], [1234567.0]),
        (['"1,234.5"', '"1,234"'], [1234.5, 1234.0]), (["1.5", "1234.567"], [1.5, 1234.567]),
        (["5E-05", "1,5E-05"], [5e-5, 1.5e-5]), (["1,5 ms", "20 ms"], [0.0015, 0.02]),
        (["1.2 K", "3 K"], [1200.0, 3000.0]),
        (["null", "undefined", "None", "N/A", "NA", "-", "7"], [*[np.nan] * 6, 7.0]),
    ],
    ids=str,
)  # fmt: skip
def test_numbers_of_one_reading(cells: list[str], values: list[float]) -> None:
    text = "time;Avg API times\n" + "".join(f"{i * 5};{cell}\n" for i, cell in enumerate(cells))
    assert read_text(text).series[0].values.tolist() == pytest.approx(values, nan_ok=True, rel=1e-15)


@pytest.mark.parametrize(
    ("header", "times", "second"),
    [
        ("time_ms", ("0", "5000"), 5.0), ("elapsed (s)", ("0", "5000"), 5000.0), ("timestamp", ("0", "5.5"), 5.5),
        ("elapsed_seconds", ("0", "5"), 5.0), ("unix_time", ("0", "5.5"), 5.5), ("@timestamp", ("0", "5"), 5.0),
        ("timestamp", ("1970-01-01 00:00:00", "1970-01-01T00:00:05.500"), 5.5),
        ("time (UTC)", ("1970-01-01 00:00:00 UTC", "1970-01-01 00:00:05.5 +0000 UTC"), 5.5),
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
    with pytest.raises(InputError, match=rf"\A.*{said}.*\Z"):
        read_text(text)


UNITS: dict[str, dict[str, int | Fraction]] = {
    "P99 API times": {"s": 1, "ms": Fraction(1, 1000), "usec": Fraction(1, 10**6), "Seconds": 1, "mins": 60},
    "CPU Utilization": {"%": 1, "Pct": 1, "ratio": 100},
    "Heap In Use": {"B": 1, "MB": 10**6, "MiB": 2**20, "Byte": 1},
}
"""Sizes of units in that of the catalogue, as a physicist has them."""
BEGIN = dt.datetime(2024, 12, 11, 10, tzinfo=dt.UTC)
STEP = dt.timedelta(seconds=5)


class Stated(NamedTuple):
    text: str
    values: list[float]
    agree: bool


@st.composite
def tables(draw: st.DrawFn) -> Stated:
    name = draw(st.sampled_from([*UNITS]))
    perhaps = st.none() | st.sampled_from([*UNITS[name]])
    numbers = draw(st.lists(st.integers(1, 9999), min_size=3, max_size=6))
    is_long = draw(st.booleans())
    in_name, behind, beside = draw(st.tuples(perhaps, perhaps, perhaps))
    beside = beside if is_long else None
    sizes = {Fraction(UNITS[name][each]) for each in (in_name, behind, beside) if each}
    form = draw(st.sampled_from(["{} ({})", "{} [{}]", "{}_{}", "{} in {}", '"{}, {}"', "{}_in_{}", "{}|{}."]))
    called = form.format(name, in_name) if in_name else name
    zone = draw(st.sampled_from([-11, -5, 0, 1, 14]))
    times = [(BEGIN + i * STEP).astimezone(dt.timezone(dt.timedelta(hours=zone))) for i in range(len(numbers))]
    cells = [f"{number} {behind}" if behind else str(number) for number in numbers]
    rows = [f"{time.isoformat()},{cell}" for time, cell in zip(times, cells, strict=True)]
    head = f"timestamp,{called}"
    if is_long:
        unit = draw(st.sampled_from(["unit", "Units", "UoM", "value_unit", "suffix"]))
        head = "timestamp,value,metric" + (f",{unit}" if beside else "")
        rows = [f"{row},{called}" + (f",{beside}" if beside else "") for row in rows]
    size = min(sizes, default=Fraction(1))
    return Stated("\n".join([head, *rows, ""]), [float(number * size) for number in numbers], len(sizes) < 2)


@settings(max_examples=150)
@given(stated=tables())
def test_units_and_zones_are_converted_or_refused(stated: Stated) -> None:
    if not stated.agree:
        with pytest.raises(InputError, match="one unit"):
            read_text(stated.text)
        return
    (series,) = read_text(stated.text).series
    assert series.values == pytest.approx(stated.values, rel=1e-12)
    assert series.times.tolist() == [BEGIN.timestamp() + 5.0 * i for i in range(len(stated.values))]
    assert not series.labels


SINCE = {
    "s": lambda at: str(int(at.timestamp())),
    "ms": lambda at: str(int(at.timestamp()) * 1000),
    "us": lambda at: str(int(at.timestamp()) * 10**6),
    "days": lambda at: f"{(at - dt.datetime(1899, 12, 30, tzinfo=dt.UTC)) / dt.timedelta(days=1):.10f}",
    "date": lambda at: f"{at:%Y%m%d%H%M%S}",
}


@settings(max_examples=100)
@given(
    form=st.sampled_from([*SINCE]),
    named=st.sampled_from(["", "_s", "_ms", "_us"]),
    decided=st.none() | st.sampled_from([*SINCE]),
    second=st.integers(0, 10**8),
)
def test_times_are_read_as_meant_or_refused(form: str, named: str, decided: str | None, second: int) -> None:
    times = [BEGIN + dt.timedelta(seconds=second) + i * STEP for i in range(4)]
    text = f"time{named},RPS\n" + "".join(f"{SINCE[form](at)},1\n" for at in times)
    if decided in (None, form) and (decided or (form in ("s", "ms", "us") and named in ("", f"_{form}"))):
        assert read_text(text, decided).series[0].times == pytest.approx([at.timestamp() for at in times], abs=2e-3)
        return
    try:
        found = read_text(text, decided).series[0].times
    except InputError as error:
        assert decided or f"`time_unit: {form}`" in str(error)  # noqa: PT017  # the other branch is no error
    else:
        assert decided, found


@pytest.mark.parametrize(("unit", "size"), [("s", 1.0), ("ms", 1e3)])
@pytest.mark.parametrize(("step", "end"), [(250, 750), (10, 90_250)])
def test_elapsed_times_that_may_be_milliseconds_need_a_line(unit: str, size: float, step: int, end: int) -> None:
    text, last = f"time,RPS\n0,1\n{step},1\n{2 * step},1\n{end},1\n", end / size
    with pytest.raises(InputError, match="`time_unit: s` in `source`, or `time_unit: ms`"):
        read_text(text)
    assert read_text(text, unit).series[0].times[-1] == last
    assert read_text(text.replace("time", f"time_{unit}")).series[0].times[-1] == last
    assert read_text("time,RPS\n0,1\n10,1\n20,1\n").series[0].times[1] == 10  # nothing tells these apart


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,CPU Utilization (‰)\n0,1\n5,2\n", "found '‰'"), ("time,RPS, RPS\n0,1,2\n5,1,2\n", "'RPS' twice"),
        ("time,RPS\n0,1\n5,2\0\n", "line 3: expected a number"),
        ("time,RPS\n2024-10-27 02:59:55,1\n2024-10-27 02:00:00,1\n", "line 3: expected each hour once"),
        *(
            (f"time,metric,value,{name}\n2024-12-11 12:59:55,RPS,1,EST\n", f"{name}: expected times in UTC")
            for name in ("timezone", "Time Zone", "tz_name", "utc_offset", "region")
        ),
        *(
            ("\n".join(["time,RPS", *(f"{each},1" for each in times.split()), ""]), "expected times with one meaning")
            for times in (
                "1058 1059 1100", "100055 100100 100105", "45637 45638", "2024 2025", "2601051000 2601051001",
                "739597.4 739597.41", "133783848000000000 133783848050000000", "755604000 755604005", "0 0.0833 0.1667",
            )
        ),
    ],
)  # fmt: skip
def test_what_may_mean_something_else_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_text(text)


def test_a_table_of_labels_may_state_units(tmp_path: Path) -> None:
    run, labels = tmp_path / "run.csv", tmp_path / "labels.csv"
    run.write_text("time,RPS\n0,1\n5,1\n", "utf-8")
    labels.write_text("group,label,stat,value,UoM\napi,a,avg,120,ms\napi,b,avg,2,s\napi,c,p99 (ms),4,\n", "utf-8")
    assert [each.value for each in read(run, labels=labels).label_summaries] == pytest.approx([0.12, 2, 0.004])
    labels.write_text("group,label,stat,value,unit\napi,a,calls,120,ms\n", "utf-8")
    with pytest.raises(InputError, match="in calls"):
        read(run, labels=labels)
