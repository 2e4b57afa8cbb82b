"""Render CommonMark of people as safe HTML or Markdown; raw HTML and other links than http(s) become text."""

import functools
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_SCHEMES = ("http://", "https://")
_RISKY = re.compile(
    r"""(?xm)
    (?P<code>(?P<ticks>`+)(?!`)[\s\S]*?(?<!`)(?P=ticks)(?!`))        # a code span shows whatever it holds
    | (?P<html><(?!https?://[^\s<>]+>))                            # a tag, unless it is a link <https://...>
    | !(?=\[)                                                     # an image
    | \](?=\(\s*<?\s*(?!https?://))                               # another link
    | ^(?P<indent>\s{0,3})(?:\[(?=[^\]]*\]:\s*<?(?!https?://))     # the definition of one
        | (?:\#{1,6}(?:\s|$)|=+\s*$|-+\s*$))                       # a heading
    """
)
_INLINE_SYNTAX = re.compile(r"[\\`*\[\]<>&~|$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_SYNTAX = re.compile(r"^(?:[#+=-]|\d+(?=[.)]))")


@functools.cache
def _parser(*, html: bool = False, headings: bool = False) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": html}).enable("strikethrough")
    if not html:  # else it is a reader's own renderer, which lets everything through
        parser.disable(["image"] if headings else ["image", "heading", "lheading"])  # a report loads nothing
    parser.validateLink = lambda url: html or url.casefold().startswith(_SCHEMES)  # type: ignore[method-assign]  # its documented hook
    return parser


def to_html(text: str, *, headings: bool = False) -> Markup:
    """Render `text` as HTML in which nothing of its writer can run or load; `headings` are for the notebook's cells."""
    return Markup(_parser(headings=headings).render(text))  # noqa: S704  # the parser escaped it


def to_inline_html(text: str) -> Markup:
    """Render one line of `text`, such as a table cell, without a paragraph around it."""
    return Markup(_parser().renderInline(" ".join(text.split())))  # noqa: S704  # the parser escaped it


def to_markdown(text: str) -> str:
    """`text` as Markdown for a renderer that lets HTML through, as GitHub's does: the same, made inert."""

    def inert(match: re.Match[str]) -> str:
        indent = match["indent"] or ""
        return match["code"] or ("&lt;" if match["html"] else f"{indent}\\{match[0][len(indent) :]}")

    made = _RISKY.sub(inert, text)
    return made if _harmless(_parser(html=True).parse(made)) else plain(text)


def _harmless(tokens: list[Token]) -> bool:
    for token in tokens:
        link = str(token.attrGet("href") or "").casefold() if token.type == "link_open" else _SCHEMES[0]
        if token.type in ("html_block", "html_inline", "image") or not link.startswith(_SCHEMES):
            return False
    return all(_harmless(token.children) for token in tokens if token.children)


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


def aligned(table: str) -> str:
    """A table's rows, of which the first is its header, with columns that line up in plain text too."""
    grid = [row.removeprefix("| ").removesuffix(" |").split(" | ") for row in table.splitlines()]
    widths = [max(3, *map(len, column)) for column in zip(*grid, strict=True)]
    grid.insert(1, ["-" * width for width in widths])
    lines = (" | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in grid)
    return "".join(f"| {line} |\n" for line in lines)


def destination(url: str) -> str:
    """A link's destination, which brackets and spaces would end."""
    return re.sub(r"[()<>|]", lambda match: f"%{ord(match[0]):02X}", url)
