"""Figures of results. What draws them takes seconds to import, so that is done when it is first called."""

import base64
import functools
import html
import itertools
import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lazy_loader

from buildcompare.results import MetricResult

_DRAWN = {
    "curves": ["at_equal_load", "graph", "graphs", "users"],
    "base": ["levels"],
    "benchmarks": ["contrasts", "ecdfs", "heat_map", "interactions"],
}
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_DRAWN)

FIGURE_MIME = "buildcompare"
"""Key of the display metadata that tells the exporters a figure's file name and alternative text."""


@dataclass(frozen=True)
class Figure:
    """A drawn figure as a picture and, where it is of samples over time, as a chart, with what it says in words."""

    name: str
    alt: str
    svg: str
    graph_of: str | None = None  # The test whose graph it is in the Markdown report; None for the other figures
    chart: dict[str, str] | None = None  # Attributes of the chart's element, by `figures.chart`
    pixels: bytes | None = None  # The picture as PNG where matplotlib drew it
    caption: str = ""
    shown: bool | None = True  # On the page: large, or small until it is opened; None: not at all
    alone: bool = True  # Whether it brings the script of charts into a notebook; else `Charts` stands above it

    @functools.cached_property
    def png(self) -> bytes:
        """The picture as PNG, drawn when somebody asks for it."""
        from buildcompare.figures.raster import png

        return self.pixels or png(self.svg)

    @property
    def html(self) -> str:
        """The figure in a page that has :func:`component`: a small picture that opens.

        Large is the chart, or without JavaScript and in print the picture.
        """
        if self.shown is None:
            return ""
        name, caption = html.escape(self.name), html.escape(self.caption or self.alt)
        chart = "" if self.chart is None else element(self.chart)
        start = f'<details class="picture" id="{name}"{" open" if self.shown else ""}>'
        return f'{start}<summary class="small"><span>{caption}</span>{self.svg}</summary>{chart}</details>'

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, Any]]:
        data = {"image/svg+xml": self.svg, "text/plain": self.alt}
        if self.pixels is not None:
            data["image/png"] = base64.b64encode(self.pixels).decode("ascii")
        about = {name: getattr(self, name) for name in ("name", "alt", "graph_of", "caption", "shown")}
        if self.chart is not None:  # a notebook that is not trusted runs no script and shows a picture
            style = f"<style>{themes()}</style>" if self.alone else ""
            chart = element({"tools": "", **self.chart})
            shown = json.dumps(f'<div class="buildcompare">{style}{chart}</div>')
            data["application/javascript"] = f"{component() if self.alone else ''}\n{_SHOWN}{shown};"
        return data, {FIGURE_MIME: about}


_SHOWN = "element.innerHTML = "


def chart_of(script: str) -> dict[str, str] | None:
    """The attributes of the chart that the script of a notebook's output shows."""
    shown = json.loads(script.rpartition(_SHOWN)[2].rstrip(";\n")) if _SHOWN in script else ""
    found = re.search(r"<build-(?:chart|intervals) ([^>]*)>", shown)
    attributes = re.findall(r'(\w+)="([^"]*)"', found[1]) if found else []
    return {name: html.unescape(value) for name, value in attributes if name != "tools"} or None


@dataclass(frozen=True)
class Charts:
    """The script and the colours of charts, once for all figures of a notebook."""

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        style = json.dumps(f"<style>{themes()}</style>")
        return {"application/javascript": f"{component()}\n{_SHOWN}{style};", "text/plain": ""}


def packed(text: str) -> str:
    """`text` compressed, for a notebook."""
    return base64.b64encode(zlib.compress(text.encode(), 3)).decode("ascii")


def unpacked(text: str) -> str:
    """What was `packed`."""
    return zlib.decompress(base64.b64decode(text)).decode()


def element(attributes: dict[str, str], inside: str = "") -> str:
    """The element that is made a chart of, of samples over time or of intervals; until then what is `inside` stands."""
    written = [f'{name}="{html.escape(value)}"' for name, value in attributes.items()]
    kind = "build-intervals" if "intervals" in attributes else "build-chart"
    return f"<{kind} {' '.join(written)}>{inside}</{kind}>"


@functools.cache
def component() -> str:
    """The script that makes charts of their elements, in a page and in a notebook; it loads nothing."""
    scripts = "\n".join(map(_file, ("chart.js", "intervals.js", "flame.js")))
    return f"{{\nconst STYLE = {json.dumps(_file('chart.css'))};\n{scripts}}}"


def theme() -> str:
    """The colours of a page: light, dark, printed."""
    return _file("theme.css")


@functools.cache
def themes() -> str:
    """The colours of what a notebook shows, in the theme of JupyterLab or of the reader."""
    light, dark = re.findall(r":root \{([^}]*)\}", theme())[:2]
    scope, in_jupyterlab = ".buildcompare", '[data-jp-theme-light="{}"] .buildcompare'
    by_reader = f"{scope} {{{light}}}\n@media (prefers-color-scheme: dark) {{ {scope} {{{dark}}} }}"
    return f"{by_reader}\n{in_jupyterlab.format('true')} {{{light}}}\n{in_jupyterlab.format('false')} {{{dark}}}"


def _file(name: str) -> str:
    return (Path(__file__).parent / name).read_text("utf-8")


def names(metrics: Iterable[MetricResult], test: str) -> list[str]:
    """Names of the graphs of these metrics of a test, as performance reports name them: ``mysql_bounded_0_rps``."""
    taken: set[str] = set()
    labels = (("".join(f"-{value}" for value in each.labels.values()), each.slug) for each in metrics)
    stems = (slug + "".join(c if c.isalnum() or c in "._-" else "-" for c in label)[:80] for label, slug in labels)
    return [f"{test}_0_{unused(stem, taken)}" for stem in stems]


def unused(stem: str, taken: set[str]) -> str:
    """`stem`, or the first of ``stem-2``, ``stem-3`` ... that is not yet `taken`; now it is."""
    names = itertools.chain([stem], (f"{stem}-{i}" for i in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
