"""Write figures of the page as SVG text, in the page's colours.

This module replaces matplotlib, which takes 36 times as long for forty small figures. SVG from matplotlib also cannot
follow the page's theme. Notebooks and widgets draw with seaborn (`figures.axes`).
"""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from buildcompare.config.outside import xml_text
from buildcompare.figures import theme
from buildcompare.results.codes import Side

_DRAWN = ("ink", "paper", "grid", "shade", "base", "new", "bumps", "ramp", "bend", "waves", "plateau", "shutdown")
_LIGHT = dict(re.findall(r"--(\w+): (#\w{6})", theme().partition("@media")[0]))
THEME = {name: _LIGHT[name] for name in _DRAWN}
"""Colours of the page's light theme by CSS variable, for an SVG outside a page. The builds are blue and vermillion
(Okabe & Ito 2008), which are distinct for every kind of colour vision and in grey."""
DASHES: dict[str, tuple[float, ...]] = {"base": (), "new": (4.0, 1.2)}
WIDTHS = {"base": 1.3, "new": 1.1}
SMALL = (5.4, 3.1)  # Size of most figures, in inches
LEAST_POINTS = 6.5  # Minimum font size of a title; titles too long even for this size are cut in the middle
FONT = "'DejaVu Sans',Verdana,sans-serif"
TITLE, TEXT, SIDE_TEXT, NOTE = 9.0, 8.0, 7.5, 7.0
"""Font sizes in points: of titles, of axis labels and x ticks, of legends and y ticks, and of notes."""
LEFT = 0.68 * 72
"""Usual left margin, in points."""
_LEGEND_ROW = 11.0  # Height of a row of the legend, in points
_EM = (
    (0.5, "fijlrtIJ .,:;|'!()[]-/\u2009"),
    (1.11, "mwMW@%\u2192\u2014\u2026"),
    (0.87, "ABCDGHKNOQRUVXYZ&\u2212+=<>~#^"),
)
"""Upper bounds of the widths of letters in DejaVu Sans Bold, in ems; 0.76 for all others."""
_WIDE, _BOLD = {letter: width for width, letters in _EM for letter in letters}, 0.76
_PLAIN = 0.97  # Width of regular letters as a share of bold ones
_LEADING_ZERO = re.compile(r"\b0(?=\.)")
Anchor = Literal["start", "middle", "end"]
Ticks: TypeAlias = Sequence[tuple[float, str]]
"""Values on an axis and their texts; a text may have several lines."""


def width_of(text: str, points: float, *, bold: bool = False) -> float:
    """Return an upper bound of the width of `text`, in points, from the letter widths in `_EM`."""
    em = sum(1.2 if ord(letter) > 0x2E7F else _WIDE.get(letter, _BOLD) for letter in text)
    return points * em * (1.0 if bold else _PLAIN)


def fitted(title: str, room: float) -> tuple[list[str], float]:
    """Fit a title into `room` points; return its lines and font size. Lines that are too long are cut in the middle."""
    lines = title.split("\n")
    points = TITLE * min(1.0, room / max(1.0, *(width_of(line, TITLE, bold=True) for line in lines)))
    if points >= LEAST_POINTS:
        return lines, points
    return [_cut(line, room) for line in lines], LEAST_POINTS


def _cut(line: str, room: float) -> str:
    kept, cut = len(line), line
    while kept > 10 and width_of(cut, LEAST_POINTS, bold=True) > room:
        kept = min(kept - 1, int(kept * 0.95))
        cut = f"{line[: kept // 2]} … {line[kept // 2 - kept :]}"
    return cut


def ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Choose round values from `low` to `high`, at most `most` + 1, with their texts."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
    places = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) + (round(step / power, 3) == 2.5)
    return [(value, f"{value:,.{decimals if step < 10 else 0}f}") for value in (places * step).tolist()]


class Plot:
    """Axes under a title: shaded bands at the back, then grid lines, then curves and text.

    `size`, and the extra space `below` and `above` the axes, are in inches; `x` and `y` are the first and last value of
    each axis. Ticks are round numbers by default.
    """

    def __init__(
        self,
        size: tuple[float, float],
        title: str,
        *,
        x: tuple[float, float],
        y: tuple[float, float],
        xlabel: str = "elapsed time, minutes",
        ylabel: str = "",
        below: float = 0.0,
        above: float = 0.0,
        xticks: Ticks | None = None,
        yticks: Ticks | None = None,
        legend_rows: int = 1,
    ) -> None:
        self.width, self.height = size[0] * 72, size[1] * 72
        names = [] if yticks is None else [line for _, text in yticks for line in text.split("\n")]
        self.left = max([LEFT, *(8 + width_of(name, SIDE_TEXT) for name in names)])
        self.right = self.width - 0.08 * 72
        legend = _LEGEND_ROW * (legend_rows - 1)
        self.top, self.bottom = (0.52 + above) * 72 + legend, self.height - (0.45 + below) * 72
        self.x, self.y = x, y
        self._bands: list[str] = []
        self._back: list[str] = []
        self._front: list[str] = []
        lines, points = fitted(title, 0.97 * (self.width - LEFT))
        for i, line in enumerate(reversed(lines)):
            self.text(LEFT, self.top - legend - 19.5 - 1.25 * points * i, line, points=points, bold=True)
        self._axes(xlabel, ylabel, xticks, yticks)

    def _axes(self, xlabel: str, ylabel: str, xticks: Ticks | None, yticks: Ticks | None) -> None:
        marks = ticks(*self.x, 9 if self.width < 500 else 14) if xticks is None else xticks
        places = [float(self.across(value)) for value, _ in marks]
        for at, (_, text) in zip(places, marks, strict=True):
            self.text(at, self.bottom + 11.5, text, anchor="middle")
        self._grid([[(at, self.top), (at, self.bottom)] for at in places])
        marks = ticks(*self.y, 7) if yticks is None else yticks
        places = [float(self.down(value)) for value, _ in marks]
        for at, (_, text) in zip(places, marks, strict=True):
            lines = text.split("\n")
            for i, line in enumerate(lines):
                below = 2.7 + SIDE_TEXT * (i - (len(lines) - 1) / 2)
                self.text(self.left - 4, at + below, line, anchor="end", points=SIDE_TEXT)
        self._grid([[(self.left, at), (self.right, at)] for at in places])
        across = min((self.left + self.right) / 2, self.width - width_of(xlabel, TEXT) / 2)
        self.text(across, self.bottom + 24, xlabel, anchor="middle")
        middle = (self.top + self.bottom) / 2
        self.text(9, middle, ylabel, anchor="middle", more=f' transform="rotate(-90 9 {middle:.1f})"')
        corners = (self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)
        self._front.append(_path(_through(corners), _stroke("ink", 0.9)))

    def _grid(self, lines: Sequence[list[tuple[float, float]]]) -> None:
        """Add parallel lines as one path."""
        d = "".join(_through(line[:: -1 if i % 2 else 1]) for i, line in enumerate(lines))
        self._back.append(_path(d, _stroke("grid", 0.8)))

    def across(self, x: ArrayLike) -> Any:
        """Convert values of x to points from the left."""
        share = (np.asarray(x, dtype=np.float64) - self.x[0]) / (self.x[1] - self.x[0])
        return self.left + share * (self.right - self.left)

    def down(self, y: ArrayLike) -> Any:
        """Convert values of y to points from the top; values outside the axes are clipped just beyond the edge."""
        share = (np.asarray(y, dtype=np.float64) - self.y[0]) / (self.y[1] - self.y[0])
        return self.bottom - np.clip(share, -0.01, 1.03) * (self.bottom - self.top)

    def curve(
        self, parts: Iterable[tuple[ArrayLike, ArrayLike]], colour: str, *, width: float | None = None,
        dashes: Sequence[float] | None = None, opacity: float = 1.0,
    ) -> None:  # fmt: skip
        """Draw a line through the points (x, y) of each part; the colour sets the default `width` and `dashes`."""
        width = WIDTHS.get(colour, 1.2) if width is None else width
        dashes = DASHES.get(colour, ()) if dashes is None else dashes
        d = "".join(_through(np.column_stack([self.across(x), self.down(y)])) for x, y in parts)
        self._front.append(_path(d, _stroke(colour, width, dashes, opacity) + ";stroke-linejoin:round"))

    def area(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str, opacity: float) -> None:
        """Fill the area between two curves."""
        there = np.column_stack([self.across(x), self.down(high)])
        back = np.column_stack([self.across(x), self.down(low)])[::-1]
        self._front.append(_path(_through(np.concatenate([there, back])) + "Z", _fill(colour, opacity)))

    def cloud(self, x: ArrayLike, y: ArrayLike, side: Side, width: float, opacity: float) -> None:
        """Draw many small dots of a build; those above the axes are left out."""
        inside = np.asarray(y) <= self.y[1]
        places = np.column_stack([self.across(x)[inside], self.down(y)[inside]])
        d = "".join(f"M{_tenths(a)} {_tenths(b)}l.1 0" for a, b in np.rint(10 * places).astype(int).tolist())
        self._front.append(_path(d, _stroke(side, width, opacity=opacity) + ";stroke-linecap:round"))

    def dots(self, x: ArrayLike, y: ArrayLike, radius: float, style: str) -> None:
        """Draw a dot with the CSS `style` at each point; those above the axes are left out."""
        inside = np.asarray(y) <= self.y[1]
        places = zip(self.across(x)[inside], self.down(y)[inside], strict=True)
        self._front += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" style="{style}"/>' for a, b in places]

    def band(self, start: float, end: float, colour: str, opacity: float = 1.0) -> None:
        """Shade a range of x, behind the curves."""
        a, b = self.across((start, end)).clip(self.left, self.right)
        self.rectangle(a, self.top, b - a, self.bottom - self.top, colour, opacity, into=self._bands)

    def rule(self, x: float, colour: str, width: float, dashes: Sequence[float] = ()) -> None:
        """Draw a vertical line at one x."""
        at = float(self.across(x))
        self.segment((at, self.top), (at, self.bottom), colour, width, dashes=dashes, back=True)

    def rectangle(
        self, left: float, top: float, width: float, height: float, colour: str, opacity: float = 1.0,
        *, into: list[str] | None = None,
    ) -> None:  # fmt: skip
        """Draw a filled rectangle."""
        box = f'x="{left:.1f}" y="{top:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
        (self._front if into is None else into).append(f'<rect {box} style="{_fill(colour, opacity)}"/>')

    def segment(
        self, start: Sequence[float], end: Sequence[float], colour: str, width: float,
        *, dashes: Sequence[float] = (), back: bool = False,
    ) -> None:  # fmt: skip
        """Draw a straight line."""
        (self._back if back else self._front).append(_path(_through((start, end)), _stroke(colour, width, dashes)))

    def text(
        self, x: float, y: float, words: str, *, points: float = TEXT, anchor: Anchor = "start", colour: str = "ink",
        opacity: float = 1.0, bold: bool = False, more: str = "",
    ) -> None:  # fmt: skip
        """Write text with its baseline at y."""
        look = [] if (colour, opacity) == ("ink", 1.0) else [_fill(colour, opacity)]
        look += [] if points == TEXT else [f"font-size:{points:.4g}px"]
        look += ["font-weight:bold"] if bold else []
        look += [] if anchor == "start" else [f"text-anchor:{anchor}"]
        style = f' style="{";".join(look)}"' if look else ""
        self._front.append(f'<text x="{x:.1f}" y="{y:.1f}"{style}{more}>{_words(words)}</text>')

    def legend(self, labels: Mapping[Side, str]) -> None:
        """Draw a legend of the builds between the title and the axes."""
        at = self.left + 2
        for side, label in labels.items():
            at = self.legend_entry(at, 0, label, side, WIDTHS[side], DASHES[side])

    def legend_entry(
        self, at: float, row: int, label: str, colour: str, width: float, dashes: Sequence[float] = ()
    ) -> float:
        """Draw one entry in a row of the legend (row 0 is next to the axes); return the place of the next entry."""
        y = self.top - 7 - _LEGEND_ROW * row
        self.segment((at, y - 2.6), (at + 20, y - 2.6), colour, width, dashes=dashes)
        self.text(at + 26, y, label, points=SIDE_TEXT)
        return at + 40 + width_of(label, SIDE_TEXT)

    def svg(self, alt: str) -> str:
        """Return the figure as an SVG element; `alt` describes it in words."""
        size = f"0 0 {self.width:.6g} {self.height:.6g}"
        about = f'xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" aria-label="{_words(alt)}"'
        parts = "".join([*self._bands, *self._back, *self._front])
        return f'<svg {about} style="font:{TEXT:g}px {FONT};{_fill("ink")}">{parts}</svg>'


def _words(text: str) -> str:
    return html.escape(xml_text(text), quote=True)


def _through(points: Any) -> str:
    """Write SVG path data through points, rounded to tenths; coordinates are relative, because this text is shorter."""
    tenths = np.rint(10 * np.asarray(points, dtype=np.float64)).astype(int).reshape(-1, 2)
    steps = (part.ravel().tolist() for part in (tenths[:1], tenths[1:] - tenths[:-1]))
    start, after = (" ".join(map(_tenths, each)).replace(" -", "-") for each in steps)
    return f"M{start}" + (f"l{after}" if after else "")


@lru_cache(8192)
def _tenths(number: int) -> str:
    """Write `number` / 10 as the shortest text; cached because most steps of curves repeat."""
    return _LEADING_ZERO.sub("", f"{number / 10:g}")


def _path(d: str, style: str) -> str:
    return f'<path d="{d}" style="{style}"/>'


def _colour(name: str) -> str:
    return f"var(--{name},{THEME[name]})" if name in THEME else name


def _fill(colour: str, opacity: float = 1.0) -> str:
    return f"fill:{_colour(colour)}" + ("" if opacity == 1.0 else f";fill-opacity:{opacity:g}")


def _stroke(colour: str, width: float, dashes: Sequence[float] = (), opacity: float = 1.0) -> str:
    style = f"fill:none;stroke:{_colour(colour)};stroke-width:{width:g}"
    style += f";stroke-dasharray:{','.join(f'{width * each:g}' for each in dashes)}" if len(dashes) else ""
    return style + ("" if opacity == 1.0 else f";stroke-opacity:{opacity:g}")


def dot_style(side: Side, *, hollow: bool = False) -> str:
    """Return the CSS of a build's dot, with a rim to separate it from its curve; a `hollow` dot is only a rim."""
    rim, fill = (side, "paper") if hollow else ("paper", side)
    return f"{_stroke(rim, 1.0)};{_fill(fill)}"
