"""Figures of results. What draws them takes seconds to import, so that is done when it is first called."""

import base64
import itertools
from dataclasses import dataclass
from typing import Any

import lazy_loader

_DRAWN = ["at_equal_load", "graph", "graphs", "levels", "users"]
__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs={"base": _DRAWN})

FIGURE_MIME = "buildcompare"
"""Key of the display metadata that tells the exporters a figure's file name and alternative text."""


@dataclass(frozen=True)
class Figure:
    """A drawn figure in both forms, with what it says in words."""

    name: str
    alt: str
    svg: str
    png: bytes
    graph_of: str | None  # The test whose graph it is in the Markdown report; None for the other figures

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, str], dict[str, Any]]:
        png = base64.b64encode(self.png).decode("ascii")
        data = {"image/svg+xml": self.svg, "image/png": png, "text/plain": self.alt}
        return data, {FIGURE_MIME: {"name": self.name, "alt": self.alt, "graph_of": self.graph_of}}


def unused(stem: str, taken: set[str]) -> str:
    """`stem`, or the first of ``stem-2``, ``stem-3`` ... that is not yet `taken`; now it is."""
    names = itertools.chain([stem], (f"{stem}-{i}" for i in itertools.count(2)))
    name = next(name for name in names if name not in taken)
    taken.add(name)
    return name
