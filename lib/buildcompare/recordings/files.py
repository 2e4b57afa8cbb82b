"""Reads a user's file into memory, unpacked, within a limit, with its hash for the provenance."""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from buildcompare.config.catalogue import Catalogue
from buildcompare.config.errors import InputError
from buildcompare.config.project import resolve
from buildcompare.recordings.recording import FloatArray, Recording

MAX_BYTES = 32_000_000
"""Bound on an unpacked file: 20 hours of 40 graphs take 26 MB as CSV or JSON; a hostile file 25 times itself."""
LATEST = 7_258_118_400.0
"""The year 2200, in seconds since 1970: larger numbers are milliseconds or finer."""


@dataclass(frozen=True)
class InputFile:
    """A file's unpacked contents, and what identifies it."""

    path: str
    """As the user wrote it: this is what messages and provenance name."""
    contents: bytes
    sha256: str
    size: int

    @property
    def provenance(self) -> dict[str, object]:
        """What a report says about this file."""
        return {"path": self.path, "sha256": self.sha256, "bytes": self.size}

    def fault(self, key: str | None, expected: str, found: str) -> InputError:
        """The error of a fault in this file."""
        return InputError(file=self.path, key=key, expected=expected, found=found)


@dataclass(frozen=True)
class FileSource:
    """One kind of file that recordings are read from: what it is called in errors, how it is read and recognised."""

    expected: str
    read: Callable[[InputFile, Catalogue], Recording]
    recognise: Callable[[bytes], bool]


def read_input(path: str, *, expected: str) -> InputFile:
    """Read `path` (relative to the project's root), unpacking gzip; `expected` says what should be there."""
    named, key = path, None
    try:
        file = resolve(path)
        if file.exists() and not file.is_file():
            found = "a folder" if file.is_dir() else "no regular file"
            raise InputError(file=path, key=None, expected=expected, found=found)
        with file.open("rb") as raw:
            packed = _bounded(raw, path)
        zipped = packed.startswith(b"\x1f\x8b")
        contents = _bounded(gzip.GzipFile(fileobj=io.BytesIO(packed)), path) if zipped else packed
        if contents.strip():
            return InputFile(path, contents, hashlib.sha256(packed).hexdigest(), len(packed))
        found = "an empty file"
    except FileNotFoundError:
        found = "no such file"
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        key, expected = "gzip", "a whole gzip file"
        found = "a file that ends early" if isinstance(error, EOFError) else str(error)
    except OSError as error:
        found = error.strerror or str(error)
    except ValueError as error:  # a path that no file can have
        named, found = repr(path), str(error)
    raise InputError(file=named, key=key, expected=expected, found=found)


def _bounded(stream: io.BufferedIOBase | gzip.GzipFile, path: str) -> bytes:
    contents = stream.read(MAX_BYTES + 1)
    if len(contents) > MAX_BYTES:
        raise InputError(file=path, key="size", expected=f"at most {MAX_BYTES // 1_000_000} MB unpacked", found="more")
    return contents


def parse_json(file: InputFile) -> Any:
    """The file's JSON, or :class:`InputError` naming where it goes wrong."""
    try:
        return json.loads(file.contents)
    except UnicodeDecodeError as error:
        key, expected, found = f"byte {error.start}", "text in UTF-8", "bytes that are not"
    except json.JSONDecodeError as error:
        key, expected, found = f"line {error.lineno}, column {error.colno}", "valid JSON", error.msg
    except ValueError as error:  # a number of thousands of digits
        key, expected, found = "numbers", "valid JSON", str(error)[:80]
    except RecursionError:
        key, expected, found = "levels", "values nested a few levels deep", "too many nested levels"
    raise file.fault(key, expected, found)


def check_times(path: str | None, key: str, times: FloatArray) -> None:
    """Refuse times that are no seconds since 1970."""
    bad = times[~((times >= 0.0) & (times < LATEST))]
    if bad.size:
        found = f"{bad[0]:.0f}" + (" (milliseconds or finer?)" if bad[0] >= LATEST else "")
        raise InputError(file=path, key=key, expected="times in seconds since 1970, before 2200", found=found)
