"""Draw a picture of :mod:`buildcompare.figures.plot` as PNG, where something asks for one."""

import functools
import io
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
from matplotlib import get_data_path
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgb
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from PIL import Image, ImageDraw, ImageFont

from buildcompare.figures.plot import THEME

_Renderer: Any = RendererAgg  # it has no types
DPI = 120
SCALE = DPI / 72
"""Pixels of a point."""
COLOURS = 64
"""Of the palette: lines of a dozen colours, and the steps of their edges."""
INK = f"fill:{THEME['ink']}"
NEARLY_WHITE = 250
"""What the palette makes of white paper."""
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
"""Pillow's names of where a text stands: at its left, in its middle, at its right; on its baseline."""
_NUMBERS = re.compile(r"-?[\d.]+")
_VARIABLE = re.compile(r"var\(--\w+,(#\w+)\)")


def png(svg: str) -> bytes:
    """The picture as PNG, with the colours of the light theme on white."""
    root = ElementTree.fromstring(svg)  # noqa: S314  # our own
    width, height = (int(float(each) * SCALE) for each in root.attrib["viewBox"].split()[2:])
    renderer: Any = _Renderer(width, height, DPI)
    np.asarray(renderer.buffer_rgba())[...] = 255  # white paper
    to_pixels = Affine2D().scale(SCALE, -SCALE).translate(0, height)
    texts = []
    for element in root:
        kind, about = element.tag.rpartition("}")[2], element.attrib
        style = dict(part.split(":", 1) for part in _VARIABLE.sub(r"\1", about.get("style", INK)).split(";"))
        if kind == "text":
            texts.append((element.text or "", about, style))
            continue
        gc = renderer.new_gc()
        gc.set_foreground(style.get("stroke", "#000000"))
        gc.set_linewidth(float(style.get("stroke-width", 0.0)) * SCALE)
        if dashes := style.get("stroke-dasharray"):
            gc.set_dashes(0.0, [float(each) * SCALE for each in dashes.split(",")])
        gc.set_joinstyle("round")
        gc.set_capstyle(style.get("stroke-linecap", "butt"))
        gc.set_alpha(float(style.get("fill-opacity", style.get("stroke-opacity", 1.0))))
        filled = None if style["fill"] == "none" else to_rgb(style["fill"])
        renderer.draw_path(gc, _shape(kind, about), to_pixels, filled)
    drawn = Image.frombytes("RGB", (width, height), renderer.buffer_rgba(), "raw", "RGBX")
    for words, about, style in texts:
        _write(drawn, words, about, style)
    few = drawn.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette = np.array(few.getpalette()).reshape(-1, 3)
    palette[palette.min(axis=1) >= NEARLY_WHITE] = 255
    few.putpalette(palette.ravel().tolist())
    sink = io.BytesIO()
    few.save(sink, "png", compress_level=4)  # a ninth more bytes than by 6, in two thirds of its time
    return sink.getvalue()


def _write(drawn: Image.Image, words: str, about: dict[str, str], style: dict[str, str]) -> None:
    """Write text onto a picture: matplotlib would draw it letter by letter, which takes half of a picture's time."""
    font = _font(style.get("font-size", "8px"), style.get("font-weight", "normal"))
    opacity = float(style.get("fill-opacity", 1.0))
    colour = to_rgb(style.get("fill", THEME["ink"]))
    ink = tuple(round(255 * (opacity * each + 1 - opacity)) for each in colour)  # on white
    x, y = float(about["x"]) * SCALE, float(about["y"]) * SCALE
    words, how = words.replace("\n", " "), (ink, font, ANCHORS[style.get("text-anchor", "start")])
    if "transform" not in about:
        ImageDraw.Draw(drawn).text((x, y), words, *how)
        return
    column = drawn.crop((0, 0, int(2 * x), drawn.height)).transpose(Image.Transpose.ROTATE_270)
    ImageDraw.Draw(column).text((column.width - y, x), words, *how)  # turned to the left
    drawn.paste(column.transpose(Image.Transpose.ROTATE_90))


@functools.cache
def _font(size: str, weight: str) -> ImageFont.FreeTypeFont:
    name = "DejaVuSans-Bold" if weight == "bold" else "DejaVuSans"
    return ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{name}.ttf", float(size.removesuffix("px")) * SCALE)


def _shape(kind: str, about: dict[str, str]) -> Path:
    if kind == "path":
        parts = [_points(part) for part in about["d"].rstrip("Z").split("M")[1:]]
        codes = [[Path.MOVETO] + [Path.LINETO] * (len(part) - 1) for part in parts]
        path = Path(np.concatenate(parts), np.concatenate(codes))
        path.should_simplify, path.simplify_threshold = max(map(len, parts)) > 100, 0.3
        return path
    if kind == "rect":
        return _box(*(float(about[name]) for name in ("x", "y", "width", "height")))
    return Path.circle((float(about["cx"]), float(about["cy"])), float(about["r"]))


def _box(x: float, y: float, width: float, height: float) -> Path:
    return Path([(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)], closed=True)


def _points(text: str) -> np.ndarray:
    """The points of a start and of steps from one to the next."""
    numbers = np.array(_NUMBERS.findall(text), dtype=np.float64)
    return numbers.reshape(-1, 2).cumsum(axis=0)
