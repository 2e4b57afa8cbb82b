"""Render CommonMark of people as safe HTML or Markdown; raw HTML and other links than http(s) become text.

Pictures of local files are kept, embedded or as a copy; of others a line says why they are not shown.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Iterator, MutableMapping, Sequence
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline import image as parse_image
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup

from buildcompare.config.project import resolve
from buildcompare.text.sentences import say

IMAGES = "images"
"""The folder of copied pictures beside README.md."""
MAX_IMAGE = 1_000_000  # bytes
_SIGNATURES = {b"\x89PNG\r\n": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
_COPIED = re.compile(rf"{IMAGES}/[0-9a-f]{{8}}\.(?:png|jpeg|gif|webp)")
_SCHEMES = ("http://", "https://")
_RISKY = re.compile(
    r"""(?xm)
    (?P<code>(?P<ticks>`+)(?!`)[\s\S]*?(?<!`)(?P=ticks)(?!`))        # a code span shows whatever it holds
    | (?P<html><(?!https?://[^\s<>]+>))                            # a tag, unless it is a link <https://...>
    | !(?=\[)(?!\[[^\]]*\]\(images/[0-9a-f]{8}\.(?:png|jpeg|gif|webp)\))   # an image, unless it is a copy
    | \](?=\(\s*<?\s*(?!https?://|images/[0-9a-f]{8}\.(?:png|jpeg|gif|webp)\)))   # another link
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
        parser.disable(["image"] if headings else ["heading", "lheading"])
        parser.inline.ruler.at("image", _any_image)
        parser.add_render_rule("image", _embedded)
    parser.validateLink = lambda url: html or url.casefold().startswith(_SCHEMES)  # type: ignore[method-assign]  # its documented hook
    return parser


def to_html(text: str, *, headings: bool = False) -> Markup:
    """Render `text` as HTML in which nothing of its writer can run or load; `headings` are for the notebook's cells."""
    return Markup(_parser(headings=headings).render(text))  # noqa: S704  # the parser escaped it


def _any_image(state: StateInline, silent: bool) -> bool:  # the parser's signature
    """A picture of any source: it is judged where it is shown."""
    usual = state.md.validateLink
    state.md.validateLink = lambda url: True  # type: ignore[method-assign]  # its documented hook
    try:
        return parse_image(state, silent)
    finally:
        state.md.validateLink = usual  # type: ignore[method-assign]


def _embedded(
    renderer: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: MutableMapping[str, object]
) -> str:
    """A picture with its contents in the page, or why it is not shown."""
    kind, contents = _image(_source(tokens[at]))
    if contents is None:
        return f"<em>{Markup.escape(say('figures', 'image_refused', _source(tokens[at]), kind))}</em>"
    alt = Markup.escape(renderer.renderInlineAsText(tokens[at].children, options, env))
    return f'<img alt="{alt}" src="data:image/{kind};base64,{base64.b64encode(contents).decode()}">'


def _source(token: Token) -> str:
    return unquote(str(token.attrGet("src") or ""))


def _image(source: str) -> tuple[str, bytes | None]:
    """What kind of picture a local file is, with its contents; None where it is none, and why."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:|//", source):
        return "remote", None
    try:
        with resolve(source).open("rb") as file:
            contents = file.read(MAX_IMAGE + 1)
    except (OSError, ValueError):
        return "missing", None
    if len(contents) > MAX_IMAGE:
        return "size", None
    kind = next((kind for start, kind in _SIGNATURES.items() if contents.startswith(start)), None)
    return (kind, contents) if kind else ("kind", None)


def images(text: str) -> Iterator[tuple[str, str, bytes]]:
    """Every picture of a local file in `text`: how it is written there, the name of its copy, and its contents."""
    for token in (each for block in _parser().parse(text) for each in block.children or () if each.type == "image"):
        kind, contents = _image(_source(token))
        if contents is not None:
            name = f"{IMAGES}/{hashlib.sha256(contents).hexdigest()[:8]}.{kind}"
            yield _source(token), name, contents


def to_inline_html(text: str) -> Markup:
    """Render one line of `text`, such as a table cell, without a paragraph around it."""
    return Markup(_parser().renderInline(" ".join(text.split())))  # noqa: S704  # the parser escaped it


def to_markdown(text: str) -> str:
    """`text` as Markdown for a renderer that lets HTML through, as GitHub's does: the same, made inert."""

    def inert(match: re.Match[str]) -> str:
        indent = match["indent"] or ""
        return match["code"] or ("&lt;" if match["html"] else f"{indent}\\{match[0][len(indent) :]}")

    for source, name, _ in images(text):
        text = re.sub(rf"\]\(\s*<?{re.escape(source)}>?(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)", f"]({name})", text)
    made = _RISKY.sub(inert, text)
    return made if _harmless(_parser(html=True).parse(made)) else plain(text)


def _harmless(tokens: list[Token]) -> bool:
    for token in tokens:
        link = str(token.attrGet("href") or "").casefold() if token.type == "link_open" else _SCHEMES[0]
        copied = token.type == "image" and _COPIED.fullmatch(str(token.attrGet("src")))
        if (
            token.type in ("html_block", "html_inline")
            or (token.type == "image" and not copied)
            or not link.startswith(_SCHEMES)
        ):
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
