"""Turns what people wrote (CommonMark without raw HTML, http and https links only) into safe HTML or Markdown.

Comments, action items and setup rows come from a params file that others may have written. Raw HTML and other
links are not refused: they appear as the text that they are.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_SCHEMES = ("http://", "https://")
_CODE = re.compile(r"(?s)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)")
_AUTOLINK = re.compile(r"<(?=https?://[^\s<>]+>)")
_DESTINATION = re.compile(r"\](?=\(\s*<?\s*(?!https?://))")
_DEFINITION = re.compile(r"(?m)^(\s{0,3})\[(?=[^\]]*\]:\s*<?(?!https?://))")
_HEADING = re.compile(r"(?m)^(\s{0,3})(#{1,6}(?:\s|$)|=+\s*$|-+\s*$)")
_INLINE_SYNTAX = re.compile(r"[\\`*\[\]<>&~|$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_SYNTAX = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


@functools.cache
def _parser(*, html: bool, headings: bool = False) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": html}).enable("strikethrough")
    if html:  # the renderer that must be expected elsewhere: it lets everything through
        parser.validateLink = lambda url: True  # type: ignore[method-assign]  # its documented hook
    else:
        parser.disable("image")  # a report loads nothing
        parser.disable([] if headings else ["heading", "lheading"])  # and its headings are its own
        parser.validateLink = lambda url: url.casefold().startswith(_SCHEMES)  # type: ignore[method-assign]  # its documented hook
    return parser


def to_html(text: str) -> Markup:
    """Render `text` as HTML in which nothing of its writer can run or load."""
    return Markup(_parser(html=False).render(text))  # noqa: S704  # the parser escaped it


def cell_to_html(text: str) -> Markup:
    """Render a Markdown cell of the notebook, which makes the report's headings."""
    return Markup(_parser(html=False, headings=True).render(text))  # noqa: S704  # the parser escaped it


def to_inline_html(text: str) -> Markup:
    """Render one line of `text`, such as a table cell, without a paragraph around it."""
    return Markup(_parser(html=False).renderInline(" ".join(text.split())))  # noqa: S704  # the parser escaped it


def to_markdown(text: str) -> str:
    """`text` as Markdown for a renderer that lets HTML through, as GitHub's does: the same, made inert."""
    parts: list[str] = []
    last = 0
    for code in _CODE.finditer(text):
        parts += [_inert(text[last : code.start()]), code[0]]
        last = code.end()
    made = "".join(parts) + _inert(text[last:])
    return made if _is_inert(made) else plain(text)


def plain(text: str) -> str:
    """Text that must appear letter for letter in Markdown, on one line."""
    line = _INLINE_SYNTAX.sub(r"\\\g<0>", " ".join(text.split()))
    return _BLOCK_SYNTAX.sub(lambda match: f"{match[0]}\\" if match[0].isdigit() else f"\\{match[0]}", line)


def code(text: str) -> str:
    """Text as a Markdown code span, whatever backticks it holds."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def cell(markdown: str) -> str:
    """Markdown that stands in one cell of a table: on one line, with its bars escaped."""
    return re.sub(r"(?<!\\)((?:\\\\)*)\|", r"\1\\|", " ".join(markdown.split()))


def _inert(text: str) -> str:
    text = _AUTOLINK.sub("\0", text).replace("<", "&lt;").replace("\0", "<").replace("![", "!\\[")
    text = _HEADING.sub(r"\1\\\2", text)
    return _DEFINITION.sub(r"\1\\[", _DESTINATION.sub(r"\\]", text))


def _is_inert(markdown: str) -> bool:
    return all(_harmless(token) for token in _tokens(_parser(html=True).parse(markdown)))


def _tokens(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _tokens(token.children or [])


def _harmless(token: Token) -> bool:
    if token.type in ("html_block", "html_inline", "image"):
        return False
    return token.type != "link_open" or str(token.attrGet("href") or "").casefold().startswith(_SCHEMES)
