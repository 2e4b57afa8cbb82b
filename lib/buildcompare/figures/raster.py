"""Draw a picture of :mod:`buildcompare.figures.plot` as PNG, where something asks for one."""

import functools
import io
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgb
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from PIL import Image

_Renderer: Any = RendererAgg  # it has no types
DPI = 120
COLOURS = 64
"""Of the palette: lines of a dozen colours, and the steps of their edges."""
NEARLY_WHITE = 250
"""What the palette makes of white paper."""
_VARIABLE = re.compile(r"var\(--\w+,(#\w+)\)")


def png(svg: str) -> bytes:
    """The picture as PNG, with the colours of the light theme on white."""
    root = ElementTree.fromstring(svg)  # noqa: S314  # our own
    width, height = (float(each) for each in root.attrib["viewBox"].split()[2:])
    scale = DPI / 72
    renderer: Any = _Renderer(int(width * scale), int(height * scale), DPI)
    to_pixels = Affine2D().scale(scale, -scale).translate(0, int(height * scale))
    for element in root:
        kind, about = element.tag.rpartition("}")[2], element.attrib
        style = dict(part.split(":", 1) for part in _VARIABLE.sub(r"\1", about["style"]).split(";"))
        gc = renderer.new_gc()
        if kind == "text":
            gc.set_foreground(style["fill"])
            gc.set_alpha(float(style.get("fill-opacity", 1.0)))
            font = _font(style.get("font-size", "8px"), style.get("font-weight", "normal"))
            words = element.text or ""
            x, y = float(about["x"]) * scale, float(about["y"]) * scale
            taken = renderer.get_text_width_height_descent(words, font, False)[0] if "text-anchor" in style else 0.0
            taken *= {"middle": 0.5, "end": 1.0}.get(style.get("text-anchor", ""), 0.0)
            turned = "transform" in about
            renderer.draw_text(
                gc, x - (0 if turned else taken), y + (taken if turned else 0), words, font, 90.0 * turned
            )
            continue
        gc.set_foreground(style.get("stroke", "#000000"))
        gc.set_linewidth(float(style.get("stroke-width", 0.0)) * scale)
        if dashes := style.get("stroke-dasharray"):
            gc.set_dashes(0.0, [float(each) * scale for each in dashes.split(",")])
        gc.set_joinstyle("round")
        gc.set_capstyle("butt")
        gc.set_alpha(float(style.get("fill-opacity", style.get("stroke-opacity", 1.0))))
        renderer.draw_path(gc, _shape(kind, about), to_pixels, to_rgb(style["fill"]) if "fill" in style else None)
    solid = Image.fromarray(np.asarray(renderer.buffer_rgba()), "RGBA")
    paper = Image.new("RGBA", solid.size, "white")
    paper.alpha_composite(solid)
    few = paper.convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette = np.array(few.getpalette()).reshape(-1, 3)
    palette[palette.min(axis=1) >= NEARLY_WHITE] = 255
    few.putpalette(palette.ravel().tolist())
    sink = io.BytesIO()
    few.save(sink, "png")
    return sink.getvalue()


@functools.cache
def _font(size: str, weight: str) -> FontProperties:
    return FontProperties(family="DejaVu Sans", weight=weight, size=float(size.removesuffix("px")))


def _shape(kind: str, about: dict[str, str]) -> Path:
    if kind == "path":
        parts = [_points(part) for part in about["d"].rstrip("Z").split("M")[1:]]
        codes = [[Path.MOVETO] + [Path.LINETO] * (len(part) - 1) for part in parts]
        path = Path(np.concatenate(parts), np.concatenate(codes))
        path.should_simplify, path.simplify_threshold = sum(map(len, parts)) > 100, 0.3
        return path
    if kind == "rect":
        x, y, width, height = (float(about[name]) for name in ("x", "y", "width", "height"))
        return Path([(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)], closed=True)
    return Path.circle((float(about["cx"]), float(about["cy"])), float(about["r"]))


def _points(text: str) -> np.ndarray:
    return np.array(text.split(), dtype=np.float64).reshape(-1, 2)
