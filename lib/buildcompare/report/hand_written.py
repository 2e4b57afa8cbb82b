"""What people wrote into a README.md between its markers: it stays, byte for byte, in every new report."""

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
    return f"{_begin(block)}\n{_end(block)}"


def read(file: Path) -> dict[str, str]:
    """What stands between the markers of each block; nothing where there is no file.

    Raises
    ------
    InputError
        Where a marker is broken, or a README has none at all: what belongs to whom could only be guessed, and what
        is no marker's is written anew.
    """
    if not file.exists():
        return {}
    try:
        text = file.read_bytes().decode("utf-8")
    except (UnicodeDecodeError, OSError) as error:
        raise _fault(file, "the markers", "UTF-8", getattr(error, "strerror", None) or "other bytes") from None
    return _between(file, text)


def put(readme: str, written: Mapping[str, str]) -> str:
    """`readme` with what was written by hand in its places; a block that it lacks goes to its end."""
    for block, text in written.items():
        marked = f"{_begin(block)}{text}{_end(block)}"
        readme = readme.replace(empty(block), marked, 1) if empty(block) in readme else f"{readme}\n{marked}\n"
    return readme


def _between(file: Path, text: str) -> dict[str, str]:
    if not text.strip("\ufeff \t\r\n"):
        return {}
    found: dict[str, str] = {}
    opened: re.Match[str] | None = None
    for marker in _LIKE_A_MARKER.finditer(text):
        if not _MARKER.match(text, marker.start()):
            line = f"line {text.count(chr(10), 0, marker.start()) + 1}"
            raise _fault(file, line, f"{_begin(BLOCKS[0])}, to the letter", repr(marker[0])[:80])
    for marker in _MARKER.finditer(text):
        kind, block = marker[1], marker[2]
        line = f"line {text.count(chr(10), 0, marker.start()) + 1}"
        if block not in BLOCKS:
            raise _fault(file, line, f"a marker of {' or '.join(BLOCKS)}", repr(marker[0])[:80])
        if kind == "begin":
            if opened is not None:
                raise _fault(file, line, _end(opened[2]), marker[0])
            if block in found:
                raise _fault(file, line, f"one block {block!r}", "a second one")
            opened = marker
        else:
            if opened is None or opened[2] != block:
                raise _fault(file, line, _end(opened[2]) if opened else _begin(block), marker[0])
            found[block] = text[opened.end() : marker.start()]
            opened = None
    if opened is not None:
        line = f"line {text.count(chr(10), 0, opened.start()) + 1}"
        raise _fault(file, line, f"{_end(opened[2])} after it", "the end of the file")
    missing = [block for block in BLOCKS if block not in found]
    if missing:
        expected = f"{_begin(missing[0])} and {_end(missing[0])} (or no README.md: it is made anew)"
        raise _fault(file, "the markers", expected, "neither")
    return found


def _begin(block: str) -> str:
    return f"<!-- hand-written begin: {block} -->"


def _end(block: str) -> str:
    return f"<!-- hand-written end: {block} -->"


def _fault(file: Path, key: str, expected: str, found: str) -> InputError:
    return InputError(file=file, key=key, expected=expected, found=found)
