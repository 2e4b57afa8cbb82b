"""Errors for users: file, key, expected value and actual value in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from buildcompare.config.outside import MAX_LINE, one_line, shown

ADDRESSES: dict[Path, str] = {}
"""Local folder with a copy of remote files -> address of the original; errors show the address."""


def named(file: str | Path) -> str:
    """Name a file or folder: its path, or the address of the original if the file is a local copy."""
    name = str(file)
    for copy, address in ADDRESSES.items():
        if Path(name).is_relative_to(copy):
            name = address + name[len(str(copy)) :]
    return name


class BuildcompareError(Exception):
    """Base of errors whose message is one line for users."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message, 4 * MAX_LINE))


class _Placed(BuildcompareError):
    key: str | None

    def within(self, place: str) -> Self:
        """Return the same error with `place` before its key."""
        return type(self)(**{**vars(self), "key": _joined(place, self.key)})


class InputError(_Placed):
    """The user's input cannot be used (exit code 3).

    Parameters
    ----------
    file, key
        The faulty file, if any, and the place in it: a key such as ``tests[0].base.start``, a column or a line.
    expected, found
        The valid and the actual value.
    """

    def __init__(self, *, file: str | Path | None, key: str | None, expected: str, found: str) -> None:
        self.file = None if file is None else shown(named(file))[:MAX_LINE]
        self.key = None if key is None else one_line(key)
        self.expected, self.found = one_line(expected), one_line(found)
        message = f"{_joined(self.file, self.key) or 'input'}: expected {self.expected}, found {self.found}"
        # Hide user, password and query of addresses, also in an address that was mistaken for a path.
        message = re.sub(r"(?<=:/)(/?)(?:[^/\s]*|[^/\s@]*:(?!\d+/)\S*)@", r"\1***@", message)
        super().__init__(re.sub(r"(:/[^\s?]+)\?[^\s:,]+", r"\1?***", message))


class SourceError(_Placed):
    """A server failed, through no fault of the user's input (exit code 4).

    Parameters
    ----------
    url, key
        The server's address without credentials, and the run and query that failed.
    expected, found
        The valid answer and the actual answer, which is at most one line of the server's message.
    """

    def __init__(self, *, url: str, expected: str, found: str, key: str | None = None) -> None:
        self.url, self.expected, self.found, self.key = url, expected, found, key
        super().__init__(f"{_joined(key, url)}: expected {expected}, found {found}")


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)


class ExecutionError(BuildcompareError):
    """The notebook could not be run to its end (exit code 4)."""


def meant(word: object, choices: Iterable[str]) -> str:
    """Suggest the choice closest to `word`; empty if none is close."""
    near = difflib.get_close_matches(str(word), choices, 1)
    return f" (did you mean `{near[0]}`?)" if near else ""


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 run``, ``2 runs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
