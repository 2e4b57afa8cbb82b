"""Keep what people wrote between the markers of a README.md, byte for byte, in every new report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from buildcompare.config.errors import InputError

BLOCKS = ("comments", "action-items")
NOTICE = "<!-- Write between the hand-written markers: all other text of this file is made anew with every report. -->"
"""For whoever opens README.md to edit it."""
_MARKER = re.compile(r"<!-- hand-written (begin|end): ([^\n]*?) -->")
_LIKE_A_MARKER = re.compile(r"<[!\s-]*hand[-_\s]*written[-_\s]*(begin|end)\b[^\n>]*>?", re.IGNORECASE)
"""What was a marker before somebody, or an editor, touched it."""


def empty(block: str) -> str:
    """The markers of `block` with nothing between them: people write there."""
    return f"{_marker('begin', block)}\n{_marker('end', block)}"


def read(file: Path) -> dict[str, str]:
    """What stands between the markers of each block; nothing where there is no file.

    An :class:`InputError` where a marker is broken or missing: what is not between markers is written anew.
    """
    if not file.exists():
        return {}
    try:
        text = file.read_bytes().decode("utf-8")
    except (UnicodeDecodeError, OSError) as error:
        other = getattr(error, "strerror", None) or "other bytes"
        raise InputError(file=file, key="the markers", expected="UTF-8", found=other) from None
    if not text.strip("\ufeff \t\r\n"):
        return {}
    found: dict[str, str] = {}
    opened: re.Match[str] | None = None
    for like in _LIKE_A_MARKER.finditer(text):
        marker = _MARKER.match(text, like.start())
        block = marker[2] if marker else ""
        wanted = _marker("end", opened[2]) if opened else _marker("begin", block)
        expected = None
        if marker is None:
            expected = f"{_marker('begin', BLOCKS[0])}, to the letter"
        elif block not in BLOCKS:
            expected = f"a marker of {' or '.join(BLOCKS)}"
        elif marker[0] != wanted:
            expected = wanted
        elif block in found:
            expected = f"one block {block!r}"
        if expected:
            what = repr((marker or like)[0])[:80]
            raise InputError(file=file, key=_line(text, like), expected=expected, found=what)
        if opened and marker:
            found[block] = text[opened.end() : marker.start()]
        opened = None if opened else marker
    if opened:
        expected = f"{_marker('end', opened[2])} after it"
        raise InputError(file=file, key=_line(text, opened), expected=expected, found="the end of the file")
    if missing := [block for block in BLOCKS if block not in found]:
        begin, end = (_marker(what, missing[0]) for what in ("begin", "end"))
        expected = f"{begin} and {end} (or no README.md: it is made anew)"
        raise InputError(file=file, key="the markers", expected=expected, found="neither")
    return found


def put(readme: str, written: Mapping[str, str]) -> str:
    """`readme` with what was written by hand in its places; a block that it lacks goes to its end."""
    for block, text in written.items():
        marked = f"{_marker('begin', block)}{text}{_marker('end', block)}"
        readme = readme.replace(empty(block), marked, 1) if empty(block) in readme else f"{readme}\n{marked}\n"
    return readme


def _marker(what: str, block: str) -> str:
    return f"<!-- hand-written {what}: {block} -->"


def _line(text: str, match: re.Match[str]) -> str:
    return f"line {text.count(chr(10), 0, match.start()) + 1}"
