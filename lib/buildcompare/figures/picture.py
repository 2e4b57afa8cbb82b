"""A picture of a metric over releases, written as lines of text: it stands where no chart can be drawn."""

import html
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from buildcompare.history.releases import LevelSeries
from buildcompare.results.codes import SIDES
from buildcompare.text.numbers import unit_scale
from buildcompare.text.sentences import say

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 60, 712, 40, 212  # of the axes
NAMES = 8  # of releases below the axis
_LOOK = {"base": "stroke: var(--base, #0072b2)", "new": "stroke: var(--new, #d55e00); stroke-dasharray: 5 1.5"}
_INK, _GRID = "fill: var(--ink, #1b1b1a)", "stroke: var(--grid, #dddddc)"


def over_releases(series: LevelSeries, names: Sequence[str], changes: Mapping[int, str]) -> str:
    """The levels of both builds as SVG in the colours of its page; `changes`: what is written at which place."""
    top = float(np.nanmax(series.levels)) * 1.06
    factor, unit = unit_scale(top, series.unit)

    def across(place: float) -> float:
        return LEFT + (place + 0.5) / len(names) * (RIGHT - LEFT)

    def up(value: float) -> float:
        return BOTTOM - value / top * (BOTTOM - TOP)

    parts = [_text(4, 14, say("figures", "releases_title", series), "font-weight: 600")]
    for value in _ticks(top * factor):
        at = up(value / factor)
        parts += [_line(LEFT, at, RIGHT, at, _GRID), _text(LEFT - 6, at + 4, f"{value:,g}", "text-anchor: end")]
    parts.append(_text(LEFT - 6, TOP - 8, unit, "text-anchor: end"))
    for place in range(0, len(names), math.ceil(len(names) / NAMES)):
        parts.append(_text(across(place), BOTTOM + 16, names[place][:14], "text-anchor: middle"))
    for i, (place, text) in enumerate(sorted(changes.items())):
        at = across(place - 0.5)
        parts += [_line(at, TOP, at, BOTTOM, f"{_GRID}; stroke-dasharray: 6 3")]
        parts.append(_text(at + 3, TOP + 10 + 12 * (i % 3), text))
    for number, side in enumerate(SIDES):
        known = np.flatnonzero(~np.isnan(series.levels[:, number]))
        points = " ".join(f"{across(i):.1f},{up(series.levels[i, number]):.1f}" for i in known.tolist())
        parts.append(f'<polyline points="{points}" style="fill: none; {_LOOK[side]}"/>')
        parts.append(_line(LEFT + 70 * number, 26, LEFT + 70 * number + 24, 26, _LOOK[side]))
        parts.append(_text(LEFT + 70 * number + 28, 30, side))
    alt = html.escape(say("figures", "releases_alt", series, names))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}" font-size="11">{"".join(parts)}</svg>'


def _ticks(top: float) -> Iterator[float]:
    """Round numbers from zero to `top`, four or so."""
    power = 10.0 ** math.floor(math.log10(top / 4.0))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= top / 4.0 * 0.999)
    return (step * i for i in range(int(top / step) + 1))


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="{style}"/>'


def _text(x: float, y: float, said: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{_INK}; {style}">{html.escape(said)}</text>'
