"""Makes matplotlib's SVG small, readable in light and dark, and understandable without seeing it."""

from __future__ import annotations

import hashlib
import html
import re

THEMED = {"#1b1b1a": "--ink", "#dddddc": "--grid", "#e8e8e7": "--shade", "#ffffff": "--paper",
          "#0072b2": "--base", "#d55e00": "--new",
          "#6e6e6c": "--bumps", "#d9d9d8": "--ramp", "#c4c4c3": "--bend", "#b0b0ae": "--waves", "#e6e6e5": "--plateau",
          "#4e4e4c": "--shutdown"}  # fmt: skip
"""Colours that follow the page's theme; each keeps its own value where no page defines the variable."""

_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_PATH = re.compile(r'(\sd="|points="|transform="|\s(?:x|y|x1|x2|y1|y2|width|height)=")([^"]*)"')


def compact(svg: str, alt: str) -> str:
    """Rewrite one of matplotlib's SVG documents for standing inside an HTML page.

    Parameters
    ----------
    svg
        As matplotlib wrote it, with text as text.
    alt
        What the figure says, for those who do not see it.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = _PATH.sub(lambda match: match[1] + _NUMBER.sub(_rounded, match[2]) + '"', body)
    body = re.sub(r"\s*\n\s*", " ", body)
    body = re.sub(r"> +<", "><", body)
    for colour, variable in THEMED.items():
        body = body.replace(f": {colour}", f": var({variable}, {colour})")
    body = _own_ids(body)
    return _described(body, alt)


def _rounded(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def _own_ids(body: str) -> str:
    """Identifiers that only this figure has: many figures share a page."""
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', body))
    referenced = {name for pair in used for name in pair if name}
    prefix = "f" + hashlib.sha256(body.encode()).hexdigest()[:8]
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}{m[1]}"' if m[1] in referenced else "", body)
    return re.sub(r'(url\(#|href="#)', lambda m: m[1] + prefix, body)


def _described(body: str, alt: str) -> str:
    start = re.match(r"<svg\b[^>]*>", body)
    if start is None:
        return body
    tag = re.sub(r'\s(width|height|version|xmlns:xlink)="[^"]*"', "", start[0])
    body = body[start.end() :].replace("xlink:href", "href")
    described = tag[:-1] + f' role="img" aria-label="{html.escape(alt, quote=True)}">'
    return described + body
