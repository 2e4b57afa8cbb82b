"""Write pictures of curves as SVG text, in the page's colours; forty of them take a tenth of a second."""

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from buildcompare.figures import theme
from buildcompare.results.codes import Side

_DRAWN = ("ink", "paper", "grid", "shade", "base", "new", "bumps", "ramp", "bend", "waves", "plateau", "shutdown")
_LIGHT = dict(re.findall(r"--(\w+): (#\w{6})", theme().partition("@media")[0]))
THEME = {name: _LIGHT[name] for name in _DRAWN}
"""The light values of the page's CSS variables, for an SVG that no page themes; the builds' are the blue and vermillion
of Okabe & Ito (2008), apart for every kind of colour vision and in grey."""
DASHES: dict[str, Any] = {"base": (), "new": (4, 1.2)}
WIDTHS = {"base": 1.3, "new": 1.1}
SMALL = (5.4, 3.1)  # Inches; forty of one size, so that an odd one stands out
LEAST_POINTS = 6.5  # Smaller titles are not read; longer ones lose their middle: the end holds the numbers
FONT = "'DejaVu Sans',Verdana,sans-serif"
TITLE, TEXT, SIDE_TEXT, NOTE = 9.0, 8.0, 7.5, 7.0
"""Points of the letters of titles, axes, legends and notes."""
_EM = (
    (0.5, "fijlrtIJ .,:;|'!()[]-/\u2009"),
    (1.11, "mwMW@%\u2192\u2014\u2026"),
    (0.87, "ABCDGHKNOQRUVXYZ&\u2212+=<>~#^"),
)
"""How wide letters of DejaVu Sans Bold are at most, in parts of their height; the others 0.76."""
_WIDE, _BOLD = {letter: width for width, letters in _EM for letter in letters}, 0.76
_PLAIN = 0.97  # letters that are not bold are narrower
_LEADING_ZERO = re.compile(r"\b0(?=\.)")
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Anchor = Literal["start", "middle", "end"]


def width_of(text: str, points: float, *, bold: bool = False) -> float:
    """The width in points that `text` takes at most: estimated by its letters, as measuring it takes longer."""
    em = sum(1.2 if ord(letter) > 0x2E7F else _WIDE.get(letter, _BOLD) for letter in text)
    return points * em * (1.0 if bold else _PLAIN)


def fitted(title: str, room: float) -> tuple[list[str], float]:
    """The lines of a title and their size, small enough for `room` points, or else cut in their middle."""
    lines = title.split("\n")
    points = TITLE * min(1.0, room / max(1.0, *(width_of(line, TITLE, bold=True) for line in lines)))
    if points >= LEAST_POINTS:
        return lines, points
    return [_cut(line, room) for line in lines], LEAST_POINTS


def _cut(line: str, room: float) -> str:
    kept = len(line)
    while kept > 10 and width_of(_without_middle(line, kept), LEAST_POINTS, bold=True) > room:
        kept = min(kept - 1, int(kept * 0.95))
    return _without_middle(line, kept)


def _without_middle(line: str, kept: int) -> str:
    return line if kept >= len(line) else f"{line[: kept // 2]} … {line[kept // 2 - kept :]}"


def ticks(low: float, high: float, most: int) -> tuple[np.ndarray, int]:
    """At most `most` round values from `low` to `high`, and how many decimals they need."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
    places = np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) + (round(step / power, 3) == 2.5)
    return places * step, decimals if step < 10 else 0


class Plot:
    """Axes under a title, filled from the back to the front; lengths in points, from the picture's upper left."""

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
    ) -> None:
        self.width, self.height = size[0] * 72, size[1] * 72
        self.left, self.right = 0.68 * 72, self.width - 0.08 * 72
        self.top, self.bottom = (0.52 + above) * 72, self.height - (0.45 + below) * 72
        self.x, self.y = x, y
        self._bands: list[str] = []
        self._back: list[str] = []
        self._front: list[str] = []
        room = self.width - self.left
        lines, points = fitted(title, 0.97 * room)
        for i, line in enumerate(reversed(lines)):
            self.text(self.left, self.top - 19.5 - 1.25 * points * i, line, points=points, bold=True)
        self._axes(xlabel, ylabel)

    def _axes(self, xlabel: str, ylabel: str) -> None:
        values, decimals = ticks(*self.x, 9 if self.width < 500 else 14)
        for value, at in zip(values, self.across(values), strict=True):
            self.text(at, self.bottom + 11.5, f"{value:,.{decimals}f}", anchor="middle")
        self._grid([[(at, self.top), (at, self.bottom)] for at in self.across(values)])
        values, decimals = ticks(*self.y, 7)
        for value, at in zip(values, self.down(values), strict=True):
            self.text(self.left - 4, at + 2.7, f"{value:,.{decimals}f}", anchor="end", points=SIDE_TEXT)
        self._grid([[(self.left, at), (self.right, at)] for at in self.down(values)])
        middle = (self.top + self.bottom) / 2
        self.text((self.left + self.right) / 2, self.bottom + 24, xlabel, anchor="middle")
        self.text(9, middle, ylabel, anchor="middle", more=f' transform="rotate(-90 9 {middle:.1f})"')
        corners = (self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)
        self._front.append(_path(_through(corners), _stroke("ink", 0.9)))

    def _grid(self, lines: Sequence[list[tuple[float, float]]]) -> None:
        """One path of parallel lines, to and fro: what draws PNGs puts paths onto pixels that never run aslant."""
        d = "".join(_through(line[:: -1 if i % 2 else 1]) for i, line in enumerate(lines))
        self._back.append(_path(d, _stroke("grid", 0.8)))

    def across(self, x: ArrayLike) -> Any:
        """Where values of x stand."""
        share = (np.asarray(x, dtype=np.float64) - self.x[0]) / (self.x[1] - self.x[0])
        return self.left + share * (self.right - self.left)

    def down(self, y: ArrayLike) -> Any:
        """Where values of y stand; what is outside of the axes, at their edge."""
        share = (np.asarray(y, dtype=np.float64) - self.y[0]) / (self.y[1] - self.y[0])
        return self.bottom - np.clip(share, -0.01, 1.03) * (self.bottom - self.top)

    def curve(self, parts: Iterable[tuple[ArrayLike, ArrayLike]], side: Side, **look: Any) -> None:
        """Lines of a build through the points (x, y) of each part."""
        look = {"width": WIDTHS[side], "dashes": DASHES[side], **look}
        d = "".join(_through(np.column_stack([self.across(x), self.down(y)])) for x, y in parts)
        self._front.append(_path(d, _stroke(side, **look) + ";stroke-linejoin:round"))

    def area(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str, opacity: float) -> None:
        """What lies between two curves."""
        there = np.column_stack([self.across(x), self.down(high)])
        back = np.column_stack([self.across(x), self.down(low)])[::-1]
        self._front.append(_path(_through(np.concatenate([there, back])) + "Z", _fill(colour, opacity)))

    def cloud(self, x: ArrayLike, y: ArrayLike, side: Side, width: float, opacity: float) -> None:
        """Many small dots of a build, those inside of the axes."""
        inside = np.asarray(y) <= self.y[1]
        places = np.column_stack([self.across(x)[inside], self.down(y)[inside]])
        d = "".join(f"M{_tenths(a)} {_tenths(b)}l.1 0" for a, b in np.rint(10 * places).astype(int).tolist())
        self._front.append(_path(d, _stroke(side, width, opacity=opacity) + ";stroke-linecap:round"))

    def dots(self, x: ArrayLike, y: ArrayLike, radius: float, style: str) -> None:
        """A dot at each point inside of the axes; their `style` is CSS."""
        inside = np.asarray(y) <= self.y[1]
        places = zip(self.across(x)[inside], self.down(y)[inside], strict=True)
        self._front += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{radius}" style="{style}"/>' for a, b in places]

    def band(self, start: float, end: float, colour: str, opacity: float = 1.0) -> None:
        """A stretch of x, behind the curves."""
        a, b = self.across((start, end)).clip(self.left, self.right)
        self.rectangle(a, self.top, b - a, self.bottom - self.top, colour, opacity, into=self._bands)

    def rule(self, x: float, colour: str, width: float, dashes: Sequence[float] = ()) -> None:
        """A line at one x, from the top to the bottom."""
        at = float(self.across(x))
        self.segment((at, self.top), (at, self.bottom), colour, width, dashes=dashes, back=True)

    def rectangle(
        self, left: float, top: float, width: float, height: float, colour: str, opacity: float = 1.0,
        *, into: list[str] | None = None,
    ) -> None:  # fmt: skip
        """A filled rectangle."""
        box = f'x="{left:.1f}" y="{top:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
        (self._front if into is None else into).append(f'<rect {box} style="{_fill(colour, opacity)}"/>')

    def segment(
        self, start: Sequence[float], end: Sequence[float], colour: str, width: float,
        *, dashes: Sequence[float] = (), back: bool = False,
    ) -> None:  # fmt: skip
        """A straight line."""
        (self._back if back else self._front).append(_path(_through((start, end)), _stroke(colour, width, dashes)))

    def text(
        self, x: float, y: float, words: str, *, points: float = TEXT, anchor: Anchor = "start", colour: str = "ink",
        opacity: float = 1.0, bold: bool = False, more: str = "",
    ) -> None:  # fmt: skip
        """Words whose line stands at y."""
        look = [] if (colour, opacity) == ("ink", 1.0) else [_fill(colour, opacity)]
        look += [] if points == TEXT else [f"font-size:{points:.4g}px"]
        look += ["font-weight:bold"] if bold else []
        look += [] if anchor == "start" else [f"text-anchor:{anchor}"]
        style = f' style="{";".join(look)}"' if look else ""
        self._front.append(f'<text x="{x:.1f}" y="{y:.1f}"{style}{more}>{_words(words)}</text>')

    def legend(self, labels: Mapping[Side, str]) -> None:
        """Name the builds, between the title and the axes."""
        at, y = self.left + 2, self.top - 7
        for side, label in labels.items():
            self.segment((at, y - 2.6), (at + 20, y - 2.6), side, WIDTHS[side], dashes=DASHES[side])
            self.text(at + 26, y, label, points=SIDE_TEXT)
            at += 40 + width_of(label, SIDE_TEXT)

    def svg(self, alt: str) -> str:
        """The picture for standing inside an HTML page: themed by it, named by `alt`."""
        size = f"0 0 {self.width:.6g} {self.height:.6g}"
        about = f'xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img" aria-label="{_words(alt)}"'
        parts = "".join([*self._bands, *self._back, *self._front])
        return f'<svg {about} style="font:{TEXT:g}px {FONT};{_fill("ink")}">{parts}</svg>'


def _words(text: str) -> str:
    return html.escape(_NOT_XML.sub("\ufffd", text), quote=True)


def _through(points: Any) -> str:
    """Straight lines from point to point, to a tenth of a point: each as a step from the one before, which is short."""
    tenths = np.rint(10 * np.asarray(points, dtype=np.float64)).astype(int).reshape(-1, 2)
    steps = (part.ravel().tolist() for part in (tenths[:1], tenths[1:] - tenths[:-1]))
    start, after = (" ".join(map(_tenths, each)).replace(" -", "-") for each in steps)
    return f"M{start}" + (f"l{after}" if after else "")


@lru_cache(8192)
def _tenths(number: int) -> str:
    """So many tenths, written as short as SVG allows: most steps of a curve are one of a few hundred."""
    return _LEADING_ZERO.sub("", f"{number / 10:g}")


def _path(d: str, style: str) -> str:
    return f'<path d="{d}" style="{style}"/>'


def _colour(name: str) -> str:
    return f"var(--{name},{THEME[name]})"


def _fill(colour: str, opacity: float = 1.0) -> str:
    return f"fill:{_colour(colour)}" + ("" if opacity == 1.0 else f";fill-opacity:{opacity:g}")


def _stroke(colour: str, width: float, dashes: Sequence[float] = (), opacity: float = 1.0) -> str:
    style = f"fill:none;stroke:{_colour(colour)};stroke-width:{width:g}"
    style += f";stroke-dasharray:{','.join(f'{width * each:g}' for each in dashes)}" if len(dashes) else ""
    return style + ("" if opacity == 1.0 else f";stroke-opacity:{opacity:g}")


def dot_style(side: Side) -> str:
    """The style of a build's dot: with a rim, so that it stands out of a curve."""
    return f"{_stroke('paper', 1.0)};{_fill(side)}"
