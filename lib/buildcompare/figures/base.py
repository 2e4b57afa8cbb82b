"""Draw both builds on the same axes, over elapsed time, over connected users, and over releases; no statistics here."""

import hashlib
import html
import io
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import StrMethodFormatter

from buildcompare.comparison.analysis import TestView
from buildcompare.figures import Figure, theme, unused
from buildcompare.figures.chart import PHASES, WINDOWS, chart
from buildcompare.metrics.equal_load import MetricAtLoad
from buildcompare.results import MetricResult
from buildcompare.results.codes import SIDES, Pair, Side, Status
from buildcompare.results.users import PhaseName, RampUp
from buildcompare.text.numbers import change, shift_words, unit_scale
from buildcompare.text.sentences import say

_DRAWN = ("ink", "paper", "grid", "shade", "base", "new", "bumps", "ramp", "bend", "waves", "plateau", "shutdown")
_LIGHT = dict(re.findall(r"--(\w+): (#\w{6})", theme().partition("@media")[0]))
THEME = {name: _LIGHT[name] for name in _DRAWN}
"""The light values of the page's CSS variables, for an SVG that no page themes; the builds' are the blue and vermillion
of Okabe & Ito (2008), apart for every kind of colour vision and in grey."""
INK, GRID, SHADE, PAPER = (THEME[name] for name in ("ink", "grid", "shade", "paper"))
COLOURS: dict[str, str] = {side: THEME[side] for side in SIDES}
DASHES: dict[str, Any] = {"base": (), "new": (4, 1.2)}
WIDTHS = {"base": 1.3, "new": 1.1}
_INKED = ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "text.color", "xtick.color", "ytick.color")
STYLE: dict[Any, Any] = sns.axes_style("whitegrid") | sns.plotting_context("paper") | dict.fromkeys(_INKED, INK) | {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 8.0, "axes.labelsize": 8.0,
    "xtick.labelsize": 8.0, "ytick.labelsize": 7.5, "axes.titlesize": 9.0, "axes.titleweight": "bold",
    "axes.titlelocation": "left", "grid.color": GRID, "svg.fonttype": "none", "svg.hashsalt": "buildcompare",
    "path.simplify": True, "path.simplify_threshold": 0.3,
}  # fmt: skip
"""What makes a :class:`Figure` does so in this style, from its first line to its file."""
LEGEND: dict[str, Any] = {
    "loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.1, "frameon": False, "fontsize": 7.5,
}  # fmt: skip
"""Between the title and the axes, where no curve is."""
POINTS_PER_CURVE = 280  # More cannot be told apart at the width of a report's figure
SMALL = (5.4, 3.1)  # Inches; forty of one size, so that an odd one stands out
LEAST_POINTS = 6.5  # Smaller titles are not read; longer ones lose their middle: the end holds the numbers
WIDE, BARS = (9.0, 4.4), 0.6
"""Inches: the figure, and what the bars of its phases take."""
SHADES = {phase: THEME[phase.removeprefix("early_")] for phase in get_args(PhaseName)}
"""All follow the page's theme. Names stand on them in INK, on the dark ones in PAPER."""
DARK = ("early_bumps", "shutdown")
NARROW = 0.045  # A phase that takes less of the axis than this has no room for its name
_GEOMETRY = re.compile(r'(\s(?:d|points|transform|x|y|x1|x2|y1|y2|width|height)=")([^"]*)"')


def graphs(test: TestView) -> Iterator[Figure]:
    """One figure per metric, named as performance reports name them: ``mysql_bounded_0_rps``."""
    taken: set[str] = set()
    for metric in test.result.metrics:
        labels = "".join(f"-{value}" for value in metric.labels.values())
        stem = metric.slug + "".join(c if c.isalnum() or c in "._-" else "-" for c in labels)[:80]
        yield graph(test, metric, f"{test.result.name}_0_{unused(stem, taken)}")


@mpl.rc_context(STYLE)
def graph(test: TestView, metric: MetricResult, name: str) -> Figure:
    """Both builds' curves of one metric, in a file of this name."""
    title = say("figures", "metric_title", metric)
    figure, axes = new_figure(SMALL, title)
    top = draw_curves(axes, test, metric.slug, metric.labels, metric.unit)
    steady_windows(axes, test)
    place = axes.get_xaxis_transform()
    for event in test.result.events_of(metric):
        at, colour = event.at_s / 60, COLOURS[event.build]
        axes.axvline(at, color=colour, lw=0.9, ls="--", zorder=1)
        mark = f" {event.kind} {change(event.size_percent)}"
        axes.text(at, 0.03, mark, transform=place, color=colour, fontsize=7, va="bottom")
    scale_axis(axes, top, metric.unit)
    alt = say("figures", "metric_alt", metric, test.result, test.labels)
    shown = chart(test, metric, metric.labels, title=title, alt=alt)
    return finished(figure, name, alt, graph_of=test.result.name, chart=shown)


@mpl.rc_context(STYLE)
def users(test: TestView) -> Figure | None:
    """The curves of connected users with their phases and the shift; None where nobody recorded them."""
    load, labels = test.catalogue.load, test.labels
    metric = next((m for m in test.result.metrics if load and m.slug == load.slug), None)
    if metric is None:
        return None
    title, marks = say("figures", "users_title", test.result, metric, labels), []
    figure, axes = new_figure(WIDE, title, below=BARS)
    draw_curves(axes, test, metric.slug, None, metric.unit)
    steady_windows(axes, test)
    for side in SIDES:
        for run in test.result.runs[side]:
            if test.result.type == "unbounded" and run.window and run.ramp_up.plateau_users is not None:
                level = [(second, run.ramp_up.plateau_users) for second in run.window]
                axes.plot(*_in_minutes(level), color=COLOURS[side], lw=4, alpha=0.35)
                marks.append(_mark(level, side))
        ramp: RampUp = getattr(test.result.ramp_up, side)
        if ramp.wave_onset_s is not None and ramp.wave_onset_users is not None:
            onset = [(ramp.wave_onset_s, ramp.wave_onset_users)]
            axes.plot(*_in_minutes(onset), "o", color=COLOURS[side], ms=5, mec="white", zorder=4)
            marks.append(_mark(onset, side, "waves begin"))
    marks += _shift(axes, test, metric.slug)
    scale_axis(axes, 1.0, "users")
    _phase_bars(axes, test)
    alt = say("figures", "users_alt", test.result, metric, labels)
    shown = chart(test, metric, None, title=title, alt=alt, marks=marks, wide=True)
    return finished(figure, f"{test.result.name}_users", alt, chart=shown)


def _in_minutes(points: list[tuple[float, float]]) -> list[list[float]]:
    return [[second / 60 for second, _ in points], [value for _, value in points]]


def _mark(points: list[tuple[float, float]], side: Side | None, text: str = "") -> dict[str, Any]:
    return {"side": side, "from": points[0], "to": points[-1], "text": text}


def _shift(axes: Axes, test: TestView, slug: str) -> list[dict[str, Any]]:
    """Draw the gap between the builds where their ramps ran side by side."""
    ramp = test.result.ramp_up
    if ramp.shift_users is None or ramp.shift_window is None or ramp.shift_status == Status.INCONCLUSIVE:
        return []
    at, ends = sum(ramp.shift_window) / 2, []
    for recording in (test.recordings[side][0] for side in SIDES):
        if (series := recording.total(slug)) is None:
            return []
        curve = recording.curve(series).astype(np.float64)
        ends.append(float(np.interp(at, curve.index.to_numpy(dtype=np.float64), curve)))
    base, new = ends
    arrow = {"arrowstyle": "<->", "color": INK, "lw": 1.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(at / 60, new), xytext=(at / 60, base), arrowprops=arrow)
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    axes.text(
        at / 60, (base + new) / 2, f" {shift_words(ramp.shift_users)}", va="center", bbox=paper, fontsize=7.5, zorder=5
    )
    return [_mark([(at, base), (at, new)], None, shift_words(ramp.shift_users))]


def _phase_bars(axes: Axes, test: TestView) -> None:
    """Draw a bar for each build under the curves: which phase it was in."""
    bars = axes.inset_axes((0.0, -0.34, 1.0, 0.14), sharex=axes)
    limit = axes.get_xlim()[1]
    for row, side in enumerate(SIDES):
        for phase in test.result.runs[side][0].phases:
            start, width = phase.start_s / 60, (phase.end_s - phase.start_s) / 60
            bars.barh(-row, width, left=start, height=0.82, color=SHADES[phase.name], edgecolor=PAPER, lw=0.6)
            if width >= NARROW * limit:
                name = "" if phase.name == "shutdown" else PHASES.get(phase.name, phase.name)  # dark and narrow
                colour = PAPER if phase.name in DARK else INK
                bars.text(start + width / 2, -row, name, ha="center", va="center", fontsize=6.5, color=colour)
    bars.set_yticks([0, -1], list(SIDES), fontsize=7)
    bars.set(ylim=(-1.5, 0.5), facecolor="none")
    bars.tick_params(length=0, labelbottom=False)
    bars.grid(visible=False)
    bars.spines[:].set_visible(False)
    axes.set_xlim(0.0, limit)
    axes.xaxis.grid(color=GRID)


def at_equal_load(test: TestView) -> Iterator[Figure]:
    """A figure for each metric of `test` that users feel, or that changed at equal load or at the builds' own."""
    for row in test.result.metrics:
        statuses = (row.status, row.load_adjusted.status if row.load_adjusted else None)
        changed = any(status and status.changed for status in statuses)
        if row.slug in test.at_load and not row.labels and (row.gate or changed):
            name = f"{test.result.name}_at_load_{row.slug}"
            yield metric_at_load(name, test.labels, row, test.at_load[row.slug])


@mpl.rc_context(STYLE)
def metric_at_load(name: str, labels: Pair[str], metric: MetricResult, seen: MetricAtLoad) -> Figure:
    """The metric over the users: a dot per minute, each build's curve with its 95 % interval, and where they meet."""
    top = max(float(np.quantile(seen.points[side][:, 1], 0.99)) for side in SIDES)
    factor, unit = unit_scale(top, metric.unit)
    figure, axes = new_figure(SMALL, say("figures", "at_load_title", metric), above=0.14)
    for side in SIDES:
        users, values = seen.points[side].T
        curve, half, colour = seen.curves[side] * factor, 1.96 * seen.se_curves[side], COLOURS[side]
        axes.scatter(users, values * factor, s=5, color=colour, alpha=0.35, lw=0)
        axes.fill_between(seen.users, curve * np.exp(-half), curve * np.exp(half), color=colour, alpha=0.18, lw=0)
        axes.plot(seen.users, curve, color=colour, lw=1.6, dashes=DASHES[side])
    axes.axvline(seen.at_users, color=INK, lw=0.8, ls=":")
    offset: dict[str, Any] = {"xytext": (-3, 0), "textcoords": "offset points", "ha": "right", "fontsize": 7}
    at = f"both sustained {seen.at_users:,.0f}"
    axes.annotate(at, (seen.at_users, 0.02), xycoords=("data", "axes fraction"), **offset)
    highest = 1.1 * factor * max(top, seen.base, seen.new)
    axes.set(xlabel="connected users", ylabel=unit, xlim=(0.0, None), ylim=(0.0, highest))
    axes.xaxis.set_major_formatter(lambda users, _: f"{users:,.0f}")
    legend_above(axes, dict(labels.items()))
    counts = Pair.of(lambda side: len(seen.points[side]))
    return finished(figure, name, say("figures", "at_load_alt", metric, labels, counts))


def long_frame(test: TestView, slug: str, labels: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The drawn samples of each run, without `labels` of the sum of the series; lines end where a ``stretch`` ends."""
    parts = []
    for side in SIDES:
        for run, recording in enumerate(test.recordings[side], start=1):
            series = recording.total(slug) if labels is None else recording.find(slug, labels)
            if series is not None:
                parts.append(_thinned(recording.curve(series)).assign(build=side, run=run))
    if not parts:
        return pd.DataFrame(columns=["elapsed_min", "value", "stretch", "build", "run"])
    long = pd.concat(parts, ignore_index=True)
    return long.assign(stretch=long.groupby(["build", "run", "stretch"]).ngroup())


def _thinned(curve: pd.Series) -> pd.DataFrame:
    """The smallest and the largest value of each of many stretches of equal length, so that no spike is lost."""
    elapsed, values = curve.index.to_numpy(dtype=np.float64), curve.to_numpy(dtype=np.float64)
    steps, finite = np.diff(elapsed), np.isfinite(values)
    missing = np.concatenate([[False], steps > 1.5 * np.median(steps)]) if steps.size else np.zeros(values.size, bool)
    frame = pd.DataFrame({"elapsed_min": elapsed / 60, "value": values, "stretch": np.cumsum(missing | ~finite)})
    shown: pd.DataFrame = frame[finite]
    if len(shown) > POINTS_PER_CURVE:
        chunks = shown["value"].groupby(np.arange(len(shown)) * (POINTS_PER_CURVE // 2) // len(shown))
        shown = shown.loc[np.union1d(chunks.idxmin(), chunks.idxmax())]
    return shown


def draw_curves(axes: Axes, test: TestView, slug: str, labels: Mapping[str, str] | None, unit: str) -> float:
    """Draw every run of both builds, without `labels` the sum of their series; the largest value drawn."""
    long = long_frame(test, slug, labels)
    if long.empty:
        return 0.0
    top = float(long["value"].abs().max())
    factor, _ = unit_scale(top, unit)
    order: dict[str, Any] = {"hue_order": SIDES, "style_order": SIDES, "estimator": None, "sort": False}
    look: dict[str, Any] = {"palette": COLOURS, "dashes": DASHES, "sizes": WIDTHS, "legend": False, "ax": axes}
    by = dict.fromkeys(("hue", "style", "size"), "build")
    data = long.assign(value=long["value"] * factor)
    sns.lineplot(data, x="elapsed_min", y="value", units="stretch", **by, **order, **look)
    legend_above(axes, {side: label for side, label in test.labels.items() if (long["build"] == side).any()})
    return top


def legend_above(axes: Axes, labels: Mapping[Side, str]) -> None:
    """Name the builds."""
    lines = [Line2D([], [], color=COLOURS[s], lw=WIDTHS[s], dashes=DASHES[s]) for s in labels]
    legend = axes.legend(lines, list(labels), ncols=2, handlelength=2.6, **LEGEND)
    for text, label in zip(legend.get_texts(), labels.values(), strict=True):
        text.set(text=label, parse_math=False)  # here, as a legend leaves out labels that start with an underscore


def steady_windows(axes: Axes, test: TestView) -> None:
    """Shade the steady windows and the shutdowns of both builds."""
    middle = None
    for side, run in ((build, run) for build in SIDES for run in test.result.runs[build][:1]):
        if run.window:
            middle = sum(run.window) / 120
            axes.axvspan(run.window[0] / 60, run.window[1] / 60, color=SHADE, alpha=0.55, lw=0, zorder=0)
            axes.axvline(run.window[0] / 60, color=COLOURS[side], lw=0.7, ls=":", zorder=1)
        for phase in run.phases:
            if phase.name == "shutdown":
                axes.axvspan(phase.start_s / 60, phase.end_s / 60, color=GRID, lw=0, zorder=0)
    if middle is not None:
        place = axes.get_xaxis_transform()
        axes.text(
            middle, 0.99, WINDOWS[test.result.type], transform=place, ha="center", va="top", fontsize=7, alpha=0.7
        )


def new_figure(size: tuple[float, float], title: str, *, below: float = 0, above: float = 0) -> tuple[Drawing, Axes]:
    """An empty figure of `size` inches; all of one size have the same margins, so that axes stand under each other."""
    (width, height), left, right, top, bottom = size, 0.68, 0.08, 0.52 + above, 0.45 + below
    figure = Drawing(figsize=size)
    FigureCanvasAgg(figure)  # it measures the title
    axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (top + bottom) / height))
    axes.set_xlabel("elapsed time, minutes")
    sns.despine(ax=axes)
    # The title shrinks until no line is too wide; where that would be too small, its lines are cut.
    drawn = axes.set_title(title, y=1.0, pad=17, parse_math=False)
    part = 0.97 * figure.dpi * (width - left) / drawn.get_window_extent().width
    points = float(drawn.get_fontsize()) * min(1.0, part)
    if points < LEAST_POINTS:
        lines = title.split("\n")
        keep = max(int(max(map(len, lines)) * points / LEAST_POINTS) - 2, 10)
        cut = (f"{each[: keep // 2]} … {each[keep // 2 - keep :]}" if len(each) > keep else each for each in lines)
        drawn.set_text("\n".join(cut))
    drawn.set_fontsize(max(points, LEAST_POINTS))
    return figure, axes


def scale_axis(axes: Axes, top: float, unit: str) -> None:
    """Name the unit that values up to `top` are read in, and start at zero."""
    axes.set_ylabel(unit_scale(top, unit)[1])
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]) if axes.dataLim.ymin < 0 else 0.0)
    axes.set_xlim(left=0.0)


def finished(
    figure: Drawing, name: str, alt: str, graph_of: str | None = None, chart: dict[str, str] | None = None
) -> Figure:
    """The figure as pictures, with its chart where it has one."""
    vector, pixels = io.StringIO(), io.BytesIO()
    figure.savefig(vector, format="svg", metadata={"Date": None, "Creator": None})
    figure.savefig(pixels, format="png", dpi=120, metadata={"Software": None})
    return Figure(name, alt, compact(vector.getvalue(), alt), pixels.getvalue(), graph_of, chart)


def compact(svg: str, alt: str) -> str:
    """One of matplotlib's SVG documents for standing inside an HTML page: small, themed, named by `alt`."""

    def rounded(match: re.Match[str]) -> str:
        return match[1] + re.sub(r"-?\d+\.\d{2,}", lambda m: f"{round(float(m[0]), 1) + 0.0:g}", match[2]) + '"'

    body = re.sub(r"(?s)^.*?(?=<svg)|<metadata>.*?</metadata>|<!--.*?-->", "", svg)
    body = _GEOMETRY.sub(rounded, body)
    body = re.sub(r"> +<", "><", re.sub(r"\s*\n\s*", " ", body)).replace("xlink:href", "href")
    for name, colour in THEME.items():
        body = re.sub(rf": ({colour})\b", rf": var(--{name}, \1)", body)
    used = {name for pair in re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', body) for name in pair}
    own = "f" + hashlib.sha256(body.encode()).hexdigest()[:8]  # many figures share a page
    body = re.sub(r' id="([^"]+)"', lambda match: f' id="{own}{match[1]}"' if match[1] in used else "", body)
    body = re.sub(r'(url\(#|href="#)', lambda match: match[1] + own, body)
    tag, rest = body.split(">", 1)
    tag = re.sub(r'\s(width|height|version|xmlns:xlink)="[^"]*"', "", tag)
    return f'{tag} role="img" aria-label="{html.escape(alt, quote=True)}">{rest}'


# ---- All releases ---------------------------------------------------------------------------------------------------

APART = {"base": -0.16, "new": 0.16}
"""How far base and new stand from the place of their comparison, in places of the axis."""
MARKERS = {"base": "o", "new": "s"}
_WIDTH_OF_ONE, _LEAST, _MOST = 0.25, 9.0, 30.0
_PER_NAME = 0.18  # Inches along the axis; where there is less, only every second name is written, or every third
_HEIGHT = 3.8
_HEADROOM = 1.16  # Above the highest level, for the sizes of jumps


@mpl.rc_context(STYLE)
def levels(table: pd.DataFrame, db_engine: str) -> Figure:
    """Draw one database's chain: `table` as :meth:`HistoryView.levels` makes it, at least one row."""
    order, names = pd.factorize(table["comparison"])
    table = table.assign(order=order, place=order + table["side"].map(APART))
    width = min(max(_LEAST, 1.5 + _WIDTH_OF_ONE * len(names)), _MOST)
    drawing = Drawing(figsize=(width, _HEIGHT), layout="constrained")
    axes = drawing.add_subplot()
    axes.set_title(say("figures", "levels_title", table.to_dict("records"), db_engine), pad=17, parse_math=False)
    # A line from each new build to the same version as a later base.
    before = table.loc[table["side"] == "new", ["comparison", "place", "users"]]
    links = table.merge(before, left_on="against", right_on="comparison", suffixes=("", "_before"))
    if not links.empty:
        x, y = (links.assign(gap=np.nan)[[f"{name}_before", name, "gap"]].to_numpy() for name in ("place", "users"))
        axes.plot(x.ravel(), y.ravel(), color=INK, lw=0.9, ls=":", label="same version, measured again", zorder=2)
    for side, rows in table.groupby("side"):
        errors = [rows["users"] - rows["low"], rows["high"] - rows["users"]]
        look: dict[str, Any] = {"fmt": MARKERS[str(side)], "ms": 4.0, "mec": "none", "color": COLOURS[str(side)]}
        look |= {"elinewidth": 1.1, "capthick": 1.1, "capsize": 2, "label": f"{side}, with 95 % interval", "zorder": 3}
        axes.errorbar(rows["place"], rows["users"], yerr=errors, **look)
    across = axes.get_xaxis_transform()
    # Jumps with their size, and comparisons before which the setup changed.
    jumps = table[table["jump"]]
    for i, (place, size) in enumerate(zip(jumps["order"] - 0.5, jumps["drift_percent"], strict=True)):
        axes.axvline(place, color=GRID, lw=5, zorder=0)
        axes.text(place, 0.985 - 0.055 * (i % 2), change(size), transform=across, ha="center", va="top", fontsize=7)
    changed = table.loc[table["side"].eq("base") & table["setup_changed"].astype(bool), "order"]
    if not changed.empty:
        low = np.full(len(changed), 0.02)
        axes.plot(changed, low, "^", color=INK, ms=3.5, transform=across, label="setup changed before it", ls="none")
    every = math.ceil(len(names) * _PER_NAME / (width - 1.0))
    look = {"rotation": 60, "ha": "right", "rotation_mode": "anchor", "parse_math": False}
    axes.set_xticks(range(0, len(names), every), names[::every], **look)
    axes.set(xlim=(-0.6, len(names) - 0.4), ylim=(0, _HEADROOM * table["high"].max()), ylabel="supported users")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(visible=False, axis="x")
    axes.legend(ncols=4, **LEGEND)
    sns.despine(ax=axes)
    alt = say("figures", "levels_alt", table.to_dict("records"), db_engine)
    return finished(drawing, f"history_{db_engine or 'users'}", alt)
