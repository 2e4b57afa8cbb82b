"""Reads a user's file into memory, unpacked, within a limit, and makes series of the samples that it holds."""

import glob
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import from_json

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve, root
from buildcompare.config.remote import is_remote
from buildcompare.recordings.recording import FloatArray, Recording, Series

MAX_BYTES = 32_000_000
"""Bound on an unpacked file: 20 hours of 40 graphs take 26 MB as CSV or JSON; a hostile file 25 times itself."""
MAX_GRAPHS = 200
"""Bound on the series of one run that a report draws: each is a figure."""
LATEST = 7_258_118_400.0
"""The year 2200, in seconds since 1970: larger numbers are milliseconds or finer."""


@dataclass(frozen=True)
class InputFile:
    """A file's unpacked contents, and what identifies it."""

    path: str | None
    """As the user wrote it: this is what messages and provenance name. None for data that is in no file."""
    contents: bytes
    stored: bytes
    """As they are on disk, where they may be packed."""

    @property
    def provenance(self) -> dict[str, object]:
        """What a report says about this file."""
        return {"path": self.path, "sha256": hashlib.sha256(self.stored).hexdigest(), "bytes": len(self.stored)}

    def fault(self, key: str | None, expected: str, found: str) -> InputError:
        """The error of a fault in this file."""
        return InputError(file=self.path, key=key, expected=expected, found=found)

    def json(self) -> Any:
        """The file's JSON, or :class:`InputError` naming where it goes wrong."""
        try:
            return from_json(self.contents.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise self.fault(f"byte {error.start}", "text in UTF-8", "bytes that are not") from None
        except ValueError as error:  # also numbers of thousands of digits, halves of characters
            found, _, place = str(error).partition(" at ")
            expected = "valid JSON, nested at most 200 levels deep"
            raise self.fault(place.replace(" column", ", column"), expected, found) from None


@dataclass(frozen=True)
class FileSource:
    """One kind of file that recordings are read from: what it is called in errors, how it is read and recognised."""

    expected: str
    read: Callable[[InputFile, Catalogue], Recording]
    recognise: Callable[[bytes], bool]


def read_input(path: str, *, expected: str) -> InputFile:
    """Read `path` (relative to the project's root), unpacking gzip; `expected` says what should be there."""
    fault = partial(InputError, file=path, key=None, expected=expected)
    try:
        file = resolve(path)
        if file.exists() and not file.is_file():
            raise fault(found="a folder" if file.is_dir() else "no regular file")
        with file.open("rb") as raw:
            stored = _bounded(raw, path)
        zipped = stored.startswith(b"\x1f\x8b")
        contents = _bounded(gzip.GzipFile(fileobj=io.BytesIO(stored)), path) if zipped else stored
    except FileNotFoundError:
        raise fault(found="no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found = "a file that ends early" if isinstance(error, EOFError) else str(error)
        raise fault(key="gzip", expected="a whole gzip file", found=found) from None
    except OSError as error:
        raise fault(found=error.strerror or str(error)) from None
    except ValueError as error:  # a path that no file can have
        raise fault(file=repr(path), found=str(error)) from None
    if not contents.strip():
        raise fault(found="an empty file")
    return InputFile(path, contents, stored)


def matching(paths: Iterable[str]) -> list[str]:
    """The paths, of a pattern such as ``run/log.4711.*`` all files that it fits, in the order of their names.

    A pattern that fits nothing stays, and reading it says so.
    """
    found: list[str] = []
    for path in paths:
        named = is_remote(path) or "\0" in path or not glob.has_magic(path) or resolve(path).exists()
        fit = [] if named else sorted(glob.glob(str(resolve(path))), key=lambda each: (len(each), each))
        own = [each if Path(path).is_absolute() else str(Path(each).relative_to(root())) for each in fit]
        found += own or [path]
    return found


def _bounded(stream: io.BufferedIOBase | gzip.GzipFile, path: str) -> bytes:
    contents = stream.read(MAX_BYTES + 1)
    if len(contents) > MAX_BYTES:
        raise InputError(file=path, key="size", expected=f"at most {MAX_BYTES // 1_000_000} MB unpacked", found="more")
    return contents


class Curve(NamedTuple):
    """Samples of one name as a file holds them, in any order."""

    name: str
    times: FloatArray
    values: FloatArray
    labels: Mapping[str, str]
    place: Callable[[int], str]
    """Says where the sample of an index stands."""


def series_of(
    file: InputFile, curves: Iterable[Curve], catalogue: Catalogue, *, apart: str = "series"
) -> tuple[Series, ...]:
    """Each curve under its metric, in the order of its times; the label `apart` tells apart what nothing else does."""
    found: list[Series] = []
    known: dict[tuple[str, frozenset[tuple[str, str]]], list[str]] = {}
    for name, times, values, labels, place in curves:
        if len(found) == MAX_GRAPHS:
            raise file.fault("metrics", f"at most {MAX_GRAPHS} series to draw", f"{MAX_GRAPHS + 1} or more")
        odd = np.flatnonzero(~((times >= 0.0) & (times < LATEST)))
        if odd.size:
            seen = f"{times[odd[0]]:.12g} of {name}" + (" (milliseconds or finer?)" if times[odd[0]] >= LATEST else "")
            raise file.fault(place(odd[0]), "times in seconds since 1970, before 2200", seen)
        order = np.argsort(times, kind="stable")
        twice = np.flatnonzero(np.diff(times[order]) == 0)
        if twice.size:
            raise file.fault(place(order[twice[0] + 1]), f"one value of {name} at each time", "a second one")
        metric = catalogue.find(name)
        alike = known.setdefault((metric.slug, frozenset(labels.items())), [])
        own = {**labels, apart: str(len(alike) + 1) if name in alike else name} if alike else dict(labels)
        alike.append(name)
        found.append(Series(metric.slug, name, metric.unit, times[order], values[order], labels=own))
    return tuple(found)
