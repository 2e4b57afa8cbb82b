"""What can go wrong through a user's input, and how it is said: file, key, expected, found."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from buildcompare.config.outside import MAX_LINE, one_line, shown

ADDRESSES: dict[Path, str] = {}
"""By the folder of a copy, the address that it was copied from: people know its files by that."""


def named(file: str | Path) -> str:
    """What a file or folder is called: its path, or its address where it is a copy."""
    found = str(file)
    for copy, address in ADDRESSES.items():
        if Path(found).is_relative_to(copy):
            found = address + found[len(str(copy)) :]
    return found


class BuildcompareError(Exception):
    """Any error whose message, one line, is written for the person at the command line."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message, 4 * MAX_LINE))


class _Placed(BuildcompareError):
    key: str | None

    def within(self, place: str) -> Self:
        """The same fault, and where in the comparison it was met."""
        return type(self)(**{**vars(self), "key": _joined(place, self.key)})


class InputError(_Placed):
    """Something that the user gave cannot be used (exit code 3).

    Parameters
    ----------
    file, key
        The file that holds the fault, if any, and where in it: ``tests[0].base.start``, a column, a line.
    expected, found
        What would have been right, and what is there.
    """

    def __init__(self, *, file: str | Path | None, key: str | None, expected: str, found: str) -> None:
        self.file = None if file is None else shown(named(file))[:MAX_LINE]
        self.key = None if key is None else one_line(key)
        self.expected, self.found = one_line(expected), one_line(found)
        said = f"{_joined(self.file, self.key) or 'input'}: expected {self.expected}, found {self.found}"
        # Of an address, also one that was taken for a path, neither user nor password nor query, in which tokens stand.
        said = re.sub(r"(?<=:/)(/?)(?:[^/\s]*|[^/\s@]*:(?!\d+/)\S*)@", r"\1***@", said)
        super().__init__(re.sub(r"(:/[^\s?]+)\?[^\s:,]+", r"\1?***", said))


class SourceError(_Placed):
    """A server failed, through no fault of the user's input (exit code 4).

    Parameters
    ----------
    url, key
        The server's address, without credentials, and which run's which query failed.
    expected, found
        What would have been right, and what there was: the server's own words, a line at most.
    """

    def __init__(self, *, url: str, expected: str, found: str, key: str | None = None) -> None:
        self.url, self.expected, self.found, self.key = url, expected, found, key
        super().__init__(f"{_joined(key, url)}: expected {expected}, found {found}")


def _joined(*parts: str | None) -> str:
    return ": ".join(part for part in parts if part)


class ExecutionError(BuildcompareError):
    """The notebook could not be run to its end (exit code 4)."""


def meant(given: object, known: Iterable[str]) -> str:
    """Behind what was found: which of the words that are known is nearly it, or nothing."""
    import difflib  # late: nobody needs it where nothing is wrong

    near = difflib.get_close_matches(str(given), known, 1)
    return f" (did you mean `{near[0]}`?)" if near else ""


def plural(count: int, noun: str) -> str:
    """Say a count with its noun: ``1 run``, ``2 runs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
