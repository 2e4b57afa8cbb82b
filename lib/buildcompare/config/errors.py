"""What can go wrong through a user's input, and how it is said: file, key, expected, found."""

from __future__ import annotations

from pathlib import Path


class BuildcompareError(Exception):
    """Any error whose message is written for the person at the command line."""


class InputError(BuildcompareError):
    """Something that the user gave cannot be used (exit code 3).

    Parameters
    ----------
    file
        The file that holds the fault, as the user wrote its path, or ``None`` where there is no file.
    key
        Where in the file: a dotted key such as ``tests[0].base.start``, a column, a line.
    expected, found
        What would have been right, and what is there.
    """

    def __init__(self, *, file: str | Path | None, key: str | None, expected: str, found: str) -> None:
        self.file = None if file is None else str(file)
        self.key = key
        self.expected = expected
        self.found = found
        where = ": ".join(part for part in (self.file, key) if part)
        super().__init__(f"{where or 'input'}: expected {expected}, found {found}")

    def within(self, place: str) -> InputError:
        """The same fault, and where in the comparison it was met."""
        key = ": ".join(part for part in (place, self.key) if part)
        return InputError(file=self.file, key=key, expected=self.expected, found=self.found)


class SourceError(BuildcompareError):
    """A server failed, through no fault of the user's input (exit code 4).

    Parameters
    ----------
    url
        The server's address, without credentials.
    expected, found
        What would have been right, and what there was: the server's own words, a line at most.
    key
        Where in the comparison it was met: which run's which query.
    """

    def __init__(self, *, url: str, expected: str, found: str, key: str | None = None) -> None:
        self.url = url
        self.expected = expected
        self.found = found
        self.key = key
        where = ": ".join(part for part in (key, url) if part)
        super().__init__(f"{where}: expected {expected}, found {found}")

    def within(self, place: str) -> SourceError:
        """The same fault, and where in the comparison it was met."""
        key = ": ".join(part for part in (place, self.key) if part)
        return SourceError(url=self.url, expected=self.expected, found=self.found, key=key)


class ExecutionError(BuildcompareError):
    """The notebook could not be run to its end (exit code 4)."""


def plural(count: int, noun: str) -> str:
    """Say a count with its noun: ``1 run``, ``2 runs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
