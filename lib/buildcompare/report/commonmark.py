"""Render hand-written CommonMark as HTML or Markdown, with raw HTML as text.

Pictures of local files are embedded or copied; a line explains why other pictures are not shown.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup

from buildcompare.config.catalogue import slugify
from buildcompare.config.project import resolve
from buildcompare.figures import unused
from buildcompare.text.sentences import say

IMAGES = "images"
"""Folder of copied pictures beside README.md."""
MAX_IMAGE = 1_000_000  # size of the largest picture that is shown, in bytes
_SIGNATURES = {b"\x89PNG\r\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
_INLINE_SYNTAX = re.compile(r"[\\`*\[\]<>&~|$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_SYNTAX = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


@functools.cache
def _parser(*, html: bool = False, headings: bool = False) -> MarkdownIt:
    """Make a parser that refuses links to scripts and, by default, renders raw HTML as text."""
    parser = MarkdownIt("commonmark", {"html": html}).enable("strikethrough")
    parser.disable([] if headings else ["heading", "lheading"])
    parser.add_render_rule("image", _embedded)
    return parser


def to_html(text: str) -> Markup:
    """Render `text` as HTML that runs no script and loads nothing."""
    return Markup(_parser().render(text))  # noqa: S704  # the parser escaped it


def to_html_with_headings(text: str, taken: set[str]) -> tuple[Markup, list[tuple[str, str]]]:
    """Render a Markdown cell; also return anchor and text of each level-2 heading. New anchors are added to `taken`."""
    parser, found = _parser(headings=True), []
    tokens = parser.parse(text)
    for opening, inside in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", unused(slugify(inside.content), taken))
            if opening.tag == "h2":
                found.append((str(opening.attrGet("id")), inside.content))
    return Markup(parser.renderer.render(tokens, parser.options, {})), found  # noqa: S704  # the parser escaped it


def _embedded(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: MutableMapping[str, object]
) -> str:
    """Embed a picture in the page, or explain why it is not shown."""
    source, kind, contents = _image(tokens[at])
    if contents is None:
        return f"<em>{Markup.escape(say('figures', 'image_refused', source, kind))}</em>"
    alt = Markup.escape(renderer.renderInlineAsText(tokens[at].children, options, env))
    return f'<img alt="{alt}" src="data:image/{kind};base64,{base64.b64encode(contents).decode()}">'


def _image(token: Token) -> tuple[str, str, bytes | None]:
    """Return path, type and contents of a local picture. If it cannot be shown, the reason replaces the type."""
    source = unquote(str(token.attrGet("src") or ""))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:|//", source):
        return source, "remote", None
    try:
        with resolve(source).open("rb") as file:
            contents = file.read(MAX_IMAGE + 1)
    except (OSError, ValueError):
        return source, "missing", None
    if len(contents) > MAX_IMAGE:
        return source, "size", None
    kind = next((kind for start, kind in _SIGNATURES.items() if contents.startswith(start)), None)
    return (source, kind, contents) if kind else (source, "kind", None)


def images(text: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield the local pictures in `text`: path as written, name of the copy, and contents."""
    for token in (each for block in _parser().parse(text) for each in block.children or () if each.type == "image"):
        source, kind, contents = _image(token)
        if contents is not None:
            yield source, f"{IMAGES}/{hashlib.sha256(contents).hexdigest()[:8]}.{kind}", contents


def to_inline_html(text: str) -> Markup:
    """Render one line of `text`, such as a table cell, without a paragraph around it."""
    return Markup(_parser().renderInline(" ".join(text.split())))  # noqa: S704  # the parser escaped it


def to_markdown(text: str) -> str:
    """Return `text` as Markdown that shows copies of its pictures. A text with raw HTML is escaped completely."""
    inside = (each for block in _parser(html=True).parse(text) for each in (block, *(block.children or ())))
    if any(each.type in ("html_block", "html_inline") for each in inside):
        return plain(text)
    for source, name, _ in images(text):
        text = re.sub(rf"\]\(\s*<?{re.escape(source)}>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)", f"]({name})", text)
    return text


def plain(text: str) -> str:
    """Escape text so that Markdown shows it literally, on one line. The result contains no HTML comment."""
    line = _INLINE_SYNTAX.sub(r"\\\g<0>", " ".join(text.split())).replace("\\<", "&lt;")  # prevents HTML comments
    return _BLOCK_SYNTAX.sub(lambda match: f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}", line)


def code(text: str) -> str:
    """Write text as a Markdown code span, also if it contains backticks."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def cell(markdown: str) -> str:
    """Write Markdown for a cell of a table: on one line, with escaped vertical bars."""
    return re.sub(r"(?<!\\)((?:\\\\)*)\|", r"\1\\|", " ".join(markdown.split()))


def aligned(table: str) -> str:
    """Complete a Markdown table that has header and rows: pad its columns and add the separator line."""
    grid = [row.removeprefix("| ").removesuffix(" |").split(" | ") for row in table.splitlines()]
    widths = [max(3, *map(len, column)) for column in zip(*grid, strict=True)]
    grid.insert(1, ["-" * width for width in widths])
    lines = (" | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in grid)
    return "".join(f"| {line} |\n" for line in lines)


def destination(url: str) -> str:
    """Write a link's destination with round brackets, angle brackets and vertical bars percent-encoded."""
    return re.sub(r"[()<>|]", lambda match: f"%{ord(match[0]):02X}", url)
