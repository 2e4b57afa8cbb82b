"""Figures of results. What draws them takes seconds to import; a figure that was drawn, this module, does not."""

import base64
from dataclasses import dataclass
from typing import Any

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
