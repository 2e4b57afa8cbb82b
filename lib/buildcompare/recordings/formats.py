"""Kinds of files: how each is recognised and read, and the formats that other packages register."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import NamedTuple

from buildcompare.config.catalogue import Catalogue
from buildcompare.recordings.files import InputFile
from buildcompare.recordings.recording import Recording


@dataclass(frozen=True)
class FileSource:
    """One kind of file: its description in errors, its reader, and the function that recognises its contents."""

    expected: str
    read: Callable[[InputFile, Catalogue], Recording]
    recognise: Callable[[bytes], bool]
    join: Callable[[Sequence[InputFile], Catalogue], Recording] | None = None
    """Function that reads several files as one run; None if each file is one run."""


class Format(NamedTuple):
    """File formats that another package registers as an entry point `buildcompare.formats`."""

    recognise: Callable[[bytes], bool]  # True if `read` can read a file with these first `HEAD_BYTES` unpacked bytes
    read: Callable[[str, Catalogue], Recording]  # reads the file of this path
    parts: Callable[[Iterable[str]], set[str]] = lambda _: set()
    """Function that takes the names in a folder, and returns the names of files that belong to another file's run."""


@cache
def formats() -> tuple[Format, ...]:
    """Return the registered formats of all installed packages."""
    return tuple(entry.load() for entry in entry_points(group="buildcompare.formats"))
