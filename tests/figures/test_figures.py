"""Figures show every sample that counts, follow the page's theme, and say in words what they show."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, cast

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text

from buildcompare.comparison.analysis import TestView
from buildcompare.config.catalogue import read_catalogue
from buildcompare.figures import base as figures
from buildcompare.figures.base import DARK, SHADES, metric_at_load
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.recordings.recording import Recording, Series
from buildcompare.results import LoadAdjustedResult, MetricResult, TestResult
from buildcompare.results.codes import Pair

STEP = 5.0


def view(**curves: list[np.ndarray]) -> TestView:
    """A test whose builds' runs recorded these values of one metric, every five seconds."""
    recordings = {
        side: [
            Recording((Series("rps", "RPS", "", STEP * np.arange(run.size), run),), (0.0, STEP * run.size), True)
            for run in runs
        ]
        for side, runs in curves.items()
    }
    return TestView(
        cast(Any, TestResult).model_construct(), recordings, read_catalogue("mattermost"), Pair("v1", "v2"), {}
    )


def test_the_long_frame_holds_every_run_and_no_spike_is_lost() -> None:
    long_run = np.sin(np.arange(2000.0))
    long_run[[700, 1300]] = 99.0, -99.0
    frame = figures.long_frame(view(base=[np.ones(10), np.ones(20)], new=[long_run]), "rps")
    assert list(frame.columns) == ["elapsed_min", "value", "stretch", "build", "run"]
    sizes = frame.groupby(["build", "run"]).size()
    assert sizes.to_dict() == {("base", 1): 10, ("base", 2): 20, ("new", 1): figures.POINTS_PER_CURVE}
    extremes = frame.set_index("value")["elapsed_min"]
    assert extremes[99.0] == pytest.approx(700 * STEP / 60)
    assert extremes[-99.0] == pytest.approx(1300 * STEP / 60)
    assert frame.groupby(["build", "run"])["elapsed_min"].is_monotonic_increasing.all()


@pytest.mark.parametrize("missing", [np.nan, np.inf])
@pytest.mark.parametrize("size", [30, 3000])
def test_a_line_ends_where_samples_are_missing(missing: float, size: int) -> None:
    values = np.ones(size)
    values[10:12] = missing
    frame = figures.long_frame(view(base=[values], new=[np.ones(5)]), "rps")
    base = frame[frame["build"] == "base"]
    assert np.isfinite(base["value"]).all()
    edge = 10.5 * STEP / 60
    assert set(base.loc[base["elapsed_min"] < edge, "stretch"]).isdisjoint(
        base.loc[base["elapsed_min"] > edge, "stretch"]
    )
    assert base["stretch"].nunique() == 2
    assert set(base["stretch"]).isdisjoint(frame.loc[frame["build"] == "new", "stretch"])


def test_a_build_without_the_metric_is_not_drawn() -> None:
    test = view(base=[np.ones(5)], new=[])
    _, axes = figures.new_figure(figures.SMALL, "title")
    assert figures.draw_curves(axes, test, "rps", None, "") == 1.0
    assert len(axes.lines) == 1
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["v1"]
    assert figures.draw_curves(axes, test, "none", None, "") == 0.0


def test_a_figure_at_equal_load_answers_in_its_title_and_its_alternative_text() -> None:
    users = np.linspace(1300.0, 4000.0, 41)
    curves = {"base": users + 50.0, "new": 1.1 * (users + 50.0)}
    seen = MetricAtLoad(
        at_users=4000.0,
        base=4050.0,
        new=4455.0,
        log_ratio=np.log(1.1),
        se_log=0.01,
        constant=True,
        users=users,
        curves=curves,
        se_curves={side: np.full(41, 0.01) for side in curves},
        log_ratios=np.full(41, np.log(1.1)),
        se_ratios=np.full(41, 0.01),
        points={side: np.column_stack([users, curve]) for side, curve in curves.items()},
    )
    row = LoadAdjustedResult(
        users=4000.0, base=4050.0, new=4455.0, delta_percent=10.0, ci_low=8.0, ci_high=12.0, p_value=None,
        p_adjusted=None, status="regression", at_users_range=(1300.0, 4000.0),
    )  # fmt: skip
    metric = cast(Any, MetricResult).model_construct(
        name="CPU Utilization", unit="percent of one core", load_adjusted=row
    )
    figure = metric_at_load("t_at_load_cpu", Pair("v1", "_v2$"), metric, seen)
    for words in (
        "CPU Utilization at 4,000 users",
        "4,050 % \u2192 4,460 %",
        "+10.0 %; +8.0 to +12.0 %",
        "v1 against _v2$",
    ):
        assert words in figure.alt
    assert "from 1,300 to 4,000" in figure.alt
    assert "41 of v1 and 41 of _v2$" in figure.alt
    assert figure.svg.startswith("<svg")
    for words in ("connected users", "percent of one core", "both sustained 4,000", ">_v2$</text>"):
        assert words in figure.svg
    assert figure.png.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "title",
    [
        "Goroutines In Use: 20,000 goroutines \u2192 21,200 goroutines (+6.0 %)",
        "A$$b: 1 \u2192 2",
        "x" * 400 + ": 20,000 \u2192 21,200 (+6.0 %)",
        "W" * 70 + "\n(+3.8 %)",
    ],
)
def test_a_title_fits_its_figure(title: str) -> None:
    with mpl.rc_context(figures.STYLE):
        figure, axes = figures.new_figure(figures.SMALL, title)
        figure.draw_without_rendering()
    (text,) = (each for each in axes.findobj(Text) if each.get_text() == axes.get_title("left"))
    assert text.get_window_extent().x1 <= figure.bbox.x1
    shown = axes.get_title("left")
    assert shown.endswith(title[-8:]), "the numbers stay"
    assert "(+6.0 %)" not in title or "(+6.0 %)" in shown


def test_a_drawing_says_what_it_shows_and_keeps_its_references() -> None:
    svg = (
        '<?xml version="1.0"?><svg width="5pt" viewBox="0 0 5 5"><metadata>x</metadata><defs><clipPath id="c1">'
        '</clipPath></defs><g id="unused" clip-path="url(#c1)"><path d="M 1.23456 2.00001" style="stroke: #0072b2"/>'
        "</g></svg>"
    )
    made = figures.compact(svg, 'a "b" <c>')
    assert 'role="img" aria-label="a &quot;b&quot; &lt;c&gt;"' in made
    assert 'd="M 1.2 2"' in made
    assert "var(--base, #0072b2)" in made
    assert "metadata" not in made
    assert "unused" not in made
    (reference,) = re.findall(r"url\(#([^)]+)\)", made)
    assert f'id="{reference}"' in made


def _luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_phases_of_a_run_follow_the_page_and_their_names_can_be_read() -> None:
    css = (files("buildcompare.figures") / "theme.css").read_text("utf-8")
    themes = [dict(re.findall(r"(--\w+): (#\w{6})", theme)) for theme in re.findall(r":root \{([^}]*)\}", css)]
    assert len(themes) == 3  # light, dark, printed
    variable = {colour: f"--{name}" for name, colour in figures.THEME.items()}
    assert {name: themes[0][f"--{name}"] for name in figures.THEME} == figures.THEME
    for theme in themes:
        for phase, shade in SHADES.items():
            name = theme["--paper" if phase in DARK else "--ink"]
            light, dark = sorted((_luminance(name), _luminance(theme[variable[shade]])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5
    assert _luminance(themes[1]["--ramp"]) < 0.1 < _luminance(themes[0]["--ramp"])
