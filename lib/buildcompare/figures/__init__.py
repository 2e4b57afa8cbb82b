"""Figures of results, as pictures and as interactive charts."""

from __future__ import annotations

import base64
import functools
import html
import importlib
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from buildcompare.config.errors import InputError
from buildcompare.results import MetricResult

FIGURE_MIME = "application/vnd.buildcompare.figure+json"
"""MIME type of a figure's attributes (`_CARRIED`) in a notebook's output."""
DPI = 120
"""Pixels per inch of a PNG; SVG has 72 points per inch."""
_CARRIED = ("name", "alt", "graph_of", "chart", "caption", "shown")


@dataclass(frozen=True)
class Figure:
    """A figure as a picture with a description; most figures are also interactive charts."""

    name: str
    alt: str
    svg: str
    graph_of: str | None = None
    """Name of the test under whose heading the report's README.md shows the figure; None if under no test."""
    chart: dict[str, str] | None = None
    """Attributes of the chart's element, from `figures.chart`."""
    caption: str = ""
    shown: bool | None = True
    """True shows the figure large, False shows it small until a reader opens it, None hides it."""
    alone: bool = True
    """If True, the output in a notebook contains the style and script that the chart needs."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Figure:
        """Read the figure from the data of a notebook's output."""
        return cls(**data[FIGURE_MIME], svg="".join(data["image/svg+xml"]))

    @functools.cached_property
    def png(self) -> bytes:
        """Return the picture as PNG; raise an :class:`InputError` if the extra ``png`` is not installed."""
        return rasterise(self.svg)

    @property
    def html(self) -> Markup:
        """Return the figure as HTML: a small picture, and a chart that opens on a click; empty if `shown` is None.

        The chart needs the script :func:`component`. Without JavaScript and in print, the large picture is shown.
        """
        if self.shown is None:
            return Markup()
        name, caption = html.escape(self.name), html.escape(self.caption or self.alt)
        chart = "" if self.chart is None else element(self.chart)
        start = f'<details class="picture" id="{name}"{" open" if self.shown else ""}>'
        summary = f'<summary class="small"><span>{caption}</span>{self.svg}</summary>'
        return Markup(f"{start}{summary}{chart}</details>")  # noqa: S704  # escaped on these lines

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        data: dict[str, object] = {FIGURE_MIME: {name: getattr(self, name) for name in _CARRIED}}
        data |= {"image/svg+xml": self.svg, "text/plain": self.alt}
        if self.chart is not None:  # notebooks that run no scripts show the SVG picture instead
            style = f"<style>{themes()}</style>" if self.alone else ""
            shown = f'<div class="buildcompare">{style}{element({"tools": "", **self.chart})}</div>'
            script = component() if self.alone else ""
            data["application/javascript"] = f"{script}\nelement.innerHTML = {json.dumps(shown)};"
        return data


def rasterise(svg: str) -> bytes:
    """Convert a picture to PNG, with the light theme's colours on white and matplotlib's fonts."""
    from matplotlib import get_data_path

    light = re.sub(r"var\(--\w+,\s*(#\w+)\)", r"\1", svg)
    fonts = {"skip_system_fonts": True, "font_dirs": [f"{get_data_path()}/fonts/ttf"]}
    return bytes(rasteriser().svg_to_bytes(svg_string=light, background="#ffffff", zoom=DPI / 72, **fonts))


def rasteriser() -> Any:
    """Import the module that draws PNG; raise an :class:`InputError` if it is not installed."""
    try:
        return importlib.import_module("resvg_py")
    except ImportError:
        expected = "the package resvg_py (pip install buildcompare[png])"
        raise InputError(file=None, key="PNG", expected=expected, found="none") from None


def packed(text: str) -> str:
    """Compress `text` and encode it in base64, for a notebook."""
    return base64.b64encode(zlib.compress(text.encode(), 3)).decode("ascii")


def unpacked(text: str) -> str:
    """Decompress the result of :func:`packed`."""
    return zlib.decompress(base64.b64decode(text)).decode()


def element(attributes: Mapping[str, str], inside: str = "") -> str:
    """Return the element of an interactive chart; `inside` shows until the script has run."""
    written = [f'{name}="{html.escape(value)}"' for name, value in attributes.items()]
    kind = "build-intervals" if "intervals" in attributes else "build-chart"
    return f"<{kind} {' '.join(written)}>{inside}</{kind}>"


@functools.cache
def component() -> str:
    """Return the script that turns elements into charts, in a page or a notebook; the script loads no file."""
    scripts = "\n".join(map(_file, ("chart.js", "intervals.js", "flame.js")))
    return f"{{\nconst STYLE = {json.dumps(_file('chart.css'))};\n{scripts}}}"


def theme() -> str:
    """Return the CSS colours of a page: light, dark, printed."""
    return _file("theme.css")


@functools.cache
def themes() -> str:
    """Return the CSS colours of a notebook's output, in the theme of JupyterLab or of the browser."""
    light, dark = re.findall(r":root \{([^}]*)\}", theme())[:2]
    scope, in_jupyterlab = ".buildcompare", '[data-jp-theme-light="{}"] .buildcompare'
    by_reader = f"{scope} {{{light}}}\n@media (prefers-color-scheme: dark) {{ {scope} {{{dark}}} }}"
    return f"{by_reader}\n{in_jupyterlab.format('true')} {{{light}}}\n{in_jupyterlab.format('false')} {{{dark}}}"


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def names(metrics: Iterable[MetricResult], test: str) -> list[str]:
    """Name the graph of each metric of a test as in published performance reports: ``mysql_bounded_0_rps``."""
    taken: set[str] = set()
    labels = (("".join(f"-{value}" for value in each.labels.values()), each.slug) for each in metrics)
    stems = (slug + "".join(c if c.isalnum() or c in "._-" else "-" for c in label)[:80] for label, slug in labels)
    return [f"{test}_0_{unused(stem, taken)}" for stem in stems]


def unused(stem: str, taken: set[str]) -> str:
    """Return the first of ``stem``, ``stem-2``, ``stem-3`` ... that is not in `taken`, and add it to `taken`."""
    names = itertools.chain([stem], (f"{stem}-{i}" for i in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
