"""Figures and charts show every sample that counts, follow the page's theme, and say in words what they show."""

import base64
import io
import json
import re
import zlib
from importlib.resources import files
from operator import methodcaller
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties
from PIL import Image

from buildcompare.comparison.measure import TestView
from buildcompare.config.catalogue import read_catalogue
from buildcompare.figures import curves as figures
from buildcompare.figures import rasterise
from buildcompare.figures.chart import MOST_SAMPLES, chart
from buildcompare.figures.curves import DARK, SHADES
from buildcompare.figures.plot import LEAST_POINTS, SMALL, THEME, Plot, fitted, ticks
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import MetricResult, RunResult, TestResult
from buildcompare.results.codes import Pair
from buildcompare.results.users import RampUp

STEP = 5.0
RPS = methodcaller("total", "rps")


def view(**curves: list[np.ndarray]) -> TestView:
    recordings = {
        side: [
            Recording((Series("rps", "RPS", "", STEP * np.arange(run.size), run),), (0.0, STEP * run.size), True)
            for run in runs
        ]
        for side, runs in curves.items()
    }
    test = cast(Any, TestResult).model_construct(runs=Pair([], []))
    return TestView(test, recordings, read_catalogue("mattermost"), Pair("v1", "v2"), {})


def test_every_run_is_drawn_and_no_spike_is_lost() -> None:
    long_run = np.sin(np.arange(2000.0))
    long_run[[700, 1300]] = 99.0, -99.0
    found = figures.stretches(view(base=[np.ones(10), np.ones(20)], new=[long_run]), RPS)
    assert [minutes.size for minutes, _ in found["base"]] == [10, 20]
    ((minutes, values),) = found["new"]
    assert minutes.size == values.size == figures.POINTS_PER_CURVE
    for spike, place in ((99.0, 700), (-99.0, 1300)):
        assert minutes[values == spike] == pytest.approx(place * STEP / 60)
    assert (np.diff(minutes) > 0).all()


@pytest.mark.parametrize("missing", [np.nan, np.inf])
@pytest.mark.parametrize("size", [30, 3000])
def test_a_line_ends_where_samples_are_missing(missing: float, size: int) -> None:
    values = np.ones(size)
    values[10:12] = missing
    found = figures.stretches(view(base=[values], new=[np.ones(5)]), RPS)
    before, after = found["base"]
    assert before[0].max() < 10.5 * STEP / 60 < after[0].min()
    assert np.isfinite([*before[1], *after[1]]).all()
    assert len(found["new"]) == 1


@pytest.mark.parametrize(
    "title",
    [
        "Goroutines In Use: 20,000 goroutines \u2192 21,200 goroutines (+6.0 %)",
        "A$$b: 1 \u2192 2",
        "x" * 400 + ": 20,000 \u2192 21,200 (+6.0 %)",
        "W" * 70 + "\n(+3.8 %)",
        "\u8ca0\u8377\u8a66\u9a13" * 30 + " (+6.0 %)",
    ],
)
def test_a_title_fits_its_figure(title: str) -> None:
    room = 72 * SMALL[0] - Plot(SMALL, "", x=(0, 1), y=(0, 1)).left
    lines, points = fitted(title, 0.97 * room)
    font = FontProperties(family="DejaVu Sans", weight="bold", size=points)
    for line in lines:
        if line.isascii() or "\u2192" in line:  # of other letters it depends on the reader's fonts
            assert RendererAgg(9, 9, 72).get_text_width_height_descent(line, font, False)[0] <= room
    assert points >= LEAST_POINTS
    assert lines[-1].endswith(title[-8:]), "the numbers stay"


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.0, 17.3, ["0.0", "2.5", "5.0", "7.5", "10.0", "12.5", "15.0"]),
        (0.0, 21_000.0, ["0", "5,000", "10,000", "15,000", "20,000"]),
        (-0.0004, 0.0021, ["0.0000", "0.0005", "0.0010", "0.0015", "0.0020"]),
        (0.0, 160.0, ["0", "25", "50", "75", "100", "125", "150"]),
    ],
)
def test_an_axis_has_round_numbers(low: float, high: float, shown: list[str]) -> None:
    assert [text for _, text in ticks(low, high, 7)] == shown


def test_a_png_is_the_picture_of_its_svg() -> None:
    pytest.importorskip("resvg_py")
    plot = Plot(SMALL, "a & b \x00", x=(0.0, 10.0), y=(0.0, 4.0))
    plot.band(5.0, 10.0, "base")
    plot.curve([([0.0, 10.0], [2.0, 2.0])], "new", width=6, dashes=())
    svg = plot.svg("what")
    image = Image.open(io.BytesIO(rasterise(svg))).convert("RGB")
    scale = 120 / 72

    def at(x: float, y: float) -> Any:
        return image.getpixel((int(float(plot.across(x)) * scale), int(float(plot.down(y)) * scale)))

    def near(colour: Any, name: str) -> bool:
        wanted = [int(THEME[name][i : i + 2], 16) for i in (1, 3, 5)]
        return max(abs(a - b) for a, b in zip(colour, wanted, strict=True)) < 24

    assert near(at(2.0, 2.0), "new")
    assert near(at(7.0, 2.0), "new")
    assert near(at(7.3, 1.3), "base")
    assert at(2.3, 1.3) == (255, 255, 255)
    assert "a &amp; b \ufffd" in svg


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_phases_of_a_run_follow_the_page_and_their_names_can_be_read() -> None:
    css = (files("buildcompare.figures") / "theme.css").read_text("utf-8")
    themes = [dict(re.findall(r"(--\w+): (#\w{6})", theme)) for theme in re.findall(r":root \{([^}]*)\}", css)]
    assert len(themes) == 3  # light, dark, printed
    assert {name: themes[0][f"--{name}"] for name in THEME} == THEME
    for theme in themes:
        for phase, shade in SHADES.items():
            name = theme["--paper" if phase in DARK else "--ink"]
            light, dark = sorted((_luminance(name), _luminance(theme[f"--{shade}"])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5
    assert _luminance(themes[1]["--ramp"]) < 0.1 < _luminance(themes[0]["--ramp"])


def chart_of(*runs: Series) -> tuple[dict[str, Any], list[np.ndarray]]:
    recordings = [Recording((run,), (0.0, max(100.0, run.times[-1])), True) for run in runs]
    result = cast(Any, RunResult).model_construct(
        samples_sha256="0123456789", stop_s=None, duration_s=100.0, window=(10.0, 90.0), phases=[],
        ramp_up=RampUp(onset_s=5.0),
    )  # fmt: skip
    test = cast(Any, TestResult).model_construct(
        name="t", type="bounded", events=[], runs=Pair([result] * len(runs), [result])
    )
    metric = cast(Any, MetricResult).model_construct(name="RPS", slug="rps", unit="", labels={})
    view = TestView(test, {"base": recordings, "new": recordings[:1]}, read_catalogue("mattermost"), Pair("a", "b"), {})
    attributes = chart(view, metric, methodcaller("total", "rps"), title="title", alt="words")
    raw = zlib.decompress(base64.b64decode(attributes["data"]))
    size = int.from_bytes(raw[:4], "little")
    header, floats = json.loads(raw[4 : 4 + size]), np.frombuffer(raw[4 + size :], "<f4")
    counts = [run["size"] * (2 if run.get("timed") else 1) + run.get("minutes", 0) for run in header["runs"]]
    assert sum(counts) == floats.size
    return header, np.split(floats, np.cumsum(counts)[:-1])


def series(times: Any, values: Any) -> Series:
    return Series("rps", "RPS", "", np.asarray(times, float), np.asarray(values, float))


def test_what_is_missing_stays_missing_and_samples_without_a_grid_keep_their_times() -> None:
    _, floats = chart_of(series([0, 5, 10, 25, 30], [1, np.nan, np.inf, 4, 5]))
    assert floats[0] == pytest.approx([1, np.nan, np.nan, np.nan, np.nan, 4, 5], nan_ok=True)
    times = [0.0, 5.0, 11.5, 15.0, 20.0]
    header, floats = chart_of(series(times, [1, 2, 3, 4, 5]))
    assert header["runs"][0]["timed"]
    assert floats[0] == pytest.approx([1, 2, 3, 4, 5, *times])
    header, floats = chart_of(series([3.0], [7.0]))
    assert (header["runs"][0]["size"], floats[0]) == (1, pytest.approx([7.0]))


def test_a_long_run_keeps_the_extremes_of_each_span_and_its_means() -> None:
    times, values = np.arange(100_000.0), np.sin(np.arange(100_000.0))
    values[[40_000, 70_001]] = 99.0, -99.0
    values[50_000:51_000] = np.nan
    header, floats = chart_of(series(times, values))
    run = header["runs"][0]
    shown, elapsed, means = np.split(floats[0], [run["size"], 2 * run["size"]])
    assert run["size"] <= MOST_SAMPLES
    assert (run["thinned"], elapsed[shown == 99.0].tolist()) == (pytest.approx(40.0, rel=0.001), [40_000.0])
    assert elapsed[shown == -99.0].tolist() == [70_001.0]
    assert np.isnan(shown[(elapsed > 50_040) & (elapsed < 50_960)]).all()
    assert means == pytest.approx(pd.Series(values).groupby(times // 60).mean(), abs=1e-4, nan_ok=True)
    assert header["runs"][1]["thinned"]
