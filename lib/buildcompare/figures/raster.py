"""Draw a picture of :mod:`buildcompare.figures.plot` as PNG, where something asks for one."""

import functools
import io
import math
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
from matplotlib import get_data_path
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_rgb
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from PIL import Image, ImageDraw, ImageFont

from buildcompare.figures.plot import THEME, width_of

_Renderer: Any = RendererAgg  # it has no types
DPI = 120
SCALE = DPI / 72
"""Pixels of a point."""
COLOURS = 48
"""Of the palette: lines of a dozen colours, and the steps of their edges."""
INK = f"fill:{THEME['ink']}"
AREA = 8
"""Pixels in a row of one colour that is kept as it is: paper, shades and lines, not their edges."""
LEVEL = 3
"""Of the compression: 6 saves a ninth of the bytes and takes half as long again."""
EDGE = 4
"""Pixels around a text: letters may lean out of their place."""
PARTS = {"x": 4, "y": 1}
"""Of a pixel, to which a text is placed: other parts are other letters, which no second graph could use."""
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
"""Pillow's names of where a text stands: at its left, in its middle, at its right; on its baseline."""
_VARIABLE = re.compile(r"var\(--\w+,(#\w+)\)")


def png(svg: str) -> bytes:
    """The picture as PNG, with the colours of the light theme on white."""
    root = ElementTree.fromstring(svg)  # noqa: S314  # our own
    width, height = (int(float(each) * SCALE) for each in root.attrib["viewBox"].split()[2:])
    renderer: Any = _Renderer(width, height, DPI)
    pixels = np.asarray(renderer.buffer_rgba())
    pixels[...] = 255  # white paper
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
        opacity = float(style.get("fill-opacity", style.get("stroke-opacity", 1.0)))
        filled: tuple[float, ...] | None = None if style["fill"] == "none" else to_rgb(style["fill"])
        if element is root[0] and filled:  # on white paper: the same without blending each pixel
            filled, opacity = _on_white(filled, opacity), 1.0
        gc.set_alpha(opacity)
        renderer.draw_path(gc, _shape(kind, about), to_pixels, filled)
    drawn = Image.frombuffer("RGBX", (width, height), pixels, "raw", "RGBX", 0, 1)
    drawn.readonly = 0  # what is written onto it stands in `pixels`
    for words, about, style in texts:
        _write(drawn, words, about, style)
    sink = io.BytesIO()
    _with_palette(pixels).save(sink, "png", compress_level=LEVEL)
    return sink.getvalue()


def _with_palette(pixels: np.ndarray) -> Image.Image:
    """A picture of a few colours: these are chosen once for each stretch of equal pixels, of which most are paper."""
    colours = pixels.view("<u4").ravel()
    starts = np.flatnonzero(np.concatenate([[True], colours[1:] != colours[:-1]]))
    lengths = np.diff(starts, append=colours.size)
    found = Image.frombytes("RGB", (starts.size, 1), colours[starts].tobytes(), "raw", "RGBX")
    few = found.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    numbers, palette = np.asarray(few).ravel(), np.array(few.getpalette()).reshape(-1, 3)
    areas = lengths >= AREA
    palette[numbers[areas]] = colours[starts[areas]].view("u1").reshape(-1, 4)[:, :3]  # these as they are
    made = Image.frombytes("P", pixels.shape[1::-1], np.repeat(numbers, lengths).tobytes())
    made.putpalette(palette.ravel().tolist())
    return made


def _write(drawn: Image.Image, words: str, about: dict[str, str], style: dict[str, str]) -> None:
    """Write text onto a picture: matplotlib would draw it letter by letter, which takes half of a picture's time."""
    colour = _on_white(to_rgb(style.get("fill", THEME["ink"])), float(style.get("fill-opacity", 1.0)))
    ink = tuple(round(255 * each) for each in colour)
    (over, x), (under, y) = (
        math.modf(round(float(about[name]) * SCALE * parts) / parts) for name, parts in PARTS.items()
    )
    look = tuple(style.get(name) for name in ("font-size", "font-weight", "text-anchor"))
    mask, left, top = _letters(words.replace("\n", " "), look, "transform" in about, over, under)
    drawn.paste(ink, (int(x) + left, int(y) + top), mask)


def _on_white(colour: Sequence[float], opacity: float) -> tuple[float, ...]:
    return tuple(opacity * each + 1.0 - opacity for each in colour)


@functools.lru_cache(512)
def _letters(words: str, look: Any, is_turned: bool, over: float, under: float) -> tuple[Image.Image, int, int]:
    """Text as it covers pixels, once for all pictures, and where its corner is from its place, without its fraction."""
    size, weight, anchor = (given or usual for given, usual in zip(look, ("8px", "normal", "start"), strict=True))
    font = _font(size, weight)
    above, below = font.getmetrics()
    width = EDGE + math.ceil(SCALE * width_of(words, float(size.removesuffix("px")), bold=weight == "bold")) + EDGE
    start = {"start": EDGE, "middle": width // 2, "end": width - EDGE}[anchor]
    mask = Image.new("L", (width, EDGE + above + below + EDGE))
    if is_turned:  # to the left
        over, under = -under, over
    ImageDraw.Draw(mask).text((start + over, EDGE + above + under), words, 255, font, ANCHORS[anchor])
    if is_turned:
        return mask.transpose(Image.Transpose.ROTATE_90), -EDGE - above, start - width
    return mask, -start, -EDGE - above


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
    numbers = np.fromstring(text.replace("-", " -").replace("l", " "), sep=" ")
    return numbers.reshape(-1, 2).cumsum(axis=0)
