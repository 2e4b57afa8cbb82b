"""Shared code of all file readers: reading within size limits, and making series."""

import codecs
import contextlib
import glob
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from pydantic_core import from_json

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve, root
from buildcompare.config.remote import is_remote
from buildcompare.recordings.series import LATEST, FloatArray, Series

MAX_BYTES = 32_000_000
"""Maximum bytes of an unpacked file other than a table: 20 h of 40 graphs take 26 MB as JSON. Reading takes 650 MB."""
MAX_TABLE_BYTES = 500_000_000  # maximum bytes of an unpacked text table; reading takes up to 5 times this memory
MAX_COLUMNS = 250  # maximum number of columns of a table
MAX_GRAPHS = 200  # maximum number of series that a report draws for one run
HEAD_BYTES = 64_000
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class InputFile:
    """The unpacked contents of a file, with its path and its stored bytes."""

    path: str | None  # as the user wrote it, for messages and provenance; None for data that is in no file
    contents: bytes
    stored: bytes  # bytes on disk, possibly gzipped
    time_unit: str | None = None  # unit of numeric times, if the user states one

    @property
    def provenance(self) -> dict[str, object]:
        """Path, hash and size, for reports."""
        return {"path": self.path, "sha256": hashlib.sha256(self.stored).hexdigest(), "bytes": len(self.stored)}

    def fault(self, key: str | None, expected: str, found: str) -> InputError:
        """Make the error for a fault in this file."""
        return InputError(file=self.path, key=key, expected=expected, found=found)

    def json(self) -> Any:
        """Parse the file's JSON; an :class:`InputError` names the place of a fault."""
        try:
            return from_json(self.contents.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise self.fault(f"byte {error.start}", "text in UTF-8", "other bytes") from None
        except ValueError as error:  # also raised for overlong numbers and broken characters
            found, _, place = str(error).partition(" at ")
            expected = "valid JSON, nested at most 200 levels deep"
            raise self.fault(place.replace(" column", ", column"), expected, found) from None


def read_input(path: str, *, expected: str, is_table: Callable[[bytes], bool] | None = None) -> InputFile:
    """Read `path` (relative to the project's root) and unpack gzip.

    Parameters
    ----------
    path
        The file; messages name it as it is written here.
    expected
        What the file should be, for messages.
    is_table
        Function that recognises a text table by its first bytes. Tables may have `MAX_TABLE_BYTES`, others `MAX_BYTES`.
    """
    fault = partial(InputError, file=path, key=None, expected=expected)
    try:
        file = resolve(path)
        if file.exists() and not file.is_file():
            raise fault(found="a folder" if file.is_dir() else "no regular file")
        with file.open("rb") as raw:
            zipped = raw.peek(2)[:2] == _GZIP
            stored = _bounded(raw, path, None if zipped else is_table)
        contents = _bounded(gzip.GzipFile(fileobj=io.BytesIO(stored)), path, is_table) if zipped else stored
    except FileNotFoundError:
        raise fault(found="no such file") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        found = "a file that ends early" if isinstance(error, EOFError) else str(error)
        raise fault(key="gzip", expected="a whole gzip file", found=found) from None
    except OSError as error:
        raise fault(found=error.strerror or str(error)) from None
    except ValueError as error:  # the path is invalid, such as one with a null byte
        raise fault(file=repr(path), found=str(error)) from None
    if not contents[:100].strip() and not contents.strip():
        raise fault(found="an empty file")
    return InputFile(path, contents, stored)


@contextlib.contextmanager
def unpacked(path: str) -> Iterator[BinaryIO]:
    """Open a file, which may be gzipped or in UTF-16, for reading in pieces."""
    with resolve(path).open("rb") as raw:
        if (first := raw.peek(2)[:2]) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            yield cast(BinaryIO, codecs.EncodedFile(raw, "utf-8", "utf-16"))
        else:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if first == _GZIP else raw


def head_of(path: str) -> bytes:
    """Read the first bytes of a file, unpacked; empty if the file is unreadable (its reader later raises the error)."""
    try:
        with unpacked(path) as stream:
            return stream.read(HEAD_BYTES)
    except (OSError, EOFError, ValueError, zlib.error):
        return b""


def matching(paths: Iterable[str]) -> list[str]:
    """Expand patterns (``log.4711.*``), and folders to files with a dot in the name; keep paths without a match."""
    expanded: list[str] = []
    for path in paths:
        if not is_remote(path) and "\0" not in path and resolve(path).is_dir():
            path = f"{glob.escape(path)}/*.*"  # noqa: PLW2901  # the folder is replaced by the pattern of its files
        is_plain = is_remote(path) or "\0" in path or not glob.has_magic(path) or resolve(path).exists()
        fit = [] if is_plain else sorted(glob.glob(str(resolve(path))), key=lambda each: (len(each), each))
        named = [each if Path(path).is_absolute() else str(Path(each).relative_to(root())) for each in fit]
        expanded += named or [path]
    return expanded


def _bounded(stream: io.BufferedReader | gzip.GzipFile, path: str, is_table: Callable[[bytes], bool] | None) -> bytes:
    """Read all of `stream`; raise an error if it exceeds the limit (`MAX_TABLE_BYTES` for tables, else `MAX_BYTES`)."""
    limit = MAX_TABLE_BYTES if is_table and is_table(stream.peek(HEAD_BYTES)) else MAX_BYTES
    contents = stream.read(limit + 1)
    if len(contents) > limit:
        expected = f"at most {limit // 1_000_000} MB unpacked" + (" (a table)" if limit > MAX_BYTES else "")
        raise InputError(file=path, key="size", expected=expected, found="more")
    return contents


class Curve(NamedTuple):
    """Samples of one curve as a file holds them; the times may be in any order."""

    name: str
    times: FloatArray
    values: FloatArray
    labels: Mapping[str, str]
    place: Callable[[int], str]  # names the place of a sample by its index
    unit: str = ""  # unit of the values, if the catalogue states none


def series_of(
    file: InputFile, curves: Iterable[Curve], catalogue: Catalogue, *, apart: str = "series"
) -> tuple[Series, ...]:
    """Make a series of each curve, sorted by time; the label `apart` separates curves of equal metric and labels."""
    series: list[Series] = []
    names: dict[tuple[str, frozenset[tuple[str, str]]], list[str]] = {}
    for name, times, values, labels, place, unit in curves:
        if len(series) == MAX_GRAPHS:
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
        alike = names.setdefault((metric.slug, frozenset(labels.items())), [])
        label = {apart: str(len(alike) + 1) if name in alike else name} if alike else {}
        alike.append(name)
        named = (each for each in catalogue.error_rates if name.casefold() in (each.slug, each.name.casefold()))
        rate = next(named, None) if np.nanmax(values, initial=0.0) <= 100.0 else None  # values above 100 are counts
        row = Series(metric.slug, name, metric.unit or unit, times[order], values[order], labels={**labels, **label})
        unlisted = rate if not metric.known else None
        series.append(replace(row, metric=unlisted.slug, unit=unlisted.unit, role="error") if unlisted else row)
    return tuple(series)
