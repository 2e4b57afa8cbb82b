"""What a table states of units, zones and times is read as an independent reading has it, or is refused."""

import datetime as dt
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildcompare.config.errors import InputError
from buildcompare.recordings.recording import Recording
from buildcompare.recordings.sources import read

UNITS: dict[str, dict[str, int | Fraction]] = {
    "P99 API times": {"s": 1, "ms": Fraction(1, 1000), "us": Fraction(1, 10**6), "seconds": 1, "min": 60},
    "CPU Utilization": {"%": 1, "percent": 1, "ratio": 100},
    "Heap In Use": {"B": 1, "MB": 10**6, "MiB": 2**20, "bytes": 1},
}
"""Sizes of units in that of the catalogue, as a physicist has them."""
START = dt.datetime(2024, 12, 11, 10, tzinfo=dt.UTC)
STEP = dt.timedelta(seconds=5)


def as_read(text: str, time_unit: str | None = None) -> Recording:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run.csv")
        file.write_text(text, "utf-8")
        return read(file, time_unit=time_unit)


class Stated(NamedTuple):
    """A table, and what stands in it."""

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
    form = draw(st.sampled_from(["{} ({})", "{} [{}]", "{}_{}", "{} in {}", '"{}, {}"']))
    called = form.format(name, in_name) if in_name else name
    zone = draw(st.sampled_from([-11, -5, 0, 1, 14]))
    times = [(START + i * STEP).astimezone(dt.timezone(dt.timedelta(hours=zone))) for i in range(len(numbers))]
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
            as_read(stated.text)
        return
    (series,) = as_read(stated.text).series
    assert series.values == pytest.approx(stated.values, rel=1e-12)
    assert series.times.tolist() == [START.timestamp() + 5.0 * i for i in range(len(stated.values))]
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
    """A line of the params decides, even against the column's name; without it only one reading is taken."""
    times = [START + dt.timedelta(seconds=second) + i * STEP for i in range(4)]
    text = f"time{named},RPS\n" + "".join(f"{SINCE[form](at)},1\n" for at in times)
    if decided in (None, form) and (decided or (form in ("s", "ms", "us") and named in ("", f"_{form}"))):
        assert as_read(text, decided).series[0].times == pytest.approx([at.timestamp() for at in times], abs=2e-3)
        return
    try:
        found = as_read(text, decided).series[0].times
    except InputError as error:
        assert decided or f"`time_unit: {form}`" in str(error)  # noqa: PT017  # the other branch is no error
    else:
        assert decided, found


@pytest.mark.parametrize(("unit", "size"), [("s", 1.0), ("ms", 1e3)])
@pytest.mark.parametrize(("step", "end"), [(250, 750), (10, 259_250)])
def test_elapsed_times_that_may_be_milliseconds_need_a_line(unit: str, size: float, step: int, end: int) -> None:
    text, last = f"time,RPS\n0,1\n{step},1\n{2 * step},1\n{end},1\n", end / size
    with pytest.raises(InputError, match="`time_unit: s` in `source`, or `time_unit: ms`"):
        as_read(text)
    assert as_read(text, unit).series[0].times[-1] == last
    assert as_read(text.replace("time", f"time_{unit}")).series[0].times[-1] == last
    assert as_read("time,RPS\n0,1\n10,1\n20,1\n").series[0].times[1] == 10  # nothing tells these apart


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,CPU Utilization (‰)\n0,1\n5,2\n", "found '‰'"),
        ("time,RPS, RPS\n0,1,2\n5,1,2\n", "'RPS' twice"),
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
        as_read(text)


def test_a_table_of_labels_may_state_units(tmp_path: Path) -> None:
    run, labels = tmp_path / "run.csv", tmp_path / "labels.csv"
    run.write_text("time,RPS\n0,1\n5,1\n", "utf-8")
    labels.write_text("group,label,stat,value,unit\napi,a,avg,120,ms\napi,b,avg,2,s\napi,c,avg,3,\n", "utf-8")
    assert [each.value for each in read(run, labels=labels).label_summaries] == pytest.approx([0.12, 2.0, 3.0])
    labels.write_text("group,label,stat,value,unit\napi,a,calls,120,ms\n", "utf-8")
    with pytest.raises(InputError, match="in calls"):
        read(run, labels=labels)
