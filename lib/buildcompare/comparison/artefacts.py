"""Find and copy the files that runs left behind (output, system statistics, scripts); limit their number and size."""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath

from buildcompare.config.errors import InputError
from buildcompare.config.params import Reported
from buildcompare.config.project import resolve
from buildcompare.results import ArtefactProvenance

FOLDER = "artefacts"
"""Name of the folder of artefacts inside a report's folder."""
MAX_FILES = 2_000
MAX_BYTES = 200_000_000
"""Maximum number and maximum total bytes of a report's artefact files; reports are often kept in git."""


_RUN = re.compile(r"(?i)\.(?:x?html?|xht|shtml|svgz?|xml|xslt?|mhtml?|mht)$")


@dataclass(frozen=True)
class Artefact:
    """One file and its place in the report's folder."""

    source: Path
    named: str
    """The file's path as the params name it; if they name a folder, its path followed by the file's path inside."""
    place: PurePosixPath
    bytes: int


def of_runs(params: Reported) -> list[tuple[ArtefactProvenance, list[Artefact]]]:
    """List the artefacts of each run; raise :class:`InputError` if one is missing or a link, or they exceed a limit."""
    artefacts, number, size = [], 0, 0
    for run in params.run_files():
        path = f"{FOLDER}/{run.folder}"
        try:
            files = list(listed(run.paths, PurePosixPath(path)))
            number, of_run = number + len(files), sum(each.bytes for each in files)
            size += of_run
            if number > MAX_FILES or size > MAX_BYTES:
                expected = f"at most {MAX_FILES:,} files and {MAX_BYTES // 1_000_000} MB in one report"
                found = f"{number:,} files, {size:,} bytes up to here"
                raise InputError(file=None, key=FOLDER, expected=expected, found=found)
        except InputError as error:
            raise params.fault_at((*run.location, FOLDER), error) from None
        if files:
            about = {"test": run.test, "build": run.build, "run": run.run, "path": path}
            artefacts.append((ArtefactProvenance(**about, files=len(files), bytes=of_run), files))
    return artefacts


def listed(paths: Iterable[str], place: PurePosixPath) -> Iterator[Artefact]:
    """Yield every file of `paths` (files or folders, relative to the project's root) with its place below `place`."""
    taken: set[str] = set()
    for path in paths:
        top = resolve(path)
        stem = top.name or "files"
        names = (f"{number}-{stem}" if number > 1 else stem for number in count(1))
        name = next(each for each in map(_inert, names) if each not in taken)
        taken.add(name)
        yield from _walk(top, place / name, path)


def _inert(name: str, others: Collection[str] = ()) -> str:
    """Add .txt to names of files that browsers would run, such as page.html; a new name differs from all `others`."""
    inert = name
    while _RUN.search(inert) or (inert != name and inert in others):
        inert += ".txt"
    return inert


def _walk(file: Path, place: PurePosixPath, named: str) -> Iterator[Artefact]:
    """Yield a file, or all files in a folder and its subfolders; raise :class:`InputError` for links and devices."""
    expected, found = "a file or folder without symbolic links", None
    try:
        about = file.lstat()
        str(place).encode()  # raises a ValueError if results.json cannot hold the path
        if stat.S_ISREG(about.st_mode):
            yield Artefact(file, named, place, about.st_size)
        elif stat.S_ISDIR(about.st_mode):
            names = {each.name for each in file.iterdir()}
            for each in sorted(file.iterdir()):
                yield from _walk(each, place / _inert(each.name, names), f"{named}/{each.name}")
        else:
            found = "a symbolic link" if stat.S_ISLNK(about.st_mode) else "no regular file"
    except OSError as error:
        found = error.strerror or str(error)
    except ValueError as error:  # for example, the path has a null byte
        raise InputError(file=repr(named), key=None, expected=expected, found=type(error).__name__) from None
    if found is not None:
        raise InputError(file=named, key=None, expected=expected, found=found)


def copy(artefacts: Iterable[Artefact], folder: Path) -> None:
    """Copy files to their places in `folder`; raise :class:`InputError` for links and for files that have grown."""
    for each in artefacts:
        target = folder / each.place
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(os.open(each.source, os.O_RDONLY | os.O_NOFOLLOW), "rb") as stream:
                contents = stream.read(each.bytes + 1)
        except OSError as error:
            expected, found = "a file that can be read", error.strerror or str(error)
            raise InputError(file=each.source, key=None, expected=expected, found=found) from None
        if len(contents) > each.bytes:
            raise InputError(file=each.source, key=None, expected="a file of constant size", found="a growing one")
        target.write_bytes(contents)
